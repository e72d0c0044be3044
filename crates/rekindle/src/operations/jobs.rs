//! Work for workers: putting sessions into a queue and taking them out, and what is in there.

use std::time::Duration;

use rekindle_core::high_water::not_created_anew;
use rekindle_core::queue::{Job, JobQuery, JobState, KeyLimit, NewJob, Queue, QueueInfo, When, WorkerInfo};
use rekindle_core::record::{InboxMessage, InboxMode};
use rekindle_core::{
    Error, ErrorKind, Json, MessageId, QueueName, Result, RunId, SessionHeader, SessionId, SessionInfo, SessionKey,
    Timestamp,
};
use serde::Serialize;

use super::go_on::going_on;
use super::{plain, send, write};
use crate::driver::marked_input;
use crate::engine::Engine;
use crate::message::Message;

/// The id of the input with which a session is made: making it again counts once.
const FIRST: &str = "enqueued";

/// What a job begins with.
#[derive(Clone, Debug, PartialEq)]
pub enum JobInput {
    /// A message to an agent: its own turn, after those before it.
    Message(Message),
    /// The input of a plan, a graph or a flow: a run of its own, after those before it.
    Input(Json),
}

/// A session that workers should run.
#[derive(Clone, Debug, PartialEq)]
pub struct Enqueue {
    /// The session.
    pub session: SessionKey,
    /// How it is made if it is not there; without it, it must be there.
    pub create: Option<SessionHeader>,
    /// What it begins with; without it, a worker goes on with what is unfinished.
    pub input: Option<JobInput>,
    /// The id of the input: the same one again counts once.
    pub message: Option<MessageId>,
    /// The id of the run it begins; without one it is generated when the run begins. A run that is
    /// unfinished keeps its own.
    pub run: Option<RunId>,
    /// From whom the input is.
    pub author: String,
    /// What runs it, if the session's header does not say.
    pub agent: Option<String>,
    /// The queue.
    pub queue: QueueName,
    /// Higher goes first; zero is usual.
    pub priority: i32,
    /// Shares a limit with the other jobs of the same key.
    pub key: Option<KeyLimit>,
    /// When it becomes ready.
    pub when: When,
}

impl Enqueue {
    /// A session that is there, in the queue `default`, at once.
    pub fn existing(session: SessionKey, author: impl Into<String>) -> Self {
        Self {
            session,
            create: None,
            input: None,
            message: None,
            run: None,
            author: author.into(),
            agent: None,
            queue: QueueName::default(),
            priority: 0,
            key: None,
            when: When::Now,
        }
    }

    /// A session that is made if it is not there. Its header should name its agent: workers find
    /// what runs it by that.
    pub fn new(header: SessionHeader, author: impl Into<String>) -> Self {
        let session = header.key.clone();
        Self { create: Some(header), ..Self::existing(session, author) }
    }

    /// What it begins with.
    #[must_use]
    pub fn input(mut self, input: JobInput) -> Self {
        self.input = Some(input);
        self
    }

    /// The message it begins with.
    #[must_use]
    pub fn message(self, message: impl Into<Message>) -> Self {
        self.input(JobInput::Message(message.into()))
    }

    /// The id of the run it begins, to find it by.
    #[must_use]
    pub fn run(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }

    /// What runs it, if the session's header does not say.
    #[must_use]
    pub fn agent(mut self, agent: impl Into<String>) -> Self {
        self.agent = Some(agent.into());
        self
    }

    /// After a while.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.when = When::In(delay);
        self
    }
}

/// What enqueueing did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EnqueuedJob {
    /// Whether the session was made for it.
    pub created: bool,
    /// The message that is its input.
    pub message: Option<MessageId>,
    /// Whether that was there before: the same id counts once.
    pub repeated: bool,
    /// The run that begins with it or, without an input, the one that goes on; nothing if that was
    /// left to whoever runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The job.
    pub job: JobView,
}

/// A job as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobView {
    /// What it is doing.
    pub state: JobState,
    /// The job.
    #[serde(flatten)]
    pub job: Job,
}

