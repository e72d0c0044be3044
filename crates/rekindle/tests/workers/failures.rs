//! Workers that stop or die, sessions that kill them, and work that changed or is missing.

use std::sync::Arc;
use std::time::Duration;

use rekindle::core::queue::{ClaimRequest, JobState};
use rekindle::core::record::{InDoubtPolicy, RunStarted};
use rekindle::core::{OwnerId, Target};
use rekindle::operations::{self, ControlOptions, Enqueue};
use rekindle::tool::{ToolError, ToolOutput, tool};
use rekindle::wait::WaitSpec;
use rekindle::worker::{Resolver, Work, WorkerEvent};
use rekindle::{Agent, Engine, Flow, Result, RunId, SessionHeader, SessionInfo, Status, async_trait};
use rekindle_models::{Script, ScriptedModel};
use tokio::sync::Semaphore;

use crate::kit::{
    LEASE, Mortal, Place, header, job_of, key, noting, on_each_store, open_gate, put, state, status, until, until_over,
    working,
};
use crate::support::Ledger;

on_each_store! {
    a_worker_that_stops_hands_its_runs_on
    another_worker_goes_on_when_one_dies
    what_is_in_doubt_at_a_takeover_is_treated_by_its_policy
    a_session_that_kills_its_workers_is_given_up
    a_session_that_gets_on_starts_counting_anew
    a_session_a_person_paused_stays_paused
    what_changed_is_held_until_somebody_says_so
}

async fn a_worker_that_stops_hands_its_runs_on(place: Place) {
    let (engine, ledger, gate) = (place.engine(), place.ledger(), Arc::new(Semaphore::new(0)));
    let hand = working(place.worker().work(two_steps(&ledger, &gate)));
    put(&engine, "a", "two", "x").await;
    gate.add_permits(1);
    until("the first step is done", async || ledger.lines().len() == 1).await;
    let drained = tokio::spawn(hand.stop());
    gate.add_permits(1);
    let report = drained.await.unwrap();
    assert_eq!((report.paused + report.succeeded, report.failed), (1, 0), "{report:?}");
    // Whether it came to its end or was given back, the next worker leaves it whole.
    working(place.worker().work(two_steps(&ledger, &open_gate())).until_idle()).end().await;
    until_over(&engine, "a", Status::Succeeded).await;
    assert_eq!(ledger.lines(), ["one", "two"]);
}

/// Two steps, one after the other, each through the gate.
fn two_steps(ledger: &Ledger, gate: &Arc<Semaphore>) -> Flow {
    let (ledger, gate) = (ledger.clone(), Arc::clone(gate));
    Flow::new("two", move |context, _: String| {
        let (ledger, gate) = (ledger.clone(), Arc::clone(&gate));
        async move {
            for name in ["one", "two"] {
                let note = async |_| {
                    gate.acquire().await.unwrap().forget();
                    ledger.write(name);
                    Ok(true)
                };
                context.step(name, name, note).await?;
            }
            Ok(true)
        }
    })
}

async fn another_worker_goes_on_when_one_dies(place: Place) {
    let (engine, ledger, gate) = (place.engine(), place.ledger(), Arc::new(Semaphore::new(0)));
    let mortal = Mortal::working(place.worker().work(two_steps(&ledger, &gate)));
    put(&engine, "a", "two", "x").await;
    gate.add_permits(1);
    until("the first step is done", async || ledger.lines().len() == 1).await;
    mortal.die();
    let hand = working(place.worker().work(two_steps(&ledger, &open_gate())));
    until_over(&engine, "a", Status::Succeeded).await;
    assert_eq!(ledger.lines(), ["one", "two"]);
    let claimed = hand.events().into_iter().find_map(|event| match event {
        WorkerEvent::Claimed { attempt, .. } => Some(attempt),
        _ => None,
    });
    assert_eq!(claimed, Some(2));
    hand.stop().await;
}

