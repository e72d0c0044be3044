//! A fault at every call. One scenario through the journal and the writer of branches, in all
//! three durability modes, over every store:
//!
//! * with one call going wrong, a caller that tries again arrives where an unbroken run does;
//! * with all calls going wrong from one on, as if the process had died there, what was
//!   acknowledged is there, what was not is there whole or not at all, and the rest can be done.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rekindle_core::record::{Durability, InboxMessage, RunEnded, RunOutcome, RunStarted, SessionDescribed};
use rekindle_core::retention::{Policy, Rule};
use rekindle_core::{
    BranchId, Entry, Epoch, ErrorKind, Head, Journal, Json, MessageId, OwnerId, Position, Record, Result, Retry, RunId,
    Seq, SessionHeader, SessionId, SessionKey, State, Status, StoreExt as _, Target,
};
use rekindle_store::{BranchWriter, Fault, FaultPlan, FaultyStore, WriterOptions};
use rekindle_testkit::{CodecKind, Fixture, Harness, checkpoint, message, register};

use crate::fixtures::{Files, Memory, Sqlite};

const TTL: Duration = Duration::from_secs(60);
/// Where `side` starts: between two records of a batch.
const INSIDE: u64 = 30;

fn session() -> SessionKey {
    SessionId::new("broken").unwrap().into()
}

fn side() -> BranchId {
    BranchId::new("side").unwrap()
}

/// The batches of a branch. Every fourth ends with a checkpoint; runs begin and end in between.
fn batches(branch: &BranchId, count: usize) -> Vec<Vec<Record>> {
    let batch = |n: usize| {
        let name = format!("{branch} {n}");
        let mut records = vec![message(&name), register("last", &name)];
        let run = RunId::new("run").unwrap();
        match n % 6 {
            1 => records.push(RunStarted::new(run, "agent").into()),
            4 => records.push(RunEnded::new(run, RunOutcome::Succeeded).into()),
            _ => {}
        }
        if n % 4 == 3 {
            records.push(checkpoint(&name));
        }
        records
    };
    (0..count).map(batch).collect()
}

/// How the scenario treats a call that goes wrong.
#[derive(Clone, Copy)]
struct Patience {
    /// How often a request is made.
    requests: u32,
    /// How often a writer tries a write before it stops.
    writes: u32,
}

/// Everything that is to stand on a branch, and how far that has come.
struct Line {
    /// The record it starts behind.
    start: u64,
    batches: Vec<Vec<Record>>,
    /// So many batches are on disk: somebody was told so.
    acknowledged: usize,
    /// So many batches were handed to a writer.
    committed: usize,
}

/// The scenario. It can be run again over what an earlier run left, and then does the rest.
struct Scenario {
    journal: Journal,
    patience: Patience,
    lines: BTreeMap<BranchId, Line>,
    acknowledged: Acknowledged,
}

/// What somebody was told.
#[derive(Clone, Copy, Debug, Default)]
struct Acknowledged {
    created: bool,
    forked: bool,
    sent: bool,
    described: bool,
}

/// What can be seen at the end.
#[derive(Debug, PartialEq)]
struct Seen {
    states: BTreeMap<BranchId, (Seq, State)>,
    bases: BTreeMap<BranchId, Option<Seq>>,
    status: Status,
    title: Option<String>,
    inbox: Vec<Record>,
    stored_records: u64,
    checkpoints: Vec<String>,
}

impl Scenario {
    fn new(journal: Journal, patience: Patience) -> Self {
        let main = (BranchId::main(), Line::new(0, batches(&BranchId::main(), 38)));
        let side = (side(), Line::new(INSIDE, batches(&side(), 9)));
        Self { journal, patience, lines: BTreeMap::from([main, side]), acknowledged: Acknowledged::default() }
    }

    /// Makes a request, and makes it again if the cause of its failure may pass.
    async fn request<T, F: Future<Output = Result<T>>>(&self, request: impl Fn() -> F) -> Result<T> {
        let mut left = self.patience.requests;
        loop {
            left -= 1;
            match request().await {
                Err(error) if left > 0 && error.retry() == Retry::Later => {}
                result => return result,
            }
        }
    }

