//! Tools and models that misbehave. Each has a defined outcome, loses nothing of the history, and
//! leaves a session that takes the next message.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rekindle::core::Record;
use rekindle::core::record::RunOutcome;
use rekindle::message::ToolResult;
use rekindle::model::ModelError;
use rekindle::tool::{FnTool, ToolError, ToolOutput, tool};
use rekindle::{Agent, Json, Status};
use rekindle_models::{Call, Script, Turn};
use serde_json::json;

use crate::kit::{Rig, Spy, agent, echo, is_closed, of, quick};
use crate::support::{Kind, Of};

/// Calls `bad`, then says what came of it, then goes on talking.
fn script() -> Script {
    Script::new("m").call("bad", of("a")).text("I see").text("after")
}

/// The session takes the next message, and everything from before is still there.
async fn goes_on(rig: &Rig, agent: &Agent, spy: &Spy) {
    let before = rig.messages().await;
    let report = agent.run_once("next", &rig.session).await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Succeeded, "{}", report.reason);
    let after = rig.messages().await;
    assert_eq!(after[..before.len()], before);
    assert!(is_closed(&after));
    assert_eq!(spy.last_view().last().unwrap().text(), "next");
    assert_eq!(rig.state().await.open_effects().count(), 0);
}

/// Runs `bad`, which the model hears of; the only result of it.
async fn told(bad: FnTool<Of>) -> ToolResult {
    let rig = Rig::memory().await;
    let (agent, spy) = agent(script(), |builder| builder.tool(bad));
    let report = agent.run_once("go", &rig.session).await.unwrap();
    assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "I see"), "{}", report.reason);
    let result = rig.results().await.remove(0);
    goes_on(&rig, &agent, &spy).await;
    result
}

fn text(result: &ToolResult) -> String {
    result.content.decode().unwrap()
}

#[tokio::test]
async fn a_tool_that_panics_has_failed() {
    let result = told(tool("bad", "Panics.", async |_, of: Of| {
        assert_ne!(of.what, "a", "deliberate");
        Ok::<_, ToolError>(1)
    }))
    .await;
    assert!(result.error && text(&result).contains("deliberate"), "{result:?}");
}

