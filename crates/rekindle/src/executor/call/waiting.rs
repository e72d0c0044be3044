//! Calls that wait for somebody: approvals, answers, and calls of which nobody knows whether they
//! happened.

use rekindle_core::record::{EffectOutcome, InDoubtPolicy, OutcomeStatus, WaitKind};
use rekindle_core::{EffectId, Error, ErrorKind, Json, Record, Result, WaitState};
use serde_json::Value;

use super::{Caller, Ended, Next, Ready};
use crate::driver::{Recorded, WaitPurpose};
use crate::memory::is_redacted;
use crate::message::ToolResult;
use crate::tool::{Approval, Checked};
use crate::wait::{Verdict, WaitSpec};

impl Caller<'_> {
    pub(crate) async fn ask_approval(&self, ready: &Ready, approval: &Approval) -> Result<Next> {
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
        self.open_wait(&spec, ready, WaitPurpose::Approval).await?;
        Ok(Next::Waits(prompt))
    }

    async fn open_wait(&self, spec: &WaitSpec, ready: &Ready, purpose: WaitPurpose) -> Result<()> {
        let before = ready.before_wait(self.shape.as_ref());
        let (_, records) = self.driver.opening(spec, Some(ready.effect.id.clone()), purpose, before).await?;
        self.driver.commit(records).await
    }

    /// What the answer to a wait means for its call.
    pub(crate) async fn answered(&mut self, ready: Ready, wait: &WaitState) -> Result<Next> {
        let Some((verdict, closed)) = self.driver.verdict(wait).await? else {
            return Ok(Next::Waits(wait_text(wait)));
        };
        let call = ready.call.clone();
        let result = match (WaitPurpose::of(wait), verdict) {
            (WaitPurpose::Approval, Verdict::Approved { arguments }) => {
                return self.approved(ready, arguments.or(wait.opened.arguments.clone()), closed).await;
            }
            (WaitPurpose::InDoubt, Verdict::Answered(answer)) => match in_doubt_answer(&answer) {
                Found::Retry => {
                    let arguments = self.intended(&ready.effect.id).await;
                    let mut ready = ready.made_with(arguments);
                    ready.effect.alongside.push(closed);
                    // The person was told what still runs, and decided.
                    let job = self.job(ready.clone());
                    job.notice(&job.end_leftovers().await);
                    return self.make(ready).await;
                }
                Found::Done(value) => ToolResult::new(&call, value),
                Found::Failed => ToolResult::failed(&call, "somebody found that the call did not succeed"),
            },
            (WaitPurpose::Result, Verdict::Answered(value)) => ToolResult::new(&call, value),
            (WaitPurpose::Result, Verdict::Approved { arguments }) => {
                ToolResult::new(&call, arguments.map_or_else(|| Json::parse("true"), Ok)?)
            }
            (_, Verdict::Rejected { reason }) => ToolResult::failed(&call, &format!("rejected: {reason}")),
            (_, Verdict::Expired) => ToolResult::failed(&call, "nobody answered in time"),
            (_, Verdict::Approved { .. } | Verdict::Answered(_)) => {
                ToolResult::failed(&call, "the answer does not fit")
            }
        };
        self.settle(&ready, result, vec![closed]).await
    }

    /// The end of the wait and the intent are committed together.
    async fn approved(&mut self, mut ready: Ready, arguments: Option<Json>, closed: Record) -> Result<Next> {
        let shown = arguments.filter(|arguments| !is_redacted(arguments));
        let made = shown.unwrap_or_else(|| ready.call.arguments.clone());
        if is_redacted(&made) {
            ready.effect.alongside.push(closed);
            return self.make_first(ready).await;
        }
        if let Err(faults) = ready.entry.schema.faults(&made) {
            let text = format!("the approved arguments do not fit: {faults}");
            let result = ToolResult::failed(&ready.call, &text);
            return self.settle(&ready, result, vec![closed]).await;
        }
        if made != ready.call.arguments {
            ready = ready.made_with(Some(made));
        }
        ready.effect.alongside.push(closed);
        ready.approval = None;
        self.make_first(ready).await
    }

    /// The arguments a call is on record with, if they stand there.
    async fn intended(&self, effect: &EffectId) -> Option<Json> {
        self.driver.read(|state| state.effect(effect).and_then(|known| known.intent.arguments.clone())).await
    }

    /// Ends a call that is not made, or of which it was found out what became of it.
    pub(crate) async fn settle(&self, ready: &Ready, result: ToolResult, before: Vec<Record>) -> Result<Next> {
        let known = self.driver.read(|state| state.effect(&ready.effect.id).map(|known| known.intent.attempt)).await;
        let mut batch = before;
        if known.is_none() {
            batch.push(self.driver.intent(&ready.effect, 1).into());
        }
        let (result, recorded) = self.record(ready, result).await?;
        let status = if result.error { OutcomeStatus::ToolError } else { OutcomeStatus::Ok };
        let error = result.error.then(|| result.content.decode::<String>().unwrap_or_default());
        let outcome = EffectOutcome {
            attempt: known.unwrap_or(1),
            error,
            ..EffectOutcome::new(ready.effect.id.clone(), status, None)
        };
        self.driver.settle(batch, outcome, recorded).await?;
        Ok(Next::Settled)
    }

    /// What goes on record for a result. One that cannot be recorded fails the call: it is there
    /// for good, so a resume would meet it again.
    pub(super) async fn record(&self, ready: &Ready, result: ToolResult) -> Result<(ToolResult, Recorded)> {
        let recorded = self.shape.record(self.driver, ready, Ended::new(result.clone())).await;
        match recorded {
            Ok(recorded) => Ok((result, recorded)),
            Err(error) if !result.error && *error.kind() == ErrorKind::Invalid => {
                let failed = ToolResult::failed(&ready.call, &format!("its result cannot be recorded: {error}"));
                let recorded = self.shape.record(self.driver, ready, Ended::new(failed.clone())).await?;
                Ok((failed, recorded))
            }
            Err(error) => Err(error),
        }
    }

    /// Decides what is done with a call of which nobody knows whether it happened. Its processes have ended
    /// before; where some have not, only a call that may be repeated goes on without a person.
    pub(crate) async fn doubt(&mut self, ready: &Ready, why: &str) -> Result<Next> {
        let job = self.job(ready.clone());
        let leftovers = job.end_leftovers().await;
        let text = format!("{why}; still running: {}", leftovers.text());
        let why = if leftovers.is_none() { why } else { &text };
        let tries = self.doubts.entry(ready.effect.id.clone()).or_default();
        *tries += 1;
        if *tries > ready.effect.retries.attempts.max(1) {
            return self.ask_person(ready, why).await;
        }
        let lost = self.is_lost(&ready.effect, None).await;
        let again = match ready.effect.policy {
            InDoubtPolicy::Idempotent => !lost,
            policy => policy == InDoubtPolicy::ReplaySafe,
        };
        if again {
            job.notice(&leftovers);
        }
        match ready.effect.policy {
            InDoubtPolicy::ReplaySafe => self.make(ready.clone()).await,
            // It may have happened, and it cannot be repeated.
            InDoubtPolicy::Idempotent if is_redacted(&ready.call.arguments) => self.ask_person(ready, why).await,
            // The lost try had another key, so nobody outside would ignore this one.
            InDoubtPolicy::Idempotent if lost => self.ask_person(ready, why).await,
            InDoubtPolicy::Idempotent => Ok(Next::Make(Box::new(ready.clone()))),
            // A check would tell what happened so far, and the call is not over.
            InDoubtPolicy::Check if !leftovers.is_none() => self.ask_person(ready, why).await,
            InDoubtPolicy::Check if lost => match self.lost_key(&ready.effect).await {
                Some(key) => self.check(ready, why, Some(key)).await,
                None => self.ask_person(ready, why).await,
            },
            InDoubtPolicy::Check => self.check(ready, why, None).await,
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

    /// Asks the tool about a call, by the key it was made with if that is not its own.
    async fn check(&mut self, ready: &Ready, why: &str, key: Option<String>) -> Result<Next> {
        match self.job(ready.clone()).check(key).await {
            Ok(Checked::Happened(value)) => self.settle(ready, ToolResult::new(&ready.call, value), Vec::new()).await,
            Ok(Checked::DidNotHappen) => self.make(ready.clone()).await,
            Ok(Checked::Unknown) => self.ask_person(ready, &format!("{why}, and its check cannot tell")).await,
            Err(error) => self.ask_person(ready, &format!("{why}, and its check failed: {error}")).await,
        }
    }

    async fn ask_person(&self, ready: &Ready, why: &str) -> Result<Next> {
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
        self.open_wait(&spec, ready, WaitPurpose::InDoubt).await?;
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
enum Found {
    Retry,
    Done(Json),
    Failed,
}

fn in_doubt_answer(answer: &Json) -> Found {
    let answer = answer.to_value().unwrap_or_default();
    match answer.get("action").and_then(Value::as_str) {
        Some("retry") => Found::Retry,
        Some("done") => Found::Done(Json::from(answer.get("result").cloned().unwrap_or_default())),
        _ => Found::Failed,
    }
}
