//! Tidying up, and trying it first.

use std::time::Duration;

use rekindle::core::retention::{Policy, Reason, Rule};
use rekindle::core::{ImportOptions, OwnerId, StoreExt as _};
use rekindle::operations::{self, At, HistoryOptions, Marked};
use rekindle::tool::Approval;
use rekindle::{Agent, CheckpointId, Clock as _, Namespace, Session, SessionKey, Status};

use crate::world::{World, adder, code, payer};

async fn talked(world: &World, id: &str) -> (Session, Agent) {
    let (session, agent) = (world.session(id).await, adder());
    for message in ["19 + 23?", "thanks", "bye"] {
        operations::checkpoint(&world.engine, session.key(), "by hand", "maria").await.unwrap();
        agent.run_once(message, &session).await.unwrap();
        world.clock.advance(Duration::from_secs(60));
    }
    (session, agent)
}

async fn ids(world: &World, session: &SessionKey) -> Vec<CheckpointId> {
    let page = operations::history(&world.engine, session, &HistoryOptions::default()).await.unwrap();
    page.checkpoints.into_iter().map(|found| found.checkpoint.id).collect()
}

#[tokio::test]
async fn a_dry_run_changes_nothing_and_says_what_would_go() {
    for world in [World::memory(), World::sqlite()] {
        let (session, _) = talked(&world, "s").await;
        let (engine, key) = (&world.engine, session.key());
        let before = (ids(&world, key).await, session.info().await.unwrap().branches);
        let policy = Policy::new([Rule::LatestOnly]);
        let dry = operations::prune(engine, key, &policy, true).await.unwrap();
        assert!(dry.dry_run && !dry.plan.remove.is_empty() && dry.freed.bytes == 0);
        assert_eq!(dry.plan, operations::plan_prune(engine, key, &policy).await.unwrap());
        let cutoff = world.clock.now().minus(Duration::from_secs(90));
        assert!(!operations::delete_older_than(engine, key, cutoff, true).await.unwrap().plan.remove.is_empty());
        assert!(operations::clear_session(engine, key, true).await.unwrap().dry_run);
        let inactive = operations::delete_inactive(engine, engine.namespace(), Duration::from_secs(1), true).await;
        assert_eq!(inactive.unwrap().plan.delete, std::slice::from_ref(key));
        assert_eq!((ids(&world, key).await, session.info().await.unwrap().branches), before);

        let text = world.texts(&session, &At::Latest).await;
        let done = operations::prune(engine, key, &policy, false).await.unwrap();
        assert_eq!(done.plan, dry.plan);
        assert!(done.freed.frames > 0);
        assert!(dry.history_bytes == done.history_bytes && done.history_bytes >= done.freed.bytes);
        assert_eq!(world.texts(&session, &At::Latest).await, text);
        let json = serde_json::to_value(&done).unwrap();
        assert_eq!(json["dry_run"], false);
        operations::clear_session(engine, key, false).await.unwrap();
        assert_eq!(code(operations::show(engine, key).await), "RK0003");
    }
}

#[tokio::test]
async fn pinned_and_tagged_checkpoints_stay() {
    let world = World::memory();
    let (session, _) = talked(&world, "s").await;
    let (engine, key) = (&world.engine, session.key());
    let all = ids(&world, key).await;
    let oldest = all.last().unwrap();
    assert!(operations::pin(engine, key, oldest, true).await.unwrap().checkpoint.pinned);
    let tagged = operations::tag(engine, key, &all[1], vec!["release".into()]).await.unwrap();
    assert_eq!(tagged.checkpoint.tags, ["release"]);
    let unknown = CheckpointId::new("ckpt_none").unwrap();
    assert_eq!(code(operations::pin(engine, key, &unknown, true).await), "RK0003");
    assert_eq!(code(operations::tag(engine, key, &unknown, vec![]).await), "RK0003");
    assert_eq!(code(operations::tag(engine, key, oldest, vec!["".into()]).await), "RK0001");
    let plan = operations::plan_prune(engine, key, &Policy::new([Rule::Tagged("release".into())])).await.unwrap();
    let kept = |id: &CheckpointId| plan.keep.iter().find(|planned| planned.checkpoint == *id).unwrap().reasons.clone();
    assert!(kept(oldest).contains(&Reason::Pinned));
    assert!(!kept(&all[1]).is_empty());
    for dry_run in [true, false] {
        let refused = operations::delete_checkpoints(engine, key, std::slice::from_ref(oldest), dry_run).await;
        assert_eq!(code(refused), "RK0014");
        let refused = operations::delete_checkpoints(engine, key, std::slice::from_ref(&unknown), dry_run).await;
        assert_eq!(code(refused), "RK0003");
    }
    assert!(!operations::pin(engine, key, oldest, false).await.unwrap().checkpoint.pinned);
}

