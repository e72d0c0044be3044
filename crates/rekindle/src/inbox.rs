//! Sending to the inbox of a session and waking what goes on with it. Needs no lease. Runs read their inbox
//! in `driver/inbox.rs`; what people send, and what it means, is in `operations/`.

use rekindle_core::queue::{Job, JobQuery, NewJob};
use rekindle_core::record::{Command, InboxCommand};
use rekindle_core::{Condition, Position, Record, Result, RunId, SessionInfo, SessionKey};

use crate::contention::{Contention, is_lost};
use crate::engine::Engine;

/// How far up the sessions that started a session are looked for.
const GENERATIONS: usize = 16;

/// Puts a record into the inbox and wakes the run, if it is in this process.
pub(crate) async fn put(engine: &Engine, session: &SessionKey, record: Record) -> Result<Position> {
    let mut contention = Contention::default();
    loop {
        let info = engine.journal().open(session).await?;
        match put_behind(engine, &info, record.clone(), None).await {
            Err(error) if is_lost(&error) => contention.lost(engine, session).await?,
            put => return put,
        }
    }
}

/// Puts a record into the inbox if nothing was put there since the session was opened (`Conflict` otherwise) and the
/// condition holds (`Overtaken` otherwise).
pub(crate) async fn put_behind(
    engine: &Engine,
    info: &SessionInfo,
    record: Record,
    condition: Option<Condition>,
) -> Result<Position> {
    let position = engine.journal().send_behind(info, &[record], condition).await?;
    wake(engine, info).await;
    Ok(position)
}

/// Tells one run, and no other, that its parent was stopped.
pub(crate) async fn tell_run(engine: &Engine, session: &SessionKey, run: &RunId, command: Command) -> Result<Position> {
    let command = InboxCommand {
        only_run: Some(run.clone()),
        reason: "the parent was stopped".to_owned(),
        ..InboxCommand::new(engine.new_message_id(), command)
    };
    put(engine, session, command.into()).await
}

/// Wakes whoever goes on with what was put into the inbox.
async fn wake(engine: &Engine, info: &SessionInfo) {
    engine.live(&info.header.key).wake_inbox();
    // It is in the inbox; that nobody can be woken is no failure of that.
    let _ = wake_parents(engine, info).await;
}

/// Wakes the jobs of the sessions that started this one: what it waited for may be there, and only
/// they go on with it. That it fails is no harm: they look after their children now and then.
async fn wake_parents(engine: &Engine, info: &SessionInfo) -> Result<()> {
    let mut next = info.header.parent.clone();
    for _ in 0..GENERATIONS {
        let Some(parent) = next else { return Ok(()) };
        wake_job(engine, &parent).await?;
        next = engine.journal().open(&parent).await?.header.parent;
    }
    Ok(())
}

/// Makes the job of a session ready, if it has one: there may be something to do that stands in no inbox.
pub(crate) async fn wake_job(engine: &Engine, session: &SessionKey) -> Result<()> {
    let Some(queue) = engine.journal().store().queue() else { return Ok(()) };
    let query = JobQuery { session: Some(session.id.clone()), limit: 1, ..JobQuery::new(session.namespace.clone()) };
    if let Some(job) = queue.jobs(&query).await?.jobs.into_iter().next() {
        let Job { queue: name, priority, agent, key, .. } = job;
        let again = NewJob { queue: name, priority, agent, key, ..NewJob::new(session.clone()) };
        queue.enqueue(&again).await?;
    }
    Ok(())
}
