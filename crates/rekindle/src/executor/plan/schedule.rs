//! Carrying out a plan: which steps can start, how many run at once, and what their ends mean for
//! the others.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rekindle_core::record::{CheckpointType, InDoubtPolicy, RunOutcome};
use rekindle_core::{EffectId, Error, ErrorKind, Json, Record, Result};
use serde::Deserialize;
use serde_json::Value;

use super::PlanDescriptor;
use super::shape::StepShape;
use super::state::{PlanRegister, StepRegister, StepStatus, results};
use super::view::PlanSummary;
use super::{Inner, effect};
use crate::driver::{Driver, End, NewCheckpoint, OnWait, Performed, Spent, Stop};
use crate::executor::Descriptor as _;
use crate::executor::call::{Caller, Made, Next, Ready};
use crate::executor::crew::Crew;
use crate::executor::reference::{Reference, walk};
use crate::memory::{MemoryView, is_redacted};
use crate::message::{ToolCall, ToolResult};

/// One run of a plan.
pub(super) struct Schedule<'a> {
    plan: &'a Inner,
    driver: &'a Driver,
    caller: Caller<'a>,
    at: PlanRegister,
    known: Vec<StepRegister>,
    /// How many dependencies each step still waits for.
    missing: Vec<usize>,
    /// Steps that can start.
    queue: BTreeSet<usize>,
    /// Steps that wait for somebody, and for what.
    waiting: BTreeSet<usize>,
    waits_for: Option<String>,
    /// Where the results of steps stand in their log, as far as it was looked at.
    outputs: HashMap<usize, usize>,
    looked_at: usize,
    executed: u64,
    recovered: u64,
    /// Nothing more is started, and why the run then fails, if it does.
    halted: bool,
    failure: Option<Error>,
}

/// The only part of a result that is needed to find it.
#[derive(Deserialize)]
struct Named {
    step_id: String,
}

impl<'a> Schedule<'a> {
    /// Where the state says the plan stands.
    pub(super) async fn load(plan: &'a Inner, driver: &'a Driver, at: PlanRegister) -> Result<Self> {
        let known: Vec<StepRegister> = driver
            .read(|state| {
                plan.steps.iter().map(|step| StepRegister::load(state, &step.spec.id, at.turn)).collect::<Result<_>>()
            })
            .await?;
        let is_done = |step: usize| is_done(known[step].status);
        let missing: Vec<usize> = plan
            .steps
            .iter()
            .map(|step| step.dependencies.iter().filter(|dependency| !is_done(**dependency)).count())
            .collect();
        let queue = (0..plan.steps.len()).filter(|step| missing[*step] == 0 && !is_done(*step)).collect();
        let completed = known.iter().filter(|step| step.status == StepStatus::Completed).count() as u64;
        let shape = StepShape {
            at: at.clone(),
            checkpoints: driver.options().checkpoints.clone(),
            completed: AtomicU64::new(completed),
        };
        Ok(Self {
            caller: Caller::new(driver, Arc::new(shape), plan.parallel()),
            looked_at: at.results_from,
            plan,
            driver,
            at,
            known,
            missing,
            queue,
            waiting: BTreeSet::new(),
            waits_for: None,
            outputs: HashMap::new(),
            executed: 0,
            recovered: completed,
            halted: false,
            failure: None,
        })
    }

    /// Runs until the plan ends, waits or is to stop.
    pub(super) async fn go(mut self) -> Result<End> {
        let mut jobs = Crew::default();
        loop {
            let stop = jobs.attend(self.driver.proceed()).await?;
            if stop.is_none() && !self.halted {
                let room = self.plan.parallel().saturating_sub(jobs.len());
                for ready in jobs.attend(self.start(room)).await {
                    jobs.push(self.caller.job(ready).run());
                }
            }
            if let Some(made) = jobs.next().await {
                if let Some(again) = jobs.attend(self.ended(made)).await {
                    jobs.push(self.caller.job(*again).run());
                }
                continue;
            }
            if let Some(error) = self.failure.take() {
                let told = self.summary(Some(error.message().to_owned())).await?;
                self.driver.tell(told).await;
                return Err(error);
            }
            if let Some((stop, reason)) = stop.or(self.driver.proceed().await?) {
                return self.stopped(stop, reason).await;
            }
            if let Some(end) = self.rest().await? {
                return Ok(end);
            }
        }
    }

