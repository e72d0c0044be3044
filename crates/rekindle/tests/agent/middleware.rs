//! Middleware: its state, what it may change, and how it ends a turn.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rekindle::core::record::RunOutcome;
use rekindle::message::{Part, ToolCall, ToolResult};
use rekindle::middleware::{Gate, Middleware, MiddlewareState, Scope, StateSpec, Verdict};
use rekindle::model::ModelRequest;
use rekindle::reduction::View;
use rekindle::tool::Approval;
use rekindle::{Agent, Event, Json, LiveKind, Message, Result, Status};
use rekindle_models::{Call, Script};
use rekindle_store::Fault;
use serde_json::json;

use crate::kit::{Held, Rig, Spy, agent, agent_of, echo, is_closed, of};
use crate::support::Kind;

/// Counts the calls of the model in its state, and remembers what it found there.
#[derive(Clone, Debug, Default)]
struct Counter {
    spec: StateSpec,
    found: Arc<Mutex<Vec<u64>>>,
}

impl Counter {
    fn new(spec: StateSpec) -> Self {
        Self { spec, found: Arc::default() }
    }

    fn found(&self) -> Vec<u64> {
        self.found.lock().unwrap().clone()
    }
}

#[async_trait]
impl Middleware for Counter {
    fn name(&self) -> &str {
        "counter"
    }

    fn state(&self) -> StateSpec {
        self.spec
    }

    fn upgrade(&self, from: u32, state: Json) -> Result<Json> {
        Json::of(&(u64::from(from) * 100 + state.decode::<u64>()?))
    }

    async fn before_model(&self, state: &mut MiddlewareState, _: &mut ModelRequest) -> Result<Verdict> {
        let count: u64 = state.get()?.unwrap_or_default();
        self.found.lock().unwrap().push(count);
        state.set(&(count + 1))?;
        Ok(Verdict::Continue)
    }
}

/// Three model calls: two of one turn in two runs, one of the next turn.
async fn three_calls(spec: StateSpec) -> Vec<u64> {
    let rig = Rig::new(Kind::Sqlite).await;
    let (held, counter) = (Held::default(), Counter::new(spec));
    let script = Script::new("m").call("slow", of("a")).text("done").text("bye");
    let (agent, _) = agent(script, |builder| builder.tool(held.tool("slow")).middleware(counter.clone()));
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.stop("a while");
    held.release();
    run.report().await.unwrap();
    agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    agent.run_once("next", &rig.again().await).await.unwrap();
    counter.found()
}

#[tokio::test]
async fn state_lasts_as_long_as_its_scope() {
    let scope = |scope| StateSpec { scope, ..StateSpec::default() };
    assert_eq!(three_calls(scope(Scope::Run)).await, [0, 0, 0]);
    assert_eq!(three_calls(scope(Scope::Turn)).await, [0, 1, 0]);
    assert_eq!(three_calls(scope(Scope::Session)).await, [0, 1, 2]);
    let fleeting = StateSpec { persistent: false, ..StateSpec::default() };
    assert_eq!(three_calls(fleeting).await, [0, 0, 0]);
}

fn talking(spy: &Spy, version: u32) -> (Agent, Counter) {
    let counter = Counter::new(StateSpec { version, ..StateSpec::default() });
    (agent_of(spy, |builder| builder.middleware(counter.clone())), counter)
}

#[tokio::test]
async fn older_state_is_upgraded_and_newer_state_is_refused() {
    let rig = Rig::memory().await;
    let spy = Spy::new(Script::new("m").text("hello").repeating_last());
    talking(&spy, 1).0.run_once("one", &rig.session).await.unwrap();
    let (newer, counter) = talking(&spy, 3);
    newer.run_once("two", &rig.session).await.unwrap();
    assert_eq!(counter.found(), [101]);
    let (older, counter) = talking(&spy, 2);
    let error = older.run_once("three", &rig.session).await.unwrap_err();
    assert_eq!(error.code(), "RK0012", "{error:?}");
    assert!(format!("{error:?}").contains("counter"), "{error:?}");
    assert_eq!(counter.found(), [] as [u64; 0]);
    let (newer, counter) = talking(&spy, 3);
    newer.run_once("four", &rig.session).await.unwrap();
    assert_eq!(counter.found(), [102], "nothing of it was lost");
}

