//! Pruning and deleting: what is protected stays, what goes frees its bytes.

use std::time::Duration;

use rekindle_core::record::{CheckpointMarked, EffectIntent, EffectKind, RunStarted};
use rekindle_core::retention::{Policy, Rule};
use rekindle_core::{
    BranchId, CheckpointId, EffectId, ErrorKind, Hash, Namespace, OwnerId, Position, RunId, Seq, StoreExt as _,
};

use crate::fixture::{Harness, key};
use crate::history::{History, checkpoint, message, register};

fn id(text: &str) -> CheckpointId {
    CheckpointId::new(text).unwrap()
}

/// Pruning removes what no rule keeps, frees its bytes, and every kept checkpoint still loads.
pub async fn pruning_protects_and_frees(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut main = History::begin(&journal, &key("a")).await;
    for n in 0..120 {
        let value = format!("{n} {}", "0123456789abcdef".repeat(400));
        main.append(vec![register("big", &value), message(&format!("m{n}")), checkpoint(&format!("c{n}"))])
            .await
            .unwrap();
    }
    let pin = CheckpointMarked::pinned(id("c100"), true);
    journal.send(&key("a"), &[pin.into()]).await.unwrap();
    let mut fork = main.fork("side", 330).await.unwrap();
    fork.append_steps(2).await.unwrap();
    let before = harness.stored_bytes().await;

    let policy = Policy::new([Rule::LastN(3)]);
    let plan = journal.plan_prune(&key("a"), &policy, None).await.unwrap();
    assert_eq!(plan, journal.plan_prune(&key("a"), &policy, None).await.unwrap(), "a plan changes nothing");
    let result = journal.prune(&key("a"), &policy).await.unwrap();
    assert_eq!(result.plan, plan);
    assert!(result.removed.frames > 50 && result.removed.bytes > 10_000, "{:?}", result.removed);
    if let (Some(before), Some(after)) = (before, harness.stored_bytes().await) {
        assert!(after < before * 2 / 3, "{before} bytes before, {after} after");
    }

    let journal = harness.journal_over(journal.store().clone());
    let kept = journal
        .checkpoints(&key("a"), Some(&Position::new(BranchId::main(), main.head.seq)), None, 1_000)
        .await
        .unwrap();
    let names: Vec<_> = kept.iter().map(|info| info.checkpoint.id.as_str()).collect();
    assert_eq!(names, ["c119", "c118", "c117", "c109", "c100"]);
    for info in &kept {
        let restored = journal.load(&key("a"), Some(&info.position)).await.unwrap();
        assert_eq!(restored.state, main.state_after(info.position.seq.0 as usize), "{}", info.position);
    }
    let side = Position::new(fork.branch.clone(), fork.head.seq);
    assert_eq!(journal.load(&key("a"), Some(&side)).await.unwrap().state, fork.state_after(usize::MAX));
    assert!(journal.verify(&key("a"), &Default::default()).await.unwrap().is_sound());
    // Work goes on behind the base, and pruning again has nothing left to do.
    main.append_steps(1).await.unwrap();
    assert_eq!(
        journal.load(&key("a"), Some(&Position::new(BranchId::main(), main.head.seq))).await.unwrap().state,
        main.state_after(usize::MAX)
    );
    assert_eq!(journal.prune(&key("a"), &policy).await.unwrap().removed.frames, 0);
}

