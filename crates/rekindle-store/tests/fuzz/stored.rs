//! Whole stores of which one file, object or cell was changed. Whatever is in it, it is an error or what
//! was written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rekindle_core::values::{ValueKind, ValueQuery};
use rekindle_core::{Hash, Journal, Namespace, Position, Record, SessionQuery, State, Store, Target};
use rekindle_fuzz::{Fuzz, fuzz, repair};
use rekindle_store::{FileStore, ObjectsStore, SqliteStore, StoreOptions};
use tempfile::TempDir;

use super::{block_on, journal, records, sealing, session, signing, write};

/// Memory of a store: caches, buffers of files and of SQLite.
const MEMORY: u64 = 16 << 20;

/// Everything that reads, then a write. Returns whether the session can be restored; what is read of it must be
/// the beginning of `original`.
async fn examine(journal: &Journal, original: &[Record]) -> bool {
    let namespace = Namespace::default();
    let _ = journal.list(&SessionQuery::new(namespace.clone())).await;
    if let Some(values) = journal.store().values() {
        let _ = values.list(&ValueQuery::new(namespace, ValueKind::DATA_KEY)).await;
    }
    let Ok(info) = journal.open(&session()).await else { return false };
    let _ = journal.verify(&session(), &Default::default()).await;
    // A page may begin behind records that were pruned, or that are said to be.
    if let Some(read) = records(journal).await {
        assert!(read.is_empty() || original.windows(read.len()).any(|window| window == read), "{read:?}");
    }
    for branch in &info.branches {
        let _ = journal.load(&session(), Some(&Position::new(branch.branch.clone(), branch.head.seq))).await;
    }
    let _ = journal.checkpoints(&session(), None, None, 100).await;
    let main = rekindle_core::BranchId::main();
    let restored = match info.branch(&main) {
        Ok(branch) => journal.load(&session(), Some(&Position::new(main, branch.head.seq))).await.ok(),
        Err(_) => None,
    };
    if let Some(restored) = &restored {
        assert!(states(original).contains(&restored.state.to_value().unwrap()), "{:?}", restored.state);
    }
    if let Ok(main) = info.branch(&rekindle_core::BranchId::main()) {
        let target = Target::new(session(), main.branch.clone(), main.head);
        let _ = journal.append(&target, &[rekindle_testkit::message("more")]).await;
    }
    restored.is_some()
}

/// The states that lead to the last one, the first being that of nothing.
fn states(original: &[Record]) -> Vec<serde_json::Value> {
    let mut state = State::default();
    let mut states = vec![state.to_value().unwrap()];
    for record in original {
        state.apply(record).unwrap();
        states.push(state.to_value().unwrap());
    }
    states
}

/// Every file below `directory`, in order.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}

/// An input is the number of a file in one line, and its content behind that.
fn split(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let at = bytes.iter().take(4).position(|byte| *byte == b'\n')?;
    Some((std::str::from_utf8(&bytes[..at]).ok()?.parse().ok()?, &bytes[at + 1..]))
}

fn joined(number: usize, content: &[u8]) -> Vec<u8> {
    [format!("{number}\n").as_bytes(), content].concat()
}

/// Fuzzes a store that is a directory, file by file.
fn directory(fuzz: Fuzz, open: fn(&Path) -> rekindle_core::Result<Arc<dyn Store>>) {
    let template = tempfile::tempdir().unwrap();
    let original = block_on(async {
        let journal = journal(open(&template.path().join("store")).unwrap(), signing());
        write(&journal).await
    });
    let paths = files(template.path());
    let contents: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let seeds: Vec<_> = contents.iter().enumerate().filter(|(_, content)| !content.is_empty()).collect();
    let seeds = seeds.into_iter().map(|(number, content)| joined(number, content)).collect::<Vec<_>>();
    fuzz.seeds(seeds).repair(repaired).costly(16).memory(MEMORY, 256).bytes(|bytes| {
        let (number, changed) = split(bytes).filter(|(number, _)| *number < paths.len())?;
        let victim = tempfile::tempdir().unwrap();
        for (index, (path, content)) in paths.iter().zip(&contents).enumerate() {
            let path = victim.path().join(path.strip_prefix(template.path()).unwrap());
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, if index == number { changed } else { content }).unwrap();
        }
        let store = open(&victim.path().join("store")).ok()?;
        block_on(examine(&journal(store, signing()), &original)).then_some(())
    });
}

