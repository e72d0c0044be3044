//! One session through everything, over each store.

use rekindle::core::ImportOptions;
use rekindle::core::record::{InboxMode, RunOutcome};
use rekindle::core::retention::{Policy, Rule};
use rekindle::operations::{self, Answer, At, By, Change, ControlOptions, ForkOptions, HistoryOptions};
use rekindle::tool::Approval;
use rekindle::{BranchId, Json, ResumeOptions, SessionQuery, Status};
use std::ops::ControlFlow;

use crate::world::{World, payer, resume};

async fn walk(world: World) {
    let (engine, agent) = (&world.engine, payer(Approval::default()));
    let session = world.session("walk").await;
    let key = session.key();

    operations::send(engine, key, "pay".into(), InboxMode::Queue, "maria", None).await.unwrap();
    let waiting = resume(&world, &session, &agent).await.unwrap();
    assert_eq!(waiting.waits.len(), 1);
    let before = At::Position(waiting.position());

    let wait = &waiting.waits[0];
    operations::answer(engine, key, &Answer::approve(wait.wait.clone(), wait.digest, "maria")).await.unwrap();
    assert_eq!(resume(&world, &session, &agent).await.unwrap().text(), "It is paid.");
    let fork = operations::fork(engine, key, &before, ForkOptions::default()).await.unwrap();

    // On the fork the question is open still: what was approved elsewhere is not approved here.
    let there = operations::inspect(engine, key, &At::Head(fork.branch.clone())).await.unwrap();
    assert_eq!((there.status, there.waits.len()), (Status::Waiting, 1));
    let diff = operations::diff(engine, (key, &At::Head(fork.branch.clone())), (key, &At::Latest)).await.unwrap();
    assert!(diff.text.contains("2 added"), "{}", diff.text);
    let on_fork = ResumeOptions::new("maria").on_branch(fork.branch.clone());
    let report = agent.resume_with(&session, on_fork).await.unwrap().report().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Waiting);
    operations::answer(engine, key, &Answer::approve(wait.wait.clone(), wait.digest, "bob")).await.unwrap();
    assert_eq!(resume(&world, &session, &agent).await.unwrap().text(), "It is paid.");
    assert_eq!(session.info().await.unwrap().current, fork.branch);

    let edit = Change::SetMemory { key: "limit".into(), value: Json::parse("9").unwrap() };
    let edited = operations::edit(engine, key, &At::Head(BranchId::main()), &[edit], "maria", "less").await.unwrap();
    assert_eq!(edited.branch, BranchId::main());
    operations::checkpoint(engine, key, "by hand", "maria").await.unwrap();
    let history = operations::history(engine, key, &HistoryOptions::default()).await.unwrap();
    assert_eq!(history.checkpoints[0].checkpoint.description, "by hand");
    assert_eq!(operations::log(engine, key, 9).await.unwrap().branches.len(), 2);

    let mut steps = 0;
    let count = &mut |_: &operations::ReplayStep<'_>| {
        steps += 1;
        ControlFlow::Continue(())
    };
    operations::replay(engine, key, None, By::Steps, count).await.unwrap();
    assert!(steps > 3);

    let late = operations::cancel(engine, key, &ControlOptions::new("maria", "")).await.unwrap();
    assert!(matches!(late, operations::Controlled::Ended { status: Status::Succeeded, .. }), "{late:?}");
    let mut file = Vec::new();
    operations::export(engine, key, &mut file).await.unwrap();
    let rename = ImportOptions { rename: Some(engine.key("copy").unwrap()), ..ImportOptions::default() };
    let copy = operations::import(engine, &mut file.as_slice(), &rename).await.unwrap().session;
    let same = operations::compare(engine, (key, &At::Latest), (&copy, &At::Head(fork.branch.clone()))).await.unwrap();
    assert!(same.same, "{:?}", same.difference);

    operations::prune(engine, key, &Policy::new([Rule::LastN(1)]), false).await.unwrap();
    assert!(operations::verify(engine, key, &Default::default()).await.unwrap().sound);
    operations::clear_session(engine, &copy, false).await.unwrap();
    let left = operations::list(engine, &SessionQuery::new(engine.namespace().clone())).await.unwrap();
    assert_eq!(left.sessions.len(), 1);
}

#[tokio::test]
async fn one_session_through_everything_in_memory() {
    walk(World::memory()).await;
}

#[tokio::test]
async fn one_session_through_everything_in_sqlite() {
    walk(World::sqlite()).await;
}