/// Open effects, the run and unknown records survive compaction; a leased branch is not touched.
pub async fn pruning_keeps_open_work(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut main = History::begin(&journal, &key("a")).await;
    let started = RunStarted::new(RunId::new("r1").unwrap(), "agent");
    let intent = EffectIntent::new(EffectId::new("call").unwrap(), EffectKind::Tool, "pay", Hash::of(b"{}"));
    let future = serde_json_record(r#"{"from_the_future":{"x":[1.0]}}"#);
    main.append(vec![started.into(), intent.into(), future]).await.unwrap();
    main.append_steps(30).await.unwrap();
    let expected = main.state_after(usize::MAX);
    let owner = OwnerId::new("o").unwrap();
    let lease = journal.store().acquire(&key("a"), &BranchId::main(), &owner, Duration::from_secs(9)).await.unwrap();
    let plan = journal.plan_prune(&key("a"), &Policy::default(), None).await.unwrap();
    assert!(plan.trims.is_empty() && !plan.untouched.is_empty(), "{plan:?}");
    // The owner itself may prune under its lease.
    let plan = journal.plan_prune(&key("a"), &Policy::default(), Some(&lease)).await.unwrap();
    assert!(!plan.trims.is_empty());
    assert_eq!(*journal.apply_prune(&key("a"), plan.clone(), None).await.unwrap_err().kind(), ErrorKind::Protected);
    journal.apply_prune(&key("a"), plan, Some(&lease)).await.unwrap();
    let restored = journal.load(&key("a"), None).await.unwrap();
    assert_eq!(restored.state, expected);
    assert_eq!(restored.state.open_effects().count(), 1);
    assert_eq!(restored.state.unknown().len(), 1);
}

fn serde_json_record(text: &str) -> rekindle_core::Record {
    rekindle_core::Json::parse(text).unwrap().decode().unwrap()
}

/// Positions that were pruned give `NotFound` and say from where on there is history.
pub async fn pruned_positions_say_so(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut main = History::begin(&journal, &key("a")).await;
    main.append_steps(31).await.unwrap();
    let result = journal.prune(&key("a"), &Policy::new([Rule::LatestOnly])).await.unwrap();
    let through = result.plan.trims[0].through;
    let early = Position::new(BranchId::main(), Seq(through.0 - 1));
    let error = journal.load(&key("a"), Some(&early)).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound);
    assert!(error.next_step().contains(&through.to_string()), "{error:?}");
    let error = journal.fork(&key("a"), &early, BranchId::new("x").unwrap()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound);
    let edge = Position::new(BranchId::main(), through);
    assert_eq!(journal.load(&key("a"), Some(&edge)).await.unwrap().state, main.state_after(through.0 as usize));
    let fork = journal.fork(&key("a"), &edge, BranchId::new("at-the-edge").unwrap()).await.unwrap();
    let restored = journal.load(&key("a"), Some(&Position::new(fork.branch, through))).await.unwrap();
    assert_eq!(restored.state, main.state_after(through.0 as usize));
    assert!(journal.verify(&key("a"), &Default::default()).await.unwrap().is_sound());
}

