//! Pause, interrupt, cancel and send, with and without somebody who runs the session.

use std::sync::Arc;
use std::time::Duration;

use rekindle::core::record::{Command, InDoubtPolicy, InboxMode, RunEnded, RunOutcome, RunStarted};
use rekindle::core::{OwnerId, StoreExt as _, Target};
use rekindle::message::{Message, Role};
use rekindle::operations::{self, At, Change, ControlOptions, Controlled};
use rekindle::tool::Approval;
use rekindle::{Agent, BranchId, Input, Json, MessageId, RunId, Status};
use tokio::sync::Notify;

use crate::world::{World, adder, busy, code, failing, payer, resume};

fn by_maria() -> ControlOptions {
    ControlOptions::new("maria", "enough")
}

async fn heads(session: &rekindle::Session) -> Vec<(BranchId, rekindle::core::Head)> {
    session.info().await.unwrap().branches.iter().map(|branch| (branch.branch.clone(), branch.head)).collect()
}

#[tokio::test]
async fn a_running_session_is_told() {
    let world = World::memory();
    let (engine, session) = (&world.engine, world.session("s").await);
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let agent = busy(begun.clone(), go.clone());
    let run = agent.run("work", &session).await.unwrap();
    begun.notified().await;
    let asked = operations::checkpoint(engine, session.key(), "while it works", "maria").await.unwrap();
    assert!(matches!(asked, operations::Marked::Sent { .. }), "{asked:?}");
    let told = operations::pause(engine, session.key(), &by_maria()).await.unwrap();
    assert!(matches!(told, Controlled::Requested { .. }), "{told:?}");
    go.notify_one();
    let report = run.report().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Paused);
    assert!(report.reason.contains("maria") && report.reason.contains("enough"), "{}", report.reason);
    let history = operations::history(engine, session.key(), &Default::default()).await.unwrap();
    assert!(history.checkpoints.iter().any(|found| found.checkpoint.description == "while it works"));

    let again = operations::pause(engine, session.key(), &by_maria()).await.unwrap();
    assert_eq!(again, Controlled::Unchanged { status: Status::Paused });
    assert_eq!(resume(&world, &session, &agent).await.unwrap().text(), "Ready.");
}

#[tokio::test]
async fn a_running_session_is_cancelled() {
    let world = World::memory();
    let (engine, session) = (&world.engine, world.session("s").await);
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let run = busy(begun.clone(), go.clone()).run("work", &session).await.unwrap();
    begun.notified().await;
    operations::cancel(engine, session.key(), &by_maria()).await.unwrap();
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Cancelled);
}

#[tokio::test]
async fn a_command_that_was_never_read_does_not_stop_a_later_turn() {
    let world = World::memory();
    let session = world.dead_run("s", InDoubtPolicy::Never).await;
    let (engine, key, agent) = (&world.engine, session.key(), payer(Approval::default()));
    let owner = OwnerId::new("about to die").unwrap();
    let store = engine.journal().store();
    let lease = store.acquire(key, &BranchId::main(), &owner, Duration::from_secs(9)).await.unwrap();
    let told = operations::cancel(engine, key, &by_maria()).await.unwrap();
    assert!(matches!(told, Controlled::Requested { owner: told, .. } if told == owner));
    store.release(&lease).await.unwrap();
    let done = operations::cancel(engine, key, &by_maria()).await.unwrap();
    assert!(matches!(done, Controlled::Done { .. }));
    assert_eq!(agent.run_once("and now?", &session).await.unwrap().text(), "It is paid.");
}

#[tokio::test]
async fn a_command_to_one_branch_does_not_stop_a_fork() {
    let world = World::memory();
    let session = world.dead_run("s", InDoubtPolicy::Idempotent).await;
    let (engine, key, agent) = (&world.engine, session.key(), payer(Approval::default()));
    let position = operations::inspect(engine, key, &At::Latest).await.unwrap().position;
    let owner = OwnerId::new("about to die").unwrap();
    let store = engine.journal().store();
    let lease = store.acquire(key, &BranchId::main(), &owner, Duration::from_secs(9)).await.unwrap();
    operations::cancel(engine, key, &by_maria()).await.unwrap();
    store.release(&lease).await.unwrap();
    let fork = operations::fork(engine, key, &At::Position(position), Default::default()).await.unwrap();
    let settled = operations::Settlement::Ok(Json::from("paid"));
    let effect = rekindle::EffectId::new("t1.0.c1").unwrap();
    let on_fork = rekindle::ResumeOptions::new("maria").on_branch(fork.branch);
    let stuck = agent.resume_with(&session, on_fork).await.unwrap().report().await;
    assert_eq!(code(stuck), "RK0022", "it went on as far as the call in doubt");
    operations::settle(engine, key, &effect, &settled, "maria", "").await.unwrap();
    assert_eq!(resume(&world, &session, &agent).await.unwrap().text(), "It is paid.");
}

