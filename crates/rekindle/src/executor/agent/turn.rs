//! A turn: from a message to the answer, over as many runs as it takes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use rekindle_core::record::{
    CheckpointSource, CheckpointType, EffectIntent, EffectKind, EffectOutcome, LogAppend, LogAppendOutcomes,
    OutcomeStatus, RegisterUnset, RunOutcome,
};
use rekindle_core::{EffectId, Hash, Journal, Json, LogName, Record, Result, State};

use super::act::Acted;
use super::descriptor::AgentDescriptor;
use super::place::{MessageShape, Place};
use super::state::{BREAKER, Breaker, CURSOR, DECIDED, GROUPS, LoopState, Phase, SUMMARY, Scope};
use super::think::Thought;
use super::{Inner, step_failed};
use crate::driver::{Budget, Driver, End, Inbox, NewCheckpoint, OnWait, Spent, Stop, of_next_queued};
use crate::event::LiveKind;
use crate::executor::Descriptor as _;
use crate::executor::call::{Caller, Ready};
use crate::message::{Message, Role, ToolCall, ToolResult};
use crate::middleware::{Stack, Verdict};
use crate::reduction::{HistoryIndex, ProviderCursor, Summary};

/// One run of an agent, between its records.
pub(super) struct Turn<'a> {
    pub(super) agent: &'a Inner,
    pub(super) driver: &'a Driver,
    pub(super) place: Place,
    pub(super) caller: Caller<'a>,
    pub(super) at: LoopState,
    pub(super) groups: Vec<String>,
    pub(super) breaker: Breaker,
    pub(super) stack: Stack,
    pub(super) index: HistoryIndex,
    pub(super) summary: Option<Summary>,
    pub(super) cursor: Option<ProviderCursor>,
    /// Calls that passed every check and wait for nothing but their turn.
    pub(super) ready: HashMap<EffectId, Ready>,
    /// Whether the register of what was decided is set.
    pub(super) has_decided: bool,
    /// The mark of a turn that is over.
    pub(super) mark: Option<NewCheckpoint>,
    /// The last answer of the model.
    pub(super) answer: Option<Message>,
    pub(super) step_began: Instant,
}

impl<'a> Turn<'a> {
    /// Where the state says the loop stands.
    pub(super) async fn load(agent: &'a Inner, driver: &'a Driver, place: Place) -> Result<Self> {
        let shape = Arc::new(MessageShape {
            middleware: &agent.middleware,
            memory: place.memory.clone(),
            node: place.node.clone(),
        });
        let loaded = driver.read(|state| {
            let scope = place.scope.clone();
            let decode = |key| state.register(&scope.name(key));
            let turn = Self {
                agent,
                driver,
                caller: Caller::new(driver, shape, agent.parallel),
                at: LoopState::load_in(state, &scope)?,
                groups: decode(GROUPS).map(Json::decode).transpose()?.unwrap_or_default(),
                breaker: Breaker::load(state, &scope)?,
                stack: Stack::load(&agent.middleware, state, &scope, &agent.name)?,
                index: HistoryIndex::default(),
                summary: decode(SUMMARY).map(Json::decode).transpose()?,
                cursor: decode(CURSOR).map(Json::decode).transpose()?,
                ready: HashMap::new(),
                mark: None,
                has_decided: decode(DECIDED).is_some(),
                answer: last_answer(state, &scope)?,
                place,
                step_began: Instant::now(),
            };
            Ok::<_, rekindle_core::Error>(turn)
        });
        let turn = loaded.await?;
        for name in &turn.stack.unknown {
            driver.say(|| LiveKind::Notice(format!("state of middleware `{name}` is kept, but nothing here uses it")));
        }
        Ok(turn)
    }

