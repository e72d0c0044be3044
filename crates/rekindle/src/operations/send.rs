//! Messages for a session, whoever runs it, now or later.

use rekindle_core::record::{InboxMessage, InboxMode};
use rekindle_core::{Error, ErrorKind, MessageId, Position, Record, Result, RunId, Seq, SessionInfo, SessionKey};
use serde::Serialize;

use super::inbox::{self, Received};
use super::plain;
use super::show::{self, Owner};
use super::write;
use crate::contention::{Contention, is_lost};
use crate::driver::run_exists;
use crate::engine::Engine;
use crate::message::Message;

/// A message that is in the inbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// The message.
    pub message: MessageId,
    /// Where it stands.
    pub position: Position,
    /// Whether it was there before: the same id counts once.
    pub repeated: bool,
    /// Who runs the session now. If nobody does, the next run takes the message.
    pub owner: Option<Owner>,
}

/// Puts a message into the session's inbox: for its next turn, its next model call, or to
/// interrupt what it does. With an id, sending it again counts once. Refused if the session is that
/// of a plan, a graph or a flow: they read no messages.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::core::record::InboxMode;
/// use rekindle::{Engine, MessageId, operations};
///
/// let engine = Engine::memory()?;
/// let session = engine.create("trip-42").await?;
/// let send = async || {
///     let id = Some(MessageId::new("from-the-form-17")?);
///     operations::send(&engine, session.key(), "by train".into(), InboxMode::Queue, "maria", id).await
/// };
/// assert!(!send().await?.repeated);
/// assert!(send().await?.repeated);
/// # Ok(()) }
/// ```
pub async fn send(
    engine: &Engine,
    session: &SessionKey,
    message: Message,
    mode: InboxMode,
    author: &str,
    id: Option<MessageId>,
) -> Result<Sent> {
    send_to_run(engine, session, message, mode, author, id, None).await.map(|(sent, _)| sent)
}

/// The same for a message with which a run begins; that run, if the message was not sent before for
/// another.
pub(super) async fn send_to_run(
    engine: &Engine,
    session: &SessionKey,
    message: Message,
    mode: InboxMode,
    author: &str,
    id: Option<MessageId>,
    run: Option<RunId>,
) -> Result<(Sent, Option<RunId>)> {
    let context = |error: Error| error.during("send").on(session);
    check_read(engine, session).await.map_err(context)?;
    let given = id.or_else(|| message.id.clone());
    let id = given.clone().unwrap_or_else(|| engine.new_message_id());
    let author = message.author.clone().unwrap_or_else(|| write::by(author));
    let content = Message { id: Some(id.clone()), author: Some(author.clone()), ..message }.to_json()?;
    let record = InboxMessage { mode, author: Some(author), run: run.clone(), ..InboxMessage::new(id, content) };
    put_once(engine, session, record, given.is_some()).await.map_err(context)
}

/// Puts a message into the inbox. If somebody else chose its id or the id of its run, it is there once,
/// also when the same is sent twice at the same time: everybody is told of the run that begins.
pub(super) async fn put_once(
    engine: &Engine,
    session: &SessionKey,
    record: InboxMessage,
    chosen: bool,
) -> Result<(Sent, Option<RunId>)> {
    plain::refuse(engine, "the message", &record.content)?;
    let mut contention = Contention::default();
    loop {
        let info = engine.journal().open(session).await?;
        let (message, owner) = (record.message.clone(), show::owner(&info));
        if chosen && let Some(before) = sent_before(engine, session, &message).await? {
            let position = position_of(&before)?;
            return Ok((Sent { message, position, repeated: true, owner }, run_of(&before)));
        }
        if let Some(run) = &record.run {
            check_new_run(engine, &info, run).await?;
        }
        let put = match chosen || record.run.is_some() {
            true => inbox::put_behind(engine, &info, record.clone().into(), None).await,
            false => inbox::put(engine, session, record.clone().into()).await,
        };
        match put {
            Err(error) if is_lost(&error) => contention.lost(engine, session).await?,
            put => return Ok((Sent { message, position: put?, repeated: false, owner }, record.run)),
        }
    }
}

/// The run that begins with what was sent.
pub(super) fn run_of(sent: &Received) -> Option<RunId> {
    match &sent.record {
        Record::InboxMessage(message) => message.run.clone(),
        _ => None,
    }
}

/// An error if the session has a run of that id, or a message waits for one.
pub(super) async fn check_new_run(engine: &Engine, info: &SessionInfo, run: &RunId) -> Result<()> {
    let asked = inbox::newest(engine, &info.header.key, |sent| run_of(sent).as_ref() == Some(run)).await?;
    if asked.is_some() || run_exists(engine, info, run).await? {
        return Err(Error::new(ErrorKind::AlreadyExists, format!("the session has a run `{run}`"))
            .hint("give the run another id, or none"));
    }
    Ok(())
}

/// An error if nobody would ever read the message.
async fn check_read(engine: &Engine, session: &SessionKey) -> Result<()> {
    // What cannot be read now may be mended; a message can wait for that.
    let Ok(restored) = engine.journal().load(session, None).await else { return Ok(()) };
    if engine.descriptors().of(&restored.state).reads_messages() {
        return Ok(());
    }
    let what = restored.state.run().map(|run| run.started.executor.as_str()).unwrap_or_default();
    Err(Error::invalid(format!("the session is that of a {what}, which reads no messages"))
        .at(restored.position.clone())
        .hint("answer what it waits for, set its memory when you resume it, or start a new run with another input"))
}

/// What was sent under that id before.
async fn sent_before(engine: &Engine, session: &SessionKey, id: &MessageId) -> Result<Option<Received>> {
    // The first counts, if there are several.
    let all = inbox::behind(engine, session, Seq::ZERO).await?;
    Ok(all.records.into_iter().find(|received| message_id(&received.record) == Some(id)))
}

/// The id of what was sent.
fn message_id(record: &Record) -> Option<&MessageId> {
    match record {
        Record::InboxMessage(message) => Some(&message.message),
        Record::InboxAnswer(answer) => Some(&answer.message),
        Record::InboxCommand(command) => Some(&command.message),
        _ => None,
    }
}

/// Where the message stands. Its content is not compared: what is stored may be redacted.
fn position_of(before: &Received) -> Result<Position> {
    match &before.record {
        Record::InboxMessage(_) => Ok(before.position()),
        other => Err(Error::invalid(format!("the id was used before, for an {}", other.kind()))
            .at(before.position())
            .hint("give the message another id")),
    }
}
