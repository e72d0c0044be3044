//! What these tests share.

use std::fs;
use std::path::{Path, PathBuf};

use rekindle::core::LogName;
use rekindle::core::record::Checkpoint;
use rekindle::operations::{self, At, HistoryOptions, Inspected};
use rekindle::{CheckpointId, Engine, SessionKey};
use rekindle_import::ImportReport;
use serde_json::Value;

/// A directory of fixtures.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A copy of a directory of fixtures, to be spoilt.
pub fn copy(name: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    copy_into(&fixture(name), directory.path());
    directory
}

fn copy_into(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_into(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// The fixture of a checkpoint table, as a database.
pub fn database(more: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.db");
    let sql = fs::read_to_string(fixture("checkpoint_table/checkpoints.sql")).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "synchronous", "off").unwrap();
    connection.execute_batch(&sql).unwrap();
    connection.execute_batch(more).unwrap();
    connection.close().unwrap();
    (directory, path)
}

/// The checkpoints of a session, oldest first.
pub async fn checkpoints(engine: &Engine, session: &SessionKey) -> Vec<Checkpoint> {
    let page = operations::history(engine, session, &HistoryOptions::default()).await.unwrap();
    let mut checkpoints: Vec<_> = page.checkpoints.into_iter().map(|info| info.checkpoint).collect();
    checkpoints.reverse();
    checkpoints
}

pub fn at(id: &str) -> At {
    At::Checkpoint(CheckpointId::new(id).unwrap())
}

pub async fn inspect(engine: &Engine, session: &SessionKey, id: &str) -> Inspected {
    operations::inspect(engine, session, &at(id)).await.unwrap()
}

pub fn register(seen: &Inspected, key: &str) -> Value {
    seen.state.register(key).unwrap_or_else(|| panic!("register `{key}` is not set")).to_value().unwrap()
}

pub fn log(seen: &Inspected, name: &str) -> Vec<Value> {
    seen.state.log(&LogName::new(name).unwrap()).iter().map(|item| item.to_value().unwrap()).collect()
}

/// Whether the report says something with these words about a place that ends so.
pub fn says(notes: &[rekindle_import::Note], place: &str, words: &str) -> bool {
    notes.iter().any(|note| note.place.ends_with(place) && note.reason.contains(words))
}

/// Every byte the report and the sessions have, to look for what must not be there.
pub async fn everything(engine: &Engine, report: &ImportReport) -> String {
    let mut text = serde_json::to_string(report).unwrap();
    for imported in &report.sessions {
        let mut file = Vec::new();
        operations::export(engine, &imported.session, &mut file).await.unwrap();
        text.push_str(&String::from_utf8_lossy(&file));
        let shown = operations::show(engine, &imported.session).await.unwrap();
        text.push_str(&serde_json::to_string(&shown).unwrap());
    }
    text
}
