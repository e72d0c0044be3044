//! Descriptors: what the driver, operations and front ends know of sessions from their state alone, when no executor
//! is at hand. Each kind of executor registers one; nothing outside its folder knows it by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rekindle_core::record::CheckpointType;
use rekindle_core::{EffectId, Error, Journal, Json, LogName, Record, RegisterKey, Result, State};
use serde::Serialize;

/// Describes the sessions of one kind of executor from their state.
///
/// Two methods are required; the defaults of the others suit an executor that takes one input for each run and reads no
/// messages.
///
/// # Contract
/// * A descriptor depends on nothing but its arguments: the same state gives the same answer in every process.
/// * It answers for every state that was ever written under its kind, by whichever version.
pub trait Descriptor: fmt::Debug + Send + Sync + 'static {
    /// The name under which sessions remember the executor, e.g. `agent`.
    fn kind(&self) -> &str;

    /// Returns true if the last turn was not finished, as far as the state says.
    fn is_mid_turn(&self, state: &State) -> bool;

    /// Returns true if messages of the inbox are input to the executor.
    fn reads_messages(&self) -> bool {
        false
    }

    /// Returns true if a message that was taken over waits in the state for a turn of its own.
    fn has_queued(&self, state: &State) -> bool {
        let _ = state;
        false
    }

    /// The number of queued messages that have had their turn.
    fn queued(&self, state: &State) -> usize {
        let _ = state;
        0
    }

    /// Returns true if a message waits in the state for the next model call.
    fn has_steered(&self, state: &State) -> bool {
        let _ = state;
        false
    }

    /// The records that give up an unfinished turn.
    fn closing(&self, state: &State, journal: &Journal, why: &str) -> Result<Vec<Record>> {
        let _ = (journal, why);
        Ok(state.waits().map(crate::wait::cancelled).collect())
    }

    /// Calls that were decided, have not ended, and may have been begun.
    fn unended_calls(&self, state: &State) -> Result<Vec<EffectId>> {
        let _ = state;
        Ok(Vec::new())
    }

    /// The number of the last turn, if everything that it has not recorded may have been begun.
    fn turn(&self, state: &State) -> Option<u64> {
        let _ = state;
        None
    }

    /// The number of the step the session stands at.
    fn step(&self, state: &State) -> Option<u64> {
        let _ = state;
        None
    }

    /// The type of the checkpoint that marks a run of this kind where it stands.
    fn checkpoint_type(&self) -> CheckpointType {
        CheckpointType::Iteration
    }

    /// The result of a run that has ended, for people and programs.
    fn result(&self, state: &State) -> Result<Option<Json>> {
        let _ = state;
        Ok(None)
    }

    /// Returns true if the value of a run goes to its caller as it is. Otherwise secrets in it are masked.
    fn returns_value(&self) -> bool {
        false
    }

    /// The way the last run came.
    fn view(&self, state: &State) -> Result<View> {
        let _ = state;
        Ok(View::default())
    }

    /// Fails if the executor could not read `value` in a register of its own. Other registers take anything.
    fn check_register(&self, key: &str, value: &Json) -> Result<()> {
        let _ = (key, value);
        Ok(())
    }

    /// Fails if the executor could not read `item` in a log of its own. Other logs take anything.
    fn check_item(&self, log: &LogName, item: &Json) -> Result<()> {
        let _ = (log, item);
        Ok(())
    }

    /// The registers beside the memory that hold a value of one of its keys, which counts more than the memory's own.
    fn overlays(&self, state: &State, key: &str) -> Vec<RegisterKey> {
        let _ = (state, key);
        Vec::new()
    }

    /// The value to record for a call that a person settles: its result, or why it failed.
    fn settled(&self, state: &State, journal: &Journal, effect: &EffectId, how: Settled<'_>) -> Result<Json> {
        let _ = (state, journal, effect);
        match how {
            Ok(value) => Ok(value.clone()),
            Err(_) => Ok(Json::null()),
        }
    }

    /// The record that leaves a step out.
    fn skip_step(&self, state: &State, step: &str) -> Result<Record> {
        let _ = state;
        let message = format!("the session is that of a {}, which has no step `{step}` to leave out", self.kind());
        Err(Error::invalid(message).hint("leave steps out of a plan that failed, waits or is paused"))
    }
}

impl dyn Descriptor + '_ {
    /// The number of a turn that has not ended: everything it has not recorded may have been begun.
    pub(crate) fn open_turn(&self, state: &State) -> Option<u64> {
        self.turn(state).filter(|_| self.is_mid_turn(state))
    }
}

/// The way a run came, for people and programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct View {
    /// The parts that were completed, in order, e.g. the nodes of a graph.
    pub path: Vec<String>,
    /// Results by name.
    pub outputs: BTreeMap<String, Json>,
    /// The number of calls that were made again after a failure.
    pub retries: u64,
    /// The parts that failed at least once.
    pub failed: BTreeSet<String>,
}

impl View {
    /// A view with the parts that were completed, in order.
    pub fn of_path(path: impl IntoIterator<Item = String>) -> Self {
        Self { path: path.into_iter().collect(), ..Self::default() }
    }
}

/// The result of a call that a person settles, or why it failed.
pub type Settled<'a> = std::result::Result<&'a Json, &'a str>;

/// The kinds of executors an engine knows.
pub(crate) struct Descriptors(RwLock<BTreeMap<String, Arc<dyn Descriptor>>>);

impl Descriptors {
    pub(crate) fn new(known: impl IntoIterator<Item = Arc<dyn Descriptor>>) -> Self {
        Self(RwLock::new(known.into_iter().map(|one| (one.kind().to_owned(), one)).collect()))
    }

    /// Adds a kind. One that is there already stays.
    pub(crate) fn learn(&self, descriptor: Arc<dyn Descriptor>) {
        let is_known = self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(descriptor.kind());
        if !is_known {
            let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
            known.entry(descriptor.kind().to_owned()).or_insert(descriptor);
        }
    }

    /// The descriptor of the executor that ran a session; one that knows nothing if there is none.
    pub(crate) fn of(&self, state: &State) -> Arc<dyn Descriptor> {
        let kind = state.run().map(|run| run.started.executor.as_str());
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = kind.and_then(|kind| known.get(kind));
        found.cloned().unwrap_or_else(|| Arc::new(Unknown(kind.unwrap_or_default().to_owned())))
    }

    /// Fails if some kind of executor could not read `value` in a register of its own.
    pub(crate) fn check_register(&self, key: &str, value: &Json) -> Result<()> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.values().try_for_each(|one| one.check_register(key, value))
    }

    /// Fails if some kind of executor could not read `item` in a log of its own.
    pub(crate) fn check_item(&self, log: &LogName, item: &Json) -> Result<()> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.values().try_for_each(|one| one.check_item(log, item))
    }
}

/// The descriptor of sessions that nothing is known of: not run yet, or by a kind nobody registered. What is sent to
/// them is kept for whoever runs them.
#[derive(Debug)]
struct Unknown(String);

impl Descriptor for Unknown {
    fn kind(&self) -> &str {
        &self.0
    }

    fn is_mid_turn(&self, _: &State) -> bool {
        false
    }

    fn reads_messages(&self) -> bool {
        true
    }

    fn closing(&self, _: &State, _: &Journal, _: &str) -> Result<Vec<Record>> {
        Ok(Vec::new())
    }
}
