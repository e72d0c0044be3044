//! Summaries: of what the history is, not of what it was.

use std::sync::Arc;

use rekindle::Message;
use rekindle::model::ModelError;
use rekindle::operations::{self, At, Change};
use rekindle::reduction::{Reduction, Summarise};
use rekindle_models::{By, Script, Turn};

use crate::kit::{Rig, agent, resumed};
use crate::rig::Spy;

#[tokio::test]
async fn a_summary_made_before_an_edit_is_not_used_after_it() {
    let rig = Rig::memory().await;
    let writer = Spy::new(Script::new("writer").text("as it was").text("as it is").by(By::Calls));
    let reduction = Summarise::new(2).with_when_longer_than(5).with_model(Arc::new(writer.clone()));
    let script = Script::new("m").text("one").text("two").text("three");
    let script = script.turn(Turn::error(ModelError::fatal("away"))).text("four").by(By::Calls);
    let (agent, spy) = agent(script, |builder| builder.reduction(Reduction::Summarise(reduction)));
    for question in ["1", "2", "3"] {
        agent.run_once(question, &rig.again().await).await.unwrap();
    }
    agent.run_once("4", &rig.again().await).await.unwrap_err();
    assert!(spy.last_view()[0].text().ends_with("as it was"), "{:?}", spy.last_view());
    let change = Change::ReplaceMessage { index: 0, message: Message::user("edited") };
    operations::edit(&rig.engine, rig.key(), &At::Latest, &[change], "maria", "a typo").await.unwrap();
    assert_eq!(resumed(&agent, &rig).await.text(), "four");
    assert_eq!(writer.last_view()[0].text(), "edited");
    assert!(spy.last_view()[0].text().ends_with("as it is"), "{:?}", spy.last_view());
    assert_eq!((writer.count(), spy.last_view().last().unwrap().text().as_str()), (2, "4"));
}
