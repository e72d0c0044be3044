//! What the writer of a branch promises in each durability mode, over a store whose appends
//! wait at a gate: nothing here depends on how quick anything is.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rekindle_core::record::Durability;
use rekindle_core::retention::{Policy, Rule};
use rekindle_core::{
    BranchId, ErrorKind, Head, Journal, Lease, LogName, OwnerId, Record, Seq, SessionKey, StoreExt as _, Target,
};
use rekindle_store::{BranchWriter, Fault, FaultPlan, FaultyStore, MeteredStore, WriterOptions};
use rekindle_testkit::{CodecKind, Fixture, Harness, Hooked, checkpoint, message};

use crate::fixtures::{Files, Memory, Seen, Sqlite};
use crate::gate::{Gate, settle, waits};

const TTL: Duration = Duration::from_secs(60);

/// A session in memory behind a gate, with a fault plan and an observer in between.
struct Stage {
    harness: Harness,
    gate: Arc<Gate>,
    plan: Arc<FaultPlan>,
    seen: Arc<Seen>,
    /// Past the gate.
    journal: Journal,
    /// Around it.
    direct: Journal,
    session: SessionKey,
    lease: Lease,
}

impl Stage {
    async fn new() -> Self {
        let harness = Harness::new(Memory::default(), CodecKind::Default);
        let store = harness.store().await;
        let (plan, seen) = (Arc::<FaultPlan>::default(), Arc::<Seen>::default());
        let metered = MeteredStore::new(store.clone(), seen.clone());
        let (gate, faulty) = (Gate::new(), FaultyStore::new(metered, plan.clone()));
        let gated = Hooked::new(Arc::new(faulty), gate.clone());
        let (journal, direct) = (harness.journal_over(Arc::new(gated)), harness.journal_over(store));
        let session = harness.session(&direct, "a").await.header.key;
        let owner = OwnerId::new("writer").unwrap();
        let lease = direct.store().acquire(&session, &BranchId::main(), &owner, TTL).await.unwrap();
        Self { harness, gate, plan, seen, journal, direct, session, lease }
    }

    fn writer(&self, options: WriterOptions) -> BranchWriter {
        let target =
            Target::new(self.session.clone(), BranchId::main(), self.lease.head).with_fence(self.lease.info.epoch);
        BranchWriter::new(self.journal.clone(), target, options)
    }

    /// The messages on disk.
    async fn on_disk(&self) -> Vec<String> {
        messages(&self.direct, &self.session).await
    }

    fn appends(&self) -> usize {
        self.seen.0.lock().unwrap().iter().filter(|observation| observation.operation == "append").count()
    }
}

async fn messages(journal: &Journal, session: &SessionKey) -> Vec<String> {
    let restored = journal.load(session, None).await.unwrap();
    let report = journal.verify(session, &BTreeMap::new()).await.unwrap();
    assert!(report.is_sound(), "{report:?}");
    restored.state.log(&LogName::new("messages").unwrap()).iter().map(|item| item.decode().unwrap()).collect()
}

