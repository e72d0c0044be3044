//! A directory with a database in it, and what is written to it.

use super::*;

#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    pub fn advance(&self, micros: u64) {
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// A directory with a database in it.
pub struct Site {
    pub directory: TempDir,
    pub clock: Arc<ManualClock>,
}

impl Site {
    pub fn new() -> Self {
        let clock = ManualClock::default();
        clock.advance(1_000_000);
        Self { directory: tempfile::tempdir().unwrap(), clock: Arc::new(clock) }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("rekindle.db")
    }

    pub fn options(&self) -> StoreOptions {
        StoreOptions::new().with_clock(self.clock.clone())
    }

    pub fn open(&self) -> SqliteStore {
        SqliteStore::open(self.path(), self.options()).unwrap()
    }

    /// A connection behind the store's back.
    pub fn raw(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

pub fn key(name: &str) -> SessionKey {
    SessionId::new(name).unwrap().into()
}

pub fn genesis() -> Head {
    Head { seq: Seq::ZERO, hash: Hash::default() }
}

pub fn new_session(name: &str) -> NewSession {
    NewSession::new(SessionHeader::new(key(name)))
}

pub fn frame_of(session: &SessionKey, branch: &BranchId, after: Head, records: usize, text: &str) -> Frame {
    let place = Place { session, branch };
    let stamp = Stamp { after, at: Timestamp(7), nonce: [3; 16] };
    let record = RegisterSet::new(RegisterKey::new("k").unwrap(), Json::from(text));
    Codec::new().without_compression().encode(place, stamp, &vec![record.into(); records]).unwrap()
}

pub fn base_at(session: &SessionKey, head: Head) -> Base {
    let place = Place { session, branch: &BranchId::main() };
    let records = [RegisterSet::new(RegisterKey::new("k").unwrap(), Json::null()).into()];
    let frames = Codec::new().encode_base(place, head, Timestamp(7), &[&records, &records]).unwrap();
    Base { head, status: Status::Idle, frames }
}

pub fn appending(session: &SessionKey, after: Head, text: &str) -> Append {
    let frame = frame_of(session, &BranchId::main(), after, 1, text);
    Append::new(session.clone(), BranchId::main(), after, vec![frame])
}

pub async fn append_many(store: &SqliteStore, session: &SessionKey, mut head: Head, count: usize, size: usize) -> Head {
    for index in 0..count {
        let append = appending(session, head, &format!("{index}{}", "x".repeat(size)));
        head = store.append(&append).await.unwrap().head;
    }
    head
}

pub async fn read_main(store: &SqliteStore, session: &SessionKey) -> Vec<Slot> {
    store.read_all(&ReadFrames::all(session.clone(), BranchId::main())).await.unwrap()
}

pub fn open_error(path: &Path, options: StoreOptions) -> Error {
    let error = SqliteStore::open(path, options).expect_err("it must be refused");
    assert_eq!(error.operation(), Some("open store"));
    error
}
