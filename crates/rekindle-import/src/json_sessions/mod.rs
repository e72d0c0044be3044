//! JSON session folders: for each session a manifest, a snapshot after each turn and a checkpoint
//! after each iteration, and results that were saved before a checkpoint was.

mod point;
mod survey;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rekindle::{Engine, Error, Result};

use self::point::{Before, Reading};
use self::survey::{Kind, survey};
use super::read::{self, Listing};
use super::write::{Origin, Writer};
use super::{Admitted, Found, Import, ImportOptions, ImportReport};

/// Imports sessions from JSON session folders. `path` is the directory that holds `sessions` and
/// `pending`, the directory `sessions`, or the folder of one session; a session's id is the name
/// of its folder. See [`crate`] for what holds for every import.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle_import::ImportOptions;
/// use rekindle::{Agent, Engine};
///
/// # let directory = std::env::temp_dir().join(format!("rekindle-doc-{}", std::process::id()));
/// # let folder = directory.join("sessions/trip-42/snapshots");
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let said = r#"{"Messages": [{"role": "user", "content": "hello"}], "LastActivity": "2025-01-15T10:30:00Z"}"#;
/// # std::fs::write(folder.join("s1.json"), said).unwrap();
/// let engine = Engine::memory()?;
/// let report = rekindle_import::json_sessions(&engine, &directory, ImportOptions::new()).await?;
/// assert_eq!(report.sessions[0].session.id.as_str(), "trip-42");
///
/// let session = engine.open_session("trip-42").await?;
/// let seen = engine.journal().load(session.key(), None).await?;
/// assert_eq!(Agent::messages(&seen.state)?[0].text(), "hello");
/// # std::fs::remove_dir_all(&directory).unwrap();
/// # Ok(()) }
/// ```
pub async fn json_sessions(engine: &Engine, path: &Path, options: ImportOptions) -> Result<ImportReport> {
    let mut import = Import::new(engine, options.clone());
    let path = path.to_owned();
    let (found, passed_over) =
        read::blocking(move || find(&path, &options)).await?.map_err(|error| error.during("import"))?;
    import.pass_over(passed_over);
    let found = found.into_iter().map(|folder| (folder.id.clone(), folder.place(), folder)).collect();
    for admitted in import.admit(found).await? {
        session(&mut import, &admitted).await?;
    }
    Ok(import.report)
}

/// The folder of a session.
#[derive(Clone, Debug)]
struct Folder {
    id: String,
    path: PathBuf,
    /// The folder of pending writes.
    pending: Option<PathBuf>,
}

impl Folder {
    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

fn find(path: &Path, options: &ImportOptions) -> Result<Found<Folder>> {
    let path = read::existing(path)?;
    let refuse = |why: String| {
        Error::invalid(format!("`{}` holds no JSON session folders: {why}", path.display()))
            .hint("name the directory that holds `sessions`, or the folder of one session")
    };
    let listing = read::list(&path, options).map_err(refuse)?;
    let (sessions, pending) = if let Some(sessions) = listing.dir("sessions") {
        let pending = listing.dir("pending").map(|entry| entry.path.clone());
        (read::list(&sessions.path, options).map_err(refuse)?, pending)
    } else if is_folder(&listing) {
        let id = read::name_of(&path).ok_or_else(|| refuse("its name is not UTF-8".into()))?;
        let pending = path.ancestors().nth(2).and_then(|base| beside(base, options));
        return Ok((vec![Folder { id, path, pending }], listing.passed_over));
    } else {
        let pending = path.parent().and_then(|base| beside(base, options));
        (listing, pending)
    };
    let folders: Vec<Folder> = sessions
        .dirs()
        .map(|entry| Folder { id: entry.name.clone(), path: entry.path.clone(), pending: pending.clone() })
        .collect();
    match folders.is_empty() {
        true => Err(refuse("there is no folder in it".into())),
        false => Ok((folders, sessions.passed_over)),
    }
}

fn is_folder(listing: &Listing) -> bool {
    listing.file("manifest.json").is_some()
        || listing.dir("snapshots").is_some()
        || listing.dir("checkpoints").is_some()
}

/// The folder of pending writes in the directory that also holds `sessions`.
fn beside(base: &Path, options: &ImportOptions) -> Option<PathBuf> {
    let listing = read::list(base, options).ok()?;
    listing.dir("sessions")?;
    listing.dir("pending").map(|entry| entry.path.clone())
}

async fn session(import: &mut Import<'_>, admitted: &Admitted<Folder>) -> Result<()> {
    let folder = &admitted.source;
    let (survey_of, options) = (folder.clone(), import.options.clone());
    let contents = match read::blocking(move || survey(&survey_of, &options)).await? {
        Ok(contents) => contents,
        Err(why) => {
            import.skip(folder.place(), why);
            return Ok(());
        }
    };
    import.pass_over(contents.skipped);
    contents.warnings.into_iter().for_each(|(place, note)| import.warn(place, note));
    let origin = Origin {
        executor: "agent",
        form: "json_sessions",
        place: folder.place(),
        times: contents.times,
        agent: contents.agent,
        labels: BTreeMap::new(),
        metadata: contents.metadata,
    };
    let mut writer = Writer::new(admitted, origin);
    let mut before = Before::default();
    for item in contents.items {
        let pending = contents.pending.get(&item.id).filter(|_| item.kind == Kind::Checkpoint);
        let (path, pending, options) = (item.path.clone(), pending.cloned(), import.options.clone());
        let read = read::blocking(move || {
            let writes = pending.map(|path| (path.display().to_string(), read::json(&path, &options)));
            (read::object(&path, &options), writes)
        });
        let (object, writes) = read.await?;
        let point = object.and_then(|object| Reading { import, item: &item }.point(&object, writes, &mut before));
        match point {
            Ok(point) => writer.push(import, point).await?,
            Err(why) => import.skip(item.place, why),
        }
    }
    writer.finish(import).await
}
