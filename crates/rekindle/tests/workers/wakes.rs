//! What wakes a session that waits, and one that runs.

use std::sync::Arc;
use std::time::Duration;

use rekindle::core::LogName;
use rekindle::core::queue::JobState;
use rekindle::core::record::InboxMode;
use rekindle::operations::{self, Answer, ControlOptions, Enqueue, JobInput};
use rekindle::plan::StepSpec;
use rekindle::tool::{ToolError, ToolOutput, tool};
use rekindle::wait::WaitSpec;
use rekindle::worker::WorkerEvent;
use rekindle::{Agent, Clock, Flow, Json, Plan, Status, SubAgent, Timestamp};
use rekindle_models::{Script, ScriptedModel, Turn};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::kit::{Place, header, job_of, key, noting, on_each_store, put, state, status, until, until_over, working};
use crate::support::{Of, messages};

on_each_store! {
    an_answer_wakes_a_session_that_holds_no_slot
    a_signal_wakes
    a_timer_wakes
    a_message_to_a_run_that_ends_is_its_next_turn
    a_run_hears_at_once_what_is_sent_to_it
    an_answer_to_a_child_wakes_the_session_that_started_it
    what_waits_behind_a_run_that_is_cancelled_begins
}

pub fn asking(spec: WaitSpec) -> Flow {
    Flow::new("asking", move |context, _: String| {
        let spec = spec.clone();
        async move { context.wait("answer", &spec).await }
    })
}

pub async fn parked(engine: &rekindle::Engine, id: &str) {
    until("it is parked", async || job_of(engine, id).await.is_some_and(|view| view.state == JobState::Parked)).await;
}

async fn an_answer_wakes_a_session_that_holds_no_slot(place: Place) {
    let engine = place.engine();
    // One slot: whatever waits must not have it.
    let hand = working(place.worker().work(asking(WaitSpec::question("Which?"))).concurrency(1));
    for id in ["a", "b"] {
        put(&engine, id, "asking", "x").await;
    }
    for id in ["a", "b"] {
        parked(&engine, id).await;
        assert_eq!(status(&engine, id).await, Status::Waiting);
    }
    for id in ["b", "a"] {
        let wait = state(&engine, id).await.waits().next().unwrap().opened.wait.clone();
        let answer = Answer::value(wait, Json::from("blue"), "maria");
        operations::answer(&engine, &key(&engine, id), &answer).await.unwrap();
        until_over(&engine, id, Status::Succeeded).await;
    }
    let report = hand.stop().await;
    assert_eq!((report.waiting, report.succeeded), (2, 2), "{report:?}");
}

async fn what_waits_behind_a_run_that_is_cancelled_begins(place: Place) {
    let engine = place.engine();
    let hand = working(place.worker().work(asking(WaitSpec::question("Which?"))));
    put(&engine, "a", "asking", "x").await;
    parked(&engine, "a").await;
    let next = Enqueue::existing(key(&engine, "a"), "maria").input(JobInput::Input(Json::from("y")));
    operations::enqueue(&engine, &next).await.unwrap();
    let taken = LogName::new("inbox/input").unwrap();
    until("it was taken over", async || state(&engine, "a").await.log(&taken).len() == 2).await;
    parked(&engine, "a").await;
    let before = state(&engine, "a").await.waits().next().unwrap().opened.wait.clone();
    operations::cancel(&engine, &key(&engine, "a"), &ControlOptions::new("maria", "enough")).await.unwrap();
    until("the next one asks", async || state(&engine, "a").await.waits().any(|wait| wait.opened.wait != before)).await;
    hand.stop().await;
}

async fn a_signal_wakes(place: Place) {
    let engine = place.engine();
    let hand = working(place.worker().work(asking(WaitSpec::signal("paid"))));
    put(&engine, "a", "asking", "x").await;
    parked(&engine, "a").await;
    operations::signal(&engine, &key(&engine, "a"), "paid", Json::null(), "shop").await.unwrap();
    until_over(&engine, "a", Status::Succeeded).await;
    hand.stop().await;
}

async fn a_timer_wakes(place: Place) {
    let engine = place.engine();
    let sleeping = Flow::new("sleeping", async |context: rekindle::FlowContext, _: String| {
        context.sleep("nap", Duration::from_millis(1_200)).await
    });
    let hand = working(place.worker().work(sleeping));
    put(&engine, "a", "sleeping", "x").await;
    until("it is scheduled", async || job_of(&engine, "a").await.is_some_and(|view| view.state == JobState::Scheduled))
        .await;
    assert_eq!(status(&engine, "a").await, Status::Waiting);
    until_over(&engine, "a", Status::Succeeded).await;
    let report = hand.stop().await;
    assert_eq!((report.waiting, report.succeeded), (1, 1), "{report:?}");
}

