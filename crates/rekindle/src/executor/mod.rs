//! Executors: what drives a session. Each is a small state machine on the driver; where it
//! stands is in the state, so the same code starts, resumes and takes over.

pub mod agent;
pub(crate) mod by_name;
pub(crate) mod call;
pub(crate) mod child;
pub(crate) mod crew;
pub(crate) mod duration;
pub(crate) mod faults;
pub mod flow;
pub mod graph;
pub(crate) mod nesting;
pub mod plan;
pub(crate) mod reference;
pub mod stored;

use std::fmt;

use async_trait::async_trait;
use rekindle_core::{Journal, Record, Result, State};

pub use self::faults::{SpecFault, SpecFaults};
use crate::driver::{Driver, End, Fingerprint};
use crate::message::Message;

/// What drives a session.
///
/// # Contract
/// * [`Executor::run`] goes on from wherever the state says it is, and keeps nothing it needs
///   later outside the state: its process may end at any instant.
/// * Everything that reaches outside goes through [`Driver::perform`].
/// * It asks [`Driver::stop_requested`] between its steps, and comes back with what that says.
#[async_trait]
pub trait Executor: fmt::Debug + Send + Sync + 'static {
    /// The name under which sessions remember it, e.g. `agent`.
    fn kind(&self) -> &str;

    /// What a run depends on.
    fn fingerprint(&self) -> Fingerprint;

    /// Whether the last turn was not finished, as far as the state itself says.
    fn is_mid_turn(&self, state: &State) -> bool;

    /// Whether messages of the inbox are input to it.
    fn reads_messages(&self) -> bool;

    /// Whether new input gives up a turn that failed; otherwise it must be resumed or cancelled
    /// first.
    fn gives_up_failed(&self) -> bool;

    /// Whether a message waits in the state for a turn of its own.
    fn has_queued(&self, state: &State) -> bool;

    /// An error if a run cannot go on from `state`, with `set` among the keys of its memory:
    /// what is missing is named, and nothing was recorded yet.
    fn check(&self, state: &State, set: &[&str]) -> Result<()>;

    /// The keys of the memory that it reads by name: a secret that was given under such a name is put there.
    fn reads(&self) -> Vec<String> {
        Vec::new()
    }

    /// What closes a turn that was given up, and clears what a finished one left, before a new one
    /// begins.
    fn closing(&self, state: &State, journal: &Journal) -> Result<Vec<Record>>;

    /// Runs until the turn ends, the run waits, or it is to stop.
    async fn run(&self, driver: &Driver, input: Input) -> Result<End>;
}

/// What a run begins with.
#[derive(Clone, Debug)]
pub enum Input {
    /// A new turn, with what was said; nothing if a queued message is to be taken.
    NewTurn(Vec<Message>),
    /// An unfinished run goes on.
    Resume,
}