#[tokio::test]
async fn whoever_begins_meanwhile_is_told_instead() {
    for what in ["cancel", "pause", "checkpoint"] {
        let (world, interloper) = World::with_interloper();
        let session = world.dead_run("s", InDoubtPolicy::Never).await;
        interloper.take_lease_before_next_append();
        let sent = match what {
            "checkpoint" => {
                let marked = operations::checkpoint(&world.engine, session.key(), "x", "maria").await.unwrap();
                matches!(marked, operations::Marked::Sent { .. })
            }
            "cancel" => {
                let told = operations::cancel(&world.engine, session.key(), &by_maria()).await.unwrap();
                matches!(told, Controlled::Requested { .. })
            }
            _ => {
                let told = operations::pause(&world.engine, session.key(), &by_maria()).await.unwrap();
                matches!(told, Controlled::Requested { .. })
            }
        };
        assert!(sent, "{what}");
        let inbox = session.info().await.unwrap().branch(&BranchId::inbox()).unwrap().head.seq;
        assert_eq!(inbox.0, 1);
    }
}

#[tokio::test]
async fn whoever_appends_meanwhile_is_followed() {
    let (world, interloper) = World::with_interloper();
    let session = world.dead_run("s", InDoubtPolicy::Never).await;
    interloper.append_before_next_append();
    operations::cancel(&world.engine, session.key(), &by_maria()).await.unwrap();
    interloper.append_before_next_append();
    let set = Change::SetMemory { key: "x".into(), value: Json::null() };
    let edited = operations::edit(&world.engine, session.key(), &At::Latest, &[set], "maria", "").await.unwrap();
    assert!(!edited.forked);
    let seen = operations::inspect(&world.engine, session.key(), &At::Latest).await.unwrap();
    assert_eq!(seen.status, Status::Cancelled);
    assert!(seen.state.register("memory/x").is_some() && seen.state.register("interloper").is_some());
}

/// Sends a message, with an id of its own or not, while somebody else is quicker so often.
async fn sent_behind(times: u32, id: Option<&str>) -> (u32, rekindle::Result<operations::Sent>) {
    let (world, interloper) = World::with_interloper();
    let session = world.session("s").await;
    interloper.append_to_inbox_before(times);
    let id = id.map(|id| MessageId::new(id).unwrap());
    let sent = operations::send(&world.engine, session.key(), "hello".into(), InboxMode::Queue, "maria", id).await;
    (interloper.tries(), sent)
}

#[tokio::test]
async fn whoever_is_slower_at_the_inbox_tries_again_but_not_for_ever() {
    for id in [None, Some("mine")] {
        let (tries, sent) = sent_behind(7, id).await;
        assert_eq!((tries, sent.unwrap().position.seq.0), (8, 8));
        let (tries, sent) = sent_behind(u32::MAX, id).await;
        let error = sent.unwrap_err();
        assert_eq!(error.code(), "RK0016");
        assert!(tries < 50, "{tries} tries");
        assert!(error.next_step().contains("run the same command again"), "{error:?}");
    }
}

#[tokio::test]
async fn a_dead_run_is_cancelled_at_once_and_leaves_no_open_call() {
    for world in [World::memory(), World::sqlite()] {
        let session = world.dead_run("s", InDoubtPolicy::Never).await;
        let engine = &world.engine;
        assert_eq!(operations::show(engine, session.key()).await.unwrap().status, Status::Interrupted);
        let other = ControlOptions { only_run: Some(RunId::new("run_other").unwrap()), ..by_maria() };
        assert_eq!(code(operations::cancel(engine, session.key(), &other).await), "RK0003");
        let done = operations::cancel(engine, session.key(), &by_maria()).await.unwrap();
        assert!(matches!(done, Controlled::Done { status: Status::Cancelled, .. }), "{done:?}");
        let seen = operations::inspect(engine, session.key(), &At::Latest).await.unwrap();
        let messages = Agent::messages(&seen.state).unwrap();
        assert_eq!(messages.last().unwrap().role, Role::Tool);
        assert!(seen.effects.is_empty(), "{:?}", seen.effects);
        assert_eq!(seen.run.as_ref().unwrap().outcome, Some(RunOutcome::Cancelled));
        assert!(seen.run.unwrap().reason.contains("maria: enough"));
        let again = operations::cancel(engine, session.key(), &by_maria()).await.unwrap();
        assert!(matches!(again, Controlled::Ended { status: Status::Cancelled, .. }), "{again:?}");
        let paused = operations::pause(engine, session.key(), &by_maria()).await.unwrap();
        assert!(matches!(paused, Controlled::Ended { status: Status::Cancelled, .. }), "{paused:?}");
    }
}

