//! Agents that are tools of other agents.

use std::sync::Arc;

use rekindle::core::record::{Decision, RunOutcome};
use rekindle::operations::{self, ControlOptions};
use rekindle::tool::Approval;
use rekindle::{Agent, OnWait, SessionKey, SessionQuery, SubAgent};
use rekindle_models::{Script, ScriptedModel};
use serde_json::json;

use crate::kit::{Counter, Rig, agent, eventually, of, resumed, soon};
use crate::support::state;

/// Calls the helper once.
fn script() -> Script {
    Script::new("parent").call("helper", json!({ "task": "pay" })).text("done")
}

/// An agent that pays when it is approved.
fn helper(counter: &Counter) -> SubAgent {
    let model = ScriptedModel::new(Script::new("child").call("pay", of("x")).text("paid"));
    let helper = Agent::builder_with("helper", Arc::new(model))
        .tool(counter.tool("pay").needs_approval(Approval::default()))
        .build()
        .unwrap();
    SubAgent::new(helper, "Helps.")
}

/// The child session, once there is one.
async fn child_of(rig: &Rig) -> Option<SessionKey> {
    let mut query = SessionQuery::new(rig.key().namespace.clone());
    query.parent = Some(rig.key().clone());
    Some(rig.engine.journal().list(&query).await.unwrap().sessions.pop()?.header.key)
}

#[tokio::test]
async fn a_parent_that_holds_goes_on_when_its_child_is_answered() {
    let rig = Rig::memory().await;
    let counter = Counter::default();
    let (parent, _) = agent(script(), |builder| builder.on_wait(OnWait::Hold).tool(helper(&counter)));
    let run = parent.run("go", &rig.session).await.unwrap();
    let (child, wait) = eventually(async || {
        let child = child_of(&rig).await?;
        let wait = state(&rig.engine, &child).await.waits().next()?.opened.clone();
        Some((child, wait))
    })
    .await;
    let answer = rig.answer(&wait, Decision::Approve, "maria");
    rig.world.engine().journal().send(&child, &[answer.into()]).await.unwrap();
    assert_eq!(soon(run.report()).await.unwrap().text(), "done");
    assert_eq!(counter.count(), 1);
    assert_eq!(rig.results().await[0].content.as_str(), "\"paid\"");
}

#[tokio::test]
async fn a_parent_whose_child_was_cancelled_at_rest_is_told_and_goes_on() {
    let rig = Rig::memory().await;
    let counter = Counter::default();
    let (parent, spy) = agent(script(), |builder| builder.tool(helper(&counter)));
    assert_eq!(parent.run_once("go", &rig.session).await.unwrap().outcome, RunOutcome::Waiting);
    let child = child_of(&rig).await.unwrap();
    operations::cancel(&rig.engine, &child, &ControlOptions::new("maria", "no")).await.unwrap();
    let report = resumed(&parent, &rig).await;
    assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"), "{}", report.reason);
    let view = spy.last_view();
    let result = view.last().unwrap().results().next().unwrap();
    assert!(result.error && result.content.as_str().contains("cancelled"), "{result:?}");
    assert_eq!(counter.count(), 0);
}
