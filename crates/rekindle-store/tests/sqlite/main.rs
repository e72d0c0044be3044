//! The SQLite store as its callers see it: durability, other processes, damage, odd files. What
//! holds for every store is checked by the conformance suite.
#![cfg(feature = "sqlite")]
// A test that meets an error it does not expect ends there.
#![allow(clippy::unwrap_used)]

mod checked;
mod index;
mod list;
mod replaced;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rekindle_core::codec::{Codec, Frame, Place, Stamp};
use rekindle_core::record::{RegisterSet, SessionDescribed};
use rekindle_core::values::{Change, Changed, ValueKey, ValueKind};
use rekindle_core::{
    Append, Base, BranchId, Clock, DamageKind, Epoch, Error, ErrorKind, Fork, Hash, Head, Json, LeaseAction,
    LeaseRequest, Marks, Namespace, NewSession, OwnerId, Position, ReadFrames, RegisterKey, Removal, Removed, Seq,
    SessionHeader, SessionId, SessionKey, SessionPage, SessionQuery, Slot, Status, Store, StoreExt, Timestamp,
};
use rekindle_store::{SqliteStore, StoreOptions};
use rusqlite::Connection;
use tempfile::TempDir;

#[derive(Debug, Default)]
struct ManualClock(AtomicU64);