#[tokio::test]
async fn a_dead_run_is_paused_at_once() {
    let world = World::memory();
    for interrupts in [false, true] {
        let session = world.dead_run(if interrupts { "a" } else { "b" }, InDoubtPolicy::Never).await;
        let done = match interrupts {
            true => operations::interrupt(&world.engine, session.key(), &by_maria()).await,
            false => operations::pause(&world.engine, session.key(), &by_maria()).await,
        };
        assert!(matches!(done.unwrap(), Controlled::Done { status: Status::Paused, .. }));
        assert_eq!(session.info().await.unwrap().status(), Status::Paused);
        let shown = operations::show(&world.engine, session.key()).await.unwrap();
        assert!(shown.resumable.resumable, "{:?}", shown.resumable);
    }
}

#[tokio::test]
async fn a_waiting_session_is_cancelled_with_its_waits() {
    let world = World::memory();
    let (engine, session, agent) = (&world.engine, world.session("s").await, payer(Approval::default()));
    let waiting = agent.run_once("pay", &session).await.unwrap();
    assert_eq!(waiting.outcome, RunOutcome::Waiting);
    let pause = operations::pause(engine, session.key(), &by_maria()).await.unwrap();
    assert_eq!(pause, Controlled::Unchanged { status: Status::Waiting });
    operations::cancel(engine, session.key(), &by_maria()).await.unwrap();
    let shown = operations::show(engine, session.key()).await.unwrap();
    assert_eq!((shown.status, shown.waits.len(), shown.effects.len()), (Status::Cancelled, 0, 0));
    assert!(operations::waits(engine, engine.namespace()).await.unwrap().waits.is_empty());
    let wait = waiting.waits[0].wait.clone();
    let late = operations::answer(engine, session.key(), &operations::Answer::reject(wait, "bob", "")).await;
    assert!(late.unwrap_err().message().contains("cancelled"));
}

#[tokio::test]
async fn finished_sessions_have_nothing_to_stop() {
    let world = World::memory();
    let engine = &world.engine;
    let (new, done, failed) = (world.session("new").await, world.session("done").await, world.session("failed").await);
    adder().run_once("19 + 23?", &done).await.unwrap();
    failing().run_once("go", &failed).await.unwrap_err();
    let before = heads(&done).await;
    assert_eq!(code(operations::cancel(engine, new.key(), &by_maria()).await), "RK0010");
    assert_eq!(code(operations::pause(engine, new.key(), &by_maria()).await), "RK0010");
    assert_eq!(code(operations::interrupt(engine, new.key(), &by_maria()).await), "RK0010");
    let ended = [
        operations::cancel(engine, done.key(), &by_maria()).await.unwrap(),
        operations::pause(engine, done.key(), &by_maria()).await.unwrap(),
        operations::interrupt(engine, done.key(), &by_maria()).await.unwrap(),
    ];
    let is_over = |ended: &Controlled| matches!(ended, Controlled::Ended { status: Status::Succeeded, .. });
    assert!(ended.iter().all(is_over), "{ended:?}");
    assert_eq!(heads(&done).await, before, "nothing was written, to the inbox neither");
    let shown = operations::show(engine, failed.key()).await.unwrap();
    assert!(shown.resumable.resumable, "{:?}", shown.resumable);
    assert_eq!(shown.run.unwrap().code.as_deref(), Some("RK0024"));
    // What can be resumed can be given up.
    let paused = operations::pause(engine, failed.key(), &by_maria()).await.unwrap();
    assert!(matches!(paused, Controlled::Ended { status: Status::Failed, .. }), "{paused:?}");
    operations::cancel(engine, failed.key(), &by_maria()).await.unwrap();
    assert!(!operations::show(engine, failed.key()).await.unwrap().resumable.resumable);
    let missing = engine.key("missing").unwrap();
    assert_eq!(code(operations::cancel(engine, &missing, &by_maria()).await), "RK0003");
}

