//! Which steps run when, how many at once, and what they are given.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rekindle::plan::{PlanInput, StepSpec};
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{FnTool, ToolError, ToolOutput, tool};
use rekindle::{Json, Plan};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::common::{noting, output, plan, soon, status, step, succeeded};
use crate::kit::Rig;
use crate::support::{Kind, Of};

/// Counts how many calls of it are under way, at most.
#[derive(Clone, Debug, Default)]
struct Crowd {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Crowd {
    /// Each call ends when so many are there together.
    fn tool(&self, name: &str, together: usize) -> FnTool<Of> {
        let (crowd, barrier) = (self.clone(), Arc::new(Barrier::new(together)));
        tool(name, "Meets.", move |_, of: Of| {
            let (crowd, barrier) = (crowd.clone(), barrier.clone());
            async move {
                let now = crowd.now.fetch_add(1, Ordering::SeqCst) + 1;
                crowd.most.fetch_max(now, Ordering::SeqCst);
                barrier.wait().await;
                tokio::task::yield_now().await;
                crowd.now.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, ToolError>(of.what)
            }
        })
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

fn twelve(name: &str) -> Vec<StepSpec> {
    (0..12).map(|number| step(&format!("s{number}"), name, "x")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn independent_steps_run_in_parallel_up_to_the_limit_and_never_more() {
    for kind in Kind::ALL {
        for limit in [1, 3, 12] {
            let (rig, crowd) = (Rig::new(kind).await, Crowd::default());
            // Nobody gets out before `limit` are in.
            let plan = plan(|plan| plan.parallel(limit).tool(crowd.tool("meet", limit)).steps(twelve("meet")));
            succeeded(&soon(plan.run_once("go", &rig.session)).await.unwrap());
            assert_eq!(crowd.most(), limit, "{kind:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_allows_two_calls_at_once_gets_two() {
    let (rig, crowd) = (Rig::memory().await, Crowd::default());
    let plan = plan(|plan| plan.parallel(12).tool(crowd.tool("meet", 2).concurrency(2)).steps(twelve("meet")));
    succeeded(&plan.run_once("go", &rig.session).await.unwrap());
    assert_eq!(crowd.most(), 2);
}

#[tokio::test]
async fn a_step_begins_when_all_it_depends_on_have_ended() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let slow = {
        let ledger = ledger.clone();
        tool("slow", "Takes its time.", move |call, of: Of| {
            let ledger = ledger.clone();
            async move {
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
                ledger.write(&format!("{} ended", call.call_id()));
                Ok::<_, ToolError>(of.what)
            }
        })
    };
    let plan = plan(|plan| {
        plan.tool(slow)
            .tool(noting(&ledger, "note"))
            .step(step("end", "note", "x").after(["a", "b", "c", "a"]))
            .steps(["a", "b", "c"].map(|id| step(id, "slow", "x")))
    });
    succeeded(&plan.run_once("go", &rig.session).await.unwrap());
    let lines = ledger.lines();
    assert_eq!(lines.len(), 4);
    assert!(lines[3].starts_with("end "), "{lines:?}");
}

#[derive(serde::Deserialize, JsonSchema)]
struct Any {
    value: Value,
}

/// Gives back what it is given, whatever it is.
fn any() -> FnTool<Any> {
    tool("any", "Gives it back.", async |_, any: Any| Ok::<_, ToolError>(ToolOutput::json(Json::from(any.value))))
}

/// What becomes of `template` behind a step that gave back a small table.
async fn filled(template: Value) -> Result<Value, String> {
    let rig = Rig::memory().await;
    let table = json!({"rows": [{"n": 1}, {"n": 2}], "flag": true, "none": null, "name": "t", "a-b": 1.5});
    let plan = plan(|plan| {
        plan.tool(any())
            .context("region", json!({"zone": ["a", "b"]}))
            .step(StepSpec::new("fetch", "any").with("value", table))
            .step(StepSpec::new("use", "any").with("value", template).after(["fetch"]))
    });
    let input = PlanInput::query("why?").with("limit", 7);
    let result = plan.run_once(input, &rig.session).await.unwrap();
    match result.success {
        true => Ok(output(&result.state, "use")),
        false => Err(result.state.step("use").unwrap().error.clone().unwrap()),
    }
}

#[tokio::test]
async fn references_are_filled_in_where_they_stand() {
    let cases = [
        (json!("${steps.fetch.output.rows}"), json!([{"n": 1}, {"n": 2}])),
        (json!("${steps.fetch.output.flag}"), json!(true)),
        (json!("${steps.fetch.output.none}"), json!(null)),
        (json!("${steps.fetch.output.a-b}"), json!(1.5)),
        (json!("${steps.fetch.output.rows.1.n}"), json!(2)),
        (json!("n = ${steps.fetch.output.rows.0.n}!"), json!("n = 1!")),
        (json!("${steps.fetch.output.name}${steps.fetch.output.rows.0}"), json!("t{\"n\":1}")),
        (json!({"deep": ["${query}", {"er": "${context.limit}"}]}), json!({"deep": ["why?", {"er": 7}]})),
        (json!("${context.region.zone.1}"), json!("b")),
        (json!("cost: $${query}"), json!("cost: ${query}")),
        (json!(["$${a}", "${query}"]), json!(["${a}", "why?"])),
    ];
    for (template, expected) in cases {
        assert_eq!(filled(template.clone()).await, Ok(expected), "{template}");
    }
}

#[tokio::test]
async fn a_path_that_leads_nowhere_fails_the_step_and_is_named() {
    let missing = [
        "${steps.fetch.output.rows.2}",
        "${steps.fetch.output.rows.n}",
        "${context.nothing}",
        "${steps.fetch.output.name.x}",
    ];
    for reference in missing {
        let error = filled(json!(reference)).await.unwrap_err();
        assert!(error.contains(&format!("`{reference}`")), "{error}");
    }
    let error = filled(json!("in ${steps.fetch.output.no} text")).await.unwrap_err();
    assert!(error.contains("`${steps.fetch.output.no}`"), "{error}");
}

#[tokio::test]
async fn what_a_reference_brings_must_fit_the_tool() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let plan = plan(|plan| {
        plan.tool(any())
            .tool(noting(&ledger, "note"))
            .step(StepSpec::new("fetch", "any").with("value", 7))
            .step(StepSpec::new("use", "note").with("what", "${steps.fetch.output}").after(["fetch"]))
    });
    let result = plan.run_once("go", &rig.session).await.unwrap();
    assert_eq!(status(&result.state, "use"), rekindle::plan::StepStatus::Failed);
    assert!(result.error.unwrap().contains("do not fit the tool `note`"));
    assert_eq!(ledger.lines().len(), 0, "it is not called");
}

#[tokio::test]
async fn a_result_is_reached_over_several_layers() {
    let rig = Rig::memory().await;
    let plan: Plan = plan(|plan| {
        plan.tool(any())
            .step(StepSpec::new("a", "any").with("value", 1))
            .step(StepSpec::new("b", "any").with("value", 2).after(["a"]))
            .step(StepSpec::new("c", "any").with("value", "${steps.a.output}").after(["b"]))
    });
    let result = plan.run_once("go", &rig.session).await.unwrap();
    assert_eq!(output(&result.state, "c"), json!(1));
}
