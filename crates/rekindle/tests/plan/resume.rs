//! Going on: from old checkpoints, in the same session again, with changes, and within budgets.

use rekindle::core::Record;
use rekindle::core::record::RunOutcome;
use rekindle::operations::{self, At, Change};
use rekindle::plan::{PlanInput, StepStatus};
use rekindle::tool::{Approval, ToolError, ToolOutput, tool};
use rekindle::{BranchId, Budget, Budgets, Json, Plan, ResumeOptions, RunOptions, Status};
use serde_json::json;

use crate::common::{
    Failing, checkpoints, memory, noting, output, plan, resume, resume_with, runs, seen, status, statuses, step,
    succeeded, three,
};
use crate::kit::Rig;
use crate::support::{Kind, Of};

/// Each step remembers how many steps there were before it.
fn counting() -> rekindle::tool::FnTool<Of> {
    tool("count", "Counts.", async |call, of: Of| {
        let before = call.memory("count").await?.map_or(0, |count| count.decode::<u64>().unwrap());
        let count = Json::of(&(before + 1))?;
        Ok::<_, ToolError>(ToolOutput::json(Json::from(of.what.as_str())).and_remember("count", count))
    })
}

#[tokio::test]
async fn an_old_checkpoint_brings_back_results_context_and_budgets() {
    let rig = Rig::new(Kind::Sqlite).await;
    let plan = plan(|plan| plan.tool(counting()).steps(three("count")));
    let first = plan.run_once("go", &rig.session).await.unwrap();
    assert_eq!((memory(&rig.state().await, "count"), first.report.spent.iterations), (Some(json!(3)), 3));
    let old = checkpoints(&rig).await.into_iter().find(|found| found.step == 1).unwrap();
    let at = operations::inspect(&rig.engine, rig.key(), &At::Checkpoint(old.id.clone())).await.unwrap();
    assert_eq!(memory(&at.state, "count"), Some(json!(1)));
    let result = resume_with(&plan, &rig, ResumeOptions::new("maria").from_checkpoint(old.id)).await.unwrap();
    succeeded(&result);
    assert_ne!(result.report.branch, BranchId::main());
    assert_eq!((result.steps_executed, result.report.spent.iterations), (2, 3));
    assert_eq!(result.state.context["count"].as_str(), "3");
    // Nothing of the old branch is lost.
    let main = rig.engine.journal().load(rig.key(), Some(&first.report.position())).await.unwrap();
    assert_eq!(plan.state(&main.state).unwrap().results, first.state.results);
}

#[tokio::test]
async fn a_second_run_is_never_taken_for_the_first() {
    let rig = Rig::new(Kind::Sqlite).await;
    let ledger = rig.world.ledger();
    let plan = plan(|plan| plan.tool(noting(&ledger, "note")).tool(counting()).steps(three("count")).context("c", 1));
    let input = PlanInput::query("first").with("only", "once").with("c", 2);
    let first = plan.run_once(input, &rig.session).await.unwrap();
    assert_eq!((first.state.query.as_str(), first.state.context.len()), ("first", 3));
    let error = plan.resume(&rig.session).await.unwrap_err();
    assert_eq!(error.code(), "RK0010", "{error}");
    let second = plan.run_once("second", &rig.session).await.unwrap();
    succeeded(&second);
    assert_eq!((second.steps_executed, second.steps_recovered, second.state.results.len()), (3, 0, 3));
    assert_eq!(second.state.query, "second");
    let context: Vec<_> = second.state.context.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(context, [("c", "1"), ("count", "3")], "nothing is left of the first");
    assert_eq!(second.report.spent.iterations, 3);
}

#[tokio::test]
async fn an_unfinished_run_must_be_resumed_or_cancelled_first() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let bad = Failing::times(1).tool(&ledger, "bad", |why| ToolError::failed(why));
    let plan = plan(|plan| plan.tool(bad).steps(three("bad")));
    plan.run_once("go", &rig.session).await.unwrap();
    let error = plan.run("again", &rig.session).await.unwrap_err();
    assert_eq!(error.code(), "RK0019");
    assert!(error.next_step().contains("resume `s`") && error.next_step().contains("cancel `s`"), "{error}");
    operations::cancel(&rig.engine, rig.key(), &Default::default()).await.unwrap();
    let result = plan.run_once("again", &rig.session).await.unwrap();
    succeeded(&result);
    assert_eq!((result.state.results.len(), result.state.last_error), (3, None));
}

