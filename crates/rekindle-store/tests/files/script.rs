//! A piece of work on a store, step by step, and what a session looks like after each step. The
//! memory store says what is right.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rekindle_core::codec::{Codec, Frame, Place, Stamp};
use rekindle_core::record::{RegisterSet, SessionDescribed};
use rekindle_core::{
    Append, Base, BranchId, BranchInfo, Clock, Epoch, Error, ErrorKind, Fork, Head, Json, LeaseAction, LeaseRequest,
    NewSession, OwnerId, Position, ReadFrames, Record, RegisterKey, Removal, Result, Seq, SessionHeader, SessionId,
    SessionKey, Slot, Status, Store, StoreExt, Timestamp,
};
use rekindle_store::{MemoryStore, StoreOptions};

/// A clock that stands where it was put.
#[derive(Debug, Default)]
pub struct StillClock(AtomicU64);

impl StillClock {
    pub fn set(&self, seconds: u64) {
        self.0.store(1_700_000_000_000_000 + seconds * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

pub fn key(id: &str) -> SessionKey {
    SessionId::new(id).unwrap().into()
}

pub fn branch(name: &str) -> BranchId {
    BranchId::new(name).unwrap()
}

pub fn header(id: &str) -> SessionHeader {
    let mut header = SessionHeader::new(key(id));
    header.genesis = Codec::new().genesis(&header);
    header
}

/// A frame behind `after` that holds `text`.
pub fn frame(session: &SessionKey, branch: &BranchId, after: Head, text: &str) -> Frame {
    let record: Record = RegisterSet::new(RegisterKey::new("k").unwrap(), Json::from(text)).into();
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&after.seq.0.to_le_bytes());
    let stamp = Stamp { after, at: Timestamp(7), nonce };
    Codec::new().without_compression().encode(Place { session, branch }, stamp, &[record]).unwrap()
}

pub fn head_of(frame: &Frame) -> Head {
    Head { seq: frame.last, hash: frame.hash }
}

#[derive(Clone, Debug)]
pub enum Step {
    Create(NewSession),
    Append(Append),
    Fork(Fork),
    Lease(LeaseRequest),
    Remove(Removal),
}

/// Everything a caller can see of a session, apart from damage.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub header: SessionHeader,
    pub current: BranchId,
    pub branches: Vec<(BranchInfo, Vec<Frame>, Vec<Frame>)>,
}

/// A store under test and the lease its user holds.
pub struct User {
    pub store: Arc<dyn Store>,
    pub epoch: Option<Epoch>,
}

impl User {
    pub fn new(store: impl Store) -> Self {
        Self { store: Arc::new(store), epoch: None }
    }

    pub async fn take(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Create(new) => self.store.create(new).await.map(drop),
            Step::Append(append) => {
                let fence = append.fence.and(self.epoch);
                self.store.append(&Append { fence, ..append.clone() }).await.map(drop)
            }
            Step::Fork(fork) => self.store.fork(fork).await.map(drop),
            Step::Lease(request) => {
                let held = self.epoch.unwrap_or_default();
                let action = match request.action.clone() {
                    LeaseAction::Renew { ttl, .. } => LeaseAction::Renew { epoch: held, ttl },
                    LeaseAction::Release { owner, .. } => LeaseAction::Release { owner, epoch: held },
                    acquire => acquire,
                };
                let lease = self.store.lease(&LeaseRequest { action, ..request.clone() }).await?;
                self.epoch = Some(lease.info.epoch);
                Ok(())
            }
            Step::Remove(removal) => self.store.remove(removal).await.map(drop),
        }
    }

    /// Repeats a step that failed: it may have happened all the same.
    pub async fn retry(&mut self, step: &Step) {
        match self.take(step).await {
            Ok(()) => {}
            Err(error) if was_done(step, &error) => {}
            Err(error) => panic!("the retry of {step:?} failed: {error:?}"),
        }
    }

    pub async fn see(&self, session: &SessionKey) -> Option<Seen> {
        let info = match self.store.open(session).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => return None,
            other => other.unwrap(),
        };
        let mut branches = Vec::new();
        for branch in info.branches {
            let read = ReadFrames::all(session.clone(), branch.branch.clone()).with_limit(3);
            let history = frames(self.store.read_all(&read).await.unwrap());
            let base = frames(self.store.read_all(&read.with_base()).await.unwrap());
            branches.push((branch, history, base));
        }
        Some(Seen { header: info.header, current: info.current, branches })
    }
}

fn was_done(step: &Step, error: &Error) -> bool {
    matches!((step, error.kind()), (Step::Create(_), ErrorKind::AlreadyExists))
}

fn frames(slots: Vec<Slot>) -> Vec<Frame> {
    slots
        .into_iter()
        .map(|slot| match slot {
            Slot::Whole(frame) => frame,
            Slot::Damaged(damage) => panic!("{damage:?}"),
        })
        .collect()
}

impl Seen {
    /// Without what differs when a lease had to be acquired twice.
    pub fn without_epochs(mut self) -> Self {
        for (info, ..) in &mut self.branches {
            info.epoch = Epoch(0);
            if let Some(lease) = &mut info.lease {
                lease.epoch = Epoch(0);
            }
        }
        self
    }
}

/// The steps, and what is seen before the first and after each.
pub struct Script {
    pub session: SessionKey,
    pub clock: Arc<StillClock>,
    pub steps: Vec<Step>,
    pub seen: Vec<Option<Seen>>,
}

impl Script {
    pub fn options(&self) -> StoreOptions {
        StoreOptions::new().with_clock(self.clock.clone())
    }