    async fn run(&mut self) -> Result<()> {
        let (key, main, side) = (session(), BranchId::main(), side());
        // A session whose creation was not acknowledged may be there all the same.
        self.request(|| self.journal.open_or_create(SessionHeader::new(session()))).await?;
        self.acknowledged.created = true;
        self.write(&main, &[(Durability::Sync, 12), (Durability::Async, 24), (Durability::Exit, 36)]).await?;
        if self.journal.open(&key).await?.branch(&side).is_err() {
            let inside = Position::new(main.clone(), Seq(INSIDE));
            self.request(|| self.journal.fork(&key, &inside, side.clone())).await?;
        }
        self.acknowledged.forked = true;
        self.write(&side, &[(Durability::Exit, 3), (Durability::Async, 6), (Durability::Sync, 9)]).await?;
        self.send().await?;
        self.describe().await?;
        self.prune().await?;
        self.write(&main, &[(Durability::Sync, 38)]).await
    }

    /// Writes the batches of a branch, in each mode up to that one, as far as they are not there
    /// already.
    async fn write(&mut self, branch: &BranchId, stretches: &[(Durability, usize)]) -> Result<()> {
        let (key, owner) = (session(), OwnerId::new("writer").unwrap());
        let lease = self.request(|| self.journal.store().acquire(&key, branch, &owner, TTL)).await?;
        for (mode, through) in stretches {
            let mut left = self.patience.requests;
            loop {
                left -= 1;
                match self.write_on(branch, *mode, *through, lease.info.epoch).await {
                    // The writer has stopped. Where the branch ends, a new one goes on.
                    Err(error) if left > 0 && error.retry() == Retry::Later => {}
                    Err(error) => return Err(error),
                    Ok(()) => break,
                }
            }
        }
        match self.request(|| self.journal.store().release(&lease)).await {
            // The reply of the first attempt was lost.
            Err(error) if self.patience.requests > 1 && matches!(error.kind(), ErrorKind::Fenced { .. }) => Ok(()),
            released => released.map(drop),
        }
    }

    async fn write_on(&mut self, branch: &BranchId, mode: Durability, through: usize, epoch: Epoch) -> Result<()> {
        let head = self.journal.open(&session()).await?.branch(branch)?.head;
        let line = self.lines.get_mut(branch).unwrap();
        let done = line.whole_batches(head);
        line.acknowledged = line.acknowledged.max(done);
        let target = Target::new(session(), branch.clone(), head).with_fence(epoch);
        let options = WriterOptions::new(mode).with_attempts(self.patience.writes);
        let mut writer = BranchWriter::new(self.journal.clone(), target, options);
        for index in done..through {
            line.committed = line.committed.max(index + 1);
            let end = writer.commit(&line.batches[index]).await?;
            if mode == Durability::Sync {
                assert_eq!(writer.durable(), end);
                line.acknowledged = index + 1;
            }
            if index % 5 == 4 {
                assert_eq!(writer.flush().await?, end);
                line.acknowledged = index + 1;
            }
        }
        writer.close().await?;
        line.acknowledged = line.acknowledged.max(through);
        Ok(())
    }

    /// Sends a message. Its append is made once, so that it can be repeated as it was.
    async fn send(&mut self) -> Result<()> {
        if !self.inbox().await.iter().any(|record| matches!(record, Record::InboxMessage(_))) {
            let record = InboxMessage::new(MessageId::new("m").unwrap(), Json::from("hello"));
            let head = self.journal.open(&session()).await?.branch(&BranchId::inbox())?.head;
            let target = Target::new(session(), BranchId::inbox(), head);
            let append = self.journal.prepare(&target, &[record.into()])?;
            self.request(|| self.journal.store().append(&append)).await?;
        }
        self.acknowledged.sent = true;
        Ok(())
    }

    /// Gives the session a title, unless a reply was lost and it has it.
    async fn describe(&mut self) -> Result<()> {
        let describe = || async {
            let info = self.journal.open(&session()).await?;
            if info.header.title.as_deref() == Some("described") {
                return Ok(info);
            }
            let change = SessionDescribed { title: Some("described".to_owned()), ..SessionDescribed::default() };
            self.journal.describe(&session(), change).await
        };
        self.request(describe).await?;
        self.acknowledged.described = true;
        Ok(())
    }

