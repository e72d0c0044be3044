//! Steps that fail, and saves that fail.

use std::time::Duration;

use rekindle::core::record::{CheckpointTrigger, RunOutcome, Usage};
use rekindle::plan::StepStatus;
use rekindle::tool::{ToolError, ToolOutput, tool};
use rekindle::{Json, PersistFailure, RunOptions, Status};
use rekindle_store::Fault;

use crate::common::{
    Failing, checkpoints, deadly, dies, keys, noting, plan, resume, runs, seen, status, statuses, step, succeeded,
    three,
};
use crate::kit::{Rig, quick};
use crate::support::{Kind, Of};

fn refuse(why: &str) -> ToolError {
    ToolError::failed(why)
}

/// `bad` fails once; `behind` and `far` depend on it, `beside` does not.
fn forked(
    rig: &Rig,
    times: u32,
    change: impl FnOnce(rekindle::PlanBuilder) -> rekindle::PlanBuilder,
) -> rekindle::Plan {
    let ledger = rig.world.ledger();
    plan(|plan| {
        let plan = plan
            .tool(noting(&ledger, "note"))
            .tool(Failing::times(times).tool(&ledger, "bad", refuse))
            .step(step("first", "note", "x"))
            .step(step("bad", "bad", "x").after(["first"]))
            .step(step("behind", "note", "x").after(["bad"]))
            .step(step("far", "note", "x").after(["behind", "beside"]))
            .step(step("beside", "note", "x").after(["first"]));
        change(plan)
    })
}

#[tokio::test]
async fn what_depends_on_a_failure_is_blocked_and_the_rest_still_runs() {
    for kind in Kind::ALL {
        let rig = Rig::new(kind).await;
        let plan = forked(&rig, 1, |plan| plan);
        let result = plan.run_once("go", &rig.session).await.unwrap();
        assert_eq!((result.success, result.report.outcome), (false, RunOutcome::Failed));
        let error = result.error.unwrap();
        assert!(error.contains("`bad`") && error.contains("API timeout"), "{error}");
        let expected = ["completed", "failed", "blocked", "blocked", "completed"];
        assert_eq!(statuses(&result.state), expected, "{kind:?}");
        assert_eq!(statuses(&seen(&plan, &rig).await), expected, "{kind:?}: on record too");
        assert_eq!((result.steps_executed, result.steps_recovered), (2, 0));
        assert_eq!(rig.state().await.status(), Status::Failed);
        let errors: Vec<_> = checkpoints(&rig).await;
        let errors: Vec<_> = errors.iter().filter(|found| found.trigger == CheckpointTrigger::Error).collect();
        assert_eq!(errors.len(), 1);
        assert!(errors[0].description.contains("`bad`") && !errors[0].clean, "{:?}", errors[0]);
        assert_eq!(seen(&plan, &rig).await.last_error.unwrap().step, "bad");
    }
}

#[tokio::test]
async fn a_resume_tries_what_failed_again_and_skips_what_is_done() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (plan, ledger) = (forked(&rig, 2, |plan| plan), rig.world.ledger());
    plan.run_once("go", &rig.session).await.unwrap();
    let again = resume(&plan, &rig).await.unwrap();
    assert_eq!((again.success, again.steps_executed, again.steps_recovered), (false, 0, 2));
    let result = resume(&plan, &rig).await.unwrap();
    succeeded(&result);
    assert_eq!((result.steps_executed, result.steps_recovered), (3, 2));
    assert_eq!(["first", "bad", "behind", "far", "beside"].map(|step| runs(&ledger, step)), [1, 3, 1, 1, 1]);
    let keys = keys(&ledger, "bad");
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    assert_eq!(result.state.step("bad").unwrap().error, None);
}

