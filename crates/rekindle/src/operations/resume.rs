//! Starting and resuming runs. Who drives them is the caller's choice.

use std::sync::Arc;

use rekindle_core::{Error, Result, SessionKey};

use crate::driver::{self, ResumeOptions, RunHandle, RunOptions};
use crate::engine::Engine;
use crate::executor::{Executor, Input};

/// Starts a turn with `input`: messages for an agent, a value for everything else. `Unfinished` if a run is not
/// finished: the error names the way to go on.
pub async fn start(
    engine: &Engine,
    session: &SessionKey,
    executor: Arc<dyn Executor>,
    input: Input,
    run: RunOptions,
    options: ResumeOptions,
) -> Result<RunHandle> {
    if !input.is_new() {
        let error = Error::invalid("a turn needs an input").hint("give one, or resume the session");
        return Err(error.during("start").on(session));
    }
    driver::start(engine, session, executor, input, run, options).await
}

/// Goes on with an unfinished run or, if a message waits in the inbox and nothing is unfinished,
/// starts a turn with it. `NotResumable` if there is neither.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::core::record::InboxMode;
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
    driver::start(engine, session, executor, Input::Resume, run, options).await
}
