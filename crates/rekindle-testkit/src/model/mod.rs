//! A model-based test: random commands go to a store and to a plain model of the contract, and
//! both must say the same. Every command may be refused; being refused for the right reason is
//! part of the contract too.
//!
//! The model (`reference.rs`) is written from the contract alone and shares no rule with the
//! stores. What it cannot foretell, such as what pruning keeps, it checks and takes over.

// A test is an assertion from its first line to its last.
#![allow(clippy::unwrap_used)]

mod compare;
mod driver;
mod reference;
mod session;

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use rekindle_core::record::RunOutcome;

use crate::fixture::Harness;
use driver::Driver;

/// How many cases are run unless `PROPTEST_CASES` says otherwise.
const CASES: u32 = 48;

/// After so many commands everything is compared.
const COMPARED_EVERY: usize = 12;

/// Stands for the inbox.
const INBOX_INDEX: BranchIndex = 4;
/// Stands for a branch that may not be there.
const ABSENT_INDEX: BranchIndex = 5;

/// One of a few sessions.
pub type SessionIndex = u8;
/// One of the branches that are there, or the inbox, or one that may not be there.
pub type BranchIndex = u8;
/// One of a few names for a branch; the highest are `main` and the inbox.
pub type NameIndex = u8;
/// One of a few owners.
pub type OwnerIndex = u8;

/// What is done to the store.
#[derive(Clone, Debug)]
pub enum Command {
    /// Creates a session, whether or not it is there.
    Create(SessionIndex),
    /// Asks for a lease, of one branch or of the session.
    Acquire {
        /// Who asks.
        owner: OwnerIndex,
        /// For which session.
        session: SessionIndex,
        /// For which branch.
        branch: BranchIndex,
        /// Whether no other branch may be leased.
        whole_session: bool,
    },
    /// Renews the lease an owner got last, if anybody ever got one.
    Renew(OwnerIndex),
    /// Releases the lease an owner got last.
    Release(OwnerIndex),
    /// Lets time pass.
    Advance(u64),
    /// Appends under the lease an owner got last, where it believes the branch to end.
    Append {
        /// Who appends.
        owner: OwnerIndex,
        /// What.
        content: Vec<Content>,
        /// Whether the lease is renewed with it.
        renew: bool,
    },
    /// Appends without a lease, where the branch ends.
    AppendUnleased(SessionIndex, BranchIndex, Vec<Content>),
    /// Appends without a lease behind something that was never there, so many records back.
    AppendWrongHead(SessionIndex, BranchIndex, u64),
    /// Appends something else where an earlier append went, as a rival writer would.
    AppendRival(usize, Vec<Content>),
    /// Sends an earlier append again, as it was.
    Repeat(usize),
    /// Starts a branch at a per cent of another one's length; over 100 is behind its end.
    Fork(SessionIndex, BranchIndex, u64, NameIndex),
    /// Sends a message to the inbox.
    Send(SessionIndex),
    /// Gives a session a new title.
    Describe(SessionIndex),
    /// Prunes a session.
    Prune(SessionIndex, Keep),
    /// Removes a branch.
    RemoveBranch(SessionIndex, BranchIndex),
    /// Removes a session.
    DeleteSession(SessionIndex),
    /// Loads the state at a per cent of a branch's length.
    Look(SessionIndex, BranchIndex, u64),
    /// Drops all handles and opens the store again. Owners keep what they know.
    Reopen,
    /// Goes on with another handle that was open all the time.
    SwitchHandle,
    /// Exports a session and imports it under a name.
    Transfer(SessionIndex, SessionIndex),
}

/// One record of an append.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// A message of its own.
    Message,
    /// A checkpoint of its own.
    Checkpoint,
    /// A run begins.
    Started,
    /// The run waits.
    Waits,
    /// The run ends.
    Ended(RunOutcome),
}

/// What pruning keeps.
#[derive(Clone, Copy, Debug)]
pub enum Keep {
    /// What is protected.
    Protected,
    /// The newest few.
    Last(usize),
    /// Everything.
    All,
}

/// Sequences of commands.
pub fn commands() -> impl Strategy<Value = Vec<Command>> {
    vec(command(), 1..90).prop_map(|mut commands| {
        commands.insert(0, Command::Create(0));
        commands
    })
}

fn any_session() -> impl Strategy<Value = SessionIndex> {
    prop_oneof![9 => Just(0), 3 => Just(1), 1 => Just(2)]
}

fn any_branch() -> impl Strategy<Value = BranchIndex> {
    prop_oneof![14 => Just(0), 14 => 1..4u8, 1 => Just(INBOX_INDEX), 1 => Just(ABSENT_INDEX)]
}

fn any_name() -> impl Strategy<Value = NameIndex> {
    prop_oneof![12 => 0..3u8, 1 => 3..5u8]
}

