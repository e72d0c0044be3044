//! A session with everything a session can have, and a store that stops at any call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rekindle::core::codec::{Codec, Frame};
use rekindle::core::record::{Checkpoint, RegisterSet, RunEnded, RunStarted, SessionDescribed};
use rekindle::core::retention::{Policy, Rule};
use rekindle::core::{
    BranchInfo, IdSource, OwnerId, ReadFrames, Record, RegisterKey, Seq, Slot, StoreExt as _, Target,
};
use rekindle::{
    BranchId, CheckpointId, Engine, Journal, Json, Position, Result, RunId, RunOutcome, SessionHeader, SessionKey,
    Store,
};
use rekindle_store::{MemoryStore, StoreOptions};
pub use rekindle_testkit::Stop;
use rekindle_testkit::{Call, Hook, Hooked, ManualClock, Stopping};

/// A store that stops at the call with a number, reads among them, and at every call from then on.
pub fn stopping(store: Arc<dyn Store>, at: u64, how: Stop) -> Arc<Hooked<Stopping>> {
    Arc::new(Hooked::new(store, Stopping::at_call(at, how)))
}

pub fn engine(store: Arc<dyn Store>, codec: Codec) -> Engine {
    engine_with(store, codec, ManualClock::default())
}

/// An engine whose clock is that much later.
pub fn engine_at(store: Arc<dyn Store>, later: Duration) -> Engine {
    let clock = ManualClock::default();
    clock.advance(later);
    engine_with(store, Codec::new(), clock)
}

fn engine_with(store: Arc<dyn Store>, codec: Codec, clock: ManualClock) -> Engine {
    static SEED: AtomicU64 = AtomicU64::new(1);
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&SEED.fetch_add(1, Ordering::SeqCst).to_le_bytes());
    Engine::with_journal(Journal::new(store, codec, Arc::new(clock), IdSource::seeded(seed)))
}

/// A memory store whose clock stands still, so that leases never expire by themselves.
pub fn memory() -> Arc<dyn Store> {
    memory_with_clock().0
}

/// A memory store and its clock.
pub fn memory_with_clock() -> (Arc<dyn Store>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    (Arc::new(MemoryStore::new(StoreOptions::new().with_clock(clock.clone()))), clock)
}

pub fn set(name: &str, value: u64) -> Record {
    RegisterSet::new(RegisterKey::new(name).unwrap(), Json::parse(value.to_string()).unwrap()).into()
}

/// Appends one batch to a branch.
pub async fn write(engine: &Engine, session: &SessionKey, branch: &str, records: &[Record]) {
    let branch = BranchId::new(branch).unwrap();
    let head = engine.journal().open(session).await.unwrap().branch(&branch).unwrap().head;
    let target = Target::new(session.clone(), branch, head);
    engine.journal().append(&target, records).await.unwrap();
}

/// A session with a pruned past, two forks (one in the middle of a batch, one with nothing on it),
/// an inbox, a changed title, large values, an ended run, and a current branch that is not `main`.
pub async fn rich(engine: &Engine, id: &str) -> SessionKey {
    let key = engine.key(id).unwrap();
    let journal = engine.journal();
    journal.create(SessionHeader { title: Some("first".into()), ..SessionHeader::new(key.clone()) }).await.unwrap();
    for number in 0..6 {
        let checkpoint = Checkpoint::new(CheckpointId::new(format!("c{number}")).unwrap());
        write(engine, &key, "main", &[set("n", number), set("m", number), checkpoint.into()]).await;
    }
    journal.prune(&key, &Policy::new([Rule::LastN(3)])).await.unwrap();
    let long = Json::parse(format!("\"{}\"", "long ".repeat(2_000))).unwrap();
    for number in 0..8 {
        let large = RegisterSet::new(RegisterKey::new(format!("large{number}")).unwrap(), long.clone());
        write(engine, &key, "main", &[large.into(), set("n", 10 + number)]).await;
    }
    // More than one append takes.
    for number in 0..300 {
        write(engine, &key, "main", &[set("n", number)]).await;
    }
    write(engine, &key, "main", &[set("n", 1), set("m", 1)]).await;
    let fork = async |name: &str, seq: u64| {
        let from = Position::new(BranchId::main(), Seq(seq));
        journal.fork(&key, &from, BranchId::new(name).unwrap()).await.unwrap();
    };
    let end = journal.open(&key).await.unwrap().branch(&BranchId::main()).unwrap().head.seq.0;
    fork("middle", end - 1).await;
    fork("empty", end).await;
    let run = RunId::new("run_1").unwrap();
    let ended = RunEnded::new(run.clone(), RunOutcome::Succeeded);
    write(engine, &key, "middle", &[RunStarted::new(run, "agent").into(), set("n", 99), ended.into()]).await;
    journal.send(&key, &[set("sent", 1)]).await.unwrap();
    let title = SessionDescribed { title: Some("second".into()), ..SessionDescribed::default() };
    journal.describe(&key, title).await.unwrap();
    lead(engine, &key, "middle").await;
    key
}

/// Makes a branch the current one.
pub async fn lead(engine: &Engine, session: &SessionKey, branch: &str) {
    let (owner, branch) = (OwnerId::new("me").unwrap(), BranchId::new(branch).unwrap());
    let store = engine.journal().store();
    let lease = store.acquire(session, &branch, &owner, Duration::from_secs(1)).await.unwrap();
    engine.journal().choose_branch(session, &branch).await.unwrap();
    store.release(&lease).await.unwrap();
}

/// What must be the same in a copy: everything but leases and when branches were made.
#[derive(Debug, PartialEq)]
pub struct Whole {
    header: SessionHeader,
    current: BranchId,
    branches: BTreeMap<BranchId, BranchInfo>,
    frames: BTreeMap<BranchId, (Vec<Frame>, Vec<Frame>)>,
}

pub async fn whole(engine: &Engine, session: &SessionKey) -> Whole {
    let store = engine.journal().store();
    let info = store.open(session).await.unwrap();
    let (mut branches, mut frames) = (BTreeMap::new(), BTreeMap::new());
    for branch in info.branches {
        let read = ReadFrames::all(session.clone(), branch.branch.clone());
        let base = store.read_all(&read.clone().with_base()).await.unwrap();
        let history = store.read_all(&read).await.unwrap();
        let all = |slots: Vec<Slot>| slots.into_iter().map(frame_of).collect::<Vec<_>>();
        frames.insert(branch.branch.clone(), (all(base), all(history)));
        let (created_at, updated_at, epoch) = Default::default();
        branches.insert(branch.branch.clone(), BranchInfo { created_at, updated_at, epoch, lease: None, ..branch });
    }
    Whole { header: info.header, current: info.current, branches, frames }
}

fn frame_of(slot: Slot) -> Frame {
    match slot {
        Slot::Whole(frame) => frame,
        Slot::Damaged(damage) => panic!("{damage:?}"),
    }
}

/// Sends a message to a session just before it is opened for the second time.
struct Busy {
    store: Arc<dyn Store>,
    opened: AtomicU64,
}

/// A store in which somebody sends a message to a session just before it is opened for the second time.
pub fn busy(store: Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(Hooked::new(store.clone(), Busy { store, opened: AtomicU64::new(0) }))
}

#[async_trait]
impl Hook for Busy {
    async fn before(&self, call: Call<'_>) -> Result<()> {
        if let Call::Open(session) = call
            && self.opened.fetch_add(1, Ordering::SeqCst) == 1
        {
            let sender = engine(self.store.clone(), Codec::new());
            sender.journal().send(session, &[set("sent", 7)]).await?;
        }
        Ok(())
    }
}
