//! An index that lies about frames: what it hides or claims is reported, and never decides what is pruned.

use std::sync::Arc;

use rekindle_core::codec::Codec;
use rekindle_core::record::CheckpointMarked;
use rekindle_core::retention::{Policy, Rule};
use rekindle_core::{
    BranchId, CheckpointId, DamageKind, ErrorKind, FramePage, IdSource, Journal, Marks, ReadFrames, Seq, SessionHeader,
    SessionId, SessionKey, Slot, Store,
};
use rekindle_store::{MemoryStore, SqliteStore, StoreOptions, SystemClock};
use rekindle_testkit::{History, Hook, Hooked, checkpoint, message};

fn session() -> SessionKey {
    SessionId::new("victim").unwrap().into()
}

fn journal(store: impl Store) -> Journal {
    Journal::new(Arc::new(store), Codec::new(), Arc::new(SystemClock), IdSource::seeded([1; 32]))
}

/// Ten batches of a message and a checkpoint each, and a pin on the third.
async fn written(store: impl Store) -> Journal {
    let journal = journal(store);
    journal.create(SessionHeader::new(session())).await.unwrap();
    let mut history = History::begin(&journal, &session()).await;
    for n in 1..=10 {
        history.append(vec![message(&format!("message {n}")), checkpoint(&format!("c{n}"))]).await.unwrap();
    }
    let pin = CheckpointMarked::pinned(CheckpointId::new("c3").unwrap(), true);
    journal.send(&session(), &[pin.into()]).await.unwrap();
    journal
}

async fn damage(journal: &Journal) -> Vec<(DamageKind, BranchId, Seq)> {
    let report = journal.verify(&session(), &Default::default()).await.unwrap();
    report.damage.into_iter().map(|damage| (damage.kind, damage.branch, damage.first)).collect()
}

fn keep_one() -> Policy {
    Policy::new([Rule::LastN(1)])
}

/// An index that does not know that a frame has marks.
struct Hiding(BranchId, Seq);

impl Hook for Hiding {
    fn page(&self, read: &ReadFrames, mut page: FramePage) -> FramePage {
        if read.marks != Marks::NONE && read.branch == self.0 {
            page.slots.retain(|slot| slot.span().1 != self.1);
        }
        page
    }
}

/// The journal over a store that hides a frame.
async fn hiding(branch: BranchId, last: u64) -> Journal {
    written(Hooked::new(Arc::new(MemoryStore::default()), Hiding(branch, Seq(last)))).await
}

#[tokio::test]
async fn a_frame_that_is_not_found_by_its_marks_is_reported() {
    for (branch, first, last) in [(BranchId::main(), 5, 6), (BranchId::main(), 19, 20), (BranchId::inbox(), 1, 1)] {
        let journal = hiding(branch.clone(), last).await;
        assert_eq!(damage(&journal).await, [(DamageKind::Index, branch, Seq(first))]);
    }
}

#[tokio::test]
async fn a_pin_that_the_index_hides_counts_when_history_is_pruned() {
    let journal = hiding(BranchId::inbox(), 1).await;
    let plan = journal.plan_prune(&session(), &keep_one(), None).await.unwrap();
    let removed: Vec<&str> = plan.remove.iter().map(|planned| planned.checkpoint.as_str()).collect();
    assert!(removed.contains(&"c2") && !removed.contains(&"c3"), "{removed:?}");
    let refused = journal.delete_checkpoints(&session(), &[CheckpointId::new("c3").unwrap()]).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Protected, "{refused:?}");
}

#[tokio::test]
async fn history_with_a_checkpoint_that_the_index_hides_is_not_pruned() {
    let journal = hiding(BranchId::main(), 6).await;
    let refused = journal.prune(&session(), &keep_one()).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Corrupt, "{refused:?}");
    assert_eq!(refused.position().map(|position| position.seq), Some(Seq(5)));
}

#[tokio::test]
async fn a_column_that_does_not_fit_its_frame_is_damage() {
    for column in ["marks = 0", "marks = 3", "marks = -1", "marks = 1 + 256"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rekindle.db");
        let open = || SqliteStore::open(&path, StoreOptions::new()).unwrap();
        drop(written(open()).await);
        let raw = rusqlite::Connection::open(&path).unwrap();
        let changed = raw.execute(&format!("UPDATE frames SET {column} WHERE last = 6"), []).unwrap();
        assert_eq!(changed, 1);
        // By the index, and by the columns alone.
        for index in ["recent = recent", "recent = x'00'"] {
            raw.execute(&format!("UPDATE branches SET {index} WHERE name = 'main'"), []).unwrap();
            let journal = journal(open());
            let error = journal.load(&session(), None).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Corrupt, "{column}, {index}: {error:?}");
            assert_eq!(error.position().map(|position| position.seq), Some(Seq(5)), "{column}, {index}");
            let expected = [(DamageKind::Index, BranchId::main(), Seq(5))];
            assert_eq!(damage(&journal).await, expected, "{column}, {index}");
            assert!(journal.prune(&session(), &keep_one()).await.is_err(), "{column}, {index}");
        }
    }
}

#[tokio::test]
async fn a_branch_that_every_session_has_is_missed() {
    for branch in [BranchId::main(), BranchId::inbox()] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rekindle.db");
        let store = SqliteStore::open(&path, StoreOptions::new()).unwrap();
        let journal = written(store).await;
        let raw = rusqlite::Connection::open(&path).unwrap();
        assert_eq!(raw.execute("DELETE FROM branches WHERE name = ?1", [branch.as_str()]).unwrap(), 1);
        let found = damage(&journal).await;
        assert!(found.contains(&(DamageKind::Missing, branch.clone(), Seq(1))), "{branch}: {found:?}");
    }
}

#[tokio::test]
async fn a_frame_found_by_marks_it_does_not_have_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rekindle.db");
    let open = || SqliteStore::open(&path, StoreOptions::new()).unwrap();
    drop(written(open()).await);
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute_batch("UPDATE frames SET marks = 4 WHERE last = 6; UPDATE branches SET recent = x'00'").unwrap();
    let read = ReadFrames::all(session(), BranchId::main()).with_marks(Marks::WAIT);
    let page = open().read(&read).await.unwrap();
    assert!(matches!(&page.slots[..], [Slot::Damaged(damage)] if damage.kind == DamageKind::Index), "{page:?}");
}
