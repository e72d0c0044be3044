//! A differential test: random requests about leases and appends go to a store, and its answer and
//! the session afterwards must be exactly what the shared rules (`LeaseRequest::decide`,
//! `Append::decide`) make of the session the store reported just before.
//!
//! The [model test](crate::model) compares whole histories with a model that shares no rule with the
//! stores. This one compares statements and scripts that repeat a shared rule with that rule, in every
//! field, and for requests that are wrong in several ways at once.

// A test is an assertion from its first line to its last.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use rekindle_core::record::{RunEnded, RunOutcome, RunStarted, WaitKind, WaitOpened};
use rekindle_core::{
    Append, Appended, BranchId, BranchInfo, Condition, Decided, Epoch, Error, ErrorKind, Hash, Head, Journal, Lease,
    LeaseAction, LeaseRequest, OwnerId, Position, Record, Removal, Result, RunId, Seq, SessionInfo, Store, Target,
    WaitId,
};

use crate::fixture::{Harness, key};
use crate::history::message;

/// Number of sessions that are made unless `PROPTEST_CASES` says otherwise.
const CASES: u32 = 12;

/// Highest number of requests to each of them.
const REQUESTS: usize = 80;

/// One request: what it is, and what the rest of it is chosen by.
#[derive(Clone, Debug)]
pub struct Choice {
    request: u8,
    branch: u8,
    who: u8,
    right: u8,
    other: u8,
}

fn choice() -> impl Strategy<Value = Choice> {
    let all = (any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>());
    all.prop_map(|(request, branch, who, right, other)| Choice { request, branch, who, right, other })
}

/// Runs random requests over a new harness for each case. For
/// [`differential_test!`](crate::differential_test!).
///
/// # Panics
///
/// If a store's answer is not that of the shared rules: with the request, the session it was about,
/// and the seed that leads there again.
pub fn check(harness: impl Fn() -> Harness) {
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => crate::model::random_seed(),
    };
    config.rng_seed = RngSeed::Fixed(seed);
    let result = TestRunner::new(config).run(&vec(choice(), 1..=REQUESTS), |choices| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(run(&harness(), &choices));
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}\nrun it again with PROPTEST_RNG_SEED={seed}");
    }
}

/// One test that compares a store with the shared rules. The second argument makes a new, empty
/// [`Fixture`](crate::Fixture) each time it is called.
#[macro_export]
macro_rules! differential_test {
    ($name:ident, $fixture:expr) => {
        #[test]
        fn $name() {
            $crate::differential::check(|| $crate::Harness::new(($fixture)(), $crate::CodecKind::Default));
        }
    };
}

/// Gives the requests to the store, and panics where its answer is not that of the shared rules.
pub async fn run(harness: &Harness, choices: &[Choice]) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut subject = Subject { harness, journal, appended: BTreeMap::new(), sent: Vec::new(), texts: 0 };
    for choice in choices {
        subject.step(choice).await;
    }
}

struct Subject<'a> {
    harness: &'a Harness,
    journal: Journal,
    /// The hash of each frame on record, by its branch and its last record.
    appended: BTreeMap<(BranchId, Seq), Hash>,
    /// Every append that was tried.
    sent: Vec<Append>,
    texts: usize,
}

