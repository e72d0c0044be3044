//! What the body of a flow works with: durable steps and waits.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rekindle_core::record::{EffectOutcome, InDoubtPolicy, OutcomeStatus, Usage};
use rekindle_core::{EffectId, Error, ErrorKind, Json, Record, Result, State};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::driver::{
    Attempt, Driver, Effect, Known, NewCheckpoint, OnWait, Performed, Recorded, Tried, WaitPurpose, shortened,
};
use crate::executor::call::{DecidedBy, lost};
use crate::tool::{Retries, ToolError};
use crate::wait::{Verdict, WaitSpec};

/// What a flow works with. Cheap to clone; steps may run at the same time.
#[derive(Clone, Debug)]
pub struct FlowContext {
    pub(super) driver: Driver,
    pub(super) turn: u64,
    /// How often steps are made anew, because they had failed the flow.
    pub(super) anew: Arc<BTreeMap<String, u32>>,
    pub(super) shared: Arc<Progress>,
}

/// How far the body is, as its run sees it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    inner: Mutex<ProgressInner>,
    /// Something changed that may mean that nothing can go on.
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
pub(super) struct ProgressInner {
    names: HashSet<String>,
    /// Steps under way.
    pub(super) running: usize,
    /// The last step that failed.
    pub(super) failed: Option<String>,
    /// What the body waits for; it stands still there.
    pub(super) waits: Option<String>,
    /// The run is to stop, and the body stands still.
    pub(super) stopped: bool,
}

impl Progress {
    pub(super) fn inner(&self) -> MutexGuard<'_, ProgressInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body stands still here, for the rest of this run.
    async fn stand_still<T>(&self, running: Running, note: impl FnOnce(&mut ProgressInner)) -> T {
        note(&mut self.inner());
        drop(running);
        std::future::pending().await
    }
}

/// Something the body does through its context: until it has ended, the run cannot end.
struct Running(Arc<Progress>);

impl Running {
    fn begin(progress: &Arc<Progress>) -> Self {
        progress.inner().running += 1;
        Self(Arc::clone(progress))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.inner().running -= 1;
        self.0.changed.notify_one();
    }
}

impl FlowContext {
    /// Runs `work` once and records its result; when the flow runs again, gives back what was
    /// recorded. Any error fails the step; [`ToolError::retry`] says that it did not happen and is
    /// tried again. If a failed step fails the flow, a resume makes that step anew. The intent is on disk before it starts; if the process dies meanwhile, it runs
    /// again with the same idempotency key.
    pub async fn step<I, T, F, Fut>(&self, name: &str, input: &I, work: F) -> Result<T>
    where
        I: Serialize + ?Sized,
        T: Serialize + DeserializeOwned,
        F: Fn(Attempt) -> Fut,
        Fut: Future<Output = Result<T, ToolError>>,
    {
        self.step_with(name, input, InDoubtPolicy::Idempotent, Retries::default(), work).await
    }

    /// The same, with what to do if the process dies meanwhile, and how failures that may pass
    /// are tried again.
    pub async fn step_with<I, T, F, Fut>(
        &self,
        name: &str,
        input: &I,
        policy: InDoubtPolicy,
        retries: Retries,
        work: F,
    ) -> Result<T>
    where
        I: Serialize + ?Sized,
        T: Serialize + DeserializeOwned,
        F: Fn(Attempt) -> Fut,
        Fut: Future<Output = Result<T, ToolError>>,
    {
        let running = Running::begin(&self.shared);
        let effect = self.effect(name, Json::of(input)?, policy, retries)?;
        self.check_doubt(&effect).await?;
        let _running = self.check_stop(running).await?;
        let tried = |attempt: Attempt| {
            let running = work(attempt);
            async move {
                let value = match running.await {
                    Ok(value) => Json::of(&value).map_err(ToolError::from),
                    Err(error) => Err(error),
                };
                match value {
                    Ok(value) => Tried::Ok(value.into()),
                    Err(ToolError { message, verdict, usage }) => {
                        if usage != Usage::default() {
                            self.driver.spend(usage.into()).await;
                        }
                        let recorded = Recorded { usage, ..Json::null().into() };
                        verdict.tried(policy, recorded, shortened(message))
                    }
                }
            }
        };
        match self.driver.perform_decided(&effect, tried).await? {
            Performed::Settled(outcome) => {
                let result = decode_outcome(name, outcome);
                if result.is_err() {
                    self.shared.inner().failed = Some(name.to_owned());
                }
                result
            }
            Performed::Open(why) | Performed::InDoubt(why) => Err(failed(name, &why)),
        }
    }

    /// Waits for a person, a signal or a time, over restarts.
    pub async fn wait(&self, name: &str, spec: &WaitSpec) -> Result<Json> {
        let mut running = Running::begin(&self.shared);
        let effect = self.effect(name, Json::from(spec.prompt.as_str()), InDoubtPolicy::ReplaySafe, Retries::none())?;
        loop {
            if let Known::Settled(outcome) = self.driver.known(&effect).await? {
                return decode_outcome(name, outcome);
            }
            match self.driver.wait_of(&effect.id).await {
                None => self.open_wait(&effect, spec).await?,
                Some(wait) => {
                    if let Some((verdict, closed)) = self.driver.verdict(&wait).await? {
                        self.close_wait(&effect, verdict, closed).await?;
                        continue;
                    }
                }
            }
            running = self.hold(running, name).await?;
        }
    }

    /// Sleeps, over restarts.
    pub async fn sleep(&self, name: &str, duration: Duration) -> Result<()> {
        self.wait(name, &WaitSpec::timer(duration)).await.map(drop)
    }

