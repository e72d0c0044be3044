//! Replays and comparisons.

use std::ops::ControlFlow;

use rekindle::core::record::OutcomeStatus;
use rekindle::core::retention::Policy;
use rekindle::operations::{self, At, By, Change, Deed, ForkOptions, StepEnd};
use rekindle::{Json, Position, Session, State};

use crate::world::{World, adder, asker, code};

/// What a replay shows: why each step ends, how many records it has, and the last state.
async fn watch(world: &World, session: &Session, through: Option<&Position>, by: By) -> (Vec<(StepEnd, usize)>, State) {
    let mut steps = Vec::new();
    let mut last = State::default();
    let mut number = None;
    let replayed = operations::replay(&world.engine, session.key(), through, by, &mut |step| {
        let next = number.map_or(u64::from(step.end != StepEnd::Base), |number: u64| number + 1);
        assert_eq!(step.number, next);
        number = Some(step.number);
        steps.push((step.end, step.records.len()));
        last = step.state.clone();
        ControlFlow::Continue(())
    })
    .await
    .unwrap();
    assert!(!replayed.stopped);
    assert_eq!(replayed.records, steps.iter().map(|(_, records)| *records as u64).sum::<u64>());
    (steps, last)
}

#[tokio::test]
async fn a_replay_arrives_at_the_state_of_the_journal() {
    for world in [World::memory(), World::sqlite()] {
        let (engine, session, agent) = (&world.engine, world.session("s").await, adder());
        agent.run_once("19 + 23?", &session).await.unwrap();
        let options = ForkOptions {
            edits: vec![Change::SetMemory { key: "x".into(), value: Json::null() }],
            ..ForkOptions::default()
        };
        let fork = operations::fork(engine, session.key(), &At::Position("main:9".parse().unwrap()), options).await;
        let fork = fork.unwrap();
        agent.run_once("thanks", &session).await.unwrap();
        for through in [None, Some(&fork.position), Some(&fork.from)] {
            let expected = engine.journal().load(session.key(), through).await.unwrap();
            for by in [By::Records, By::Steps] {
                let (steps, state) = watch(&world, &session, through, by).await;
                assert_eq!(state, expected.state, "{through:?}");
                let records: usize = steps.iter().map(|(_, records)| *records).sum();
                assert_eq!(records as u64, expected.position.seq.0);
            }
        }
        let (steps, _) = watch(&world, &session, None, By::Steps).await;
        let count = |end| steps.iter().filter(|(found, _)| *found == end).count();
        assert_eq!((count(StepEnd::Answer), count(StepEnd::Results), count(StepEnd::RunEnd)), (3, 1, 2), "{steps:?}");
    }
}

#[tokio::test]
async fn a_replay_begins_with_what_was_compacted() {
    let world = World::memory();
    let (engine, session, agent) = (&world.engine, world.session("s").await, adder());
    agent.run_once("19 + 23?", &session).await.unwrap();
    agent.run_once("thanks", &session).await.unwrap();
    operations::prune(engine, session.key(), &Policy::default(), false).await.unwrap();
    agent.run_once("bye", &session).await.unwrap();
    let (steps, state) = watch(&world, &session, None, By::Steps).await;
    assert_eq!(steps[0], (StepEnd::Base, 0));
    assert_eq!(state, engine.journal().load(session.key(), None).await.unwrap().state);
    let early: Position = "main:1".parse().unwrap();
    let gone =
        operations::replay(engine, session.key(), Some(&early), By::Steps, &mut |_| ControlFlow::Continue(())).await;
    assert_eq!(code(gone), "RK0003");
}

#[tokio::test]
async fn the_observer_can_stop_a_replay() {
    let world = World::memory();
    let session = world.session("s").await;
    adder().run_once("19 + 23?", &session).await.unwrap();
    let mut seen = 0;
    let replayed = operations::replay(&world.engine, session.key(), None, By::Records, &mut |_| {
        seen += 1;
        if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .await
    .unwrap();
    assert_eq!((replayed.stopped, replayed.steps, replayed.position.seq.0, seen), (true, 3, 3, 3));
}

#[tokio::test]
async fn two_runs_that_did_the_same_are_the_same() {
    let world = World::memory();
    let engine = &world.engine;
    let (a, b) = (world.session("a").await, world.session("b").await);
    for session in [&a, &b] {
        adder().run_once("19 + 23?", session).await.unwrap();
    }
    let latest = &At::Latest;
    let same = operations::compare(engine, (a.key(), latest), (b.key(), latest)).await.unwrap();
    assert!(same.same && !same.messages_only, "{:?}", same.difference);
    assert!(same.deeds.0 >= 7, "{:?}", same.deeds);

    adder().run_once("thanks", &b).await.unwrap();
    let longer = operations::compare(engine, (a.key(), latest), (b.key(), latest)).await.unwrap();
    let difference = longer.difference.unwrap();
    assert_eq!((difference.index, &difference.a), (same.deeds.0, &None));
    assert!(matches!(difference.b, Some(Deed::Said { .. })), "{difference:?}");

    operations::prune(engine, b.key(), &Policy::default(), false).await.unwrap();
    let pruned = operations::compare(engine, (a.key(), latest), (b.key(), latest)).await.unwrap();
    assert!(pruned.messages_only && !pruned.same);
    assert_eq!(pruned.difference.unwrap().index, 4);
}

#[tokio::test]
async fn the_first_difference_is_named() {
    let world = World::memory();
    let engine = &world.engine;
    let (a, b) = (world.session("a").await, world.session("b").await);
    let agent = asker(rekindle::wait::WaitSpec::question("what colour?"));
    for (session, colour) in [(&a, "blue"), (&b, "red")] {
        agent.run_once("ask", session).await.unwrap();
        let wait = operations::show(engine, session.key()).await.unwrap().waits[0].opened.wait.clone();
        let answer = operations::Answer::value(wait, Json::from(colour), "maria");
        operations::answer(engine, session.key(), &answer).await.unwrap();
        agent.resume(session).await.unwrap().report().await.unwrap();
    }
    let latest = &At::Latest;
    let comparison = operations::compare(engine, (a.key(), latest), (b.key(), latest)).await.unwrap();
    let difference = comparison.difference.unwrap();
    let Some(Deed::Called { name, status, value, .. }) = &difference.a else { panic!("{difference:?}") };
    assert_eq!((name.as_str(), *status), ("ask", Some(OutcomeStatus::Ok)));
    assert!(value.to_string().contains("blue"));
    assert!(serde_json::to_string(&difference.b).unwrap().contains("red"));
}
