//! An index of marks that does not fit the frames.

use std::sync::Arc;

use rekindle_core::codec::Codec;
use rekindle_core::record::CheckpointMarked;
use rekindle_core::retention::{Policy, Rule};
use rekindle_core::{
    BranchId, CheckpointId, DamageKind, Journal, Marks, ReadFrames, Seq, SessionHeader, Slot, StoreExt as _,
};
use rekindle_fixtures::Redis;
use rekindle_store::{SystemClock, system_ids};
use rekindle_testkit::{History, checkpoint, message};

use crate::fixtures::{key, prefix, store};

/// Five batches of a message and a checkpoint each, and a pin on the second.
async fn written(prefix: &str) -> Journal {
    let store = store(&format!("{}?prefix={prefix}", Redis::shared().url()));
    let journal = Journal::new(store, Codec::new(), Arc::new(SystemClock), system_ids().unwrap());
    journal.create(SessionHeader::new(key("victim"))).await.unwrap();
    let mut history = History::begin(&journal, &key("victim")).await;
    for n in 1..=5 {
        history.append(vec![message(&format!("message {n}")), checkpoint(&format!("c{n}"))]).await.unwrap();
    }
    let pin = CheckpointMarked::pinned(CheckpointId::new("c2").unwrap(), true);
    journal.send(&key("victim"), &[pin.into()]).await.unwrap();
    journal
}

async fn damage(journal: &Journal) -> Vec<(DamageKind, BranchId, Seq)> {
    let report = journal.verify(&key("victim"), &Default::default()).await.unwrap();
    report.damage.into_iter().map(|damage| (damage.kind, damage.branch, damage.first)).collect()
}

fn entry(last: u64, first: u64, marks: &str) -> String {
    format!("{last:020}{first:020}{marks}")
}

/// The indexes of marks that hold an entry.
fn indexes_with(prefix: &str, entry: &str) -> Vec<String> {
    let keys = Redis::shared().command(&["KEYS", &format!("{prefix}:*:marks:*")]);
    let holds = |key: &&str| !Redis::shared().command(&["ZSCORE", key, entry]).is_empty();
    keys.lines().filter(holds).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_frame_without_its_entry_is_reported() {
    let prefix = prefix();
    let journal = written(&prefix).await;
    assert!(damage(&journal).await.is_empty());
    let [index] = &indexes_with(&prefix, &entry(4, 3, "1"))[..] else { panic!("one index has it") };
    Redis::shared().command(&["ZREM", index, &entry(4, 3, "1")]);
    assert_eq!(damage(&journal).await, [(DamageKind::Index, BranchId::main(), Seq(3))]);
    assert!(journal.prune(&key("victim"), &Policy::new([Rule::LastN(1)])).await.is_err());
}

#[tokio::test]
async fn an_entry_that_does_not_fit_its_frame_is_damage() {
    for (altered, first) in [(entry(4, 3, "5"), 3), (entry(4, 4, "1"), 4), (entry(4, 3, "x"), 3)] {
        let prefix = prefix();
        let journal = written(&prefix).await;
        let [index] = &indexes_with(&prefix, &entry(4, 3, "1"))[..] else { panic!("one index has it") };
        Redis::shared().command(&["ZREM", index, &entry(4, 3, "1")]);
        Redis::shared().command(&["ZADD", index, "0", &altered]);
        let read = ReadFrames::all(key("victim"), BranchId::main()).with_marks(Marks::CHECKPOINT);
        let slots = journal.store().read_all(&read).await.unwrap();
        let damaged: Vec<_> = slots
            .iter()
            .filter_map(|slot| match slot {
                Slot::Damaged(damage) => Some((damage.kind, damage.first)),
                Slot::Whole(_) => None,
            })
            .collect();
        assert_eq!(damaged, [(DamageKind::Index, Seq(first))], "{altered}");
        assert_eq!(damage(&journal).await, [(DamageKind::Index, BranchId::main(), Seq(first))], "{altered}");
    }
}

#[tokio::test]
async fn an_entry_without_its_frame_is_damage() {
    let prefix = prefix();
    let journal = written(&prefix).await;
    let [index] = &indexes_with(&prefix, &entry(4, 3, "1"))[..] else { panic!("one index has it") };
    Redis::shared().command(&["XDEL", &index.replace(":marks:", ":frames:"), "4-0"]);
    assert_eq!(damage(&journal).await[..1], [(DamageKind::Missing, BranchId::main(), Seq(3))]);
}

#[tokio::test]
async fn a_pin_whose_entry_is_gone_still_counts() {
    let prefix = prefix();
    let journal = written(&prefix).await;
    let [index] = &indexes_with(&prefix, &entry(1, 1, "1"))[..] else { panic!("one index has it") };
    Redis::shared().command(&["ZREM", index, &entry(1, 1, "1")]);
    let plan = journal.plan_prune(&key("victim"), &Policy::new([Rule::LastN(1)]), None).await.unwrap();
    let removed: Vec<&str> = plan.remove.iter().map(|planned| planned.checkpoint.as_str()).collect();
    assert_eq!(removed, ["c1", "c3", "c4"]);
    assert_eq!(damage(&journal).await, [(DamageKind::Index, BranchId::inbox(), Seq(1))]);
}
