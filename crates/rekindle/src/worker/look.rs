//! What is to be done with a session, by what stands in its journal.

use std::collections::BTreeSet;
use std::time::Duration;

use rekindle_core::{ErrorKind, Result, SessionKey, State, Status, Timestamp, WaitId, WaitState};

use crate::driver::{Looked, NextInput, Received, holds_message, next_input};
use crate::engine::Engine;
use crate::wait::verdict;

/// How often a session that waits for another one is looked after.
const LOOK_AFTER: Duration = Duration::from_secs(60);
/// How deep sessions that wait for each other are followed.
const GENERATIONS: usize = 8;

/// What is to be done with a session.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Next {
    /// Nothing.
    Done,
    /// Nothing until something arrives, or until a time.
    Later(Option<Timestamp>),
    /// Somebody runs it, for so long at least.
    Busy(Duration),
    /// A run with an input.
    Start(NextInput),
    /// Going on, or a turn with the message that waits.
    Resume,
    /// Nothing that a worker may decide.
    Hold(String),
}

/// Whether this worker has run the session since it took the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Not yet: somebody wanted it to run, or whoever ran it has died.
    First,
    /// It has, last from this time on.
    After(Timestamp),
}

/// The waits that were decided, of the session and those it waits for, and that a run was begun for: one
/// that is still there afterwards is nobody's business any more.
pub(super) type Told = BTreeSet<WaitId>;

/// What is to be done with a session, with what is said in its inbox; and what was read to find out.
pub(super) async fn look(
    engine: &Engine,
    session: &SessionKey,
    look: Look,
    told: &mut Told,
) -> Result<(Next, Option<Looked>)> {
    let info = engine.journal().open(session).await?;
    let lease = info.live_lease().filter(|(_, lease)| !engine.has_died(&lease.owner));
    if let Some((_, lease)) = lease {
        return Ok((Next::Busy(lease.expires_at.since(info.observed_at)), None));
    }
    let looked = Looked::at(engine, info).await?;
    Ok((next(engine, &looked, look, told).await?, Some(looked)))
}

async fn next(engine: &Engine, looked: &Looked, look: Look, told: &mut Told) -> Result<Next> {
    let (state, unread) = (&looked.restored.state, &*looked.unread);
    let descriptor = engine.descriptors().of(state);
    let seen = Seen {
        status: state.status().seen(false),
        mid_turn: descriptor.is_mid_turn(state),
        message: descriptor.reads_messages() && (descriptor.has_queued(state) || holds_message(state, unread)?),
        input: next_input(state, unread)?,
    };
    // A run that begins with records of its inbox lost says so, or goes on without them: by its policy.
    let damaged = looked.unread.error(&looked.restored.info.header.key).filter(|_| look == Look::First);
    if seen.status == Status::Waiting {
        let due = due(engine, state, unread, look, told, GENERATIONS).await?;
        return Ok(if due.now || damaged.is_some() { Next::Resume } else { Next::Later(due.next) });
    }
    Ok(match (seen.next(look == Look::First), damaged) {
        (Next::Done, Some(error)) => Next::Hold(format!("{error}; {}", error.next_step())),
        (next, _) => next,
    })
}

/// What counts of a session that does not wait.
#[derive(Clone, Debug)]
struct Seen {
    status: Status,
    mid_turn: bool,
    /// A message waits for a turn of its own.
    message: bool,
    input: Option<NextInput>,
}

impl Seen {
    fn next(self, first: bool) -> Next {
        // A run that was cancelled is over, whatever it has left behind.
        let over = !self.mid_turn || self.status == Status::Cancelled;
        match (self.status, self.input) {
            (Status::Interrupted | Status::Paused, Some(input)) if over => Next::Start(input),
            (Status::Interrupted, _) => Next::Resume,
            // Somebody paused it, or a budget is spent.
            (Status::Paused, _) if !first => Next::Done,
            (Status::Paused, _) => Next::Resume,
            (Status::Failed, _) if self.mid_turn && first => Next::Resume,
            (Status::Failed, input) if self.mid_turn && (input.is_some() || self.message) => {
                Next::Hold("an input waits, and the run before it failed: resume or cancel that one first".to_owned())
            }
            (Status::Failed, None) if self.mid_turn => Next::Done,
            (_, None) if self.message => Next::Resume,
            (_, Some(input)) if over => Next::Start(input),
            (_, _) if self.mid_turn && first => Next::Resume,
            _ => Next::Done,
        }
    }
}

/// When a session that waits goes on.
#[derive(Debug, Default)]
struct Due {
    now: bool,
    next: Option<Timestamp>,
}

impl Due {
    fn at(&mut self, time: Timestamp) {
        self.next = Some(self.next.map_or(time, |next| next.min(time)));
    }
}