    /// What can start, with one commit for all the intents.
    async fn start(&mut self, room: usize) -> Vec<Ready> {
        match self.intend(room).await {
            Ok(ready) => ready,
            Err(error) => {
                self.fail(error);
                Vec::new()
            }
        }
    }

    async fn intend(&mut self, room: usize) -> Result<Vec<Ready>> {
        let (mut started, mut records, mut intended) = (Vec::new(), Vec::new(), Vec::new());
        while started.len() < room
            && let Some(step) = self.queue.pop_first()
        {
            match self.next(step).await {
                Ok(Next::Make(ready)) => {
                    records.extend(self.early_intent(&ready, &mut intended).await?);
                    started.push(*ready);
                }
                Ok(Next::Settled) => {
                    self.adopt(step).await?;
                    self.note(step).await?;
                }
                Ok(Next::Waits(what)) => self.wait(step, what),
                Err(error) if matches!(error.kind(), ErrorKind::BudgetSpent { .. }) => {
                    self.fail(error);
                    break;
                }
                // Others can go on; the run fails when they have ended.
                Err(error) => drop(self.failure.get_or_insert(error)),
            }
        }
        if !records.is_empty() {
            self.driver.commit_intending(records, intended).await?;
        }
        Ok(started)
    }

    /// A step that somebody settled by hand is taken over.
    async fn adopt(&mut self, number: usize) -> Result<()> {
        let id = &self.plan.steps[number].spec.id;
        let register = self.driver.read(|state| StepRegister::load(state, id, self.at.turn)).await?;
        if register != self.known[number] {
            return Ok(());
        }
        let (ready, _) = self.ready(number).await?;
        self.caller.adopt(&ready).await
    }

    /// What is to be done with a step now, by what is on record for it.
    async fn next(&mut self, number: usize) -> Result<Next> {
        let (ready, fault) = self.ready(number).await?;
        if self.driver.is_begun(&ready.effect.id).await {
            return self.caller.next(ready).await;
        }
        if let Some(why) = fault {
            let result = ToolResult::failed(&ready.call, &why);
            return self.caller.settle(&ready, result, Vec::new()).await;
        }
        // What was begun is paid for, so it goes on even if nothing is left.
        self.driver.check_budgets().await?;
        let spent = Spent { iterations: 1, tool_calls: 1, ..Spent::default() };
        match ready.effect.policy {
            // Recorded with its outcome: until then there is nothing on record that could be resumed.
            InDoubtPolicy::ReplaySafe => self.driver.reserve(spent).await,
            _ => self.driver.spend(spent).await,
        }
        match self.known[number].failures.checked_sub(1) {
            Some(before) => {
                let failed = effect(self.at.turn, &self.plan.steps[number].spec.id, before)?;
                self.caller.anew(ready, &failed).await
            }
            None => self.caller.begin(ready).await,
        }
    }

