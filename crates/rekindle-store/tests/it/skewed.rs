//! Processes of one machine whose wall clocks differ, or are set while a lease is held: leases go by
//! the clock that started with the machine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rekindle_core::codec::Codec;
use rekindle_core::record::RunStarted;
use rekindle_core::{
    BootTime, BranchId, Clock, ErrorKind, IdSource, Journal, OwnerId, RunId, SessionHeader, SessionKey, SessionQuery,
    Status, Store, StoreExt as _, Target, Timestamp,
};
use rekindle_store::{FileStore, SqliteStore, StoreOptions};
use rekindle_testkit::{ManualClock, message};

const DAY: i64 = 86_400_000_000;
const TTL: Duration = Duration::from_secs(30);

/// A wall clock that is off, on a machine whose boot clock everybody shares.
#[derive(Debug)]
struct Skewed {
    machine: Arc<ManualClock>,
    offset: i64,
    boot: u64,
}

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        Timestamp(self.machine.now().0.saturating_add_signed(self.offset))
    }

    fn since_boot(&self) -> Option<BootTime> {
        Some(BootTime { boot: self.boot, micros: self.machine.now().0 })
    }
}

type Open = fn(&Path, StoreOptions) -> Arc<dyn Store>;

const STORES: &[Open] = &[
    |directory, options| Arc::new(SqliteStore::open(directory.join("sessions.db"), options).unwrap()),
    |directory, options| Arc::new(FileStore::open(directory.join("sessions"), options).unwrap()),
    #[cfg(feature = "objects")]
    |directory, options| {
        let url = format!("objects:{}", directory.join("objects").display());
        Arc::new(rekindle_store::ObjectsStore::open(&url, options).unwrap())
    },
];

/// A journal of a process whose wall clock is off by that much.
struct Machine {
    directory: tempfile::TempDir,
    clock: Arc<ManualClock>,
    open: Open,
}

impl Machine {
    fn new(open: Open) -> Self {
        Self { directory: tempfile::tempdir().unwrap(), clock: Arc::default(), open }
    }

    fn process(&self, offset: i64, boot: u64) -> Journal {
        let clock = Arc::new(Skewed { machine: Arc::clone(&self.clock), offset, boot });
        let store = (self.open)(self.directory.path(), StoreOptions::new().with_clock(clock.clone()));
        Journal::new(store, Codec::new(), clock, IdSource::seeded([boot as u8; 32]))
    }
}

fn key() -> SessionKey {
    rekindle_core::SessionId::new("a").unwrap().into()
}

fn owner(name: &str) -> OwnerId {
    OwnerId::new(name).unwrap()
}

async fn acquire(journal: &Journal, name: &str) -> rekindle_core::Result<rekindle_core::Lease> {
    journal.store().acquire(&key(), &BranchId::main(), &owner(name), TTL).await
}

async fn listed(journal: &Journal, status: Status) -> u64 {
    let query = SessionQuery::new(Default::default()).with_status(status).with_total();
    journal.list(&query).await.unwrap().total.unwrap()
}

#[tokio::test]
async fn a_process_whose_clock_is_ahead_steals_nothing() {
    for open in STORES {
        let machine = Machine::new(*open);
        let (right, ahead, behind) = (machine.process(0, 1), machine.process(DAY, 1), machine.process(-DAY, 1));
        right.create(SessionHeader::new(key())).await.unwrap();
        let lease = acquire(&right, "right").await.unwrap();
        let started = RunStarted::new(RunId::new("run").unwrap(), "agent");
        let target = Target::new(key(), BranchId::main(), lease.head).with_fence(lease.info.epoch);
        let head = right.append(&target, &[started.into()]).await.unwrap().head;
        for other in [&ahead, &behind] {
            let refused = acquire(other, "other").await.unwrap_err();
            assert!(matches!(refused.kind(), ErrorKind::AlreadyRunning { .. }), "{refused:?}");
            let unleased = Target::new(key(), BranchId::main(), head);
            let refused = other.append(&unleased, &[message("x")]).await.unwrap_err();
            assert!(matches!(refused.kind(), ErrorKind::AlreadyRunning { .. }), "{refused:?}");
            assert_eq!(other.open(&key()).await.unwrap().status(), Status::Running);
            assert_eq!((listed(other, Status::Running).await, listed(other, Status::Interrupted).await), (1, 0));
        }
        // It ends for everybody at the same moment.
        machine.clock.advance(TTL - Duration::from_micros(1));
        assert!(acquire(&ahead, "ahead").await.is_err());
        machine.clock.advance(Duration::from_micros(1));
        assert_eq!((listed(&behind, Status::Running).await, listed(&behind, Status::Interrupted).await), (0, 1));
        let late = Target::new(key(), BranchId::main(), head).with_fence(lease.info.epoch);
        assert!(matches!(right.append(&late, &[message("x")]).await.unwrap_err().kind(), ErrorKind::Fenced { .. }));
        acquire(&behind, "behind").await.unwrap();
    }
}

#[tokio::test]
async fn setting_the_wall_clock_ends_no_lease() {
    for open in STORES {
        let machine = Machine::new(*open);
        let before = machine.process(0, 1);
        before.create(SessionHeader::new(key())).await.unwrap();
        let lease = acquire(&before, "owner").await.unwrap();
        let mut target = Target::new(key(), BranchId::main(), lease.head).with_fence(lease.info.epoch).with_renew(TTL);
        for offset in [DAY, -DAY, 0] {
            // The same owner, after somebody set the clock.
            let after = machine.process(offset, 1);
            machine.clock.advance(TTL - Duration::from_secs(1));
            target.expected = after.append(&target, &[message("renews")]).await.unwrap().head;
            machine.clock.advance(TTL - Duration::from_secs(1));
            after.store().renew(&lease, TTL).await.unwrap();
        }
        machine.clock.advance(TTL);
        assert!(before.store().renew(&lease, TTL).await.is_err());
    }
}

/// Another start of the machine has another boot clock: then the wall clock counts.
#[tokio::test]
async fn after_a_restart_the_wall_clock_counts() {
    for open in STORES {
        let machine = Machine::new(*open);
        let before = machine.process(0, 1);
        before.create(SessionHeader::new(key())).await.unwrap();
        acquire(&before, "owner").await.unwrap();
        let after = machine.process(0, 2);
        assert!(acquire(&after, "other").await.is_err());
        machine.clock.advance(TTL);
        acquire(&after, "other").await.unwrap();
    }
}
