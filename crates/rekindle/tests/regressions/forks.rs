//! Branches: a refusal moves nothing, a branch from before a command knows nothing of it, and a
//! session has one owner on all of them.

use rekindle::record::{CheckpointType, Command, RunOutcome};
use rekindle::{BranchId, Frequency, ResumeOptions};
use rekindle_models::Script;

use crate::kit::{Counter, HeldModel, Rig, agent, agent_of, echo, of, run_with, soon};

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
