//! Agents as tools of agents: lineage, crashes, waits and control over two sessions.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rekindle::Durability;
use rekindle::core::Record;
use rekindle::core::record::{Decision, EffectKind, InboxAnswer, RunOutcome};
use rekindle::model::{Answer, Deltas, Model, ModelCapabilities, ModelError, ModelRequest};
use rekindle::tool::{Approval, FnTool, ToolError, tool};
use rekindle::{Agent, Engine, Json, Message, SessionInfo, SessionKey, SessionQuery, Status, SubAgent};
use rekindle_models::{Call, Script};
use rekindle_store::{Fault, FaultPlan};
use serde_json::json;

use crate::kit::{Held, Rig, Spy, agent, echo, is_closed, of};
use crate::support::{Kind, Of, state};

fn task(text: &str) -> serde_json::Value {
    json!({ "task": text })
}

/// A parent that gives `helper` one task.
fn parent(helper: Agent) -> (Agent, Spy) {
    let script = Script::new("parent").call("helper", task("look it up")).text("thanks").text("and again");
    agent(script, |builder| builder.tool(SubAgent::new(helper, "Helps.")).durability(Durability::Sync))
}

/// A helper with tools of its own.
fn helper(script: Script, add: impl FnOnce(rekindle::AgentBuilder) -> rekindle::AgentBuilder) -> (Agent, Spy) {
    let spy = Spy::new(script);
    let builder = Agent::builder_with("helper", Arc::new(spy.clone())).durability(Durability::Sync);
    (add(builder).build().unwrap(), spy)
}

async fn children(engine: &Engine, parent: &SessionKey) -> Vec<SessionInfo> {
    let mut query = SessionQuery::new(parent.namespace.clone());
    query.parent = Some(parent.clone());
    engine.journal().list(&query).await.unwrap().sessions
}

async fn only_child(rig: &Rig) -> SessionKey {
    let children = children(&rig.engine, rig.key()).await;
    assert_eq!(children.len(), 1);
    children[0].header.key.clone()
}

#[tokio::test]
async fn parent_and_child_know_each_other_and_the_answer_is_the_result() {
    let rig = Rig::memory().await;
    let (helper, spy) = helper(Script::new("child").call("echo", of("a")).text("it is 42"), |b| b.tool(echo()));
    let (parent, _) = parent(helper);
    assert_eq!(parent.run_once("go", &rig.session).await.unwrap().text(), "thanks");
    assert_eq!(rig.results().await[0].content.as_str(), "\"it is 42\"");
    let child = only_child(&rig).await;
    let info = rig.engine.journal().open(&child).await.unwrap();
    assert_eq!((info.header.parent.as_ref(), info.header.agent.as_deref()), (Some(rig.key()), Some("helper")));
    let intent = rig.records().await.into_iter().find_map(|record| match record {
        Record::EffectIntent(intent) if intent.name == "helper" => Some(intent),
        _ => None,
    });
    let intent = intent.unwrap();
    assert_eq!((intent.kind, intent.child), (EffectKind::Child, Some(child.clone())));
    assert_eq!(spy.views()[0][0].text(), "look it up");
    assert_eq!(state(&rig.engine, &child).await.status(), Status::Succeeded);
}

#[tokio::test]
async fn each_call_has_a_child_of_its_own() {
    let rig = Rig::memory().await;
    let (helper, _) = helper(Script::new("child").text("fine").repeating_last(), |b| b);
    let script = Script::new("parent").calls(["a", "b"].map(|text| Call::new("helper", task(text)))).text("thanks");
    let (agent, _) = agent(script, |builder| builder.tool(SubAgent::new(helper, "Helps.")));
    agent.run_once("go", &rig.session).await.unwrap();
    assert_eq!(children(&rig.engine, rig.key()).await.len(), 2);
}

/// Looks into the store when it is asked.
#[derive(Debug)]
struct Looks {
    engine: Engine,
    parent: SessionKey,
    found: Arc<Mutex<Vec<Vec<String>>>>,
}