/// When a session goes on: something arrived, a wait of its own is due, or a session it waits for goes on.
async fn due(
    engine: &Engine,
    state: &State,
    unread: &[Received],
    look: Look,
    told: &mut Told,
    depth: usize,
) -> Result<Due> {
    let now = engine.journal().clock().now();
    let mut due = Due { now: !unread.is_empty(), next: None };
    for wait in state.waits() {
        // Also one that was decided while the last run came to its end: the run took the answer from the
        // inbox, so nothing else would wake the session for it.
        due.now |= verdict(wait, now).is_some() && told.insert(wait.opened.wait.clone());
        for time in times(wait) {
            let new = !matches!(look, Look::After(since) if time <= since);
            match time <= now {
                true => due.now |= new,
                false => due.at(time),
            }
        }
    }
    let children: Vec<SessionKey> = state.open_effects().filter_map(|effect| effect.intent.child.clone()).collect();
    for child in children {
        due.at(now.plus(LOOK_AFTER));
        if depth > 0 {
            let theirs = Box::pin(due_of_child(engine, &child, look, told, depth - 1)).await?;
            due.now |= theirs.now;
            due.next = due.next.into_iter().chain(theirs.next).min();
        }
    }
    Ok(due)
}

async fn due_of_child(engine: &Engine, child: &SessionKey, look: Look, told: &mut Told, depth: usize) -> Result<Due> {
    let info = match engine.journal().open(child).await {
        Ok(info) => info,
        Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(Due::default()),
        Err(error) => return Err(error),
    };
    let Looked { restored, unread } = Looked::at(engine, info).await?;
    let state = &restored.state;
    if state.status() != Status::Waiting {
        // Whoever ran it has died, or somebody has resumed it by itself.
        return Ok(Due { now: look == Look::First, next: None });
    }
    due(engine, state, &unread, look, told, depth).await
}

fn times(wait: &WaitState) -> impl Iterator<Item = Timestamp> {
    let remind = wait.opened.remind_at.filter(|_| !wait.reminded);
    [remind, wait.opened.expires_at].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use rekindle_core::record::{Decision, Extra, InboxAnswer, RunEnded, RunOutcome, RunStarted, WaitDecision};
    use rekindle_core::{BranchId, Json, MessageId, Record, RunId, Target};

    use super::*;
    use crate::wait::WaitSpec;

    fn check(status: Status, mid_turn: bool, message: bool, input: bool, first: bool, expected: &str) {
        let input = input.then(|| NextInput { number: 1, input: Json::null(), run: None });
        let next = match (Seen { status, mid_turn, message, input }).next(first) {
            Next::Done => "done",
            Next::Start(_) => "start",
            Next::Resume => "resume",
            Next::Hold(_) => "hold",
            Next::Later(_) | Next::Busy(_) => "wait",
        };
        assert_eq!(next, expected, "{status} mid_turn={mid_turn} message={message} first={first}");
    }

    #[test]
    fn what_is_over_ends_unless_something_waits() {
        for status in [Status::Idle, Status::Succeeded, Status::Cancelled, Status::Failed] {
            check(status, false, false, false, true, "done");
            check(status, false, true, false, false, "resume");
            check(status, false, false, true, false, "start");
        }
    }

    #[test]
    fn what_is_unfinished_goes_on() {
        check(Status::Interrupted, true, false, true, true, "resume");
        check(Status::Interrupted, true, true, false, false, "resume");
        check(Status::Interrupted, false, false, true, true, "start");
        check(Status::Paused, true, false, false, true, "resume");
        check(Status::Idle, true, false, false, true, "resume");
    }

    #[test]
    fn what_this_worker_saw_stop_is_not_repeated() {
        check(Status::Paused, true, true, false, false, "done");
        check(Status::Failed, true, true, false, false, "hold");
        check(Status::Failed, true, false, false, false, "done");
        check(Status::Failed, true, false, true, false, "hold");
        check(Status::Failed, true, false, false, true, "resume");
    }

    #[test]
    fn an_input_behind_a_cancelled_run_is_not_stranded() {
        for first in [true, false] {
            check(Status::Cancelled, true, false, true, first, "start");
        }
        check(Status::Cancelled, true, false, false, false, "done");
    }

    /// The records of a run that took an answer from the inbox while it came to its end.
    fn answered_too_late(now: Timestamp) -> Vec<Record> {
        let (run, wait) = (RunId::new("r").unwrap(), WaitId::new("w").unwrap());
        let answer = InboxAnswer {
            message: MessageId::new("a").unwrap(),
            wait: wait.clone(),
            decision: Decision::Answer,
            author: "maria".to_owned(),
            credential: None,
            claimed: false,
            value: Some(Json::from("yes")),
            arguments: None,
            digest: None,
            reason: String::new(),
            extra: Extra::new(),
        };
        vec![
            RunStarted::new(run.clone(), "flow").into(),
            WaitSpec::question("?").open(wait, now).unwrap().into(),
            WaitDecision::from(&answer).into(),
            RunEnded::new(run, RunOutcome::Waiting).into(),
        ]
    }

    #[tokio::test]
    async fn a_wait_that_was_decided_as_its_run_ended_is_told_once() {
        let engine = Engine::memory().unwrap();
        let session = engine.create("s").await.unwrap();
        let info = session.info().await.unwrap();
        let target = Target::new(session.key().clone(), BranchId::main(), info.current_branch().unwrap().head);
        let now = engine.journal().clock().now();
        engine.journal().append(&target, &answered_too_late(now)).await.unwrap();
        let mut told = Told::new();
        let (first, _) = look(&engine, session.key(), Look::After(now), &mut told).await.unwrap();
        let (second, _) = look(&engine, session.key(), Look::After(now), &mut told).await.unwrap();
        assert_eq!((first, second), (Next::Resume, Next::Later(None)));
    }
}
