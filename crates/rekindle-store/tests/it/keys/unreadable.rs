//! The data key of a session that is there and cannot be read is no orphan.

use std::path::{Path, PathBuf};

use rekindle_core::Namespace;
use rekindle_core::values::{ValueKind, all_values};
use rekindle_store::{FileStore, SqliteStore, StoreOptions};

use super::*;

/// Opens the store in a directory.
type Open = fn(&Path) -> Arc<dyn Store>;
/// Makes session `a` unreadable. Returns what puts it right again.
type Spoil = fn(&Path) -> Box<dyn FnOnce()>;

fn files(path: &Path) -> Arc<dyn Store> {
    Arc::new(FileStore::open(path.join("store"), StoreOptions::new()).unwrap())
}

fn sqlite(path: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(path.join("store.db"), StoreOptions::new()).unwrap())
}

fn database(path: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path.join("store.db")).unwrap()
}

/// Puts the value of an expression in place of the header.
fn with_header(path: &Path, expression: &str) -> Box<dyn FnOnce()> {
    let connection = database(path);
    let header: String =
        connection.query_row("SELECT header FROM sessions WHERE session = 'a'", [], |row| row.get(0)).unwrap();
    let changed = connection.execute(&format!("UPDATE sessions SET header = {expression} WHERE session = 'a'"), []);
    assert_eq!(changed.unwrap(), 1);
    Box::new(move || {
        let sql = "UPDATE sessions SET header = ?1 WHERE session = 'a'";
        assert_eq!(connection.execute(sql, [header]).unwrap(), 1);
    })
}

/// Takes the session out of the index that lists go by.
fn without_line(path: &Path) -> Box<dyn FnOnce()> {
    let define = |path: &Path, change: &str| {
        let sql = format!(
            "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = {change} WHERE name = 'sessions_by_age'"
        );
        database(path).execute_batch(&sql).unwrap();
    };
    let reindex = |path: &Path| database(path).execute_batch("REINDEX sessions_by_age").unwrap();
    define(path, "sql || ' WHERE session <> char(97)'");
    reindex(path);
    define(path, "replace(sql, ' WHERE session <> char(97)', '')");
    let path = path.to_owned();
    Box::new(move || reindex(&path))
}

/// Puts `bytes` in place of files, or takes the files away. Returns what puts them back.
fn replaced(folder: PathBuf, is_one: fn(&str) -> bool, bytes: Option<&[u8]>) -> Box<dyn FnOnce()> {
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found = all.filter(|path| path.is_file() && is_one(&path.to_string_lossy()));
    let before: Vec<_> = found.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    assert!(!before.is_empty());
    for (path, _) in &before {
        match bytes {
            Some(bytes) => std::fs::write(path, bytes).unwrap(),
            None => std::fs::remove_file(path).unwrap(),
        }
    }
    Box::new(move || before.into_iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap()))
}

#[tokio::test]
async fn the_key_of_an_unreadable_session_stays() {
    check("a header that is cut off", sqlite, |path| with_header(path, "substr(header, 1, 20)")).await;
    check("the header of another session", sqlite, |path| {
        with_header(path, "(SELECT header FROM sessions WHERE session = 'b')")
    })
    .await;
    check(ALTERED, sqlite, |path| with_header(path, r#"replace(header, '"incarnation":"', '"incarnation":"0')"#)).await;
    check("a session that the index of lists lacks", sqlite, without_line).await;
    check("both manifests damaged", files, |path| {
        replaced(path.join("store/sessions/default/a"), |name| name.contains("/session."), Some(b"nonsense"))
    })
    .await;
}

#[cfg(feature = "objects")]
#[tokio::test]
async fn so_does_that_of_one_in_object_storage() {
    fn objects(path: &Path) -> Arc<dyn Store> {
        let url = format!("objects:{}", path.join("bucket").display());
        Arc::new(rekindle_store::ObjectsStore::open(&url, StoreOptions::new()).unwrap())
    }
    /// Without it nothing but the session itself tells whose key it is.
    fn drop_index(path: &Path) -> PathBuf {
        let _ = std::fs::remove_dir_all(path.join("bucket/index"));
        path.join("bucket/sessions/default/a/heads")
    }
    check("a damaged snapshot", objects, |path| replaced(drop_index(path), |_| true, Some(b"nonsense"))).await;
    check("a lost snapshot", objects, |path| replaced(drop_index(path), |_| true, None)).await;
    check("a session that the catalogue lacks", objects, |path| {
        drop_index(path);
        let put_back = replaced(path.join("bucket/catalog/default"), |name| name.ends_with("-a"), None);
        let path = path.to_owned();
        Box::new(move || {
            put_back();
            drop_index(&path);
        })
    })
    .await;
}

/// Here the store cannot tell that anything is wrong.
const ALTERED: &str = "an altered incarnation";

async fn check(how: &str, open: Open, spoil: Spoil) {
    let (directory, namespace) = (tempfile::tempdir().unwrap(), Namespace::default());
    let journal = || encrypting(open(directory.path()));
    for id in ["a", "b", "gone"] {
        written(&journal(), id).await.unwrap();
    }
    let heads = journal().open(&key("gone")).await.unwrap().heads();
    journal().put_away(&key("gone"), heads).await.unwrap();

    let mend = spoil(directory.path());
    let orphans = journal().orphaned_keys(&namespace).await.unwrap();
    assert_eq!((orphans.keys.len(), orphans.unreadable.len()), (0, 1), "{how}: {orphans:?}");
    assert!(orphans.unreadable[0].starts_with("a: "), "{how}: {orphans:?}");
    mend();
    assert!(journal().verify(&key("a"), &Default::default()).await.unwrap().is_sound(), "{how}");
    let orphans = journal().orphaned_keys(&namespace).await.unwrap();
    assert_eq!((orphans.keys.len(), orphans.unreadable.len()), (1, 0), "{how}: {orphans:?}");

    // It becomes unreadable behind the first look.
    let mend = spoil(directory.path());
    let destroyed = journal().destroy_orphaned_keys(&namespace, &orphans.keys).await.unwrap();
    assert_eq!(destroyed, u64::from(how == ALTERED), "{how}");
    mend();
    let orphans = journal().orphaned_keys(&namespace).await.unwrap().keys;
    journal().destroy_orphaned_keys(&namespace, &orphans).await.unwrap();
    assert!(journal().verify(&key("a"), &Default::default()).await.unwrap().is_sound(), "{how}");
    let store = open(directory.path());
    let keys = all_values(store.values().unwrap(), &namespace, ValueKind::DATA_KEY).await.unwrap();
    assert_eq!(keys.len(), 2, "{how}");
}
