//! Answers that are cut off: what was streamed is kept, shown, and gone on from where the provider
//! can; it is never taken for an answer.

use std::time::Duration;

use rekindle::core::Record;
use rekindle::core::record::RunOutcome;
use rekindle::model::ModelCapabilities;
use rekindle::{Agent, Event, LiveKind};
use rekindle_models::{Script, ScriptedModel, Turn};

use crate::kit::Rig;
use crate::support::Kind;

const WHOLE: &str = "Once upon a time";

fn model(continues_partial: bool) -> ScriptedModel {
    let turn = Turn::chunks(["Once ", "upon ", "a time"]).with_chunk_delay(Duration::from_millis(30));
    let capabilities = ModelCapabilities { continues_partial, ..ModelCapabilities::default() };
    ScriptedModel::new(Script::new("m").turn(turn)).with_capabilities(capabilities)
}

fn agent(model: &ScriptedModel) -> Agent {
    Agent::builder("teller", model.clone()).partials(1, Duration::from_secs(60)).build().unwrap()
}

/// Stops a run at once, as soon as a part of its answer is kept.
async fn cut_off(rig: &Rig, model: &ScriptedModel) {
    let mut run = agent(model).run("tell me a story", &rig.session).await.unwrap();
    loop {
        let event = run.next_event().await.unwrap().unwrap();
        if matches!(event, Event::Recorded { record: Record::EffectPartial(_), .. }) {
            break;
        }
    }
    run.stop("now");
    run.stop("at once");
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Paused);
    assert_eq!(rig.messages().await.len(), 1, "a part of an answer is no answer");
}

#[tokio::test]
async fn an_answer_is_gone_on_from_where_the_provider_can() {
    let rig = Rig::new(Kind::Sqlite).await;
    cut_off(&rig, &model(true)).await;
    let model = model(true);
    let report = agent(&model).resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), WHOLE);
    let asked = model.requests();
    let partial = asked[0].partial.clone().unwrap();
    assert!(!partial.is_empty() && WHOLE.starts_with(&partial), "{partial}");
}

#[tokio::test]
async fn elsewhere_it_is_asked_for_again_and_what_was_there_is_shown() {
    let rig = Rig::new(Kind::Sqlite).await;
    cut_off(&rig, &model(false)).await;
    let model = model(false);
    let mut run = agent(&model).resume(&rig.again().await).await.unwrap();
    let mut found = None;
    while let Some(event) = run.next_event().await.unwrap() {
        if let Event::Live(live) = event
            && let LiveKind::PartialFound(text) = live.kind
        {
            found = Some(text);
        }
    }
    assert_eq!(run.report().await.unwrap().text(), WHOLE);
    assert!(WHOLE.starts_with(&found.unwrap()));
    assert_eq!(model.requests()[0].partial, None);
}
