//! Records of the inbox that cannot be read: a run does not go on without them unless it is told to, and everybody who
//! looks is told.

use rekindle::core::record::{Command, Decision, HistoryLost, InboxMode, RunOutcome};
use rekindle::core::{Record, Seq};
use rekindle::tool::Approval;
use rekindle::{Agent, BranchId, DamagedInbox, Error, Event, OnWait, ResumeOptions, RunReport, Status, operations};
use rekindle_models::Script;

use crate::kit::{Held, Rig, agent, echo, of};
use crate::support::Kind;
use crate::victim::{damage, damage_new};

const ON_DISK: [Kind; 2] = [Kind::Sqlite, Kind::Files];

/// An agent that pays once it may, and what it paid.
fn paying(rig: &Rig) -> Agent {
    let ledger = rig.world.ledger();
    let pay = rekindle::tool::tool("pay", "Pays.", move |_, of: crate::support::Of| {
        ledger.write(&of.what);
        async move { Ok::<_, rekindle::tool::ToolError>(of.what) }
    });
    let pay = pay.writes().needs_approval(Approval::default());
    agent(Script::new("m").call("pay", of("five")).text("done").repeating_last(), |builder| builder.tool(pay)).0
}

async fn resumed(agent: &Agent, rig: &Rig, options: ResumeOptions) -> Result<RunReport, Error> {
    agent.resume_with(&rig.again().await, options).await?.report().await
}

fn going_on() -> ResumeOptions {
    ResumeOptions::new("maria").on_damaged_inbox(DamagedInbox::Continue)
}

fn lost(records: &[Record]) -> Vec<&HistoryLost> {
    let lost = records.iter().filter_map(|record| match record {
        Record::HistoryLost(lost) => Some(lost),
        _ => None,
    });
    lost.collect()
}

#[track_caller]
fn names_the_inbox(error: &Error, seq: u64) {
    assert_eq!(error.code(), "RK0011", "{error:?}");
    let position = error.position().unwrap();
    assert_eq!((position.branch.clone(), position.seq), (BranchId::inbox(), Seq(seq)), "{error}");
    assert!(error.next_step().contains("on_damaged_inbox"), "{}", error.next_step());
}

/// A session that waits for an approval which was given in a frame that cannot be read.
async fn approved_in_vain(kind: Kind, more: bool) -> (Rig, Agent) {
    let rig = Rig::new(kind).await;
    let agent = paying(&rig);
    assert_eq!(agent.run_once("go", &rig.session).await.unwrap().outcome, RunOutcome::Waiting);
    let answer = rig.answer(&rig.wait().await, Decision::Approve, "maria");
    rig.send(&[answer.into()]).await;
    if more {
        rig.send(&[rig.message(InboxMode::Queue, "and then?")]).await;
    }
    damage(&rig.world, kind, "inbox", 1);
    (rig, agent)
}

#[tokio::test]
async fn a_run_does_not_go_on_without_an_answer_that_is_lost() {
    for (kind, more) in ON_DISK.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let (rig, agent) = approved_in_vain(kind, more).await;
        let before = rig.world.engine().journal().open(rig.key()).await.unwrap();
        let error = resumed(&agent, &rig, ResumeOptions::default()).await.unwrap_err();
        names_the_inbox(&error, 1);
        let after = rig.world.engine().journal().open(rig.key()).await.unwrap();
        assert_eq!(after.heads(), before.heads(), "{kind:?}: nothing was recorded");
        assert_eq!(after.live_lease(), None, "{kind:?}: the lease was given back");
        assert_eq!(rig.world.ledger().lines(), [] as [&str; 0]);
    }
}

#[tokio::test]
async fn going_on_without_a_lost_answer_is_recorded_and_it_can_be_given_again() {
    for kind in ON_DISK {
        let (rig, agent) = approved_in_vain(kind, true).await;
        let mut run = agent.resume_with(&rig.again().await, going_on()).await.unwrap();
        let mut told = 0;
        while let Some(event) = run.next_event().await.unwrap() {
            told += usize::from(matches!(event, Event::Recorded { record: Record::HistoryLost(_), .. }));
        }
        assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Waiting, "{kind:?}");
        let records = rig.records().await;
        let found = lost(&records);
        assert_eq!(found.len(), 1, "{kind:?}: {found:?}");
        assert_eq!((&found[0].branch, found[0].from, found[0].through), (&BranchId::inbox(), Seq(1), Seq(1)));
        assert_eq!(found[0].author.as_deref(), Some("maria"));
        assert_eq!(told, 1, "{kind:?}: whoever watches the run is told");

        // It is passed over once and for all.
        assert_eq!(resumed(&agent, &rig, ResumeOptions::default()).await.unwrap().outcome, RunOutcome::Waiting);
        assert_eq!(lost(&rig.records().await).len(), 1);
        let answer = rig.answer(&rig.wait().await, Decision::Approve, "maria");
        rig.send(&[answer.into()]).await;
        assert_eq!(resumed(&agent, &rig, ResumeOptions::default()).await.unwrap().text(), "done");
        assert_eq!(rig.world.ledger().lines(), ["five"]);
        let inspected = operations::inspect(&rig.world.engine(), rig.key(), &operations::At::Latest).await.unwrap();
        assert_eq!(inspected.lost.len(), 1);
    }
}

