//! Durability: in every mode a call that is not replay-safe begins only after its intent is on disk.

use std::sync::{Arc, Mutex};

use rekindle::Durability;
use rekindle::core::Record;
use rekindle::core::record::{InDoubtPolicy, OutcomeStatus};
use rekindle::tool::{Checked, FnTool, ToolContext, ToolError, tool};
use rekindle::{Agent, Engine, SessionKey, State};
use rekindle_models::{Call, Script};
use rekindle_store::{Fault, FaultPlan};

use crate::kit::{HeldModel, Rig, agent, eventually, of, resumed, soon};
use crate::support::{Kind, Of, state};

const POLICIES: [InDoubtPolicy; 5] = [
    InDoubtPolicy::ReplaySafe,
    InDoubtPolicy::Idempotent,
    InDoubtPolicy::Check,
    InDoubtPolicy::Ask,
    InDoubtPolicy::Never,
];

/// The key under which a call stands on disk, if it does.
fn key_of(state: &State, name: &str) -> Option<String> {
    state.effects().find(|effect| effect.intent.name == name).map(|effect| effect.intent.idempotency_key.clone())
}

/// The key of each call, and the key under which another process found it.
type Seen = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// Looks, while it is called, at what another process finds of its own call; and notes its key.
fn looking(other: Engine, key: SessionKey, seen: &Seen) -> FnTool<Of> {
    let seen = Arc::clone(seen);
    tool("pay", "Pays.", move |call: ToolContext, _: Of| {
        let (other, key, seen) = (other.clone(), key.clone(), Arc::clone(&seen));
        async move {
            let found = key_of(&state(&other, &key).await, "pay");
            seen.lock().unwrap().push((call.idempotency_key().to_owned(), found));
            Ok::<_, ToolError>("paid")
        }
    })
}

#[tokio::test]
async fn the_intent_of_a_call_that_is_not_replay_safe_is_on_disk_before_it_begins() {
    for kind in Kind::ALL {
        for policy in POLICIES {
            for (durability, pending_writes) in [
                (Durability::Exit, true),
                (Durability::Exit, false),
                (Durability::Sync, false),
                (Durability::Async, false),
            ] {
                let rig = Rig::new(kind).await;
                let seen = Seen::default();
                let pay = looking(rig.world.engine(), rig.key().clone(), &seen).in_doubt(policy);
                let (agent, _) = agent(Script::new("m").call("pay", of("x")).text("done"), |builder| {
                    builder.tool(pay).durability(durability).pending_writes(pending_writes)
                });
                assert_eq!(soon(agent.run_once("go", &rig.session)).await.unwrap().text(), "done");
                let seen = seen.lock().unwrap();
                let [(key, found)] = &seen[..] else { panic!("called once: {seen:?}") };
                let case = format!("{kind:?}, {policy:?}, {durability:?}, pending writes: {pending_writes}");
                match policy {
                    InDoubtPolicy::ReplaySafe => assert_eq!(found, &None, "{case}"),
                    _ => assert_eq!(found.as_ref(), Some(key), "{case}"),
                }
            }
        }
    }
}

/// Pays and takes its store with it: nothing more gets on disk, as after SIGKILL.
fn deadly(plan: &Arc<FaultPlan>, keys: &Arc<Mutex<Vec<String>>>) -> FnTool<Of> {
    let (plan, keys) = (Arc::clone(plan), Arc::clone(keys));
    let checked = Arc::clone(&keys);
    tool("pay", "Pays.", move |call: ToolContext, _: Of| {
        keys.lock().unwrap().push(call.idempotency_key().to_owned());
        if keys.lock().unwrap().len() == 1 {
            plan.fail_from(0, Fault::Unreachable);
        }
        async move { Ok::<_, ToolError>("paid") }
    })
    .check(move |call: ToolContext, _: Of| {
        let happened = checked.lock().unwrap().contains(&call.idempotency_key().to_owned());
        async move {
            Ok::<_, ToolError>(if happened { Checked::Happened("paid before".into()) } else { Checked::DidNotHappen })
        }
    })
}

/// Dies in its call in `exit` mode; the keys of all calls, and how the resume ended.
async fn killed(policy: InDoubtPolicy, pending_writes: bool) -> (Vec<String>, Result<String, String>) {
    let rig = Rig::memory().await;
    let (session, plan) = rig.faulty().await;
    let keys = Arc::default();
    let (agent, _) = agent(Script::new("m").call("pay", of("x")).text("done"), |builder| {
        let builder = builder.durability(Durability::Exit).pending_writes(pending_writes);
        builder.tool(deadly(&plan, &keys).in_doubt(policy))
    });
    soon(agent.run_once("go", &session)).await.unwrap_err();
    rig.world.pass_leases();
    let resumed = ended(&agent, &rig).await;
    let keys = keys.lock().unwrap().clone();
    (keys, resumed)
}

async fn ended(agent: &Agent, rig: &Rig) -> Result<String, String> {
    match crate::kit::ended(agent.resume(&rig.again().await).await).await {
        Ok(report) => Ok(format!("{:?}", report.outcome)),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn a_call_that_was_under_way_in_exit_mode_is_treated_by_its_policy() {
    for pending_writes in [true, false] {
        let (keys, ended) = killed(InDoubtPolicy::Never, pending_writes).await;
        let error = ended.unwrap_err();
        assert!(error.contains("`pay` happened: its outcome was not recorded"), "{error}");
        assert!(!error.contains("died"), "nobody saw a process die: {error}");
        assert_eq!(keys.len(), 1);
        let (keys, ended) = killed(InDoubtPolicy::Ask, pending_writes).await;
        assert_eq!((ended.as_deref(), keys.len()), (Ok("Waiting"), 1));
        let (keys, ended) = killed(InDoubtPolicy::Check, pending_writes).await;
        assert_eq!((ended.as_deref(), keys.len()), (Ok("Succeeded"), 1));
        let (keys, ended) = killed(InDoubtPolicy::Idempotent, pending_writes).await;
        assert_eq!((ended.as_deref(), keys.len()), (Ok("Succeeded"), 2));
        assert_eq!(keys[0], keys[1], "made again with the same key");
    }
}

#[tokio::test]
async fn the_outcome_of_such_a_call_does_not_wait_for_the_end_of_an_exit_run() {
    let rig = Rig::memory().await;
    let script = Script::new("m").calls([Call::new("pay", of("x"))]).text("done");
    let model = HeldModel::new(script, 1);
    let pay = tool("pay", "Pays.", async |_, of: Of| Ok::<_, ToolError>(of.what)).never_again();
    let agent = model.agent(|builder| builder.tool(pay).durability(Durability::Exit));
    let run = agent.run("go", &rig.session).await.unwrap();
    soon(model.began()).await;
    let paid = |record: &Record| matches!(record, Record::EffectOutcome(outcome) if outcome.status == OutcomeStatus::Ok && outcome.effect.as_str().starts_with('t'));
    eventually(async || rig.records().await.iter().any(paid).then_some(())).await;
    // The run that goes on in its place makes no call again.
    drop(run);
    model.release();
    eventually(async || (rig.state().await.run()?.ended.is_some()).then_some(())).await;
    let text = resumed(&agent, &rig).await.text();
    assert_eq!(text, "done");
}
