//! An agent as a step of a plan.

use rekindle::core::Record;
use rekindle::core::record::{EffectKind, RunOutcome};
use rekindle::plan::StepSpec;
use rekindle::tool::{ToolError, ToolOutput, tool};
use rekindle::wait::WaitSpec;
use rekindle::{Agent, Plan, SessionKey, SubAgent};
use rekindle_models::{Script, ScriptedModel};
use serde_json::json;

use crate::common::{noting, output, plan, resume, runs, step, succeeded};
use crate::kit::{Rig, echo, of};
use crate::support::{Kind, Of};

/// `helper` does a task, `write` notes what it said.
fn delegating(rig: &Rig, helper: Agent) -> Plan {
    plan(|plan| {
        plan.tool(SubAgent::new(helper, "Helps."))
            .tool(noting(&rig.world.ledger(), "note"))
            .step(step("topic", "note", "otters"))
            .step(StepSpec::new("ask", "helper").with("task", "look up ${steps.topic.output}").after(["topic"]))
            .step(step("write", "note", "it said: ${steps.ask.output}").after(["ask"]))
    })
}

async fn child(rig: &Rig) -> SessionKey {
    let children = rig.records().await.into_iter().filter_map(|record| match record {
        Record::EffectIntent(intent) if intent.kind == EffectKind::Child => intent.child,
        _ => None,
    });
    let children: Vec<_> = children.collect();
    assert!(!children.is_empty());
    assert!(children.iter().all(|child| *child == children[0]), "{children:?}");
    children[0].clone()
}

#[tokio::test]
async fn an_agent_is_a_step_and_its_answer_the_result() {
    let rig = Rig::new(Kind::Sqlite).await;
    let model = ScriptedModel::new(Script::new("m").call("echo", of("a")).text("they swim"));
    let helper = Agent::builder("helper", model.clone()).tool(echo()).build().unwrap();
    let result = delegating(&rig, helper).run_once("go", &rig.session).await.unwrap();
    succeeded(&result);
    assert_eq!(output(&result.state, "write"), json!("it said: they swim"));
    assert_eq!(model.requests().len(), 2);
    let child = child(&rig).await;
    let messages = crate::support::messages(&rig.engine, &child).await;
    assert_eq!(messages[0].text(), "look up otters");
    assert_eq!(rig.engine.journal().open(&child).await.unwrap().header.parent.as_ref(), Some(rig.key()));
}

#[tokio::test]
async fn a_plan_waits_for_an_agent_that_waits_and_goes_on_with_the_same_one() {
    let rig = Rig::memory().await;
    let ask = tool("ask", "Asks.", async |_, _: Of| Ok::<_, ToolError>(ToolOutput::wait(WaitSpec::question("?"))));
    let model = ScriptedModel::new(Script::new("m").call("ask", of("it")).text("they swim"));
    let helper = Agent::builder("helper", model.clone()).tool(ask).build().unwrap();
    let plan = delegating(&rig, helper);
    let waiting = plan.run_once("go", &rig.session).await.unwrap();
    assert_eq!((waiting.report.outcome, waiting.steps_executed), (RunOutcome::Waiting, 1));
    let child = child(&rig).await;
    let state = crate::support::state(&rig.engine, &child).await;
    let wait = state.waits().next().unwrap().opened.wait.clone();
    let answer = rekindle::operations::Answer::value(wait, rekindle::Json::from("yes"), "maria");
    rekindle::operations::answer(&rig.engine, &child, &answer).await.unwrap();
    succeeded(&resume(&plan, &rig).await.unwrap());
    assert_eq!((model.requests().len(), runs(&rig.world.ledger(), "topic")), (2, 1));
}