    /// The call of a step, and what is wrong with its arguments. One that was begun goes on with the
    /// arguments it was begun with.
    async fn ready(&mut self, number: usize) -> Result<(Ready, Option<String>)> {
        let step = &self.plan.steps[number];
        let id = effect(self.at.turn, &step.spec.id, self.known[number].failures)?;
        self.check_given(number, &id).await?;
        let step = &self.plan.steps[number];
        let intent = self.driver.read(|state| state.effect(&id).map(|known| known.intent.clone())).await;
        let (arguments, hash, fault) = match intent {
            Some(intent) => {
                let known = intent.arguments.unwrap_or_else(Json::null);
                (self.refilled(number, known, intent.arguments_hash).await, intent.arguments_hash, None)
            }
            None => match self.arguments(number).await {
                Ok(arguments) => {
                    let (hash, faults) = (self.driver.argument_hash(&arguments), step.entry.schema.faults(&arguments));
                    let misfit =
                        |faults| format!("the parameters do not fit the tool `{}`: {faults}", step.spec.action);
                    (arguments, hash, faults.err().map(misfit))
                }
                Err(why) => (Json::null(), rekindle_core::Hash::of(b""), Some(why)),
            },
        };
        let call = ToolCall::new(&step.spec.id, &step.spec.action, arguments.clone());
        let mut ready = Ready::new(self.driver, id, Arc::clone(&step.entry), call, hash);
        ready.effect.step = Some(step.spec.id.clone());
        ready.effect.defer_intent = true;
        ready.effect.arguments = Some(arguments);
        ready.share_key(self.driver, self.first_try(&step.spec.id, hash).await?);
        ready.timeout = step.spec.timeout.or(ready.timeout);
        ready.approval = step.entry.tool.options().approval.clone();
        if let Some(retry) = &step.spec.retry {
            ready.effect.retries = retry.retries();
        }
        Ok((ready, fault))
    }

    /// An error if a step that has not ended needs a secret that was not given again: the run stops, and the
    /// step has not failed.
    async fn check_given(&self, number: usize, id: &EffectId) -> Result<()> {
        let references = self.plan.steps[number].parameters.references();
        let mut keys = references.iter().filter(|known| known.root() == "context").filter_map(|known| known.name());
        let view = MemoryView::default();
        let check = |state: &rekindle_core::State| match state.effect(id).is_some_and(|known| known.is_settled()) {
            true => Ok(()),
            false => keys.try_for_each(|key| view.check_given(state, key)),
        };
        self.driver.read(check).await
    }

    /// The arguments a call was begun with. What is never stored is looked up again, if nothing else
    /// has changed since.
    async fn refilled(&mut self, number: usize, known: Json, hash: rekindle_core::Hash) -> Json {
        if !is_redacted(&known) {
            return known;
        }
        let again = self.arguments(number).await.ok();
        again.filter(|arguments| self.driver.argument_hash(arguments) == hash).unwrap_or(known)
    }

    /// The first try at a step, if it had the same arguments: the two share a key, so that whoever
    /// can ignore a repeated request does.
    async fn first_try(&self, step: &str, hash: rekindle_core::Hash) -> Result<Option<EffectId>> {
        let first = effect(self.at.turn, step, 0)?;
        let known = self.driver.read(|state| state.effect(&first).map(|known| known.intent.arguments_hash)).await;
        Ok(known.is_none_or(|known| known == hash).then_some(first))
    }

    /// The intent of a call that begins at once; others get theirs when they begin.
    async fn early_intent(&self, ready: &Ready, intended: &mut Vec<EffectId>) -> Result<Option<Record>> {
        let risky = self.plan.is_risky(&ready.call.id) && self.driver.options().checkpoints.marks_risky();
        if risky {
            let description = format!("before the risky step `{}`", ready.call.id);
            let number = self.known.iter().filter(|step| step.status == StepStatus::Completed).count() as u64;
            self.driver.checkpoint(NewCheckpoint::auto(CheckpointType::Step, number, description)).await?;
        }
        let rides = ready.effect.policy == InDoubtPolicy::ReplaySafe;
        let at_once = !rides && ready.entry.permits.is_none() && ready.effect.alongside.is_empty();
        if !at_once || !self.driver.options().pending_writes {
            return Ok(None);
        }
        if self.driver.read(|state| state.effect(&ready.effect.id).is_some()).await {
            return Ok(None);
        }
        intended.push(ready.effect.id.clone());
        Ok(Some(self.driver.intent(&ready.effect, 1).into()))
    }

    /// The arguments of a step, with every reference looked up.
    async fn arguments(&mut self, number: usize) -> Result<Json, String> {
        let template = &self.plan.steps[number].parameters;
        if !template.references().is_empty() {
            self.look_at_results().await.map_err(|error| error.to_string())?;
        }
        let filled = self.driver.read(|state| {
            template.fill(&mut |reference| self.look_up(state, reference).ok_or_else(|| self.nothing(reference)))
        });
        filled.await.map(Json::from)
    }

