//! Durable work as a tool of other work: each call has a child session with a journal of its own.
//! It is committed before its first step, knows its parent, and goes on where it was when the
//! parent is resumed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rekindle_core::record::{Command, InDoubtPolicy, RunOutcome, Usage};
use rekindle_core::{BranchId, Error, ErrorKind, Json, Result, SessionHeader, SessionId, SessionKey, State, Status};

use super::{Executor, Input};
use crate::driver::{BUDGET, Ledger, ResumeOptions, RunOptions, RunReport, start};
use crate::session::Session;
use crate::tool::{Retries, Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};

/// How often a child that waits for a child of its own is looked after.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// Durable work as a tool.
#[derive(Debug)]
pub(crate) struct ChildTool {
    executor: Arc<dyn Executor>,
    /// How its runs behave.
    run: RunOptions,
    /// The input it begins with, by the arguments of the call.
    input: fn(&Json) -> Result<Input>,
    spec: ToolSpec,
    options: ToolOptions,
}

impl ChildTool {
    pub(crate) fn new(
        spec: ToolSpec,
        executor: Arc<dyn Executor>,
        run: RunOptions,
        input: fn(&Json) -> Result<Input>,
    ) -> Self {
        let options = ToolOptions {
            writes: true,
            // A second call finds the child of the first and goes on with it.
            in_doubt: Some(InDoubtPolicy::Idempotent),
            timeout: None,
            retries: Retries::none(),
            ..ToolOptions::default()
        };
        Self { executor, run, input, spec, options }
    }

    async fn open(&self, context: &ToolContext, key: SessionKey) -> Result<Session> {
        let header = SessionHeader {
            agent: Some(self.spec.name.clone()),
            parent: Some(context.session().clone()),
            ..SessionHeader::new(key.clone())
        };
        context.engine().journal().open_or_create(header).await?;
        Ok(Session::new(context.engine().clone(), key))
    }

    /// Starts the child's turn, or goes on with it; while the parent holds, until the child ends.
    async fn run(&self, context: &ToolContext, session: &Session, arguments: &Json) -> Result<Option<RunReport>> {
        let state = session.engine().journal().load(session.key(), None).await?.state;
        let begun = state.run().is_some();
        match state.status() {
            Status::Succeeded if begun => return Ok(None),
            Status::Cancelled if begun => {
                return Err(Error::new(ErrorKind::StepFailed, "the child session was cancelled"));
            }
            _ => {}
        }
        let mut input = if begun { Input::Resume } else { (self.input)(arguments)? };
        loop {
            let report = self.run_once(context, session, std::mem::replace(&mut input, Input::Resume)).await?;
            let waits = report.outcome == RunOutcome::Waiting && context.holds() && !context.is_cancelled();
            if !waits || !self.answered(context, session, &report).await? {
                return Ok(Some(report));
            }
        }
    }

    async fn run_once(&self, context: &ToolContext, session: &Session, input: Input) -> Result<RunReport> {
        // The run of a dead parent may still hold the child's lease for a moment.
        let mut options = ResumeOptions::new(format!("parent {}", context.session()))
            .patience(session.engine().lease().saturating_mul(2));
        options.secrets = context.given();
        let (executor, run) = (Arc::clone(&self.executor), self.run.clone());
        let handle = start(session.engine(), session.key(), executor, input, run, options).await?;
        let run = handle.run().clone();
        let report = handle.report();
        tokio::pin!(report);
        tokio::select! {
            report = &mut report => return report,
            () = context.cancelled() => {}
        }
        let command = if context.is_cancelling() { Command::Cancel } else { Command::Pause };
        crate::inbox::tell_run(session.engine(), session.key(), &run, command).await?;
        report.await
    }