#[tokio::test]
async fn tokens_and_time_add_up_over_resumes() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let used = tool("used", "Uses tokens.", async |_, of: Of| {
        let usage = Usage { input_tokens: 3, output_tokens: 4, cost_micros: 0 };
        Ok::<_, ToolError>(ToolOutput::json(Json::from(of.what.as_str())).and_used(usage))
    });
    let plan = plan(|plan| {
        plan.tool(used)
            .tool(Failing::times(1).tool(&ledger, "bad", refuse))
            .step(step("one", "used", "x"))
            .step(step("bad", "bad", "x").after(["one"]))
            .step(step("two", "used", "x").after(["bad"]))
    });
    let first = plan.run_once("go", &rig.session).await.unwrap();
    let second = resume(&plan, &rig).await.unwrap();
    assert_eq!((first.tokens, second.tokens), (7, 14));
    assert_eq!(second.state.results.iter().map(|result| result.tokens).collect::<Vec<_>>(), [7, 0, 7]);
    assert!(second.report.spent.active_micros > first.report.spent.active_micros);
    assert_eq!(checkpoints(&rig).await[0].usage.input_tokens, 6);
}

#[tokio::test]
async fn a_plan_succeeds_without_its_optional_steps() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let plan = plan(|plan| {
        plan.tool(noting(&ledger, "note"))
            .tool(Failing::times(9).tool(&ledger, "bad", refuse))
            .step(step("bad", "bad", "x").optional())
            .step(step("behind", "note", "x").after(["bad"]).optional())
            .step(step("beside", "note", "x"))
    });
    let result = plan.run_once("go", &rig.session).await.unwrap();
    succeeded(&result);
    assert_eq!(statuses(&result.state), ["failed", "blocked", "completed"]);
}

#[tokio::test]
async fn a_required_step_behind_an_optional_failure_fails_the_plan() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let plan = plan(|plan| {
        plan.tool(noting(&ledger, "note"))
            .tool(Failing::times(9).tool(&ledger, "bad", refuse))
            .step(step("bad", "bad", "x").optional())
            .step(step("behind", "note", "x").after(["bad"]))
    });
    let result = plan.run_once("go", &rig.session).await.unwrap();
    assert!(!result.success && result.error.unwrap().contains("blocked"));
}

#[tokio::test]
async fn fail_fast_starts_nothing_more() {
    let rig = Rig::memory().await;
    let plan = forked(&rig, 1, |plan| plan.fail_fast().parallel(1));
    let result = plan.run_once("go", &rig.session).await.unwrap();
    assert_eq!(statuses(&result.state), ["completed", "failed", "blocked", "blocked", "pending"]);
    assert_eq!(result.report.outcome, RunOutcome::Failed);
    succeeded(&resume(&plan, &rig).await.unwrap());
}

#[tokio::test]
async fn a_step_has_tries_of_its_own_and_what_they_cost_is_no_failure() {
    for (tries, works) in [(3, true), (2, false)] {
        let rig = Rig::memory().await;
        let ledger = rig.world.ledger();
        let flaky = Failing::times(2).tool(&ledger, "flaky", |why| ToolError::retry(why)).retries(quick(1));
        let plan = plan(|plan| plan.tool(flaky).step(step("a", "flaky", "x").retry(quick(tries))));
        let result = plan.run_once("go", &rig.session).await.unwrap();
        assert_eq!((result.success, runs(&ledger, "a")), (works, tries as usize));
        assert_eq!(checkpoints(&rig).await.iter().all(|found| found.clean), works);
        assert_eq!(result.state.last_error.is_none(), works);
    }
}

#[tokio::test]
async fn a_step_that_does_not_come_back_in_time_fails() {
    let rig = Rig::memory().await;
    let never = tool("never", "Never ends.", async |_, of: Of| {
        std::future::pending::<()>().await;
        Ok::<_, ToolError>(of.what)
    });
    let limit = Duration::from_millis(2);
    let plan = plan(|plan| plan.tool(never).step(step("a", "never", "x").timeout(limit).retry(quick(2))));
    let result = plan.run_once("go", &rig.session).await.unwrap();
    assert!(result.error.unwrap().contains("did not come back within 2ms"));
    assert_eq!(status(&result.state, "a"), StepStatus::Failed);
}

