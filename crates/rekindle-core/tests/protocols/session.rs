//! One session in a store whose every change is decided by the functions that all stores share.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rekindle_core::codec::{Codec, Frame, Place, Stamp};
use rekindle_core::record::LogAppend;
use rekindle_core::{
    Append, Appended, BranchId, BranchInfo, Condition, Decided, Epoch, Head, Json, Lease, LeaseAction, LeaseRequest,
    LogName, Marks, OwnerId, Result, Seq, SessionHeader, SessionId, SessionInfo, SessionKey, Status, Timestamp,
};

/// A process; its owner id is unique to it.
pub type Process = u8;

/// The length of a tick.
pub const TICK: Duration = Duration::from_secs(1);

static KEY: LazyLock<SessionKey> = LazyLock::new(|| SessionId::new("session").unwrap().into());
static MAIN: LazyLock<BranchId> = LazyLock::new(BranchId::main);
static INBOX: LazyLock<BranchId> = LazyLock::new(BranchId::inbox);
static OWNERS: LazyLock<Vec<OwnerId>> =
    LazyLock::new(|| (0..9).map(|n| OwnerId::new(n.to_string()).unwrap()).collect());
/// A frame to fill in: its payload is none of a store's business.
static FRAME: LazyLock<Frame> = LazyLock::new(|| {
    let place = Place { session: &KEY, branch: &MAIN };
    let stamp = Stamp { after: EMPTY, at: Timestamp(0), nonce: [0; 16] };
    let record = LogAppend::new(LogName::new("log").unwrap(), vec![Json::from("x")]);
    Codec::new().encode(place, stamp, &[record.into()]).unwrap()
});

const EMPTY: Head = Head { seq: Seq::ZERO, hash: rekindle_core::Hash([0; 32]) };

/// One of the two branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Branch {
    /// The run's.
    Main,
    /// Everybody's.
    Inbox,
}

impl Branch {
    /// Its name.
    pub fn id(self) -> BranchId {
        match self {
            Self::Main => MAIN.clone(),
            Self::Inbox => INBOX.clone(),
        }
    }
}

/// A point in time, in ticks.
pub fn time(ticks: u64) -> Timestamp {
    Timestamp(0).plus(TICK * u32::try_from(ticks).unwrap())
}

/// The owner id of a process.
pub fn owner(process: Process) -> OwnerId {
    OWNERS[usize::from(process)].clone()
}

/// The process of an owner id.
pub fn process(owner: &OwnerId) -> Process {
    owner.as_str().parse().unwrap()
}

/// The session: what the store knows of it, and one record for each frame.
#[derive(Clone, Debug)]
pub struct Session<R> {
    info: Arc<SessionInfo>,
    /// The time in the store, in ticks.
    pub now: u64,
    /// The records of `main`.
    pub main: Vec<R>,
    /// The records of the inbox.
    pub inbox: Vec<R>,
    heads: [Vec<Head>; 2],
}

impl<R: Copy + Hash + PartialEq> Session<R> {
    /// An empty session.
    pub fn new() -> Self {
        let branch = |branch: &BranchId| BranchInfo {
            branch: branch.clone(),
            parent: None,
            head: EMPTY,
            last_wait: Seq::ZERO,
            base: None,
            status: Status::default(),
            created_at: time(0),
            updated_at: time(0),
            epoch: Epoch(0),
            lease: None,
        };
        let info = SessionInfo {
            header: SessionHeader::new(KEY.clone()),
            created_at: time(0),
            branches: vec![branch(&MAIN), branch(&INBOX)],
            current: MAIN.clone(),
            observed_at: time(0),
            damage: Vec::new(),
        };
        Self { info: Arc::new(info), now: 0, main: Vec::new(), inbox: Vec::new(), heads: Default::default() }
    }

    /// A branch as the store knows it.
    pub fn branch(&self, branch: Branch) -> &BranchInfo {
        &self.info.branches[branch as usize]
    }

    /// The owner and the epoch of the lease, if it is live by the store's clock.
    pub fn live(&self) -> Option<(Process, Epoch)> {
        let lease = self.branch(Branch::Main).live_lease(time(self.now));
        lease.map(|lease| (process(&lease.owner), lease.epoch))
    }

    /// Asks the store for something about the lease of `main`, at a time that is not necessarily the
    /// store's own.
    pub fn lease_at(&mut self, action: LeaseAction, now: u64) -> Result<Lease> {
        let request = LeaseRequest { session: KEY.clone(), branch: MAIN.clone(), action };
        let mut info = SessionInfo::clone(&self.info);
        let lease = request.decide(&mut info, time(now))?;
        self.info = Arc::new(info);
        Ok(lease)
    }

    /// The same by the store's clock.
    pub fn lease(&mut self, action: LeaseAction) -> Result<Lease> {
        self.lease_at(action, self.now)
    }

    /// Carries out an append, as every store does. Its record is in the frame's nonce by name only, so
    /// it comes beside.
    pub fn append(&mut self, append: &Append, branch: Branch, record: R) -> Result<Appended> {
        append.check()?;
        let (branches, heads) = (&self.info.branches, &self.heads[branch as usize]);
        let stored = |seq: Seq| Ok(heads.iter().find(|head| head.seq == seq).map(|head| head.hash));
        let other = append.other(branches);
        if let Decided::Repeated(appended) = append.decide(&branches[branch as usize], other, time(self.now), stored)? {
            return Ok(appended);
        }
        let info = &mut Arc::make_mut(&mut self.info).branches[branch as usize];
        info.head = append.head();
        info.last_wait = append.last_wait().unwrap_or(info.last_wait);
        self.heads[branch as usize].push(append.head());
        match branch {
            Branch::Main => self.main.push(record),
            Branch::Inbox => self.inbox.push(record),
        }
        Ok(Appended { head: append.head() })
    }
}

/// What the session is for somebody who asks it anything: all else follows from this.
impl<R: Hash> Hash for Session<R> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.now, &self.main, &self.inbox).hash(state);
        let main = &self.info.branches[0];
        main.epoch.hash(state);
        main.lease.as_ref().map(|lease| (&lease.owner, lease.epoch, lease.expires_at)).hash(state);
        (&self.heads, main.last_wait).hash(state);
    }
}

impl<R: PartialEq> PartialEq for Session<R> {
    fn eq(&self, other: &Self) -> bool {
        (self.now, &self.info, &self.main, &self.inbox) == (other.now, &other.info, &other.main, &other.inbox)
    }
}

/// An append of one record behind `expected`, without lease or condition. The record and what stands
/// before it make its hash.
pub fn prepare<R: Hash>(branch: Branch, expected: Head, record: &R, marks: Marks) -> Append {
    let mut hasher = DefaultHasher::new();
    (branch, expected, record).hash(&mut hasher);
    let mut frame = FRAME.clone();
    (frame.first, frame.last) = (expected.seq.next(), expected.seq.next());
    (frame.prev, frame.marks) = (expected.hash, marks);
    frame.hash.0[..8].copy_from_slice(&hasher.finish().to_le_bytes());
    Append::new(KEY.clone(), branch.id(), expected, vec![frame])
}

/// A condition that a branch ends where it was seen to end.
pub fn ends_at(branch: Branch, head: Head) -> Condition {
    Condition::head(branch.id(), head)
}

/// A condition that nothing about a wait was appended to a branch since it was seen.
pub fn stands_at(branch: Branch, last_wait: Seq) -> Condition {
    Condition::last_wait(branch.id(), last_wait)
}