    /// Prunes until nothing is left to prune: once a fork stands on a base of its own, its
    /// parent may go further.
    async fn prune(&self) -> Result<()> {
        let (key, policy) = (session(), Policy::new([Rule::LastN(2)]));
        while !self.journal.plan_prune(&key, &policy, None).await?.is_empty() {
            self.request(|| self.journal.prune(&key, &policy)).await?;
        }
        Ok(())
    }

    async fn inbox(&self) -> Vec<Record> {
        let entries = self.journal.read(&session(), &BranchId::inbox(), Seq(1), 100).await.unwrap();
        let records = entries.into_iter().map(|entry| match entry {
            Entry::Batch(batch) => batch.records,
            Entry::Damaged(damage) => panic!("{damage:?}"),
        });
        records.flatten().collect()
    }

    async fn seen(&self) -> Seen {
        let info = self.journal.open(&session()).await.unwrap();
        let mut states = BTreeMap::new();
        for branch in info.branches.iter().filter(|branch| !branch.branch.is_inbox()) {
            let position = Position::new(branch.branch.clone(), branch.head.seq);
            let restored = self.journal.load(&session(), Some(&position)).await.unwrap();
            assert_eq!(restored.head, branch.head);
            assert_eq!(branch.status, restored.state.status(), "{}", branch.branch);
            states.insert(branch.branch.clone(), (branch.head.seq, restored.state));
        }
        let report = self.journal.verify(&session(), &BTreeMap::new()).await.unwrap();
        assert!(report.is_sound(), "{report:?}");
        let checkpoints = self.journal.checkpoints(&session(), None, None, 100).await.unwrap();
        Seen {
            states,
            bases: info
                .branches
                .iter()
                .map(|branch| (branch.branch.clone(), branch.base.map(|base| base.seq)))
                .collect(),
            status: info.status(),
            title: info.header.title.clone(),
            inbox: self.inbox().await,
            stored_records: report.records,
            checkpoints: checkpoints.iter().map(|found| found.checkpoint.id.to_string()).collect(),
        }
    }

    /// What was acknowledged is there; what was not is there whole or not at all.
    async fn check_after_death(&self, journal: &Journal) {
        let info = match journal.open(&session()).await {
            Ok(info) => info,
            Err(error) => return assert!(!self.acknowledged.created, "{error:?}"),
        };
        assert!(info.branch(&side()).is_ok() || !self.acknowledged.forked);
        assert!(info.header.title.is_some() || !self.acknowledged.described);
        let sent = info.branch(&BranchId::inbox()).unwrap().head.seq.0;
        assert!(sent > 0 || !self.acknowledged.sent);
        for (branch, line) in &self.lines {
            let Ok(found) = info.branch(branch) else { continue };
            let whole = line.whole_batches(found.head);
            let range = line.acknowledged..=line.committed;
            assert!(range.contains(&whole), "{branch}: {whole} batches are there, not {range:?}");
            let position = Position::new(branch.clone(), found.head.seq);
            let state = journal.load(&session(), Some(&position)).await.unwrap().state;
            assert_eq!(state, self.state_after(line, whole), "{branch}");
            // A fork does not inherit the status; its second batch begins a run.
            assert!(whole < 2 || found.status == state.status(), "{branch} is {}", found.status);
        }
        let report = journal.verify(&session(), &BTreeMap::new()).await.unwrap();
        assert!(report.is_sound(), "{report:?}");
    }

    /// The state after so many batches of a branch.
    fn state_after(&self, line: &Line, count: usize) -> State {
        let inherited = self.lines[&BranchId::main()].batches.iter().flatten().take(line.start as usize);
        let mut state = State::default();
        for record in inherited.chain(line.batches[..count].iter().flatten()) {
            state.apply(record).unwrap();
        }
        state
    }
}

impl Line {
    fn new(start: u64, batches: Vec<Vec<Record>>) -> Self {
        Self { start, batches, acknowledged: 0, committed: 0 }
    }