impl Subject<'_> {
    async fn step(&mut self, choice: &Choice) {
        let info = self.open().await;
        match choice.request % 16 {
            0 => self.harness.clock.advance(Duration::from_secs([1, 9, 31][usize::from(choice.who % 3)])),
            1 if choice.other.is_multiple_of(4) => self.remove(choice).await,
            1 => self.fork(&info, choice).await,
            2..8 => self.lease(info, choice).await,
            8 => {
                let Some(append) = pick(&self.sent, choice.who).cloned() else { return };
                self.append(info, append).await;
            }
            _ => {
                let append = self.new_append(&info, choice);
                self.append(info, append).await;
            }
        }
    }

    async fn open(&self) -> SessionInfo {
        self.journal.store().open(&key("a")).await.unwrap()
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.journal.store()
    }

    async fn fork(&self, info: &SessionInfo, choice: &Choice) {
        let lines: Vec<&BranchInfo> = info.branches.iter().filter(|branch| !branch.branch.is_inbox()).collect();
        let from = pick(&lines, choice.branch).unwrap();
        let seq = from.head.seq.0.saturating_sub(u64::from(choice.right % 2)).max(from.first_own().0 - 1);
        let name = BranchId::new(format!("side-{}", choice.who % 2)).unwrap();
        let at = Position::new(from.branch.clone(), Seq(seq));
        // One of that name may be there; what forks do is not compared here.
        let _ = self.journal.fork(&key("a"), &at, name).await;
    }

    /// Removes a branch, if nothing stands against it.
    async fn remove(&mut self, choice: &Choice) {
        let branch = BranchId::new(format!("side-{}", choice.who % 2)).unwrap();
        let removal = Removal::Branch { session: key("a"), branch: branch.clone() };
        if self.store().remove(&removal).await.is_ok() {
            self.appended.retain(|(of, _), _| *of != branch);
        }
    }

    async fn lease(&self, mut info: SessionInfo, choice: &Choice) {
        let request = lease_request(&info, choice);
        let before = info.clone();
        let expected = request.decide(&mut info, before.observed_at);
        let answer = self.store().lease(&request).await;
        let about = About { request: &request, before: &before };
        match (&answer, &expected) {
            // Of several owners any may be named.
            (Err(refused), Err(rules)) if is_running(rules) => assert_names_an_owner(&about, refused),
            _ => agree(&about, answer.map(unbound), expected.map(unbound)),
        }
        self.compare(&about, info).await;
    }

    async fn append(&mut self, mut info: SessionInfo, append: Append) {
        let before = info.clone();
        let expected = self.decided(&mut info, &append);
        let answer = self.store().append(&append).await;
        let about = About { request: &append, before: &before };
        agree(&about, answer, expected);
        self.compare(&about, info).await;
        self.sent.push(append);
    }

    /// Applies the shared rules to an append, with the session changed to match.
    fn decided(&mut self, info: &mut SessionInfo, append: &Append) -> Result<Appended> {
        append.check()?;
        let other = append.other(&info.branches).cloned();
        let now = info.observed_at;
        let Some(branch) = info.branches.iter_mut().find(|info| info.branch == append.branch) else {
            return Err(Error::not_found(format!("there is no branch `{}`", append.branch)));
        };
        let stored = |seq| Ok(self.appended.get(&(append.branch.clone(), seq)).copied());
        if let Decided::Repeated(appended) = append.decide(branch, other.as_ref(), now, stored)? {
            return Ok(appended);
        }
        for frame in &append.frames {
            self.appended.insert((append.branch.clone(), frame.last), frame.hash);
        }
        (branch.head, branch.updated_at) = (append.head(), now);
        branch.last_wait = append.last_wait().unwrap_or(branch.last_wait);
        branch.status = append.status.unwrap_or(branch.status);
        if let (Some(lease), Some(ttl)) = (&mut branch.lease, append.renew.filter(|_| append.fence.is_some())) {
            lease.expires_at = now.plus(ttl);
        }
        Ok(Appended { head: append.head() })
    }

    async fn compare(&self, about: &dyn fmt::Debug, mut expected: SessionInfo) {
        let mut found = self.open().await;
        for info in [&mut found, &mut expected] {
            info.branches.sort_by(|a, b| a.branch.cmp(&b.branch));
        }
        let branches = found.branches.iter().zip(&expected.branches);
        for (found, expected) in branches {
            assert_eq!(found, expected, "the branch (left) is not as the rules say (right) after {about:?}");
        }
        assert_eq!(found, expected, "the session (left) is not as the rules say (right) after {about:?}");
    }

    /// An append that is right in every respect, or wrong in some.
    fn new_append(&mut self, info: &SessionInfo, choice: &Choice) -> Append {
        let nowhere = BranchId::new("nowhere").unwrap();
        let branch = pick(&info.branches, choice.branch).unwrap();
        let name = if choice.right >= 250 { &nowhere } else { &branch.branch };
        let mut target = Target::new(key("a"), name.clone(), wrong_head(branch.head, choice.right));
        let live = branch.live_lease(info.observed_at).is_some();
        let inbox = branch.branch.is_inbox();
        // Mostly as the lease demands; now and then under the epoch before, or without one.
        target.fence = match choice.who % 8 {
            0 => Some(Epoch(branch.epoch.0.saturating_sub(1))),
            1 if !inbox => (!live).then_some(branch.epoch),
            _ => live.then_some(branch.epoch),
        };
        target.renew = choice.other.is_multiple_of(3).then_some(TTL);
        let mut append = self.prepared(&target, choice.who / 8);
        if choice.who / 8 % 4 == 3 {
            let more = Target { expected: append.head(), ..target };
            let more = self.prepared(&more, choice.other / 8);
            append.status = more.status.or(append.status);
            append.frames.extend(more.frames);
        }
        append.condition = condition(info, choice.other);
        append
    }

    fn prepared(&mut self, target: &Target, what: u8) -> Append {
        self.texts += 1;
        let run = || RunId::new("run").unwrap();
        let wait = WaitId::new(format!("wait_{}", self.texts)).unwrap();
        let text = message(&format!("text {}", self.texts));
        let records: Vec<Record> = match what % 5 {
            0 => vec![WaitOpened::new(wait, WaitKind::Approval).into(), text],
            1 => vec![RunStarted::new(run(), "agent").into()],
            2 => vec![text, RunEnded::new(run(), RunOutcome::Succeeded).into()],
            _ => vec![text],
        };
        self.journal.prepare(target, &records).unwrap()
    }
}

