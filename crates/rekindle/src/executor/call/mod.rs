//! Durable calls of tools: what every executor does with one, from what is on record for it to
//! its outcome. What the outcome looks like is the executor's business: see [`Shape`].

mod entry;
mod job;
pub(crate) mod lost;
mod waiting;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rekindle_core::record::{EffectKind, EffectOutcome, InDoubtPolicy, LogAppend, OutcomeStatus, Usage};
use rekindle_core::{EffectId, Hash, Json, Record, Result, State};
use tokio::sync::Semaphore;

use crate::driver::{Driver, Effect, Known, NewCheckpoint, Recorded};
use crate::memory::{MemoryView, is_redacted};
use crate::message::{ToolCall, ToolResult};
use crate::tool::Approval;

pub(crate) use entry::{Entry, check_name};
pub(crate) use job::{Job, Made};
pub(crate) use lost::DecidedBy;

/// The mark of an outcome that says that the tool came back, whatever became of what it gave back.
const RETURNED: &str = "returned";

/// A call that passed every check.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) entry: Arc<Entry>,
    pub(crate) effect: Effect,
    /// As it is made: middleware or a person may have changed the arguments.
    pub(crate) call: ToolCall,
    /// How long one try may take.
    pub(crate) timeout: Option<Duration>,
    /// Somebody must agree first.
    pub(crate) approval: Option<Approval>,
}

/// What is to be done with one call now.
pub(crate) enum Next {
    /// It ended.
    Settled,
    /// It is made now.
    Make(Box<Ready>),
    /// It waits for somebody.
    Waits(String),
}

/// How a call ended, before it is recorded.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) result: ToolResult,
    /// What is to be remembered with it.
    pub(crate) remember: Vec<(String, Json)>,
    pub(crate) usage: Usage,
    pub(crate) took: Duration,
}

impl Ended {
    pub(crate) fn new(result: ToolResult) -> Self {
        Self { result, remember: Vec::new(), usage: Usage::default(), took: Duration::ZERO }
    }
}

/// What calls look like on record, and what they may see: different for each executor.
#[async_trait]
pub(crate) trait Shape: Send + Sync {
    /// What goes on record when a call ends so.
    async fn record(&self, driver: &Driver, ready: &Ready, ended: Ended) -> Result<Recorded>;

    /// The memory, as calls may see it.
    fn memory(&self) -> MemoryView;

    /// Whether a call that is interrupted is closed on its own; otherwise it stays open, and is made
    /// again or closed with the turn.
    fn closes_interrupted(&self) -> bool;

    /// The node of a graph that makes the calls, if one does.
    fn node(&self) -> Option<String>;

    /// Who decides on the calls.
    fn decided_by(&self) -> DecidedBy;
}

/// The calls of one executor.
pub(crate) struct Caller<'a> {
    pub(crate) driver: &'a Driver,
    shape: Arc<dyn Shape + 'a>,
    /// How many calls run at once.
    parallel: Arc<Semaphore>,
    /// How often a call was in doubt in this run.
    doubts: HashMap<EffectId, u32>,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(driver: &'a Driver, shape: Arc<dyn Shape + 'a>, parallel: usize) -> Self {
        Self { driver, shape, parallel: Arc::new(Semaphore::new(parallel.max(1))), doubts: HashMap::new() }
    }

    /// A call that is made as soon as there is room for it.
    pub(crate) fn job(&self, ready: Ready) -> Job<'a> {
        Job::new(self.driver, Arc::clone(&self.shape), Arc::clone(&self.parallel), ready)
    }

    /// Earlier doubts do not count any more.
    pub(crate) fn forget_doubts(&mut self) {
        self.doubts.clear();
    }

    /// Takes over a call that somebody settled by hand, as if it had been made.
    pub(crate) async fn adopt(&self, ready: &Ready) -> Result<()> {
        let id = &ready.effect.id;
        let Some(outcome) = self.driver.read(|state| state.effect(id).and_then(|known| known.outcome.clone())).await
        else {
            return Ok(());
        };
        let result = match outcome.status {
            OutcomeStatus::Ok => ToolResult::new(&ready.call, outcome.value.unwrap_or_else(Json::null)),
            _ => ToolResult::failed(&ready.call, outcome.error.as_deref().unwrap_or("it did not succeed")),
        };
        let (_, recorded) = self.record(ready, result).await?;
        // Its value is on record as it was given, so what goes into a log stands there for itself.
        let records = recorded.records.into_iter().map(|record| match record {
            Record::LogAppendOutcomes(append) => LogAppend::new(append.log, vec![recorded.value.clone()]).into(),
            other => other,
        });
        self.driver.commit_marked(records.collect(), recorded.checkpoints).await
    }

    /// Makes a call anew in place of one that failed. One that came back has happened, so this one is
    /// in doubt from the start, unless it may be repeated.
    pub(crate) async fn anew(&mut self, ready: Ready, failed: &EffectId) -> Result<Next> {
        let lost = self.is_lost(&ready.effect, Some(failed)).await;
        let (is_new, returned) = self
            .driver
            .read(|state| {
                let outcome = state.effect(failed).and_then(|known| known.outcome.as_ref());
                let returned = outcome.is_some_and(|outcome| outcome.extra.contains_key(RETURNED));
                (state.effect(&ready.effect.id).is_none(), returned)
            })
            .await;
        if is_new && (returned || lost) && ready.effect.policy != InDoubtPolicy::ReplaySafe {
            let came_back = "it came back before, and what it gave back could not be taken";
            let why = if returned { came_back } else { lost::WHY };
            self.driver.commit(lost::in_doubt(self.driver, &ready.effect, lost, why)).await?;
        }
        self.next(ready).await
    }

    /// What is to be done with a call now, by what is on record for it.
    pub(crate) async fn next(&mut self, ready: Ready) -> Result<Next> {
        if let Some(wait) = self.driver.wait_of(&ready.effect.id).await {
            return self.answered(ready, &wait).await;
        }
        let lost = self.is_lost(&ready.effect, None).await;
        match self.driver.known(&ready.effect).await? {
            Known::Settled(_) => Ok(Next::Settled),
            Known::Fresh(_) => Ok(Next::Make(Box::new(ready))),
            Known::NotDone(intent) if !lost => self.make(ready.made_with(intent.arguments)).await,
            Known::InDoubt(intent) | Known::NotDone(intent) => {
                let ready = ready.made_with(intent.arguments);
                self.doubt(&ready, if lost { lost::WHY } else { "its outcome was not recorded" }).await
            }
            Known::New => self.begin(ready).await,
        }
    }

    /// What is to be done with a call of which nothing is on record.
    pub(crate) async fn begin(&mut self, ready: Ready) -> Result<Next> {
        match ready.approval.clone() {
            Some(approval) => self.ask_approval(&ready, &approval).await,
            None => self.make_first(ready).await,
        }
    }

    /// Makes a call, unless its arguments held what is never stored: a tool must not be given the
    /// mark that stands for it.
    pub(super) async fn make(&mut self, ready: Ready) -> Result<Next> {
        if !is_redacted(&ready.call.arguments) {
            return Ok(Next::Make(Box::new(ready)));
        }
        let why = "its arguments held what is never stored, so it cannot be made after a restart";
        self.settle(&ready, ToolResult::failed(&ready.call, why), ready.effect.alongside.clone()).await
    }
}

