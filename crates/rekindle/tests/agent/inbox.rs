//! Messages for a run that is under way, and for a session that is idle.

use rekindle::core::Record;
use rekindle::core::record::{InboxMessage, InboxMode, RunOutcome};
use rekindle::message::Role;
use rekindle::tool::{ToolError, tool};
use rekindle::{Budget, Budgets, Json};
use rekindle_models::{Script, Turn};

use crate::kit::{Held, Rig, agent, echo, is_closed, of};
use crate::support::{Kind, Of};

fn texts(messages: &[rekindle::Message], role: Role) -> Vec<String> {
    messages.iter().filter(|message| message.role == role).map(rekindle::Message::text).collect()
}

fn runs(records: &[Record]) -> usize {
    records.iter().filter(|record| matches!(record, Record::RunStarted(_))).count()
}

#[tokio::test]
async fn a_queued_message_is_the_next_turn_of_the_same_run() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let script = Script::new("m").call("slow", of("a")).text("one").text("two").text("three");
    let (agent, spy) = agent(script, |builder| builder.tool(held.tool("slow")));
    let run = agent.run("first", &rig.session).await.unwrap();
    held.began().await;
    // The interruption shows that all of them were seen.
    rig.send(&[
        rig.message(InboxMode::Queue, "second"),
        rig.message(InboxMode::Queue, "third"),
        rig.message(InboxMode::Interrupt, "stop that"),
    ])
    .await;
    let report = run.report().await.unwrap();
    assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "three"));
    let messages = rig.messages().await;
    assert_eq!(texts(&messages, Role::User), ["first", "stop that", "second", "third"]);
    assert_eq!(texts(&messages, Role::Assistant), ["", "one", "two", "three"]);
    assert_eq!((runs(&rig.records().await), spy.count()), (1, 4));
}

#[tokio::test]
async fn a_steering_message_is_in_the_next_model_call() {
    let rig = Rig::memory().await;
    let script = Script::new("m")
        .turn(Turn::text("turning left").when_last_contains("go left"))
        .call("echo", of("straight on"))
        .repeating_last();
    let (agent, spy) = agent(script, |builder| {
        let budgets = Budgets::new().with(Budget::Iterations, 1_000_000);
        builder.tool(echo()).same_call_limit(0).budgets(budgets)
    });
    let run = agent.run("drive", &rig.session).await.unwrap();
    rig.send(&[rig.message(InboxMode::Steer, "go left")]).await;
    // It would go straight on for ever.
    assert_eq!(run.report().await.unwrap().text(), "turning left");
    assert_eq!(spy.last_view().last().unwrap().text(), "go left");
    assert_eq!(texts(&rig.messages().await, Role::User), ["drive", "go left"]);
}

#[tokio::test]
async fn an_interrupting_message_stops_the_tool_and_the_model_hears_of_both() {
    for writes in [false, true] {
        let rig = Rig::memory().await;
        let held = Held::default();
        let script = Script::new("m").call("slow", of("a")).text("sorry");
        let (agent, spy) =
            agent(script, |builder| builder.tool(if writes { held.tool("slow").writes() } else { held.tool("slow") }));
        let run = agent.run("go", &rig.session).await.unwrap();
        held.began().await;
        rig.send(&[rig.message(InboxMode::Interrupt, "never mind")]).await;
        let report = run.report().await.unwrap();
        assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "sorry"));
        let seen = spy.last_view();
        assert!(is_closed(&seen));
        let result = seen[2].results().next().unwrap();
        assert!(result.error, "{result:?}");
        assert_eq!(seen[3].text(), "never mind");
        assert_eq!(held.calls(), 1);
    }
}

#[tokio::test]
async fn an_interrupting_message_stops_a_model_that_thinks_and_is_seen_by_the_next_call() {
    let rig = Rig::memory().await;
    let script = Script::new("m")
        .turn(Turn::text("quick").when_last_contains("hurry"))
        .turn(Turn::text("slow").delayed(std::time::Duration::from_secs(600)));
    let (agent, spy) = agent(script, |builder| builder);
    let run = agent.run("go", &rig.session).await.unwrap();
    rig.send(&[rig.message(InboxMode::Interrupt, "hurry")]).await;
    assert_eq!(run.report().await.unwrap().text(), "quick");
    assert_eq!(texts(&spy.last_view(), Role::User), ["go", "hurry"]);
}

#[tokio::test]
async fn the_same_message_sent_twice_at_once_counts_once() {
    let rig = Rig::memory().await;
    let (agent, _) = agent(Script::new("m").text("one").text("two").text("three"), |builder| builder);
    let twice = rig.message(InboxMode::Queue, "second");
    rig.send(&[twice.clone(), twice]).await;
    agent.run_once("first", &rig.session).await.unwrap();
    assert_eq!(texts(&rig.messages().await, Role::User), ["first", "second"]);
}

