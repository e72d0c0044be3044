//! A store that is away: a run tries again as long as it owns its session, and an error says what is
//! on record and what is in doubt.

use std::sync::Arc;
use std::time::Duration;

use rekindle::Durability;
use rekindle::core::record::RunOutcome;
use rekindle::tool::{FnTool, ToolError, tool};
use rekindle::{Agent, Event, LiveKind, RunReport, Session, SubAgent};
use rekindle_models::{Script, ScriptedModel};
use rekindle_store::{Fault, FaultPlan, FaultyStore};
use serde_json::json;

use crate::kit::{Counter, Held, Rig, agent, ended, of, soon};
use crate::support::Of;

const MODES: [Durability; 3] = [Durability::Sync, Durability::Async, Durability::Exit];

/// The session in a process whose store fails by that plan, and that waits so long for it.
async fn patient(rig: &Rig, patience: Duration) -> (Session, Arc<FaultPlan>) {
    let plan = Arc::new(FaultPlan::default());
    let store = Arc::new(FaultyStore::new(rig.world.store(), Arc::clone(&plan)));
    let engine = rig.world.engine_over(store).with_store_patience(patience);
    (engine.open_session("s").await.unwrap(), plan)
}

/// Breaks the store when it is called for the first time, and counts its calls.
fn breaking(plan: &Arc<FaultPlan>, fault: Fault, calls: &Counter) -> FnTool<Of> {
    let (plan, calls) = (Arc::clone(plan), calls.clone());
    tool("pay", "Pays.", move |_, of: Of| {
        if calls.add() == 0 {
            plan.fail_from(0, fault);
        }
        async move { Ok::<_, ToolError>(of.what) }
    })
    .never_again()
}

fn paying(tool: FnTool<Of>, durability: Durability) -> Agent {
    let script = Script::new("m").call("pay", of("rent")).call("pay", of("tax")).text("done");
    agent(script, |builder| builder.tool(tool).durability(durability)).0
}

/// Runs to the end; the store heals once it was said to be away.
async fn healed(
    agent: &Agent,
    session: &Session,
    plan: &FaultPlan,
) -> (Vec<&'static str>, rekindle::Result<RunReport>) {
    let mut run = agent.run("go", session).await.unwrap();
    let mut said = Vec::new();
    while let Some(event) = soon(run.next_event()).await.unwrap() {
        match event {
            Event::Live(live) if matches!(live.kind, LiveKind::StoreAway { .. }) => {
                said.push("away");
                plan.heal();
            }
            Event::Live(live) if matches!(live.kind, LiveKind::StoreBack) => said.push("back"),
            _ => {}
        }
    }
    (said, soon(run.report()).await)
}

#[tokio::test]
async fn a_run_goes_on_when_its_store_is_back_before_its_lease_ends() {
    for durability in MODES {
        for fault in [Fault::Unreachable, Fault::ReplyLost] {
            let (rig, calls) = (Rig::memory().await, Counter::default());
            let (session, plan) = patient(&rig, Duration::from_secs(60)).await;
            let agent = paying(breaking(&plan, fault, &calls), durability);
            let (said, report) = healed(&agent, &session, &plan).await;
            let report = report.unwrap_or_else(|error| panic!("{durability:?}, {fault:?}: {error}"));
            assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"));
            assert_eq!(said, ["away", "back"], "{durability:?}, {fault:?}");
            assert_eq!(
                (calls.count(), rig.messages().await.len()),
                (2, 6),
                "{durability:?}, {fault:?}: each call once"
            );
        }
    }
}

#[tokio::test]
async fn patience_ends_with_the_lease() {
    let (rig, calls) = (Rig::memory().await, Counter::default());
    let plan = Arc::new(FaultPlan::default());
    let store = Arc::new(FaultyStore::new(rig.world.store(), Arc::clone(&plan)));
    let engine = rig.world.engine_over(store).with_lease(Duration::from_millis(200));
    let session = engine.with_store_patience(Duration::from_secs(3_600)).open_session("s").await.unwrap();
    let agent = paying(breaking(&plan, Fault::Unreachable, &calls), Durability::Sync);
    let error = soon(agent.run_once("go", &session)).await.unwrap_err();
    assert_eq!(error.code(), "RK0016", "{error}");
    assert_eq!(calls.count(), 1, "nothing is begun by a process that may have lost its session");
}