    /// Begins a turn with `input` or, without any, with what waits in the inbox.
    pub(super) async fn begin(&mut self, mut input: Vec<Message>) -> Result<()> {
        input.splice(0..0, self.take_steered().await?);
        if input.is_empty() {
            input.extend(self.take_queued().await?);
        }
        if let Some(mark) = self.mark.take() {
            self.driver.stage_checkpoint(mark).await?;
        }
        self.answer = None;
        self.stack.begin_turn(&self.agent.middleware);
        self.at = LoopState {
            turn: self.at.turn + 1,
            iteration: 1,
            step: self.at.step + 1,
            phase: Phase::Think,
            failures: 0,
            ended: None,
            spent: None,
            ..self.at.clone()
        };
        let mut terminated = None;
        for (layer, middleware) in self.agent.middleware.iter().enumerate() {
            if let Verdict::Terminate(reason) = middleware.before_turn(self.stack.state(layer), &mut input).await? {
                terminated.get_or_insert(reason);
            }
        }
        if !self.place.is_node() {
            self.driver.begin_turn().await;
        }
        if let Some(reason) = &terminated {
            self.at.phase = Phase::Idle;
            self.at.ended = Some(reason.clone());
        }
        self.record_begin(input).await?;
        if let Some(reason) = terminated {
            self.mark_turn(&reason);
        }
        Ok(())
    }

    async fn record_begin(&mut self, input: Vec<Message>) -> Result<()> {
        let mut records = self.log_records(input)?;
        records.push(self.at.record(&self.place.scope)?);
        if self.breaker != Breaker::default() {
            self.breaker = Breaker::default();
            records.push(RegisterUnset::new(self.place.scope.register(BREAKER)?).into());
        }
        records.extend(self.stack.changes(&self.agent.middleware)?);
        self.driver.stage_beginning(records).await?;
        if self.place.checkpoints.marks_input() && !self.place.is_node() {
            let checkpoint = NewCheckpoint {
                source: CheckpointSource::Input,
                ..NewCheckpoint::auto(CheckpointType::Turn, self.at.step, format!("input of turn {}", self.at.turn))
            };
            self.driver.stage_checkpoint(checkpoint).await?;
        }
        // What was said is safe before anybody is asked about it.
        self.driver.commit_staged().await?;
        self.driver.barrier().await
    }

    /// Goes on with a turn that another run began. If the run is to stop at once, nothing is
    /// committed before its end is: a command that was taken must not be lost.
    pub(super) async fn recover(&mut self) -> Result<()> {
        if self.driver.proceed().await?.is_some() {
            return Ok(());
        }
        self.driver.commit_staged().await?;
        if let (Phase::Idle, Some(reason)) = (self.at.phase, self.at.ended.clone()) {
            self.mark_turn(&reason);
        }
        if self.at.phase == Phase::Think {
            let partial = self.partial(&model_effect(&self.place.scope, self.at.step)?).await;
            if !partial.is_empty() {
                self.driver.say(|| LiveKind::PartialFound(partial));
            }
        }
        Ok(())
    }

    /// What a model had streamed before its process died.
    pub(super) async fn partial(&self, effect: &EffectId) -> String {
        let text = self.driver.read(|state| {
            let partials = state.effect(effect).map(|effect| effect.partials.clone()).unwrap_or_default();
            partials.iter().filter_map(|part| part.decode::<String>().ok()).collect()
        });
        text.await
    }

    /// Runs until the turn ends, waits or is to stop.
    pub(super) async fn go(&mut self) -> Result<End> {
        loop {
            if let Some((stop, reason)) = self.driver.proceed().await? {
                return self.stopped(stop, reason).await;
            }
            match self.at.phase {
                Phase::Think => {
                    self.driver.take_interrupt();
                    // An answer that is on record was given before whatever came since.
                    if !self.has_kept_answer().await? {
                        self.steer().await?;
                    }
                    self.driver.check_budgets().await?;
                    self.check_visit().await?;
                    match self.think().await? {
                        Thought::Answered | Thought::Interrupted => {}
                    }
                }
                Phase::Act => match self.act().await? {
                    Acted::Done | Acted::Interrupted => {}
                    Acted::Waits(_) if !self.place.is_node() && self.driver.wake().await? => {}
                    Acted::Waits(_) if self.driver.options().on_wait == OnWait::Hold && !self.place.is_node() => {
                        self.driver.hold().await?;
                    }
                    Acted::Waits(reason) => {
                        self.driver.remind().await?;
                        return Ok(End::new(RunOutcome::Waiting, reason));
                    }
                },
                Phase::Idle if self.has_inbox().await => self.begin(Vec::new()).await?,
                Phase::Idle => return Ok(self.end()),
            }
        }
    }

