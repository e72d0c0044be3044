//! Making the calls of an answer: in parallel where they may, each outcome on its own.

use rekindle_core::record::{LogAppendOutcomes, OutcomeStatus};
use rekindle_core::{EffectId, Result};
use serde_json::Value;

use super::plan::Decision;
use super::state::Phase;
use super::step_failed;
use super::turn::{Turn, call_effect, close_call};
use crate::driver::{Performed, Stop};
use crate::executor::call::{Made, Next, Ready};
use crate::executor::crew::Crew;
use crate::message::{Message, ToolCall};

/// What came of the calls.
pub(super) enum Acted {
    /// All ended.
    Done,
    /// The run is to stop.
    Interrupted,
    /// Some wait for somebody.
    Waits(String),
}

impl Turn<'_> {
    /// Makes the calls of the last answer that have not ended.
    pub(super) async fn act(&mut self) -> Result<Acted> {
        let interrupted = self.driver.take_interrupt();
        self.driver.begin_step();
        self.driver.check_asked().await?;
        let calls: Vec<ToolCall> = self.answer.iter().flat_map(Message::calls).cloned().collect();
        let effects: Vec<EffectId> = calls
            .iter()
            .enumerate()
            .map(|(number, call)| call_effect(&self.place.scope, self.at.step, number, call))
            .collect::<Result<_>>()?;
        let mut waits = None;
        for stage in self.stages(&calls).into_iter().filter(|_| !interrupted) {
            waits = self.make(&calls, &effects, stage).await?;
            if waits.is_some() || self.driver.is_stopping() {
                break;
            }
        }
        if !self.all_settled(&effects).await {
            match self.interrupted(interrupted, &calls, &effects).await? {
                true => {}
                false if self.driver.is_stopping() => return Ok(Acted::Interrupted),
                false => return Ok(Acted::Waits(waits.unwrap_or_else(|| "a call has not ended".into()))),
            }
        }
        self.finish_step(effects).await?;
        Ok(Acted::Done)
    }

    /// Calls that may run together, in order: a sequential one runs alone.
    fn stages(&self, calls: &[ToolCall]) -> Vec<std::ops::Range<usize>> {
        let mut stages: Vec<std::ops::Range<usize>> = Vec::new();
        let mut alone = false;
        for (number, call) in calls.iter().enumerate() {
            let sequential = self.agent.toolbox.get(&call.name).is_some_and(|entry| entry.tool.options().sequential);
            match stages.last_mut() {
                Some(stage) if !sequential && !alone => stage.end = number + 1,
                _ => stages.push(number..number + 1),
            }
            alone = sequential;
        }
        stages
    }

    /// Makes the calls of one stage. What some of them wait for, if they do.
    async fn make(
        &mut self,
        calls: &[ToolCall],
        effects: &[EffectId],
        stage: std::ops::Range<usize>,
    ) -> Result<Option<String>> {
        let (mut waits, mut failure) = (None, None);
        let mut jobs = Crew::default();
        for number in stage {
            match jobs.attend(self.next_marked(&effects[number], &calls[number])).await {
                Ok(Next::Settled) => {}
                Ok(Next::Waits(what)) => drop(waits.get_or_insert(what)),
                Ok(Next::Make(ready)) => jobs.push(self.caller.job(*ready).run()),
                // Those that were begun come to their end.
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        while let Some(made) = jobs.next().await {
            let Made { ready, performed } = made;
            match performed {
                Ok(Performed::Settled(_)) => {}
                Ok(Performed::Open(what)) => drop(waits.get_or_insert(what)),
                Ok(Performed::InDoubt(_)) if self.driver.is_stopping() => {}
                Ok(Performed::InDoubt(why)) => match jobs.attend(self.caller.doubt(&ready, &why)).await {
                    Ok(Next::Waits(what)) => drop(waits.get_or_insert(what)),
                    Ok(Next::Make(ready)) => jobs.push(self.caller.job(*ready).run()),
                    Ok(Next::Settled) => {}
                    // The others may still end well: what they did must be on record.
                    Err(error) => drop(failure.get_or_insert(error)),
                },
                Err(error) => drop(failure.get_or_insert(error)),
            }
        }
        failure.map_or(Ok(waits), Err)
    }

    /// The same, with the moment before a risky call marked.
    async fn next_marked(&mut self, effect: &EffectId, call: &ToolCall) -> Result<Next> {
        let next = self.next(effect, call).await?;
        if let Next::Make(ready) = &next {
            self.mark_risky(ready).await?;
        }
        Ok(next)
    }

    /// What is to be done with a call now, by what is on record for it.
    async fn next(&mut self, effect: &EffectId, call: &ToolCall) -> Result<Next> {
        if let Some(ready) = self.ready.remove(effect) {
            return match ready.approval.clone() {
                Some(approval) => {
                    self.driver.stage(self.stack.changes(&self.agent.middleware)?).await?;
                    self.caller.ask_approval(&ready, &approval).await
                }
                None => Ok(Next::Make(Box::new(ready))),
            };
        }
        let settled = self.driver.read(|state| state.effect(effect).is_some_and(|effect| effect.is_settled())).await;
        let Some(ready) = self.known_call(effect, call, settled).await? else { return Ok(Next::Settled) };
        self.driver.stage(self.stack.changes(&self.agent.middleware)?).await?;
        self.caller.next(ready).await
    }

    /// The call with everything that is needed to make it; nothing if it ended without that. A
    /// call on record is made as it was decided then, so nobody is asked again.
    async fn known_call(&mut self, id: &EffectId, call: &ToolCall, settled: bool) -> Result<Option<Ready>> {
        let on_record = self.driver.read(|state| state.effect(id).is_some()).await;
        if on_record || self.driver.wait_of(id).await.is_some() {
            return match self.agent.toolbox.get(&call.name).cloned() {
                Some(entry) => Ok(Some(self.ready_call(id.clone(), entry, call, call.clone()))),
                None if settled => Ok(None),
                None => Err(step_failed(format!("the tool `{}` of an unfinished call is gone", call.name))
                    .hint("bring the tool back, or cancel the run")),
            };
        }
        if let Some(decided) = self.decided_before(id).await?
            && let Some(entry) = self.agent.toolbox.get(&call.name).cloned()
        {
            let made = ToolCall { arguments: decided.arguments, ..call.clone() };
            let ready = self.ready_call(id.clone(), entry, call, made);
            return Ok(Some(Ready { approval: decided.approval, ..ready }));
        }
        match self.decide(id, call).await? {
            Decision::Make(ready) => Ok(Some(*ready)),
            Decision::Settle(result, more) => {
                let mut records = self.settled(id, call, result)?;
                records.extend(more);
                records.extend(self.stack.changes(&self.agent.middleware)?);
                self.driver.commit(records).await?;
                Ok(None)
            }
        }
    }

    async fn all_settled(&self, effects: &[EffectId]) -> bool {
        let settled = |effect, state: &rekindle_core::State| {
            state.effect(effect).is_some_and(rekindle_core::EffectState::is_settled)
        };
        self.driver.read(|state| effects.iter().all(|effect| settled(effect, state))).await
    }

    /// Whether a message came in between: then the calls that did not end are closed, and the
    /// model hears of both.
    async fn interrupted(&mut self, before: bool, calls: &[ToolCall], effects: &[EffectId]) -> Result<bool> {
        let stop = self.driver.stopping();
        let lost = self.driver.control().lost().is_some();
        let by_message = stop.is_none() && !lost && (before || self.driver.step_token().is_cancelled());
        if self.place.is_node() || !by_message && stop != Some(Stop::Interrupt) {
            return Ok(false);
        }
        let journal = self.driver.engine().journal();
        let records = self.driver.read(|state| {
            let closed = calls
                .iter()
                .zip(effects)
                .map(|(call, effect)| close_call(state, journal, effect, call, "the call was interrupted"));
            closed.collect::<Result<Vec<_>>>()
        });
        let records = records.await?.into_iter().flatten().collect();
        self.driver.commit(records).await?;
        self.driver.take_interrupt();
        Ok(true)
    }

    /// All calls ended: their results go into the conversation, in the order of the calls.
    async fn finish_step(&mut self, effects: Vec<EffectId>) -> Result<()> {
        let (failed, terminate) = self.driver.read(|state| outcomes(state, &effects)).await;
        let step = self.at.step;
        self.at.failures = if failed { self.at.failures + 1 } else { 0 };
        self.at.phase = if terminate.is_some() { Phase::Idle } else { Phase::Think };
        self.at.ended.clone_from(&terminate);
        self.at.step += 1;
        self.at.iteration += 1;
        self.ready.clear();
        self.caller.forget_doubts();
        let scope = &self.place.scope;
        let mut records = vec![LogAppendOutcomes::new(scope.messages()?, effects).into(), self.at.record(scope)?];
        records.extend(self.forget_decided()?);
        self.driver.stage(records).await?;
        let grown = self.driver.take_growth().await;
        if self.place.checkpoints.marks_step(step, self.step_began.elapsed(), grown) {
            let description = format!("iteration {} of turn {}", self.at.iteration - 1, self.at.turn);
            self.driver.stage_checkpoint(self.place.iteration(step, description)).await?;
        }
        if let Some(reason) = terminate {
            self.mark_turn(&reason);
            return Ok(());
        }
        let limit = self.agent.failure_limit;
        if limit > 0 && self.at.failures >= limit {
            self.driver.mark_unclean().await;
            return Err(step_failed(format!("every call of {} steps in a row failed", self.at.failures))
                .hint("look at the last results, then resume, or send a message that leads it elsewhere"));
        }
        Ok(())
    }
}

/// Whether all calls failed, and why one of them ended the turn.
fn outcomes(state: &rekindle_core::State, effects: &[EffectId]) -> (bool, Option<String>) {
    let outcomes = || effects.iter().filter_map(|effect| state.effect(effect)?.outcome.as_ref());
    let failed = outcomes().all(|outcome| outcome.status != OutcomeStatus::Ok);
    let terminate = outcomes().find_map(|outcome| outcome.extra.get("terminate").and_then(Value::as_str));
    (failed, terminate.map(str::to_owned))
}