#[tokio::test]
async fn what_is_set_at_a_resume_reaches_steps_not_yet_begun() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let plan = plan(|plan| {
        plan.tool(noting(&ledger, "note"))
            .tool(Failing::times(1).tool(&ledger, "bad", |why| ToolError::failed(why)))
            .context("region", "eu")
            .step(step("one", "note", "${context.region}"))
            .step(step("two", "bad", "${context.region}").after(["one"]))
            .step(step("three", "note", "${context.region}").after(["two"]))
    });
    plan.run_once("go", &rig.session).await.unwrap();
    let result = resume_with(&plan, &rig, ResumeOptions::new("maria").set("region", "us")).await.unwrap();
    let outputs = ["one", "two", "three"].map(|step| output(&result.state, step));
    assert_eq!(outputs, [json!("eu"), json!("us"), json!("us")]);
    assert!(rig.records().await.iter().any(|record| matches!(record, Record::Edit(edit) if edit.author == "maria")));
}

#[tokio::test]
async fn a_step_can_be_skipped_by_hand() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let bad = Failing::times(9).tool(&ledger, "bad", |why| ToolError::failed(why));
    let plan = plan(|plan| {
        plan.tool(bad)
            .tool(noting(&ledger, "note"))
            .step(step("bad", "bad", "x"))
            .step(step("behind", "note", "x").after(["bad"]))
    });
    plan.run_once("go", &rig.session).await.unwrap();
    let set = |value| Change::SetRegister { key: "step/bad".into(), value: Json::from(value) };
    let edit = async |value| operations::edit(&rig.engine, rig.key(), &At::Latest, &[set(value)], "maria", "").await;
    assert_eq!(edit(json!({"turn": 1, "status": "gone"})).await.unwrap_err().code(), "RK0001");
    edit(json!({"turn": 1, "status": "skipped"})).await.unwrap();
    let result = resume(&plan, &rig).await.unwrap();
    succeeded(&result);
    assert_eq!(statuses(&result.state), ["skipped", "completed"]);
    assert_eq!((runs(&ledger, "bad"), result.steps_executed), (1, 1));
}

/// Three steps, of which so many may be made.
fn limited(rig: &Rig, steps: u64) -> Plan {
    let budgets = Budgets::new().with(Budget::Iterations, steps);
    plan(|plan| plan.tool(noting(&rig.world.ledger(), "note")).steps(three("note")).budgets(budgets))
}

#[tokio::test]
async fn a_spent_budget_pauses_the_run_and_raising_it_goes_on() {
    let rig = Rig::memory().await;
    let plan = limited(&rig, 2);
    let result = plan.run_once("go", &rig.session).await.unwrap();
    assert_eq!((result.report.outcome, result.success), (RunOutcome::Paused, false));
    assert!(result.error.unwrap().contains("iterations"));
    assert_eq!(statuses(&result.state), ["completed", "completed", "pending"]);
    assert_eq!(resume(&plan, &rig).await.unwrap().report.outcome, RunOutcome::Paused, "a resume refills nothing");
    let options = ResumeOptions::new("maria").raise(Budget::Iterations, 3);
    let result = resume_with(&plan, &rig, options).await.unwrap();
    succeeded(&result);
    assert_eq!((result.steps_executed, result.steps_recovered), (1, 2));
    assert!(rig.records().await.iter().any(|record| matches!(record, Record::BudgetRaised(_))));
}

#[tokio::test]
async fn a_budget_that_is_just_enough_is_enough() {
    let rig = Rig::memory().await;
    succeeded(&limited(&rig, 3).run_once("go", &rig.session).await.unwrap());
}

#[tokio::test]
async fn a_step_that_was_begun_is_paid_for() {
    let rig = Rig::memory().await;
    let budgets = Budgets::new().with(Budget::Iterations, 1);
    let pay = noting(&rig.world.ledger(), "pay").writes().needs_approval(Approval::default());
    let plan = plan(|plan| plan.tool(pay).step(step("a", "pay", "x")).budgets(budgets));
    let waiting = plan.run_once("go", &rig.session).await.unwrap();
    assert_eq!(waiting.report.outcome, RunOutcome::Waiting);
    let wait = rig.wait().await;
    let answer = operations::Answer::approve(wait.wait, wait.digest, "maria");
    operations::answer(&rig.engine, rig.key(), &answer).await.unwrap();
    succeeded(&resume(&plan, &rig).await.unwrap());
}

#[tokio::test]
async fn operations_resume_plans_too() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let bad = Failing::times(1).tool(&ledger, "bad", |why| ToolError::failed(why));
    let plan = plan(|plan| plan.tool(bad).steps(three("bad")));
    plan.run_once("go", &rig.session).await.unwrap();
    let (options, resume) = (RunOptions::default(), ResumeOptions::new("maria"));
    let run = operations::resume(&rig.engine, rig.key(), plan.executor(), options, resume).await.unwrap();
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Succeeded);
    assert_eq!(rig.state().await.status(), Status::Succeeded);
    assert_eq!(status(&seen(&plan, &rig).await, "three"), StepStatus::Completed);
}