    /// Waits until something is sent to the child or its wait is due; whether it was.
    async fn answered(&self, context: &ToolContext, session: &Session, report: &RunReport) -> Result<bool> {
        let inbox = async || Ok::<_, Error>(session.info().await?.branch(&BranchId::inbox())?.head.seq);
        let before = session.engine().journal().load(session.key(), None).await?.state.inbox_taken();
        let clock = session.engine().journal().clock();
        let now = clock.now();
        let due = report.waits.iter().flat_map(|wait| [wait.remind_at, wait.expires_at]).flatten();
        // A child without a wait of its own waits for a child of its own: it is looked after now and then.
        let due = due.filter(|at| *at > now).min().or(report.waits.is_empty().then(|| now.plus(LOOK_AFTER)));
        let mut pace = session.engine().pace();
        loop {
            if inbox().await? > before || due.is_some_and(|due| due <= clock.now()) {
                return Ok(true);
            }
            tokio::select! {
                () = pace.pause() => {}
                () = context.cancelled() => return Ok(false),
            }
        }
    }
}

#[async_trait]
impl Tool for ChildTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn options(&self) -> &ToolOptions {
        &self.options
    }

    fn child(&self, parent: &SessionKey, idempotency_key: &str) -> Option<SessionKey> {
        let id = SessionId::new(format!("{}.{}-{idempotency_key}", parent.id, self.spec.name));
        let id = id.or_else(|_| SessionId::new(format!("{}-{idempotency_key}", self.spec.name)));
        Some(SessionKey::new(parent.namespace.clone(), id.ok()?))
    }

    async fn call(&self, context: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        let key = self.child(context.session(), context.idempotency_key());
        let key = key.ok_or_else(|| ToolError::failed("the child session has no legal name"))?;
        let session = context.insist(|| self.open(context, key.clone())).await?;
        let report = match context.insist(|| self.run(context, &session, arguments)).await {
            Ok(report) => report,
            // Nothing the child did is lost, so nothing is decided here: it goes on at a resume.
            Err(error) if !is_final(error.kind()) => {
                return Ok(ToolOutput::suspend(format!("child session `{}`: {error}", session.key())));
            }
            Err(error) => return Err(charged(context, &session, error.into()).await),
        };
        let failed = |why: String| charged(context, &session, ToolError::failed(why));
        let waits = |why: &str| ToolOutput::suspend(format!("child session `{}` {why}", session.key()));
        match report.as_ref().map(|report| (report.outcome, &report.reason)) {
            Some((RunOutcome::Waiting, _)) => Ok(waits("waits")),
            Some((RunOutcome::Paused, _)) => Ok(waits("is paused")),
            Some((RunOutcome::Cancelled, _)) => Err(failed("the child session was cancelled".to_owned()).await),
            Some((RunOutcome::Failed, why)) => Err(failed(format!("the child session failed: {why}")).await),
            _ => {
                let load = || session.engine().journal().load(session.key(), None);
                let state = context.insist(load).await?.state;
                let result = self.executor.descriptor().result(&state)?.unwrap_or_else(Json::null);
                Ok(ToolOutput::json(result).and_used(used(context, session.key(), &state).await))
            }
        }
    }
}

/// The error of a child, with what the child used.
async fn charged(context: &ToolContext, session: &Session, error: ToolError) -> ToolError {
    match session.engine().journal().load(session.key(), None).await {
        Ok(child) => error.and_used(used(context, session.key(), &child.state).await),
        Err(_) => error,
    }
}

/// What the child used in all, without what an earlier call that failed was charged for.
async fn used(context: &ToolContext, key: &SessionKey, child: &State) -> Usage {
    let ledger = child.register(BUDGET).and_then(|json| json.decode::<Ledger>().ok()).unwrap_or_default();
    context.charged_for(key).await.iter().fold(ledger.session.usage(), |left, before| Usage {
        input_tokens: left.input_tokens.saturating_sub(before.input_tokens),
        output_tokens: left.output_tokens.saturating_sub(before.output_tokens),
        cost_micros: left.cost_micros.saturating_sub(before.cost_micros),
    })
}

/// Whether a child that failed so has failed for good.
fn is_final(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::StepFailed
            | ErrorKind::BudgetSpent { .. }
            | ErrorKind::InDoubt
            | ErrorKind::Invalid
            | ErrorKind::Limit { .. }
    )
}