/// An agent that pays: the call says that it began, and ends once the gate lets it.
fn paying(policy: InDoubtPolicy, ledger: &Ledger, gate: &Arc<Semaphore>) -> Agent {
    let (ledger, gate) = (ledger.clone(), Arc::clone(gate));
    let pay = tool("pay", "Pays.", move |_, _: Empty| {
        let (ledger, gate) = (ledger.clone(), Arc::clone(&gate));
        async move {
            ledger.write("paid");
            gate.acquire().await.unwrap().forget();
            Ok::<_, ToolError>("paid")
        }
    });
    let model = ScriptedModel::new(Script::new("m").call("pay", serde_json::json!({})).text("done"));
    Agent::builder("paying", model).tool(pay.writes().in_doubt(policy)).build().unwrap()
}

async fn what_is_in_doubt_at_a_takeover_is_treated_by_its_policy(place: Place) {
    let engine = place.engine();
    let wanted = [
        (InDoubtPolicy::Never, Status::Failed, 1),
        (InDoubtPolicy::Ask, Status::Waiting, 1),
        (InDoubtPolicy::Idempotent, Status::Succeeded, 2),
    ];
    for (number, (policy, ended, times)) in wanted.into_iter().enumerate() {
        let (id, ledger) = (format!("s{number}"), Ledger::new(format!("{}-{number}", place.ledger_path())));
        let mortal = Mortal::working(place.worker().work(paying(policy, &ledger, &Arc::new(Semaphore::new(0)))));
        let job = Enqueue::new(header(&engine, &id, "paying"), "maria").message("pay");
        operations::enqueue(&engine, &job).await.unwrap();
        until("the call is under way", async || ledger.lines().len() == 1).await;
        mortal.die();
        let hand = working(place.worker().work(paying(policy, &ledger, &open_gate())));
        until("it came to its end", async || status(&engine, &id).await == ended).await;
        hand.stop().await;
        assert_eq!(ledger.lines().len(), times, "{policy:?}");
    }
}

/// Makes a session whose run began and was cut off.
async fn interrupted(engine: &Engine, id: &str, agent: &str) {
    let session = engine.create_with(header(engine, id, agent)).await.unwrap();
    let info = session.info().await.unwrap();
    let branch = info.current_branch().unwrap();
    let target = Target::new(session.key().clone(), branch.branch.clone(), branch.head);
    let run = RunId::generate(engine.journal().ids(), engine.journal().clock().now());
    let started = RunStarted { ..RunStarted::new(run, "flow") };
    engine.journal().append(&target, &[started.into()]).await.unwrap();
}

/// Claims the jobs that are ready, as a worker that dies at once.
async fn claim_and_die(engine: &Engine) {
    let short = Duration::from_millis(1);
    let worker = OwnerId::new("dead").unwrap();
    let request = ClaimRequest::new(worker, engine.namespace().clone(), 10, short);
    let store = engine.journal().store();
    until("it is claimed", async || !store.queue().unwrap().claim(&request).await.unwrap().jobs.is_empty()).await;
    tokio::time::sleep(short * 3).await;
}

async fn a_session_that_kills_its_workers_is_given_up(place: Place) {
    let (engine, ledger) = (place.engine(), place.ledger());
    interrupted(&engine, "a", "flow").await;
    operations::enqueue(&engine, &Enqueue::existing(key(&engine, "a"), "maria")).await.unwrap();
    for _ in 0..3 {
        claim_and_die(&engine).await;
    }
    let hand = working(place.worker().work(noting("flow", &ledger, &open_gate())).attempts(3));
    until_over(&engine, "a", Status::Failed).await;
    let report = hand.stop().await;
    assert_eq!((report.gave_up, report.succeeded), (1, 0), "{report:?}");
    assert!(ledger.lines().is_empty(), "it was not run again");
    let state = state(&engine, "a").await;
    let ended = state.run().unwrap().ended.as_ref().unwrap();
    assert!(ended.reason.contains("gave up after 3 attempts without progress"), "{}", ended.reason);
}

