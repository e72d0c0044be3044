//! Starting and resuming: the four cases, staleness, drift, time travel, damage, retention, stores
//! that fail, and secrets.

use std::sync::Arc;

use rekindle::Durability;
use rekindle::core::record::{LogSplice, RunOutcome};
use rekindle::core::retention::{Policy, Rule};
use rekindle::core::{LogName, Record, Target};
use rekindle::tool::{FnTool, ToolContext, ToolError, ToolOutput, tool};
use rekindle::wait::WaitSpec;
use rekindle::{
    Agent, BranchId, Event, Frequency, Json, LiveKind, Message, PersistFailure, Position, ResumeOptions, RunHandle,
    Secret, SecretRef, SecretSource, Session, Status,
};
use rekindle_models::{Call, Script};
use rekindle_store::{Fault, FaultPlan};

use crate::kit::{Held, Rig, Spy, agent, agent_of, echo, is_closed, of};
use crate::support::{Kind, Ledger, Of};

fn script() -> Script {
    Script::new("m").call("slow", of("a")).call("slow", of("b")).text("done").text("and again")
}

/// A run that was paused after the first call of `slow`.
async fn paused(rig: &Rig) -> (Agent, Spy, Held, rekindle::RunReport) {
    let held = Held::default();
    let (agent, spy) = agent(script(), |builder| builder.tool(held.tool("slow")));
    let report = pause(agent.run("go", &rig.session).await.unwrap(), &held).await;
    (agent, spy, held, report)
}

/// Pauses a run after its next call of `slow`.
async fn pause(run: RunHandle, held: &Held) -> rekindle::RunReport {
    held.began().await;
    run.stop("a while");
    held.release();
    run.report().await.unwrap()
}

async fn finish(run: RunHandle) -> String {
    let report = run.report().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Succeeded, "{}", report.reason);
    report.text()
}

#[tokio::test]
async fn agent_scenario1_no_checkpoint_no_messages_throws_exception() {
    let rig = Rig::memory().await;
    let (agent, spy) = agent(script(), |builder| builder);
    let error = agent.resume(&rig.session).await.unwrap_err();
    assert_eq!(error.code(), "RK0010");
    assert!(format!("{error:?}").contains("give new input"), "{error:?}");
    assert_eq!((rig.records().await.len(), spy.count()), (0, 0));
    assert!(rig.session.info().await.unwrap().current_branch().unwrap().lease.is_none(), "the lease was given back");
}

#[tokio::test]
async fn agent_scenario2_no_checkpoint_has_messages_succeeds() {
    let rig = Rig::memory().await;
    let (agent, _) = agent(Script::new("m").text("hello"), |builder| builder);
    assert_eq!(finish(agent.run("hi", &rig.session).await.unwrap()).await, "hello");
}

#[tokio::test]
async fn agent_scenario3_has_checkpoint_no_messages_succeeds() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (agent, spy, held, _) = paused(&rig).await;
    held.release();
    assert_eq!(finish(agent.resume(&rig.again().await).await.unwrap()).await, "done");
    assert_eq!((held.calls(), spy.count()), (2, 3));
}

#[tokio::test]
async fn agent_scenario4_has_checkpoint_has_messages_throws_exception() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (agent, spy, _, report) = paused(&rig).await;
    let before = rig.records().await;
    let error = agent.run("something else", &rig.again().await).await.unwrap_err();
    assert_eq!(error.code(), "RK0019");
    let text = format!("{error:?}");
    for part in ["session `s`", "step 2", "paused", "resume `s`", "cancel `s`", "inbox of `s`", report.run.as_str()] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!((rig.records().await, spy.count()), (before, 1), "nothing happened");
}

#[tokio::test]
async fn a_killed_run_counts_as_unfinished() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (session, plan) = rig.faulty().await;
    let (agent, _) = agent(Script::new("m").call("die", of("a")).text("done"), |builder| {
        builder.tool(deadly("die", &plan, 0)).durability(Durability::Sync)
    });
    agent.run_once("go", &session).await.unwrap_err();
    assert_eq!(agent.resume(&rig.again().await).await.unwrap_err().code(), "RK0007", "its lease still lives");
    rig.world.pass_leases();
    assert_eq!(
        rig.session.info().await.unwrap().current_branch().unwrap().status_at(rig.engine.journal().clock().now()),
        Status::Interrupted
    );
    assert_eq!(agent.run("more", &rig.again().await).await.unwrap_err().code(), "RK0019");
    assert_eq!(finish(agent.resume(&rig.again().await).await.unwrap()).await, "done");
}