    /// How many batches lead to a head. No head is inside of one, and none is behind the last.
    fn whole_batches(&self, head: Head) -> usize {
        let lengths = self.batches.iter().map(|batch| batch.len() as u64);
        let mut ends = std::iter::once(self.start).chain(lengths.scan(self.start, |seq, length| {
            *seq += length;
            Some(*seq)
        }));
        ends.position(|end| end == head.seq.0).expect("a branch ends where a batch does")
    }
}

/// A harness over a new fixture, and a journal that breaks by the plan.
async fn broken<F: Fixture + Default>() -> (Harness, Journal, Arc<FaultPlan>) {
    let harness = Harness::new(F::default(), CodecKind::Default);
    let plan = Arc::<FaultPlan>::default();
    let journal = harness.journal_over(Arc::new(FaultyStore::new(harness.store().await, plan.clone())));
    (harness, journal, plan)
}

const PATIENT: Patience = Patience { requests: 3, writes: 3 };
const STUBBORN: Patience = Patience { requests: 3, writes: 1 };
const MORTAL: Patience = Patience { requests: 1, writes: 1 };

async fn unbroken<F: Fixture + Default>() -> Seen {
    let (_harness, journal, _plan) = broken::<F>().await;
    let mut scenario = Scenario::new(journal, MORTAL);
    scenario.run().await.unwrap();
    let seen = scenario.seen().await;
    assert!(seen.bases[&BranchId::main()].is_some() && seen.bases[&side()].is_some(), "{seen:?}");
    assert_eq!((seen.inbox.len(), seen.states.len()), (3, 2), "{:?}", seen.inbox);
    seen
}

/// For every call and every fault: it fails once, the caller tries again, nothing is different.
async fn one_fault<F: Fixture + Default>(patience: Patience, faults: &[Fault]) {
    let expected = unbroken::<F>().await;
    for fault in faults.iter().copied() {
        for call in 0.. {
            let (_harness, journal, plan) = broken::<F>().await;
            plan.fail_once_at(call, fault);
            let mut scenario = Scenario::new(journal, patience);
            let result = scenario.run().await;
            assert!(result.is_ok(), "{fault:?} at call {call}: {result:?}");
            assert_eq!(scenario.seen().await, expected, "{fault:?} at call {call}");
            // How many calls there are depends on how many batches happen to be joined.
            if plan.calls() <= call {
                assert!(call > 20, "the scenario made {call} calls");
                break;
            }
        }
    }
}

/// For every call: nothing works from there on. Then another process looks, and finishes.
async fn death<F: Fixture + Default>() {
    let expected = unbroken::<F>().await;
    for fault in [Fault::Unreachable, Fault::ReplyLost] {
        for call in 0.. {
            let (harness, journal, plan) = broken::<F>().await;
            plan.fail_from(call, fault);
            let mut scenario = Scenario::new(journal, MORTAL);
            if scenario.run().await.is_ok() {
                assert!(plan.calls() <= call, "the scenario did not notice that call {call} failed");
                break;
            }
            scenario.journal = harness.journal().await;
            let journal = harness.journal().await;
            scenario.check_after_death(&journal).await;
            harness.clock.advance(TTL);
            let mut second = Scenario::new(journal, MORTAL);
            second.run().await.unwrap();
            assert_eq!(second.seen().await, expected, "{fault:?} from call {call}");
        }
    }
}

macro_rules! faults {
    ($($store:ident $fixture:ty),*) => {
        $(mod $store {
            use super::*;

            #[tokio::test]
            async fn one_fault_and_the_writer_tries_again() {
                one_fault::<$fixture>(PATIENT, &[Fault::Full, Fault::Unreachable, Fault::ReplyLost]).await;
            }

            #[tokio::test]
            async fn one_fault_and_a_new_writer_goes_on() {
                // A store that cannot be reached does to a writer what a full one does.
                one_fault::<$fixture>(STUBBORN, &[Fault::Full, Fault::ReplyLost]).await;
            }

            #[tokio::test]
            async fn death_at_every_call() {
                death::<$fixture>().await;
            }
        })*
    };
}

faults!(memory Memory, files Files, sqlite Sqlite);
