//! Sessions that other programs stored, brought into the journal of an [`Engine`]: one checkpoint for each of
//! theirs, so that they can be listed, inspected, compared, forked and, with the executor that
//! fits, resumed.
//!
//! | stored as | read by | becomes a session of |
//! | --- | --- | --- |
//! | JSON session folders: `sessions/<id>/{manifest.json,snapshots/,checkpoints/}`, `pending/` | [`json_sessions`] | the agent loop |
//! | a checkpoint table: SQLite, table `checkpoints` | `checkpoint_table` (feature `sqlite`) | a plan |
//! | session directories: `<agent>/sessions/<id>/{state.json,checkpoints/,conversations/}` | [`session_directory`] | a graph |
//!
//! The source is only read. What is damaged is skipped and named in the report; the rest is
//! imported. A session is complete once its metadata say so: one whose import was stopped is
//! deleted and done anew when the import is repeated, unless somebody has changed it since.
//!
//! Records carry the time of the import. The time the source gives stands in each checkpoint as
//! `imported_at_source`, and in the session's metadata under `import`.

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: rekindle_fuzz::Counting = rekindle_fuzz::Counting;

mod changes;
mod chat;
#[cfg(feature = "sqlite")]
mod checkpoint_table;
mod json_sessions;
mod read;
mod session_directory;
mod time;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use rekindle::{
    BranchId, CheckpointId, Engine, Error, ErrorKind, Json, Position, Result, SessionId, SessionInfo, SessionKey,
    Status,
};
use serde::Serialize;
use serde_json::Value;

#[cfg(feature = "sqlite")]
pub use checkpoint_table::checkpoint_table;
pub use json_sessions::json_sessions;
pub use session_directory::session_directory;

/// The key of a session's metadata that says where it came from.
const MARK: &str = "import";
/// The field of a checkpoint that names the file or row it came from.
const FROM: &str = "imported_from";
/// The prefix of registers that hold what has no place of its own here, as it came.
const KEPT: &str = "imported/";

/// What is done with a session whose id is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// The import is refused before anything is written.
    #[default]
    Refuse,
    /// The session is left as it is, the others are imported, and the report says so.
    Skip,
}

/// How to import.
///
/// ```
/// use rekindle_import::{Existing, ImportOptions};
/// let options = ImportOptions::new().dry_run().with_existing(Existing::Skip);
/// assert!(options.dry_run && options.max_file_bytes == 64 << 20);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// Whether nothing is written and the report says what would be.
    pub dry_run: bool,
    /// What is done with a session whose id is taken.
    pub existing: Existing,
    /// The most bytes a file, or the state in a row, may have.
    pub max_file_bytes: u64,
    /// The most entries of a directory, or rows of a table, that are read.
    pub max_files: usize,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self { dry_run: false, existing: Existing::Refuse, max_file_bytes: 64 << 20, max_files: 100_000 }
    }
}

impl ImportOptions {
    /// Imports what is new, refuses what is there.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes nothing.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// What is done with a session whose id is taken.
    #[must_use]
    pub fn with_existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// Another limit on the bytes of one file, or of the state in one row.
    #[must_use]
    pub fn with_max_file_bytes(mut self, bytes: u64) -> Self {
        self.max_file_bytes = bytes;
        self
    }

    /// Another limit on the entries of one directory, or the rows of a table.
    #[must_use]
    pub fn with_max_files(mut self, files: usize) -> Self {
        self.max_files = files;
        self
    }
}

/// What an import did or, in a dry run, would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ImportReport {
    /// Whether nothing was written.
    pub dry_run: bool,
    /// The sessions.
    pub sessions: Vec<Imported>,
    /// What was left out, and why.
    pub skipped: Vec<Note>,
    /// What was imported, but not quite as it stands in the source.
    pub warnings: Vec<Note>,
    /// Values that were taken out because nobody may store them; a resume must bring them again.
    pub redacted: Vec<Redacted>,
}

/// A session that was imported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Imported {
    /// The session.
    pub session: SessionKey,
    /// Its checkpoints, oldest first.
    pub checkpoints: Vec<ImportedCheckpoint>,
    /// What it is doing, as far as the source tells.
    pub status: Status,
    /// Whether an earlier import of it had been stopped and was done anew.
    pub done_anew: bool,
}

/// A checkpoint that was imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImportedCheckpoint {
    /// The checkpoint: of the same id as in the source, where that is a legal one.
    pub id: CheckpointId,
    /// The file or row it came from.
    pub place: String,
    /// Its id in the source, if it had to get another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<String>,
}

/// Something worth knowing about a file or a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// The file or row.
    pub place: String,
    /// What there is to say.
    pub reason: String,
}

/// A value that was taken out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Redacted {
    /// The session.
    pub session: SessionKey,
    /// The key it stood under.
    pub key: String,
    /// Where it was first seen.
    pub place: String,
}

/// What was found, and what was passed over and why.
type Found<T> = (Vec<T>, Vec<(String, String)>);