#[tokio::test]
async fn state_of_middleware_that_is_gone_is_kept_as_it_is_and_reported() {
    let rig = Rig::memory().await;
    let spy = Spy::new(Script::new("m").text("hello").repeating_last());
    let (with, counter) = talking(&spy, 1);
    with.run_once("one", &rig.session).await.unwrap();
    let stored = rig.state().await.register("middleware/counter").cloned().unwrap();
    let without = agent_of(&spy, |builder| builder);
    let mut run = without.run("two", &rig.session).await.unwrap();
    let mut notices = Vec::new();
    while let Some(event) = run.next_event().await.unwrap() {
        if let Event::Live(live) = event
            && let LiveKind::Notice(notice) = live.kind
        {
            notices.push(notice);
        }
    }
    assert!(notices.iter().any(|notice| notice.contains("`counter`")), "{notices:?}");
    run.report().await.unwrap();
    assert_eq!(rig.state().await.register("middleware/counter"), Some(&stored));
    with.run_once("three", &rig.session).await.unwrap();
    assert_eq!(counter.found(), [0, 1]);
}

/// Writes over whatever passes.
#[derive(Debug)]
struct Scribble;

#[async_trait]
impl Middleware for Scribble {
    fn name(&self) -> &str {
        "scribble"
    }

    async fn before_turn(&self, _: &mut MiddlewareState, input: &mut Vec<Message>) -> Result<Verdict> {
        input.push(Message::user("added"));
        Ok(Verdict::Continue)
    }

    async fn before_model(&self, _: &mut MiddlewareState, request: &mut ModelRequest) -> Result<Verdict> {
        let tail = vec![Message::user("only for you").to_json()?];
        request.view = std::mem::replace(&mut request.view, View::of(Vec::new())).with_tail(tail);
        request.system = Some("be brief".into());
        Ok(Verdict::Continue)
    }

    async fn after_model(&self, _: &mut MiddlewareState, answer: &mut Message) -> Result<Verdict> {
        answer.parts.push(Part::Text("!".into()));
        Ok(Verdict::Continue)
    }

    async fn before_tool(&self, _: &mut MiddlewareState, call: &mut ToolCall) -> Result<Gate> {
        call.arguments = Json::from(json!({"what": "changed"}));
        Ok(Gate::Open)
    }

    async fn after_tool(&self, call: &ToolCall, result: &mut ToolResult) -> Result<()> {
        assert_eq!(call.arguments, Json::from(json!({"what": "changed"})));
        result.content = Json::from(format!("it said {}", result.content).as_str());
        Ok(())
    }
}

