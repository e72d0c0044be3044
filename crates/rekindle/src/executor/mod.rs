//! Executors: what drives a session. Each is a small state machine on the driver; where it
//! stands is in the state, so the same code starts, resumes and takes over.

pub(crate) mod agent;
pub(crate) mod call;
pub(crate) mod child;
pub(crate) mod crew;
mod descriptor;
pub(crate) mod duration;
pub(crate) mod faults;
pub(crate) mod flow;
pub(crate) mod graph;
pub(crate) mod nesting;
pub(crate) mod plan;
pub(crate) mod reference;
#[doc(hidden)]
pub mod stored;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use rekindle_core::{Error, Journal, Json, Record, Result, State};

pub(crate) use self::descriptor::Descriptors;
pub use self::descriptor::{Descriptor, Settled, View};
pub use self::faults::{SpecFault, SpecFaults};
pub use crate::driver::Driver;
pub use crate::driver::{
    Attempt, Effect, End, Fingerprint, Inbox, NewCheckpoint, Performed, Recorded, Tried, WaitPurpose,
};
use crate::driver::{CheckpointConfig, RunOptions};
use crate::message::Message;

/// Drives sessions.
///
/// # Contract
/// * [`Executor::run`] goes on from wherever the state says it is, and keeps nothing it needs
///   later outside the state: its process may end at any instant.
/// * Everything that reaches outside goes through [`Driver::perform`].
/// * It asks [`Driver::stop_requested`] between its steps, and comes back with what that says.
#[async_trait]
pub trait Executor: fmt::Debug + Send + Sync + 'static {
    /// Describes its sessions from their state alone: for operations and front ends, which have no executor at hand.
    /// An engine knows the descriptors of the executors it has run and those it was given
    /// ([`Engine::with_executor`](crate::Engine::with_executor)).
    fn descriptor(&self) -> Arc<dyn Descriptor>;

    /// The parts that a run depends on. A resume compares them with those on record.
    fn fingerprint(&self) -> Fingerprint;

    /// Runs until the turn ends, the run waits, or it is to stop.
    async fn run(&self, driver: &Driver, input: Input) -> Result<End>;

    /// Fails if a run cannot begin with `input`, with `set` among the keys of its memory. Nothing was recorded yet.
    fn check_input(&self, input: &Input, set: &[&str]) -> Result<()> {
        let _ = set;
        check_kind(&*self.descriptor(), input)
    }

    /// Fails if a run cannot go on from `state`, with `set` among the keys of its memory: the error names what is
    /// missing. Nothing was recorded yet.
    fn check(&self, state: &State, set: &[&str]) -> Result<()> {
        let _ = (state, set);
        Ok(())
    }

    /// Returns true if new input gives up a turn that failed. Otherwise that must be resumed or cancelled first.
    fn gives_up_failed(&self) -> bool {
        false
    }

    /// The keys of the memory that it reads by name: a secret that was given under such a name is put there.
    fn reads(&self) -> Vec<String> {
        Vec::new()
    }

    /// The records that close a turn that was given up and clear what a finished one left, before a new one begins.
    fn closing(&self, state: &State, journal: &Journal) -> Result<Vec<Record>> {
        self.descriptor().closing(state, journal, "the turn was given up before the call ended")
    }

    /// The options of a run, changed as `checkpoints` (of the run or the engine) ask for.
    fn configured(&self, options: RunOptions, checkpoints: Option<CheckpointConfig>) -> RunOptions {
        let _ = checkpoints;
        options
    }
}

/// Input of a run.
#[derive(Clone, Debug)]
pub enum Input {
    /// A new turn begins with these messages; without any, with one that is queued.
    Messages(Vec<Message>),
    /// A new turn begins with a value.
    Value(Json),
    /// An unfinished run goes on.
    Resume,
}

impl Input {
    /// Returns true if it begins a turn by itself.
    pub(crate) fn is_new(&self) -> bool {
        match self {
            Self::Messages(messages) => !messages.is_empty(),
            Self::Value(_) => true,
            Self::Resume => false,
        }
    }
}

/// Fails if messages are given to an executor that reads none.
pub(crate) fn check_kind(of: &dyn Descriptor, input: &Input) -> Result<()> {
    match input {
        Input::Messages(messages) if !messages.is_empty() && !of.reads_messages() => {
            let message = format!("a {} reads no messages", of.kind());
            Err(Error::invalid(message).hint("give it its input as a value"))
        }
        _ => Ok(()),
    }
}

/// The error of an input that the executor called `name` cannot begin with.
pub(crate) fn unfit(kind: &str, name: &str, error: Error) -> Error {
    Error::invalid(format!("the input does not fit the {kind} `{name}`")).because(error)
}

/// The descriptors of the executors of this crate.
pub(crate) fn built_in() -> Descriptors {
    let all: [Arc<dyn Descriptor>; 4] = [
        Arc::new(agent::AgentDescriptor),
        Arc::new(flow::FlowDescriptor),
        Arc::new(graph::GraphDescriptor),
        Arc::new(plan::PlanDescriptor),
    ];
    Descriptors::new(all)
}
