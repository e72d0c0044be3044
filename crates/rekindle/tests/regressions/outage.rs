//! A store that is away: a run tries again as long as it owns its session, and an error says what is
//! on record and what is in doubt.

use std::sync::Arc;
use std::time::Duration;

use rekindle::record::{Durability, RunOutcome};
use rekindle::tool::{FnTool, ToolError, tool};
use rekindle::{Agent, Event, LiveKind, RunReport, Session};
use rekindle_models::Script;
use rekindle_store::{Fault, FaultPlan, FaultyStore};

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