#[tokio::test]
async fn a_reading_tool_that_hangs_is_tried_again_and_then_has_failed() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let bad = tool("bad", "Hangs.", move |_, _: Of| {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<Result<(), ToolError>>()
    });
    let result = told(bad.timeout(Duration::from_millis(10)).retries(quick(3))).await;
    assert!(result.error && text(&result).contains("did not come back within 10ms"), "{result:?}");
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_writing_tool_that_hangs_is_put_before_a_person() {
    let rig = Rig::memory().await;
    let bad = tool("bad", "Hangs.", |_, _: Of| std::future::pending::<Result<(), ToolError>>());
    let bad = bad.writes().timeout(Duration::from_millis(10)).retries(quick(3));
    let (agent, spy) = agent(script(), |builder| builder.tool(bad));
    let report = agent.run_once("go", &rig.session).await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Waiting);
    assert!(rig.wait().await.prompt.contains("did not come back"), "{}", report.reason);
    rig.answer_with(json!({"action": "failed"})).await;
    let report = agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "I see");
    assert!(rig.results().await[0].error);
    goes_on(&rig, &agent, &spy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_tool_that_blocks_its_thread_and_ignores_everything_is_left_behind() {
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let bad = tool("bad", "Blocks.", move |_, _: Of| {
        let blocked = blocked.clone();
        async move {
            let _ = blocked.lock().unwrap().recv();
            Ok::<_, ToolError>(())
        }
    });
    let result = told(bad.timeout(Duration::from_millis(20)).retries(quick(1))).await;
    drop(release);
    assert!(result.error && text(&result).contains("did not come back"), "{result:?}");
}

#[tokio::test]
async fn a_result_of_fifty_megabytes_is_refused_with_its_beginning() {
    let bad = tool("bad", "Talks.", async |_, _: Of| Ok::<_, ToolError>("x".repeat(50 << 20)));
    let result = told(bad).await;
    assert!(result.error && text(&result).contains("52428802 bytes"), "{}", text(&result).len());
    assert!(text(&result).len() < 2_000);
}

#[tokio::test]
async fn an_error_of_fifty_megabytes_is_cut() {
    let bad = tool("bad", "Talks.", async |_, _: Of| Err::<(), _>(ToolError::failed("ü".repeat(25 << 20))));
    let result = told(bad).await;
    assert!(result.error && text(&result).starts_with("üüü"));
    assert!(text(&result).len() <= 2 << 20);
}

#[tokio::test]
async fn a_result_too_deep_to_be_stored_is_refused() {
    let bad = tool("bad", "Digs.", async |_, _: Of| {
        let text = format!("{}1{}", "[".repeat(120), "]".repeat(120));
        Ok::<_, ToolError>(ToolOutput::json(Json::parse(text)?))
    });
    assert!(told(bad).await.error);
}

#[tokio::test]
async fn memory_too_large_to_be_stored_is_refused() {
    let bad = tool("bad", "Remembers too much.", async |_, _: Of| {
        let much = Json::from("x".repeat(20 << 20).as_str());
        Ok::<_, ToolError>(ToolOutput::json(Json::from("ok")).and_remember("much", much))
    });
    assert!(told(bad).await.error);
}

#[tokio::test]
async fn memory_under_an_illegal_key_is_refused() {
    let bad = tool("bad", "Remembers oddly.", async |_, _: Of| {
        let key = "k".repeat(10_000);
        Ok::<_, ToolError>(ToolOutput::json(Json::from("ok")).and_remember(key, Json::null()))
    });
    let told = tokio::time::timeout(Duration::from_secs(60), told(bad)).await;
    assert!(told.expect("it ends").error);
}

#[tokio::test]
async fn a_tool_whose_own_json_is_broken_has_failed_with_the_reason() {
    let bad = tool("bad", "Mumbles.", async |_, _: Of| Ok::<_, ToolError>(Json::parse("{\"a\":")?));
    let result = told(bad).await;
    assert!(result.error && text(&result).contains("not one JSON value"), "{result:?}");
}

#[tokio::test]
async fn a_model_that_calls_wrongly_is_told_and_goes_on() {
    let cases = [
        (Call::new("nonsense", of("a")), "there is no tool `nonsense`; there are: echo"),
        (Call::new("x".repeat(100_000), of("a")), "there is no tool"),
        (Call::raw("echo", "{\"what\": "), "the arguments are not JSON"),
        (Call::new("echo", json!({"what": 5})), "do not fit the tool's schema"),
        (Call::new("echo", json!({})), "do not fit the tool's schema"),
        (Call::raw("echo", ""), "do not fit the tool's schema"),
    ];
    for (call, expected) in cases {
        let rig = Rig::memory().await;
        let script = Script::new("m").calls([call, Call::new("echo", of("fine"))]).text("I see").text("after");
        let (agent, spy) = agent(script, |builder| builder.tool(echo()));
        let report = agent.run_once("go", &rig.session).await.unwrap();
        assert_eq!(report.text(), "I see");
        let results = rig.results().await;
        assert!(results[0].error && text(&results[0]).contains(expected), "{expected}: {:?}", results[0].content);
        assert_eq!((results[1].error, text(&results[1]).as_str()), (false, "fine"));
        goes_on(&rig, &agent, &spy).await;
    }
}

#[tokio::test]
async fn arguments_too_deep_to_be_stored_fail_the_run_and_lose_nothing() {
    for depth in [120, 100_000] {
        let rig = Rig::memory().await;
        let deep = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let answer = Turn::text("after").when_last_contains("next");
        let script = Script::new("m").turn(answer).calls([Call::raw("echo", deep)]);
        let (agent, spy) = agent(script, |builder| builder.tool(echo()));
        let error = agent.run_once("go", &rig.session).await.unwrap_err();
        assert_eq!(error.code(), "RK0024", "{error:?}");
        assert!(format!("{error:?}").contains("depth"), "{error:?}");
        assert_eq!(rig.state().await.status(), Status::Failed);
        goes_on(&rig, &agent, &spy).await;
    }
}

#[tokio::test]
async fn call_ids_need_not_be_unique_nor_sensible() {
    let ids = ["same", "", &"x".repeat(10_240), "\u{0}\n\u{1b}[31m", "../../etc", "ünï"];
    for id in ids {
        for kind in [Kind::Memory, Kind::Files] {
            let rig = Rig::new(kind).await;
            let call = |what| Call::new("echo", of(what)).with_id(id);
            let script = Script::new("m").calls([call("a"), call("b")]).calls([call("c")]).text("I see").text("after");
            let (agent, spy) = agent(script, |builder| builder.tool(echo()));
            let report = agent.run_once("go", &rig.session).await.unwrap();
            assert_eq!(report.text(), "I see", "{id:?}");
            let results: Vec<_> = rig.results().await.iter().map(text).collect();
            assert_eq!(results, ["a", "b", "c"], "{id:?}");
            assert!(rig.results().await.iter().all(|result| result.call == id), "{id:?}");
            assert_eq!(spy.last_view().len(), 6, "all of it was sent");
            goes_on(&rig, &agent, &spy).await;
        }
    }
}

#[tokio::test]
async fn an_empty_answer_ends_the_turn() {
    let rig = Rig::memory().await;
    let (agent, spy) = agent(Script::new("m").turn(Turn::default()).text("after"), |builder| builder);
    let report = agent.run_once("go", &rig.session).await.unwrap();
    assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, ""));
    assert_eq!(rig.messages().await.len(), 2);
    goes_on(&rig, &agent, &spy).await;
}

