//! Limits: what cannot be stored is told to whoever made it, and nothing is done again for it.

use rekindle::Json;
use rekindle::core::record::RunOutcome;
use rekindle::tool::{FnTool, Retries, ToolContext, ToolError, ToolOutput, tool};
use rekindle_models::{Call, Script};

use crate::kit::{Counter, Rig, agent, ended, of};
use crate::support::Of;

/// Has `bad` called once: the model is told that it failed, and the turn succeeds.
async fn fails_and_is_told(what: &str, bad: FnTool<Of>) {
    let rig = Rig::memory().await;
    let (agent, spy) = agent(Script::new("m").call("bad", of(what)).text("done"), |builder| builder.tool(bad));
    let report = ended(agent.run("go", &rig.session).await).await.unwrap();
    assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"), "{}", report.reason);
    let view = spy.last_view();
    let result = view.last().unwrap().results().next().unwrap();
    assert!(result.error, "{result:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_too_deep_to_be_stored_is_a_failed_call_and_no_second_one() {
    let calls = Counter::default();
    let counter = calls.clone();
    let bad = tool("bad", "Digs.", move |_, _: Of| {
        counter.add();
        async { Ok::<_, ToolError>(ToolOutput::json(Json::parse("[".repeat(110) + &"]".repeat(110))?)) }
    });
    fails_and_is_told("x", bad.idempotent()).await;
    assert_eq!(calls.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_under_an_illegal_key_is_a_failed_call_and_no_second_one() {
    let calls = Counter::default();
    let counter = calls.clone();
    let bad = tool("bad", "Remembers.", move |_, of: Of| {
        counter.add();
        async { Ok::<_, ToolError>(ToolOutput::json(Json::from("ok")).and_remember(of.what, Json::from("v"))) }
    });
    fails_and_is_told(&"k\n".repeat(400), bad).await;
    assert_eq!(calls.count(), 1);
}

#[tokio::test]
async fn a_partial_result_too_large_to_be_stored_is_refused_and_the_session_opens_again() {
    let rig = Rig::memory().await;
    let quick = tool("quick", "Is quick.", async |_, of: Of| Ok::<_, ToolError>(of.what));
    let large = tool("large", "Keeps too much.", async |call: ToolContext, _: Of| {
        let kept = call.keep_partial(Json::from("x".repeat(17 << 20).as_str())).await;
        Ok::<_, ToolError>(if kept.is_err() { "refused" } else { "kept" })
    });
    let calls = [Call::new("quick", of("a")), Call::new("large", of("b"))];
    // The outcome of the first is neither on disk nor lost while the second fails to write.
    let (agent, _) = agent(Script::new("m").calls(calls).text("done"), |builder| {
        builder.pending_writes(false).tool(quick).tool(large.sequential())
    });
    let report = ended(agent.run("go", &rig.session).await).await.unwrap();
    assert_eq!(report.text(), "done");
    rig.world.engine().journal().load(rig.key(), None).await.unwrap();
    let told: Vec<_> = rig.results().await.iter().map(|result| result.content.as_str().to_owned()).collect();
    assert_eq!(told, ["\"a\"", "\"refused\""]);
}

#[tokio::test]
async fn the_greatest_number_of_retries_is_a_number_like_any_other() {
    let rig = Rig::memory().await;
    let (agent, _) = agent(Script::new("m").text("hello"), |builder| {
        builder.model_retries(Retries { attempts: u32::MAX, ..Retries::default() })
    });
    assert_eq!(agent.run_once("go", &rig.session).await.unwrap().text(), "hello");
}
