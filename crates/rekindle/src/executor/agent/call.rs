//! One call of a tool: permits, tries, timeout, cancellation, panics, and its result as a message.

use std::sync::Arc;
use std::time::Duration;

use rekindle_core::record::{Extra, InDoubtPolicy, RegisterSet, Usage};
use rekindle_core::{Json, Record, Result};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinHandle};

use super::Inner;
use super::plan::Ready;
use crate::driver::{Attempt, Driver, MEMORY, Performed, Stop, Tried, WaitPurpose, check_value, panic_text, register};
use crate::message::{Message, ToolResult};
use crate::tool::{Checked, Reply, ToolContext, ToolError, ToolOutput};

/// How long a call that was told to stop may take to do so.
const STOP_WITHIN: Duration = Duration::from_millis(500);

/// A call that is made.
pub(super) struct Job<'a> {
    agent: &'a Inner,
    driver: &'a Driver,
    parallel: Arc<Semaphore>,
    ready: Ready,
}

/// A call and what came of it.
pub(super) struct Made {
    pub(super) ready: Ready,
    pub(super) performed: Result<Performed>,
}

/// How a try ended, before it is recorded.
enum Ended {
    Returned(Result<ToolOutput, ToolError>),
    Panicked(String),
    TimedOut(Duration),
    Stopped,
}

impl<'a> Job<'a> {
    pub(super) fn new(agent: &'a Inner, driver: &'a Driver, parallel: Arc<Semaphore>, ready: Ready) -> Self {
        Self { agent, driver, parallel, ready }
    }

    /// Makes the call once there is room for it.
    pub(super) async fn run(self) -> Made {
        // Closed by nobody, so a permit always comes.
        let _any = Arc::clone(&self.parallel).acquire_owned().await;
        let _this = match &self.ready.entry.permits {
            Some(permits) => Some(Arc::clone(permits).acquire_owned().await),
            None => None,
        };
        let performed = self.driver.perform(&self.ready.effect, |attempt| self.try_once(attempt)).await;
        Made { ready: self.ready, performed }
    }

    /// Asks the tool whether the call happened.
    pub(super) async fn check(&self) -> Option<Checked> {
        let context = self.context(self.driver.attempt(&self.ready.effect, 1));
        let (tool, arguments) = (Arc::clone(&self.ready.entry.tool), self.ready.call.arguments.clone());
        let task = Abandoned(tokio::spawn(async move { tool.check(&context, &arguments).await }));
        let timeout = self.ready.entry.tool.options().timeout.unwrap_or(Duration::MAX);
        let checked = tokio::time::timeout(timeout, task).await;
        checked.ok()?.ok()?.ok()
    }

    fn context(&self, attempt: Attempt) -> ToolContext {
        ToolContext::new(self.driver.clone(), self.ready.effect.id.clone(), self.ready.call.id.clone(), attempt)
    }

    async fn try_once(&self, attempt: Attempt) -> Tried {
        let cancel = attempt.cancel.clone();
        let ended = self.call(attempt).await;
        match self.tried(ended, cancel.is_cancelled()).await {
            Ok(tried) => tried,
            // The tool has come back: what it did is done, whatever is wrong with what it said.
            Err(error) => {
                let text = format!("what the tool gave back cannot be recorded: {error}");
                let result = Message::tool(ToolResult::failed(&self.ready.call, &text)).to_json();
                Tried::Failed { value: result.unwrap_or_else(|_| Json::null()), error: text }
            }
        }
    }

    /// Runs the tool in a task of its own, so that neither a panic nor a busy loop is ours.
    async fn call(&self, attempt: Attempt) -> Ended {
        let cancel = attempt.cancel.clone();
        let context = self.context(attempt);
        let (tool, arguments, inside) =
            (Arc::clone(&self.ready.entry.tool), self.ready.call.arguments.clone(), context.clone());
        let mut task = Abandoned(tokio::spawn(async move { tool.call(&inside, &arguments).await }));
        let timeout = self.ready.entry.tool.options().timeout;
        tokio::select! {
            joined = &mut task => ended(joined),
            () = tokio::time::sleep(timeout.unwrap_or_default()), if timeout.is_some() => {
                context.cancel();
                Ended::TimedOut(timeout.unwrap_or_default())
            }
            () = cancel.cancelled() => match tokio::time::timeout(STOP_WITHIN, &mut task).await {
                Ok(joined) => ended(joined),
                Err(_) => Ended::Stopped,
            },
        }
    }

    async fn tried(&self, ended: Ended, told_to_stop: bool) -> Result<Tried> {
        Ok(match ended {
            Ended::Returned(Ok(output)) => return self.output(output).await,
            // A tool that was told to stop says so in its own way; what it says is no result.
            Ended::Returned(Err(_)) | Ended::Stopped if told_to_stop => return self.stopped().await,
            Ended::Returned(Err(error)) => {
                let ToolError { message, retry } = shortened(error);
                let value = self.failure(&message).await?;
                match retry {
                    true => Tried::Passing { value, error: message, after: None },
                    false => Tried::Failed { value, error: message },
                }
            }
            Ended::Panicked(text) => self.panicked(&text).await?,
            Ended::TimedOut(after) => self.timed_out(after).await?,
            Ended::Stopped => return self.stopped().await,
        })
    }