fn content() -> impl Strategy<Value = Vec<Content>> {
    let outcomes =
        [RunOutcome::Idle, RunOutcome::Succeeded, RunOutcome::Failed, RunOutcome::Paused, RunOutcome::Waiting];
    let one = prop_oneof![
        6 => Just(Content::Message),
        4 => Just(Content::Checkpoint),
        1 => Just(Content::Started),
        1 => Just(Content::Waits),
        1 => proptest::sample::select(outcomes.to_vec()).prop_map(Content::Ended),
    ];
    vec(one, 1..4)
}

fn command() -> impl Strategy<Value = Command> {
    let owner = || 0..3u8;
    let acquire = (owner(), any_session(), any_branch(), any::<bool>())
        .prop_map(|(owner, session, branch, whole_session)| Command::Acquire { owner, session, branch, whole_session });
    let append = (owner(), content(), any::<bool>()).prop_map(|(owner, content, renew)| Command::Append {
        owner,
        content,
        renew,
    });
    let keep = prop_oneof![2 => Just(Keep::Protected), 2 => (1..4usize).prop_map(Keep::Last), 1 => Just(Keep::All)];
    let fork = (any_session(), any_branch(), 0..110u64, any_name());
    prop_oneof![
        3 => any_session().prop_map(Command::Create),
        6 => acquire,
        2 => owner().prop_map(Command::Renew),
        4 => owner().prop_map(Command::Release),
        3 => proptest::sample::select(vec![1, 29, 31]).prop_map(Command::Advance),
        14 => append,
        12 => (any_session(), any_branch(), content()).prop_map(|(s, b, content)| Command::AppendUnleased(s, b, content)),
        2 => (any_session(), any_branch(), 0..3u64).prop_map(|(s, b, back)| Command::AppendWrongHead(s, b, back)),
        2 => (0..6usize, content()).prop_map(|(back, content)| Command::AppendRival(back, content)),
        4 => (0..6usize).prop_map(Command::Repeat),
        7 => fork.prop_map(|(session, from, at, branch)| Command::Fork(session, from, at, branch)),
        2 => any_session().prop_map(Command::Send),
        1 => any_session().prop_map(Command::Describe),
        4 => (any_session(), keep).prop_map(|(session, keep)| Command::Prune(session, keep)),
        2 => (any_session(), any_branch()).prop_map(|(session, branch)| Command::RemoveBranch(session, branch)),
        1 => any_session().prop_map(Command::DeleteSession),
        2 => (any_session(), any_branch(), 0..110u64).prop_map(|(session, branch, at)| Command::Look(session, branch, at)),
        2 => Just(Command::Reopen),
        3 => Just(Command::SwitchHandle),
        3 => (any_session(), 0..3u8).prop_map(|(from, to)| Command::Transfer(from, to)),
    ]
}

/// Gives `commands` to the store and to the model, and panics where they differ.
pub async fn run(harness: &Harness, commands: &[Command]) {
    let mut driver = Driver::new(harness).await;
    for (index, command) in commands.iter().enumerate() {
        driver.execute(command).await;
        if (index + 1) % COMPARED_EVERY == 0 {
            driver.compare().await;
        }
    }
    driver.compare().await;
    driver.compare_every_position().await;
}

/// Runs random commands over a new harness for each case. For [`model_test!`](crate::model_test!).
///
/// # Panics
///
/// If the store and the model differ: with the shortest sequence of commands that was found to
/// show it, and with the seed that leads there again.
pub fn check(harness: impl Fn() -> Harness) {
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => random_seed(),
    };
    config.rng_seed = RngSeed::Fixed(seed);
    let result = TestRunner::new(config).run(&commands(), |commands| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(run(&harness(), &commands));
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}\nrun it again with PROPTEST_RNG_SEED={seed}");
    }
}

/// A seed that differs from run to run.
pub(crate) fn random_seed() -> u64 {
    RandomState::new().hash_one("a seed")
}

/// One test that runs random commands over a store. The second argument makes a new, empty
/// [`Fixture`](crate::Fixture) each time it is called; the third, optional, names the codec. See
/// the [example](crate) of the crate.
#[macro_export]
macro_rules! model_test {
    ($name:ident, $fixture:expr) => {
        $crate::model_test!($name, $fixture, Default);
    };
    ($name:ident, $fixture:expr, $codec:ident) => {
        #[test]
        fn $name() {
            $crate::model::check(|| $crate::Harness::new(($fixture)(), $crate::CodecKind::$codec));
        }
    };
}

/// What a command led to: nothing to say, or the name of the kind of error.
type Outcome<T = ()> = Result<T, &'static str>;

fn outcome<T>(result: rekindle_core::Result<T>) -> Outcome<T> {
    result.map_err(|error| error.kind().catalog_entry().name)
}

/// Panics unless the store did what the model says.
fn agree(about: &dyn fmt::Debug, store: Outcome, model: Outcome) {
    assert_eq!(store, model, "the store's answer (left) is not the model's (right) to {about:?}");
}
