//! Calls that wait for somebody: approvals, answers, and calls of which nobody knows whether they
//! happened.

use rekindle_core::record::{EffectOutcome, InDoubtPolicy, OutcomeStatus, WaitKind};
use rekindle_core::{EffectId, Error, ErrorKind, Json, Result, WaitState};
use serde_json::Value;

use super::act::Next;
use super::plan::Ready;
use super::step_failed;
use super::turn::Turn;
use crate::driver::WaitPurpose;
use crate::message::{Message, ToolCall, ToolResult};
use crate::tool::{Approval, Checked};
use crate::wait::{Verdict, WaitSpec};

impl Turn<'_> {
    pub(super) async fn ask_approval(&mut self, ready: &Ready, approval: &Approval) -> Result<Next> {
        let prompt = match approval.prompt.as_str() {
            "" => format!("May `{}` be called?", ready.call.name),
            prompt => prompt.to_owned(),
        };
        let spec = WaitSpec {
            approvals: approval.approvals.max(1),
            remind_after: approval.remind_after,
            expires_after: approval.expires_after,
            default: Some(Json::of(&approval.approve_on_expiry)?),
            schema: Some(ready.entry.tool.spec().parameters.clone()),
            ..WaitSpec::approval(prompt.clone(), ready.call.arguments.clone())
        };
        self.open_wait(&spec, &ready.effect.id, WaitPurpose::Approval).await?;
        Ok(Next::Waits(prompt))
    }

    async fn open_wait(&mut self, spec: &WaitSpec, effect: &EffectId, purpose: WaitPurpose) -> Result<()> {
        let (_, mut records) = self.driver.opening(spec, Some(effect.clone()), purpose, self.at.step).await?;
        records.extend(self.stack.changes(&self.agent.middleware)?);
        self.driver.commit(records).await
    }

    /// What the answer to a wait means for its call.
    pub(super) async fn answered_wait(&mut self, effect: &EffectId, call: &ToolCall, wait: &WaitState) -> Result<Next> {
        let Some((verdict, closed)) = self.driver.verdict(wait)? else {
            return Ok(Next::Waits(wait_text(wait)));
        };
        let entry = self
            .agent
            .toolbox
            .get(&call.name)
            .cloned()
            .ok_or_else(|| step_failed(format!("the tool `{}` of an unfinished call is gone", call.name)))?;
        let mut made = call.clone();
        let purpose = WaitPurpose::of(wait);
        if let (Some(shown), WaitPurpose::Approval) = (&wait.opened.arguments, purpose) {
            made.arguments = shown.clone();
        }
        let mut result = match (purpose, verdict) {
            (WaitPurpose::Approval, Verdict::Approved { arguments }) => {
                made.arguments = arguments.unwrap_or(made.arguments);
                match entry.schema.faults(&made.arguments) {
                    Err(faults) => ToolResult::failed(call, &format!("the approved arguments do not fit: {faults}")),
                    Ok(()) => {
                        // The end of the wait and the intent are committed together.
                        let mut effect = self.call_effect_of(effect.clone(), &entry, call, &made);
                        effect.alongside.push(closed);
                        return Ok(Next::Make(Box::new(Ready { entry, effect, call: made, approval: None })));
                    }
                }
            }
            (WaitPurpose::InDoubt, Verdict::Answered(answer)) => match in_doubt_answer(&answer) {
                Settled::Retry => {
                    let intent = self.driver.read(|state| state.effect(effect).map(|known| known.intent.clone())).await;
                    made.arguments = intent.and_then(|intent| intent.arguments).unwrap_or(made.arguments);
                    let mut effect = self.call_effect_of(effect.clone(), &entry, call, &made);
                    effect.alongside.push(closed);
                    return Ok(Next::Make(Box::new(Ready { entry, effect, call: made, approval: None })));
                }
                Settled::Done(value) => ToolResult::new(call, value),
                Settled::Failed => ToolResult::failed(call, "somebody found that the call did not succeed"),
            },
            (WaitPurpose::Result, Verdict::Answered(value)) => ToolResult::new(call, value),
            (WaitPurpose::Result, Verdict::Approved { arguments }) => {
                ToolResult::new(call, arguments.map_or_else(|| Json::parse("true"), Ok)?)
            }
            (_, Verdict::Rejected { reason }) => ToolResult::failed(call, &format!("rejected: {reason}")),
            (_, Verdict::Expired) => ToolResult::failed(call, "nobody answered in time"),
            (_, Verdict::Approved { .. } | Verdict::Answered(_)) => ToolResult::failed(call, "the answer does not fit"),
        };
        for middleware in &self.agent.middleware {
            middleware.after_tool(call, &mut result).await?;
        }
        self.settle_by_wait(effect, call, result, closed).await
    }

    /// Ends a call with what came of its wait.
    async fn settle_by_wait(
        &mut self,
        effect: &EffectId,
        call: &ToolCall,
        result: ToolResult,
        closed: rekindle_core::Record,
    ) -> Result<Next> {
        let attempt = self.driver.read(|state| state.effect(effect).map(|known| known.intent.attempt)).await;
        let mut records = vec![closed];
        match attempt {
            None => records.extend(self.settled(effect, call, result)?),
            Some(attempt) => {
                let status = if result.error { OutcomeStatus::ToolError } else { OutcomeStatus::Ok };
                let (ids, now) = (self.driver.engine().journal().ids(), self.driver.now());
                let value = Message::tool(result).with_id(ids, now).to_json()?;
                let outcome = EffectOutcome { attempt, ..EffectOutcome::new(effect.clone(), status, Some(value)) };
                records.push(outcome.into());
            }
        }
        self.driver.commit(records).await?;
        Ok(Next::Settled)
    }

    /// What is done with a call of which nobody knows whether it happened.
    pub(super) async fn doubt(&mut self, ready: &Ready, why: &str) -> Result<Next> {
        let tries = self.doubts.entry(ready.effect.id.clone()).or_default();
        *tries += 1;
        if *tries > ready.effect.retries.attempts.max(1) {
            return self.ask_person(ready, why).await;
        }
        match ready.effect.policy {
            InDoubtPolicy::ReplaySafe | InDoubtPolicy::Idempotent => Ok(Next::Make(Box::new(ready.clone()))),
            InDoubtPolicy::Check => self.check(ready, why).await,
            InDoubtPolicy::Ask => self.ask_person(ready, why).await,
            InDoubtPolicy::Never => {
                let message = format!("nobody knows whether the call of `{}` happened: {why}", ready.call.name);
                Err(Error::new(ErrorKind::InDoubt, message).hint(format!(
                    "find out, then settle effect `{}` by hand and resume, or cancel the run",
                    ready.effect.id
                )))
            }
        }
    }

    async fn check(&mut self, ready: &Ready, why: &str) -> Result<Next> {
        match self.job(ready.clone()).check().await {
            Some(Checked::Happened(value)) => {
                let result = ToolResult::new(&ready.call, value);
                let attempt = self.driver.known(&ready.effect).await?.next_attempt().saturating_sub(1).max(1);
                let (ids, now) = (self.driver.engine().journal().ids(), self.driver.now());
                let value = Message::tool(result).with_id(ids, now).to_json()?;
                let outcome = EffectOutcome::new(ready.effect.id.clone(), OutcomeStatus::Ok, Some(value));
                self.driver.commit(vec![EffectOutcome { attempt, ..outcome }.into()]).await?;
                Ok(Next::Settled)
            }
            Some(Checked::DidNotHappen) => Ok(Next::Make(Box::new(ready.clone()))),
            Some(Checked::Unknown) | None => self.ask_person(ready, why).await,
        }
    }

    async fn ask_person(&mut self, ready: &Ready, why: &str) -> Result<Next> {
        let prompt = format!(
            "Nobody knows whether `{}` happened: {why}. Find out, then answer with an action: \
             `retry` makes the call again, `done` takes `result` for its result, `failed` tells the model it failed.",
            ready.call.name
        );
        let schema = Json::parse(
            r#"{"type":"object","properties":{"action":{"enum":["retry","done","failed"]},"result":{}},"required":["action"]}"#,
        )?;
        let mut spec = WaitSpec::question(prompt.clone()).with_schema(schema);
        spec.arguments = Some(ready.call.arguments.clone());
        self.open_wait(&spec, &ready.effect.id, WaitPurpose::InDoubt).await?;
        Ok(Next::Waits(prompt))
    }
}

/// What a wait is about, for people.
fn wait_text(wait: &WaitState) -> String {
    match wait.opened.kind {
        WaitKind::Signal => format!("waits for signal `{}`", wait.opened.prompt),
        WaitKind::Timer => "waits for a time".to_owned(),
        _ => wait.opened.prompt.clone(),
    }
}

/// What a person found out about a call in doubt.
enum Settled {
    Retry,
    Done(Json),
    Failed,
}

fn in_doubt_answer(answer: &Json) -> Settled {
    let answer = answer.to_value().unwrap_or_default();
    match answer.get("action").and_then(Value::as_str) {
        Some("retry") => Settled::Retry,
        Some("done") => Settled::Done(Json::from(answer.get("result").cloned().unwrap_or_default())),
        _ => Settled::Failed,
    }
}
