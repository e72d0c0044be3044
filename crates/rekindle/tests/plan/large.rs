//! Plans of a hundred thousand steps: whatever takes more than a fixed time for each step takes
//! for ever here.

use rekindle::plan::StepSpec;
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{FnTool, ToolError, tool};
use rekindle::{Engine, Frequency, Plan};

use crate::common::succeeded;

const MANY: usize = 100_000;
/// How many are carried out: without optimisation each takes ten times as long.
const RUN: usize = if cfg!(debug_assertions) { MANY / 10 } else { MANY };

#[derive(serde::Deserialize, JsonSchema)]
struct Number {
    #[serde(default)]
    n: i64,
}

/// Gives a number back, unless it is told to fail and has not failed yet.
fn same() -> FnTool<Number> {
    let failed = std::sync::atomic::AtomicBool::new(false);
    tool("same", "Gives it back.", move |_, number: Number| {
        let fails = number.n < 0 && !failed.swap(true, std::sync::atomic::Ordering::SeqCst);
        async move { if fails { Err(ToolError::failed("not yet")) } else { Ok(number.n) } }
    })
}

fn same_step(number: usize) -> StepSpec {
    StepSpec::new(format!("s{number}"), "same")
}

fn name(number: usize) -> String {
    format!("s{number}")
}

#[test]
fn a_step_may_depend_on_all_others_and_use_many() {
    let all: Vec<String> = (0..MANY).map(name).collect();
    let text: String = all.iter().step_by(10).map(|id| format!("${{steps.{id}.output}}")).collect();
    let last = StepSpec::new("last", "same").after(all).with("text", text);
    let plan = Plan::builder("wide").tool(same()).steps((0..MANY).map(same_step)).step(last).build().unwrap();
    assert_eq!(plan.spec().steps.len(), MANY + 1);
}

#[test]
fn a_chain_may_use_what_came_long_before() {
    let steps = (0..MANY).map(|number| match number {
        0 => same_step(0),
        _ => same_step(number)
            .after([name(number - 1)])
            .with("n", format!("${{steps.{}.output}}", name(number / 100 * 50))),
    });
    assert!(Plan::builder("long").tool(same()).steps(steps).build().is_ok());
    let circle = (0..MANY).map(|number| same_step(number).after([name((number + 1) % MANY)]));
    let error = Plan::builder("round").tool(same()).steps(circle).build().unwrap_err();
    assert!(error.message().contains("in a circle"), "{error}");
}

/// Chains of ten; the first step of one of them fails once.
fn chain(frequency: Frequency) -> Plan {
    let steps = (0..RUN).map(|number| {
        let step = same_step(number).with("n", if number == RUN / 2 { -1 } else { 1 });
        if number % 10 == 0 { step } else { step.after([name(number - 1)]) }
    });
    Plan::builder("large").tool(same()).checkpoints(frequency).parallel(64).steps(steps).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_plan_runs_and_is_resumed() {
    let session = Engine::memory().unwrap().create("s").await.unwrap();
    let plan = chain(Frequency::Every(1_000));
    let first = plan.run_once("go", &session).await.unwrap();
    assert_eq!((first.success, first.steps_executed), (false, RUN as u64 - 10));
    let second = plan.resume_once(&session).await.unwrap();
    succeeded(&second);
    assert_eq!((second.steps_executed, second.steps_recovered), (10, RUN as u64 - 10));
    assert_eq!(second.state.results.len(), RUN);
}