#[tokio::test]
async fn before_model_changes_what_is_sent_and_the_others_what_is_stored() {
    let rig = Rig::memory().await;
    let script = Script::new("m").call("echo", of("a")).text("done");
    let (agent, spy) = agent(script, |builder| builder.tool(echo()).middleware(Scribble));
    assert_eq!(agent.run_once("go", &rig.session).await.unwrap().text(), "done!");
    let stored = rig.messages().await;
    let texts: Vec<_> = stored.iter().map(Message::text).collect();
    assert_eq!(texts, ["go", "added", "!", "", "done!"]);
    assert_eq!(rig.results().await[0].content.as_str(), r#""it said \"changed\"""#);
    let call = stored[2].calls().next().unwrap();
    assert_eq!(call.arguments.to_value().unwrap(), of("a"), "what the model said is stored as it said it");
    for view in spy.views() {
        assert_eq!(view.last().unwrap().text(), "only for you");
    }
}

/// Treats every call alike.
#[derive(Clone, Debug)]
struct Gated(Gate);

#[async_trait]
impl Middleware for Gated {
    fn name(&self) -> &str {
        "gated"
    }

    async fn before_tool(&self, _: &mut MiddlewareState, _: &mut ToolCall) -> Result<Gate> {
        Ok(self.0.clone())
    }
}

fn gated(gate: Gate, held: &Held) -> (Agent, Spy) {
    let script = Script::new("m").call("slow", of("a")).text("done");
    agent(script, |builder| builder.tool(held.tool("slow")).middleware(Gated(gate)))
}

#[tokio::test]
async fn a_gate_denies_or_answers_in_place_of_the_tool() {
    let cases = [
        (Gate::Deny("not today".into()), "\"the call was not allowed: not today\"", true),
        (Gate::Answer(Json::from("from the cache")), "\"from the cache\"", false),
    ];
    for (gate, content, error) in cases {
        let rig = Rig::memory().await;
        let held = Held::default();
        let (agent, _) = gated(gate, &held);
        assert_eq!(agent.run_once("go", &rig.session).await.unwrap().text(), "done");
        let result = rig.results().await.remove(0);
        assert_eq!((result.content.as_str(), result.error), (content, error));
        assert_eq!(held.calls(), 0);
    }
}

#[tokio::test]
async fn a_gate_has_a_person_asked() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let (agent, _) = gated(Gate::Ask(Approval { prompt: "Sure?".into(), ..Approval::default() }), &held);
    assert_eq!(agent.run_once("go", &rig.session).await.unwrap().outcome, RunOutcome::Waiting);
    assert_eq!((rig.wait().await.prompt.as_str(), held.calls()), ("Sure?", 0));
    let answer = rig.answer(&rig.wait().await, rekindle::core::record::Decision::Approve, "maria");
    rig.send(&[answer.into()]).await;
    held.release();
    let report = agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!((report.text().as_str(), held.calls()), ("done", 1));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Turn,
    Model,
    Answer,
}

/// Ends the second turn at one place.
#[derive(Debug)]
struct Ends(At);

impl Ends {
    async fn verdict(&self, state: &mut MiddlewareState, here: At) -> Result<Verdict> {
        let turn = state.get::<u64>()?.unwrap_or_default() + u64::from(here == At::Turn);
        state.set(&turn)?;
        let ends = here == self.0 && turn == 2;
        Ok(if ends { Verdict::Terminate("enough".into()) } else { Verdict::Continue })
    }
}

#[async_trait]
impl Middleware for Ends {
    fn name(&self) -> &str {
        "ends"
    }

    async fn before_turn(&self, state: &mut MiddlewareState, _: &mut Vec<Message>) -> Result<Verdict> {
        self.verdict(state, At::Turn).await
    }

    async fn before_model(&self, state: &mut MiddlewareState, _: &mut ModelRequest) -> Result<Verdict> {
        self.verdict(state, At::Model).await
    }

    async fn after_model(&self, state: &mut MiddlewareState, _: &mut Message) -> Result<Verdict> {
        self.verdict(state, At::Answer).await
    }
}