    /// Inside a node, what the agent may use counts for each visit; all else is the graph's.
    async fn check_visit(&self) -> Result<()> {
        if !self.place.is_node() {
            return Ok(());
        }
        let used = Spent { iterations: self.at.iteration.saturating_sub(1), ..self.at.spent.unwrap_or_default() };
        for budget in Budget::ALL {
            let Some(own) = self.agent.options.budgets.limit(budget) else { continue };
            let limit = own.max(self.driver.raised(budget).await.unwrap_or_default());
            if used.of(budget) >= limit {
                let (agent, name) = (&self.agent.name, budget.as_str());
                let message = format!("agent `{agent}` has used up its {name} for this visit: {limit}");
                return Err(step_failed(message).hint(format!("raise {name} and resume")));
            }
        }
        Ok(())
    }

    fn end(&mut self) -> End {
        let reason = self.at.ended.clone().unwrap_or_else(|| "the model had an answer".to_owned());
        End { answer: self.answer.take(), checkpoint: self.mark.take(), ..End::new(RunOutcome::Succeeded, reason) }
    }

    async fn stopped(&mut self, stop: Stop, reason: String) -> Result<End> {
        if stop < Stop::Cancel {
            return Ok(End::new(RunOutcome::Paused, reason));
        }
        let journal = self.driver.engine().journal();
        let scope = &self.place.scope;
        let records = self.driver.read(|state| closing_in(state, journal, scope, "the run was cancelled")).await?;
        self.driver.stage(records).await?;
        Ok(End::new(RunOutcome::Cancelled, reason))
    }

    /// The turn is over. The caller stages what led to it before.
    pub(super) async fn finish(&mut self, reason: impl Into<String>) -> Result<()> {
        self.at.phase = Phase::Idle;
        let reason = reason.into();
        self.at.ended = Some(reason.clone());
        self.driver.stage(vec![self.at.record(&self.place.scope)?]).await?;
        self.mark_turn(&reason);
        Ok(())
    }

    /// The end of a turn is to be marked: behind the end of its run or, if the run goes on, before
    /// its next turn.
    pub(super) fn mark_turn(&mut self, reason: &str) {
        if self.place.checkpoints.marks_turn() && !self.place.is_node() {
            let description = format!("turn {} ended: {reason}", self.at.turn);
            self.mark = Some(NewCheckpoint::auto(CheckpointType::Turn, self.at.step, description));
        }
    }

    /// Puts the messages that are to steer the next model call into the conversation.
    async fn steer(&mut self) -> Result<()> {
        loop {
            let steered = self.take_steered().await?;
            if steered.is_empty() {
                return Ok(());
            }
            let mut records = self.log_records(steered)?;
            records.push(self.at.record(&self.place.scope)?);
            self.driver.commit(records).await?;
        }
    }

    /// The records that put messages into the conversation.
    fn log_records(&self, said: Vec<Message>) -> Result<Vec<Record>> {
        let (ids, now) = (self.driver.engine().journal().ids(), self.driver.now());
        let log = self.place.scope.messages()?;
        let append =
            |message: Message| Ok(LogAppend::new(log.clone(), vec![message.with_id(ids, now).to_json()?]).into());
        said.into_iter().map(append).collect()
    }

