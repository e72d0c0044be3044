//! Importers: one file or one cell of what another program stored is changed.

use std::path::{Path, PathBuf};

use rekindle::Engine;
use rekindle_fuzz::{Fuzz, fuzz};
use rekindle_import::ImportOptions;

use super::block_on;

/// Memory of an engine with its store, and of what SQLite is asked.
const MEMORY: u64 = 16 << 20;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(next) = open.pop() {
        for path in std::fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => open.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}

/// An input is a number in one line, and what is put in that place behind it.
fn split(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let at = bytes.iter().take(4).position(|byte| *byte == b'\n')?;
    Some((std::str::from_utf8(&bytes[..at]).ok()?.parse().ok()?, &bytes[at + 1..]))
}

fn joined(number: usize, content: &[u8]) -> Vec<u8> {
    [format!("{number}\n").as_bytes(), content].concat()
}

#[derive(Clone, Copy)]
enum Form {
    Sessions,
    Directory,
}

fn check(fuzz: Fuzz, name: &str, form: Form) {
    let root = fixture(name);
    let paths = files(&root);
    let contents: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let seeds = contents.iter().enumerate().map(|(number, content)| joined(number, content)).collect::<Vec<_>>();
    fuzz.seeds(seeds).costly(8).memory(MEMORY, 1_000).bytes(|bytes| {
        let (number, changed) = split(bytes).filter(|(number, _)| *number < paths.len())?;
        let victim = tempfile::tempdir().unwrap();
        for (index, (path, content)) in paths.iter().zip(&contents).enumerate() {
            let path = victim.path().join(path.strip_prefix(&root).unwrap());
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, if index == number { changed } else { content }).unwrap();
        }
        let engine = Engine::memory().unwrap();
        let imported = block_on(async {
            match form {
                Form::Sessions => rekindle_import::json_sessions(&engine, victim.path(), ImportOptions::new()).await,
                Form::Directory => {
                    rekindle_import::session_directory(&engine, victim.path(), ImportOptions::new()).await
                }
            }
        });
        imported.ok().map(drop)
    });
}

#[test]
fn json_sessions() {
    check(fuzz!("import-json-sessions"), "json_sessions", Form::Sessions);
}

#[test]
fn session_directory() {
    check(fuzz!("import-session-directory"), "session_directory/deep_research_agent", Form::Directory);
}

#[test]
fn checkpoint_table() {
    let sql = std::fs::read_to_string(fixture("checkpoint_table/checkpoints.sql")).unwrap();
    let states: Vec<String> = {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch(&sql).unwrap();
        let mut statement = connection.prepare("SELECT state_json FROM checkpoints ORDER BY rowid").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let seeds = states.iter().enumerate().map(|(row, state)| joined(row, state.as_bytes())).collect::<Vec<_>>();
    fuzz!("import-checkpoint-table").seeds(seeds).costly(8).memory(MEMORY, 1_000).bytes(|bytes| {
        let (row, state) = split(bytes)?;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("old.db");
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.pragma_update(None, "synchronous", "off").unwrap();
        connection.execute_batch(&sql).unwrap();
        let update = "UPDATE checkpoints SET state_json = ?1 WHERE rowid = (SELECT rowid FROM checkpoints ORDER BY rowid LIMIT 1 OFFSET ?2)";
        let state = String::from_utf8_lossy(state);
        connection.execute(update, (&*state, i64::try_from(row).ok()?)).unwrap();
        connection.close().unwrap();
        let engine = Engine::memory().unwrap();
        block_on(rekindle_import::checkpoint_table(&engine, &path, ImportOptions::new())).ok().map(drop)
    });
}