impl JobView {
    fn of(job: Job, now: Timestamp) -> Self {
        Self { state: job.state(now), job }
    }
}

/// A page of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Jobs {
    /// The jobs, in the order of their sessions' ids.
    pub jobs: Vec<JobView>,
    /// Where the next page begins, if there is one.
    pub next: Option<SessionId>,
    /// The store's time of this answer.
    pub now: Timestamp,
}

/// The queue of a store; `Unsupported` if it keeps none.
pub(crate) fn queue_of(engine: &Engine) -> Result<&dyn Queue> {
    engine.journal().store().queue().ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "this store keeps no queue, so workers cannot share it")
            .hint("use a store that keeps one: sqlite:, postgres:, redis: or memory:")
    })
}

/// Has workers run a session: makes it if need be, puts its input into its inbox, and makes its job.
/// In that order, so that whatever fails, calling it again with the same ids completes it and counts
/// once. Without an input, a worker goes on with what is unfinished; `NotResumable` if nothing is.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::operations::{self, Enqueue};
/// use rekindle::{Engine, SessionHeader};
///
/// let engine = Engine::memory()?;
/// let mut header = SessionHeader::new(engine.key("trip-42")?);
/// header.agent = Some("guide".to_owned());
/// let job = Enqueue::new(header, "maria").message("What should I pack for Lisbon?");
/// assert!(operations::enqueue(&engine, &job).await?.created);
/// assert!(operations::enqueue(&engine, &job).await?.repeated);
/// # Ok(()) }
/// ```
pub async fn enqueue(engine: &Engine, job: &Enqueue) -> Result<EnqueuedJob> {
    let context = |error: Error| error.during("enqueue").on(&job.session);
    let queue = queue_of(engine).map_err(context)?;
    let mut new = NewJob {
        queue: job.queue.clone(),
        priority: job.priority,
        key: job.key.clone(),
        when: job.when,
        ..NewJob::new(job.session.clone())
    };
    let said = job.agent.clone().or_else(|| job.create.as_ref()?.agent.clone());
    new.agent = said.clone();
    new.check()?;
    check_input(engine, job).map_err(context)?;
    let (info, created) = session(engine, job).await.map_err(context)?;
    check_agent(job, &info).map_err(context)?;
    let Put { message, repeated, run } = match &job.input {
        Some(input) => put(engine, job, input).await.map_err(context)?,
        None => {
            let run = going_on(engine, &job.session, job.run.as_ref()).await.map_err(context)?;
            Put { message: None, repeated: false, run }
        }
    };
    new.agent = info.header.agent.clone().or(said);
    let made = queue.enqueue(&new).await.map_err(context)?.job;
    // A worker may have been so quick that the job is gone.
    let now = made.ready_at.unwrap_or_default();
    let view = self::job(engine, &job.session).await.map_err(context)?.unwrap_or_else(|| JobView::of(made, now));
    Ok(EnqueuedJob { created, message, repeated, run, job: view })
}

/// An error if the input is larger than a run could begin with, or holds what is never stored.
fn check_input(engine: &Engine, job: &Enqueue) -> Result<()> {
    let input = match &job.input {
        None => return Ok(()),
        Some(JobInput::Message(message)) => return plain::refuse(engine, "the message", &Json::of(message)?),
        Some(JobInput::Input(input)) => input,
    };
    plain::refuse(engine, "the input", input)?;
    // It is stored twice when its run begins, in one batch with everything else.
    let most = engine.journal().codec().limits().record_bytes / 4;
    let bytes = input.as_str().len();
    if bytes > most {
        let error = Error::limit("bytes of an input", bytes as u64, most as u64);
        return Err(error.hint("put it into a file or a store of its own, and name that in the input"));
    }
    Ok(())
}

/// An error if the session was to be made for something else than what it is.
fn check_agent(job: &Enqueue, info: &SessionInfo) -> Result<()> {
    let wanted = job.create.as_ref().and_then(|header| header.agent.as_ref());
    match (wanted, &info.header.agent) {
        (Some(wanted), Some(agent)) if wanted != agent => {
            Err(Error::invalid(format!("the session is that of `{agent}`, and this is for `{wanted}`"))
                .hint("use another session"))
        }
        _ => Ok(()),
    }
}

