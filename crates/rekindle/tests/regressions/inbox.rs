//! The inbox: a message counts once, reaches who waits, and many of them stop nobody.

use std::time::Duration;

use async_trait::async_trait;
use rekindle::core::codec::{Codec, Limits};
use rekindle::core::record::{InboxMode, RunOutcome};
use rekindle::core::{IdSource, Record};
use rekindle::message::Role;
use rekindle::model::{Answer, Deltas, Model, ModelCapabilities, ModelError, ModelRequest};
use rekindle::tool::Approval;
use rekindle::{Agent, Engine, Journal, Message, OnWait, ResumeOptions, operations};
use rekindle_models::Script;

use crate::kit::{Counter, HeldModel, Rig, agent, ended, of, recorded, resumed, run_with, soon};

#[tokio::test]
async fn a_message_sent_again_after_it_was_answered_counts_once() {
    let rig = Rig::memory().await;
    let (agent, spy) = agent(Script::new("m").text("one").text("two"), |builder| builder);
    let message = rig.message(InboxMode::Queue, "hello");
    rig.send(std::slice::from_ref(&message)).await;
    assert_eq!(resumed(&agent, &rig).await.text(), "one");
    rig.send(&[message]).await;
    // Whether there is nothing to resume or nothing to do in it does not matter here.
    let _ = run_with(&agent, &rig, None, ResumeOptions::default()).await;
    assert_eq!((rig.messages().await.len(), spy.count()), (2, 1));
}

#[tokio::test]
async fn an_interrupting_message_reaches_a_run_that_holds_for_an_approval() {
    let rig = Rig::memory().await;
    let counter = Counter::default();
    let (agent, spy) = agent(Script::new("m").call("pay", of("x")).text("as you wish"), |builder| {
        builder.on_wait(OnWait::Hold).tool(counter.tool("pay").needs_approval(Approval::default()))
    });
    let run = agent.run("go", &rig.session).await.unwrap();
    recorded(&rig, |record| matches!(record, Record::WaitOpened(_))).await;
    rig.send(&[rig.message(InboxMode::Interrupt, "never mind, do not pay")]).await;
    assert_eq!(soon(run.report()).await.unwrap().text(), "as you wish");
    assert_eq!((counter.count(), spy.count()), (0, 2));
    assert_eq!(spy.last_view().last().unwrap().text(), "never mind, do not pay");
}

/// A model that does not look at what it is sent, so that long conversations cost it nothing.
#[derive(Debug)]
struct Blind;

#[async_trait]
impl Model for Blind {
    fn name(&self) -> &str {
        "blind"
    }

    fn capabilities(&self) -> ModelCapabilities {
        ModelCapabilities::default()
    }

    async fn answer(&self, _: &ModelRequest, _: &Deltas) -> Result<Answer, ModelError> {
        Ok(Answer::text("ok"))
    }
}

fn many(rig: &Rig, count: usize) -> Vec<Record> {
    (0..count).map(|_| rig.message(InboxMode::Queue, "spam")).collect()
}

#[tokio::test]
async fn hundreds_of_queued_messages_are_all_answered() {
    let rig = Rig::memory().await;
    let agent = Agent::builder("tester", Blind).build().unwrap();
    agent.run_once("hello", &rig.session).await.unwrap();
    for _ in 0..3 {
        rig.send(&many(&rig, 100)).await;
    }
    let report = run_with(&agent, &rig, Some("hi"), ResumeOptions::default()).await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Succeeded, "{}", report.reason);
    assert_eq!(rig.messages().await.len(), 2 * (2 + 300), "each of them, and its answer");
}

/// Runs up to the first question to the model and cancels there.
async fn one_step(rig: &Rig, agent: &Agent, model: &HeldModel) {
    let run = agent.run("hi", &rig.again().await).await.unwrap();
    model.began().await;
    run.cancel("enough");
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Cancelled);
}

#[tokio::test]
async fn an_inbox_of_thousands_is_taken_over_in_pages_and_stops_no_run() {
    let rig = Rig::memory().await;
    let model = HeldModel::new(Script::new("m").text("ok"), 1);
    let agent = model.agent(|builder| builder);
    agent.run_once("hello", &rig.session).await.unwrap();
    // As much as two batches hold.
    for _ in 0..2 {
        rig.send(&many(&rig, 6_000)).await;
    }
    let steps = async {
        one_step(&rig, &agent, &model).await;
        let first = rig.state().await.inbox_taken().0;
        assert!(first > 0 && first < 12_000, "{first} taken over at once");
        one_step(&rig, &agent, &model).await;
        let second = rig.state().await.inbox_taken().0;
        assert!(second > first, "still {second}");
    };
    tokio::time::timeout(Duration::from_secs(120), steps).await.expect("it takes too long");
}

/// Sends messages of that many bytes and runs twice. What people said then, in bytes. A record has
/// at most one MiB there and a batch four: as by default, only quicker.
async fn said_after_large_messages(mode: InboxMode, count: usize, bytes: usize) -> Vec<usize> {
    let rig = Rig::memory().await;
    let codec = Codec::new().with_limits(Limits::default().with_record_bytes(1 << 20).with_batch_bytes(4 << 20));
    let journal = Journal::new(rig.world.store(), codec, rig.world.clock.clone(), IdSource::seeded([9; 32]));
    let engine = Engine::with_journal(journal);
    let agent = Agent::builder("tester", Blind).build().unwrap();
    for _ in 0..count {
        let message = Message::user("x".repeat(bytes));
        operations::send(&engine, rig.key(), message, mode, "maria", None).await.unwrap();
    }
    for text in ["hello", "still there?"] {
        let session = engine.open_session("s").await.unwrap();
        let report = ended(agent.run(text, &session).await).await.unwrap();
        assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "ok"), "{}", report.reason);
    }
    let messages = rig.messages().await;
    let mut said: Vec<_> =
        messages.iter().filter(|said| said.role == Role::User).map(|said| said.text().len()).collect();
    said.sort_unstable();
    said
}

#[tokio::test]
async fn a_message_too_large_to_be_taken_over_is_replaced_by_word_of_it() {
    let said = said_after_large_messages(InboxMode::Queue, 1, (1 << 20) - (8 << 10)).await;
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[2] < 200, "{said:?}");
}

#[tokio::test]
async fn steering_messages_that_are_too_large_together_are_taken_one_by_one() {
    let said = said_after_large_messages(InboxMode::Steer, 2, 9 << 16).await;
    assert_eq!(said, [5, 12, 9 << 16, 9 << 16]);
}

#[tokio::test]
async fn queued_messages_that_are_too_large_together_are_taken_one_by_one() {
    let said = said_after_large_messages(InboxMode::Queue, 5, 14 << 16).await;
    assert_eq!(said, [5, 12, 14 << 16, 14 << 16, 14 << 16, 14 << 16, 14 << 16]);
}