#[async_trait]
impl Model for Looks {
    fn name(&self) -> &str {
        "looks"
    }

    fn capabilities(&self) -> ModelCapabilities {
        ModelCapabilities::default()
    }

    async fn answer(&self, _: &ModelRequest, _: &Deltas) -> Result<Answer, ModelError> {
        for child in children(&self.engine, &self.parent).await {
            let messages = crate::support::messages(&self.engine, &child.header.key).await;
            self.found.lock().unwrap().push(messages.iter().map(Message::text).collect());
        }
        Ok(Answer::text("seen"))
    }
}

#[tokio::test]
async fn the_child_is_on_disk_before_its_model_is_asked() {
    let rig = Rig::new(Kind::Sqlite).await;
    let found = Arc::new(Mutex::new(Vec::new()));
    // As another process would look.
    let model = Looks { engine: rig.world.engine(), parent: rig.key().clone(), found: found.clone() };
    let helper = Agent::builder("helper", model).build().unwrap();
    parent(helper).0.run_once("go", &rig.session).await.unwrap();
    assert_eq!(*found.lock().unwrap(), [["look it up"]]);
}

/// Kills the store at its first call.
fn deadly(plan: &Arc<FaultPlan>) -> FnTool<Of> {
    let (plan, first) = (plan.clone(), Arc::new(std::sync::atomic::AtomicBool::new(true)));
    tool("die", "Kills the store.", move |_, of: Of| {
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            plan.fail_from(0, Fault::Unreachable);
        }
        async move { Ok::<_, ToolError>(of.what) }
    })
}

#[tokio::test]
async fn a_parent_that_died_goes_on_with_the_same_child_and_asks_nothing_again() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (session, plan) = rig.faulty().await;
    let script = Script::new("child").call("echo", of("a")).call("die", of("b")).text("it is 42");
    let (helper, inner) = helper(script, |b| b.tool(echo()).tool(deadly(&plan)));
    let (parent, outer) = parent(helper);
    parent.run_once("go", &session).await.unwrap_err();
    let child = only_child(&rig).await;
    let asked: Vec<_> = [&inner, &outer].iter().flat_map(|spy| spy.requests()).collect();
    let answered: Vec<_> = asked.iter().filter(|asked| asked.answered).map(|asked| &asked.idempotency_key).collect();
    assert_eq!(answered.len(), 3, "two of the child, one of the parent");
    rig.world.pass_leases();
    let before = (inner.count(), outer.count());
    let report = parent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "thanks");
    assert_eq!(only_child(&rig).await, child);
    assert_eq!(rig.results().await[0].content.as_str(), "\"it is 42\"");
    let later = inner.requests().split_off(before.0).into_iter().chain(outer.requests().split_off(before.1));
    for asked in later {
        assert!(!answered.contains(&&asked.idempotency_key), "asked again: {asked:?}");
    }
}

#[tokio::test]
async fn a_child_that_waits_lets_its_parent_wait_until_it_is_answered() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (helper, _) = helper(Script::new("child").call("echo", of("a")).text("it is 42"), |b| {
        b.tool(echo().needs_approval(Approval::default()))
    });
    let (parent, _) = parent(helper);
    let report = parent.run_once("go", &rig.session).await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Waiting);
    let child = only_child(&rig).await;
    assert!(report.reason.contains(&child.to_string()), "{}", report.reason);
    assert_eq!(state(&rig.engine, &child).await.status(), Status::Waiting);
    let again = parent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!(again.outcome, RunOutcome::Waiting, "nobody has answered");
    let wait = state(&rig.engine, &child).await.waits().next().unwrap().opened.clone();
    let answer: InboxAnswer = rig.answer(&wait, Decision::Approve, "maria");
    rig.engine.journal().send(&child, &[answer.into()]).await.unwrap();
    let report = parent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "thanks");
    assert_eq!(rig.results().await[0].content.as_str(), "\"it is 42\"");
}