#[tokio::test]
async fn everybody_who_looks_is_told_of_a_lost_answer() {
    for (kind, more) in ON_DISK.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let (rig, _) = approved_in_vain(kind, more).await;
        let engine = rig.world.engine();
        let shown = operations::show(&engine, rig.key()).await.unwrap();
        let found: Vec<_> = shown.damage.iter().map(|damage| (damage.branch.as_str(), damage.first.0)).collect();
        assert_eq!(found, [("inbox", 1)], "{kind:?}");
        assert!(shown.resumable.why.contains("inbox is damaged"), "{}", shown.resumable.why);
        let waits = operations::waits(&engine, engine.namespace()).await.unwrap().waits;
        assert_eq!(waits.len(), 1);
        assert_eq!(waits[0].lost.iter().map(|damage| damage.first.0).collect::<Vec<_>>(), [1], "{kind:?}");
        let run = rig.state().await.run().unwrap().started.run.clone();
        let progress = operations::run(&engine, rig.key(), &run).await.unwrap();
        assert!(progress.reason.contains("the inbox cannot be read at 1"), "{}", progress.reason);
    }
}

/// A run that died, and was then cancelled in a frame that cannot be read.
async fn cancelled_in_vain(kind: Kind) -> (Rig, Agent, Held) {
    let rig = Rig::new(kind).await;
    let (session, faults) = rig.faulty().await;
    let held = Held::default();
    let script = Script::new("m").call("wait", of("x")).call("echo", of("y")).text("done").repeating_last();
    let (agent, _) = agent(script, |builder| builder.tool(held.tool("wait").replay_safe()).tool(echo()));
    let run = agent.run("go", &session).await.unwrap();
    held.began().await;
    faults.fail_from(0, rekindle_store::Fault::Unreachable);
    held.release();
    run.report().await.unwrap_err();
    rig.world.pass_leases();
    rig.send(&[rig.command(Command::Cancel, None)]).await;
    rig.send(&[rig.message(InboxMode::Queue, "hello?")]).await;
    damage(&rig.world, kind, "inbox", 1);
    held.release();
    (rig, agent, held)
}

#[tokio::test]
async fn a_run_does_not_go_on_without_a_command_that_is_lost() {
    for kind in ON_DISK {
        let (rig, agent, held) = cancelled_in_vain(kind).await;
        names_the_inbox(&resumed(&agent, &rig, ResumeOptions::default()).await.unwrap_err(), 1);
        assert_eq!(held.calls(), 1, "{kind:?}");
        let report = resumed(&agent, &rig, going_on()).await.unwrap();
        assert_eq!(report.outcome, RunOutcome::Succeeded, "{kind:?}: {}", report.reason);
        assert_eq!(lost(&rig.records().await).len(), 1, "{kind:?}");
    }
}

#[tokio::test]
async fn a_policy_of_the_agent_counts_too() {
    let (rig, _, held) = cancelled_in_vain(Kind::Sqlite).await;
    let script = Script::new("m").call("wait", of("x")).call("echo", of("y")).text("done").repeating_last();
    let (lenient, _) = agent(script, |builder| {
        builder.on_damaged_inbox(DamagedInbox::Continue).tool(held.tool("wait").replay_safe()).tool(echo())
    });
    let strict = ResumeOptions::new("maria").on_damaged_inbox(DamagedInbox::Stop);
    names_the_inbox(&resumed(&lenient, &rig, strict).await.unwrap_err(), 1);
    assert_eq!(resumed(&lenient, &rig, ResumeOptions::default()).await.unwrap().outcome, RunOutcome::Succeeded);
}

#[tokio::test]
async fn a_session_whose_message_is_lost_does_not_look_as_if_it_had_been_sent_none() {
    for kind in ON_DISK {
        let rig = Rig::new(kind).await;
        let (agent, _) = agent(Script::new("m").text("hello").text("again"), |builder| builder);
        agent.run_once("hi", &rig.session).await.unwrap();
        rig.send(&[rig.message(InboxMode::Queue, "are you there?")]).await;
        rig.send(&[rig.command(Command::Checkpoint, None)]).await;
        damage(&rig.world, kind, "inbox", 1);
        names_the_inbox(&resumed(&agent, &rig, ResumeOptions::default()).await.unwrap_err(), 1);
    }
}

#[tokio::test]
async fn a_run_under_way_stops_when_what_it_is_sent_cannot_be_read() {
    let rig = Rig::new(Kind::Sqlite).await;
    let pay = crate::kit::echo().needs_approval(Approval::default());
    let (agent, _) =
        agent(Script::new("m").call("echo", of("x")).text("done"), |builder| builder.on_wait(OnWait::Hold).tool(pay));
    // From now on whatever is put into the inbox is damaged by the time somebody can read it.
    damage_new(&rig.world, "inbox");
    let run = agent.run("go", &rig.session).await.unwrap();
    rig.send(&[rig.command(Command::Cancel, None)]).await;
    names_the_inbox(&run.report().await.unwrap_err(), 1);
    assert_eq!(rig.state().await.status(), Status::Failed);
    names_the_inbox(&resumed(&agent, &rig, ResumeOptions::default()).await.unwrap_err(), 1);
}