    /// Everything the contract knows, on several branches and over several segments.
    pub async fn everything() -> Self {
        let mut author = Author::new("crash").await;
        let (main, side, inbox) = (BranchId::main(), branch("side"), BranchId::inbox());
        author.append(&main, &["one"], |_| {}).await;
        author.append(&inbox, &["a message"], |_| {}).await;
        let action = LeaseAction::Acquire { owner: owner(), ttl: Duration::from_secs(3600), whole_session: true };
        author.lease(&main, action).await;
        author.append(&main, &["two", "three", &"four ".repeat(150)], fenced(Some(Status::Running))).await;
        author.append(&main, &["five"], describe("first title")).await;
        author.lease(&main, LeaseAction::Renew { epoch: Epoch(1), ttl: Duration::from_secs(7200) }).await;
        author.append(&main, &[&"six ".repeat(300)], fenced(None)).await;
        author.append(&main, &["seven"], describe("second title")).await;
        author.lease(&main, LeaseAction::Release { owner: owner(), epoch: Epoch(1) }).await;
        author.fork(&side, &main, Seq(4)).await;
        author.append(&side, &["five on the side"], |append| append.status = Some(Status::Waiting)).await;
        author.append(&side, &["six", "seven"], |_| {}).await;
        author.append(&main, &["eight", "nine"], |append| append.describe = Some(title("third title"))).await;
        author.append(&side, &["eight"], |append| append.describe = Some(title("fourth title"))).await;
        author.append(&main, &["ten"], |append| append.describe = Some(title("fifth title"))).await;
        author.fork(&branch("brief"), &side, Seq(6)).await;
        author.append(&branch("brief"), &["seven here"], |_| {}).await;
        author.remove_branch("brief").await;
        author.trim(&side, Seq(7)).await;
        author.append(&side, &["nine"], |_| {}).await;
        author.remove_branch("side").await;
        author.trim(&main, Seq(6)).await;
        author.append(&main, &["eleven"], |_| {}).await;
        author.trim(&main, Seq(11)).await;
        author.append(&main, &["twelve"], |append| append.status = Some(Status::Succeeded)).await;
        author.append(&inbox, &["another message"], |_| {}).await;
        author.step(Step::Remove(Removal::Session { session: author.script.session.clone() })).await;
        author.script
    }
}

fn owner() -> OwnerId {
    OwnerId::new("worker").unwrap()
}

fn title(text: &str) -> SessionDescribed {
    SessionDescribed { title: Some(text.into()), ..SessionDescribed::default() }
}

fn fenced(status: Option<Status>) -> impl FnOnce(&mut Append) {
    move |append| {
        append.fence = Some(Epoch(1));
        append.renew = Some(Duration::from_secs(5000));
        append.status = status;
    }
}

fn describe(text: &'static str) -> impl FnOnce(&mut Append) {
    move |append| {
        append.fence = Some(Epoch(1));
        append.describe = Some(title(text));
        append.sealed = Some(format!("sealed {text}"));
    }
}

/// Writes a script while carrying it out on the memory store.
struct Author {
    script: Script,
    user: User,
}

impl Author {
    async fn new(id: &str) -> Self {
        let clock = Arc::new(StillClock::default());
        clock.set(0);
        let script = Script { session: key(id), clock, steps: Vec::new(), seen: vec![None] };
        let user = User::new(MemoryStore::new(script.options()));
        let mut author = Self { script, user };
        author.step(Step::Create(NewSession::new(header(id)))).await;
        author
    }

    async fn step(&mut self, step: Step) {
        self.script.clock.set(self.script.steps.len() as u64);
        self.user.take(&step).await.unwrap();
        self.script.steps.push(step);
        self.script.seen.push(self.user.see(&self.script.session).await);
    }

    async fn append(&mut self, to: &BranchId, texts: &[&str], change: impl FnOnce(&mut Append)) {
        let session = self.script.session.clone();
        let expected = self.user.store.open(&session).await.unwrap().branch(to).unwrap().head;
        let mut head = expected;
        let mut frames = Vec::new();
        for text in texts {
            let frame = frame(&session, to, head, text);
            head = head_of(&frame);
            frames.push(frame);
        }
        let mut append = Append::new(session, to.clone(), expected, frames);
        change(&mut append);
        self.step(Step::Append(append)).await;
    }

    async fn hash_at(&self, of: &BranchId, seq: Seq) -> Head {
        let seen = self.user.see(&self.script.session).await.unwrap();
        let (_, history, _) = seen.branches.iter().find(|(info, ..)| info.branch == *of).unwrap();
        head_of(history.iter().find(|frame| frame.last == seq).unwrap())
    }

    async fn fork(&mut self, new: &BranchId, from: &BranchId, seq: Seq) {
        let hash = self.hash_at(from, seq).await.hash;
        let from = Position::new(from.clone(), seq);
        self.step(Step::Fork(Fork {
            session: self.script.session.clone(),
            genesis: header(self.script.session.id.as_str()).genesis,
            branch: new.clone(),
            from,
            hash,
            base: None,
        }))
        .await;
    }

    async fn lease(&mut self, of: &BranchId, action: LeaseAction) {
        self.step(Step::Lease(LeaseRequest { session: self.script.session.clone(), branch: of.clone(), action })).await;
    }

    async fn remove_branch(&mut self, name: &str) {
        self.step(Step::Remove(Removal::Branch { session: self.script.session.clone(), branch: branch(name) })).await;
    }

    async fn trim(&mut self, of: &BranchId, seq: Seq) {
        let session = self.script.session.clone();
        let head = self.hash_at(of, seq).await;
        let zero = Head { seq: Seq::ZERO, hash: head.hash };
        let base = Base { head, status: Status::Idle, frames: vec![frame(&session, of, zero, "what came before")] };
        self.step(Step::Remove(Removal::History { session, branch: of.clone(), base, fence: None })).await;
    }
}