#[tokio::test]
async fn a_message_sent_twice_counts_once_and_is_the_next_turn() {
    for world in [World::memory(), World::sqlite()] {
        let (engine, session, agent) = (&world.engine, world.session("s").await, adder());
        let send = async |id: Option<&str>| {
            let id = id.map(|id| MessageId::new(id).unwrap());
            let message = Message::user("19 + 23?");
            operations::send(engine, session.key(), message, InboxMode::Queue, "maria", id).await
        };
        let first = send(Some("m1")).await.unwrap();
        assert!(!first.repeated && first.owner.is_none());
        let again = send(Some("m1")).await.unwrap();
        assert_eq!((again.repeated, &again.position), (true, &first.position));
        let shown = operations::show(engine, session.key()).await.unwrap();
        assert_eq!((shown.unread, shown.resumable.resumable), (1, true));
        assert_eq!(resume(&world, &session, &agent).await.unwrap().text(), "It is 42.");
        assert!(send(Some("m1")).await.unwrap().repeated);
        assert_eq!(code(resume(&world, &session, &agent).await), "RK0010");
        let seen = operations::inspect(engine, session.key(), &At::Latest).await.unwrap();
        let first = Agent::messages(&seen.state).unwrap().remove(0);
        assert_eq!(first.id, Some(MessageId::new("m1").unwrap()));
        assert_eq!(first.author.as_deref(), Some("maria"));
        let missing = engine.key("missing").unwrap();
        let lost = operations::send(engine, &missing, "x".into(), InboxMode::Steer, "maria", None).await;
        assert_eq!(code(lost), "RK0003");
    }
}

#[tokio::test]
async fn starting_needs_an_input() {
    let world = World::memory();
    let (engine, session, agent) = (&world.engine, world.session("s").await, adder());
    let start = async |input| {
        let options = (agent.options().clone(), Default::default());
        operations::start(engine, session.key(), agent.executor(), input, options.0, options.1).await
    };
    for nothing in [Input::Messages(Vec::new()), Input::Resume, Input::Value(Json::null())] {
        assert_eq!(code(start(nothing).await), "RK0001");
    }
    let asked = Input::Messages(vec!["19 + 23?".into()]);
    assert_eq!(start(asked).await.unwrap().report().await.unwrap().text(), "It is 42.");
}

/// A process of which only its lease and what it writes is seen.
struct Puppet {
    engine: rekindle::Engine,
    lease: rekindle::core::Lease,
    run: RunId,
}

impl Puppet {
    /// Takes the lease of a session whose last run was cut off.
    async fn of(world: &World, session: &rekindle::Session) -> Self {
        let (engine, owner) = (world.engine.clone(), OwnerId::new("puppet").unwrap());
        let store = engine.journal().store();
        let lease = store.acquire(session.key(), &BranchId::main(), &owner, Duration::from_secs(900)).await.unwrap();
        let state = engine.journal().load(session.key(), None).await.unwrap().state;
        Self { lease, run: state.run().unwrap().started.run.clone(), engine }
    }

    /// Ends the run so, and keeps the lease.
    async fn end(&mut self, outcome: RunOutcome) {
        let target = Target::new(self.lease.session.clone(), BranchId::main(), self.lease.head);
        let ended = RunEnded::new(self.run.clone(), outcome);
        let target = target.with_fence(self.lease.info.epoch);
        self.lease.head = self.engine.journal().append(&target, &[ended.into()]).await.unwrap().head;
    }

    async fn release(self) {
        self.engine.journal().store().release(&self.lease).await.unwrap();
    }
}