#[tokio::test]
async fn the_owner_of_a_dead_run_can_be_taken_over_at_once() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (session, plan) = rig.faulty().await;
    let (agent, _) = agent(Script::new("m").call("die", of("a")).text("done"), |builder| {
        builder.tool(deadly("die", &plan, 0)).durability(Durability::Sync)
    });
    agent.run_once("go", &session).await.unwrap_err();
    let run = agent.resume_with(&rig.again().await, ResumeOptions::new("maria").take_over()).await.unwrap();
    assert_eq!(finish(run).await, "done");
}

#[tokio::test]
async fn a_resume_that_saw_another_history_is_stale_unless_that_is_accepted() {
    let rig = Rig::memory().await;
    let (agent, _, held, seen) = paused(&rig).await;
    let fresh = agent.resume_with(&rig.session, ResumeOptions::new("maria").seen(seen.head)).await.unwrap();
    pause(fresh, &held).await;
    let error = agent.resume_with(&rig.session, ResumeOptions::new("maria").seen(seen.head)).await.unwrap_err();
    assert_eq!(error.code(), "RK0008");
    assert!(format!("{error:?}").contains(&format!("behind record {}", seen.head.seq)), "{error:?}");
    let options = ResumeOptions::new("maria").seen(seen.head).allow_stale("I know");
    assert_eq!(finish(agent.resume_with(&rig.session, options).await.unwrap()).await, "done");
    let accepted = rig.records().await.into_iter().find_map(|record| match record {
        Record::StaleAccepted(accepted) => Some(accepted),
        _ => None,
    });
    let accepted = accepted.unwrap();
    assert_eq!((accepted.author.as_str(), accepted.reason.as_str()), ("maria", "I know"));
    assert_eq!(accepted.expected, seen.head);
}

#[tokio::test]
async fn a_tool_that_changed_is_named_and_the_change_can_be_accepted() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let spy = Spy::new(script());
    let versioned =
        |version: &str| agent_of(&spy, |builder| builder.tool(held.tool("slow")).tool(echo().version(version)));
    pause(versioned("1").run("go", &rig.session).await.unwrap(), &held).await;
    let error = versioned("2").resume(&rig.session).await.unwrap_err();
    assert_eq!(error.code(), "RK0009");
    assert!(error.message().contains("tool echo") && !error.message().contains("slow"), "{error}");
    let options = ResumeOptions::new("maria").accept_drift("only the version");
    held.release();
    assert_eq!(finish(versioned("2").resume_with(&rig.session, options).await.unwrap()).await, "done");
    let accepted = rig.records().await.into_iter().find_map(|record| match record {
        Record::DriftAccepted(accepted) => Some(accepted),
        _ => None,
    });
    let accepted = accepted.unwrap();
    assert_eq!((accepted.author.as_str(), accepted.reason.as_str()), ("maria", "only the version"));
    assert!(accepted.changes[0].contains("tool echo"), "{accepted:?}");
    // What was accepted is the definition now.
    assert_eq!(finish(versioned("2").run("next", &rig.session).await.unwrap()).await, "and again");
}

#[tokio::test]
async fn a_new_turn_may_use_a_changed_agent() {
    let rig = Rig::memory().await;
    let spy = Spy::new(Script::new("m").text("one").text("two"));
    agent_of(&spy, |builder| builder).run_once("a", &rig.session).await.unwrap();
    let report = agent_of(&spy, |builder| builder.tool(echo())).run_once("b", &rig.session).await.unwrap();
    assert_eq!(report.text(), "two");
}

/// Writes what it does, and with which key, into the ledger.
fn paying(ledger: &Ledger) -> FnTool<Of> {
    let ledger = ledger.clone();
    tool("pay", "Pays.", move |call: ToolContext, of: Of| {
        ledger.write(&format!("{} {}", of.what, call.idempotency_key()));
        async move { Ok::<_, ToolError>(of.what) }
    })
    .writes()
    .idempotent()
}

fn payments(ledger: &Ledger, what: &str) -> Vec<String> {
    ledger.lines().into_iter().filter(|line| line.starts_with(&format!("{what} "))).collect()
}

