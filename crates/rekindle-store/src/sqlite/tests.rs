//! Tests that need the inside of the store: its patience, its groups, its threads.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rekindle_core::{ErrorKind, Retry, SessionHeader, SessionId};
use rusqlite::ffi;

use super::failure::Failure;
use super::writer::Scope;
use super::*;
use crate::system::SystemClock;

const IMPATIENT: Settings = Settings { patience: Duration::ZERO };

fn key(name: &str) -> SessionKey {
    SessionId::new(name).unwrap().into()
}

fn new_session(name: &str) -> NewSession {
    NewSession::new(SessionHeader::new(key(name)))
}

fn impatient(path: &Path) -> SqliteStore {
    SqliteStore::open_with(path, StoreOptions::new(), IMPATIENT).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_database_is_unavailable_and_says_who_to_wait_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rekindle.db");
    let store = impatient(&path);
    store.create(&new_session("before")).await.unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let error = store.create(&new_session("during")).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::StoreUnavailable);
    assert_eq!((error.retry(), error.operation()), (Retry::Later, Some("create")));
    assert_eq!(error.session(), Some(&key("during")));
    assert!(error.message().contains("rekindle.db"), "{error:?}");
    if cfg!(target_os = "linux") {
        let holder = format!("process {} (", std::process::id());
        assert!(error.message().contains(&holder) && error.next_step().contains("try again when"), "{error:?}");
    }
    assert!(store.open(&key("before")).await.is_ok(), "readers do not wait for writers");
    other.execute_batch("COMMIT").unwrap();
    store.create(&new_session("during")).await.unwrap();
}

/// Names the database that this process is to lock, in the child of the test below.
#[cfg(target_os = "linux")]
const LOCK: &str = "REKINDLE_TEST_LOCK";

/// Holds the write lock until its input ends.
#[cfg(target_os = "linux")]
fn hold_the_lock(path: &Path) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::fs::write(path.with_extension("held"), "").unwrap();
    std::io::Read::read_to_end(&mut std::io::stdin(), &mut Vec::new()).unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_process_that_holds_the_write_lock_is_named() {
    use std::process::{Command, Stdio};

    if let Some(path) = std::env::var_os(LOCK) {
        return hold_the_lock(Path::new(&path));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rekindle.db");
    let store = impatient(&path);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sqlite::tests::a_stopped_process_that_holds_the_write_lock_is_named"])
        .env(LOCK, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while !path.with_extension("held").exists() {
        assert!(std::time::Instant::now() < until, "the child never came to its lock");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let pid = child.id();
    assert!(Command::new("kill").args(["-STOP", &pid.to_string()]).status().unwrap().success());
    let error = loop {
        let error = store.create(&new_session("during")).await.unwrap_err();
        if error.message().contains("is stopped") || std::time::Instant::now() > until {
            break error;
        }
    };
    assert_eq!(*error.kind(), ErrorKind::StoreUnavailable);
    assert!(error.message().contains(&format!("process {pid} (")) && error.message().contains("is stopped"), "{error}");
    assert!(error.next_step().contains(&format!("kill -CONT {pid}")), "{error:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    store.create(&new_session("during")).await.unwrap();
}

#[test]
fn opening_a_database_that_is_being_created_elsewhere_is_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rekindle.db");
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let error = SqliteStore::open_with(&path, StoreOptions::new(), IMPATIENT).unwrap_err();
    assert_eq!((error.kind(), error.operation()), (&ErrorKind::StoreUnavailable, Some("open store")));
    other.execute_batch("ROLLBACK").unwrap();
    impatient(&path);
}

#[tokio::test]
async fn a_writer_that_panics_turns_into_errors() {
    let directory = tempfile::tempdir().unwrap();
    let store = impatient(&directory.path().join("rekindle.db"));
    let broken: Call<()> = Call::new("append", &key("a"), 0, |_| panic!("a bug"));
    let behind = new_session("b");
    let (first, second) = tokio::join!(store.write(broken), store.create(&behind));
    assert_eq!(*first.unwrap_err().kind(), ErrorKind::Closed);
    let later = store.create(&new_session("c")).await.unwrap_err();
    assert_eq!((later.kind(), later.session()), (&ErrorKind::Closed, Some(&key("c"))));
    assert!(second.is_err());
    assert_eq!(*store.open(&key("b")).await.unwrap_err().kind(), ErrorKind::NotFound, "readers still work");
}

#[tokio::test]
async fn a_reader_that_panics_leaves_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let store = impatient(&directory.path().join("rekindle.db"));
    let broken = store.read_with("read", Some(&key("a")), |_, _| -> Outcome<()> { panic!("a bug") }).await;
    assert_eq!(*broken.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(*store.open(&key("b")).await.unwrap_err().kind(), ErrorKind::NotFound);
}

fn disk_full() -> Failure {
    Failure::Database(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), None))
}

/// Commits `calls` as one group and returns what their callers were told.
fn commit_group(path: &Path, calls: Vec<Call<SessionInfo>>) -> Vec<Result<SessionInfo>> {
    let (mut group, mut answers): (Vec<Box<dyn Job>>, Vec<_>) = (Vec::new(), Vec::new());
    for mut call in calls {
        answers.push(call.answer());
        group.push(Box::new(call));
    }
    let connection = schema::open_writer(path, &StoreOptions::new(), IMPATIENT).unwrap();
    let mut writer = Writer::new(connection, path.to_owned(), Arc::new(SystemClock), IMPATIENT);
    assert!(writer.commit(group, &mut || None).is_empty());
    answers.into_iter().map(|mut answer| answer.try_recv().unwrap()).collect()
}

fn creating(name: &str) -> Call<SessionInfo> {
    let new = new_session(name);
    Call::new("create", &key(name), 0, move |scope| change::create(scope, &new, &[]))
}

#[test]
fn one_job_that_breaks_the_transaction_does_not_fail_its_neighbours() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rekindle.db");
    let broken = Call::new("create", &key("b"), 0, |_: &mut Scope| Err(disk_full()));
    let told = commit_group(&path, vec![creating("a"), broken, creating("c")]);
    assert!(told[0].is_ok() && told[2].is_ok(), "{told:?}");
    let error = told[1].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.session()), (&ErrorKind::PersistFailed, Some(&key("b"))));
}