#[tokio::test]
async fn a_turn_can_be_ended_at_each_hook() {
    for (at, asked, stored) in [(At::Turn, 1, 3), (At::Model, 1, 3), (At::Answer, 2, 5)] {
        let rig = Rig::memory().await;
        let held = Held::default();
        let script = Script::new("m").text("first").call("slow", of("a")).repeating_last();
        let (agent, spy) = agent(script, |builder| builder.tool(held.tool("slow")).middleware(Ends(at)));
        agent.run_once("one", &rig.session).await.unwrap();
        let report = agent.run_once("two", &rig.session).await.unwrap();
        assert_eq!((report.outcome, report.reason.as_str()), (RunOutcome::Succeeded, "enough"), "{at:?}");
        assert_eq!(report.text(), "", "{at:?}: it said nothing in this turn");
        assert_eq!((spy.count(), held.calls(), rig.messages().await.len()), (asked, 0, stored), "{at:?}");
        assert!(is_closed(&rig.messages().await), "{at:?}");
        assert_eq!(rig.state().await.status(), Status::Succeeded);
        let newest = rig.engine.journal().checkpoints(rig.key(), None, None, 1).await.unwrap().remove(0);
        assert_eq!(newest.checkpoint.description, "turn 2 ended: enough", "{at:?}");
        // The third turn goes its way.
        held.release();
        let run = agent.run("three", &rig.session).await.unwrap();
        held.began().await;
        run.cancel("enough of that");
        assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Cancelled);
    }
}

/// Counts answers in its state, one for each that is stored.
#[derive(Debug)]
struct Tally;

#[async_trait]
impl Middleware for Tally {
    fn name(&self) -> &str {
        "tally"
    }

    async fn after_model(&self, state: &mut MiddlewareState, _: &mut Message) -> Result<Verdict> {
        let count: u64 = state.get()?.unwrap_or_default();
        state.set(&(count + 1))?;
        Ok(Verdict::Continue)
    }
}

#[tokio::test]
async fn state_is_committed_together_with_what_it_counts() {
    let script = || {
        let call = |what| Call::new("echo", of(what));
        Script::new("m").calls([call("a"), call("b")]).calls([call("c")]).text("done")
    };
    for fault in [Fault::Unreachable, Fault::ReplyLost] {
        let mut at = 0;
        loop {
            let rig = Rig::memory().await;
            let (agent, _) = agent(script(), |builder| {
                builder.tool(echo()).middleware(Tally).durability(rekindle::Durability::Sync)
            });
            let (session, plan) = rig.faulty().await;
            plan.fail_from(at, fault);
            if let Ok(run) = agent.run("go", &session).await {
                let _ = run.report().await;
            }
            let crashed = plan.calls() > at;
            rig.world.pass_leases();
            let again = rig.again().await;
            match rig.state().await.status().seen(false) {
                Status::Idle => drop(agent.run_once("go", &again).await.unwrap()),
                Status::Succeeded => {}
                _ => drop(agent.resume(&again).await.unwrap().report().await.unwrap()),
            }
            let tally = rig.state().await.register("middleware/tally").unwrap().to_value().unwrap();
            assert_eq!(tally["value"], 3, "{fault:?} at call {at}");
            if !crashed {
                break;
            }
            at += 1;
        }
        assert!(at > 5, "{at} commit points");
    }
}

/// Cannot stand results.
#[derive(Debug)]
struct Refuses;

#[async_trait]
impl Middleware for Refuses {
    fn name(&self) -> &str {
        "refuses"
    }

    async fn after_tool(&self, _: &ToolCall, _: &mut ToolResult) -> Result<()> {
        Err(rekindle::Error::invalid("no results, please"))
    }
}

#[tokio::test]
async fn middleware_that_fails_on_a_result_is_told_to_the_model_and_calls_nothing_again() {
    for writes in [false, true] {
        let rig = Rig::memory().await;
        let held = Held::default();
        (0..100).for_each(|_| held.release());
        let script = Script::new("m").call("slow", of("a")).text("done");
        let tool = if writes { held.tool("slow").writes() } else { held.tool("slow") };
        let (agent, _) = agent(script, |builder| builder.tool(tool).middleware(Refuses));
        let ended = tokio::time::timeout(std::time::Duration::from_secs(60), agent.run_once("go", &rig.session)).await;
        assert_eq!(ended.expect("it ends").unwrap().text(), "done");
        let result = rig.results().await.remove(0);
        assert!(result.error && result.content.as_str().contains("`refuses` failed on the result"), "{result:?}");
        assert_eq!(held.calls(), 1);
    }
}
