//! Forks and edits, and what they refuse.

use std::sync::Arc;

use rekindle::core::Seq;
use rekindle::core::record::CheckpointSource;
use rekindle::core::retention::Policy;
use rekindle::message::Message;
use rekindle::operations::{self, At, Change, ForkOptions};
use rekindle::{Agent, BranchId, CheckpointId, ErrorKind, Json, Position, ResumeOptions};
use tokio::sync::Notify;

use crate::world::{World, adder, busy, code};

fn memory(key: &str, value: &str) -> Change {
    Change::SetMemory { key: key.into(), value: Json::parse(value).unwrap() }
}

fn change(text: &str) -> Change {
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
async fn an_edit_at_the_end_goes_on_there_and_elsewhere_forks() {
    for world in [World::memory(), World::sqlite()] {
        let (engine, session) = (&world.engine, world.session("s").await);
        adder().run_once("19 + 23?", &session).await.unwrap();
        let here = operations::edit(engine, session.key(), &At::Latest, &[memory("x", "1")], "maria", "why not").await;
        let here = here.unwrap();
        assert_eq!((here.branch.as_str(), here.forked), ("main", false));
        let made = engine.journal().checkpoint(session.key(), &here.checkpoint).await.unwrap();
        assert_eq!(made.checkpoint.source, CheckpointSource::Update);
        assert_eq!(made.position, here.position);
        assert!(made.checkpoint.description.contains("maria") && made.checkpoint.description.contains("why not"));
        assert!(made.checkpoint.parent.is_some());

        let step = At::Position(Position::new(BranchId::main(), Seq(3)));
        let there = operations::edit(engine, session.key(), &step, &[memory("x", "2")], "maria", "").await.unwrap();
        assert!(there.forked && there.branch.as_str() != "main");
        let memory_at = async |at: &At| {
            let seen = operations::inspect(engine, session.key(), at).await.unwrap();
            seen.state.register("memory/x").map(|value| value.as_str().to_owned())
        };
        assert_eq!(memory_at(&At::Latest).await.as_deref(), Some("1"));
        assert_eq!(memory_at(&At::Head(there.branch)).await.as_deref(), Some("2"));
        assert_eq!(memory_at(&step).await, None);
        assert_eq!(session.info().await.unwrap().current, BranchId::main());
        assert!(operations::verify(engine, session.key(), &Default::default()).await.unwrap().sound);
    }
}

#[tokio::test]
async fn messages_are_replaced_inserted_removed_and_appended() {
    let world = World::memory();
    let (engine, session) = (&world.engine, world.session("s").await);
    let append = Change::AppendMessages { messages: ["a", "b", "c"].map(Message::user).to_vec() };
    let changes = [
        append,
        Change::ReplaceMessage { index: 1, message: Message::user("B") },
        Change::InsertMessages { index: 3, messages: vec![Message::user("d")] },
        Change::RemoveMessages { index: 0, count: 1 },
    ];
    operations::edit(engine, session.key(), &At::Latest, &changes, "maria", "").await.unwrap();
    assert_eq!(world.texts(&session, &At::Latest).await, ["B", "c", "d"]);
    let raw = [
        change(r#"{"set_log_item":{"log":"messages","index":0,"item":{"role":"user","parts":[{"text":"z"}]}}}"#),
        change(r#"{"splice_log":{"log":"notes","index":0,"remove":0,"items":[1,{"x": 1.50}]}}"#),
        change(r#"{"set_register":{"key":"mine","value":[1, 2]}}"#),
    ];
    operations::edit(engine, session.key(), &At::Latest, &raw, "maria", "").await.unwrap();
    assert_eq!(world.texts(&session, &At::Latest).await, ["z", "c", "d"]);
    let unset = [change(r#"{"unset_register":{"key":"mine"}}"#)];
    operations::edit(engine, session.key(), &At::Latest, &unset, "maria", "").await.unwrap();
    let seen = operations::inspect(engine, session.key(), &At::Latest).await.unwrap();
    assert_eq!(seen.state.register("mine"), None);
    assert_eq!(seen.state.log(&rekindle::core::LogName::new("notes").unwrap())[1].as_str(), r#"{"x": 1.50}"#);
    let messages = Agent::messages(&seen.state).unwrap();
    assert_eq!(messages.iter().filter(|message| message.id.is_some()).count(), 2, "what is stored has an id");
}

#[tokio::test]
async fn nothing_is_written_if_any_change_is_wrong() {
    let world = World::memory();
    let (engine, session) = (&world.engine, world.session("s").await);
    adder().run_once("19 + 23?", &session).await.unwrap();
    let before = session.info().await.unwrap();
    let wrong = [
        (r#"{"replace_message":{"index":9,"message":{"role":"user","parts":[]}}}"#, "RK0001"),
        (r#"{"insert_messages":{"index":5,"messages":[]}}"#, "RK0001"),
        (r#"{"remove_messages":{"index":3,"count":2}}"#, "RK0001"),
        (r#"{"remove_messages":{"index":3,"count":18446744073709551615}}"#, "RK0001"),
        (r#"{"set_log_item":{"log":"messages","index":0,"item":{"nonsense":1}}}"#, "RK0001"),
        (r#"{"set_log_item":{"log":"nothing","index":0,"item":1}}"#, "RK0001"),
        (r#"{"set_register":{"key":"loop","value":{"turn":"x"}}}"#, "RK0001"),
        (r#"{"set_register":{"key":"budget","value":7}}"#, "RK0001"),
        (r#"{"set_register":{"key":"definition","value":[1]}}"#, "RK0001"),
        (r#"{"set_register":{"key":"breaker","value":7}}"#, "RK0001"),
        (r#"{"set_register":{"key":"flow","value":7}}"#, "RK0001"),
        (r#"{"set_register":{"key":"secret/token","value":"hunter2"}}"#, "RK0001"),
        (r#"{"set_register":{"key":"","value":7}}"#, "RK0001"),
        (r#"{"unset_register":{"key":"nothing"}}"#, "RK0003"),
        (r#"{"unset_memory":{"key":"nothing"}}"#, "RK0003"),
    ];
    for (text, expected) in wrong {
        for changes in [vec![change(text)], vec![memory("x", "1"), change(text)]] {
            let edit = operations::edit(engine, session.key(), &At::Latest, &changes, "maria", "").await;
            assert_eq!(code(edit), expected, "{text}");
            let options = ForkOptions { edits: changes, ..ForkOptions::default() };
            assert_eq!(code(operations::fork(engine, session.key(), &At::Latest, options).await), expected, "{text}");
        }
    }
    assert_eq!(code(operations::edit(engine, session.key(), &At::Latest, &[], "maria", "").await), "RK0001");
    assert!(serde_json::from_str::<Change>(r#"{"replace_message":{"index":0,"message":{"parts":1}}}"#).is_err());
    let after = session.info().await.unwrap();
    assert_eq!(
        (after.branches.len(), after.current_branch().unwrap().head),
        (2, before.current_branch().unwrap().head)
    );
    let legal = change(r#"{"set_register":{"key":"loop","value":{"turn":1,"iteration":2,"step":3,"phase":"idle"}}}"#);
    operations::edit(engine, session.key(), &At::Latest, &[legal], "maria", "").await.unwrap();
}

#[tokio::test]
async fn unknown_moments_are_not_found() {
    let world = World::memory();
    let (engine, session) = (&world.engine, world.session("s").await);
    adder().run_once("19 + 23?", &session).await.unwrap();
    let position = |branch: &str, seq| At::Position(Position::new(BranchId::new(branch).unwrap(), Seq(seq)));
    let moments = [
        (At::Checkpoint(CheckpointId::new("ckpt_none").unwrap()), "RK0003"),
        (At::Step(99), "RK0003"),
        (At::Head(BranchId::new("none").unwrap()), "RK0003"),
        (position("main", 999), "RK0003"),
        (position("none", 1), "RK0003"),
        (position("inbox", 0), "RK0001"),
    ];
    for (at, expected) in moments {
        let key = session.key();
        assert_eq!(code(operations::inspect(engine, key, &at).await), expected, "{at:?}");
        assert_eq!(code(operations::fork(engine, key, &at, ForkOptions::default()).await), expected, "{at:?}");
        assert_eq!(code(operations::edit(engine, key, &at, &[memory("x", "1")], "m", "").await), expected, "{at:?}");
        assert_eq!(code(operations::diff(engine, (key, &At::Latest), (key, &at)).await), expected, "{at:?}");
        assert_eq!(code(operations::compare(engine, (key, &At::Latest), (key, &at)).await), expected, "{at:?}");
    }
    assert_eq!(session.info().await.unwrap().branches.len(), 2);
    let missing = engine.key("missing").unwrap();
    assert_eq!(code(operations::inspect(engine, &missing, &At::Latest).await), "RK0003");
    assert_eq!(code(operations::show(engine, &missing).await), "RK0003");
}

#[tokio::test]
async fn a_fork_is_named_repeatable_and_can_be_run() {
    let world = World::memory();
    let (engine, session, agent) = (&world.engine, world.session("s").await, adder());
    agent.run_once("19 + 23?", &session).await.unwrap();
    let name = BranchId::new("what-if").unwrap();
    let options = ForkOptions {
        branch: Some(name.clone()),
        edits: vec![memory("x", "1")],
        author: "maria".into(),
        reason: "to see".into(),
    };
    let fork = operations::fork(engine, session.key(), &At::Latest, options.clone()).await.unwrap();
    let made = engine.journal().checkpoint(session.key(), fork.checkpoint.as_ref().unwrap()).await.unwrap();
    assert_eq!((made.checkpoint.source, &made.position), (CheckpointSource::Fork, &fork.position));
    // The edits are not made a second time.
    assert_eq!(code(operations::fork(engine, session.key(), &At::Latest, options).await), "RK0004");
    let plain = |branch: &str| ForkOptions { branch: Some(BranchId::new(branch).unwrap()), ..ForkOptions::default() };
    let once = operations::fork(engine, session.key(), &At::Latest, plain("b")).await.unwrap();
    assert_eq!(operations::fork(engine, session.key(), &At::Latest, plain("b")).await.unwrap(), once);
    // A process that died between the fork and its edits repeats both.
    let edits = vec![memory("x", "2")];
    let again = operations::fork(engine, session.key(), &At::Latest, ForkOptions { edits, ..plain("b") }).await;
    assert!(again.unwrap().checkpoint.is_some());
    let first = At::Position(Position::new(BranchId::main(), Seq(1)));
    assert_eq!(code(operations::fork(engine, session.key(), &first, plain("b")).await), "RK0004");
    assert_eq!(code(operations::fork(engine, session.key(), &first, plain("inbox")).await), "RK0001");

    let on = ResumeOptions::new("maria").on_branch(name.clone());
    let run = agent.run_with(vec!["thanks".into()], &session, on).await.unwrap();
    assert_eq!(run.report().await.unwrap().text(), "You are welcome.");
    assert_eq!(world.texts(&session, &At::Head(BranchId::main())).await.len(), 4);
    assert_eq!(world.texts(&session, &At::Head(name)).await.len(), 6);
}

#[tokio::test]
async fn a_running_session_is_not_edited_but_can_be_forked() {
    let world = World::memory();
    let (engine, session) = (&world.engine, world.session("s").await);
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let run = busy(begun.clone(), go.clone()).run("work", &session).await.unwrap();
    begun.notified().await;
    let key = session.key();
    let refused = operations::edit(engine, key, &At::Latest, &[memory("x", "1")], "m", "").await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::AlreadyRunning { .. }), "{refused:?}");
    assert!(refused.next_step().contains("fork") && refused.next_step().contains("pause"));
    let options = ForkOptions { edits: vec![memory("x", "1")], ..ForkOptions::default() };
    let fork = operations::fork(engine, key, &At::Latest, options).await.unwrap();
    let refused = rekindle::operations::pending::save(engine, key, "k", &[]).await;
    refused.unwrap(); // nothing to save disturbs nobody
    go.notify_one();
    assert_eq!(run.report().await.unwrap().text(), "Ready.");
    let forked = operations::inspect(engine, key, &At::Head(fork.branch)).await.unwrap();
    assert!(forked.state.register("memory/x").is_some());
    operations::edit(engine, key, &At::Latest, &[memory("x", "1")], "m", "").await.unwrap();
}

#[tokio::test]
async fn what_was_pruned_cannot_be_forked_and_nothing_is_lost() {
    for world in [World::memory(), World::sqlite()] {
        let (engine, session, agent) = (&world.engine, world.session("s").await, adder());
        agent.run_once("19 + 23?", &session).await.unwrap();
        let key = session.key();
        let fork = operations::fork(engine, key, &At::Latest, ForkOptions::default()).await.unwrap();
        let second = operations::fork(engine, key, &At::Head(fork.branch), ForkOptions::default()).await.unwrap();
        agent.run_once("thanks", &session).await.unwrap();
        agent.run_once("bye", &session).await.unwrap();
        let before = world.texts(&session, &At::Latest).await;
        operations::prune(engine, key, &Policy::default(), false).await.unwrap();
        let early = At::Position(Position::new(second.branch.clone(), Seq(2)));
        let forked = operations::fork(engine, key, &early, ForkOptions::default()).await;
        assert_eq!(code(forked), "RK0003");
        assert_eq!(code(operations::edit(engine, key, &early, &[memory("x", "1")], "m", "").await), "RK0003");
        assert_eq!(world.texts(&session, &At::Latest).await, before);
        assert_eq!(world.texts(&session, &At::Head(second.branch)).await.len(), 4);
        assert!(operations::verify(engine, key, &Default::default()).await.unwrap().sound);
    }
}