/// Waits until something stands in the inbox of a session.
async fn asked(session: &rekindle::Session) {
    while session.info().await.unwrap().branch(&BranchId::inbox()).unwrap().head.seq.0 == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Stops a session whose owner then does as it is told to by `owner`.
async fn stopped_while<F: Future<Output = ()>>(command: Command, owner: impl FnOnce(Puppet) -> F) -> Controlled {
    let world = World::memory();
    let session = world.dead_run("s", InDoubtPolicy::Never).await;
    let puppet = Puppet::of(&world, &session).await;
    let options = by_maria().wait(Duration::MAX);
    let stop = async {
        match command {
            Command::Cancel => operations::cancel(&world.engine, session.key(), &options).await.unwrap(),
            _ => operations::pause(&world.engine, session.key(), &options).await.unwrap(),
        }
    };
    let (controlled, ()) = tokio::join!(stop, async {
        asked(&session).await;
        owner(puppet).await;
    });
    controlled
}

#[tokio::test]
async fn what_came_of_a_request_is_what_the_journal_says() {
    use RunOutcome as End;
    let ended_by = |outcome| move |mut puppet: Puppet| async move { puppet.end(outcome).await };
    let cancelled = async |outcome| stopped_while(Command::Cancel, ended_by(outcome)).await;
    let paused = async |outcome| stopped_while(Command::Pause, ended_by(outcome)).await;
    // The lease is still held: the end of the run counts, not the end of its process.
    for (outcome, status) in [(End::Succeeded, Status::Succeeded), (End::Failed, Status::Failed)] {
        for told in [cancelled(outcome).await, paused(outcome).await] {
            assert!(matches!(&told, Controlled::Ended { status: ended, .. } if *ended == status), "{told:?}");
        }
    }
    let told = cancelled(End::Cancelled).await;
    assert!(matches!(told, Controlled::Done { status: Status::Cancelled, .. }), "{told:?}");
    let told = paused(End::Paused).await;
    assert!(matches!(told, Controlled::Done { status: Status::Paused, .. }), "{told:?}");
    let told = paused(End::Cancelled).await;
    assert!(matches!(told, Controlled::Ended { status: Status::Cancelled, .. }), "{told:?}");
    assert_eq!(paused(End::Waiting).await, Controlled::Unchanged { status: Status::Waiting });
}

#[tokio::test]
async fn a_run_whose_owner_goes_away_is_stopped_at_once() {
    for outcome in [None, Some(RunOutcome::Paused), Some(RunOutcome::Waiting)] {
        let told = stopped_while(Command::Cancel, async |mut puppet: Puppet| {
            if let Some(outcome) = outcome {
                puppet.end(outcome).await;
            }
            puppet.release().await;
        });
        let told = told.await;
        assert!(matches!(told, Controlled::Done { status: Status::Cancelled, .. }), "{outcome:?}: {told:?}");
    }
}

#[tokio::test]
async fn a_request_that_is_not_confirmed_in_time_says_so() {
    let world = World::memory();
    let session = world.dead_run("s", InDoubtPolicy::Never).await;
    let puppet = Puppet::of(&world, &session).await;
    let options = by_maria().wait(Duration::from_millis(30));
    let told = operations::cancel(&world.engine, session.key(), &options).await.unwrap();
    let meant = |run: &Option<RunId>| run.as_ref() == Some(&puppet.run);
    assert!(matches!(&told, Controlled::Requested { run, .. } if meant(run)), "{told:?}");
    assert_eq!(session.info().await.unwrap().branch(&BranchId::inbox()).unwrap().head.seq.0, 1, "asked once");
}

#[tokio::test]
async fn a_cancel_that_came_too_late_does_not_stop_the_resume_of_a_run_that_failed() {
    let world = World::memory();
    let session = world.dead_run("s", InDoubtPolicy::Idempotent).await;
    let mut puppet = Puppet::of(&world, &session).await;
    // Not read by the run, which fails.
    let told = operations::cancel(&world.engine, session.key(), &by_maria()).await.unwrap();
    assert!(matches!(told, Controlled::Requested { .. }), "{told:?}");
    puppet.end(RunOutcome::Failed).await;
    puppet.release().await;
    let resumed = resume(&world, &session, &payer(Approval::default())).await;
    assert_eq!(code(resumed), "RK0022", "it went on as far as the call in doubt");
}

#[tokio::test]
async fn a_cancel_behind_the_end_of_a_run_stops_no_later_one() {
    let world = World::memory();
    let session = world.session("s").await;
    world.leave_behind(&session, &[RunStarted::new(RunId::new("run_1").unwrap(), "agent").into()]).await;
    let mut puppet = Puppet::of(&world, &session).await;
    // It has ended, and its process has yet to give the lease back.
    puppet.end(RunOutcome::Succeeded).await;
    let told = operations::cancel(&world.engine, session.key(), &by_maria()).await.unwrap();
    let before = heads(&session).await;
    puppet.release().await;
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let run = busy(begun.clone(), go.clone()).run("work", &session).await.unwrap();
    begun.notified().await;
    // Sent once more, as it was: it names the lease of then.
    let entries =
        world.engine.journal().read(session.key(), &BranchId::inbox(), rekindle::core::Seq(1), 9).await.unwrap();
    for entry in entries {
        let rekindle::core::Entry::Batch(batch) = entry else { panic!("{entry:?}") };
        world.engine.journal().send(session.key(), &batch.records).await.unwrap();
    }
    go.notify_one();
    let report = tokio::time::timeout(Duration::from_secs(60), run.report()).await.unwrap().unwrap();
    assert_eq!(report.outcome, RunOutcome::Succeeded, "{told:?} {before:?}");
}