#[tokio::test]
async fn time_travel_goes_on_from_a_checkpoint_on_a_branch_of_its_own() {
    let rig = Rig::new(Kind::Sqlite).await;
    let ledger = rig.world.ledger();
    let script = Script::new("m").call("pay", of("a")).call("pay", of("b")).text("done");
    let (agent, spy) = agent(script, |builder| builder.tool(paying(&ledger)).checkpoints(Frequency::PerIteration));
    agent.run_once("go", &rig.session).await.unwrap();
    let (old, messages) = (rig.records().await, rig.messages().await);
    let found = rig.engine.journal().checkpoints(rig.key(), None, None, 10).await.unwrap();
    let first = found.iter().find(|found| found.checkpoint.description.starts_with("iteration 1")).unwrap();
    let options = ResumeOptions::new("maria").from_checkpoint(first.checkpoint.id.clone());
    let report = agent.resume_with(&rig.again().await, options).await.unwrap().report().await.unwrap();
    assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"));
    assert_ne!(report.branch, BranchId::main());
    assert_eq!(rig.records().await, old, "nothing of the old branch was touched");
    assert_eq!(rig.messages().await, messages, "the new one came to the same");
    assert_eq!(payments(&ledger, "a").len(), 1, "it stands before the checkpoint");
    let b = payments(&ledger, "b");
    assert!(b.len() == 2 && b[0] != b[1], "made again, with another key: {b:?}");
    assert_eq!(spy.count(), 5, "and the model was asked again, as on record there is nothing");
    let info = rig.session.info().await.unwrap();
    let parent = info.branch(&report.branch).unwrap().parent.clone().unwrap();
    assert_eq!(parent, first.position);
}

#[tokio::test]
async fn time_travel_to_the_end_of_a_turn_takes_a_new_message() {
    let rig = Rig::memory().await;
    let (agent, spy) = agent(Script::new("m").text("one").text("two").repeating_last(), |builder| builder);
    agent.run_once("first", &rig.session).await.unwrap();
    let first = rig.engine.journal().checkpoints(rig.key(), None, None, 1).await.unwrap().remove(0);
    agent.run_once("second", &rig.session).await.unwrap();
    let options = ResumeOptions::new("maria").from_checkpoint(first.checkpoint.id);
    let run = agent.run_with(vec!["another second".into()], &rig.session, options).await.unwrap();
    assert_eq!(finish(run).await, "two");
    let texts: Vec<_> = spy.last_view().iter().map(Message::text).collect();
    assert_eq!(texts, ["first", "one", "another second"]);
    // The new branch is the current one now.
    assert_eq!(rig.messages().await.len(), 4);
    assert_eq!(finish(agent.run("third", &rig.session).await.unwrap()).await, "two");
}

#[tokio::test]
async fn a_message_in_the_middle_of_a_turn_is_refused_on_an_old_checkpoint_too() {
    let rig = Rig::memory().await;
    let script = Script::new("m").call("echo", of("a")).text("done");
    let (agent, _) = agent(script, |builder| builder.tool(echo()).checkpoints(Frequency::PerIteration));
    agent.run_once("go", &rig.session).await.unwrap();
    let found = rig.engine.journal().checkpoints(rig.key(), None, None, 10).await.unwrap();
    let options = ResumeOptions::new("maria").from_checkpoint(found[1].checkpoint.id.clone());
    let error = agent.run_with(vec!["hm".into()], &rig.session, options).await.unwrap_err();
    assert_eq!(error.code(), "RK0019", "{error:?}");
}

#[tokio::test]
async fn an_outcome_on_record_is_not_used_for_a_call_somebody_edited() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let script = Script::new("m").calls([Call::new("echo", of("a")), Call::new("slow", of("b"))]).text("done");
    let (agent, spy) = agent(script, |builder| builder.tool(echo()).tool(held.tool("slow")));
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.stop("one");
    run.stop("two");
    run.report().await.unwrap();
    let state = rig.state().await;
    assert_eq!(state.effects().filter(|effect| effect.is_settled()).count(), 1, "echo has ended");
    let log = LogName::new("messages").unwrap();
    let edited = state.log(&log)[1].as_str().replace(r#"{"what":"a"}"#, r#"{"what":"z"}"#);
    let splice = LogSplice::new(log, 1, 1, vec![Json::parse(edited).unwrap()]);
    let head = rig.session.info().await.unwrap().current_branch().unwrap().head;
    let target = Target::new(rig.key().clone(), BranchId::main(), head);
    rig.engine.journal().append(&target, &[splice.into()]).await.unwrap();
    let error = agent.resume(&rig.session).await.unwrap().report().await.unwrap_err();
    assert_eq!(error.code(), "RK0021", "{error:?}");
    assert_eq!(spy.count(), 1);
    // The way out: cancel, and everything is closed.
    rig.send(&[rig.command(rekindle::core::record::Command::Cancel, None)]).await;
    agent.resume(&rig.session).await.unwrap().report().await.unwrap();
    assert!(is_closed(&rig.messages().await));
}

