//! One call of a tool: permits, tries, timeout, cancellation, panics, and what came of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rekindle_core::record::{InDoubtPolicy, Usage};
use rekindle_core::{Json, Result};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinHandle};

use super::{Ended, RETURNED, Ready, Shape};
use crate::driver::{Attempt, Driver, Performed, Recorded, Stop, Tried, WaitPurpose, check_value, panic_text};
use crate::event::LiveKind;
use crate::message::ToolResult;
use crate::tool::{Checked, Leftovers, Reply, ToolContext, ToolError, ToolOutput, Verdict};

/// How long a call that was told to stop may take to do so.
const STOP_WITHIN: Duration = Duration::from_millis(500);

/// Time a tool may take to end what is left of earlier tries.
const END_WITHIN: Duration = Duration::from_secs(60);

/// After so long, others can see that the call was begun.
const SHOW_AFTER: Duration = Duration::from_millis(100);

/// A call that is made.
pub(crate) struct Job<'a> {
    driver: &'a Driver,
    shape: Arc<dyn Shape + 'a>,
    parallel: Arc<Semaphore>,
    ready: Ready,
    began: Instant,
}

/// A call and what came of it.
pub(crate) struct Made {
    pub(crate) ready: Ready,
    pub(crate) performed: Result<Performed>,
}

/// How a try ended.
enum Left {
    Returned(Result<ToolOutput, ToolError>),
    Panicked(String),
    TimedOut(Duration),
    Stopped,
}

impl<'a> Job<'a> {
    pub(super) fn new(driver: &'a Driver, shape: Arc<dyn Shape + 'a>, parallel: Arc<Semaphore>, ready: Ready) -> Self {
        Self { driver, shape, parallel, ready, began: Instant::now() }
    }

    /// Makes the call once there is room for it.
    pub(crate) async fn run(mut self) -> Made {
        // Closed by nobody, so a permit always comes.
        let _any = Arc::clone(&self.parallel).acquire_owned().await;
        let _this = match &self.ready.entry.permits {
            Some(permits) => Some(Arc::clone(permits).acquire_owned().await),
            None => None,
        };
        self.began = Instant::now();
        let performed = self.perform().await;
        Made { ready: self.ready, performed }
    }

    /// Makes the call. If it takes its time, what was staged is committed meanwhile, so that others
    /// can see what the run is doing.
    async fn perform(&self) -> Result<Performed> {
        let performing = self.driver.perform_decided(&self.ready.effect, |attempt| self.try_once(attempt));
        let showing = async {
            tokio::time::sleep(SHOW_AFTER).await;
            self.driver.commit_staged().await
        };
        tokio::pin!(performing, showing);
        let mut shown = !self.ready.effect.defer_intent;
        loop {
            tokio::select! {
                biased;
                performed = &mut performing => return performed,
                // If that fails, so does what follows; the call must come to its end.
                _ = &mut showing, if !shown => shown = true,
            }
        }
    }

    /// Asks the tool whether the call happened, by the key it was made with if that is not its own; why it could not
    /// tell, if it failed.
    pub(super) async fn check(&self, key: Option<String>) -> Result<Checked, String> {
        let mut attempt = self.driver.attempt(&self.ready.effect, 1);
        attempt.idempotency_key = key.unwrap_or(attempt.idempotency_key);
        let context = self.context(attempt);
        let (tool, arguments) = (Arc::clone(&self.ready.entry.tool), self.ready.call.arguments.clone());
        let task = Abandoned(tokio::spawn(async move { tool.check(&context, &arguments).await }));
        match tokio::time::timeout(self.ready.timeout.unwrap_or(Duration::MAX), task).await {
            Ok(Ok(Ok(checked))) => Ok(checked),
            Ok(Ok(Err(error))) => Err(shortened(error).message),
            Ok(Err(_)) => Err("it panicked".to_owned()),
            Err(_) => Err("it took too long".to_owned()),
        }
    }

