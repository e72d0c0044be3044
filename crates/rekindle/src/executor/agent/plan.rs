//! What is to be done with the calls of an answer: checked before any of them is intended.

use std::collections::BTreeMap;
use std::sync::Arc;

use rekindle_core::record::{
    EffectIntent, EffectKind, EffectOutcome, InDoubtPolicy, OutcomeStatus, RegisterSet, RegisterUnset,
};
use rekindle_core::{EffectId, Json, Record, Result};
use serde::{Deserialize, Serialize};

use super::state::{DECIDED, GROUPS};
use super::turn::{Turn, call_effect, call_hash};
use crate::executor::call::{Entry, Ready};
use crate::message::{Message, ToolCall, ToolResult};
use crate::middleware::Gate;
use crate::tool::Approval;

/// What follows from an answer with calls.
#[derive(Default)]
pub(super) struct CallPlan {
    /// What is recorded together with the answer.
    pub(super) records: Vec<Record>,
    /// The calls whose intents are among the records.
    pub(super) intended: Vec<EffectId>,
    /// A call that was made too often in a row.
    pub(super) repeated: Option<(String, u32)>,
}

/// What middleware decided about a call, as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Decided {
    pub(super) arguments: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) approval: Option<Approval>,
}

/// What becomes of a call.
pub(super) enum Decision {
    /// It is made.
    Make(Box<Ready>),
    /// It is not; this is its result.
    Settle(ToolResult, Vec<Record>),
}