    /// Marks where the flow is now.
    pub async fn checkpoint(&self, description: &str) -> Result<rekindle_core::CheckpointId> {
        let _running = Running::begin(&self.shared);
        self.driver.checkpoint(NewCheckpoint::manual(description)).await
    }

    /// A key of the session's memory.
    pub async fn memory(&self, key: &str) -> Option<Json> {
        self.driver.memory(key).await
    }

    /// The value of a secret that was given by reference.
    pub async fn secret(&self, name: &str) -> Result<crate::Secret> {
        self.driver.secret(name).await
    }

    fn effect(&self, name: &str, input: Json, policy: InDoubtPolicy, retries: Retries) -> Result<Effect> {
        if !self.shared.inner().names.insert(name.to_owned()) {
            return Err(Error::invalid(format!("the flow has two steps named `{name}`"))
                .hint("give each step its own name, e.g. with a number in a loop"));
        }
        let first = EffectId::new(format!("f{}.{name}", self.turn))?;
        let id = match self.anew.get(name) {
            Some(times) => EffectId::new(format!("f{}.{name}~{times}", self.turn))?,
            None => first.clone(),
        };
        let effect = Effect::new(id, name, input)?.with_policy(policy).with_retries(retries);
        Ok(Effect { key_of: Some(first), step: Some(name.to_owned()), ..effect })
    }

    /// No step begins once the run is to stop.
    async fn check_stop(&self, running: Running) -> Result<Running> {
        match self.driver.proceed().await? {
            None => Ok(running),
            Some(_) => self.shared.stand_still(running, |progress| progress.stopped = true).await,
        }
    }

    async fn check_doubt(&self, effect: &Effect) -> Result<()> {
        let known = self.driver.known(effect).await?;
        let must_not = matches!(effect.policy, InDoubtPolicy::Never | InDoubtPolicy::Ask | InDoubtPolicy::Check);
        let (descriptor, before) = (self.driver.descriptor(), effect.key_of.as_ref());
        let is_lost = |state: &State| lost::is_lost(descriptor, state, effect, DecidedBy::Definition, before);
        let lost = self.driver.read(is_lost).await;
        let lost = lost && !matches!(known, Known::Settled(_));
        if lost && matches!(known, Known::New) {
            self.driver.commit(lost::in_doubt(&self.driver, effect, true, lost::WHY)).await?;
        }
        if lost || (matches!(known, Known::InDoubt(_)) && must_not) {
            let why = if lost { lost::WHY } else { "its outcome was not recorded" };
            let message = format!("nobody knows whether step `{}` happened: {why}", effect.name);
            let hint = format!("find out, then settle effect `{}` by hand and resume", effect.id);
            return Err(Error::new(ErrorKind::InDoubt, message).hint(hint));
        }
        Ok(())
    }

    async fn open_wait(&self, effect: &Effect, spec: &WaitSpec) -> Result<()> {
        let mut records = Vec::new();
        if matches!(self.driver.known(effect).await?, Known::New) {
            records.push(self.driver.intent(effect, 1).into());
        }
        let opening =
            self.driver.opening(spec, Some(effect.id.clone()), WaitPurpose::Result, NewCheckpoint::default()).await?;
        records.extend(opening.1);
        self.driver.commit(records).await
    }

    async fn close_wait(&self, effect: &Effect, verdict: Verdict, closed: Record) -> Result<()> {
        let (status, value) = match verdict {
            Verdict::Answered(value) => (OutcomeStatus::Ok, value),
            Verdict::Approved { arguments } => (OutcomeStatus::Ok, arguments.unwrap_or(Json::parse("true")?)),
            Verdict::Rejected { reason } => (OutcomeStatus::ToolError, Json::from(reason.as_str())),
            Verdict::Expired => (OutcomeStatus::ToolError, Json::from("nobody answered in time")),
        };
        let mut outcome = EffectOutcome::new(effect.id.clone(), status, Some(value.clone()));
        outcome.error = (status != OutcomeStatus::Ok).then(|| value.decode().unwrap_or_default());
        self.driver.commit(vec![closed, outcome.into()]).await
    }

    /// Stays until something happens, or has the run end until then. The body never hears of it.
    async fn hold(&self, running: Running, name: &str) -> Result<Running> {
        let stopping = self.driver.proceed().await?.is_some();
        if !stopping && self.driver.options().on_wait == OnWait::Hold {
            self.driver.hold().await?;
            self.driver.proceed().await?;
            return Ok(running);
        }
        let what = format!("the flow waits for `{name}`");
        let note = |progress: &mut ProgressInner| match stopping {
            true => progress.stopped = true,
            false => progress.waits = Some(what),
        };
        self.shared.stand_still(running, note).await
    }
}

fn decode_outcome<T: DeserializeOwned>(name: &str, outcome: EffectOutcome) -> Result<T> {
    match (outcome.status, outcome.value) {
        // A stored `null` comes back as nothing at all.
        (OutcomeStatus::Ok, value) => value.unwrap_or_else(Json::null).decode().map_err(|error| {
            Error::invalid(format!("the recorded result of step `{name}` is not what the flow expects now"))
                .because(error)
                .hint("give a step whose result changed a new name")
        }),
        _ => Err(failed(name, outcome.error.as_deref().unwrap_or("it did not succeed"))),
    }
}

fn failed(name: &str, why: &str) -> Error {
    Error::new(ErrorKind::StepFailed, format!("step `{name}` failed: {why}"))
}