    /// Has the tool end what earlier tries left running, and waits for that. Tells what still runs.
    pub(super) async fn end_leftovers(&self) -> Leftovers {
        let context = self.context(self.driver.attempt(&self.ready.effect, 1));
        let (tool, arguments) = (Arc::clone(&self.ready.entry.tool), self.ready.call.arguments.clone());
        let task = Abandoned(tokio::spawn(async move { tool.end_leftovers(&context, &arguments).await }));
        let unknown = |why: String| Leftovers { running: vec![format!("what is left cannot be told: {why}")] };
        match tokio::time::timeout(END_WITHIN, task).await {
            Ok(Ok(Ok(leftovers))) => leftovers,
            Ok(Ok(Err(error))) => unknown(shortened(error).message),
            Ok(Err(_)) => unknown("the tool panicked".to_owned()),
            Err(_) => unknown(format!("it took longer than {END_WITHIN:?}")),
        }
    }

    /// Tells whoever watches what could not be ended.
    pub(super) fn notice(&self, leftovers: &Leftovers) {
        if !leftovers.is_none() {
            let text = format!("`{}`: still running from an earlier try: {}", self.ready.call.name, leftovers.text());
            self.driver.say(|| LiveKind::Notice(text));
        }
    }

    fn context(&self, attempt: Attempt) -> ToolContext {
        let (effect, call) = (self.ready.effect.id.clone(), self.ready.call.id.clone());
        ToolContext::new(self.driver.clone(), effect, call, attempt, self.shape.memory())
    }

    async fn try_once(&self, attempt: Attempt) -> Tried {
        let cancel = attempt.cancel.clone();
        let left = self.call(attempt).await;
        if !matches!(left, Left::Returned(_)) {
            // The next try, the policy, and another owner must not meet this one still at work.
            self.notice(&self.end_leftovers().await);
        }
        match self.tried(left, cancel.is_cancelled()).await {
            Ok(tried) => tried,
            // The tool has come back: what it did is done, whatever is wrong with what it said.
            Err(error) => {
                let error =
                    shortened(ToolError::failed(format!("what the tool gave back cannot be recorded: {error}")));
                let recorded = self.failure(&error.message).await.unwrap_or_else(|_| Json::null().into());
                Tried::Failed { recorded: returned(recorded), error: error.message }
            }
        }
    }

    /// Runs the tool in a task of its own, so that neither a panic nor a busy loop is ours.
    async fn call(&self, attempt: Attempt) -> Left {
        let cancel = attempt.cancel.clone();
        let context = self.context(attempt);
        let (tool, arguments, inside) =
            (Arc::clone(&self.ready.entry.tool), self.ready.call.arguments.clone(), context.clone());
        let mut task = Abandoned(tokio::spawn(async move { tool.call(&inside, &arguments).await }));
        let timeout = self.ready.timeout;
        tokio::select! {
            joined = &mut task => left(joined),
            () = tokio::time::sleep(timeout.unwrap_or_default()), if timeout.is_some() => {
                context.cancel();
                Left::TimedOut(timeout.unwrap_or_default())
            }
            () = cancel.cancelled() => match tokio::time::timeout(STOP_WITHIN, &mut task).await {
                Ok(joined) => left(joined),
                Err(_) => Left::Stopped,
            },
        }
    }

    async fn tried(&self, left: Left, told_to_stop: bool) -> Result<Tried> {
        Ok(match left {
            Left::Returned(Ok(output)) => return self.output(output).await,
            // A tool that was told to stop says so in its own way; what it says is no result.
            Left::Returned(Err(_)) | Left::Stopped if told_to_stop => return self.stopped().await,
            Left::Returned(Err(error)) => {
                let ToolError { message, verdict, usage } = shortened(error);
                let recorded = Recorded { usage, ..self.failure(&message).await? };
                self.spend(usage).await;
                verdict.tried(self.ready.effect.policy, recorded, message)
            }
            Left::Panicked(text) => self.panicked(&text).await?,
            Left::TimedOut(after) => self.timed_out(after).await?,
            Left::Stopped => return self.stopped().await,
        })
    }