async fn a_session_that_gets_on_starts_counting_anew(place: Place) {
    let (engine, ledger, gate) = (place.engine(), place.ledger(), Arc::new(Semaphore::new(0)));
    put(&engine, "a", "two", "x").await;
    for _ in 0..3 {
        claim_and_die(&engine).await;
    }
    assert_eq!(job_of(&engine, "a").await.unwrap().job.attempts, 3);
    let hand = working(place.worker().work(two_steps(&ledger, &gate)));
    until("it is under way", async || status(&engine, "a").await == Status::Running).await;
    assert_eq!(job_of(&engine, "a").await.unwrap().job.attempts, 4);
    gate.add_permits(1);
    until("it got on", async || job_of(&engine, "a").await.unwrap().job.attempts == 0).await;
    assert_eq!(job_of(&engine, "a").await.unwrap().state, JobState::Claimed);
    gate.add_permits(1);
    until_over(&engine, "a", Status::Succeeded).await;
    hand.stop().await;
}

async fn a_session_a_person_paused_stays_paused(place: Place) {
    let (engine, gate) = (place.engine(), Arc::new(Semaphore::new(0)));
    let hand = working(place.worker().work(two_steps(&place.ledger(), &gate)));
    put(&engine, "a", "two", "x").await;
    until("it runs", async || status(&engine, "a").await == Status::Running).await;
    operations::interrupt(&engine, &key(&engine, "a"), &ControlOptions::new("maria", "wait")).await.unwrap();
    until_over(&engine, "a", Status::Paused).await;
    gate.add_permits(2);
    operations::enqueue(&engine, &Enqueue::existing(key(&engine, "a"), "maria")).await.unwrap();
    until_over(&engine, "a", Status::Succeeded).await;
    hand.stop().await;
}

fn guide(prompt: &str) -> Agent {
    let model = ScriptedModel::new(Script::new("m").call("nothing", serde_json::json!({})).text("done"));
    let wait =
        tool("nothing", "Waits.", async |_, _: Empty| Ok::<_, ToolError>(ToolOutput::wait(WaitSpec::question("?"))));
    Agent::builder("guide", model).system(prompt).tool(wait).build().unwrap()
}

#[derive(Debug, serde::Deserialize, rekindle::schemars::JsonSchema)]
#[schemars(crate = "rekindle::schemars")]
struct Empty {}

async fn what_changed_is_held_until_somebody_says_so(place: Place) {
    let engine = place.engine();
    let job = Enqueue::new(header(&engine, "s", "guide"), "maria").message("go");
    operations::enqueue(&engine, &job).await.unwrap();
    working(place.worker().work(guide("be brief")).until_idle()).end().await;
    assert_eq!(status(&engine, "s").await, Status::Waiting);
    let wait = state(&engine, "s").await.waits().next().unwrap().opened.wait.clone();
    let answer = operations::Answer::value(wait, rekindle::Json::from("yes"), "maria");
    operations::answer(&engine, &job.session, &answer).await.unwrap();
    let report = working(place.worker().work(guide("be long")).until_idle()).end().await;
    assert_eq!(report.held, 1, "{report:?}");
    let held = job_of(&engine, "s").await.unwrap();
    assert!(held.job.note.contains("changed"), "{}", held.job.note);
    assert_eq!((held.state, held.job.attempts), (JobState::Scheduled, 0));
    operations::enqueue(&engine, &Enqueue::existing(job.session.clone(), "maria")).await.unwrap();
    working(place.worker().work(guide("be long")).accept_drift("a new prompt").until_idle()).end().await;
    until_over(&engine, "s", Status::Succeeded).await;
}

/// Knows nothing, or makes what it is asked for.
struct Maker(Option<Arc<dyn Work>>);

