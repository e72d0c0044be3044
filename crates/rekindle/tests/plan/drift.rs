//! Resuming with another plan than the one that was begun.

use rekindle::core::Record;
use rekindle::core::record::RunOutcome;
use rekindle::plan::{PlanResult, StepSpec};
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{ToolError, tool};
use rekindle::{Error, Plan, PlanBuilder, ResumeOptions};

use crate::common::{Failing, deadly, dies, noting, plan, resume, resume_with, runs, step, succeeded};
use crate::kit::Rig;

/// The tools: `bad` fails in the first run.
fn base(rig: &Rig) -> PlanBuilder {
    let ledger = rig.world.ledger();
    let times = if runs(&ledger, "two") == 0 { 1 } else { 0 };
    Plan::builder("plan")
        .tool(noting(&ledger, "note"))
        .tool(Failing::times(times).tool(&ledger, "bad", |why| ToolError::failed(why)))
}

/// `one` is done, `two` failed, `three` waits for it.
async fn begun() -> Rig {
    let rig = Rig::memory().await;
    let plan = with(&rig, ["one", "two", "three"]);
    assert_eq!(plan.run_once("go", &rig.session).await.unwrap().report.outcome, RunOutcome::Failed);
    rig
}

/// The plan with some of its steps.
fn with<const N: usize>(rig: &Rig, steps: [&str; N]) -> Plan {
    let steps = steps.map(|id| match id {
        "two" => step("two", "bad", "2"),
        "three" => step("three", "note", "3").after(["two"]),
        "changed" => step("three", "note", "4").after(["two"]),
        id => step(id, "note", "x"),
    });
    base(rig).steps(steps).build().unwrap()
}

/// The resume is refused, and goes on once that is accepted.
async fn check(change: impl Fn(&Rig) -> Plan, named: &str) -> (Rig, Result<PlanResult, Error>) {
    let rig = begun().await;
    let changed = change(&rig);
    let error = resume(&changed, &rig).await.unwrap_err();
    assert_eq!(error.code(), "RK0009", "{error}");
    assert!(error.message().contains(named), "{error}");
    let options = ResumeOptions::new("maria").accept_drift("it is better now");
    let result = resume_with(&changed, &rig, options).await;
    (rig, result)
}

async fn accepted(rig: &Rig) -> Vec<String> {
    let records = rig.records().await;
    let mut accepted = records.into_iter().filter_map(|record| match record {
        Record::DriftAccepted(accepted) => Some(accepted),
        _ => None,
    });
    let drift = accepted.next().unwrap();
    assert_eq!((drift.author.as_str(), drift.reason.as_str()), ("maria", "it is better now"));
    drift.changes
}

#[tokio::test]
async fn a_changed_step_is_named() {
    let (rig, result) = check(|rig| with(rig, ["one", "two", "changed"]), "step three changed").await;
    succeeded(&result.unwrap());
    assert!(accepted(&rig).await[0].contains("step three changed"));
}

#[tokio::test]
async fn a_removed_and_an_added_step_are_named() {
    let (rig, result) = check(|rig| with(rig, ["one", "two"]), "step three was removed").await;
    succeeded(&result.unwrap());
    assert_eq!(runs(&rig.world.ledger(), "three"), 0);
    let (rig, _) = check(|rig| with(rig, ["one", "two", "three", "four"]), "step four was added").await;
    assert_eq!(runs(&rig.world.ledger(), "four"), 1);
}

#[tokio::test]
async fn a_completed_step_that_is_gone_is_refused_whatever_is_accepted() {
    let (rig, result) = check(|rig| with(rig, ["two", "three"]), "step one was removed").await;
    let error = result.unwrap_err();
    assert!(error.message().contains("`one`"), "{error}");
    assert!(rig.records().await.iter().all(|record| !matches!(record, Record::DriftAccepted(_))));
}

#[tokio::test]
async fn a_step_that_may_have_happened_and_is_gone_is_refused_whatever_is_accepted() {
    let rig = Rig::memory().await;
    let (session, faults) = rig.faulty().await;
    let ledger = rig.world.ledger();
    let pay = || deadly(&faults, &ledger, "pay").writes();
    let build = |steps: Vec<StepSpec>| plan(|plan| plan.tool(noting(&ledger, "note")).tool(pay()).steps(steps));
    let (one, two) = (step("one", "note", "x"), step("two", "pay", "x").after(["one"]));
    dies(&build(vec![one.clone(), two]), &session, &rig).await;
    let options = ResumeOptions::new("maria").accept_drift("it is better now");
    let error = resume_with(&build(vec![one]), &rig, options).await.unwrap_err();
    assert!(error.message().contains("`two`") && error.next_step().contains("`p1.two`"), "{error}");
}

#[derive(serde::Deserialize, JsonSchema)]
struct More {
    what: String,
    #[serde(default)]
    _how: Option<String>,
}

#[tokio::test]
async fn a_tool_with_other_parameters_is_named() {
    let change = |rig: &Rig| {
        let note = tool("note", "Notes.", async |_, more: More| Ok::<_, ToolError>(more.what));
        plan(|plan| {
            plan.tool(note)
                .tool(Failing::times(0).tool(&rig.world.ledger(), "bad", |why| ToolError::failed(why)))
                .steps([step("one", "note", "x"), step("two", "bad", "2"), step("three", "note", "3").after(["two"])])
        })
    };
    let (_, result) = check(change, "tool note changed").await;
    succeeded(&result.unwrap());
}

#[tokio::test]
async fn a_completed_step_that_gets_a_new_dependency_is_not_carried_out_again() {
    let change = |rig: &Rig| {
        let steps = [
            step("zero", "note", "x"),
            step("one", "note", "x").after(["zero"]),
            step("two", "bad", "2"),
            step("three", "note", "3").after(["two", "one"]),
        ];
        base(rig).steps(steps).build().unwrap()
    };
    let (rig, result) = check(change, "step one changed").await;
    succeeded(&result.unwrap());
    assert_eq!(["zero", "one", "three"].map(|step| runs(&rig.world.ledger(), step)), [1, 1, 1]);
}