#[test]
fn a_job_that_is_refused_after_writing_leaves_no_trace() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rekindle.db");
    let new = new_session("b");
    let refused = Call::new("create", &key("b"), 0, move |scope: &mut Scope| {
        change::create(scope, &new, &[])?;
        Err(Error::invalid("after all, no").into())
    });
    let told = commit_group(&path, vec![creating("a"), refused, creating("c"), creating("a")]);
    assert!(told[0].is_ok() && told[2].is_ok(), "{told:?}");
    assert_eq!(*told[1].as_ref().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(*told[3].as_ref().unwrap_err().kind(), ErrorKind::AlreadyExists);
    let told = commit_group(&path, vec![creating("b")]);
    assert!(told[0].is_ok());
}

#[test]
fn a_session_is_found_by_keys_alone() {
    let directory = tempfile::tempdir().unwrap();
    let connection = schema::open_writer(&directory.path().join("a.db"), &StoreOptions::new(), IMPATIENT).unwrap();
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", rows::FIND)).unwrap();
    let plan: Vec<String> = statement.query_map(["a", "b"], |row| row.get(3)).unwrap().map(Result::unwrap).collect();
    assert_eq!(plan.len(), 2, "{plan:?}");
    assert!(plan.iter().all(|step| step.starts_with("SEARCH")), "{plan:?}");
}

#[test]
fn an_append_touches_no_index_of_frames_and_chunks_are_found_by_key() {
    let directory = tempfile::tempdir().unwrap();
    let connection = schema::open_writer(&directory.path().join("a.db"), &StoreOptions::new(), IMPATIENT).unwrap();
    let indexes = "SELECT count(*) FROM sqlite_master WHERE type = 'index' AND tbl_name = 'frames'";
    assert_eq!(connection.query_row(indexes, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    for (sql, expected) in [
        (index::OLDEST_FIRST, "SEARCH frame_index USING PRIMARY KEY (branch=? AND last>?)"),
        (index::NEWEST_FIRST, "SEARCH frame_index USING PRIMARY KEY (branch=? AND last>? AND last<?)"),
    ] {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let values = rusqlite::params_from_iter(vec![1; statement.parameter_count()]);
        let plan: Vec<String> = statement.query_map(values, |row| row.get(3)).unwrap().map(Result::unwrap).collect();
        assert_eq!(plan[0], expected);
        assert!(!plan.iter().any(|step| step.contains("TEMP B-TREE")), "{plan:?}");
    }
}

#[tokio::test]
async fn an_entry_of_the_index_that_does_not_fit_its_frame_is_damage() {
    use rekindle_core::codec::{Codec, Place, Stamp};
    use rekindle_core::record::RegisterSet;
    use rekindle_core::{BranchId, DamageKind, Json, Marks, RegisterKey, Slot, Timestamp};

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rekindle.db");
    let store = SqliteStore::open(&path, StoreOptions::new()).unwrap();
    let info = store.create(&new_session("a")).await.unwrap();
    let head = info.branch(&BranchId::main()).unwrap().head;
    let (session, branch) = (key("a"), BranchId::main());
    let record = RegisterSet::new(RegisterKey::new("k").unwrap(), Json::from("v")).into();
    let stamp = Stamp { after: head, at: Timestamp(7), nonce: [1; 16] };
    let frame = Codec::new().encode(Place { session: &session, branch: &branch }, stamp, &[record]).unwrap();
    store.append(&Append::new(session.clone(), branch.clone(), head, vec![frame])).await.unwrap();
    let raw = Connection::open(&path).unwrap();
    let recent = "SELECT recent FROM branches WHERE name = 'main'";
    let entries: Vec<u8> = raw.query_row(recent, [], |row| row.get(0)).unwrap();
    let mut entries = entry::decode(&entries).unwrap();
    entries[0].marks = Marks::WAIT;
    raw.execute("UPDATE branches SET recent = ?1 WHERE name = 'main'", [entry::encode(entries)]).unwrap();
    for read in
        [ReadFrames::all(session.clone(), branch.clone()), ReadFrames::all(session, branch).with_marks(Marks::WAIT)]
    {
        let page = store.read(&read).await.unwrap();
        assert!(matches!(&page.slots[..], [Slot::Damaged(damage)] if damage.kind == DamageKind::Index), "{page:?}");
    }
}
