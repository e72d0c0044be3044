//! Looking at sessions: list, show, history, log, records, inspect, diff.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rekindle::core::codec::{Codec, KeyRing};
use rekindle::core::record::CheckpointSource;
use rekindle::core::{IdSource, Record, RegisterChange, Seq};
use rekindle::operations::{self, At, Change, HistoryOptions, RecordsOptions};
use rekindle::{BranchId, CheckpointId, Engine, Journal, Json, Position, SessionHeader, SessionQuery, Status};
use rekindle_store::{MemoryStore, MeteredStore, Observation, StoreObserver, StoreOptions};
use serde_json::Value;

use crate::world::{World, adder, code};

#[tokio::test]
async fn sessions_are_listed_and_shown_with_their_relatives() {
    for world in [World::memory(), World::sqlite()] {
        let engine = &world.engine;
        let parent = world.session("parent").await;
        let header = SessionHeader {
            parent: Some(parent.key().clone()),
            title: Some("a child".into()),
            ..SessionHeader::new(engine.key("child").unwrap())
        };
        let child = engine.create_with(header).await.unwrap();
        adder().run_once("19 + 23?", &parent).await.unwrap();
        let query = SessionQuery::new(engine.namespace().clone()).with_status(Status::Succeeded);
        assert_eq!(operations::list(engine, &query).await.unwrap().sessions.len(), 1);
        assert_eq!(code(operations::list(engine, &query.with_limit(100_000)).await), "RK0002");

        let shown = operations::show(engine, parent.key()).await.unwrap();
        assert_eq!(shown.status, Status::Succeeded);
        assert_eq!(shown.children.len(), 1);
        assert_eq!(shown.children[0].session, *child.key());
        assert_eq!(shown.logs["messages"], 4);
        assert_eq!((shown.spent.session.iterations, shown.spent.session.tool_calls), (2, 1));
        assert!(shown.checkpoint.is_some() && shown.owner.is_none() && shown.effects.is_empty());
        assert!(!shown.resumable.resumable && shown.resumable.why.contains("succeeded"));
        assert_eq!(shown.run.as_ref().unwrap().executor, "agent");
        let json: Value = serde_json::to_value(&shown).unwrap();
        assert_eq!(json["status"], "succeeded");
        let shown = operations::show(engine, child.key()).await.unwrap();
        assert_eq!((shown.parent.as_ref(), shown.status), (Some(parent.key()), Status::Idle));
    }
}

#[tokio::test]
async fn history_comes_in_pages_newest_first() {
    let world = World::memory();
    let (engine, session, agent) = (&world.engine, world.session("s").await, adder());
    for message in ["19 + 23?", "thanks", "bye"] {
        agent.run_once(message, &session).await.unwrap();
    }
    let all = operations::history(engine, session.key(), &HistoryOptions::default()).await.unwrap();
    assert!(all.checkpoints.len() >= 3 && all.next.is_none());
    let mut options = HistoryOptions { limit: 2, ..HistoryOptions::default() };
    let mut paged = Vec::new();
    loop {
        let page = operations::history(engine, session.key(), &options).await.unwrap();
        paged.extend(page.checkpoints);
        match page.next {
            Some(next) => options.before = Some(next),
            None => break,
        }
    }
    assert_eq!(paged, all.checkpoints);
    let middle = &all.checkpoints[1];
    let at = At::Checkpoint(middle.checkpoint.id.clone());
    let older = operations::history(engine, session.key(), &HistoryOptions { at, ..Default::default() }).await.unwrap();
    assert_eq!(older.checkpoints, all.checkpoints[1..]);
    options.before = Some(CheckpointId::new("ckpt_none").unwrap());
    assert_eq!(code(operations::history(engine, session.key(), &options).await), "RK0003");
    let step = operations::inspect(engine, session.key(), &At::Step(middle.checkpoint.step)).await.unwrap();
    assert_eq!(step.checkpoint.unwrap().checkpoint.step, middle.checkpoint.step);
}

#[tokio::test]
async fn the_log_shows_each_branch_with_its_own_checkpoints() {
    let world = World::memory();
    let (engine, session, agent) = (&world.engine, world.session("s").await, adder());
    agent.run_once("19 + 23?", &session).await.unwrap();
    let edits = vec![Change::SetMemory { key: "x".into(), value: Json::null() }];
    let options = operations::ForkOptions { edits, ..Default::default() };
    let fork = operations::fork(engine, session.key(), &At::Latest, options).await.unwrap();
    let log = operations::log(engine, session.key(), 10).await.unwrap();
    assert_eq!(
        log.branches.iter().map(|branch| branch.branch.as_str()).collect::<Vec<_>>(),
        ["main", fork.branch.as_str()]
    );
    assert!(log.branches[0].current && !log.branches[1].current);
    assert_eq!(log.branches[1].parent.as_ref(), Some(&fork.from));
    assert_eq!(log.branches[1].checkpoints.len(), 1);
    assert_eq!(log.branches[1].checkpoints[0].checkpoint.source, CheckpointSource::Fork);
    let own = |found: &rekindle::core::CheckpointInfo| found.position.branch == BranchId::main();
    assert!(!log.branches[0].checkpoints.is_empty() && log.branches[0].checkpoints.iter().all(own));
}

