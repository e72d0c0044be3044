//! Pausing, stopping, cancelling: from the handle and from other processes.

use rekindle::core::Record;
use rekindle::core::record::{Command, InDoubtPolicy, InboxMode, RunOutcome, WaitKind};
use rekindle::tool::ToolError;
use rekindle::{Agent, RunId, Status};
use rekindle_models::Script;
use serde_json::json;

use crate::kit::{Held, Rig, Spy, agent, is_closed, of};
use crate::support::Kind;

/// Calls `slow` once, then says that it is done.
fn script() -> Script {
    Script::new("m").call("slow", of("a")).text("done").text("and again")
}

fn slow(held: &Held) -> (Agent, Spy) {
    agent(script(), |builder| builder.tool(held.tool("slow")))
}

fn writing(held: &Held) -> (Agent, Spy) {
    agent(script(), |builder| builder.tool(held.tool("slow").writes()))
}

#[tokio::test]
async fn a_stopped_run_lets_its_tool_end_and_a_resume_does_not_call_it_again() {
    let rig = Rig::new(Kind::Sqlite).await;
    let held = Held::default();
    let (agent, spy) = slow(&held);
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.stop("maintenance");
    held.release();
    let report = run.report().await.unwrap();
    assert_eq!((report.outcome, report.reason.as_str()), (RunOutcome::Paused, "maintenance"));
    assert_eq!(rig.state().await.status(), Status::Paused);
    let report = agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"));
    assert_eq!((held.calls(), spy.count()), (1, 2));
}

#[tokio::test]
async fn a_tool_that_fails_while_the_run_drains_has_failed_and_is_not_in_doubt() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let tool = held.tool_ending("slow", |_| Err(ToolError::failed("the card was refused"))).writes();
    let (agent, _) = agent(script(), |builder| builder.tool(tool));
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.stop("maintenance");
    held.release();
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Paused);
    let report = agent.resume(&rig.session).await.unwrap().report().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Succeeded, "{}", report.reason);
    assert_eq!(rig.results().await[0].content.as_str(), "\"the card was refused\"");
    assert_eq!(held.calls(), 1);
}

#[tokio::test]
async fn a_tool_that_says_it_did_not_happen_while_the_run_drains_is_called_again_without_asking() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let tool = held.tool_ending("slow", |_| Err(ToolError::retry("the line was busy"))).writes();
    let (agent, _) = agent(script(), |builder| builder.tool(tool));
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.stop("maintenance");
    held.release();
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Paused);
    let run = agent.resume(&rig.session).await.unwrap();
    (0..3).for_each(|_| held.release());
    let report = run.report().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Succeeded, "{}", report.reason);
    assert_eq!(held.calls(), 4, "once before the pause, three tries after it");
}

#[tokio::test]
async fn a_second_stop_stops_at_once_and_a_replay_safe_tool_runs_again() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let (agent, spy) = slow(&held);
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.stop("one");
    run.stop("two");
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Paused);
    let run = agent.resume(&rig.again().await).await.unwrap();
    held.began().await;
    held.release();
    assert_eq!(run.report().await.unwrap().text(), "done");
    assert_eq!((held.calls(), spy.count()), (2, 2));
}

#[tokio::test]
async fn a_second_stop_puts_a_writing_tool_in_doubt_and_a_person_is_asked() {
    let rig = Rig::new(Kind::Sqlite).await;
    let held = Held::default();
    let (agent, _) = writing(&held);
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.stop("one");
    run.stop("two");
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Paused);
    let report = agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Waiting);
    let wait = rig.wait().await;
    assert_eq!(wait.kind, WaitKind::Question);
    assert!(wait.prompt.contains("slow"), "{}", wait.prompt);
    assert_eq!(wait.arguments.unwrap().to_value().unwrap(), of("a"));
    rig.answer_with(json!({"action": "done", "result": "it was booked"})).await;
    let report = agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "done");
    assert_eq!(rig.results().await[0].content.as_str(), "\"it was booked\"");
    assert_eq!(held.calls(), 1);
}

