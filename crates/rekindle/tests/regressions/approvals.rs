//! Approvals: what somebody decided counts, when it was decided, for what it was decided.

use std::time::{Duration, Instant};

use rekindle::core::record::{Decision, InboxAnswer, RunOutcome};
use rekindle::tool::{Approval, ToolError, ToolOutput, tool};
use rekindle::wait::WaitSpec;
use rekindle::{Json, OnWait};
use rekindle_models::{Call, Script};

use crate::kit::{Counter, Held, Rig, agent, of, recorded, resumed, soon};
use crate::support::{Of, state};

/// Calls `pay` once.
fn script() -> Script {
    Script::new("m").call("pay", of("x")).text("done")
}

#[tokio::test]
async fn a_rejection_given_in_time_holds_although_nobody_ran_until_the_wait_expired() {
    let rig = Rig::memory().await;
    let counter = Counter::default();
    let approval =
        Approval { expires_after: Some(Duration::from_secs(100)), approve_on_expiry: true, ..Approval::default() };
    let (agent, _) = agent(script(), |builder| builder.tool(counter.tool("pay").needs_approval(approval)));
    agent.run_once("go", &rig.session).await.unwrap();
    rig.world.clock.advance(Duration::from_secs(10));
    rig.send(&[rig.answer(&rig.wait().await, Decision::Reject, "maria").into()]).await;
    rig.world.clock.advance(Duration::from_secs(100));
    assert_eq!(resumed(&agent, &rig).await.outcome, RunOutcome::Succeeded);
    assert_eq!(counter.count(), 0);
    assert!(rig.results().await[0].error, "the model is told of the rejection");
}

#[tokio::test]
async fn an_approval_of_what_was_first_shown_does_not_cover_arguments_edited_since() {
    let rig = Rig::memory().await;
    let counter = Counter::default();
    let approval = Approval { approvals: 2, ..Approval::default() };
    let (agent, _) = agent(script(), |builder| builder.tool(counter.tool("pay").needs_approval(approval)));
    agent.run_once("go", &rig.session).await.unwrap();
    let wait = rig.wait().await;
    let edited = Some(Json::from(of("much more")));
    let edit = InboxAnswer { arguments: edited, ..rig.answer(&wait, Decision::Approve, "mallory") };
    rig.send(&[edit.into()]).await;
    // Bob names the digest of the arguments the model had given.
    rig.send(&[rig.answer(&wait, Decision::Approve, "bob").into()]).await;
    assert_eq!(resumed(&agent, &rig).await.outcome, RunOutcome::Waiting);
    assert_eq!(counter.count(), 0);
}

#[tokio::test]
async fn no_approval_is_closed_on_disk_before_the_call_it_allows_is_intended() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let pay = held.tool("pay").writes().idempotent().concurrency(1).needs_approval(Approval::default());
    let calls = [Call::new("pay", of("x")), Call::new("pay", of("y"))];
    let (agent, _) = agent(Script::new("m").calls(calls).text("done"), |builder| builder.tool(pay));
    agent.run_once("go", &rig.session).await.unwrap();
    let waits = rig.waits().await;
    assert_eq!(waits.len(), 2);
    for wait in &waits {
        rig.send(&[rig.answer(wait, Decision::Approve, "maria").into()]).await;
    }
    let run = agent.resume(&rig.session).await.unwrap();
    soon(held.began()).await;
    // Whoever took over now would find this.
    let found = state(&rig.world.engine(), rig.key()).await;
    let intended = found.effects().filter(|effect| effect.intent.name == "pay").count();
    assert_eq!(found.waits().count() + intended, 2, "each call is waited for or intended");
    (0..2).for_each(|_| held.release());
    assert_eq!(soon(run.report()).await.unwrap().text(), "done");
    assert_eq!(held.calls(), 2);
}

#[tokio::test]
async fn a_tool_that_asks_for_an_approval_itself_succeeds_once_it_is_given() {
    let rig = Rig::memory().await;
    let ask = tool("pay", "Asks.", async |_, _: Of| {
        Ok::<_, ToolError>(ToolOutput::wait(WaitSpec::approval("may I?", Json::null())))
    });
    let (agent, _) = agent(script(), |builder| builder.tool(ask));
    agent.run_once("go", &rig.session).await.unwrap();
    rig.send(&[rig.answer(&rig.wait().await, Decision::Approve, "maria").into()]).await;
    assert_eq!(resumed(&agent, &rig).await.text(), "done");
    let result = rig.results().await.remove(0);
    assert!(!result.error, "{result:?}");
}

#[tokio::test]
async fn waiting_for_an_approval_does_not_count_as_work() {
    let rig = Rig::memory().await;
    let counter = Counter::default();
    let (agent, _) = agent(script(), |builder| {
        builder.on_wait(OnWait::Hold).tool(counter.tool("pay").needs_approval(Approval::default()))
    });
    let began = Instant::now();
    let run = agent.run("go", &rig.session).await.unwrap();
    recorded(&rig, |record| matches!(record, rekindle::core::Record::WaitOpened(_))).await;
    // Work is measured with the machine's own clock, so some time has to pass.
    let held = Duration::from_millis(600);
    tokio::time::sleep(held).await;
    rig.send(&[rig.answer(&rig.wait().await, Decision::Approve, "maria").into()]).await;
    let report = soon(run.report()).await.unwrap();
    assert_eq!(counter.count(), 1);
    // However long a busy machine takes for the rest.
    let active = Duration::from_micros(report.spent.active_micros);
    assert!(active + held <= began.elapsed(), "{:?}", report.spent);
}