    /// Whether the answer of this step is on record, although what followed from it failed.
    async fn has_kept_answer(&self) -> Result<bool> {
        let effect = model_effect(&self.place.scope, self.at.step)?;
        Ok(self.driver.read(|state| state.effect(&effect).is_some_and(|known| known.is_settled())).await)
    }

    /// Whether a message waits for a turn of this run. One that was to steer a turn that is over is
    /// one too; one that names another run waits for that.
    async fn has_inbox(&self) -> bool {
        if self.place.is_node() {
            return false;
        }
        let run = self.driver.run();
        let is_ours = |state: &State| of_next_queued(&AgentDescriptor, state).is_none_or(|wanted| wanted == *run);
        let waits =
            |state: &State| AgentDescriptor.has_queued(state) && (AgentDescriptor.has_steered(state) || is_ours(state));
        self.driver.read(waits).await
    }

    /// Messages for the next model call; taken once the caller has recorded where the loop stands.
    async fn take_steered(&mut self) -> Result<Vec<Message>> {
        if self.place.is_node() {
            return Ok(Vec::new());
        }
        let taken = self.at.steered;
        let most = self.driver.limits().batch_bytes / 4;
        let new = self.driver.read(|state| inbox_log(state, Inbox::STEER, taken, most)).await?;
        self.at.steered += new.len();
        Ok(new)
    }

    /// The next message that waits for a turn; taken once the caller has recorded where the loop
    /// stands.
    async fn take_queued(&mut self) -> Result<Option<Message>> {
        let taken = self.at.queued;
        let next = self.driver.read(|state| {
            let log = LogName::new(Inbox::QUEUE)?;
            state.log(&log).get(taken).map(Message::from_json).transpose()
        });
        let next = next.await?;
        self.at.queued += usize::from(next.is_some());
        Ok(next)
    }
}

/// The messages of a log of the inbox that were not taken, about so many bytes of them.
fn inbox_log(state: &State, log: &str, taken: usize, most: usize) -> Result<Vec<Message>> {
    let log = LogName::new(log)?;
    let items = state.log(&log).get(taken..).unwrap_or_default();
    let mut bytes = 0;
    let fit = items.iter().take_while(|item| {
        let first = bytes == 0;
        bytes += item.as_str().len();
        first || bytes <= most
    });
    fit.map(Message::from_json).collect()
}

fn last_answer(state: &State, scope: &Scope) -> Result<Option<Message>> {
    let last = state.log(&scope.messages()?).last().map(Message::from_json).transpose()?;
    Ok(last.filter(|message| message.role == Role::Assistant))
}

/// The effect of the model call of a step.
pub(super) fn model_effect(scope: &Scope, step: u64) -> Result<EffectId> {
    scope.effect(format!("m{step}"))
}

/// The effect of a call: its step and number make it unique, whatever id the provider gave it.
pub(crate) fn call_effect(scope: &Scope, step: u64, number: usize, call: &ToolCall) -> Result<EffectId> {
    let named = scope.effect(format!("t{step}.{number}.{}", call.id));
    named.or_else(|_| scope.effect(format!("t{step}.{number}")))
}

/// The hash by which a call is recognised.
pub(super) fn call_hash(call: &ToolCall) -> Hash {
    // Arguments without a canonical form are recognised by their text.
    crate::wait::digest(&call.arguments).unwrap_or_else(|_| Hash::of(call.arguments.as_str().as_bytes()))
}

/// The records that close what a turn left open, so that no open call stays in the conversation.
pub(crate) fn closing(state: &State, journal: &Journal, why: &str) -> Result<Vec<Record>> {
    closing_in(state, journal, &Scope::default(), why)
}

