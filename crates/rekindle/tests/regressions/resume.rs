//! Resuming what failed: with the same agent or another, and before anything that came later.

use rekindle::ResumeOptions;
use rekindle::core::record::InboxMode;
use rekindle::model::ModelError;
use rekindle_models::{Script, Turn};

use crate::kit::{Counter, Rig, agent, of, resumed, run_with};

fn gone() -> Turn {
    Turn::error(ModelError::fatal("that model is gone"))
}

#[tokio::test]
async fn a_turn_whose_model_is_gone_goes_on_with_another_once_the_change_is_accepted() {
    let rig = Rig::memory().await;
    let (old, _) = agent(Script::new("old").turn(gone()), |builder| builder);
    old.run_once("go", &rig.session).await.unwrap_err();
    let (new, _) = agent(Script::new("new").text("hello"), |builder| builder);
    let options = ResumeOptions::new("maria").accept_drift("the old one is gone");
    assert_eq!(run_with(&new, &rig, None, options).await.unwrap().text(), "hello");
}

#[tokio::test]
async fn a_failed_turn_is_finished_before_a_message_that_came_later() {
    let rig = Rig::memory().await;
    let counter = Counter::default();
    let (old, _) =
        agent(Script::new("m").call("pay", of("x")).turn(gone()), |builder| builder.tool(counter.tool("pay")));
    old.run_once("first", &rig.session).await.unwrap_err();
    rig.send(&[rig.message(InboxMode::Queue, "second")]).await;
    let script = Script::new("m").call("pay", of("x")).text("answer one").text("answer two");
    let (new, _) = agent(script, |builder| builder.tool(counter.tool("pay")));
    resumed(&new, &rig).await;
    let messages = rig.messages().await;
    let said: Vec<_> = messages.iter().map(rekindle::Message::text).filter(|text| !text.is_empty()).collect();
    assert_eq!(said, ["first", "answer one", "second", "answer two"]);
    assert_eq!(counter.count(), 1);
}