#[tokio::test]
async fn a_tool_that_outlives_the_grace_period_is_stopped() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let grace = std::time::Duration::from_millis(1);
    let (agent, _) = agent(script(), |builder| builder.tool(held.tool("slow")).grace(grace));
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.stop("now");
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Paused);
    assert_eq!(rig.state().await.open_effects().count(), 1);
}

#[tokio::test]
async fn a_cancelled_run_closes_its_calls_and_the_next_message_works() {
    for policy in [InDoubtPolicy::ReplaySafe, InDoubtPolicy::Ask, InDoubtPolicy::Never] {
        let rig = Rig::memory().await;
        let held = Held::default();
        let (agent, spy) = agent(script(), |builder| builder.tool(held.tool("slow").in_doubt(policy)));
        let run = agent.run("go", &rig.session).await.unwrap();
        held.began().await;
        run.cancel("changed my mind");
        let report = run.report().await.unwrap();
        assert_eq!((report.outcome, report.reason.as_str()), (RunOutcome::Cancelled, "changed my mind"));
        assert_eq!(rig.state().await.status(), Status::Cancelled);
        assert!(is_closed(&rig.messages().await), "{policy:?}");
        let result = rig.results().await.remove(0);
        assert!(result.error, "{result:?}");
        assert_eq!(result.synthetic, policy != InDoubtPolicy::ReplaySafe, "a call that may have happened");
        let report = agent.run_once("once more", &rig.session).await.unwrap();
        assert_eq!(report.text(), "done");
        assert!(is_closed(&spy.last_view()));
        assert_eq!(spy.last_view().last().unwrap().text(), "once more");
        assert_eq!(rig.state().await.open_effects().count(), 0);
    }
}

#[tokio::test]
async fn cancelling_a_paused_run_from_outside_closes_what_is_open() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let (agent, _) = writing(&held);
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.stop("one");
    run.stop("two");
    run.report().await.unwrap();
    rig.send(&[rig.command(Command::Cancel, None)]).await;
    let report = agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Cancelled);
    assert!(is_closed(&rig.messages().await));
    assert_eq!((held.calls(), rig.waits().await.len()), (1, 0));
}

#[tokio::test]
async fn commands_of_another_process_reach_a_run() {
    let cases = [
        (Command::Pause, RunOutcome::Paused, "paused by maria: because"),
        (Command::Interrupt, RunOutcome::Paused, "interrupted by maria: because"),
        (Command::Cancel, RunOutcome::Cancelled, "cancelled by maria: because"),
    ];
    for (command, outcome, reason) in cases {
        let rig = Rig::new(Kind::Sqlite).await;
        let held = Held::default();
        let grace = std::time::Duration::from_millis(1);
        let (agent, _) = agent(script(), |builder| builder.tool(held.tool("slow")).grace(grace));
        let run = agent.run("go", &rig.session).await.unwrap();
        held.began().await;
        rig.send(&[rig.command(command, Some(run.run().clone()))]).await;
        let report = run.report().await.unwrap();
        assert_eq!((report.outcome, report.reason.as_str()), (outcome, reason));
        let closed = command != Command::Pause;
        assert_eq!(is_closed(&rig.messages().await), closed, "{command:?}: a paused call is open");
    }
}

#[tokio::test]
async fn a_command_for_another_run_is_passed_over() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let (agent, spy) = slow(&held);
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    let other = Some(RunId::new("run_other").unwrap());
    let commands =
        [Command::Pause, Command::Cancel, Command::Interrupt].map(|command| rig.command(command, other.clone()));
    // They arrive together: once the message has had its effect, the commands were seen too.
    rig.send(&[&commands[..], &[rig.message(InboxMode::Interrupt, "look here")]].concat()).await;
    let report = run.report().await.unwrap();
    assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"));
    assert_eq!(spy.last_view().last().unwrap().text(), "look here");
}