#[tokio::test]
async fn a_model_that_repeats_itself_is_stopped() {
    let rig = Rig::memory().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let again = tool("again", "Counts.", move |_, of: Of| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, ToolError>(of.what) }
    });
    let script =
        Script::new("m").turn(Turn::text("after").when_last_contains("next")).call("again", of("a")).repeating_last();
    let (agent, spy) = agent(script, |builder| builder.tool(again).same_call_limit(3));
    let error = agent.run_once("go", &rig.session).await.unwrap_err();
    assert_eq!(error.code(), "RK0025");
    assert!(error.message().contains("3 times in a row"), "{error}");
    assert_eq!((calls.load(Ordering::SeqCst), spy.count()), (2, 3), "the third call was not made");
    assert_eq!(rig.state().await.status(), Status::Failed);
    goes_on(&rig, &agent, &spy).await;
}

#[tokio::test]
async fn the_breaker_outlives_the_process() {
    let rig = Rig::new(Kind::Sqlite).await;
    let held = crate::kit::Held::default();
    let script = Script::new("m").call("slow", of("a")).repeating_last();
    let (agent, spy) = agent(script, |builder| builder.tool(held.tool("slow")).same_call_limit(3));
    let mut run = agent.run("go", &rig.session).await.unwrap();
    for _ in 0..2 {
        held.began().await;
        run.stop("a while");
        held.release();
        run.report().await.unwrap();
        run = agent.resume(&rig.again().await).await.unwrap();
    }
    assert_eq!(run.report().await.unwrap_err().code(), "RK0025");
    assert_eq!((held.calls(), spy.count()), (2, 3));
}

#[tokio::test]
async fn a_cut_stream_is_asked_for_again_and_its_pieces_are_no_answer() {
    let rig = Rig::memory().await;
    let whole = "the whole answer";
    // A little time between the pieces: what comes at once with the failure is not kept.
    let cut = Turn::text(whole)
        .streamed(4)
        .with_chunk_delay(Duration::from_millis(1))
        .failing_after(2, ModelError::passing("the line went dead"));
    let (agent, spy) =
        agent(Script::new("m").turn(cut).text("after"), |builder| builder.partials(1, Duration::from_secs(60)));
    assert_eq!(agent.run_once("go", &rig.session).await.unwrap().text(), whole);
    assert_eq!(rig.messages().await.last().unwrap().text(), whole);
    assert_eq!(spy.count(), 2);
    let records = rig.records().await;
    let partials = |attempt| {
        let partials =
            records.iter().filter(move |record| matches!(record, Record::EffectPartial(p) if p.attempt == attempt));
        partials.count()
    };
    assert!(partials(1) > 0, "what was said before the cut was kept");
    goes_on(&rig, &agent, &spy).await;
}