#[tokio::test]
async fn the_same_message_sent_again_after_it_was_taken_counts_once() {
    for mode in [InboxMode::Queue, InboxMode::Steer] {
        let rig = Rig::new(Kind::Sqlite).await;
        let (agent, _) = agent(Script::new("m").text("one").text("two").repeating_last(), |builder| builder);
        let again = rig.message(mode, "hello");
        rig.send(std::slice::from_ref(&again)).await;
        agent.resume(&rig.session).await.unwrap().report().await.unwrap();
        rig.send(&[again]).await;
        agent.run_once("bye", &rig.again().await).await.unwrap();
        assert_eq!(texts(&rig.messages().await, Role::User), ["hello", "bye"], "{mode:?}");
    }
}

#[tokio::test]
async fn a_resume_of_an_idle_session_takes_what_is_queued() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (agent, _) = agent(Script::new("m").text("one").text("two"), |builder| builder);
    assert_eq!(agent.resume(&rig.session).await.unwrap_err().code(), "RK0010");
    rig.send(&[rig.message(InboxMode::Queue, "hello")]).await;
    let report = agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "one");
    assert_eq!(texts(&rig.messages().await, Role::User), ["hello"]);
    assert_eq!(agent.resume(&rig.again().await).await.unwrap_err().code(), "RK0010", "it was taken");
}

#[tokio::test]
async fn a_queued_message_waits_until_a_paused_turn_has_ended() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let script = Script::new("m").call("slow", of("a")).text("one").text("two");
    let (agent, spy) = agent(script, |builder| builder.tool(held.tool("slow")));
    let run = agent.run("first", &rig.session).await.unwrap();
    held.began().await;
    run.stop("later");
    held.release();
    run.report().await.unwrap();
    rig.send(&[rig.message(InboxMode::Queue, "second")]).await;
    let report = agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "two");
    assert_eq!(texts(&spy.views()[1], Role::User), ["first"]);
    assert_eq!(texts(&spy.views()[2], Role::User), ["first", "second"]);
}

#[tokio::test]
async fn whole_messages_and_other_values_can_be_sent() {
    let rig = Rig::memory().await;
    let (agent, _) = agent(Script::new("m").text("one").text("two"), |builder| builder);
    let author = rekindle::Message { author: Some("maria".into()), ..rekindle::Message::user("by hand") };
    let whole = InboxMessage::new(rig.message_id(), author.to_json().unwrap());
    let odd = InboxMessage::new(rig.message_id(), Json::parse(r#"{"odd": [1]}"#).unwrap());
    rig.send(&[whole.into(), odd.into()]).await;
    agent.resume(&rig.session).await.unwrap().report().await.unwrap();
    let messages = rig.messages().await;
    assert_eq!(texts(&messages, Role::User), ["by hand", r#"{"odd": [1]}"#]);
    assert_eq!(messages[0].author.as_deref(), Some("maria"));
}

#[tokio::test]
async fn a_message_for_a_session_sent_by_a_tool_of_it_is_not_lost() {
    let rig = Rig::memory().await;
    let script = Script::new("m").call("note", of("remember me")).text("one").text("two");
    let note = tool("note", "Sends a note to its own session.", async |call: rekindle::tool::ToolContext, of: Of| {
        let journal = call.engine().journal();
        let id = rekindle::MessageId::generate(journal.ids(), journal.clock().now());
        let note = InboxMessage::new(id, Json::from(of.what.as_str()));
        journal.send(call.session(), &[note.into()]).await?;
        Ok::<_, ToolError>("sent")
    });
    let (agent, _) = agent(script, |builder| builder.tool(note));
    agent.run_once("go", &rig.session).await.unwrap();
    if rig.messages().await.len() == 4 {
        // The run was quicker than its inbox: the message waits for whoever goes on.
        agent.resume(&rig.session).await.unwrap().report().await.unwrap();
    }
    assert_eq!(texts(&rig.messages().await, Role::User), ["go", "remember me"]);
}

#[tokio::test]
async fn a_resume_of_a_failed_turn_goes_on_with_it_although_a_message_is_queued() {
    let rig = Rig::memory().await;
    let failing = Turn::text("one").failing(rekindle::model::ModelError::fatal("no such key"));
    let (agent, spy) = agent(Script::new("m").turn(failing).text("two"), |builder| builder);
    agent.run_once("first", &rig.session).await.unwrap_err();
    rig.send(&[rig.message(InboxMode::Queue, "second")]).await;
    let report = agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "two");
    let messages = rig.messages().await;
    let said: Vec<_> = messages.iter().map(rekindle::Message::text).collect();
    assert_eq!(said, ["first", "one", "second", "two"]);
    assert_eq!(texts(&spy.views()[1], Role::User), ["first"]);
}