/// The session, and whether it was made now.
async fn session(engine: &Engine, job: &Enqueue) -> Result<(SessionInfo, bool)> {
    let found = engine.journal().open(&job.session).await;
    match (found, &job.create) {
        (Err(error), Some(_)) if error.is_gone() => Err(not_created_anew(&job.session, &error)),
        (Err(error), Some(header)) if *error.kind() == ErrorKind::NotFound => {
            let header = SessionHeader { key: job.session.clone(), ..header.clone() };
            match engine.journal().create(header).await {
                // Somebody was quicker.
                Err(error) if *error.kind() == ErrorKind::AlreadyExists => {
                    Ok((engine.journal().open(&job.session).await?, false))
                }
                created => Ok((created?, true)),
            }
        }
        (found, _) => Ok((found?, false)),
    }
}

/// What was put into the inbox.
struct Put {
    message: Option<MessageId>,
    repeated: bool,
    run: Option<RunId>,
}

/// Puts the input into the inbox.
async fn put(engine: &Engine, job: &Enqueue, input: &JobInput) -> Result<Put> {
    let first = || job.create.is_some().then(|| MessageId::new(FIRST)).transpose();
    let given = job.message.clone().map_or_else(first, |id| Ok(Some(id)))?;
    match input {
        JobInput::Message(message) => {
            let (message, wanted) = (message.clone(), job.run.clone());
            let sent =
                send::send_to_run(engine, &job.session, message, InboxMode::Queue, &job.author, given, wanted).await;
            let (sent, run) = sent?;
            Ok(Put { message: Some(sent.message), repeated: sent.repeated, run })
        }
        JobInput::Input(input) => {
            let chosen = given.is_some();
            let id = given.unwrap_or_else(|| engine.new_message_id());
            let message = InboxMessage { run: job.run.clone(), ..InboxMessage::new(id, input.clone()) };
            let message = marked_input(InboxMessage { author: Some(write::by(&job.author)), ..message });
            let (sent, run) = send::put_once(engine, &job.session, message, chosen).await?;
            Ok(Put { message: Some(sent.message), repeated: sent.repeated, run })
        }
    }
}

/// Takes the job of a session out of its queue; whether there was one. A run under way is not
/// stopped: pause or cancel it.
pub async fn dequeue(engine: &Engine, session: &SessionKey) -> Result<bool> {
    let context = |error: Error| error.during("dequeue").on(session);
    queue_of(engine).map_err(context)?.dequeue(session).await.map_err(context)
}

/// Lists jobs.
pub async fn jobs(engine: &Engine, query: &JobQuery) -> Result<Jobs> {
    query.check()?;
    let page = queue_of(engine)?.jobs(query).await?;
    let jobs = page.jobs.into_iter().map(|job| JobView::of(job, page.now)).collect();
    Ok(Jobs { jobs, next: page.next, now: page.now })
}

/// The job of a session, if it has one; none if the store keeps no queue.
pub async fn job(engine: &Engine, session: &SessionKey) -> Result<Option<JobView>> {
    let Ok(queue) = queue_of(engine) else { return Ok(None) };
    let query = JobQuery { session: Some(session.id.clone()), limit: 1, ..JobQuery::new(session.namespace.clone()) };
    let page = queue.jobs(&query).await?;
    Ok(page.jobs.into_iter().next().map(|job| JobView::of(job, page.now)))
}

/// The queues of the engine's namespace that have jobs, with how many.
pub async fn queues(engine: &Engine) -> Result<Vec<QueueInfo>> {
    queue_of(engine)?.queues(engine.namespace()).await
}

/// The workers of the engine's namespace that live.
pub async fn workers(engine: &Engine) -> Result<Vec<WorkerInfo>> {
    queue_of(engine)?.workers(engine.namespace()).await
}