/// Makes checksums fit behind the line with the number: of checked lines, and of objects, whose header is JSON
/// behind its length and its hash.
fn repaired(bytes: &mut Vec<u8>) {
    repair::lines(bytes);
    let Some(at) = split(bytes).map(|(_, content)| bytes.len() - content.len()) else { return };
    let object = &mut bytes[at..];
    if object.len() < 56 || !object.starts_with(b"RKO") {
        return;
    }
    let json = &object[56..];
    let mut values = serde_json::Deserializer::from_slice(json).into_iter::<serde::de::IgnoredAny>();
    let len = if let Some(Ok(_)) = values.next() { values.byte_offset() } else { json.len() };
    let hash = Hash::of(&[&object[4..20], &json[..len]].concat());
    object[20..24].copy_from_slice(&u32::try_from(len).unwrap().to_le_bytes());
    object[24..56].copy_from_slice(&hash.0);
}

#[test]
fn file_store() {
    directory(fuzz!("store-files"), |path| Ok(Arc::new(FileStore::open(path, StoreOptions::new())?)));
}

#[test]
fn object_store() {
    directory(fuzz!("store-objects"), |path| {
        let url = format!("objects:{}", path.display());
        Ok(Arc::new(ObjectsStore::open(&url, StoreOptions::new())?))
    });
}

/// The cells of a database that hold text or bytes, as SQL that finds each again.
fn cells(path: &Path) -> Vec<(String, Vec<u8>)> {
    let connection = rusqlite::Connection::open(path).unwrap();
    let column = |sql: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        let texts = statement.query_map([], |row| row.get(0)).unwrap();
        texts.map(Result::unwrap).collect()
    };
    let mut cells = Vec::new();
    for table in
        column("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")
    {
        for name in column(&format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid")) {
            let sql = format!("SELECT rowid, CAST(\"{name}\" AS BLOB) FROM \"{table}\" ORDER BY rowid LIMIT 3");
            let Ok(mut statement) = connection.prepare(&sql) else { continue };
            let rows = statement.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<Vec<u8>>>(1)?)));
            for (row, content) in rows.unwrap().map(Result::unwrap) {
                let update = format!("UPDATE OR IGNORE \"{table}\" SET \"{name}\" = ?1 WHERE rowid = {row}");
                cells.extend(content.map(|content| (update, content)));
            }
        }
    }
    cells
}

/// Fuzzes SQLite cell by cell: the numbers as bytes, as text and as numbers.
#[test]
fn sqlite_cells() {
    let template = tempfile::tempdir().unwrap();
    let path = |directory: &TempDir| directory.path().join("store.db");
    let open = |directory: &TempDir| SqliteStore::open(path(directory), StoreOptions::new());
    let original = block_on(async {
        let store = Arc::new(open(&template).unwrap());
        write(&journal(store, sealing())).await
    });
    let cells = cells(&path(&template));
    let whole = std::fs::read(path(&template)).unwrap();
    let seeds = cells.iter().enumerate().map(|(number, (_, content))| joined(number, content)).collect::<Vec<_>>();
    fuzz!("store-sqlite").seeds(seeds).costly(16).memory(MEMORY, 256).bytes(|bytes| {
        let Some((number, changed)) = split(bytes) else { return };
        let Some((update, _)) = cells.get(number) else { return };
        let victim = tempfile::tempdir().unwrap();
        std::fs::write(path(&victim), &whole).unwrap();
        let connection = rusqlite::Connection::open(path(&victim)).unwrap();
        let text = String::from_utf8(changed.to_vec());
        let _ = match text.as_ref().map(|text| (text, text.parse::<i64>())) {
            Ok((_, Ok(number))) => connection.execute(update, [number]),
            Ok((text, Err(_))) => connection.execute(update, [text]),
            Err(_) => connection.execute(update, [changed]),
        };
        drop(connection);
        let Ok(store) = open(&victim) else { return };
        block_on(examine(&journal(Arc::new(store), sealing()), &original));
    });
}
