//! Branches: a refusal moves nothing, a branch from before a command knows nothing of it, and a
//! session has one owner on all of them.

use std::time::Duration;

use rekindle::core::Head;
use rekindle::core::record::{CheckpointType, Command, RunOutcome};
use rekindle::{BranchId, Error, ErrorKind, Frequency, Json, ResumeOptions};
use rekindle_models::Script;

use crate::kit::{Counter, Held, HeldModel, Rig, agent, agent_of, echo, ended, eventually, of, run_with, soon};

#[tokio::test]
async fn a_resume_that_is_refused_leaves_the_session_on_its_branch() {
    let rig = Rig::memory().await;
    let (agent, spy) = agent(Script::new("m").text("one").text("two"), |builder| builder.system("be kind"));
    agent.run_once("1", &rig.session).await.unwrap();
    agent.run_once("2", &rig.session).await.unwrap();
    let journal = rig.engine.journal();
    let first = journal.checkpoints(rig.key(), None, None, 10).await.unwrap().pop().unwrap();
    let before = journal.open(rig.key()).await.unwrap();
    let changed = agent_of(&spy, |builder| builder.system("be rude"));
    let options = ResumeOptions::new("maria").from_checkpoint(first.checkpoint.id);
    run_with(&changed, &rig, None, options).await.unwrap_err();
    let after = journal.open(rig.key()).await.unwrap();
    assert_eq!(after.current, before.current);
    assert_eq!(after.branches.len(), before.branches.len(), "it left a branch behind");
    assert_eq!(rig.messages().await.len(), 4);
}

#[tokio::test]
async fn a_branch_from_before_a_cancel_is_not_cancelled() {
    let rig = Rig::memory().await;
    let model = HeldModel::new(Script::new("m").call("echo", of("x")).text("done"), 1);
    let agent = model.agent(|builder| builder.checkpoints(Frequency::PerIteration).tool(echo()));
    let run = agent.run("go", &rig.session).await.unwrap();
    soon(model.began()).await;
    rig.send(&[rig.command(Command::Cancel, None)]).await;
    assert_eq!(soon(run.report()).await.unwrap().outcome, RunOutcome::Cancelled);
    model.release();
    let checkpoints = rig.engine.journal().checkpoints(rig.key(), None, None, 10).await.unwrap();
    let iteration = checkpoints.into_iter().find(|found| found.checkpoint.kind == CheckpointType::Iteration).unwrap();
    let options = ResumeOptions::new("maria").from_checkpoint(iteration.checkpoint.id);
    let report = run_with(&agent, &rig, None, options).await.unwrap();
    assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"), "{}", report.reason);
}

#[tokio::test]
async fn an_owner_that_was_taken_over_on_another_branch_does_nothing_any_more() {
    let rig = Rig::memory().await;
    let counter = Counter::default();
    let model = HeldModel::new(Script::new("m").text("one").call("pay", of("x")).text("done"), 1);
    let agent_of_old = model.agent(|builder| builder.tool(counter.tool("pay")));
    let end = agent_of_old.run_once("1", &rig.session).await.unwrap().position();
    let other = BranchId::new("other").unwrap();
    rig.engine.journal().fork(rig.key(), &end, other.clone()).await.unwrap();
    let run = agent_of_old.run("2", &rig.session).await.unwrap();
    soon(model.began()).await;
    let (heir, _) = agent(Script::new("m").text("one").text("two"), |builder| builder.tool(counter.tool("pay")));
    let options = ResumeOptions::new("maria").on_branch(other).take_over();
    assert_eq!(run_with(&heir, &rig, Some("3"), options).await.unwrap().text(), "two");
    model.release();
    let error = soon(run.report()).await.unwrap_err();
    assert_eq!(error.code(), "RK0006", "{error:?}");
    assert_eq!(counter.count(), 0);
}

/// A time travel back to the first turn that is refused, with what its options add: nothing has
/// moved. `add` is given what was seen of the first turn's end.
async fn refused_travel(add: impl FnOnce(ResumeOptions, Head) -> ResumeOptions) -> Error {
    let rig = Rig::memory().await;
    let (agent, spy) = agent(Script::new("m").text("one").text("two").repeating_last(), |builder| builder);
    let seen = agent.run_once("1", &rig.session).await.unwrap().head;
    agent.run_once("2", &rig.again().await).await.unwrap();
    let journal = rig.engine.journal();
    let first = journal.checkpoints(rig.key(), None, None, 10).await.unwrap().pop().unwrap().checkpoint.id;
    let before = journal.open(rig.key()).await.unwrap();
    let options = add(ResumeOptions::new("maria").from_checkpoint(first), seen);
    let error = run_with(&agent, &rig, Some("3"), options).await.unwrap_err();
    let after = journal.open(rig.key()).await.unwrap();
    assert_eq!((after.current, after.branches.len()), (before.current, before.branches.len()), "{error}");
    assert_eq!((rig.messages().await.len(), spy.count()), (4, 2), "{error}");
    error
}

#[tokio::test]
async fn a_time_travel_that_is_stale_moves_nothing_and_says_where_history_went_on() {
    let error = refused_travel(|options, seen| options.seen(seen)).await;
    assert_eq!(error.kind(), &ErrorKind::Stale);
    assert!(error.message().contains("were appended behind record"), "{error}");
    assert_eq!(error.position().unwrap().branch, BranchId::main());
}

#[tokio::test]
async fn a_time_travel_with_a_value_that_cannot_be_stored_moves_nothing() {
    let error = refused_travel(|options, _| options.set("bad\nkey", "1")).await;
    assert_eq!(error.code(), "RK0001", "{error}");
    let deep = Json::parse("[".repeat(101) + &"]".repeat(101)).unwrap();
    let error = refused_travel(|options, _| options.set_json("k", deep)).await;
    assert_eq!(error.code(), "RK0002", "{error}");
}

#[tokio::test]
async fn a_resume_from_a_checkpoint_starts_there_although_its_branch_went_on_meanwhile() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let (agent, _) =
        agent(Script::new("m").call("slow", of("x")).text("done"), |builder| builder.tool(held.tool("slow")));
    let run = agent.run("go", &rig.session).await.unwrap();
    soon(held.began()).await;
    let id = run.checkpoint("here").await.unwrap();
    // It is where its branch ends: there is no need of a branch yet.
    let journal = rig.engine.journal();
    eventually(async || {
        let found = journal.checkpoint(rig.key(), &id).await.ok()?;
        let head = journal.open(rig.key()).await.unwrap().current_branch().unwrap().head;
        (found.position.seq == head.seq).then_some(())
    })
    .await;
    let (session, plan) = rig.faulty().await;
    let options = ResumeOptions::new("maria").from_checkpoint(id).patience(Duration::from_secs(20));
    let traveller = async { ended(agent.resume_with(&session, options).await).await.unwrap() };
    let first = async {
        // The traveller has asked for the lease once: now it waits.
        eventually(async || (plan.calls() > 0).then_some(())).await;
        held.release();
        let report = soon(run.report()).await.unwrap();
        held.release();
        report
    };
    let (travelled, report) = tokio::join!(traveller, first);
    assert_eq!((report.text().as_str(), report.branch), ("done", BranchId::main()));
    assert_eq!((travelled.outcome, travelled.text().as_str()), (RunOutcome::Succeeded, "done"));
    assert_ne!(travelled.branch, BranchId::main());
    assert_eq!(held.calls(), 2, "the call was under way at the checkpoint");
    assert_eq!(rig.messages().await.len(), 4);
}
