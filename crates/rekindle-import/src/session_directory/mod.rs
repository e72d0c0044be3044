//! Session directories: the state of a session, its checkpoints with an index, and the
//! conversations of its nodes.

mod state;
mod survey;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rekindle::core::record::{CheckpointSource, CheckpointTrigger, RunOutcome};
use rekindle::{Engine, Error, Json, Result};
use serde_json::Value;

use self::state::{Before, Moment};
use self::survey::{Contents, Item, survey};
use super::read::{self, Entry, Object, Read, field, sub, text, truth};
use super::write::{Mark, Origin, Point, Writer};
use super::{Admitted, Found, Import, ImportOptions, ImportReport};

/// Imports sessions from session directories. `path` is the directory of one session, a directory
/// `sessions`, or the directory of an agent that holds one; a session's id is the name of its
/// directory, and the agent's name that of the directory above `sessions`. See
/// [`crate`] for what holds for every import.
///
/// ```no_run
/// # async fn example() -> rekindle::Result<()> {
/// use rekindle::Engine;
/// use rekindle_import::ImportOptions;
///
/// let engine = Engine::open("sqlite:./rekindle.db")?;
/// let directory = "./agents/deep_research_agent".as_ref();
/// let report = rekindle_import::session_directory(&engine, directory, ImportOptions::new().dry_run()).await?;
/// for skipped in &report.skipped {
///     eprintln!("{}: {}", skipped.place, skipped.reason);
/// }
/// # Ok(()) }
/// ```
pub async fn session_directory(engine: &Engine, path: &Path, options: ImportOptions) -> Result<ImportReport> {
    let mut import = Import::new(engine, options.clone());
    let path = path.to_owned();
    let (found, passed_over) =
        read::blocking(move || find(&path, &options)).await?.map_err(|error| error.during("import"))?;
    import.pass_over(passed_over);
    let found = found.into_iter().map(|directory| (directory.id.clone(), directory.place(), directory)).collect();
    for admitted in import.admit(found).await? {
        session(&mut import, &admitted).await?;
    }
    Ok(import.report)
}

/// The directory of a session.
#[derive(Clone, Debug)]
struct Directory {
    id: String,
    path: PathBuf,
    agent: Option<String>,
}

