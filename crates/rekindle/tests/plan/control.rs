//! Pausing, interrupting and cancelling plans: from the handle and from elsewhere.

use std::time::Duration;

use rekindle::core::record::RunOutcome;
use rekindle::operations::{self, ControlOptions};
use rekindle::{Plan, RunOptions, Status};

use crate::common::{noting, plan, result, resume, runs, seen, statuses, step, succeeded};
use crate::kit::{Held, Rig};
use crate::support::{Kind, Of};

/// `slow` takes its time, then `after` notes.
fn slow(rig: &Rig, held: &Held, declare: fn(rekindle::tool::FnTool<Of>) -> rekindle::tool::FnTool<Of>) -> Plan {
    plan(|plan| {
        plan.tool(declare(held.tool("slow")))
            .tool(noting(&rig.world.ledger(), "note"))
            .step(step("slow", "slow", "x"))
            .step(step("after", "note", "x").after(["slow"]))
    })
}

fn reads(tool: rekindle::tool::FnTool<Of>) -> rekindle::tool::FnTool<Of> {
    tool
}

fn because() -> ControlOptions {
    ControlOptions::new("maria", "because")
}

#[tokio::test]
async fn a_paused_run_lets_its_step_end_and_goes_on_behind_it() {
    let (rig, held) = (Rig::new(Kind::Sqlite).await, Held::default());
    let plan = slow(&rig, &held, reads);
    let run = plan.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.stop("maintenance");
    held.release();
    let report = run.report().await.unwrap();
    let paused = result(&plan, &rig.session, report).await;
    assert_eq!((paused.report.outcome, paused.steps_executed), (RunOutcome::Paused, 1));
    assert_eq!(paused.error.as_deref(), Some("maintenance"));
    assert_eq!(rig.state().await.status(), Status::Paused);
    assert_eq!(statuses(&seen(&plan, &rig).await), ["completed", "pending"]);
    let done = resume(&plan, &rig).await.unwrap();
    succeeded(&done);
    assert_eq!((held.calls(), runs(&rig.world.ledger(), "after"), done.steps_recovered), (1, 1, 1));
}

#[tokio::test]
async fn an_interrupted_step_is_made_again() {
    let (rig, held) = (Rig::new(Kind::Sqlite).await, Held::default());
    let plan = slow(&rig, &held, reads);
    let run = plan.run("go", &rig.session).await.unwrap();
    held.began().await;
    operations::interrupt(&rig.world.engine(), rig.key(), &because()).await.unwrap();
    let report = run.report().await.unwrap();
    assert_eq!((report.outcome, report.reason.as_str()), (RunOutcome::Paused, "interrupted by maria: because"));
    assert_eq!(statuses(&seen(&plan, &rig).await), ["running", "pending"]);
    held.release();
    succeeded(&resume(&plan, &rig).await.unwrap());
    assert_eq!(held.calls(), 2);
}

#[tokio::test]
async fn an_interrupted_step_that_writes_is_asked_about() {
    let (rig, held) = (Rig::memory().await, Held::default());
    let plan = slow(&rig, &held, |tool| tool.writes());
    let run = plan.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.stop("one");
    run.stop("two");
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Paused);
    assert_eq!(resume(&plan, &rig).await.unwrap().report.outcome, RunOutcome::Waiting);
    rig.answer_with(serde_json::json!({"action": "done", "result": "x"})).await;
    succeeded(&resume(&plan, &rig).await.unwrap());
    assert_eq!(held.calls(), 1);
}

#[tokio::test]
async fn a_cancelled_run_is_over_and_leaves_nothing_open() {
    let declared: [fn(rekindle::tool::FnTool<Of>) -> rekindle::tool::FnTool<Of>; 3] =
        [reads, |tool| tool.writes(), |tool| tool.never_again()];
    for declare in declared {
        let (rig, held) = (Rig::memory().await, Held::default());
        let plan = slow(&rig, &held, declare);
        let run = plan.run("go", &rig.session).await.unwrap();
        held.began().await;
        run.cancel("changed my mind");
        assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Cancelled);
        let state = rig.state().await;
        assert_eq!((state.status(), state.open_effects().count()), (Status::Cancelled, 0));
        assert_eq!(plan.resume(&rig.session).await.unwrap_err().code(), "RK0010");
        held.release();
        succeeded(&plan.run_once("again", &rig.session).await.unwrap());
        assert_eq!((held.calls(), runs(&rig.world.ledger(), "after")), (2, 1));
    }
}

#[tokio::test]
async fn a_pause_from_elsewhere_stops_a_step_that_outlives_the_grace_period() {
    let (rig, held) = (Rig::new(Kind::Sqlite).await, Held::default());
    let spec = slow(&rig, &held, reads).spec().clone();
    let options = RunOptions { grace: Duration::from_millis(1), ..RunOptions::default() };
    let tools = (held.tool("slow"), noting(&rig.world.ledger(), "note"));
    let plan = Plan::from_spec(spec).options(options).tool(tools.0).tool(tools.1).build().unwrap();
    let run = plan.run("go", &rig.session).await.unwrap();
    held.began().await;
    operations::pause(&rig.world.engine(), rig.key(), &because()).await.unwrap();
    let report = run.report().await.unwrap();
    assert_eq!((report.outcome, report.reason.as_str()), (RunOutcome::Paused, "paused by maria: because"));
    assert_eq!(statuses(&seen(&plan, &rig).await), ["running", "pending"]);
    held.release();
    succeeded(&resume(&plan, &rig).await.unwrap());
}

#[tokio::test]
async fn a_paused_plan_can_be_cancelled_while_nobody_runs_it() {
    let (rig, held) = (Rig::memory().await, Held::default());
    let plan = slow(&rig, &held, |tool| tool.writes());
    let run = plan.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.stop("one");
    run.stop("two");
    run.report().await.unwrap();
    assert_eq!(rig.state().await.open_effects().count(), 1);
    operations::cancel(&rig.engine, rig.key(), &because()).await.unwrap();
    let state = rig.state().await;
    assert_eq!((state.status(), state.open_effects().count()), (Status::Cancelled, 0));
    assert_eq!(plan.resume(&rig.session).await.unwrap_err().code(), "RK0010");
}