/// One import under way.
struct Import<'a> {
    engine: &'a Engine,
    options: ImportOptions,
    report: ImportReport,
    /// What was warned of, so that nothing is said twice.
    warned: BTreeSet<(String, String)>,
}

/// A session that may be imported.
struct Admitted<T> {
    key: SessionKey,
    /// What is there of it, from an import that was stopped.
    leftover: bool,
    source: T,
}

impl<'a> Import<'a> {
    fn new(engine: &'a Engine, options: ImportOptions) -> Self {
        let report = ImportReport { dry_run: options.dry_run, ..ImportReport::default() };
        Self { engine, options, report, warned: BTreeSet::new() }
    }

    fn skip(&mut self, place: impl Into<String>, reason: impl Into<String>) {
        self.report.skipped.push(Note { place: place.into(), reason: reason.into() });
    }

    fn warn(&mut self, place: impl Into<String>, reason: impl Into<String>) {
        let (place, reason) = (place.into(), reason.into());
        if self.warned.insert((place.clone(), reason.clone())) {
            self.report.warnings.push(Note { place, reason });
        }
    }

    fn pass_over(&mut self, notes: Vec<(String, String)>) {
        notes.into_iter().for_each(|(place, reason)| self.skip(place, reason));
    }

    /// The sessions that may be imported: those with a legal id that is free. Decided for all of
    /// them before anything is written.
    async fn admit<T>(&mut self, found: Vec<(String, String, T)>) -> Result<Vec<Admitted<T>>> {
        let mut admitted = Vec::new();
        for (id, place, source) in found {
            let key = match SessionId::new(&id) {
                Ok(id) => SessionKey::new(self.engine.namespace().clone(), id),
                Err(error) => {
                    self.skip(place, error.message());
                    continue;
                }
            };
            match (look(self.engine, &key).await?, self.options.existing) {
                (There::Nothing, _) => admitted.push(Admitted { key, leftover: false, source }),
                (There::Leftover, _) => admitted.push(Admitted { key, leftover: true, source }),
                (There::Taken(why), Existing::Skip) => self.skip(place, why),
                (There::Taken(why), Existing::Refuse) => {
                    return Err(Error::new(ErrorKind::AlreadyExists, why)
                        .during("import")
                        .on(&key)
                        .hint("import with `Existing::Skip` to leave it as it is, or into another namespace"));
                }
            }
        }
        Ok(admitted)
    }
}

/// What stands under the id of a session.
enum There {
    Nothing,
    Leftover,
    Taken(String),
}

async fn look(engine: &Engine, key: &SessionKey) -> Result<There> {
    let info = match engine.journal().open(key).await {
        Ok(info) => info,
        Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(There::Nothing),
        Err(error) => return Err(error.during("import").on(key)),
    };
    let mark: Option<Value> = info.header.metadata.get(MARK).and_then(|mark| mark.to_value().ok());
    let complete = mark.as_ref().and_then(|mark| mark.get("complete")).and_then(Value::as_bool);
    Ok(match complete {
        None => There::Taken(format!("there is a session `{key}` that was not imported")),
        Some(true) => There::Taken(format!("session `{key}` was imported before")),
        Some(false) if is_untouched(engine, &info).await? => There::Leftover,
        Some(false) => There::Taken(format!("the import of `{key}` was stopped, and it was changed since")),
    })
}

/// Whether nobody but an import has written to a session: nobody holds it, nothing was sent to it,
/// it has no forks, and its last record is a checkpoint of the import.
async fn is_untouched(engine: &Engine, info: &SessionInfo) -> Result<bool> {
    let (main, inbox) = (BranchId::main(), BranchId::inbox());
    let strange = |branch: &rekindle::core::BranchInfo| {
        branch.lease.is_some()
            || (branch.branch != main && branch.branch != inbox)
            || (branch.branch == inbox && branch.head.seq.0 > 0)
    };
    if info.branches.iter().any(strange) {
        return Ok(false);
    }
    let head = info.branch(&main)?.head.seq;
    if head.0 == 0 {
        return Ok(true);
    }
    let end = Position::new(main, head);
    let last = engine.journal().checkpoints(&info.header.key, Some(&end), None, 1).await?;
    Ok(last.first().is_some_and(|last| last.position == end && last.checkpoint.extra.contains_key(FROM)))
}

/// What a session's metadata say about its import.
fn mark(form: &str, place: &str, times: &BTreeMap<String, Value>, complete: bool) -> Json {
    let mut mark = serde_json::Map::new();
    mark.insert("form".into(), form.into());
    mark.insert("from".into(), place.into());
    mark.insert("complete".into(), complete.into());
    mark.extend(times.iter().map(|(name, value)| (name.clone(), value.clone())));
    Json::from(Value::Object(mark))
}

/// The examples of the page on importing are compiled with the documentation tests.
#[cfg_attr(doctest, doc = include_str!("../../../docs/importing.md"))]
#[cfg(doctest)]
struct Importing;