/// Spoils the last record of a file store that holds `text`.
fn spoil(rig: &Rig, text: &str) {
    let segment = "files/sessions/default/s/branches/main/00000000000000000001.jsonl";
    let path = rig.world.directory.path().join(segment);
    let content = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = content.lines().map(str::to_owned).collect();
    let line = lines.iter_mut().rfind(|line| line.contains(text)).unwrap();
    *line = line.replacen(text, &text.to_uppercase(), 1);
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
}

#[tokio::test]
async fn damage_is_refused_and_with_a_fallback_the_run_goes_on_before_it() {
    let rig = Rig::new(Kind::Files).await;
    let held = Held::default();
    let script = Script::new("m").call("echo", of("alpha")).call("echo", of("beta")).call("slow", of("c")).text("done");
    let (agent, _) =
        agent(script, |builder| builder.tool(echo()).tool(held.tool("slow")).checkpoints(Frequency::PerIteration));
    pause(agent.run("go", &rig.session).await.unwrap(), &held).await;
    spoil(&rig, "beta");
    let error = agent.resume(&rig.again().await).await.unwrap_err();
    assert_eq!(error.code(), "RK0011", "{error:?}");
    held.release();
    let run = agent.resume_with(&rig.again().await, ResumeOptions::new("maria").fallback()).await.unwrap();
    let report = run.report().await.unwrap();
    assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"));
    let substituted = rig.records_of(&report.branch).await.into_iter().find_map(|record| match record {
        Record::CheckpointSubstituted(substituted) => Some(substituted),
        _ => None,
    });
    let substituted = substituted.unwrap();
    assert_eq!(substituted.author.as_deref(), Some("maria"));
    let used = rig.engine.journal().checkpoint(rig.key(), &substituted.used).await.unwrap();
    assert!(used.checkpoint.description.starts_with("iteration 1"), "{used:?}");
    assert_ne!(substituted.wanted, substituted.used);
    assert_eq!(rig.results().await.len(), 3);
}

#[tokio::test]
async fn retention_is_applied_when_a_run_ends() {
    for (policy, kept) in
        [(Some(Policy::new([Rule::LatestOnly])), 1), (Some(Policy::new([Rule::LastN(2)])), 2), (None, 4)]
    {
        let rig = Rig::new(Kind::Sqlite).await;
        let script = Script::new("m").call("echo", of("a")).call("echo", of("b")).text("done").text("next");
        let (agent, _) = agent(script, |builder| {
            let builder = builder.tool(echo()).checkpoints(Frequency::PerIteration);
            policy.clone().into_iter().fold(builder, rekindle::AgentBuilder::retention)
        });
        agent.run_once("go", &rig.session).await.unwrap();
        let found = rig.engine.journal().checkpoints(rig.key(), None, None, 10).await.unwrap();
        assert_eq!(found.len(), kept, "{policy:?}");
        assert_eq!(rig.messages().await.len(), 6, "{policy:?}: the conversation is whole");
        assert_eq!(agent.run_once("more", &rig.again().await).await.unwrap().text(), "next");
    }
}

/// Its first call makes the store fail from the mutating call with that number on.
fn deadly(name: &str, plan: &Arc<FaultPlan>, from: u64) -> FnTool<Of> {
    let (plan, first) = (plan.clone(), Arc::new(std::sync::atomic::AtomicBool::new(true)));
    tool(name, "Kills the store.", move |_, of: Of| {
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            plan.fail_from(from, Fault::Unreachable);
        }
        async move { Ok::<_, ToolError>(of.what) }
    })
}