#[tokio::test]
async fn a_child_that_was_finished_by_somebody_else_gives_its_answer() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (helper, spy) = helper(Script::new("child").call("echo", of("a")).text("it is 42"), |b| {
        b.tool(echo().needs_approval(Approval::default()))
    });
    let (parent, _) = parent(helper.clone());
    parent.run_once("go", &rig.session).await.unwrap();
    let child = only_child(&rig).await;
    let wait = state(&rig.engine, &child).await.waits().next().unwrap().opened.clone();
    rig.engine.journal().send(&child, &[rig.answer(&wait, Decision::Approve, "maria").into()]).await.unwrap();
    let session = rig.engine.open_session(child.id.as_str()).await.unwrap();
    helper.resume(&session).await.unwrap().report().await.unwrap();
    let report = parent.resume(&rig.session).await.unwrap().report().await.unwrap();
    assert_eq!((report.text().as_str(), spy.count()), ("thanks", 2));
    assert_eq!(rig.results().await[0].content.as_str(), "\"it is 42\"");
}

#[tokio::test]
async fn a_child_that_fails_for_good_is_told_to_the_model() {
    let rig = Rig::memory().await;
    let script = Script::new("child").call("echo", of("a")).repeating_last();
    let (helper, _) = helper(script, |b| b.tool(echo()).same_call_limit(2));
    let (parent, _) = parent(helper);
    assert_eq!(parent.run_once("go", &rig.session).await.unwrap().text(), "thanks");
    let result = rig.results().await.remove(0);
    assert!(result.error && result.content.as_str().contains("2 times in a row"), "{result:?}");
}

#[tokio::test]
async fn a_child_whose_model_fails_lets_its_parent_wait_and_goes_on_at_a_resume() {
    let rig = Rig::memory().await;
    let failing = rekindle_models::Turn::text("it is 42").failing(ModelError::fatal("no such key"));
    let (helper, _) = helper(Script::new("child").turn(failing), |b| b);
    let (parent, _) = parent(helper);
    let report = parent.run_once("go", &rig.session).await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Waiting);
    assert!(report.reason.contains("no such key"), "{}", report.reason);
    let report = parent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "thanks");
    assert_eq!(rig.results().await[0].content.as_str(), "\"it is 42\"");
    assert_eq!(children(&rig.engine, rig.key()).await.len(), 1);
}

#[tokio::test]
async fn cancelling_the_parent_stops_the_child_and_closes_the_call() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let (helper, _) = helper(Script::new("child").call("slow", of("a")).text("it is 42"), |b| {
        b.tool(held.tool("slow")).grace(std::time::Duration::from_millis(1))
    });
    let (parent, _) = parent(helper);
    let run = parent.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.cancel("never mind");
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Cancelled);
    assert!(is_closed(&rig.messages().await));
    let child = only_child(&rig).await;
    assert_ne!(state(&rig.engine, &child).await.status(), Status::Running);
    assert!(rig.engine.journal().open(&child).await.unwrap().current_branch().unwrap().lease.is_none());
    assert_eq!(parent.run_once("next", &rig.session).await.unwrap().text(), "thanks");
    assert_eq!(held.calls(), 1);
}

#[tokio::test]
async fn pausing_the_parent_pauses_the_child_and_both_go_on() {
    let rig = Rig::new(Kind::Sqlite).await;
    let held = Held::default();
    let (helper, spy) = helper(Script::new("child").call("slow", of("a")).text("it is 42"), |b| {
        b.tool(held.tool("slow")).grace(std::time::Duration::from_millis(1))
    });
    let (parent, _) = parent(helper);
    let run = parent.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.stop("one");
    run.stop("two");
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Paused);
    let child = only_child(&rig).await;
    assert_eq!(state(&rig.engine, &child).await.status(), Status::Paused);
    held.release();
    let report = parent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!((report.text().as_str(), spy.count(), held.calls()), ("thanks", 2, 2));
    assert_eq!(rig.results().await[0].content, Json::from("it is 42"));
}
