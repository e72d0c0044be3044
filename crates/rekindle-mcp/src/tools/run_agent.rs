//! `run_agent`.

use rekindle::operations::{self, Enqueue, EnqueuedJob};
use rekindle::{Error, MessageId, Result, RunId, SessionId, SessionKey};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::fields::blank_is_none;
use super::{Answer, Caller, Effect, Tool};
use crate::server::Core;
use crate::tasks::{self, RunView};

pub(super) struct RunAgent;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// What to run: an agent, a plan, a graph or a flow, by its name.
    agent: String,
    /// What it begins with: a text for an agent, its input for a plan, a graph or a flow.
    input: Value,
    /// The session it runs in; made if it is not there. A new one if left out.
    #[serde(default, alias = "sessionId", deserialize_with = "blank_is_none")]
    session_id: Option<String>,
    /// An id of your own for this input: calling again with the same one in the same session counts once.
    #[serde(default, alias = "messageId", deserialize_with = "blank_is_none")]
    message_id: Option<String>,
}

impl Tool for RunAgent {
    const NAME: &'static str = "run_agent";
    const TITLE: &'static str = "Run an agent";
    const DESCRIPTION: &'static str = "Starts an agent, a plan, a graph or a flow in a durable session. The run \
        survives crashes of this server. Gives a task or, to clients without tasks, the `run_id` and `session_id` \
        to ask `get_run` about.";
    const EFFECT: Effect = Effect::Runs;
    const NEEDS_AGENTS: bool = true;
    type Args = Args;
    type Output = RunView;

    async fn call(core: &Core, args: Args, caller: Caller) -> Result<Answer<RunView>> {
        let agents = core.agents.as_ref().ok_or_else(|| Error::invalid("nothing can be started by name here"))?;
        let session = session(core, args.session_id.as_deref())?;
        let header = agents.header(&args.agent, session)?;
        let input = agents.input(&args.agent, args.input)?;
        let message = args.message_id.map(MessageId::new).transpose()?;
        let (ids, now) = (core.engine.journal().ids(), core.engine.journal().clock().now());
        let mut enqueue = Enqueue::new(header, &core.author).input(input).run(RunId::generate(ids, now));
        enqueue.message = Some(message.unwrap_or_else(|| MessageId::generate(ids, now)));
        let enqueued = operations::enqueue(&core.engine, &enqueue).await?;
        answer(core, &enqueue.session, &enqueued, caller).await
    }
}

fn session(core: &Core, id: Option<&str>) -> Result<SessionKey> {
    let journal = core.engine.journal();
    match id {
        Some(id) => core.key(id),
        None => core.key(SessionId::generate(journal.ids(), journal.clock().now()).as_str()),
    }
}

/// The run that was asked for, as a task where that is understood.
pub(super) async fn answer(
    core: &Core,
    session: &SessionKey,
    enqueued: &EnqueuedJob,
    caller: Caller,
) -> Result<Answer<RunView>> {
    let run = enqueued.run.as_ref().ok_or_else(|| {
        Error::invalid("what was sent under that id before began no run of its own").on(session).hint("use another id")
    })?;
    let progress = operations::run(&core.engine, session, run).await?;
    Ok(match caller.tasks {
        true => Answer::Task(tasks::created(&progress)),
        false => RunView::from(&progress).into(),
    })
}