#[tokio::test]
async fn a_model_that_fails_for_good_fails_the_run_and_a_resume_asks_again() {
    for error in [ModelError::fatal("no such key"), ModelError::passing("overloaded")] {
        let rig = Rig::new(Kind::Sqlite).await;
        let times = if error.retry { 4 } else { 1 };
        let script = Script::new("m").turn(Turn::text("done").failing_times(times, error.clone())).text("after");
        let (agent, spy) = agent(script, |builder| builder);
        let failed = agent.run_once("go", &rig.session).await.unwrap_err();
        assert_eq!(failed.code(), "RK0024");
        assert!(failed.message().contains(&error.message), "{failed}");
        assert_eq!(rig.state().await.status(), Status::Failed);
        assert_eq!(rig.state().await.run().unwrap().ended.clone().unwrap().code.as_deref(), Some("RK0024"));
        assert_eq!(spy.count(), times as usize);
        let report = agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
        assert_eq!((report.text().as_str(), spy.count()), ("done", times as usize + 1));
        goes_on(&rig, &agent, &spy).await;
    }
}

#[tokio::test]
async fn a_model_that_panics_fails_the_run_and_no_more() {
    #[derive(Debug)]
    struct Panics;
    #[async_trait::async_trait]
    impl rekindle::model::Model for Panics {
        fn name(&self) -> &str {
            "panics"
        }
        fn capabilities(&self) -> rekindle::model::ModelCapabilities {
            Default::default()
        }
        async fn answer(
            &self,
            request: &rekindle::model::ModelRequest,
            _: &rekindle::model::Deltas,
        ) -> Result<rekindle::model::Answer, ModelError> {
            assert!(request.view.len() > 1, "deliberate");
            Ok(rekindle::model::Answer::text("fine"))
        }
    }
    let rig = Rig::memory().await;
    let agent = Agent::builder("tester", Panics).build().unwrap();
    let error = agent.run_once("go", &rig.session).await.unwrap_err();
    assert_eq!(error.code(), "RK0025");
    assert_eq!(rig.state().await.status(), Status::Failed);
    assert_eq!(agent.run_once("next", &rig.session).await.unwrap().text(), "fine");
    assert_eq!(rig.messages().await.len(), 3);
}

#[tokio::test]
async fn five_failing_steps_in_a_row_fail_the_run() {
    let rig = Rig::memory().await;
    let script = (0..9).fold(Script::new("m"), |script, n| script.call("bad", of(&n.to_string())));
    let script = script.turn(Turn::text("after").when_last_contains("next"));
    let bad = tool("bad", "Fails.", async |_, of: Of| Err::<(), _>(ToolError::failed(of.what)));
    let (agent, spy) = agent(script, |builder| builder.tool(bad));
    let error = agent.run_once("go", &rig.session).await.unwrap_err();
    assert_eq!(error.code(), "RK0025");
    assert!(error.message().contains("5 steps in a row"), "{error}");
    assert_eq!((spy.count(), rig.results().await.len()), (5, 5));
    assert_eq!(rig.state().await.status(), Status::Failed);
    goes_on(&rig, &agent, &spy).await;
}

#[tokio::test]
async fn one_call_that_succeeds_ends_the_row_of_failures() {
    let rig = Rig::memory().await;
    let bad = |n: u32| Call::new("bad", of(&n.to_string()));
    let script =
        Script::new("m").calls([bad(1)]).calls([bad(2), Call::new("echo", of("fine"))]).calls([bad(3)]).text("done");
    let tool = tool("bad", "Fails.", async |_, of: Of| Err::<(), _>(ToolError::failed(of.what)));
    let (agent, _) = agent(script, |builder| builder.tool(tool).tool(echo()).failure_limit(2));
    assert_eq!(agent.run_once("go", &rig.session).await.unwrap().text(), "done");
}