    /// How far a tool came that panicked, nobody knows.
    async fn panicked(&self, text: &str) -> Result<Tried> {
        let error = shortened(ToolError::failed(format!("the tool panicked: {text}"))).message;
        Ok(match self.ready.effect.policy {
            InDoubtPolicy::ReplaySafe | InDoubtPolicy::Idempotent => {
                Tried::Failed { value: self.failure(&error).await?, error }
            }
            _ => Tried::InDoubt { error },
        })
    }

    /// A call that did not come back in time may have happened.
    async fn timed_out(&self, after: Duration) -> Result<Tried> {
        let error = format!("the tool did not come back within {after:?}");
        let passing = |value, error| Tried::Passing { value, error, after: None };
        Ok(match self.ready.effect.policy {
            InDoubtPolicy::ReplaySafe | InDoubtPolicy::Idempotent => passing(self.failure(&error).await?, error),
            _ => Tried::InDoubt { error },
        })
    }

    /// A call that was stopped: made again after a pause, given up otherwise.
    async fn stopped(&self) -> Result<Tried> {
        if self.driver.stopping() == Some(Stop::Pause) {
            return Ok(Tried::Open { records: Vec::new(), waits_for: "the run is to stop".into() });
        }
        let error = "the call was stopped".to_owned();
        if self.ready.effect.policy == InDoubtPolicy::ReplaySafe {
            return Ok(Tried::Cancelled { value: self.failure(&error).await?, error });
        }
        Ok(Tried::InDoubt { error: format!("{error} and may have happened") })
    }

    async fn output(&self, output: ToolOutput) -> Result<Tried> {
        let value = match output.reply {
            Reply::Value(value) => value,
            Reply::Suspend(waits_for) => return Ok(Tried::Suspended { waits_for }),
            Reply::Wait(spec) => {
                let step = self.ready.effect.step.as_deref().and_then(|step| step.parse().ok()).unwrap_or(0);
                let id = Some(self.ready.effect.id.clone());
                let (_, records) = self.driver.opening(&spec, id, WaitPurpose::Result, step).await?;
                return Ok(Tried::Open { records, waits_for: spec.prompt });
            }
        };
        let limit = self.ready.entry.tool.options().max_result_bytes;
        if value.as_str().len() > limit {
            let error = too_large(&value, limit);
            return Ok(Tried::Failed { value: self.failure(&error).await?, error });
        }
        check_value(&value, self.driver.limits())?;
        let mut extra = Extra::new();
        let result = ToolResult { terminate: output.terminate.clone(), ..ToolResult::new(&self.ready.call, value) };
        if let Some(reason) = output.terminate {
            extra.insert("terminate".into(), reason.into());
        }
        let mut records: Vec<Record> = Vec::new();
        for (key, value) in output.remember {
            check_value(&value, self.driver.limits())?;
            records.push(RegisterSet::new(register(&format!("{MEMORY}{key}"))?, value).into());
        }
        Ok(Tried::Ok { value: self.message(result).await?, usage: Usage::default(), records, extra })
    }

    async fn failure(&self, error: &str) -> Result<Json> {
        self.message(ToolResult::failed(&self.ready.call, error)).await
    }

    /// The result as the message that goes into the conversation.
    async fn message(&self, mut result: ToolResult) -> Result<Json> {
        for middleware in &self.agent.middleware {
            // The call has happened: whatever fails behind it, that must go on record.
            if let Err(error) = middleware.after_tool(&self.ready.call, &mut result).await {
                let text = format!("middleware `{}` failed on the result: {error}", middleware.name());
                result = ToolResult::failed(&self.ready.call, &text);
                break;
            }
        }
        let message = Message::tool(result).with_id(self.driver.engine().journal().ids(), self.driver.now());
        message.to_json()
    }
}

fn ended(joined: std::result::Result<Result<ToolOutput, ToolError>, JoinError>) -> Ended {
    match joined {
        Ok(returned) => Ended::Returned(returned),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => Ended::Panicked(panic_text(panic.as_ref()).to_owned()),
            Err(_) => Ended::Stopped,
        },
    }
}

fn too_large(value: &Json, limit: usize) -> String {
    let start: String = value.as_str().chars().take(500).collect();
    format!(
        "the result has {} bytes, more than the {limit} that are kept; it begins with {start}",
        value.as_str().len()
    )
}

/// An error text that fits into a record.
fn shortened(mut error: ToolError) -> ToolError {
    const LONGEST: usize = 8 << 10;
    if error.message.len() > LONGEST {
        let start: String = error.message.chars().take(LONGEST / 4).collect();
        error.message = format!("{start} … ({} bytes in all)", error.message.len());
    }
    error
}

/// A task that is aborted when nobody waits for it any more.
struct Abandoned<T>(JoinHandle<T>);

impl<T> Future for Abandoned<T> {
    type Output = std::result::Result<T, JoinError>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for Abandoned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