impl Ready {
    /// A call of a tool, as the tool's options want it made.
    pub(crate) fn new(driver: &Driver, id: EffectId, entry: Arc<Entry>, call: ToolCall, hash: Hash) -> Self {
        let options = entry.tool.options();
        let key = driver.idempotency_key(&id);
        let child = entry.tool.child(driver.session(), &key);
        let effect = Effect {
            id,
            kind: if child.is_some() { EffectKind::Child } else { EffectKind::Tool },
            name: call.name.clone(),
            version: entry.tool.spec().version.clone(),
            hash,
            arguments: None,
            policy: options.policy(),
            step: None,
            child,
            retries: options.retries.clone(),
            settles_when_exhausted: true,
            defer_intent: false,
            key_of: None,
            alongside: Vec::new(),
        };
        let timeout = options.timeout;
        Self { entry, effect, call, timeout, approval: None }
    }

    /// The mark of the moment before somebody is asked about it.
    pub(crate) fn before_wait(&self, shape: &dyn Shape) -> NewCheckpoint {
        let step = self.effect.step.as_deref().and_then(|step| step.parse().ok()).unwrap_or(0);
        NewCheckpoint { step, node: shape.node(), ..NewCheckpoint::default() }
    }

    /// Gives the call the key of another one that it is made in place of. A child session is named
    /// after the key, so it is the same one, too.
    pub(crate) fn share_key(&mut self, driver: &Driver, with: Option<EffectId>) {
        let key = driver.idempotency_key(with.as_ref().unwrap_or(&self.effect.id));
        self.effect.child = self.entry.tool.child(driver.session(), &key);
        self.effect.key_of = with;
    }

    /// The call as it was made: middleware or a person may have changed the arguments.
    pub(crate) fn made_with(mut self, arguments: Option<Json>) -> Self {
        // What is never stored is not on record either: the call has it, or nobody has.
        if let Some(arguments) = arguments.filter(|arguments| !is_redacted(arguments)) {
            self.call.arguments = arguments.clone();
            self.effect.arguments = Some(arguments);
        }
        self
    }
}

/// The records that close every wait and every call that is open, behind `records` that close some
/// of them. Nobody goes on with them, so nobody needs to know any more whether they happened.
pub(crate) fn given_up(state: &State, records: Vec<Record>, why: &str) -> Vec<Record> {
    let (mut waits, mut effects) = (HashSet::new(), HashSet::new());
    for record in &records {
        match record {
            Record::WaitClosed(closed) => drop(waits.insert(closed.wait.clone())),
            Record::EffectOutcome(outcome) => drop(effects.insert(outcome.effect.clone())),
            _ => {}
        }
    }
    let mut records = records;
    let open = state.waits().filter(|wait| !waits.contains(&wait.opened.wait));
    records.extend(open.map(crate::wait::cancelled));
    let open = state.open_effects().filter(|open| !effects.contains(&open.intent.effect));
    records.extend(open.map(|open| {
        let outcome = EffectOutcome::new(open.intent.effect.clone(), OutcomeStatus::Cancelled, None);
        let (attempt, error) = (open.intent.attempt, Some(why.to_owned()));
        Record::from(EffectOutcome { attempt, error, synthetic: true, ..outcome })
    }));
    records
}
