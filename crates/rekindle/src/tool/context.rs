//! What a tool is given beside its arguments.

use std::sync::Arc;

use rekindle_core::record::Usage;
use rekindle_core::{CheckpointId, EffectId, Epoch, Json, Result, SessionKey, State};
use tokio_util::sync::CancellationToken;

use crate::driver::{Attempt, Driver, NewCheckpoint};
use crate::event::LiveKind;
use crate::memory::MemoryView;
use crate::secret::{Given, Secret};
use crate::tool::HeldLease;

/// What a tool is given beside its arguments. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ToolContext {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    driver: Driver,
    effect: EffectId,
    call: String,
    attempt: Attempt,
    cancel: CancellationToken,
    memory: MemoryView,
}

impl ToolContext {
    pub(crate) fn new(driver: Driver, effect: EffectId, call: String, attempt: Attempt, memory: MemoryView) -> Self {
        let cancel = attempt.cancel.child_token();
        Self { inner: Arc::new(Inner { driver, effect, call, attempt, cancel, memory }) }
    }

    /// The session.
    pub fn session(&self) -> &SessionKey {
        self.inner.driver.session()
    }

    /// The engine, for tools that drive other sessions.
    pub fn engine(&self) -> &crate::Engine {
        self.inner.driver.engine()
    }

    /// The effect the call is on record as.
    pub fn effect(&self) -> &EffectId {
        &self.inner.effect
    }

    /// The provider's id of the call.
    pub fn call_id(&self) -> &str {
        &self.inner.call
    }

    /// Which try this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.inner.attempt.number
    }

    /// The same over retries and resumes, another on a fork: hand it to whatever can ignore a
    /// second request with the same key.
    pub fn idempotency_key(&self) -> &str {
        &self.inner.attempt.idempotency_key
    }

    /// The generation of the lease: hand it to whatever can refuse an older one.
    pub fn fence(&self) -> Epoch {
        self.inner.attempt.fence
    }

    /// The lease that the call is made under. A tool whose work goes on in another process ends that
    /// work when this lease ends: another owner may make the call then.
    pub fn lease(&self) -> HeldLease {
        HeldLease::new(self.inner.driver.follow_lease())
    }

    /// Resolves when the result is no longer wanted.
    pub async fn cancelled(&self) {
        self.inner.cancel.cancelled().await;
    }

    /// Whether the result is no longer wanted.
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancel.is_cancelled()
    }

    /// A key of the session's memory. Inside a graph, an error if the node does not declare that
    /// it reads it.
    pub async fn memory(&self, key: &str) -> Result<Option<Json>> {
        self.inner.driver.read(|state| self.inner.memory.read(state, key)).await
    }

    /// The value of a secret that was given by reference.
    pub async fn secret(&self, name: &str) -> Result<Secret> {
        self.inner.driver.secret(name).await
    }

    /// The secrets the run was given, for the runs of child sessions.
    pub(crate) fn given(&self) -> Vec<(String, Given)> {
        self.inner.driver.given().named().to_vec()
    }

    /// What was charged to the session for earlier calls that were carried out in `child`.
    pub(crate) async fn charged_for(&self, child: &SessionKey) -> Vec<Usage> {
        let charged = |state: &State| {
            let calls = state.effects().filter(|effect| effect.intent.child.as_ref() == Some(child));
            calls.filter_map(|effect| effect.outcome.as_ref()).map(|outcome| outcome.usage).collect()
        };
        self.inner.driver.read(charged).await
    }

    /// Marks where the session is now.
    pub async fn checkpoint(&self, description: &str) -> Result<CheckpointId> {
        self.inner.driver.checkpoint(NewCheckpoint::manual(description)).await
    }

    /// Tells whoever listens how far the call is. Not stored.
    pub fn progress(&self, value: Json) {
        self.inner.driver.say(|| LiveKind::Progress { effect: self.inner.effect.to_string(), value });
    }

    /// Keeps a part of what the call produces, so that it can be seen while the call goes on and
    /// after a crash. It is never taken for the result.
    pub async fn keep_partial(&self, value: Json) -> Result<()> {
        self.inner.driver.partial(&self.inner.effect, self.inner.attempt.number, value).await
    }

    /// Whether the run stays while it waits.
    pub(crate) fn holds(&self) -> bool {
        self.inner.driver.options().on_wait == crate::driver::OnWait::Hold
    }

    /// Whether the run is to end for good.
    pub(crate) fn is_cancelling(&self) -> bool {
        self.inner.driver.stopping() == Some(crate::driver::Stop::Cancel)
    }

    /// Repeats what a child does while the store is away, as long as this run would.
    pub(crate) async fn insist<T, F, Fut>(&self, work: F) -> Result<T>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        self.inner.driver.insist(work).await
    }

    pub(crate) fn cancel(&self) {
        self.inner.cancel.cancel();
    }
}
