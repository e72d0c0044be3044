//! Agents that are tools of other agents.

use std::sync::Arc;

use rekindle::record::Decision;
use rekindle::tool::Approval;
use rekindle::{Agent, OnWait, SessionQuery, SubAgent};
use rekindle_models::{Script, ScriptedModel};
use serde_json::json;

use crate::kit::{Counter, Rig, agent, eventually, of, soon};
use crate::support::state;

#[tokio::test]
async fn a_parent_that_holds_goes_on_when_its_child_is_answered() {
    let rig = Rig::memory().await;
    let counter = Counter::default();
    let model = ScriptedModel::new(Script::new("child").call("pay", of("x")).text("paid"));
    let helper = Agent::builder_with("helper", Arc::new(model))
        .tool(counter.tool("pay").needs_approval(Approval::default()))
        .build()
        .unwrap();
    let script = Script::new("parent").call("helper", json!({ "task": "pay" })).text("done");
    let (parent, _) = agent(script, |builder| builder.on_wait(OnWait::Hold).tool(SubAgent::new(helper, "Helps.")));
    let run = parent.run("go", &rig.session).await.unwrap();
    let mut query = SessionQuery::new(rig.key().namespace.clone());
    query.parent = Some(rig.key().clone());
    let (child, wait) = eventually(async || {
        let child = rig.engine.journal().list(&query).await.unwrap().sessions.pop()?.header.key;
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