#[tokio::test]
async fn an_error_says_what_is_on_record_and_which_call_is_in_doubt() {
    for durability in MODES {
        let (rig, calls) = (Rig::memory().await, Counter::default());
        let (session, plan) = patient(&rig, Duration::ZERO).await;
        let agent = paying(breaking(&plan, Fault::Full, &calls), durability);
        let error = soon(agent.run_once("go", &session)).await.unwrap_err().to_string();
        let head = rig.engine.journal().open(rig.key()).await.unwrap().current_branch().unwrap().head.seq;
        assert!(error.contains(&format!("on record up to main:{head}; in doubt")), "{durability:?}: {error}");
        assert!(error.contains("`pay` (effect `t1.0."), "{durability:?}: {error}");
        rig.world.pass_leases();
        let again = ended(agent.resume(&rig.again().await).await).await.unwrap_err().to_string();
        assert!(again.contains("its outcome was not recorded") && !again.contains("died"), "{again}");
        assert_eq!(calls.count(), 1);
    }
}

#[tokio::test]
async fn a_call_whose_outcome_is_on_record_is_not_in_doubt() {
    let rig = Rig::memory().await;
    let (session, plan) = patient(&rig, Duration::ZERO).await;
    let (first, second) = (Held::default(), Counter::default());
    let script = Script::new("m").call("slow", of("x")).call("pay", of("y")).text("done");
    let (agent, _) = agent(script, |builder| {
        let pay = breaking(&plan, Fault::Full, &second);
        builder.durability(Durability::Sync).tool(first.tool("slow").writes()).tool(pay)
    });
    let run = agent.run("go", &session).await.unwrap();
    soon(first.began()).await;
    first.release();
    let error = soon(run.report()).await.unwrap_err().to_string();
    assert!(error.contains("`pay`") && !error.contains("`slow`"), "{error}");
}

#[tokio::test]
async fn a_call_that_was_not_begun_is_not_in_doubt() {
    let (rig, calls) = (Rig::memory().await, Counter::default());
    let (session, plan) = patient(&rig, Duration::ZERO).await;
    let agent = paying(breaking(&plan, Fault::Full, &calls), Durability::Sync);
    // The first write after the session was claimed: the start of the run.
    plan.fail_from(1, Fault::Full);
    let error = ended(agent.run("go", &session).await).await.unwrap_err().to_string();
    assert!(!error.contains("in doubt"), "{error}");
    assert_eq!(calls.count(), 0);
}

/// A parent that gives a child one task, which pays.
fn family(calls: &Counter) -> Agent {
    let child = Script::new("child").call("pay", of("rent")).text("paid");
    let child = Agent::builder("helper", ScriptedModel::new(child)).durability(Durability::Sync);
    let child = child.tool(calls.tool("pay").never_again()).build().unwrap();
    let script = Script::new("parent").call("helper", json!({"task": "pay the rent"})).text("done");
    agent(script, |builder| builder.tool(SubAgent::new(child, "Helps.")).durability(Durability::Sync)).0
}

/// Runs with each call of the store failing once; how many of those were calls of the run itself.
async fn survives_each(fault: Fault, build: impl Fn(&Counter) -> Agent) -> usize {
    let mut begun = 0;
    for call in 0..40 {
        let (rig, calls) = (Rig::memory().await, Counter::default());
        let (session, plan) = patient(&rig, Duration::from_secs(60)).await;
        plan.fail_once_at(call, fault);
        // What fails before it began is an error of whoever begins it.
        let Ok(run) = build(&calls).run("go", &session).await else { continue };
        let report = tokio::time::timeout(Duration::from_secs(20), run.report()).await;
        let report = report.unwrap_or_else(|_| panic!("{fault:?} at {call}: it never ends"));
        let report = report.unwrap_or_else(|error| panic!("{fault:?} at {call}: {error}"));
        assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"), "{fault:?} at {call}");
        assert_eq!(calls.count(), 1, "{fault:?} at {call}: paid once");
        begun += usize::from(plan.calls() > call);
    }
    begun
}

#[tokio::test]
async fn whichever_call_of_the_store_fails_once_a_run_and_its_child_go_on() {
    assert!(survives_each(Fault::Unreachable, family).await > 10);
}

#[tokio::test]
async fn whichever_reply_of_the_store_is_lost_a_run_goes_on() {
    let build = |calls: &Counter| {
        let script = Script::new("m").call("pay", of("rent")).text("done");
        agent(script, |builder| builder.tool(calls.tool("pay").never_again()).durability(Durability::Sync)).0
    };
    assert!(survives_each(Fault::ReplyLost, build).await > 3);
}