#[tokio::test]
async fn a_tool_that_panics_fails_its_step_and_no_other() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let panics = tool("panics", "Panics.", async |_, of: Of| {
        if of.what == "x" {
            panic!("out of cheese");
        }
        Ok::<_, ToolError>(of.what)
    });
    let plan = plan(|plan| {
        plan.tool(panics).tool(noting(&ledger, "note")).step(step("a", "panics", "x")).step(step("b", "note", "x"))
    });
    let result = plan.run_once("go", &rig.session).await.unwrap();
    assert_eq!(statuses(&result.state), ["failed", "completed"]);
    assert!(result.error.unwrap().contains("out of cheese"));
}

#[tokio::test]
async fn a_failed_save_never_marks_a_step_failed() {
    for kind in Kind::ALL {
        let rig = Rig::new(kind).await;
        let (session, faults) = rig.faulty().await;
        let ledger = rig.world.ledger();
        let plan = plan(|plan| {
            plan.tool(noting(&ledger, "note"))
                .tool(deadly(&faults, &ledger, "dies").idempotent())
                .step(step("one", "note", "x"))
                .step(step("two", "dies", "x").after(["one"]))
                .step(step("three", "note", "x").after(["two"]))
        });
        dies(&plan, &session, &rig).await;
        let at = seen(&plan, &rig).await;
        assert_eq!(statuses(&at), ["completed", "running", "pending"], "{kind:?}");
        assert!(at.last_error.is_none());
        let result = resume(&plan, &rig).await.unwrap();
        succeeded(&result);
        assert_eq!((result.steps_executed, result.steps_recovered), (2, 1));
        assert_eq!(["one", "two", "three"].map(|step| runs(&ledger, step)), [1, 2, 1], "{kind:?}");
    }
}

#[tokio::test]
async fn a_full_store_stops_the_run_before_the_next_side_effect() {
    let rig = Rig::memory().await;
    let (session, faults) = rig.faulty().await;
    let ledger = rig.world.ledger();
    let plan = plan(|plan| plan.tool(noting(&ledger, "note").writes()).steps(three("note")));
    // Behind the lease, the beginning and the first intent.
    faults.fail_from(3, Fault::Full);
    let error = plan.run_once("go", &session).await.unwrap_err();
    assert_eq!(error.code(), "RK0017", "{error:?}");
    assert_eq!((runs(&ledger, "one"), runs(&ledger, "two")), (1, 0));
}

#[tokio::test]
async fn a_store_that_comes_back_is_waited_for() {
    let rig = Rig::memory().await;
    let (session, faults) = rig.faulty().await;
    let ledger = rig.world.ledger();
    let plan = plan(|plan| {
        plan.tool(noting(&ledger, "note").writes()).steps(three("note")).on_persist_failure(PersistFailure::Pause)
    });
    faults.fail_once_at(3, Fault::ReplyLost);
    succeeded(&plan.run_once("go", &session).await.unwrap());
    assert_eq!(["one", "two", "three"].map(|step| runs(&ledger, step)), [1, 1, 1]);
}

#[tokio::test]
async fn without_pending_writes_a_completed_step_is_still_not_repeated() {
    let rig = Rig::memory().await;
    let (session, faults) = rig.faulty().await;
    let ledger = rig.world.ledger();
    let options = RunOptions { pending_writes: false, ..RunOptions::default() };
    let plan = plan(|plan| {
        plan.options(options)
            .tool(noting(&ledger, "note"))
            .tool(deadly(&faults, &ledger, "dies").idempotent())
            .step(step("one", "note", "x"))
            .step(step("two", "dies", "x").after(["one"]))
    });
    plan.run_once("go", &session).await.unwrap_err();
    rig.world.pass_leases();
    succeeded(&resume(&plan, &rig).await.unwrap());
    assert_eq!((runs(&ledger, "one"), runs(&ledger, "two")), (1, 2));
}