fn batch(n: usize) -> Vec<Record> {
    vec![message(&n.to_string())]
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

fn seqs(head: Head) -> u64 {
    head.seq.0
}

#[tokio::test]
async fn a_sync_commit_returns_once_it_is_on_disk() {
    let stage = Stage::new().await;
    let mut writer = stage.writer(WriterOptions::new(Durability::Sync));
    {
        let first = batch(0);
        let mut commit = pin!(writer.commit(&first));
        assert!(waits(commit.as_mut()).await.is_none());
        assert!(stage.on_disk().await.is_empty());
        stage.gate.admit(1);
        assert_eq!(commit.await.unwrap().seq, Seq(1));
    }
    for n in 1..4 {
        stage.gate.admit(1);
        let head = writer.commit(&batch(n)).await.unwrap();
        assert_eq!((writer.durable(), writer.head(), writer.backlog()), (head, head, (0, 0)));
        assert_eq!(stage.on_disk().await, numbers(0..n + 1));
    }
    assert_eq!(stage.appends(), 4);
}

#[tokio::test]
async fn a_sync_commit_is_seen_by_another_process() {
    let harness = Harness::new(Sqlite::default(), CodecKind::Default);
    let journal = harness.journal().await;
    let session = harness.session(&journal, "a").await.header.key;
    let head = journal.open(&session).await.unwrap().branch(&BranchId::main()).unwrap().head;
    let target = Target::new(session.clone(), BranchId::main(), head);
    let mut writer = BranchWriter::new(journal, target, WriterOptions::new(Durability::Sync));
    let other = harness.journal().await;
    for n in 0..3 {
        let head = writer.commit(&batch(n)).await.unwrap();
        assert_eq!(writer.durable(), head);
        assert_eq!(messages(&other, &session).await, numbers(0..n + 1));
    }
}

#[tokio::test]
async fn an_async_commit_returns_at_once_and_a_flush_is_a_barrier() {
    let stage = Stage::new().await;
    let mut writer = stage.writer(WriterOptions::new(Durability::Async));
    for n in 0..3 {
        writer.commit(&batch(n)).await.unwrap();
    }
    settle().await;
    assert_eq!((seqs(writer.durable()), seqs(writer.head())), (0, 3));
    assert!(stage.on_disk().await.is_empty());
    {
        let mut flush = pin!(writer.flush());
        assert!(waits(flush.as_mut()).await.is_none());
        stage.gate.admit(9);
        assert_eq!(seqs(flush.await.unwrap()), 3);
    }
    assert_eq!((seqs(writer.durable()), writer.backlog()), (3, (0, 0)));
    assert_eq!(stage.on_disk().await, numbers(0..3));
    assert_eq!(seqs(writer.close().await.unwrap()), 3);
}

#[tokio::test]
async fn batches_that_wait_together_are_joined_in_order() {
    let stage = Stage::new().await;
    let mut writer = stage.writer(WriterOptions::new(Durability::Async));
    writer.commit(&batch(0)).await.unwrap();
    stage.gate.arrived(1).await;
    for n in 1..200 {
        writer.commit(&batch(n)).await.unwrap();
    }
    stage.gate.admit(200);
    writer.flush().await.unwrap();
    assert_eq!(stage.on_disk().await, numbers(0..200));
    assert_eq!(stage.appends(), 2, "one was under way, the others waited behind it");
    writer.close().await.unwrap();
}

/// Retention may cut between two batches that were written together.
async fn joined_batches_come_apart<F: Fixture + Default>() {
    let harness = Harness::new(F::default(), CodecKind::Default);
    let journal = harness.journal().await;
    let session = harness.session(&journal, "a").await.header.key;
    let head = journal.open(&session).await.unwrap().branch(&BranchId::main()).unwrap().head;
    let target = Target::new(session.clone(), BranchId::main(), head);
    let mut writer = BranchWriter::new(journal.clone(), target, WriterOptions::new(Durability::Exit));
    for n in 0..3 {
        writer.commit(&[batch(n), vec![checkpoint(&n.to_string())]].concat()).await.unwrap();
    }
    writer.commit(&batch(3)).await.unwrap();
    let head = writer.close().await.unwrap();
    let pruned = journal.prune(&session, &Policy::new([Rule::LastN(2)])).await.unwrap();
    assert_eq!(pruned.plan.trims[0].through, Seq(4));
    for journal in [journal, harness.journal().await] {
        assert_eq!(messages(&journal, &session).await, numbers(0..4));
    }
    let journal = harness.journal().await;
    let target = Target::new(session.clone(), BranchId::main(), head);
    journal.append(&target, &batch(4)).await.unwrap();
    assert_eq!(messages(&journal, &session).await, numbers(0..5));
}

#[tokio::test]
async fn joined_batches_can_be_pruned_apart() {
    joined_batches_come_apart::<Memory>().await;
    joined_batches_come_apart::<Files>().await;
    joined_batches_come_apart::<Sqlite>().await;
}

#[tokio::test]
async fn a_commit_waits_while_the_queue_is_full() {
    for (durability, bytes, count) in
        [(Durability::Async, 8 << 20, 3), (Durability::Exit, 8 << 20, 3), (Durability::Async, 1, 1)]
    {
        let stage = Stage::new().await;
        let mut writer = stage.writer(WriterOptions::new(durability).with_queue(bytes, 3));
        for n in 0..count {
            assert!(waits(writer.commit(&batch(n))).await.unwrap().is_ok());
        }
        {
            let late = batch(count);
            let mut commit = pin!(writer.commit(&late));
            assert!(waits(commit.as_mut()).await.is_none(), "{durability:?}");
            stage.gate.admit(1);
            commit.await.unwrap();
        }
        assert!(seqs(writer.durable()) > 0);
        stage.gate.admit(9);
        writer.close().await.unwrap();
        assert_eq!(stage.on_disk().await, numbers(0..count + 1));
    }
}

#[tokio::test]
async fn exit_writes_nothing_before_a_flush_and_everything_at_the_end() {
    let stage = Stage::new().await;
    stage.gate.admit(9);
    let mut writer = stage.writer(WriterOptions::new(Durability::Exit));
    for n in 0..5 {
        writer.commit(&batch(n)).await.unwrap();
    }
    settle().await;
    assert_eq!((seqs(writer.durable()), stage.appends()), (0, 0));
    writer.flush().await.unwrap();
    assert_eq!(stage.on_disk().await, numbers(0..5));
    for n in 5..8 {
        writer.commit(&batch(n)).await.unwrap();
    }
    settle().await;
    assert_eq!((seqs(writer.durable()), stage.appends()), (5, 1));
    assert_eq!(seqs(writer.close().await.unwrap()), 8);
    assert_eq!((stage.on_disk().await, stage.appends()), (numbers(0..8), 2));
}

/// A failure reaches the caller, stays, and nothing behind it is written.
#[tokio::test]
async fn a_failure_stops_the_writer() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let stage = Stage::new().await;
        stage.gate.admit(99);
        let mut writer = stage.writer(WriterOptions::new(durability).with_attempts(1));
        writer.commit(&batch(0)).await.unwrap();
        let durable = writer.flush().await.unwrap();
        stage.plan.fail_once_at(0, Fault::Full);
        let mut failed = writer.commit(&batch(1)).await.err();
        if failed.is_none() {
            failed = writer.flush().await.err();
        }
        assert_eq!(*failed.expect("the failure is told").kind(), ErrorKind::PersistFailed, "{durability:?}");
        // The store works again, but the writer cannot know what became of the batch.
        for n in 2..4 {
            assert_eq!(*writer.commit(&batch(n)).await.unwrap_err().kind(), ErrorKind::PersistFailed);
            assert_eq!(*writer.flush().await.unwrap_err().kind(), ErrorKind::PersistFailed);
        }
        settle().await;
        assert_eq!(writer.durable(), durable);
        assert_eq!((stage.on_disk().await, stage.plan.calls()), (numbers(0..1), 1), "{durability:?}");
        assert!(writer.close().await.is_err());
    }
}