#[tokio::test]
async fn milestones_are_what_happened_on_a_branch_newest_first() {
    for world in [World::memory(), World::sqlite()] {
        let (engine, session, agent) = (&world.engine, world.session("s").await, adder());
        agent.run_once("19 + 23?", &session).await.unwrap();
        let edits = vec![Change::SetMemory { key: "x".into(), value: Json::null() }];
        let options = operations::ForkOptions { edits, ..Default::default() };
        let fork = operations::fork(engine, session.key(), &At::Latest, options).await.unwrap();
        let kinds = async |branch: &BranchId, limit| {
            let found = operations::milestones(engine, session.key(), branch, limit).await.unwrap();
            let kinds: Vec<_> = found.records.iter().map(|stored| stored.record.kind().to_owned()).collect();
            (kinds, found.more)
        };
        let main = BranchId::main();
        assert_eq!(kinds(&main, 9).await, (vec!["run_ended".into(), "run_started".into()], false));
        assert_eq!(kinds(&main, 1).await, (vec!["run_ended".into()], true));
        assert_eq!(kinds(&fork.branch, 9).await, (vec!["edit".into()], false));
        let unknown = BranchId::new("none").unwrap();
        assert_eq!(code(operations::milestones(engine, session.key(), &unknown, 1).await), "RK0003");
    }
}

#[tokio::test]
async fn records_come_in_pages_without_gaps() {
    for world in [World::memory(), World::sqlite()] {
        let (engine, session) = (&world.engine, world.session("s").await);
        adder().run_once("19 + 23?", &session).await.unwrap();
        let mut options = RecordsOptions { limit: 3, ..RecordsOptions::default() };
        let mut all = Vec::new();
        loop {
            let page = operations::records(engine, session.key(), &options).await.unwrap();
            assert!(page.records.len() <= 3 && page.damage.is_empty());
            all.extend(page.records);
            match page.next {
                Some(next) => options.from = next,
                None => break,
            }
        }
        let numbers: Vec<u64> = all.iter().map(|stored| stored.position.seq.0).collect();
        let head = session.info().await.unwrap().current_branch().unwrap().head.seq.0;
        assert_eq!(numbers, (1..=head).collect::<Vec<_>>());
        assert!(matches!(all[0].record, Record::RunStarted(_)));
        let far = RecordsOptions { from: Seq(head + 1), ..RecordsOptions::default() };
        let page = operations::records(engine, session.key(), &far).await.unwrap();
        assert!(page.records.is_empty() && page.next.is_none());
        let none = RecordsOptions { limit: 0, ..RecordsOptions::default() };
        assert_eq!(code(operations::records(engine, session.key(), &none).await), "RK0001");
    }
}

#[tokio::test]
async fn two_moments_and_two_sessions_are_compared() {
    let world = World::memory();
    let (engine, session) = (&world.engine, world.session("s").await);
    adder().run_once("19 + 23?", &session).await.unwrap();
    let key = session.key();
    let first = At::Position("main:1".parse().unwrap());
    let diff = operations::diff(engine, (key, &first), (key, &At::Latest)).await.unwrap();
    assert!(!diff.same && diff.text.contains("log messages: 0 kept, 0 removed, 4 added"), "{}", diff.text);
    assert!(diff.patch.as_array().unwrap().iter().any(|operation| operation["op"] == "add"));
    assert!(diff.diff.registers.iter().any(|changed| matches!(changed.change, RegisterChange::Added(_))));
    assert!(operations::diff(engine, (key, &At::Latest), (key, &At::Latest)).await.unwrap().same);
    let other = world.session("other").await;
    let diff = operations::diff(engine, (key, &At::Latest), (other.key(), &At::Latest)).await.unwrap();
    assert_eq!(diff.b.session, *other.key());
    assert!(diff.text.contains("4 removed"));
}

#[tokio::test]
async fn a_moment_is_inspected_as_it_was() {
    let world = World::memory();
    let (engine, session) = (&world.engine, world.session("s").await);
    let agent = adder();
    agent.run_once("19 + 23?", &session).await.unwrap();
    let early = At::Position("main:2".parse().unwrap());
    let seen = operations::inspect(engine, session.key(), &early).await.unwrap();
    assert_eq!((seen.status, seen.is_head), (Status::Running, false));
    let now = operations::inspect(engine, session.key(), &At::Latest).await.unwrap();
    assert_eq!((now.status, now.is_head), (Status::Succeeded, true));
    let json = serde_json::to_value(&now).unwrap();
    assert_eq!(json["state"]["logs"]["messages"].as_array().unwrap().len(), 4);
    assert_eq!(json["checkpoint"]["description"], now.checkpoint.as_ref().unwrap().checkpoint.description);
}