    /// How far a tool came that panicked, nobody knows.
    async fn panicked(&self, text: &str) -> Result<Tried> {
        let error = shortened(ToolError::failed(format!("the tool panicked: {text}"))).message;
        Ok(match self.ready.effect.policy {
            InDoubtPolicy::ReplaySafe | InDoubtPolicy::Idempotent => {
                Tried::Failed { recorded: self.failure(&error).await?, error }
            }
            _ => Tried::InDoubt { error },
        })
    }

    /// A call that did not come back in time may have happened.
    async fn timed_out(&self, after: Duration) -> Result<Tried> {
        let error = format!("the tool did not come back within {after:?}");
        Ok(Verdict::InDoubt.tried(self.ready.effect.policy, self.failure(&error).await?, error))
    }

    /// A call that was stopped: made again after a pause, given up otherwise, by itself or with the
    /// whole turn.
    async fn stopped(&self) -> Result<Tried> {
        let stays_open = match self.driver.stopping() {
            Some(Stop::Pause) => true,
            Some(Stop::Interrupt | Stop::Cancel) => !self.shape.closes_interrupted(),
            _ => false,
        };
        if stays_open {
            return Ok(Tried::Open { records: Vec::new(), waits_for: "the run is to stop".into() });
        }
        let error = "the call was stopped".to_owned();
        if self.ready.effect.policy == InDoubtPolicy::ReplaySafe {
            return Ok(Tried::Cancelled { recorded: self.failure(&error).await?, error });
        }
        Ok(Tried::InDoubt { error: format!("{error} and may have happened") })
    }

    async fn output(&self, output: ToolOutput) -> Result<Tried> {
        let value = match output.reply {
            Reply::Value(value) => value,
            Reply::Suspend(waits_for) => return Ok(Tried::Suspended { waits_for }),
            Reply::Wait(spec) => {
                let (id, before) = (self.ready.effect.id.clone(), self.ready.before_wait(self.shape.as_ref()));
                let (_, records) = self.driver.opening(&spec, Some(id), WaitPurpose::Result, before).await?;
                return Ok(Tried::Open { records, waits_for: spec.prompt });
            }
        };
        let limit = self.ready.entry.tool.options().max_result_bytes;
        if value.as_str().len() > limit {
            let error = too_large(&value, limit);
            return Ok(Tried::Failed { recorded: returned(self.failure(&error).await?), error });
        }
        check_value(&value, self.driver.limits())?;
        for (_, value) in &output.remember {
            check_value(value, self.driver.limits())?;
        }
        let result = ToolResult { terminate: output.terminate.clone(), ..ToolResult::new(&self.ready.call, value) };
        let (remember, usage) = (output.remember, output.usage);
        let ended = Ended { remember, usage, took: self.began.elapsed(), ..Ended::new(result) };
        let mut recorded = self.shape.record(self.driver, &self.ready, ended).await?;
        self.driver.check_fits(&recorded.records)?;
        recorded.usage = usage;
        if let Some(reason) = output.terminate {
            recorded.extra.insert("terminate".into(), reason.into());
        }
        self.spend(usage).await;
        Ok(Tried::Ok(recorded))
    }

    async fn spend(&self, usage: Usage) {
        if usage != Usage::default() {
            self.driver.spend(usage.into()).await;
        }
    }

    async fn failure(&self, error: &str) -> Result<Recorded> {
        let result = ToolResult::failed(&self.ready.call, error);
        let ended = Ended { took: self.began.elapsed(), ..Ended::new(result) };
        self.shape.record(self.driver, &self.ready, ended).await
    }
}

fn left(joined: std::result::Result<Result<ToolOutput, ToolError>, JoinError>) -> Left {
    match joined {
        Ok(returned) => Left::Returned(returned),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => Left::Panicked(panic_text(panic.as_ref()).to_owned()),
            Err(_) => Left::Stopped,
        },
    }
}

/// The mark of a call that came back, although what it gave back could not be taken: it happened.
fn returned(mut recorded: Recorded) -> Recorded {
    recorded.extra.insert(RETURNED.into(), true.into());
    recorded
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
