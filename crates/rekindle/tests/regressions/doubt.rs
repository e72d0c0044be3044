//! Doubt: a call is in doubt only if nobody can know whether it happened.

use std::time::Duration;

use rekindle::Json;
use rekindle::core::Record;
use rekindle::core::record::RunOutcome;
use rekindle::tool::{Retries, ToolError, ToolOutput, tool};
use rekindle_models::{Call, Script};

use crate::kit::{Counter, Held, HeldModel, Rig, agent, of, recorded, resumed, soon};
use crate::support::{Kind, Of};

/// Calls `pay` once.
fn script() -> Script {
    Script::new("m").call("pay", of("x")).text("done")
}

#[tokio::test]
async fn a_call_the_model_asked_for_while_the_run_was_paused_is_not_in_doubt() {
    let rig = Rig::memory().await;
    let counter = Counter::default();
    let model = HeldModel::new(script(), 0);
    let agent = model.agent(|builder| builder.tool(counter.tool("pay").never_again()));
    let run = agent.run("go", &rig.session).await.unwrap();
    soon(model.began()).await;
    run.stop("maintenance");
    model.release();
    assert_eq!(soon(run.report()).await.unwrap().outcome, RunOutcome::Paused);
    assert_eq!(counter.count(), 0);
    assert_eq!(resumed(&agent, &rig).await.text(), "done");
    assert_eq!(counter.count(), 1);
}

#[tokio::test]
async fn a_writing_tool_that_failed_while_the_run_drained_has_failed_and_nobody_is_asked() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let pay = held.tool_ending("pay", |_| Err(ToolError::failed("card declined"))).writes();
    let (agent, _) = agent(script(), |builder| builder.tool(pay));
    let run = agent.run("go", &rig.session).await.unwrap();
    soon(held.began()).await;
    run.stop("maintenance");
    held.release();
    assert_eq!(soon(run.report()).await.unwrap().outcome, RunOutcome::Paused);
    let report = resumed(&agent, &rig).await;
    assert_eq!(report.outcome, RunOutcome::Succeeded, "{}", report.reason);
    assert_eq!(rig.results().await[0].content.as_str(), "\"card declined\"");
    assert_eq!(held.calls(), 1);
}

#[tokio::test]
async fn a_call_that_did_not_happen_is_tried_again_after_a_pause_between_two_tries() {
    let rig = Rig::memory().await;
    let tries = Counter::default();
    let counter = tries.clone();
    let pay = tool("pay", "Pays at the second try.", move |_, _: Of| {
        let first = counter.add() == 0;
        async move { if first { Err(ToolError::retry("connection refused")) } else { Ok("paid") } }
    })
    .never_again()
    .retries(Retries {
        first_pause: Duration::from_secs(3_600),
        longest_pause: Duration::MAX,
        ..Retries::default()
    });
    let (agent, _) = agent(script(), |builder| builder.tool(pay));
    let run = agent.run("go", &rig.session).await.unwrap();
    let tool =
        |record: &Record| matches!(record, Record::EffectOutcome(outcome) if outcome.effect.as_str().starts_with('t'));
    recorded(&rig, tool).await;
    run.stop("maintenance");
    assert_eq!(soon(run.report()).await.unwrap().outcome, RunOutcome::Paused);
    assert_eq!(tries.count(), 1);
    assert_eq!(resumed(&agent, &rig).await.text(), "done");
    assert_eq!(tries.count(), 2);
}

#[tokio::test]
async fn a_writing_tool_that_put_itself_off_is_called_again_and_nobody_is_asked() {
    let rig = Rig::memory().await;
    let calls = Counter::default();
    let counter = calls.clone();
    let pay = tool("pay", "Puts itself off once.", move |_, _: Of| {
        let first = counter.add() == 0;
        async move {
            let paid = || ToolOutput::json(Json::from("paid"));
            Ok::<_, ToolError>(if first { ToolOutput::suspend("not yet") } else { paid() })
        }
    })
    .writes();
    let (agent, _) = agent(script(), |builder| builder.tool(pay));
    agent.run_once("go", &rig.session).await.unwrap();
    assert_eq!(calls.count(), 1);
    let report = resumed(&agent, &rig).await;
    assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"), "{}", report.reason);
    assert_eq!(calls.count(), 2);
}

#[tokio::test]
async fn what_is_decided_about_one_call_does_not_stop_the_others_over_a_slow_store() {
    let rig = Rig::new(Kind::Sqlite).await;
    let counter = Counter::default();
    let panics = tool("panics", "Panics.", async |_, of: Of| {
        assert!(of.what.is_empty(), "out of cheese");
        Ok::<_, ToolError>(of.what)
    });
    let calls = (0..20).map(|number| Call::new(["panics", "note"][number % 2], of(&format!("call {number}"))));
    let script = Script::new("m").calls(calls).text("done");
    let (agent, _) = agent(script, |builder| builder.tool(panics.writes()).tool(counter.tool("note")));
    let report = soon(agent.run_once("go", &rig.session)).await.unwrap();
    assert_eq!((report.outcome, report.waits.len(), counter.count()), (RunOutcome::Waiting, 10, 10));
}