const TTL: Duration = Duration::from_secs(10);

fn lease_request(info: &SessionInfo, choice: &Choice) -> LeaseRequest {
    let owner = OwnerId::new(format!("owner-{}", choice.who % 3)).unwrap();
    let branch = pick(&info.branches, choice.branch).unwrap();
    // An epoch and an owner, mostly those of the lease.
    let epoch = Epoch((branch.epoch.0 + 1).saturating_sub([1, 1, 1, 0, 2][usize::from(choice.right % 5)]));
    let holder = branch.lease.as_ref().map_or(&owner, |lease| &lease.owner);
    let named = if choice.right.is_multiple_of(7) { &owner } else { holder };
    let action = match choice.request % 3 {
        0 => LeaseAction::Acquire { owner, ttl: TTL, whole_session: choice.other.is_multiple_of(2) },
        1 => LeaseAction::Renew { epoch, ttl: TTL * 2 },
        _ => LeaseAction::Release { owner: named.clone(), epoch },
    };
    let nowhere = BranchId::new("nowhere").unwrap();
    let branch = if choice.other > 250 { nowhere } else { branch.branch.clone() };
    LeaseRequest { session: key("a"), branch, action }
}

/// A condition of any kind on any branch, one that is not there and the one appended to among them;
/// more often right than wrong.
fn condition(info: &SessionInfo, chosen: u8) -> Option<Condition> {
    let branch = pick(&info.branches, chosen / 8)?;
    let name = branch.branch.clone();
    match chosen % 8 {
        0 | 1 => Some(Condition::head(name, branch.head)),
        2 => Some(Condition::head(name, wrong_head(branch.head, chosen))),
        3 | 4 => Some(Condition::last_wait(name, branch.last_wait)),
        5 if chosen > 128 => Some(Condition::last_wait(name, branch.last_wait.next())),
        5 => Some(Condition::last_wait(BranchId::new("nowhere").ok()?, Seq::ZERO)),
        _ => None,
    }
}

/// The head, or now and then one before it, or one with another hash.
fn wrong_head(head: Head, chosen: u8) -> Head {
    match chosen % 16 {
        2 => Head { seq: head.seq.previous(), ..head },
        10 => Head { hash: Hash::of(b"never there"), ..head },
        _ => head,
    }
}

fn pick<T>(from: &[T], chosen: u8) -> Option<&T> {
    from.get(usize::from(chosen).checked_rem(from.len())?)
}

/// The lease without what binds it to a machine, which the rules know nothing of.
fn unbound(mut lease: Lease) -> Lease {
    lease.info.boot = None;
    lease
}

fn is_running(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::AlreadyRunning { .. })
}

/// Panics unless the error names a live lease of the session, in every field.
fn assert_names_an_owner(about: &About<'_, LeaseRequest>, refused: &Error) {
    let ErrorKind::AlreadyRunning { owner, branch, epoch, until } = refused.kind() else {
        panic!("{refused:?} is not what the shared rules say to {about:?}");
    };
    let LeaseAction::Acquire { owner: asks, whole_session, .. } = &about.request.action else {
        panic!("{refused:?} to {about:?}");
    };
    let held = about.before.branches.iter().any(|info| {
        let counts = *whole_session || info.branch == about.request.branch;
        let lease = info.live_lease(about.before.observed_at).filter(|lease| counts && lease.owner != *asks);
        lease.is_some_and(|lease| {
            (&info.branch, &lease.owner, lease.epoch, lease.expires_at) == (branch, owner, *epoch, *until)
        })
    });
    assert!(held, "{refused:?} names nobody who holds a lease in {about:?}");
}

/// Subject of a difference.
#[derive(Debug)]
struct About<'a, R> {
    request: &'a R,
    before: &'a SessionInfo,
}

/// Panics unless the store answered as the rules do, with an error of the same kind and details.
fn agree<T: fmt::Debug + PartialEq>(about: &dyn fmt::Debug, store: Result<T>, rules: Result<T>) {
    let kind = |result: Result<T>| result.map_err(|error| error.kind().clone());
    let (store, rules): (Result<T, ErrorKind>, _) = (kind(store), kind(rules));
    assert_eq!(store, rules, "the store's answer (left) is not that of the shared rules (right) to {about:?}");
}
