//! State that programs keep here themselves, and histories in part.

use rekindle::Json;
use rekindle::core::record::CheckpointType;
use rekindle::operations::{self, At, Change, HistoryOptions};

use crate::world::{World, adder, code};

#[tokio::test]
async fn what_is_saved_is_given_back_unchanged_and_numbered() {
    for world in [World::memory(), World::sqlite()] {
        let engine = &world.engine;
        let session = engine.key("kept").unwrap();
        assert_eq!(code(operations::saved_state(engine, &session, None).await), "RK0003");
        let texts = [r#"{"n":1.50,"big":123456789012345678901234567890}"#, "{}", r#"{"b":1,"a":[null]}"#];
        let mut saved = Vec::new();
        for (text, step) in texts.into_iter().zip(1..) {
            let state = Json::parse(text).unwrap();
            let done = operations::save_state(engine, &session, &state, "by hand", "maria").await.unwrap();
            assert_eq!(done.step, step);
            saved.push(done);
        }
        let latest = operations::saved_state(engine, &session, None).await.unwrap();
        assert_eq!((latest.state.as_str(), latest.checkpoint.checkpoint.step), (texts[2], 3));
        for (text, done) in texts.into_iter().zip(&saved) {
            let then = operations::saved_state(engine, &session, Some(&done.checkpoint)).await.unwrap();
            assert_eq!((then.state.as_str(), &then.checkpoint.checkpoint.id), (text, &done.checkpoint));
            assert_eq!(then.checkpoint.checkpoint.description, "by hand");
        }
    }
}

#[tokio::test]
async fn saves_at_the_same_time_are_numbered_one_after_the_other() {
    let world = World::sqlite();
    let session = world.engine.key("busy").unwrap();
    let mut steps = tokio::task::JoinSet::new();
    for number in 0..8 {
        let (engine, session) = (world.engine.clone(), session.clone());
        steps.spawn(async move {
            let state = Json::parse(number.to_string()).unwrap();
            operations::save_state(&engine, &session, &state, "", "").await.unwrap().step
        });
    }
    let mut steps = steps.join_all().await;
    steps.sort_unstable();
    assert_eq!(steps, (1..=8).collect::<Vec<_>>());
}

#[tokio::test]
async fn nothing_is_saved_in_a_session_that_has_only_runs() {
    let world = World::memory();
    let session = world.session("s").await;
    adder().run_once("19 + 23?", &session).await.unwrap();
    assert_eq!(code(operations::saved_state(&world.engine, session.key(), None).await), "RK0003");
}

#[tokio::test]
async fn a_history_in_part_fills_its_pages() {
    let world = World::memory();
    let (engine, session) = (&world.engine, world.session("s").await);
    for number in 0..9 {
        if number % 3 == 0 {
            operations::checkpoint(engine, session.key(), "wanted", "").await.unwrap();
        }
        let set = Change::SetMemory { key: "n".into(), value: Json::from("x") };
        operations::edit(engine, session.key(), &At::Latest, &[set], "", "not wanted").await.unwrap();
    }
    let mut options = HistoryOptions { limit: 2, ..HistoryOptions::default() };
    let mut sizes = Vec::new();
    loop {
        let wanted = |found: &rekindle::core::CheckpointInfo| found.checkpoint.description == "wanted";
        let page = operations::history_where(engine, session.key(), &options, wanted).await.unwrap();
        assert!(page.checkpoints.iter().all(|found| found.checkpoint.kind == CheckpointType::UserCheckpoint));
        sizes.push(page.checkpoints.len());
        match page.next {
            Some(next) => options.before = Some(next),
            None => break,
        }
    }
    assert_eq!(sizes, [2, 1]);
}