/// Only sessions that are old, finished, free and unpinned are deleted, after a plan.
pub async fn deleting_inactive_sessions_spares_the_living(harness: &Harness) {
    let journal = harness.journal().await;
    for name in ["old", "leased", "pinned", "unfinished"] {
        harness.session(&journal, name).await;
        let mut history = History::begin(&journal, &key(name)).await;
        history.append(vec![message("m"), checkpoint("c")]).await.unwrap();
        if name == "unfinished" {
            let started = RunStarted::new(RunId::new("r").unwrap(), "agent");
            history.append(vec![started.into()]).await.unwrap();
        }
        if name == "pinned" {
            let pin = CheckpointMarked::pinned(id("c"), true);
            journal.send(&key(name), &[pin.into()]).await.unwrap();
        }
    }
    harness.clock.advance(Duration::from_secs(100));
    let owner = OwnerId::new("o").unwrap();
    journal.store().acquire(&key("leased"), &BranchId::main(), &owner, Duration::from_secs(9)).await.unwrap();
    harness.session(&journal, "new").await;
    let namespace = Namespace::default();
    let plan = journal.plan_delete_inactive(&namespace, Duration::from_secs(60)).await.unwrap();
    assert_eq!(plan.delete, [key("old")]);
    assert_eq!(plan.protected.len(), 3, "{plan:?}");
    assert!(journal.open(&key("old")).await.is_ok(), "a plan changes nothing");
    let (done, removed) = journal.apply_delete(plan).await.unwrap();
    assert_eq!(done.delete, [key("old")]);
    assert!(removed.frames == 1);
    assert_eq!(*journal.open(&key("old")).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(*journal.clear_session(&key("leased")).await.unwrap_err().kind(), ErrorKind::Protected);
    assert_eq!(journal.clear_session(&key("old")).await.unwrap(), Default::default());
    // The name is free, and nothing of the old session shows.
    harness.session(&journal, "old").await;
    assert_eq!(journal.load(&key("old"), None).await.unwrap().head.seq, Seq::ZERO);
}

/// A deleted checkpoint is no longer listed; the newest, pinned and forked ones cannot be.
pub async fn deleted_checkpoints_are_gone_and_protected_ones_are_not(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut main = History::begin(&journal, &key("a")).await;
    for n in 1..=4 {
        main.append(vec![message("m"), checkpoint(&format!("c{n}"))]).await.unwrap();
    }
    main.fork("side", 4).await.unwrap();
    journal.delete_checkpoints(&key("a"), &[id("c1"), id("c3")]).await.unwrap();
    let left = journal.checkpoints(&key("a"), None, None, 10).await.unwrap();
    assert_eq!(left.len(), 2);
    assert_eq!(*journal.checkpoint(&key("a"), &id("c1")).await.unwrap_err().kind(), ErrorKind::NotFound);
    for (name, kind) in [("c4", ErrorKind::Protected), ("c2", ErrorKind::Protected), ("c1", ErrorKind::NotFound)] {
        let error = journal.delete_checkpoints(&key("a"), &[id(name)]).await.unwrap_err();
        assert_eq!(*error.kind(), kind, "{name}: {error:?}");
    }
    assert_eq!(journal.load(&key("a"), None).await.unwrap().state, main.state_after(usize::MAX));
}

/// History may be cut between two frames that were appended together.
pub async fn pruning_between_frames_of_one_append(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut main = History::begin(&journal, &key("a")).await;
    let mut append = journal.prepare(&main.target(), &[message("1")]).unwrap();
    for records in [vec![message("2"), checkpoint("c")], vec![message("3")]] {
        main.head = append.head();
        append.frames.extend(journal.prepare(&main.target(), &records).unwrap().frames);
    }
    main.head = journal.store().append(&append).await.unwrap().head;
    main.batches = vec![vec![message("1")], vec![message("2"), checkpoint("c")], vec![message("3")]];
    let result = journal.prune(&key("a"), &Policy::default()).await.unwrap();
    assert_eq!(result.plan.trims[0].through, Seq(3));
    drop(journal);
    let journal = harness.journal().await;
    assert_eq!(journal.load(&key("a"), None).await.unwrap().state, main.state_after(usize::MAX));
    let mut main = History { journal: journal.clone(), ..main };
    main.append(vec![message("4")]).await.unwrap();
    assert_eq!(journal.load(&key("a"), None).await.unwrap().state, main.state_after(usize::MAX));
    assert!(journal.verify(&key("a"), &Default::default()).await.unwrap().damage.is_empty());
}

/// History of which nothing is left to say can still be compacted.
pub async fn pruning_may_leave_nothing(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut main = History::begin(&journal, &key("a")).await;
    main.append(vec![register("gone", "soon")]).await.unwrap();
    let unset = rekindle_core::record::RegisterUnset::new(rekindle_core::RegisterKey::new("gone").unwrap());
    main.append(vec![unset.into()]).await.unwrap();
    main.append(vec![checkpoint("c"), message("behind it")]).await.unwrap();
    let result = journal.prune(&key("a"), &Policy::default()).await.unwrap();
    assert_eq!(result.plan.trims[0].through, Seq(2));
    let journal = harness.journal_over(journal.store().clone());
    assert_eq!(journal.load(&key("a"), None).await.unwrap().state, main.state_after(usize::MAX));
    assert!(journal.verify(&key("a"), &Default::default()).await.unwrap().is_sound());
}

/// Checkpoints from before a time go, the newest stays; what compaction kept keeps its age.
pub async fn old_checkpoints_can_be_deleted_by_age(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut main = History::begin(&journal, &key("a")).await;
    let mut times = Vec::new();
    for n in 1..=4 {
        times.push(journal.clock().now());
        main.append(vec![message("m"), checkpoint(&format!("c{n}"))]).await.unwrap();
        harness.clock.advance(Duration::from_secs(10));
    }
    let left = |found: Vec<rekindle_core::CheckpointInfo>| {
        found.into_iter().map(|found| (found.checkpoint.id.to_string(), found.created_at)).collect::<Vec<_>>()
    };
    journal.delete_older_than(&key("a"), times[1]).await.unwrap();
    let kept = left(journal.checkpoints(&key("a"), None, None, 10).await.unwrap());
    assert_eq!(kept, [("c4".into(), times[3]), ("c3".into(), times[2]), ("c2".into(), times[1])]);
    journal.delete_older_than(&key("a"), journal.clock().now()).await.unwrap();
    let kept = left(journal.checkpoints(&key("a"), None, None, 10).await.unwrap());
    assert_eq!(kept, [("c4".into(), times[3])]);
    assert_eq!(journal.load(&key("a"), None).await.unwrap().state, main.state_after(usize::MAX));
}
