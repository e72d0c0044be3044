//! Starting and resuming runs. Who drives them is the caller's choice.

use std::sync::Arc;

use rekindle_core::{Error, Result, SessionKey};

use crate::driver::{self, ResumeOptions, RunHandle, RunOptions};
use crate::engine::Engine;
use crate::executor::Executor;
use crate::message::Message;

/// Starts a turn with `messages`. `Unfinished` if a run is not finished: the error says how to go
/// on.
pub async fn start(
    engine: &Engine,
    session: &SessionKey,
    executor: Arc<dyn Executor>,
    messages: Vec<Message>,
    run: RunOptions,
    options: ResumeOptions,
) -> Result<RunHandle> {
    if messages.is_empty() {
        let error = Error::invalid("a turn needs a message").hint("give one, or resume the session");
        return Err(error.during("start").on(session));
    }
    driver::start(engine, session, executor, messages, run, options).await
}

/// Goes on with an unfinished run or, if a message waits in the inbox and nothing is unfinished,
/// starts a turn with it. `NotResumable` if there is neither.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::record::InboxMode;
/// use rekindle::{Agent, Engine, ResumeOptions, operations};
/// use rekindle_models::{Script, ScriptedModel};
///
/// let agent = Agent::builder("greeter", ScriptedModel::new(Script::new("demo").text("hello"))).build()?;
/// let engine = Engine::memory()?;
/// let session = engine.create("talk").await?;
/// operations::send(&engine, session.key(), "hi".into(), InboxMode::Queue, "maria", None).await?;
/// let options = (agent.options().clone(), ResumeOptions::new("maria"));
/// let run = operations::resume(&engine, session.key(), agent.executor(), options.0, options.1).await?;
/// assert_eq!(run.report().await?.text(), "hello");
/// # Ok(()) }
/// ```
pub async fn resume(
    engine: &Engine,
    session: &SessionKey,
    executor: Arc<dyn Executor>,
    run: RunOptions,
    options: ResumeOptions,
) -> Result<RunHandle> {
    driver::start(engine, session, executor, Vec::new(), run, options).await
}
