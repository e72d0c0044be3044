//! Columns that do not fit their frames, and rows that are gone.

use std::sync::Arc;

use rekindle_core::codec::Codec;
use rekindle_core::record::CheckpointMarked;
use rekindle_core::retention::{Policy, Rule};
use rekindle_core::{
    BranchId, CheckpointId, DamageKind, ErrorKind, Journal, Marks, ReadFrames, Seq, SessionHeader, SessionId,
    SessionKey, Slot,
};
use rekindle_fixtures::Postgres;
use rekindle_store::{StoreOptions, SystemClock, open, system_ids};
use rekindle_testkit::{History, checkpoint, message};

use crate::fixture::Shared;

fn session() -> SessionKey {
    SessionId::new("victim").unwrap().into()
}

/// Five batches of a message and a checkpoint each, and a pin on the second.
async fn written(shared: &Shared) -> Journal {
    let store = open(&shared.url, StoreOptions::new()).unwrap();
    let journal = Journal::new(store, Codec::new(), Arc::new(SystemClock), system_ids().unwrap());
    journal.create(SessionHeader::new(session())).await.unwrap();
    let mut history = History::begin(&journal, &session()).await;
    for n in 1..=5 {
        history.append(vec![message(&format!("message {n}")), checkpoint(&format!("c{n}"))]).await.unwrap();
    }
    let pin = CheckpointMarked::pinned(CheckpointId::new("c2").unwrap(), true);
    journal.send(&session(), &[pin.into()]).await.unwrap();
    journal
}

async fn damage(journal: &Journal) -> Vec<(DamageKind, BranchId, Seq)> {
    let report = journal.verify(&session(), &Default::default()).await.unwrap();
    report.damage.into_iter().map(|damage| (damage.kind, damage.branch, damage.first)).collect()
}

fn alter(shared: &Shared, sql: &str) {
    Postgres::shared().sql(&sql.replace("{s}", &shared.quoted_schema()));
}

#[tokio::test]
async fn marks_that_do_not_fit_the_frame_are_damage() {
    for marks in ["0", "3", "-1", "257"] {
        let shared = Shared::default();
        let journal = written(&shared).await;
        alter(&shared, &format!("UPDATE {{s}}.frames SET marks = {marks} WHERE last = 4"));
        let error = journal.load(&session(), None).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{marks}: {error:?}");
        assert_eq!(damage(&journal).await, [(DamageKind::Index, BranchId::main(), Seq(3))], "{marks}");
    }
}

#[tokio::test]
async fn a_pin_whose_marks_were_taken_away_still_counts() {
    let shared = Shared::default();
    let journal = written(&shared).await;
    alter(&shared, "UPDATE {s}.frames SET marks = 0 WHERE last = 1");
    let error = journal.prune(&session(), &Policy::new([Rule::LastN(1)])).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert_eq!(damage(&journal).await, [(DamageKind::Index, BranchId::inbox(), Seq(1))]);
    // A filtered read does not return a frame that lacks the mark.
    alter(&shared, "UPDATE {s}.frames SET marks = 4 WHERE last = 4");
    let read = ReadFrames::all(session(), BranchId::main()).with_marks(Marks::WAIT);
    let page = journal.store().read(&read).await.unwrap();
    assert!(matches!(&page.slots[..], [Slot::Damaged(damage)] if damage.kind == DamageKind::Index), "{page:?}");
}

#[tokio::test]
async fn a_branch_that_every_session_has_is_missed() {
    for branch in [BranchId::main(), BranchId::inbox()] {
        let shared = Shared::default();
        let journal = written(&shared).await;
        alter(&shared, &format!("DELETE FROM {{s}}.branches WHERE name = '{branch}'"));
        let found = damage(&journal).await;
        assert!(found.contains(&(DamageKind::Missing, branch.clone(), Seq(1))), "{branch}: {found:?}");
    }
}