    fn look_up(&self, state: &rekindle_core::State, reference: &Reference) -> Option<Value> {
        match (reference.root(), reference.name()) {
            ("query", _) => Some(Value::String(self.at.query.clone())),
            ("context", Some(key)) => {
                let value = MemoryView::default().look(state, key)?.to_value().ok()?;
                walk(value, reference.rest(2))
            }
            ("steps", Some(id)) => {
                let place = self.outputs.get(self.plan.index.get(id)?)?;
                let result = state.log(&results()).get(*place)?.to_value().ok()?;
                walk(result, reference.rest(2))
            }
            _ => None,
        }
    }

    fn nothing(&self, reference: &Reference) -> String {
        let status = reference.name().filter(|_| reference.root() == "steps").and_then(|id| {
            let status = self.known[*self.plan.index.get(id)?].status;
            (status != StepStatus::Completed).then(|| format!(": step `{id}` is {}", status.as_str()))
        });
        format!("there is nothing at `{reference}`{}", status.unwrap_or_default())
    }

    async fn look_at_results(&mut self) -> Result<()> {
        let new = self.driver.read(|state| {
            let log = state.log(&results());
            let new = log.get(self.looked_at..).unwrap_or_default();
            new.iter().map(Json::decode::<Named>).collect::<Result<Vec<_>>>()
        });
        for Named { step_id } in new.await? {
            if let Some(step) = self.plan.index.get(&step_id) {
                self.outputs.insert(*step, self.looked_at);
            }
            self.looked_at += 1;
        }
        Ok(())
    }

    /// Takes note of how a call ended; gives it back if it is to be made again.
    async fn ended(&mut self, made: Made) -> Option<Box<Ready>> {
        let step = *self.plan.index.get(&made.ready.call.id)?;
        let next = match made.performed {
            Ok(Performed::Settled(_)) => Ok(Next::Settled),
            Ok(Performed::Open(what)) => Ok(Next::Waits(what)),
            Ok(Performed::InDoubt(why)) if self.driver.is_stopping() => Ok(Next::Waits(why)),
            Ok(Performed::InDoubt(why)) => self.caller.doubt(&made.ready, &why).await,
            Err(error) => Err(error),
        };
        let noted = match next {
            Ok(Next::Settled) => self.note(step).await,
            Ok(Next::Waits(what)) => {
                self.wait(step, what);
                Ok(())
            }
            Ok(Next::Make(ready)) => return Some(ready),
            Err(error) => Err(error),
        };
        match noted {
            // Others can go on; the run fails when they have ended.
            Err(error) if *error.kind() == ErrorKind::InDoubt => drop(self.failure.get_or_insert(error)),
            Err(error) => self.fail(error),
            Ok(()) => {}
        }
        None
    }

    /// A step has ended: what that means for the others.
    async fn note(&mut self, step: usize) -> Result<()> {
        if !self.driver.options().pending_writes {
            // Otherwise it is on record already.
            self.driver.commit_staged().await?;
        }
        let id = &self.plan.steps[step].spec.id;
        self.known[step] = self.driver.read(|state| StepRegister::load(state, id, self.at.turn)).await?;
        match self.known[step].status {
            StepStatus::Completed => {
                self.executed += 1;
                for dependant in &self.plan.steps[step].dependants {
                    self.missing[*dependant] -= 1;
                    // One may be done although something it depends on was not: plans are changed.
                    if self.missing[*dependant] == 0 && !is_done(self.known[*dependant].status) {
                        self.queue.insert(*dependant);
                    }
                }
            }
            StepStatus::Failed if self.plan.spec.fail_fast && !self.plan.steps[step].spec.optional => {
                self.halted = true
            }
            _ => {}
        }
        Ok(())
    }

    fn wait(&mut self, step: usize, what: String) {
        self.waiting.insert(step);
        self.waits_for.get_or_insert(what);
    }

    /// Nothing more is started; what is under way may end.
    fn fail(&mut self, error: Error) {
        self.halted = true;
        self.failure.get_or_insert(error);
    }