async fn a_message_to_a_run_that_ends_is_its_next_turn(place: Place) {
    let engine = place.engine();
    let slow = Turn::text("one").delayed(Duration::from_millis(300));
    let model = ScriptedModel::new(Script::new("m").turn(slow).text("two"));
    let agent = Agent::builder("guide", model).build().unwrap();
    let job = Enqueue::new(header(&engine, "s", "guide"), "maria").message("first");
    operations::enqueue(&engine, &job).await.unwrap();
    let hand = working(place.worker().work(agent));
    until("it runs", async || status(&engine, "s").await == Status::Running).await;
    operations::send(&engine, &job.session, "second".into(), InboxMode::Queue, "maria", None).await.unwrap();
    until("both are answered", async || messages(&engine, &job.session).await.len() == 4).await;
    until("the job is gone", async || job_of(&engine, "s").await.is_none()).await;
    hand.stop().await;
}

async fn a_run_hears_at_once_what_is_sent_to_it(place: Place) {
    let (engine, gate) = (place.engine(), Arc::new(Semaphore::new(0)));
    // So slow that only word from the store can be quicker.
    let slow = place.engine().with_poll(Duration::from_secs(3_600)).with_lease(Duration::from_secs(3_600));
    let worker = rekindle::worker::Worker::builder(slow).work(noting("flow", &place.ledger(), &gate));
    let hand = working(worker);
    put(&engine, "a", "flow", "x").await;
    until("it runs", async || status(&engine, "a").await == Status::Running).await;
    operations::cancel(&engine, &key(&engine, "a"), &ControlOptions::new("maria", "enough")).await.unwrap();
    until_over(&engine, "a", Status::Cancelled).await;
    assert!(place.ledger().lines().is_empty());
    let report = hand.stop().await;
    assert_eq!(report.cancelled, 1, "{report:?}");
}

async fn an_answer_to_a_child_wakes_the_session_that_started_it(place: Place) {
    let engine = place.engine();
    let ask = tool("ask", "Asks.", async |_, _: Of| Ok::<_, ToolError>(ToolOutput::wait(WaitSpec::question("?"))));
    let model = ScriptedModel::new(Script::new("m").call("ask", json!({"what": "it"})).text("they swim"));
    let helper = Agent::builder("helper", model).tool(ask).build().unwrap();
    let step = StepSpec::new("ask", "helper").with("task", "look it up");
    let plan = Plan::builder("plan").tool(SubAgent::new(helper, "Helps.")).step(step).build().unwrap();
    let hand = working(place.worker().work(plan));
    put(&engine, "p", "plan", json!({"query": "go"})).await;
    until("the child waits", async || {
        let open = operations::waits(&engine, engine.namespace()).await.unwrap();
        open.waits.len() == 1 && job_of(&engine, "p").await.is_some_and(|view| view.state == JobState::Scheduled)
    })
    .await;
    let open = operations::waits(&engine, engine.namespace()).await.unwrap().waits.remove(0);
    let answer = Answer::value(open.wait.opened.wait.clone(), Json::from("otters"), "maria");
    operations::answer(&engine, &open.session, &answer).await.unwrap();
    until_over(&engine, "p", Status::Succeeded).await;
    hand.stop().await;
}

/// A clock that is wrong.
#[derive(Debug)]
struct Off(i64);

impl Clock for Off {
    fn now(&self) -> Timestamp {
        let now = rekindle_store::SystemClock.now().0;
        Timestamp(now.saturating_add_signed(self.0))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_are_right_on_a_machine_whose_clock_is_hours_off() {
    for off in [-7_200_000_000, 7_200_000_000] {
        let place = Place::new(crate::kit::Kind::Memory);
        let engine = place.engine();
        let sleeping = Flow::new("sleeping", async |context: rekindle::FlowContext, _: String| {
            context.sleep("nap", Duration::from_millis(700)).await
        });
        let wrong = place.engine().with_clock(Arc::new(Off(off)));
        let hand = working(rekindle::worker::Worker::builder(wrong).work(sleeping));
        put(&engine, "a", "sleeping", "x").await;
        until_over(&engine, "a", Status::Succeeded).await;
        let told = hand.events().iter().filter(|event| matches!(event, WorkerEvent::ClockOff { .. })).count();
        assert_eq!(told, 1);
        // It did wait, and neither no time nor hours.
        assert_eq!(hand.stop().await.waiting, 1);
    }
}