impl Turn<'_> {
    /// Checks the calls of an answer and says what is recorded with it.
    pub(super) async fn plan(&mut self, answer: &Message) -> Result<CallPlan> {
        let mut plan = CallPlan::default();
        let calls: Vec<&ToolCall> = answer.calls().collect();
        let limit = self.agent.same_call_limit;
        for call in &calls {
            // All names that nobody knows count as one, so that they cannot fill the register.
            let known = self.agent.toolbox.get(&call.name).is_some() || self.agent.toolbox.is_group(&call.name);
            let name = if known { call.name.as_str() } else { "" };
            let times = self.breaker.note(name, call_hash(call));
            if limit > 0 && times >= limit && plan.repeated.is_none() {
                plan.repeated = Some((call.name.clone(), times));
            }
        }
        plan.records.push(self.breaker.record(&self.place.scope)?);
        if plan.repeated.is_some() {
            return Ok(plan);
        }
        // Nothing is intended that is not begun at once.
        let holds = self.driver.is_stopping() || self.driver.check_asked().await.is_err();
        let mut sequential = holds;
        for (number, call) in calls.iter().enumerate() {
            let effect = call_effect(&self.place.scope, self.at.step, number, call)?;
            match self.decide(&effect, call).await? {
                Decision::Settle(result, records) => {
                    plan.records.extend(self.settled(&effect, call, result)?);
                    plan.records.extend(records);
                }
                Decision::Make(ready) => {
                    // Calls after a sequential one wait; what waits must not look as if it had begun.
                    sequential |= ready.entry.tool.options().sequential && number > 0;
                    if !sequential && self.starts_at_once(&ready, calls.len()) {
                        plan.records.push(self.driver.intent(&ready.effect, 1).into());
                        plan.intended.push(effect.clone());
                    }
                    sequential |= ready.entry.tool.options().sequential;
                    self.ready.insert(effect, *ready);
                }
            }
        }
        plan.records.extend(self.keep_decided(&plan.intended)?);
        Ok(plan)
    }

    /// What middleware decided about calls that are not made yet is on record with the answer, so
    /// that nobody is asked again after a crash.
    fn keep_decided(&mut self, intended: &[EffectId]) -> Result<Vec<Record>> {
        let later = self.ready.iter().filter(|(effect, _)| !intended.contains(effect));
        let decided: BTreeMap<&EffectId, Decided> = later
            .map(|(effect, ready)| {
                let decided = Decided { arguments: ready.call.arguments.clone(), approval: ready.approval.clone() };
                (effect, decided)
            })
            .collect();
        if decided.is_empty() || self.agent.middleware.is_empty() {
            return Ok(Vec::new());
        }
        self.has_decided = true;
        Ok(vec![RegisterSet::new(self.place.scope.register(DECIDED)?, Json::of(&decided)?).into()])
    }

    /// What was decided about a call before a crash.
    pub(super) async fn decided_before(&self, effect: &EffectId) -> Result<Option<Decided>> {
        let decided = self.driver.register::<BTreeMap<EffectId, Decided>>(&self.place.scope.name(DECIDED)).await?;
        Ok(decided.and_then(|mut decided| decided.remove(effect)))
    }

    /// The step is over, and what was decided for it.
    pub(super) fn forget_decided(&mut self) -> Result<Option<Record>> {
        match std::mem::take(&mut self.has_decided) {
            true => Ok(Some(RegisterUnset::new(self.place.scope.register(DECIDED)?).into())),
            false => Ok(None),
        }
    }

    fn starts_at_once(&self, ready: &Ready, calls: usize) -> bool {
        let unlimited = ready.entry.permits.is_none() && calls <= self.agent.parallel;
        let risky = ready.entry.tool.options().risky && self.place.checkpoints.marks_risky();
        unlimited && !risky && ready.approval.is_none() && self.driver.options().pending_writes
    }

    /// Whether and how a call is made.
    pub(super) async fn decide(&mut self, effect: &EffectId, call: &ToolCall) -> Result<Decision> {
        let refuse = |text: String| Ok(Decision::Settle(ToolResult::failed(call, &text), Vec::new()));
        if let Some(why) = &call.malformed {
            return refuse(format!("the arguments are not JSON: {why}"));
        }
        if self.agent.toolbox.is_group(&call.name) {
            return self.open_group(call);
        }
        let Some(entry) = self.agent.toolbox.find(&call.name, &self.groups).cloned() else {
            return refuse(self.unknown_tool(&call.name));
        };
        let mut made = call.clone();
        let mut approval = entry.tool.options().approval.clone();
        for (layer, middleware) in self.agent.middleware.iter().enumerate() {
            match middleware.before_tool(self.stack.state(layer), &mut made).await? {
                Gate::Open => {}
                Gate::Ask(ask) => approval = Some(ask),
                Gate::Deny(reason) => return refuse(format!("the call was not allowed: {reason}")),
                Gate::Answer(value) => return Ok(Decision::Settle(ToolResult::new(call, value), Vec::new())),
            }
        }
        if let Err(faults) = entry.schema.faults(&made.arguments) {
            return refuse(format!("the arguments do not fit the tool's schema: {faults}"));
        }
        let ready = self.ready_call(effect.clone(), entry, call, made);
        Ok(Decision::Make(Box::new(Ready { approval, ..ready })))
    }

    fn unknown_tool(&self, name: &str) -> String {
        let shown = self.agent.toolbox.shown(&self.groups);
        let names: Vec<_> = shown.iter().map(|spec| spec.name.as_str()).collect();
        let short: String = name.chars().take(80).collect();
        format!("there is no tool `{short}`; there are: {}", names.join(", "))
    }

    /// A call that can be made as `made`. It is recognised by the arguments the model gave.
    pub(super) fn ready_call(&self, id: EffectId, entry: Arc<Entry>, call: &ToolCall, made: ToolCall) -> Ready {
        let changed = (made.arguments != call.arguments).then(|| made.arguments.clone());
        let hash = self.driver.argument_hash(&call.arguments);
        let mut ready = Ready::new(self.driver, id, entry, made, hash);
        ready.effect.arguments = changed;
        ready.effect.step = Some(self.at.step.to_string());
        ready
    }

    fn open_group(&mut self, call: &ToolCall) -> Result<Decision> {
        if !self.groups.contains(&call.name) {
            self.groups.push(call.name.clone());
        }
        let names: Vec<_> = self.agent.toolbox.in_group(&call.name).collect();
        let result = ToolResult::new(call, Json::of(&serde_json::json!({ "opened": names }))?);
        let record = RegisterSet::new(self.place.scope.register(GROUPS)?, Json::of(&self.groups)?);
        Ok(Decision::Settle(result, vec![record.into()]))
    }

    /// The records of a call that ended without being made.
    pub(super) fn settled(&self, effect: &EffectId, call: &ToolCall, result: ToolResult) -> Result<Vec<Record>> {
        let (ids, now) = (self.driver.engine().journal().ids(), self.driver.now());
        let status = if result.error { OutcomeStatus::ToolError } else { OutcomeStatus::Ok };
        let error = result.error.then(|| result.content.decode::<String>().unwrap_or_default());
        let intent = EffectIntent {
            policy: InDoubtPolicy::ReplaySafe,
            run: Some(self.driver.run().clone()),
            step: Some(self.at.step.to_string()),
            idempotency_key: self.driver.idempotency_key(effect),
            ..EffectIntent::new(effect.clone(), EffectKind::Tool, call.name.clone(), call_hash(call))
        };
        let value = Message::tool(result).with_id(ids, now).to_json()?;
        let outcome = EffectOutcome { error, ..EffectOutcome::new(effect.clone(), status, Some(value)) };
        Ok(vec![intent.into(), outcome.into()])
    }

    /// Marks the moment before a risky call, if that is wanted.
    pub(super) async fn mark_risky(&self, ready: &Ready) -> Result<()> {
        if ready.entry.tool.options().risky && self.place.checkpoints.marks_risky() {
            let description = format!("before the risky call of `{}`", ready.call.name);
            self.driver.checkpoint(self.place.iteration(self.at.step, description)).await?;
        }
        Ok(())
    }
}