impl Directory {
    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

fn find(path: &Path, options: &ImportOptions) -> Result<Found<Directory>> {
    let path = read::existing(path)?;
    let refuse = |why: String| {
        Error::invalid(format!("`{}` holds no session directories: {why}", path.display()))
            .hint("name the directory of a session, a directory `sessions` or the directory of an agent")
    };
    let agent_above = |sessions: &Path| {
        let above = sessions.parent().filter(|_| read::name_of(sessions).as_deref() == Some("sessions"));
        above.and_then(read::name_of)
    };
    let mut listing = read::list(&path, options).map_err(refuse)?;
    if listing.file("state.json").is_some() || listing.dir("checkpoints").is_some() {
        let id = read::name_of(&path).ok_or_else(|| refuse("its name is not UTF-8".into()))?;
        let agent = path.parent().and_then(agent_above);
        return Ok((vec![Directory { id, path, agent }], listing.passed_over));
    }
    let mut agent = agent_above(&path);
    if let Some(sessions) = listing.dir("sessions").cloned() {
        agent = read::name_of(&path);
        listing = read::list(&sessions.path, options).map_err(refuse)?;
    }
    let of = |entry: &Entry| Directory { id: entry.name.clone(), path: entry.path.clone(), agent: agent.clone() };
    let directories: Vec<Directory> = listing.dirs().map(of).collect();
    match directories.is_empty() {
        true => Err(refuse("there is no directory in it".into())),
        false => Ok((directories, listing.passed_over)),
    }
}

async fn session(import: &mut Import<'_>, admitted: &Admitted<Directory>) -> Result<()> {
    let directory = &admitted.source;
    let (survey_of, options) = (directory.clone(), import.options.clone());
    let mut contents = match read::blocking(move || survey(&survey_of, &options)).await? {
        Ok(contents) => contents,
        Err(why) => {
            import.skip(directory.place(), why);
            return Ok(());
        }
    };
    import.pass_over(std::mem::take(&mut contents.skipped));
    std::mem::take(&mut contents.warnings).into_iter().for_each(|(place, note)| import.warn(place, note));
    let mut writer = Writer::new(admitted, origin(directory, contents.state.as_ref()));
    let end = end(import, directory, &mut contents);
    redact(import, &mut contents);
    let moments: Vec<Moment> = contents.items.iter().map(|item| item.moment.clone()).collect();
    let mut before = Before::new(&moments, contents.conversations);
    let last = contents.items.len().checked_sub(1);
    for (number, item) in contents.items.into_iter().enumerate() {
        let (path, options) = (item.path.clone(), import.options.clone());
        let object = read::blocking(move || read::object(&path, &options)).await?;
        match object.and_then(|object| point(import, &item, number, &object, &mut before)) {
            Ok(mut point) => {
                if Some(number) == last {
                    point.end = end.clone();
                }
                writer.push(import, point).await?;
            }
            Err(why) => import.skip(item.place, why),
        }
    }
    writer.finish(import).await
}

/// Takes out of conversations what must not be stored; one in which that fails is left out.
fn redact(import: &mut Import<'_>, contents: &mut Contents) {
    let journal = import.engine.journal().clone();
    contents.conversations.retain_mut(|conversation| match conversation.redact(journal.codec().redaction()) {
        Ok(()) => true,
        Err(why) => {
            import.skip(conversation.place(), why);
            false
        }
    });
}

/// How the last checkpoint leaves the session.
fn end(import: &mut Import<'_>, directory: &Directory, contents: &mut Contents) -> Option<(RunOutcome, String)> {
    let end = contents.end()?;
    let last = contents.items.last_mut()?;
    if end.0 == RunOutcome::Succeeded && !last.moment.end_here() {
        import.warn(directory.place(), "its state says that it is complete, but no checkpoint shows its end");
        return None;
    }
    Some(end)
}

fn origin(directory: &Directory, state: Option<&Object>) -> Origin {
    let mut times = BTreeMap::new();
    let timestamps = state.and_then(|state| sub(state, "timestamps").ok().flatten());
    for name in ["created_at", "started_at", "updated_at", "completed_at"] {
        let said = state.and_then(|state| field(state, name)).or(timestamps.and_then(|times| field(times, name)));
        times.extend(said.map(|said| (name.to_owned(), said.clone())));
    }
    let mut metadata = BTreeMap::new();
    for name in ["goal", "goal_id", "entry_point", "status", "error"] {
        let said = state.and_then(|state| field(state, name));
        metadata.extend(said.map(|said| (name.to_owned(), Json::from(said.clone()))));
    }
    Origin {
        executor: "graph",
        form: "session_directory",
        place: directory.place(),
        times,
        agent: directory.agent.clone(),
        labels: BTreeMap::new(),
        metadata,
    }
}

fn point(import: &mut Import<'_>, item: &Item, number: usize, object: &Object, before: &mut Before) -> Read<Point> {
    let after = before.next(&item.moment, object, number)?;
    after.notes.into_iter().for_each(|note| import.warn(&item.place, note));
    let unclean = truth(object, "is_clean") == Some(false);
    let mut extra = BTreeMap::new();
    if let Some(signature) = field(object, "signature") {
        import.warn(&item.place, "its signature is kept and was not checked");
        extra.insert("imported_signature".to_owned(), signature.clone());
    }
    let references =
        field(object, "conversation_states").filter(|said| said.as_object().is_none_or(|of| !of.is_empty()));
    extra.extend(references.map(|said| ("imported_conversations".to_owned(), said.clone())));
    for (name, node) in [("current_node", &item.moment.current), ("next_node", &item.moment.next)] {
        extra.extend(node.clone().map(|node| (name.to_owned(), Value::from(node))));
    }
    let by_hand = state::is_by_hand(item.moment.kind);
    let mark = Mark {
        source: CheckpointSource::Loop,
        trigger: if by_hand { CheckpointTrigger::Manual } else { CheckpointTrigger::Auto },
        kind: item.moment.kind,
        step: after.step,
        description: text(object, "description").unwrap_or_default().to_owned(),
        unclean,
        closed: truth(object, "can_resume_from") == Some(false),
        extra,
        ..Mark::default()
    };
    Ok(Point {
        place: item.place.clone(),
        id: item.moment.id.clone(),
        at: field(object, "created_at").cloned(),
        mark,
        logs: after.logs,
        registers: after.registers,
        effects: after.effects,
        fresh: after.fresh,
        ..Point::default()
    })
}