#[tokio::test]
async fn a_command_sent_while_nobody_runs_is_honoured_by_the_next_resume_and_once() {
    let rig = Rig::new(Kind::Sqlite).await;
    let held = Held::default();
    let (agent, spy) = slow(&held);
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.stop("one");
    held.release();
    let first = run.report().await.unwrap().run;
    rig.send(&[rig.command(Command::Pause, Some(first))]).await;
    let report = agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!((report.outcome, report.reason.as_str()), (RunOutcome::Paused, "paused by maria: because"));
    assert_eq!(spy.count(), 1);
    let report = agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "done");
}

#[tokio::test]
async fn a_command_taken_once_is_not_taken_again_on_a_branch_from_before_it() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let (agent, _) = slow(&held);
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    let checkpoint = run.checkpoint("before the command").await.unwrap();
    rig.send(&[rig.command(Command::Cancel, None)]).await;
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Cancelled);
    held.release();
    let options = rekindle::ResumeOptions::new("maria").from_checkpoint(checkpoint);
    let report = agent.resume_with(&rig.session, options).await.unwrap().report().await.unwrap();
    assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"), "{}", report.reason);
}

#[tokio::test]
async fn a_checkpoint_can_be_asked_for_by_another_process() {
    let rig = Rig::memory().await;
    rig.send(&[rig.command(Command::Checkpoint, None)]).await;
    let (agent, _) = agent(Script::new("m").text("hello"), |builder| builder);
    agent.run_once("go", &rig.session).await.unwrap();
    let found = rig.engine.journal().checkpoints(rig.key(), None, None, 10).await.unwrap();
    assert!(found.iter().any(|found| found.checkpoint.description == "because"), "{found:?}");
}

#[tokio::test]
async fn dropping_the_handle_pauses_the_run() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let (agent, _) = slow(&held);
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    drop(run);
    held.release();
    assert_eq!(rig.ended().await.outcome, RunOutcome::Paused);
    assert_eq!(rig.state().await.open_effects().count(), 0, "the tool ended first");
}

#[tokio::test]
async fn dropping_the_handle_of_a_run_that_is_asked_to_pause_still_lets_its_tool_end() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let (agent, _) = writing(&held);
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.stop("maintenance");
    drop(run);
    held.release();
    assert_eq!(rig.ended().await.reason, "maintenance");
    assert_eq!(rig.state().await.open_effects().count(), 0, "the tool ended first");
}

#[tokio::test]
async fn a_detached_run_goes_on_alone() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let (agent, _) = slow(&held);
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.detach();
    held.release();
    assert_eq!(rig.ended().await.outcome, RunOutcome::Succeeded);
    assert_eq!(rig.messages().await.last().unwrap().text(), "done");
}

#[tokio::test]
async fn a_second_run_of_a_session_is_refused_with_the_owner() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let (agent, _) = slow(&held);
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    let error = agent.resume(&rig.again().await).await.unwrap_err();
    assert_eq!(error.code(), "RK0007");
    held.release();
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Succeeded);
    assert_eq!(rig.records().await.iter().filter(|record| matches!(record, Record::RunStarted(_))).count(), 1);
}

#[tokio::test]
async fn a_run_that_was_taken_over_writes_nothing_any_more() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (first, second) = (Held::default(), Held::default());
    let (zombie, _) = slow(&first);
    let run = zombie.run("go", &rig.session).await.unwrap();
    first.began().await;
    let (heir, _) = slow(&second);
    let options = rekindle::ResumeOptions::new("maria").take_over();
    let taken = heir.resume_with(&rig.again().await, options).await.unwrap();
    second.began().await;
    first.release();
    let error = run.report().await.unwrap_err();
    assert_eq!(error.code(), "RK0006", "{error:?}");
    second.release();
    assert_eq!(taken.report().await.unwrap().text(), "done");
    let records = rig.records().await;
    let outcomes = records
        .iter()
        .filter(|record| matches!(record, Record::EffectOutcome(outcome) if outcome.effect.as_str().starts_with('t')));
    assert_eq!(outcomes.count(), 1, "only the heir's");
    assert_eq!(records.iter().filter(|record| matches!(record, Record::RunEnded(_))).count(), 1);
}
