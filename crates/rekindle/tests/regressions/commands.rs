//! Commands: a cancel is carried out, whoever dies and whatever is under way.

use rekindle::Durability;
use rekindle::Status;
use rekindle::core::record::{Command, Decision, RunOutcome};
use rekindle::tool::Approval;
use rekindle_models::{Call, Script};
use rekindle_store::Fault;

use crate::kit::{Counter, Held, Rig, agent, ended, of, resumed, soon};

/// A run that was approved and cancelled while it waited dies at the write with that number and is
/// resumed. Whether it died.
async fn cancelled_and_died_at(call: u64) -> bool {
    let rig = Rig::memory().await;
    let counter = Counter::default();
    let (agent, _) = agent(Script::new("m").call("pay", of("x")).text("done"), |builder| {
        builder.durability(Durability::Sync).tool(counter.tool("pay").needs_approval(Approval::default()))
    });
    agent.run_once("go", &rig.session).await.unwrap();
    rig.send(&[rig.answer(&rig.wait().await, Decision::Approve, "maria").into()]).await;
    rig.send(&[rig.command(Command::Cancel, None)]).await;
    let (session, plan) = rig.faulty().await;
    plan.fail_from(call, Fault::Unreachable);
    let first = ended(agent.resume(&session).await).await;
    let died = plan.calls() > call;
    rig.world.pass_leases();
    if rig.state().await.status() != Status::Cancelled {
        assert!(died, "it ended otherwise: {first:?}");
        let report = resumed(&agent, &rig).await;
        assert_eq!(report.outcome, RunOutcome::Cancelled, "died at write {call}: {}", report.reason);
    }
    assert_eq!(rig.state().await.status(), Status::Cancelled, "died at write {call}");
    assert_eq!(counter.count(), 0, "died at write {call}");
    died
}

#[tokio::test]
async fn a_cancel_is_carried_out_wherever_the_process_dies_that_read_it() {
    let mut call = 0;
    while cancelled_and_died_at(call).await {
        call += 1;
    }
    assert!(call >= 3, "only {call} writes");
}

#[tokio::test]
async fn no_call_begins_after_a_cancel() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let calls = (0..4).map(|number| Call::new("pay", of(&number.to_string())));
    let (agent, _) = agent(Script::new("m").calls(calls).text("done"), |builder| {
        builder.tool(held.tool("pay").writes().concurrency(1))
    });
    let run = agent.run("go", &rig.session).await.unwrap();
    soon(held.began()).await;
    run.cancel("stop it");
    (0..4).for_each(|_| held.release());
    assert_eq!(soon(run.report()).await.unwrap().outcome, RunOutcome::Cancelled);
    assert_eq!(held.calls(), 1);
}