/// A lost reply is asked for again: the batch is there once.
#[tokio::test]
async fn a_write_is_tried_again_without_being_doubled() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        for fault in [Fault::ReplyLost, Fault::Unreachable] {
            let stage = Stage::new().await;
            stage.gate.admit(99);
            let mut writer = stage.writer(WriterOptions::new(durability).with_attempts(2));
            stage.plan.fail_once_at(0, fault);
            for n in 0..3 {
                writer.commit(&batch(n)).await.unwrap();
            }
            writer.close().await.unwrap();
            assert_eq!(stage.on_disk().await, numbers(0..3), "{durability:?} {fault:?}");
        }
    }
}

#[tokio::test]
async fn dropping_the_writer_loses_only_what_was_not_flushed() {
    for durability in [Durability::Async, Durability::Exit] {
        let stage = Stage::new().await;
        let mut writer = stage.writer(WriterOptions::new(durability));
        stage.gate.admit(1);
        for n in 0..4 {
            writer.commit(&batch(n)).await.unwrap();
            if n == 1 {
                stage.gate.admit(9);
                writer.flush().await.unwrap();
            }
        }
        drop(writer);
        settle().await;
        let left = stage.on_disk().await;
        assert!((2..=4).contains(&left.len()), "{left:?}");
        assert_eq!(left, numbers(0..left.len()), "{durability:?}");
        // Another writer goes on from there.
        let head = stage.direct.load(&stage.session, None).await.unwrap().head;
        let target = Target::new(stage.session.clone(), BranchId::main(), head).with_fence(stage.lease.info.epoch);
        let mut next = BranchWriter::new(stage.journal.clone(), target, WriterOptions::new(durability));
        next.commit(&batch(left.len())).await.unwrap();
        next.close().await.unwrap();
        assert_eq!(stage.on_disk().await, numbers(0..left.len() + 1));
    }
}

