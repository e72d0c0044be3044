//! Middleware: what it decided is decided once, and stays decided over failures and crashes.

use std::time::Duration;

use async_trait::async_trait;
use rekindle::Durability;
use rekindle::core::record::{InboxMode, RunOutcome};
use rekindle::message::{ToolCall, ToolResult};
use rekindle::middleware::{Gate, Middleware, MiddlewareState, Verdict};
use rekindle::tool::Approval;
use rekindle::{Error, Message, Result, ResumeOptions};
use rekindle_models::{Call, Script};
use rekindle_store::Fault;

use crate::kit::{Counter, Held, Rig, agent, ended, of, resumed, run_with, soon};

/// What a layer does besides counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Nothing,
    /// Ends the second turn before its model is asked.
    EndsSecondTurn,
    /// Ends the turn once the model has answered.
    EndsAfterModel,
    /// Fails once the model has answered, once.
    FailsAfterModelOnce,
    /// Fails before the first call, once.
    FailsBeforeToolOnce,
    FailsAfterTool,
}

#[derive(Clone, Debug)]
struct Layer {
    does: Does,
    turns: Counter,
    answers: Counter,
    calls: Counter,
}

impl Layer {
    fn new(does: Does) -> Self {
        Self { does, turns: Counter::default(), answers: Counter::default(), calls: Counter::default() }
    }
}

#[async_trait]
impl Middleware for Layer {
    fn name(&self) -> &str {
        "layer"
    }

    async fn before_turn(&self, _: &mut MiddlewareState, _: &mut Vec<Message>) -> Result<Verdict> {
        let ends = self.turns.add() == 1 && self.does == Does::EndsSecondTurn;
        Ok(if ends { Verdict::Terminate("enough".into()) } else { Verdict::Continue })
    }

    async fn after_model(&self, _: &mut MiddlewareState, _: &mut Message) -> Result<Verdict> {
        if self.answers.add() == 0 && self.does == Does::FailsAfterModelOnce {
            return Err(Error::invalid("the policy server is away"));
        }
        let ends = self.does == Does::EndsAfterModel;
        Ok(if ends { Verdict::Terminate("dangerous".into()) } else { Verdict::Continue })
    }

    async fn before_tool(&self, _: &mut MiddlewareState, _: &mut ToolCall) -> Result<Gate> {
        let fails = self.calls.add() == 0 && self.does == Does::FailsBeforeToolOnce;
        if fails { Err(Error::invalid("the policy server is away")) } else { Ok(Gate::Open) }
    }

    async fn after_tool(&self, _: &ToolCall, _: &mut ToolResult) -> Result<()> {
        if self.does == Does::FailsAfterTool { Err(Error::invalid("cannot read that")) } else { Ok(()) }
    }
}

/// Calls `pay` once.
fn script() -> Script {
    Script::new("m").call("pay", of("x")).text("done")
}

#[tokio::test(flavor = "multi_thread")]
async fn middleware_that_fails_on_a_result_does_not_have_the_tool_called_again() {
    let rig = Rig::memory().await;
    let counter = Counter::default();
    let (agent, _) = agent(script(), |builder| {
        builder.middleware(Layer::new(Does::FailsAfterTool)).tool(counter.tool("pay").idempotent())
    });
    let report = ended(agent.run("go", &rig.session).await).await.unwrap();
    assert_eq!(report.text(), "done");
    assert_eq!(counter.count(), 1);
    assert!(rig.results().await[0].error, "the model is told");
}

/// A run whose middleware stops the calls of an answer dies at the write with that number and is
/// resumed. Whether it died.
async fn stopped_and_died_at(call: u64) -> bool {
    let rig = Rig::memory().await;
    let counter = Counter::default();
    let (agent, _) = agent(script(), |builder| {
        let builder = builder.durability(Durability::Sync).middleware(Layer::new(Does::EndsAfterModel));
        builder.tool(counter.tool("pay"))
    });
    let (session, plan) = rig.faulty().await;
    plan.fail_from(call, Fault::Unreachable);
    let _ = ended(agent.run("go", &session).await).await;
    let died = plan.calls() > call;
    rig.world.pass_leases();
    let state = rig.state().await;
    if state.run().is_none() || state.status().seen(false).is_unfinished() {
        let message = state.run().is_none().then_some("go");
        run_with(&agent, &rig, message, ResumeOptions::default()).await.unwrap();
    }
    assert!(!rig.state().await.status().seen(false).is_unfinished(), "died at write {call}");
    assert_eq!(counter.count(), 0, "died at write {call}");
    died
}