impl ManualClock {
    fn advance(&self, micros: u64) {
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// A directory with a database in it.
struct Site {
    directory: TempDir,
    clock: Arc<ManualClock>,
}

impl Site {
    fn new() -> Self {
        let clock = ManualClock::default();
        clock.advance(1_000_000);
        Self { directory: tempfile::tempdir().unwrap(), clock: Arc::new(clock) }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("rekindle.db")
    }

    fn options(&self) -> StoreOptions {
        StoreOptions::new().with_clock(self.clock.clone())
    }

    fn open(&self) -> SqliteStore {
        SqliteStore::open(self.path(), self.options()).unwrap()
    }

    /// A connection behind the store's back.
    fn raw(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

fn key(name: &str) -> SessionKey {
    SessionId::new(name).unwrap().into()
}

fn genesis() -> Head {
    Head { seq: Seq::ZERO, hash: Hash::default() }
}

fn new_session(name: &str) -> NewSession {
    NewSession::new(SessionHeader::new(key(name)))
}

fn frame_of(session: &SessionKey, branch: &BranchId, after: Head, records: usize, text: &str) -> Frame {
    let place = Place { session, branch };
    let stamp = Stamp { after, at: Timestamp(7), nonce: [3; 16] };
    let record = RegisterSet::new(RegisterKey::new("k").unwrap(), Json::from(text));
    Codec::new().without_compression().encode(place, stamp, &vec![record.into(); records]).unwrap()
}

fn base_at(session: &SessionKey, head: Head) -> Base {
    let place = Place { session, branch: &BranchId::main() };
    let records = [RegisterSet::new(RegisterKey::new("k").unwrap(), Json::null()).into()];
    let frames = Codec::new().encode_base(place, head, Timestamp(7), &[&records, &records]).unwrap();
    Base { head, status: Status::Idle, frames }
}

fn appending(session: &SessionKey, after: Head, text: &str) -> Append {
    let frame = frame_of(session, &BranchId::main(), after, 1, text);
    Append::new(session.clone(), BranchId::main(), after, vec![frame])
}

async fn append_many(store: &SqliteStore, session: &SessionKey, mut head: Head, count: usize, size: usize) -> Head {
    for index in 0..count {
        let append = appending(session, head, &format!("{index}{}", "x".repeat(size)));
        head = store.append(&append).await.unwrap().head;
    }
    head
}

async fn read_main(store: &SqliteStore, session: &SessionKey) -> Vec<Slot> {
    store.read_all(&ReadFrames::all(session.clone(), BranchId::main())).await.unwrap()
}

fn open_error(path: &Path, options: StoreOptions) -> Error {
    let error = SqliteStore::open(path, options).expect_err("it must be refused");
    assert_eq!(error.operation(), Some("open store"));
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_reopening() {
    let place = Site::new();
    let session = key("a/🦀'; DROP TABLE frames; --");
    let store = place.open();
    let created = store.create(&NewSession::new(SessionHeader::new(session.clone()))).await.unwrap();
    let mut append = appending(&session, genesis(), "one");
    append.status = Some(Status::Waiting);
    append.describe = Some(SessionDescribed { title: Some("A title".into()), ..SessionDescribed::default() });
    append.sealed = Some("sealed".into());
    place.clock.advance(5);
    let head = store.append(&append).await.unwrap().head;
    let before = store.open(&session).await.unwrap();
    drop(store);
    let store = place.open();
    let after = store.open(&session).await.unwrap();
    assert_eq!(after, before);
    assert_eq!((after.status(), after.updated_at()), (Status::Waiting, Timestamp(1_000_005)));
    assert_eq!(after.header.title.as_deref(), Some("A title"));
    assert_eq!(after.header.sealed.as_deref(), Some("sealed"));
    assert_eq!(after.branch(&BranchId::main()).unwrap().head, head);
    assert_eq!(created.created_at, Timestamp(1_000_000));
    assert_eq!(read_main(&store, &session).await, vec![Slot::Whole(append.frames[0].clone())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_last_handle_finishes_and_closes() {
    let place = Site::new();
    let store = place.open();
    let second = store.clone();
    store.create(&new_session("a")).await.unwrap();
    drop(store);
    second.open(&key("a")).await.unwrap();
    drop(second);
    let files: Vec<_> =
        std::fs::read_dir(place.directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["rekindle.db"], "the log went into the database");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_handles_on_one_file_see_each_other_and_conflict() {
    let place = Site::new();
    let (one, two) = (place.open(), place.open());
    one.create(&new_session("a")).await.unwrap();
    let error = two.create(&new_session("a")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.operation(), error.session()),
        (&ErrorKind::AlreadyExists, Some("create"), Some(&key("a")))
    );
    let append = appending(&key("a"), genesis(), "one");
    let head = one.append(&append).await.unwrap().head;
    assert_eq!(two.append(&append).await.unwrap().head, head, "a repeated append is recognised");
    let error = two.append(&appending(&key("a"), genesis(), "two")).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Conflict { expected: Seq(0), actual: Seq(1) });
    assert_eq!(read_main(&two, &key("a")).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_removed_and_created_elsewhere_is_another_session() {
    let place = Site::new();
    let (one, two) = (place.open(), place.open());
    one.create(&new_session("a")).await.unwrap();
    append_many(&one, &key("a"), genesis(), 2, 10).await;
    two.remove(&Removal::Session { session: key("a") }).await.unwrap();
    let error = one.append(&appending(&key("a"), genesis(), "gone")).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (&ErrorKind::NotFound, Some("append")));
    two.create(&new_session("a")).await.unwrap();
    append_many(&one, &key("a"), genesis(), 3, 10).await;
    assert_eq!(read_main(&two, &key("a")).await.len(), 3);
}

#[test]
fn a_newer_schema_is_refused() {
    let place = Site::new();
    drop(place.open());
    place.raw().pragma_update(None, "user_version", 99).unwrap();
    for read_only in [false, true] {
        let error = open_error(&place.path(), place.options().with_read_only(read_only));
        assert_eq!(*error.kind(), ErrorKind::VersionTooNew { what: "schema".into(), found: 99, supported: 4 });
    }
}

#[tokio::test]
async fn a_database_of_an_earlier_version_is_brought_up_to_date() {
    const NOT_IN_3: &str = "DROP TABLE small_values; PRAGMA user_version = 3;";
    const NOT_IN_2: &str = "ALTER TABLE branches DROP COLUMN lease_boot; ALTER TABLE branches DROP COLUMN lease_until;
        ALTER TABLE branches DROP COLUMN last_wait; PRAGMA user_version = 2;";
    const NOT_IN_1: &str = "DROP TABLE jobs; DROP TABLE workers; DROP TABLE news; PRAGMA user_version = 1;";
    for undone in [NOT_IN_3.to_owned(), format!("{NOT_IN_3}{NOT_IN_2}"), format!("{NOT_IN_3}{NOT_IN_2}{NOT_IN_1}")] {
        let place = Site::new();
        let store = place.open();
        store.create(&new_session("a")).await.unwrap();
        append_many(&store, &key("a"), genesis(), 3, 10).await;
        let owner = rekindle_core::OwnerId::new("before").unwrap();
        let ttl = std::time::Duration::from_secs(60);
        let lease = store.acquire(&key("a"), &BranchId::main(), &owner, ttl).await.unwrap();
        drop(store);
        place.raw().execute_batch(&undone).unwrap();
        let store = place.open();
        assert_eq!(read_main(&store, &key("a")).await.len(), 3);
        let queue = store.queue().unwrap();
        assert!(!queue.enqueue(&rekindle_core::queue::NewJob::new(key("a"))).await.unwrap().repeated);
        // A lease of before is live by the wall clock, and is bound to the boot clock when it is renewed.
        store.renew(&lease, ttl).await.unwrap();
        let info = store.open(&key("a")).await.unwrap();
        assert_eq!(info.live_lease().map(|(branch, _)| branch.last_wait), Some(Seq::ZERO));
        let value = ValueKey::new(Namespace::default(), ValueKind::DATA_KEY, "a").unwrap();
        let values = store.values().unwrap();
        assert_eq!(values.change(&Change::set(value.clone(), "1").if_is(None)).await.unwrap(), Changed::Done);
        assert_eq!(values.get(&value).await.unwrap().as_deref(), Some(&b"1"[..]));
    }
}

#[test]
fn a_foreign_database_is_refused_and_not_changed() {
    for script in
        ["CREATE TABLE notes (text TEXT)", "PRAGMA user_version = 3", "PRAGMA application_id = 7; CREATE TABLE t (a)"]
    {
        let place = Site::new();
        place.raw().execute_batch(script).unwrap();
        let before = std::fs::read(place.path()).unwrap();
        let error = open_error(&place.path(), place.options());
        assert_eq!(*error.kind(), ErrorKind::Invalid, "{script}");
        assert!(error.message().contains("another program"), "{error}");
        assert_eq!(std::fs::read(place.path()).unwrap(), before, "{script}");
    }
}

#[test]
fn garbage_is_refused_and_not_changed() {
    for size in [1, 90, 600, 20_000] {
        let place = Site::new();
        let garbage: Vec<u8> = (0..size).map(|index| (index * 31 % 251) as u8 + 1).collect();
        std::fs::write(place.path(), &garbage).unwrap();
        assert_eq!(*open_error(&place.path(), place.options()).kind(), ErrorKind::Corrupt, "{size} bytes");
        assert_eq!(std::fs::read(place.path()).unwrap(), garbage);
    }
}

#[test]
fn an_empty_file_becomes_a_database() {
    let place = Site::new();
    std::fs::write(place.path(), b"").unwrap();
    assert_eq!(*open_error(&place.path(), place.options().with_read_only(true)).kind(), ErrorKind::NotFound);
    drop(place.open());
    let raw = place.raw();
    let pragma = |name: &str| raw.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((pragma("page_size"), pragma("auto_vacuum"), pragma("user_version")), (8192, 2, 4));
    assert_eq!(pragma("application_id"), i64::from(u32::from_be_bytes(*b"RKJL")));
}

#[test]
fn paths_that_cannot_be_a_database_are_explained() {
    let place = Site::new();
    let error = open_error(place.directory.path(), place.options());
    assert_eq!(*error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("is a directory") && error.next_step().contains("rekindle.db"), "{error:?}");
    let error = open_error(&place.directory.path().join("no/such/dir.db"), place.options());
    assert!(*error.kind() == ErrorKind::NotFound && error.message().contains("no directory"), "{error:?}");
    for options in [place.options().with_create(false), place.options().with_read_only(true)] {
        assert_eq!(*open_error(&place.path(), options).kind(), ErrorKind::NotFound);
        assert!(!place.path().exists());
    }
    // Nobody may create files there, not even the superuser.
    if cfg!(target_os = "linux") {
        let error = open_error(Path::new("/proc/rekindle.db"), place.options());
        assert!(
            *error.kind() == ErrorKind::StoreUnavailable && error.message().contains("/proc/rekindle.db"),
            "{error:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_store_reads_and_refuses_to_write() {
    let place = Site::new();
    let writer = place.open();
    writer.create(&new_session("a")).await.unwrap();
    let head = append_many(&writer, &key("a"), genesis(), 3, 10).await;
    let reader = SqliteStore::open(place.path(), place.options().with_read_only(true)).unwrap();
    assert_eq!(read_main(&reader, &key("a")).await.len(), 3);
    let error = reader.append(&appending(&key("a"), head, "no")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.operation(), error.session()),
        (&ErrorKind::Unsupported, Some("append"), Some(&key("a")))
    );
    append_many(&writer, &key("a"), head, 1, 10).await;
    assert_eq!(read_main(&reader, &key("a")).await.len(), 4, "it follows the writer");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn files_that_may_not_be_written_can_still_be_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    drop(store);
    let allow = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(&place.path(), 0o444);
    allow(place.directory.path(), 0o555);
    // The superuser is not bound by permissions.
    let enforced = std::fs::OpenOptions::new().write(true).open(place.path()).is_err();
    let opened = SqliteStore::open(place.path(), place.options()).map(drop);
    match opened {
        Err(error) if enforced => assert_eq!(*error.kind(), ErrorKind::PersistFailed, "{error:?}"),
        other => assert!(other.is_ok() && !enforced, "{other:?}"),
    }
    let reader = SqliteStore::open(place.path(), place.options().with_read_only(true)).unwrap();
    assert!(reader.open(&key("a")).await.is_ok());
    drop(reader);
    allow(place.directory.path(), 0o755);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_frame_is_named_and_its_neighbours_stay_readable() {
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    append_many(&store, &key("a"), genesis(), 6, 100).await;
    let whole = read_main(&store, &key("a")).await;
    let raw = place.raw();
    let flip =
        "UPDATE frames SET body = CAST(substr(body, 1, 150) || x'00' || substr(body, 152) AS BLOB) WHERE last = ?1";
    raw.execute(flip, [2]).unwrap();
    raw.execute("UPDATE frames SET body = x'' WHERE last = ?1", [3]).unwrap();
    raw.execute("UPDATE frames SET body = (SELECT body FROM frames WHERE last = 6) WHERE last = ?1", [5]).unwrap();
    let read = read_main(&store, &key("a")).await;
    for (index, kind) in [(1, DamageKind::Checksum), (2, DamageKind::Format), (4, DamageKind::Index)] {
        let Slot::Damaged(damage) = &read[index] else { panic!("frame {index} is damaged: {:?}", read[index]) };
        let seq = Seq(index as u64 + 1);
        assert_eq!((damage.kind, damage.first, damage.last, &damage.branch), (kind, seq, seq, &BranchId::main()));
    }
    for index in [0, 3, 5] {
        assert_eq!(read[index], whole[index]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_header_is_named_and_its_session_stays_readable() {
    let place = Site::new();
    let store = place.open();
    for name in ["a", "b"] {
        store.create(&new_session(name)).await.unwrap();
    }
    let head = append_many(&store, &key("a"), genesis(), 1, 10).await;
    place.raw().execute("UPDATE sessions SET header = '{\"key\":' WHERE session = 'a'", []).unwrap();
    let info = store.open(&key("a")).await.unwrap();
    assert_eq!((info.header.key.clone(), info.damage[0].kind), (key("a"), DamageKind::Header));
    let mut query = SessionQuery::new(Namespace::default());
    assert_eq!(store.list(&query).await.unwrap().sessions.len(), 2);
    query.tags.push("x".into());
    assert_eq!(store.list(&query).await.unwrap().sessions.len(), 0);
    let mut append = appending(&key("a"), head, "title");
    append.describe = Some(SessionDescribed { title: Some("t".into()), ..SessionDescribed::default() });
    assert_eq!(*store.append(&append).await.unwrap_err().kind(), ErrorKind::Corrupt);
    append.describe = None;
    store.append(&append).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_cut_anywhere_gives_a_prefix_of_what_was_acknowledged() {
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    drop(store);
    let store = place.open();
    append_many(&store, &key("a"), genesis(), 8, 3_000).await;
    let whole = read_main(&store, &key("a")).await;
    let log_path = place.directory.path().join("rekindle.db-wal");
    let (database, log) = (std::fs::read(place.path()).unwrap(), std::fs::read(&log_path).unwrap());
    let mut seen = Vec::new();
    for cut in (0..=log.len()).step_by(1_999).chain([log.len()]) {
        let copy = Site::new();
        std::fs::write(copy.path(), &database).unwrap();
        std::fs::write(copy.directory.path().join("rekindle.db-wal"), &log[..cut]).unwrap();
        let store = copy.open();
        let read = read_main(&store, &key("a")).await;
        assert_eq!(read, whole[..read.len()], "cut at {cut}");
        let info = store.open(&key("a")).await.unwrap();
        assert_eq!(info.branch(&BranchId::main()).unwrap().head.seq, Seq(read.len() as u64));
        seen.push(read.len());
    }
    assert!(seen.is_sorted());
    seen.dedup();
    assert_eq!(seen, (0..=8).collect::<Vec<_>>(), "every acknowledged append is a prefix of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_in_a_group_does_not_disturb_the_others() {
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("contested")).await.unwrap();
    for index in 0..50 {
        store.create(&new_session(&format!("s{index}"))).await.unwrap();
    }
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..100 {
        let store = store.clone();
        tasks.spawn(async move {
            let contested = index % 2 == 0;
            let session = if contested { key("contested") } else { key(&format!("s{}", index / 2)) };
            let outcome = store.append(&appending(&session, genesis(), &format!("{index}"))).await;
            (contested, outcome)
        });
    }
    let outcomes = tasks.join_all().await;
    let won = outcomes.iter().filter(|(contested, outcome)| *contested && outcome.is_ok()).count();
    assert_eq!(won, 1);
    for (contested, outcome) in outcomes {
        match outcome {
            Ok(_) => {}
            Err(error) => {
                assert!(contested, "{error:?}");
                assert_eq!(*error.kind(), ErrorKind::Conflict { expected: Seq(0), actual: Seq(1) });
            }
        }
    }
    for index in 0..50 {
        assert_eq!(read_main(&store, &key(&format!("s{index}"))).await.len(), 1);
    }
}

#[test]
fn the_first_opening_may_happen_many_times_at_once() {
    for _ in 0..5 {
        let place = Site::new();
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            let open = || {
                start.wait();
                SqliteStore::open(place.path(), place.options())
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            for thread in threads {
                thread.join().unwrap().unwrap();
            }
        });
        let mode: String = place.raw().pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
    }
}

#[tokio::test]
async fn a_lease_without_end_counts_as_expired() {
    let place = Site::new();
    // By the wall clock alone, and by the clock since the machine was started.
    for (options, columns) in [
        (place.options(), "lease_expires = 9223372036854775807"),
        (place.options(), "lease_expires = 86400000000 + 1000001"),
        (StoreOptions::new(), "lease_expires = 9223372036854775807, lease_until = lease_until + 86400000000"),
        (StoreOptions::new(), "lease_expires = 9223372036854775807, lease_boot = NULL, lease_until = NULL"),
    ] {
        let place = Site::new();
        let store = SqliteStore::open(place.path(), options).unwrap();
        let (session, main) = (key("a"), BranchId::main());
        store.create(&new_session("a")).await.unwrap();
        let owner = |name: &str| OwnerId::new(name).unwrap();
        let ttl = Duration::from_secs(60);
        let lease = store.acquire(&session, &main, &owner("one"), ttl).await.unwrap();
        let sql = format!("UPDATE branches SET status = 'running', {columns} WHERE name = 'main'");
        place.raw().execute_batch(&sql).unwrap();
        let mut append = appending(&session, genesis(), "one");
        append.fence = Some(lease.info.epoch);
        let refused = store.append(&append).await.unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Fenced { .. }), "{columns}: {refused:?}");
        assert!(matches!(store.renew(&lease, ttl).await.unwrap_err().kind(), ErrorKind::Fenced { .. }), "{columns}");
        let interrupted = SessionQuery::new(Namespace::default()).with_status(Status::Interrupted);
        assert_eq!(store.list(&interrupted).await.unwrap().sessions.len(), 1, "{columns}");
        append.fence = None;
        store.append(&append).await.unwrap();
        let taken = store.acquire(&session, &main, &owner("two"), ttl).await.unwrap();
        assert_eq!(taken.info.epoch, Epoch(lease.info.epoch.0 + 1), "{columns}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_fence_by_the_clock_of_the_store() {
    let place = Site::new();
    let store = place.open();
    let (session, main) = (key("a"), BranchId::main());
    store.create(&new_session("a")).await.unwrap();
    let owner = |name: &str| OwnerId::new(name).unwrap();
    let ttl = Duration::from_micros(100);
    let lease = store.acquire(&session, &main, &owner("one"), ttl).await.unwrap();
    let mut first = appending(&session, genesis(), "one");
    let error = store.append(&first).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::AlreadyRunning { .. }), "{error:?}");
    first.fence = Some(lease.info.epoch);
    (first.renew, first.status) = (Some(Duration::from_micros(500)), Some(Status::Running));
    let head = store.append(&first).await.unwrap().head;
    place.clock.advance(400);
    assert_eq!(store.open(&session).await.unwrap().status(), Status::Running, "the append renewed the lease");
    place.clock.advance(100);
    assert_eq!(store.open(&session).await.unwrap().status(), Status::Interrupted);
    let mut second = appending(&session, head, "two");
    second.fence = Some(lease.info.epoch);
    assert_eq!(
        *store.append(&second).await.unwrap_err().kind(),
        ErrorKind::Fenced { held: lease.info.epoch, current: lease.info.epoch }
    );
    let taken = store.acquire(&session, &main, &owner("two"), ttl).await.unwrap();
    assert_eq!((taken.info.epoch, taken.head), (Epoch(lease.info.epoch.0 + 1), head));
    assert_eq!(
        *store.append(&second).await.unwrap_err().kind(),
        ErrorKind::Fenced { held: lease.info.epoch, current: taken.info.epoch }
    );
    assert_eq!(store.append(&first).await.unwrap().head, head, "a repeated append succeeds without its lease");
    store.release(&taken).await.unwrap();
    second.fence = None;
    store.append(&second).await.unwrap();
    assert_eq!(store.open(&session).await.unwrap().branch(&main).unwrap().lease, None);
}

/// Frames of one to three records, every second with a mark that the codec did not set.
async fn varied_frames(store: &SqliteStore, session: &SessionKey) -> Vec<Frame> {
    let (mut head, mut frames) = (genesis(), Vec::new());
    for index in 0..12 {
        let frame = frame_of(session, &BranchId::main(), head, 1 + index % 3, "x");
        head = Head { seq: frame.last, hash: frame.hash };
        frames.push(frame);
    }
    for frame in frames.iter_mut().step_by(2) {
        frame.marks = Marks::RUN;
    }
    store.append(&Append::new(session.clone(), BranchId::main(), genesis(), frames.clone())).await.unwrap();
    frames
}

#[tokio::test(flavor = "multi_thread")]
async fn every_range_in_every_order_is_read_as_asked() {
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    let frames = varied_frames(&store, &key("a")).await;
    let end = frames.last().unwrap().last.0;
    for (from, through) in (0..=end + 2).flat_map(|from| (0..=end + 2).map(move |through| (from, through))) {
        for (newest_first, marks, limit) in
            [(false, 0, 2), (true, 0, 2), (false, 2, 3), (true, 2, 1), (true, 4, 5), (false, 0, 50)]
        {
            let mut read =
                ReadFrames::all(key("a"), BranchId::main()).with_range(Seq(from), Seq(through)).with_limit(limit);
            (read.newest_first, read.marks) = (newest_first, Marks(marks));
            let mut expected: Vec<_> = frames
                .iter()
                .filter(|frame| read.wants(frame.first, frame.last, frame.marks))
                .cloned()
                .map(Slot::Whole)
                .collect();
            if newest_first {
                expected.reverse();
            }
            let page = store.read(&read).await.unwrap();
            assert_eq!(page.more, expected.len() > limit, "{read:?}");
            expected.truncate(limit);
            assert_eq!(page.slots, expected, "{read:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_end_when_they_are_large() {
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    append_many(&store, &key("a"), genesis(), 10, 1 << 20).await;
    let page = store.read(&ReadFrames::all(key("a"), BranchId::main())).await.unwrap();
    assert_eq!((page.slots.len(), page.more), (4, true));
    assert_eq!(read_main(&store, &key("a")).await.len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named() {
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    let (gone, other) = (key("gone"), BranchId::new("other").unwrap());
    let check = |error: Error, operation: &'static str, session: &SessionKey| {
        assert_eq!(
            (error.kind(), error.operation(), error.session()),
            (&ErrorKind::NotFound, Some(operation), Some(session))
        );
    };
    check(store.open(&gone).await.unwrap_err(), "open", &gone);
    check(store.append(&appending(&gone, genesis(), "x")).await.unwrap_err(), "append", &gone);
    check(store.read(&ReadFrames::all(gone.clone(), other.clone())).await.unwrap_err(), "read", &gone);
    check(store.read(&ReadFrames::all(key("a"), other.clone())).await.unwrap_err(), "read", &key("a"));
    let frame = frame_of(&key("a"), &other, genesis(), 1, "x");
    check(
        store.append(&Append::new(key("a"), other.clone(), genesis(), vec![frame])).await.unwrap_err(),
        "append",
        &key("a"),
    );
    let action = LeaseAction::Release { owner: OwnerId::new("o").unwrap(), epoch: Epoch(1) };
    check(
        store.lease(&LeaseRequest { session: gone.clone(), branch: other, action }).await.unwrap_err(),
        "lease",
        &gone,
    );
    assert_eq!(store.remove(&Removal::Session { session: gone }).await.unwrap(), Removed::default());
}

fn size_of_files(directory: &Path) -> u64 {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_gives_the_space_back() {
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    store.create(&new_session("kept")).await.unwrap();
    let empty = size_of_files(place.directory.path());
    append_many(&store, &key("a"), genesis(), 60, 100_000).await;
    append_many(&store, &key("kept"), genesis(), 3, 100).await;
    assert!(size_of_files(place.directory.path()) > 6_000_000);
    let removed = store.remove(&Removal::Session { session: key("a") }).await.unwrap();
    assert!(removed.frames == 60 && removed.bytes > 6_000_000, "{removed:?}");
    let left = size_of_files(place.directory.path());
    assert!(left < empty + 100_000, "{left} bytes are left, {empty} were needed when empty");
    assert_eq!(read_main(&store, &key("kept")).await.len(), 3);
    assert_eq!(*store.open(&key("a")).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn history_gives_way_to_a_base() {
    let place = Site::new();
    let store = place.open();
    let session = key("a");
    store.create(&new_session("a")).await.unwrap();
    append_many(&store, &session, genesis(), 5, 1_000).await;
    let whole = read_main(&store, &session).await;
    let Slot::Whole(third) = &whole[2] else { panic!("it is whole") };
    let head = Head { seq: third.last, hash: third.hash };
    let base = base_at(&session, head);
    let removal =
        Removal::History { session: session.clone(), branch: BranchId::main(), base: base.clone(), fence: None };
    let removed = store.remove(&removal).await.unwrap();
    assert!(removed.frames == 1 && removed.bytes > 2_000, "three went, two came: {removed:?}");
    assert_eq!(store.remove(&removal).await.unwrap(), Removed::default(), "it is safe to repeat");
    assert_eq!(read_main(&store, &session).await, whole[3..]);
    let parts = store.read_all(&ReadFrames::all(session.clone(), BranchId::main()).with_base()).await.unwrap();
    assert_eq!(parts, base.frames.iter().cloned().map(Slot::Whole).collect::<Vec<_>>());
    assert_eq!(store.open(&session).await.unwrap().branch(&BranchId::main()).unwrap().base, Some(head));
    let mut imported = new_session("imported");
    imported.base = Some(base);
    let info = store.create(&imported).await.unwrap();
    assert_eq!(info.branch(&BranchId::main()).unwrap().head, head);
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_fork_run_and_go() {
    let place = Site::new();
    let store = place.open();
    let session = key("a");
    store.create(&new_session("a")).await.unwrap();
    append_many(&store, &session, genesis(), 3, 10).await;
    let Slot::Whole(second) = read_main(&store, &session).await.remove(1) else { panic!("it is whole") };
    let branch = BranchId::new("fork").unwrap();
    let from = Position::new(BranchId::main(), Seq(2));
    let fork = Fork { session: session.clone(), branch: branch.clone(), from, hash: second.hash, base: None };
    let info = store.fork(&fork).await.unwrap();
    assert_eq!(store.fork(&fork).await.unwrap(), info, "it is safe to repeat");
    let frame = frame_of(&session, &branch, info.head, 2, "x");
    store.append(&Append::new(session.clone(), branch.clone(), info.head, vec![frame])).await.unwrap();
    let action =
        LeaseAction::Acquire { owner: OwnerId::new("o").unwrap(), ttl: Duration::from_secs(1), whole_session: true };
    let lease = store.lease(&LeaseRequest { session: session.clone(), branch: branch.clone(), action }).await.unwrap();
    assert_eq!((lease.head.seq, store.open(&session).await.unwrap().current), (Seq(4), branch.clone()));
    store.release(&lease).await.unwrap();
    let lease = store.acquire(&session, &BranchId::main(), &OwnerId::new("o").unwrap(), Duration::ZERO).await.unwrap();
    assert_eq!(lease.head.seq, Seq(3));
    let removed = store.remove(&Removal::Branch { session: session.clone(), branch }).await.unwrap();
    assert_eq!(removed.frames, 1);
    let names: Vec<_> =
        store.open(&session).await.unwrap().branches.into_iter().map(|info| info.branch.to_string()).collect();
    assert_eq!(names, ["main", "inbox"]);
}

/// Sessions that differ in everything a query can ask for.
async fn varied_sessions(place: &Site, store: &SqliteStore) {
    for index in 0..24_u64 {
        let namespace = Namespace::new(if index == 23 { "other" } else { "default" }).unwrap();
        let mut header =
            SessionHeader::new(SessionKey::new(namespace, SessionId::new(format!("s{:02}", index * 7 % 24)).unwrap()));
        header.agent = (index % 3 == 0).then(|| format!("Agent{}", index % 2));
        header.parent = (index % 4 == 0).then(|| key(&format!("p{}", index % 8)));
        header.title = (index % 5 == 0).then(|| format!("Größe \"{index}\""));
        header.tags =
            ["red", "a\"b\\c\n", "grün"].iter().take(index as usize % 4).map(|tag| (*tag).to_owned()).collect();
        header.labels = [("env", "prod"), ("a.b\"c", "1\u{1F980}")]
            .into_iter()
            .take(index as usize % 3)
            .map(|(k, v)| (k.into(), v.into()))
            .collect();
        let session = header.key.clone();
        store
            .create(&NewSession { created_at: Some(Timestamp(100 + index / 3)), ..NewSession::new(header) })
            .await
            .unwrap();
        let mut append = appending(&session, genesis(), "x");
        append.status = Some(Status::ALL[index as usize % 8]).filter(|status| *status != Status::Interrupted);
        if index % 2 == 0 {
            let ttl = Duration::from_micros(if index % 3 == 0 { 10 } else { 1_000 });
            let lease = store.acquire(&session, &BranchId::main(), &OwnerId::new("o").unwrap(), ttl).await.unwrap();
            append.fence = Some(lease.info.epoch);
        } else {
            append.status = append.status.filter(|_| index % 3 == 0).or(Some(Status::Running));
        }
        if index % 7 != 0 {
            store.append(&append).await.unwrap();
        }
        place.clock.advance(1);
    }
    place.clock.advance(40);
}

fn queries() -> Vec<SessionQuery> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut SessionQuery)| {
        let mut query = SessionQuery::new(Namespace::default()).with_total();
        change(&mut query);
        all.push(query);
    };
    add(&|_| {});
    add(&|query| query.namespace = Namespace::new("other").unwrap());
    for status in Status::ALL {
        add(&move |query| query.statuses = vec![status, Status::Failed]);
    }
    add(&|query| query.agent = Some("Agent1".into()));
    add(&|query| query.tags = vec!["red".into(), "a\"b\\c\n".into()]);
    add(&|query| query.tags = vec!["grün".into()]);
    add(&|query| query.tags = (0..2_000).map(|index| format!("t{index}")).collect());
    add(&|query| query.labels = [("env".to_owned(), "prod".to_owned())].into());
    add(&|query| query.labels = [("env", "prod"), ("a.b\"c", "1\u{1F980}")].map(|(k, v)| (k.into(), v.into())).into());
    add(&|query| query.labels = [("env".to_owned(), "1\u{1F980}".to_owned())].into());
    add(&|query| query.parent = Some(key("p4")));
    for text in ["GRÖSSE", "größe \"1", "s1", "agent0", "", "%", "nothing"] {
        add(&move |query| query.text = Some(text.into()));
    }
    add(&|query| (query.created_from, query.created_before) = (Some(Timestamp(102)), Some(Timestamp(105))));
    add(&|query| (query.updated_from, query.updated_before) = (Some(Timestamp(1_000_004)), Some(Timestamp(1_000_012))));
    add(&|query| (query.text, query.statuses) = (Some("s".into()), vec![Status::Running, Status::Interrupted]));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_what_filtering_everything_gives() {
    let place = Site::new();
    let store = place.open();
    varied_sessions(&place, &store).await;
    let mut everything = Vec::new();
    for namespace in ["default", "other"] {
        everything.extend(store.list_all(&SessionQuery::new(Namespace::new(namespace).unwrap())).await.unwrap());
    }
    assert_eq!(everything.len(), 24);
    let mut found_some = 0;
    for query in queries() {
        for (limit, oldest_first) in [(0, false), (100, true), (3, false), (3, true), (1, false)] {
            let mut query = query.clone();
            (query.limit, query.oldest_first) = (limit, oldest_first);
            loop {
                let expected = SessionPage::select(&query, everything.iter().cloned());
                let page = store.list(&query).await.unwrap();
                assert_eq!(page, expected, "{query:?}");
                found_some += usize::from(!page.sessions.is_empty());
                let Some(next) = page.next else { break };
                query.after = Some(next);
            }
        }
    }
    assert!(found_some > 200, "{found_some} pages had something in them");
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_over_the_limits_are_refused_before_they_are_written() {
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    let error = store.append(&Append::new(key("a"), BranchId::main(), genesis(), Vec::new())).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Invalid);
    let expected = Head { seq: Seq::MAX, hash: Hash::default() };
    let mut frame = frame_of(&key("a"), &BranchId::main(), genesis(), 1, "x");
    (frame.first, frame.last) = (Seq::MAX.next(), Seq::MAX.next());
    let error = store.append(&Append::new(key("a"), BranchId::main(), expected, vec![frame])).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error:?}");
}