fn dying(plan: &Arc<FaultPlan>, policy: PersistFailure, durability: Durability) -> (Agent, Spy) {
    agent(Script::new("m").call("die", of("a")).call("echo", of("b")).text("done"), |builder| {
        builder.tool(deadly("die", plan, 0)).tool(echo()).on_persist_failure(policy).durability(durability)
    })
}

/// Runs until the end; what the run said of its store. It heals when it is told to.
async fn listen(
    agent: &Agent,
    session: &Session,
    heal_on: impl Fn(&LiveKind) -> bool,
    plan: &FaultPlan,
) -> (Vec<&'static str>, rekindle::RunReport) {
    let mut run = agent.run("go", session).await.unwrap();
    let mut said = Vec::new();
    while let Some(event) = run.next_event().await.unwrap() {
        if let Event::Live(live) = event {
            match &live.kind {
                LiveKind::StoreAway { .. } => said.push("away"),
                LiveKind::Degraded { .. } => said.push("degraded"),
                LiveKind::StoreBack => said.push("back"),
                _ => {}
            }
            if heal_on(&live.kind) {
                plan.heal();
            }
        }
    }
    (said, run.report().await.unwrap())
}

#[tokio::test]
async fn a_run_halts_when_its_store_fails_and_a_resume_has_lost_nothing() {
    for durability in [Durability::Sync, Durability::Async] {
        let rig = Rig::memory().await;
        let (session, plan) = rig.faulty().await;
        let (agent, _) = dying(&plan, PersistFailure::Halt, durability);
        let error = agent.run_once("go", &session).await.unwrap_err();
        assert!(["RK0016", "RK0018"].contains(&error.code()), "{error:?}");
        rig.world.pass_leases();
        assert_eq!(finish(agent.resume(&rig.again().await).await.unwrap()).await, "done");
        assert_eq!(rig.messages().await.len(), 6);
    }
}

#[tokio::test]
async fn a_run_stands_still_until_its_store_is_back() {
    for durability in [Durability::Sync, Durability::Async] {
        let rig = Rig::memory().await;
        let (session, plan) = rig.faulty().await;
        let (agent, spy) = dying(&plan, PersistFailure::Pause, durability);
        let heal = |kind: &LiveKind| matches!(kind, LiveKind::StoreAway { .. });
        let (said, report) = listen(&agent, &session, heal, &plan).await;
        assert_eq!(said, ["away", "back"], "{durability:?}");
        assert_eq!((report.text().as_str(), report.degraded), ("done", false));
        assert_eq!((rig.messages().await.len(), spy.count()), (6, 3), "everything is stored, nothing was asked twice");
    }
}

#[tokio::test]
async fn a_run_that_stands_still_can_be_stopped() {
    let rig = Rig::memory().await;
    let (session, plan) = rig.faulty().await;
    let (agent, _) = dying(&plan, PersistFailure::Pause, Durability::Sync);
    let mut run = agent.run("go", &session).await.unwrap();
    loop {
        if let Some(Event::Live(live)) = run.next_event().await.unwrap()
            && matches!(live.kind, LiveKind::StoreAway { .. })
        {
            break;
        }
    }
    run.stop("enough");
    assert_eq!(run.report().await.unwrap_err().code(), "RK0016");
    rig.world.pass_leases();
    assert_eq!(finish(agent.resume(&rig.again().await).await.unwrap()).await, "done");
}

#[tokio::test]
async fn a_degraded_run_goes_on_and_stores_everything_once_it_can() {
    for durability in [Durability::Sync, Durability::Async] {
        let rig = Rig::memory().await;
        let (session, plan) = rig.faulty().await;
        let (agent, _) = dying(&plan, PersistFailure::Degrade, durability);
        let heal = |kind: &LiveKind| matches!(kind, LiveKind::Degraded { .. });
        let (said, report) = listen(&agent, &session, heal, &plan).await;
        assert_eq!(said, ["degraded", "back"], "{durability:?}");
        assert_eq!((report.text().as_str(), report.degraded), ("done", false));
        assert_eq!(rig.messages().await.len(), 6);
        assert_eq!(rig.state().await.status(), Status::Succeeded);
        let started = rig.records().await.into_iter().find_map(|record| match record {
            Record::RunStarted(started) => Some(started.weakened),
            _ => None,
        });
        assert!(started.unwrap().iter().any(|text| text.contains("degrade")), "the run said so first");
    }
}