#[tokio::test]
async fn a_call_that_middleware_stopped_is_not_made_wherever_the_process_dies() {
    let mut call = 0;
    while stopped_and_died_at(call).await {
        call += 1;
    }
    assert!(call >= 3, "only {call} writes");
}

#[tokio::test]
async fn a_call_that_needs_an_approval_passes_before_tool_once() {
    let rig = Rig::memory().await;
    let (counter, layer) = (Counter::default(), Layer::new(Does::Nothing));
    let approval = Approval { expires_after: Some(Duration::from_secs(100)), ..Approval::default() };
    let (agent, _) =
        agent(script(), |builder| builder.middleware(layer.clone()).tool(counter.tool("pay").needs_approval(approval)));
    assert_eq!(agent.run_once("go", &rig.session).await.unwrap().outcome, RunOutcome::Waiting);
    assert_eq!(layer.calls.count(), 1);
}

#[tokio::test]
async fn sequential_calls_pass_before_tool_once_each_although_the_run_pauses_between_them() {
    let rig = Rig::memory().await;
    let (held, layer) = (Held::default(), Layer::new(Does::Nothing));
    let calls = [Call::new("pay", of("x")), Call::new("pay", of("y"))];
    let (agent, _) = agent(Script::new("m").calls(calls).text("done"), |builder| {
        builder.middleware(layer.clone()).tool(held.tool("pay").writes().sequential())
    });
    let run = agent.run("go", &rig.session).await.unwrap();
    soon(held.began()).await;
    run.stop("maintenance");
    held.release();
    assert_eq!(soon(run.report()).await.unwrap().outcome, RunOutcome::Paused);
    assert_eq!(held.calls(), 1);
    held.release();
    assert_eq!(resumed(&agent, &rig).await.text(), "done");
    assert_eq!((held.calls(), layer.calls.count()), (2, 2));
}

#[tokio::test]
async fn a_turn_that_middleware_ended_before_the_model_was_asked_has_no_answer() {
    let rig = Rig::memory().await;
    let (agent, spy) = agent(Script::new("m").text("first").text("second"), |builder| {
        builder.middleware(Layer::new(Does::EndsSecondTurn))
    });
    assert_eq!(agent.run_once("1", &rig.session).await.unwrap().text(), "first");
    let report = agent.run_once("2", &rig.session).await.unwrap();
    assert_eq!((report.text().as_str(), spy.count()), ("", 1));
}

#[tokio::test]
async fn an_answer_is_not_asked_for_again_when_middleware_failed_before_its_calls() {
    let rig = Rig::memory().await;
    let counter = Counter::default();
    let (agent, spy) =
        agent(script(), |builder| builder.middleware(Layer::new(Does::FailsBeforeToolOnce)).tool(counter.tool("pay")));
    agent.run_once("go", &rig.session).await.unwrap_err();
    assert_eq!(resumed(&agent, &rig).await.text(), "done");
    assert_eq!((counter.count(), spy.count()), (1, 2));
}

#[tokio::test]
async fn a_message_that_steers_reaches_the_model_although_it_came_behind_a_kept_answer() {
    let rig = Rig::memory().await;
    let (agent, spy) = agent(Script::new("m").text("one").text("two"), |builder| {
        builder.middleware(Layer::new(Does::FailsAfterModelOnce))
    });
    agent.run_once("go", &rig.session).await.unwrap_err();
    rig.send(&[rig.message(InboxMode::Steer, "otherwise, please")]).await;
    assert_eq!(resumed(&agent, &rig).await.text(), "two");
    assert_eq!(spy.count(), 2, "the first answer was kept");
    let said: Vec<_> = spy.last_view().iter().map(Message::text).collect();
    assert_eq!(said, ["go", "one", "otherwise, please"]);
}
