//! Steps that wait for somebody: they outlive their process.

use std::time::Duration;

use rekindle::core::Record;
use rekindle::core::record::{CheckpointType, RunOutcome, WaitKind};
use rekindle::operations::{self, Answer};
use rekindle::plan::StepStatus;
use rekindle::tool::{Approval, FnTool, ToolError, ToolOutput, tool};
use rekindle::wait::WaitSpec;
use rekindle::{Json, OnWait, Plan, PlanBuilder, Status};
use serde_json::json;

use crate::common::{checkpoints, noting, output, plan, resume, runs, seen, status, statuses, step, succeeded};
use crate::kit::Rig;
use crate::support::{Kind, Of};

fn asks(spec: WaitSpec) -> FnTool<Of> {
    tool("ask", "Asks.", move |_, _: Of| {
        let spec = spec.clone();
        async move { Ok::<_, ToolError>(ToolOutput::wait(spec)) }
    })
}

/// `ask` waits, `behind` uses its answer, `beside` does not.
fn asking(rig: &Rig, spec: WaitSpec, add: impl FnOnce(PlanBuilder) -> PlanBuilder) -> Plan {
    plan(|plan| {
        add(plan)
            .tool(asks(spec))
            .tool(noting(&rig.world.ledger(), "note"))
            .step(step("ask", "ask", "x"))
            .step(step("behind", "note", "${steps.ask.output.colour}").after(["ask"]))
            .step(step("beside", "note", "x"))
    })
}

#[tokio::test]
async fn a_step_that_waits_suspends_the_plan_and_its_answer_is_its_result() {
    for kind in Kind::ALL {
        let rig = Rig::new(kind).await;
        let plan = asking(&rig, WaitSpec::question("Which colour?"), |plan| plan);
        let waiting = plan.run_once("go", &rig.session).await.unwrap();
        assert_eq!((waiting.report.outcome, waiting.report.waits.len()), (RunOutcome::Waiting, 1));
        assert_eq!((waiting.success, waiting.steps_executed), (false, 1), "what could go on did");
        assert_eq!(waiting.error.as_deref(), Some("Which colour?"));
        assert_eq!(statuses(&waiting.state), ["running", "pending", "completed"]);
        assert_eq!(rig.state().await.status(), Status::Waiting);
        assert_eq!(resume(&plan, &rig).await.unwrap().report.outcome, RunOutcome::Waiting, "nobody answered");
        rig.answer_with(json!({"colour": "blue"})).await;
        let result = resume(&plan, &rig).await.unwrap();
        succeeded(&result);
        assert_eq!(output(&result.state, "behind"), json!("blue"), "{kind:?}");
        assert_eq!((result.steps_executed, result.steps_recovered), (2, 1));
        assert_eq!(runs(&rig.world.ledger(), "beside"), 1);
    }
}

#[tokio::test]
async fn a_run_that_holds_goes_on_in_the_same_run() {
    let rig = Rig::new(Kind::Sqlite).await;
    let plan = asking(&rig, WaitSpec::question("Which colour?"), |plan| plan.on_wait(OnWait::Hold));
    let mut run = plan.run("go", &rig.session).await.unwrap();
    while rig.waits().await.is_empty() {
        run.next_event().await.unwrap();
    }
    rig.answer_with(json!({"colour": "blue"})).await;
    let report = run.report().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Succeeded);
    assert_eq!(output(&seen(&plan, &rig).await, "behind"), json!("blue"));
    assert_eq!(rig.records().await.iter().filter(|record| matches!(record, Record::RunStarted(_))).count(), 1);
}

#[tokio::test]
async fn a_timer_ends_by_itself() {
    let rig = Rig::memory().await;
    let plan = plan(|plan| {
        plan.tool(asks(WaitSpec::timer(Duration::from_secs(60))))
            .tool(noting(&rig.world.ledger(), "note"))
            .step(step("ask", "ask", "x"))
            .step(step("behind", "note", "x").after(["ask"]))
    });
    assert_eq!(plan.run_once("go", &rig.session).await.unwrap().report.outcome, RunOutcome::Waiting);
    assert_eq!(rig.wait().await.kind, WaitKind::Timer);
    rig.world.clock.advance(Duration::from_secs(60));
    succeeded(&resume(&plan, &rig).await.unwrap());
}

/// `pay` needs an approval.
fn paying(rig: &Rig) -> Plan {
    let ledger = rig.world.ledger();
    plan(|plan| {
        plan.tool(noting(&ledger, "pay").writes().needs_approval(Approval::default()))
            .tool(noting(&ledger, "note"))
            .step(step("pay", "pay", "five"))
            .step(step("behind", "note", "${steps.pay.output}").after(["pay"]))
    })
}

#[tokio::test]
async fn a_step_is_approved_or_rejected() {
    for approve in [true, false] {
        let rig = Rig::new(Kind::Sqlite).await;
        let (plan, ledger) = (paying(&rig), rig.world.ledger());
        assert_eq!(plan.run_once("go", &rig.session).await.unwrap().report.outcome, RunOutcome::Waiting);
        assert_eq!((rig.wait().await.kind, runs(&ledger, "pay")), (WaitKind::Approval, 0));
        assert_eq!(checkpoints(&rig).await[0].kind, CheckpointType::UserCheckpoint);
        let wait = rig.wait().await;
        let answer = match approve {
            true => Answer::approve(wait.wait, wait.digest, "maria"),
            false => Answer::reject(wait.wait, "maria", "too much"),
        };
        operations::answer(&rig.engine, rig.key(), &answer).await.unwrap();
        let result = resume(&plan, &rig).await.unwrap();
        assert_eq!((result.success, runs(&ledger, "pay")), (approve, usize::from(approve)));
        if !approve {
            assert_eq!(status(&result.state, "behind"), StepStatus::Blocked);
            assert!(result.error.unwrap().contains("rejected: too much"));
        }
    }
}

#[tokio::test]
async fn an_approval_may_change_the_arguments() {
    let rig = Rig::memory().await;
    let plan = paying(&rig);
    plan.run_once("go", &rig.session).await.unwrap();
    let wait = rig.wait().await;
    let answer = Answer::approve(wait.wait, wait.digest, "maria").with_arguments(Json::from(json!({"what": "three"})));
    operations::answer(&rig.engine, rig.key(), &answer).await.unwrap();
    let result = resume(&plan, &rig).await.unwrap();
    assert_eq!(output(&result.state, "behind"), json!("three"));
}

#[tokio::test]
async fn cancelling_a_waiting_plan_closes_its_wait() {
    let rig = Rig::memory().await;
    let plan = paying(&rig);
    plan.run_once("go", &rig.session).await.unwrap();
    operations::cancel(&rig.engine, rig.key(), &Default::default()).await.unwrap();
    let state = rig.state().await;
    assert_eq!((state.status(), state.waits().count()), (Status::Cancelled, 0));
    assert_eq!(plan.run_once("again", &rig.session).await.unwrap().report.outcome, RunOutcome::Waiting);
}