/// Every operation can be awaited in a task of its own.
#[test]
fn operations_can_move_between_threads() {
    fn movable<T: Send>(_: T) {}
    let world = World::memory();
    let (engine, key) = (&world.engine, world.engine.key("s").unwrap());
    let control = operations::ControlOptions::default();
    movable(operations::show(engine, &key));
    movable(operations::edit(engine, &key, &At::Latest, &[], "", ""));
    movable(operations::fork(engine, &key, &At::Latest, Default::default()));
    movable(operations::cancel(engine, &key, &control));
    movable(operations::checkpoint(engine, &key, "", ""));
    movable(operations::compare(engine, (&key, &At::Latest), (&key, &At::Latest)));
    movable(operations::waits(engine, engine.namespace()));
    movable(operations::signal(engine, &key, "", Json::null(), ""));
}

#[tokio::test]
async fn what_cannot_be_read_is_said() {
    let clock = std::sync::Arc::new(rekindle_testkit::ManualClock::default());
    let store = MemoryStore::new(StoreOptions::new().with_clock(clock.clone()));
    let engine = |codec: Codec, seed| {
        let store = std::sync::Arc::new(store.clone());
        Engine::with_journal(Journal::new(store, codec, clock.clone(), IdSource::seeded([seed; 32])))
    };
    let sealed = engine(Codec::new().with_encryption(KeyRing::new("k1", [5; 32]).unwrap()), 1);
    let session = sealed.create("secret").await.unwrap();
    adder().run_once("19 + 23?", &session).await.unwrap();
    assert!(operations::show(&sealed, session.key()).await.unwrap().unreadable.is_none());

    let without_key = engine(Codec::new(), 2);
    let shown = operations::show(&without_key, session.key()).await.unwrap();
    assert!(shown.unreadable.unwrap().contains("no encryption key was given"));
    assert_eq!((shown.status, shown.resumable.resumable), (Status::Succeeded, false));
    assert_eq!(code(operations::inspect(&without_key, session.key(), &At::Latest).await), "RK0013");
    let page = operations::records(&without_key, session.key(), &RecordsOptions::default()).await.unwrap();
    assert!(page.records.is_empty() && !page.damage.is_empty());
}

/// Counts the calls of a store by their names.
#[derive(Debug, Default)]
struct Calls(Mutex<BTreeMap<&'static str, (usize, u64)>>);

impl StoreObserver for Calls {
    fn observed(&self, observation: Observation) {
        let mut calls = self.0.lock().unwrap();
        let (count, frames) = calls.entry(observation.operation).or_default();
        *count += 1;
        *frames += observation.frames;
    }
}

/// How often a log of so many branches opens and reads, and how many frames it reads.
async fn cost_of_log(branches: usize) -> (usize, usize, u64) {
    let calls = Arc::new(Calls::default());
    let store = MeteredStore::new(MemoryStore::new(StoreOptions::new()), Arc::clone(&calls) as Arc<dyn StoreObserver>);
    let engine = Engine::over(Arc::new(store)).unwrap();
    let session = engine.create("s").await.unwrap();
    adder().run_once("19 + 23?", &session).await.unwrap();
    let head = engine.journal().open(session.key()).await.unwrap().current_branch().unwrap().head.seq;
    for number in 1..branches {
        let name = BranchId::new(format!("fork-{number}")).unwrap();
        engine.journal().fork(session.key(), &Position::new(BranchId::main(), head), name).await.unwrap();
    }
    calls.0.lock().unwrap().clear();
    let log = operations::log(&engine, session.key(), 30).await.unwrap();
    assert_eq!(log.branches.len(), branches);
    for branch in &log.branches {
        operations::milestones_known(&engine, session.key(), &branch.branch, 30).await.unwrap();
    }
    let calls = calls.0.lock().unwrap();
    let of = |name| calls.get(name).copied().unwrap_or_default();
    (of("open").0, of("read").0, of("read").1)
}

#[tokio::test]
async fn a_log_opens_its_session_once_and_reads_each_branch_once() {
    let (few, many) = (cost_of_log(10).await, cost_of_log(200).await);
    assert_eq!((few.0, many.0), (1, 1), "opened once, however many branches there are");
    let most = |branches: usize| 2 * branches + 1;
    let what = "checkpoints and milestones of each branch, and the end of the current one";
    assert!(few.1 <= most(10) && many.1 <= most(200), "{what}: {few:?}, {many:?}");
    assert_eq!(few.2, many.2, "history that branches share is read once");
}
