//! Plans that cannot be carried out: refused before anything runs, with what is wrong and where.

use rekindle::plan::{PlanSpec, StepSpec};
use rekindle::tool::{ToolError, tool};
use rekindle::{Plan, PlanBuilder};
use serde_json::json;

use crate::common::step;
use crate::support::Of;

fn echo() -> rekindle::tool::FnTool<Of> {
    tool("echo", "Says it again.", async |_, of: Of| Ok::<_, ToolError>(of.what))
}

fn say(id: &str) -> StepSpec {
    step(id, "echo", "x")
}

/// The plan is refused, and the error says all of that.
#[track_caller]
fn check(add: impl FnOnce(PlanBuilder) -> PlanBuilder, expected: &[&str]) {
    let error = add(Plan::builder("bad").tool(echo())).build().unwrap_err();
    assert_eq!(error.code(), "RK0001");
    assert!(error.message().contains("the plan `bad`"), "{error}");
    for text in expected {
        assert!(error.message().contains(text), "`{text}` is not in: {}", error.message());
    }
}

#[test]
fn dependencies_that_cannot_be_are_named() {
    let circle = |plan: PlanBuilder| {
        plan.step(say("free"))
            .step(say("a").after(["c"]))
            .step(say("b").after(["a", "free"]))
            .step(say("c").after(["b"]))
    };
    check(circle, &["`a` → `c` → `b` → `a`"]);
    check(|plan| plan.step(say("a").after(["a"])), &["steps[0].dependencies[0]", "`a`", "cannot depend on itself"]);
    let unknown = |plan: PlanBuilder| plan.step(say("a")).step(say("b").after(["a", "nobody"]));
    check(unknown, &["steps[1].dependencies[1]", "`b`", "there is no step `nobody`"]);
}

#[test]
fn ids_that_cannot_be_are_named() {
    check(|plan| plan.step(say("a")).step(say("b")).step(say("a")), &["steps[2].id", "`a`", "steps[0]"]);
    let long = "x".repeat(65);
    for id in ["", "a b", "a.b", "a/b", "a}", "~", &long] {
        check(|plan| plan.step(say(id)), &["steps[0].id", id]);
    }
    let legal = Plan::builder("good").tool(echo()).step(say("Grüße_1-x")).build();
    assert!(legal.is_ok(), "{legal:?}");
}

#[test]
fn an_unknown_tool_is_named_with_those_there_are() {
    let expected = ["steps[1].action", "`b`", "there is no tool `shout`", "echo"];
    check(|plan| plan.step(say("a")).step(step("b", "shout", "x")), &expected);
}

#[test]
fn two_tools_of_one_name_are_refused() {
    let error = Plan::builder("bad").tool(echo()).tool(echo()).step(say("a")).build().unwrap_err();
    assert!(error.message().contains("two tools named `echo`"), "{error}");
}

#[test]
fn references_that_cannot_be_are_named() {
    let using = |reference: &str| step("b", "echo", reference).after(["a"]);
    let cases = [
        ("${steps.nobody.output}", "which does not exist"),
        ("${steps.c.output}", "on which this step does not depend"),
        ("${steps.b.output}", "on which this step does not depend"),
        ("${steps.a.result}", "must go on with `.output`"),
        ("${steps.a}", "must go on with `.output`"),
        ("${step.a.output}", "must begin with"),
        ("${memory.x}", "must begin with"),
        ("${context}", "must begin with"),
        ("${query.x}", "must begin with"),
        ("${steps..y}", "is no reference"),
        ("${query", "no closing brace"),
    ];
    for (reference, why) in cases {
        let place = "steps[1].parameters (step `b`)";
        check(|plan| plan.step(say("a")).step(using(reference)).step(say("c")), &[place, reference, why]);
    }
}

#[test]
fn parameters_that_do_not_fit_the_tool_are_named() {
    let wrong = |plan: PlanBuilder| plan.step(StepSpec::new("a", "echo").with("what", 7));
    check(wrong, &["steps[0].parameters (step `a`)", "do not fit the tool `echo`", "what"]);
    check(|plan| plan.step(StepSpec::new("a", "echo")), &["steps[0].parameters (step `a`)", "what"]);
}

#[test]
fn a_plan_needs_steps_and_room_for_one() {
    check(|plan| plan, &["steps: there are none"]);
    check(|plan| plan.step(say("a")).parallel(0), &["parallel: must be at least 1"]);
}

#[test]
fn everything_that_is_wrong_is_told_at_once_and_not_more_than_anybody_reads() {
    let expected = ["parallel", "steps[0].action", "steps[1].dependencies[0]"];
    let several = |plan: PlanBuilder| plan.parallel(0).step(step("a", "shout", "x")).step(say("b").after(["c"]));
    check(several, &expected);
    let many = (0..1_000).map(|number| step(&format!("s{number}"), "shout", "x"));
    let error = Plan::builder("bad").tool(echo()).steps(many).build().unwrap_err();
    assert!(error.message().contains("and 990 more"), "{error}");
}

#[test]
fn a_file_with_an_unknown_field_is_refused() {
    let cases = [
        (json!({"name": "p", "steps": [], "parallell": 3}), "parallell"),
        (json!({"name": "p", "steps": [{"id": "a", "action": "echo", "dependancies": []}]}), "dependancies"),
        (json!({"name": "p", "steps": [{"id": "a", "action": "echo", "retry": {"attempts": 1, "x": 1}}]}), "x"),
        (json!({"name": "p", "steps": [{"id": "a", "action": "echo", "timeout": "soon"}]}), "soon"),
        (json!({"name": "p", "steps": [{"action": "echo"}]}), "id"),
    ];
    for (file, named) in cases {
        let error = serde_json::from_value::<PlanSpec>(file).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}
