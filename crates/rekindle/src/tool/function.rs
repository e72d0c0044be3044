//! Tools made of functions with typed arguments.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use rekindle_core::Json;
use rekindle_core::record::InDoubtPolicy;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::{Approval, Checked, IntoOutput, Retries, Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};

type Call<A> = dyn Fn(ToolContext, A) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync;
type Check<A> = dyn Fn(ToolContext, A) -> BoxFuture<'static, Result<Checked, ToolError>> + Send + Sync;

/// A tool made of a function: see [`tool`].
pub struct FnTool<A> {
    spec: ToolSpec,
    options: ToolOptions,
    call: Box<Call<A>>,
    check: Option<Box<Check<A>>>,
    arguments: PhantomData<fn(A)>,
}

/// A tool made of a function. Its arguments are any type with a JSON Schema; the schema comes
/// from the type, and what does not fit never reaches the function.
///
/// ```
/// use rekindle::schemars::{self, JsonSchema};
/// use rekindle::tool::{ToolError, tool};
///
/// #[derive(serde::Deserialize, JsonSchema)]
/// struct Transfer {
///     /// The account that receives the money.
///     to: String,
///     cents: u64,
/// }
///
/// let transfer = tool("transfer", "Moves money.", async |call, transfer: Transfer| {
///     // The bank ignores a second transfer with the same key.
///     let key = call.idempotency_key();
///     Ok(format!("{} cents to {} under {key}", transfer.cents, transfer.to))
/// })
/// .writes()
/// .idempotent();
/// # let _ = transfer;
/// ```
///
/// A function that uses a client or a pool clones it for each call, since calls run in parallel.
/// Work that blocks belongs into `tokio::task::spawn_blocking`: a blocked runtime can neither keep
/// to timeouts nor renew the session's lease.
///
/// ```
/// # use rekindle::schemars::{self, JsonSchema};
/// # use rekindle::tool::tool;
/// # #[derive(serde::Deserialize, JsonSchema)]
/// # struct Query { text: String }
/// # let pool = std::sync::Arc::new(String::new());
/// let search = tool("search", "Searches.", move |_, query: Query| {
///     let pool = pool.clone();
///     async move { Ok(format!("{} of {}", query.text, pool)) }
/// });
/// # let _ = search;
/// ```
pub fn tool<A, F, Fut, T>(name: impl Into<String>, description: impl Into<String>, call: F) -> FnTool<A>
where
    A: JsonSchema + DeserializeOwned + Send + 'static,
    F: Fn(ToolContext, A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, ToolError>> + Send + 'static,
    T: IntoOutput,
{
    let parameters = Json::from(schemars::schema_for!(A).to_value());
    let spec = ToolSpec { name: name.into(), description: description.into(), parameters, version: None };
    let call: Box<Call<A>> = Box::new(move |context, arguments| {
        let result = call(context, arguments);
        Box::pin(async move { result.await?.into_output() })
    });
    FnTool { spec, options: ToolOptions::default(), call, check: None, arguments: PhantomData }
}

impl<A> FnTool<A> {
    /// It changes something outside. Unless more is said, a call that was under way when its
    /// process died is put before a person.
    #[must_use]
    pub fn writes(mut self) -> Self {
        self.options.writes = true;
        self
    }

    /// Calling it again is harmless.
    #[must_use]
    pub fn replay_safe(self) -> Self {
        self.in_doubt(InDoubtPolicy::ReplaySafe)
    }

    /// Calling it again with the same idempotency key is harmless.
    #[must_use]
    pub fn idempotent(self) -> Self {
        self.in_doubt(InDoubtPolicy::Idempotent)
    }

    /// It must never be called again: a call in doubt fails the step.
    #[must_use]
    pub fn never_again(self) -> Self {
        self.in_doubt(InDoubtPolicy::Never)
    }

    /// What to do with a call that was under way when its process died.
    #[must_use]
    pub fn in_doubt(mut self, policy: InDoubtPolicy) -> Self {
        self.options.in_doubt = Some(policy);
        self
    }

    /// How to find out whether a call happened.
    #[must_use]
    pub fn check<F, Fut>(mut self, check: F) -> Self
    where
        F: Fn(ToolContext, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Checked, ToolError>> + Send + 'static,
    {
        self.check = Some(Box::new(move |context, arguments| Box::pin(check(context, arguments))));
        self.in_doubt(InDoubtPolicy::Check)
    }

    /// How long one try may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// How passing failures are tried again.
    #[must_use]
    pub fn retries(mut self, retries: Retries) -> Self {
        self.options.retries = retries;
        self
    }

    /// How many calls of it run at once.
    #[must_use]
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.options.concurrency = Some(calls.max(1));
        self
    }

    /// Its calls wait for the calls before them, and the calls after it for them.
    #[must_use]
    pub fn sequential(mut self) -> Self {
        self.options.sequential = true;
        self
    }

    /// A person must agree to each call.
    #[must_use]
    pub fn needs_approval(mut self, approval: Approval) -> Self {
        self.options.approval = Some(approval);
        self
    }

    /// A checkpoint is made before it when checkpoints are `smart`.
    #[must_use]
    pub fn risky(mut self) -> Self {
        self.options.risky = true;
        self
    }

    /// The largest result, in bytes of JSON.
    #[must_use]
    pub fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.options.max_result_bytes = bytes;
        self
    }

    /// Its version; a change is drift.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.spec.version = Some(version.into());
        self
    }
}

#[async_trait]
impl<A: DeserializeOwned + Send + 'static> Tool for FnTool<A> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn options(&self) -> &ToolOptions {
        &self.options
    }

    async fn call(&self, context: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        (self.call)(context.clone(), decode(arguments)?).await
    }

    async fn check(&self, context: &ToolContext, arguments: &Json) -> Result<Checked, ToolError> {
        match &self.check {
            Some(check) => check(context.clone(), decode(arguments)?).await,
            None => Ok(Checked::Unknown),
        }
    }
}

fn decode<A: DeserializeOwned>(arguments: &Json) -> Result<A, ToolError> {
    let decoded = serde_json::from_str(arguments.as_str());
    decoded.map_err(|error| ToolError::failed(format!("the arguments do not fit: {error}")))
}

impl<A> fmt::Debug for FnTool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnTool").field("spec", &self.spec).field("options", &self.options).finish_non_exhaustive()
    }
}