#[tokio::test]
async fn a_run_that_ends_degraded_says_so_and_can_be_resumed_from_what_is_stored() {
    let rig = Rig::memory().await;
    let (session, plan) = rig.faulty().await;
    let (agent, _) = dying(&plan, PersistFailure::Degrade, Durability::Sync);
    let report = agent.run_once("go", &session).await.unwrap();
    assert_eq!((report.text().as_str(), report.degraded), ("done", true));
    rig.world.pass_leases();
    assert_eq!(rig.state().await.status().seen(false), Status::Interrupted);
    assert_eq!(finish(agent.resume(&rig.again().await).await.unwrap()).await, "done");
    assert_eq!(rig.messages().await.len(), 6);
}

const VALUE: &str = "hunter2-\"quoted\"";

#[derive(Debug)]
struct Vault;

impl SecretSource for Vault {
    fn resolve(&self, reference: &SecretRef) -> rekindle::Result<Secret> {
        assert_eq!(reference.as_str(), "@vault:a");
        Ok(Secret::new(VALUE))
    }
}

/// Tells everybody the secret, in every way there is.
fn blabber() -> FnTool<Of> {
    tool("blab", "Tells.", async |call: ToolContext, of: Of| {
        let secret = call.secret("token").await?.expose().to_owned();
        let json = Json::from(format!("it is {secret}!").as_str());
        match of.what.as_str() {
            "result" => Ok(ToolOutput::json(json)),
            "memory" => Ok(ToolOutput::json(Json::null()).and_remember("told", json)),
            "error" => Err(ToolError::failed(secret)),
            "retry" if call.attempt() == 1 => Err(ToolError::retry(secret)),
            "retry" => Ok(ToolOutput::json(Json::null())),
            "partial" => {
                call.keep_partial(json).await?;
                Ok(ToolOutput::json(Json::null()))
            }
            "checkpoint" => {
                call.checkpoint(&secret).await?;
                Ok(ToolOutput::json(Json::null()))
            }
            "end" => Ok(ToolOutput::json(Json::null()).and_terminate(secret)),
            "wait" => Ok(ToolOutput::wait(WaitSpec::question(secret))),
            _ => panic!("{secret}"),
        }
    })
}

#[tokio::test]
async fn a_secret_is_given_by_reference_and_stands_in_no_record() {
    for how in ["result", "memory", "error", "retry", "partial", "checkpoint", "end", "wait", "panic"] {
        let rig = Rig::memory().await;
        let engine = rig.world.engine().with_secrets(Vault);
        let session = engine.open_session("s").await.unwrap();
        let (agent, _) = agent(Script::new("m").call("blab", of(how)).text("done"), |builder| builder.tool(blabber()));
        let options = ResumeOptions::new("maria").secret("token", "@vault:a").unwrap();
        agent.run_with(vec!["go".into()], &session, options).await.unwrap().report().await.unwrap();
        let stored: String = rig
            .records()
            .await
            .iter()
            .map(|record| Json::of(record).unwrap().to_string())
            .collect::<Vec<_>>()
            .join("\n");
        assert!(!stored.contains("hunter2"), "{how}: {stored}");
        assert!(stored.contains("@vault:a"), "{how}: the reference is stored");
        let marked = stored.contains(r#"{"$redacted":"token""#);
        assert!(marked || stored.contains("[secret token]"), "{how}: {stored}");
    }
}

#[tokio::test]
async fn a_secret_that_was_not_given_or_cannot_be_resolved_is_told() {
    let rig = Rig::memory().await;
    let script = Script::new("m").call("blab", of("result")).text("one").call("blab", of("result")).text("two");
    let (agent, _) = agent(script, |builder| builder.tool(blabber()));
    agent.run_once("go", &rig.session).await.unwrap();
    let options = ResumeOptions::new("maria").secret("token", "@vault:a").unwrap();
    agent.run_with(vec!["go".into()], &rig.session, options).await.unwrap().report().await.unwrap();
    let results = rig.results().await;
    assert!(results[0].content.as_str().contains("no secret `token` was given"), "{results:?}");
    assert!(results[1].content.as_str().contains("nothing here can resolve `@vault:`"), "{results:?}");
    let position =
        Position::new(BranchId::main(), rig.session.info().await.unwrap().current_branch().unwrap().head.seq);
    assert!(rig.engine.journal().load(rig.key(), Some(&position)).await.is_ok());
}