#[async_trait]
impl Resolver for Maker {
    fn key(&self, session: &SessionInfo) -> Option<String> {
        self.0.as_ref().and(session.header.agent.clone())
    }

    async fn make(&self, _: &SessionInfo) -> Result<Arc<dyn Work>> {
        self.0.clone().ok_or_else(|| rekindle::Error::not_found("there is none"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_worker_cannot_run_another_can() {
    let place = Place::new(crate::kit::Kind::Memory);
    let (engine, ledger) = (place.engine(), place.ledger());
    put(&engine, "a", "flow", "x").await;
    let knows_nothing = working(place.worker().resolver(Maker(None)));
    until("it was given back", async || job_of(&engine, "a").await.is_some_and(|view| !view.job.note.is_empty())).await;
    let note = job_of(&engine, "a").await.unwrap().job.note;
    assert!(note.contains("flow"), "{note}");
    assert_eq!(job_of(&engine, "a").await.unwrap().job.attempts, 0, "that does not count");
    let work: Arc<dyn Work> = Arc::new(noting("flow", &ledger, &open_gate()));
    let knows = working(place.worker().resolver(Maker(Some(work))));
    until_over(&engine, "a", Status::Succeeded).await;
    assert_eq!(ledger.lines(), ["x"]);
    knows.stop().await;
    knows_nothing.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_still_lives_is_waited_for() {
    let place = Place::new(crate::kit::Kind::Memory);
    let (engine, ledger) = (place.engine(), place.ledger());
    put(&engine, "a", "flow", "x").await;
    let owner = OwnerId::new("somebody").unwrap();
    let (session, branch) = (key(&engine, "a"), rekindle::BranchId::main());
    let lease =
        rekindle::core::StoreExt::acquire(engine.journal().store(), &session, &branch, &owner, LEASE).await.unwrap();
    let hand = working(place.worker().work(noting("flow", &ledger, &open_gate())));
    until("it was given back", async || job_of(&engine, "a").await.is_some_and(|view| !view.job.note.is_empty())).await;
    assert!(ledger.lines().is_empty());
    until_over(&engine, "a", Status::Succeeded).await;
    assert!(lease.info.expires_at <= rekindle::Clock::now(&rekindle_store::SystemClock), "not before it ended");
    hand.stop().await;
}

#[test]
fn a_worker_that_could_not_work_is_not_built() {
    let engine = Engine::memory().unwrap();
    let flow = || Flow::new("f", async |_, _: String| Ok(1));
    let worker = || rekindle::worker::Worker::builder(engine.clone());
    let refused = [
        worker().build(),
        worker().work(flow()).concurrency(0).build(),
        worker().work(flow()).work(flow()).build(),
        worker().work(flow()).attempts(0).build(),
    ];
    for refused in refused {
        assert_eq!(*refused.unwrap_err().kind(), rekindle::ErrorKind::Invalid);
    }
    let _ = SessionHeader::new(engine.key("x").unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_input_that_cannot_be_read_is_held_and_named() {
    let place = Place::new(crate::kit::Kind::Sqlite);
    let (engine, ledger) = (place.engine(), place.ledger());
    put(&engine, "a", "note", "x").await;
    let damaged = place.database().execute(
        "UPDATE frames SET body = zeroblob(4) WHERE branch = (SELECT id FROM branches WHERE name = 'inbox')",
        [],
    );
    assert_eq!(damaged.unwrap(), 1);
    let hand = working(place.worker().work(noting("note", &ledger, &open_gate())).until_idle());
    let held = |event: &WorkerEvent| matches!(event, WorkerEvent::Held { reason, .. } if reason.contains("the inbox cannot be read at 1"));
    until("the job is held", async || hand.events().iter().any(held)).await;
    let note = job_of(&engine, "a").await.unwrap().job.note;
    assert!(note.contains("the inbox cannot be read at 1"), "{note}");
    assert_eq!(ledger.lines(), [] as [&str; 0]);
    hand.stop().await;
}