#[tokio::test]
async fn a_checkpoint_by_hand_can_be_deleted_by_hand() {
    let world = World::memory();
    let session = world.session("s").await;
    let (engine, key) = (&world.engine, session.key());
    let Marked::Done { checkpoint, .. } = operations::checkpoint(engine, key, "first", "maria").await.unwrap() else {
        panic!("nobody runs it")
    };
    operations::checkpoint(engine, key, "second", "maria").await.unwrap();
    let all = operations::history(engine, key, &HistoryOptions::default()).await.unwrap().checkpoints;
    assert_eq!(all[0].checkpoint.parent.as_ref(), Some(&checkpoint));
    let ids = [checkpoint.clone()];
    assert!(operations::delete_checkpoints(engine, key, &ids, true).await.unwrap().dry_run);
    engine.journal().checkpoint(key, &checkpoint).await.unwrap();
    operations::delete_checkpoints(engine, key, &ids, false).await.unwrap();
    assert_eq!(code(operations::inspect(engine, key, &At::Checkpoint(checkpoint)).await), "RK0003");
}

#[tokio::test]
async fn what_runs_or_waits_is_protected() {
    let world = World::memory();
    let (engine, session) = (&world.engine, world.session("s").await);
    payer(Approval::default()).run_once("pay", &session).await.unwrap();
    world.clock.advance(Duration::from_secs(3_600));
    let kept = operations::delete_inactive(engine, engine.namespace(), Duration::from_secs(1), false).await.unwrap();
    assert_eq!(kept.plan.protected, [(session.key().clone(), Reason::Waiting)]);
    for (status, found) in [(Status::Waiting, 1), (Status::Succeeded, 0)] {
        let second = Duration::from_secs(1);
        let kept = operations::delete_inactive_of(engine, engine.namespace(), second, &[status], true).await.unwrap();
        assert_eq!((kept.plan.protected.len(), kept.plan.delete.len()), (found, 0), "{status}");
    }
    let owner = OwnerId::new("somebody").unwrap();
    let main = rekindle::BranchId::main();
    let lease = engine.journal().store().acquire(session.key(), &main, &owner, Duration::from_secs(9)).await.unwrap();
    for dry_run in [true, false] {
        assert_eq!(code(operations::clear_session(engine, session.key(), dry_run).await), "RK0014");
    }
    engine.journal().store().release(&lease).await.unwrap();
    operations::clear_session(engine, session.key(), false).await.unwrap();
}

#[tokio::test]
async fn a_session_is_verified_and_moved() {
    let world = World::sqlite();
    let (session, agent) = talked(&world, "s").await;
    let verified = operations::verify(&world.engine, session.key(), &Default::default()).await.unwrap();
    assert!(verified.sound && verified.report.records > 0);
    assert_eq!(serde_json::to_value(&verified).unwrap()["sound"], true);
    let mut file = Vec::new();
    let out = operations::export(&world.engine, session.key(), &mut file).await.unwrap();

    let other = World::memory();
    let moved = operations::import(&other.engine, &mut file.as_slice(), &ImportOptions::default()).await.unwrap();
    assert_eq!((moved.frames, moved.same_hashes), (out.frames, true));
    let here = other.engine.open_session("s").await.unwrap();
    assert_eq!(other.texts(&here, &At::Latest).await, world.texts(&session, &At::Latest).await);
    let seen = operations::verify(&other.engine, here.key(), &verified.report.heads).await.unwrap();
    assert!(seen.sound, "{:?}", seen.report.damage);
    let elsewhere = Namespace::new("elsewhere").unwrap();
    let options = ImportOptions { namespace: Some(elsewhere.clone()), ..ImportOptions::default() };
    let moved = operations::import(&other.engine, &mut file.as_slice(), &options).await.unwrap();
    assert_eq!((&moved.session.namespace, &moved.session.id), (&elsewhere, &here.key().id));
    file.truncate(file.len() / 2);
    let cut = operations::import(&World::memory().engine, &mut file.as_slice(), &ImportOptions::default()).await;
    assert!(cut.is_err());
    drop(agent);
}