    /// Nothing is under way: the plan waits, or it has come to its end.
    async fn rest(&mut self) -> Result<Option<End>> {
        let Some(what) = self.waits_for.take().filter(|_| !self.halted) else { return self.finish().await.map(Some) };
        if self.driver.wake().await? {
            self.queue.append(&mut self.waiting);
            return Ok(None);
        }
        if self.driver.options().on_wait == OnWait::Hold {
            self.driver.hold().await?;
            self.queue.append(&mut self.waiting);
            return Ok(None);
        }
        self.driver.remind().await?;
        let value = Some(self.summary(Some(what.clone())).await?);
        Ok(Some(End { value, ..End::new(RunOutcome::Waiting, what) }))
    }

    async fn finish(&mut self) -> Result<End> {
        let error = self.what_failed();
        let value = Some(self.summary(error.clone()).await?);
        if let Some(error) = error {
            return Ok(End { value, ..End::new(RunOutcome::Failed, error) });
        }
        // The failures of optional steps stay on record; what nobody waits for any more is closed.
        let (register, mut records) = self
            .driver
            .read(|state| {
                let waits: Vec<Record> = state.waits().map(crate::wait::cancelled).collect();
                PlanRegister::load(state).map(|register| (register, waits))
            })
            .await?;
        records.push(PlanRegister { done: true, ..register }.record()?);
        self.driver.stage(records).await?;
        let number = self.known.iter().filter(|step| step.status == StepStatus::Completed).count() as u64;
        let marked = self.driver.options().checkpoints.marks_turn();
        let checkpoint = marked.then(|| NewCheckpoint::auto(CheckpointType::Step, number, "Execution complete"));
        Ok(End { value, checkpoint, ..End::new(RunOutcome::Succeeded, "Execution complete") })
    }

    /// What this run did; `error` says why the plan is not done.
    async fn summary(&self, error: Option<String>) -> Result<Json> {
        let (turn, _) = self.driver.spent().await;
        Json::of(&PlanSummary {
            success: error.is_none(),
            error,
            total_duration_ms: turn.active_micros / 1_000,
            tokens: turn.input_tokens.saturating_add(turn.output_tokens),
            steps_executed: self.executed,
            steps_recovered: self.recovered,
        })
    }

    /// Why the plan did not succeed, if it did not.
    fn what_failed(&self) -> Option<String> {
        let statuses = self.plan.statuses(&self.known);
        let required = |step: &usize| !self.plan.steps[*step].spec.optional;
        let lacking: Vec<usize> =
            (0..statuses.len()).filter(required).filter(|step| !is_done(statuses[*step])).collect();
        if lacking.is_empty() {
            return None;
        }
        let failed = (0..statuses.len()).filter(|step| statuses[*step] == StepStatus::Failed);
        let mut parts: Vec<String> = failed
            .take(5)
            .map(|step| {
                let why = self.known[step].error.as_deref().unwrap_or_default();
                format!("step `{}` failed: {why}", self.plan.steps[step].spec.id)
            })
            .collect();
        let blocked = lacking.iter().filter(|step| statuses[**step] == StepStatus::Blocked).count();
        if blocked > 0 {
            parts.push(match blocked {
                1 => "a step that depends on what failed is blocked".to_owned(),
                _ => format!("{blocked} steps that depend on what failed are blocked"),
            });
        }
        Some(parts.join("; "))
    }

    async fn stopped(&mut self, stop: Stop, reason: String) -> Result<End> {
        let value = Some(self.summary(Some(reason.clone())).await?);
        if stop < Stop::Cancel {
            return Ok(End { value, ..End::new(RunOutcome::Paused, reason) });
        }
        let journal = self.driver.engine().journal();
        let records = self.driver.read(|state| PlanDescriptor.closing(state, journal, "")).await?;
        self.driver.stage(records).await?;
        Ok(End { value, ..End::new(RunOutcome::Cancelled, reason) })
    }
}

/// Whether a step needs no more to be done.
fn is_done(status: StepStatus) -> bool {
    matches!(status, StepStatus::Completed | StepStatus::Skipped)
}