/// A commit whose caller went away before or after the store carried it out is neither lost
/// nor doubled by the next one, even if the queue takes only one batch.
#[tokio::test]
async fn a_cancelled_sync_commit_is_neither_lost_nor_doubled() {
    for carried_out in [false, true] {
        for queue in [1, 1_000] {
            let stage = Stage::new().await;
            let mut writer = stage.writer(WriterOptions::new(Durability::Sync).with_queue(8 << 20, queue));
            if carried_out {
                stage.gate.admit_one_way();
            }
            assert!(waits(writer.commit(&batch(0))).await.is_none());
            assert_eq!(stage.on_disk().await, numbers(0..usize::from(carried_out)));
            assert_eq!((seqs(writer.durable()), seqs(writer.head())), (0, 1));
            stage.gate.admit(9);
            let head = waits(writer.commit(&batch(1))).await.expect("the writer goes on").unwrap();
            assert_eq!((head, writer.durable()), (writer.head(), head));
            assert_eq!(stage.on_disk().await, numbers(0..2), "{carried_out} {queue}");
        }
    }
}

/// A flush repeats what a cancelled commit left behind, too.
#[tokio::test]
async fn a_flush_finishes_a_cancelled_commit() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let stage = Stage::new().await;
        let mut writer = stage.writer(WriterOptions::new(durability));
        let _ = waits(writer.commit(&batch(0))).await;
        let _ = waits(writer.flush()).await;
        stage.gate.admit(9);
        assert_eq!(seqs(writer.flush().await.unwrap()), 1);
        writer.close().await.unwrap();
        assert_eq!(stage.on_disk().await, numbers(0..1));
    }
}

#[tokio::test]
async fn a_fenced_writer_is_told_so() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let stage = Stage::new().await;
        stage.gate.admit(99);
        let mut writer = stage.writer(WriterOptions::new(durability));
        writer.commit(&batch(0)).await.unwrap();
        writer.flush().await.unwrap();
        stage.harness.clock.advance(TTL);
        let owner = OwnerId::new("other").unwrap();
        stage.direct.store().acquire(&stage.session, &BranchId::main(), &owner, TTL).await.unwrap();
        let mut failed = writer.commit(&batch(1)).await.err();
        if failed.is_none() {
            failed = writer.flush().await.err();
        }
        let failed = failed.expect("somebody else holds the lease");
        assert!(matches!(failed.kind(), ErrorKind::Fenced { .. }), "{failed:?}");
        assert_eq!(stage.appends(), 2, "trying again does not help");
        assert_eq!((seqs(writer.durable()), stage.on_disk().await), (1, numbers(0..1)));
    }
}

/// What is over a limit is refused by the commit itself and stops nothing.
#[tokio::test]
async fn a_refused_batch_does_not_stop_the_writer() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let stage = Stage::new().await;
        stage.gate.admit(99);
        let mut writer = stage.writer(WriterOptions::new(durability));
        assert_eq!(*writer.commit(&[]).await.unwrap_err().kind(), ErrorKind::Invalid);
        writer.commit(&batch(0)).await.unwrap();
        writer.close().await.unwrap();
        assert_eq!(stage.on_disk().await, numbers(0..1));
    }
}

/// Whoever waits for the writer is told that it is gone, and not left waiting.
#[tokio::test]
async fn a_store_that_panics_closes_the_writer() {
    for durability in [Durability::Async, Durability::Exit] {
        let stage = Stage::new().await;
        stage.gate.collapse();
        let mut writer = stage.writer(WriterOptions::new(durability));
        writer.commit(&batch(0)).await.unwrap();
        let error = waits(writer.flush()).await.expect("nobody waits for ever").unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Closed);
        assert_eq!(*writer.commit(&batch(1)).await.unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(seqs(writer.durable()), 0);
    }
}