/// The same for a loop that keeps its state there.
pub(crate) fn closing_in(state: &State, journal: &Journal, scope: &Scope, why: &str) -> Result<Vec<Record>> {
    let mut at = LoopState::load_in(state, scope)?;
    let mut records = Vec::new();
    if at.phase == Phase::Idle {
        return Ok(records);
    }
    if let Some(open) = state.effect(&model_effect(scope, at.step)?).filter(|effect| !effect.is_settled()) {
        records.push(cancelled(&open.intent.effect, open.intent.attempt, None, why).into());
    }
    if let Some(answer) = last_answer(state, scope)?.filter(|_| at.phase == Phase::Act) {
        records.extend(close_calls(state, journal, scope, at.step, &answer, why)?);
    }
    if state.register(&scope.name(DECIDED)).is_some() {
        records.push(RegisterUnset::new(scope.register(DECIDED)?).into());
    }
    at.phase = Phase::Idle;
    at.ended = Some(why.to_owned());
    records.push(at.record(scope)?);
    Ok(records)
}

/// The calls of the last answer of a loop that have not ended.
pub(crate) fn unended_calls(state: &State, scope: &Scope) -> Result<Vec<EffectId>> {
    let at = LoopState::load_in(state, scope)?;
    let Some(answer) = last_answer(state, scope)?.filter(|_| at.phase == Phase::Act) else { return Ok(Vec::new()) };
    let calls = answer.calls().enumerate().map(|(number, call)| call_effect(scope, at.step, number, call));
    let mut calls = calls.collect::<Result<Vec<_>>>()?;
    calls.retain(|effect| !state.effect(effect).is_some_and(rekindle_core::EffectState::is_settled));
    Ok(calls)
}

/// The records that close the calls of an answer and put their results into the conversation.
pub(super) fn close_calls(
    state: &State,
    journal: &Journal,
    scope: &Scope,
    step: u64,
    answer: &Message,
    why: &str,
) -> Result<Vec<Record>> {
    let (mut records, mut effects) = (Vec::new(), Vec::new());
    for (number, call) in answer.calls().enumerate() {
        let effect = call_effect(scope, step, number, call)?;
        records.extend(close_call(state, journal, &effect, call, why)?);
        effects.push(effect);
    }
    if !effects.is_empty() {
        records.push(LogAppendOutcomes::new(scope.messages()?, effects).into());
    }
    Ok(records)
}

/// The records that close one call, unless it ended.
pub(super) fn close_call(
    state: &State,
    journal: &Journal,
    effect: &EffectId,
    call: &ToolCall,
    why: &str,
) -> Result<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    let waits = state.waits().filter(|wait| wait.opened.effect.as_ref() == Some(effect));
    records.extend(waits.map(crate::wait::cancelled));
    let known = state.effect(effect);
    if known.is_some_and(rekindle_core::EffectState::is_settled) {
        return Ok(records);
    }
    let attempt = known.map_or(1, |known| known.intent.attempt);
    let mut text = why.to_owned();
    match known {
        None => {
            records.push(EffectIntent::new(effect.clone(), EffectKind::Tool, call.name.clone(), call_hash(call)).into())
        }
        Some(_) => text.push_str("; it was under way and may have happened"),
    }
    let result = ToolResult { synthetic: true, ..ToolResult::failed(call, &text) };
    let value = Message::tool(result).with_id(journal.ids(), journal.clock().now()).to_json()?;
    records.push(cancelled(effect, attempt, Some(value), why).into());
    Ok(records)
}

fn cancelled(effect: &EffectId, attempt: u32, value: Option<Json>, why: &str) -> EffectOutcome {
    EffectOutcome {
        attempt,
        error: Some(why.to_owned()),
        synthetic: true,
        ..EffectOutcome::new(effect.clone(), OutcomeStatus::Cancelled, value)
    }
}

/// The failure of a turn whose model repeats itself.
pub(super) fn repeats_itself(tool: &str, times: u32) -> rekindle_core::Error {
    step_failed(format!("the model called `{tool}` {times} times in a row with the same arguments"))
        .hint("send a message that leads it elsewhere, or raise the agent's `same_call_limit`")
}
