//! Branches: forks of forks, time travel, checkpoints.

use rekindle_core::record::{Checkpoint, CheckpointMarked, Extra};
use rekindle_core::{
    BranchId, CheckpointId, ErrorKind, Fork, Hash, Head, Journal, OwnerId, Position, Removal, Seq, StoreExt as _,
};

use crate::fixture::{Harness, key};
use crate::history::{History, checkpoint, message};

fn at(branch: &str, seq: u64) -> Position {
    Position::new(BranchId::new(branch).unwrap(), Seq(seq))
}

/// Forks of forks see exactly the history that leads to them, whatever their parents do later.
pub async fn forks_across_forks(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut main = History::begin(&journal, &key("a")).await;
    main.append_steps(6).await.unwrap();
    let mut first = main.fork("first", 8).await.unwrap();
    first.append_steps(4).await.unwrap();
    main.append_steps(3).await.unwrap();
    let mut second = first.fork("second", first.head.seq.0).await.unwrap();
    second.append_steps(2).await.unwrap();
    let mut third = second.fork("third", second.head.seq.0 - 1).await.unwrap();
    third.append_steps(2).await.unwrap();
    let empty = third.fork("empty", third.head.seq.0).await.unwrap();
    let from_start = main.fork("from-start", 0).await.unwrap();
    first.append_steps(1).await.unwrap();
    for history in [&main, &first, &second, &third, &empty, &from_start] {
        let position = Position::new(history.branch.clone(), history.head.seq);
        let restored = journal.load(&key("a"), Some(&position)).await.unwrap();
        assert_eq!(restored.head, history.head, "{}", history.branch);
        assert_eq!(restored.state, history.state_after(usize::MAX), "{}", history.branch);
    }
    let report = journal.verify(&key("a"), &Default::default()).await.unwrap();
    assert!(report.is_sound(), "{report:?}");
}

/// A fork between two records of one batch has the first and not the second.
pub async fn fork_inside_a_batch(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut main = History::begin(&journal, &key("a")).await;
    main.append(vec![message("1"), message("2"), message("3")]).await.unwrap();
    main.append(vec![message("4")]).await.unwrap();
    let mut fork = main.fork("inside", 2).await.unwrap();
    fork.append(vec![message("other")]).await.unwrap();
    let restored = journal.load(&key("a"), Some(&at("inside", 3))).await.unwrap();
    assert_eq!(restored.state, fork.state_after(usize::MAX));
    // Through the fork's name, a record of its parent is the parent's.
    assert_eq!(journal.load(&key("a"), Some(&at("inside", 1))).await.unwrap().state, main.state_after(1));
    let nested = journal.fork(&key("a"), &at("inside", 1), BranchId::new("nested").unwrap()).await.unwrap();
    assert_eq!(nested.parent, Some(at("main", 1)));
    assert!(journal.verify(&key("a"), &Default::default()).await.unwrap().is_sound());
}

/// A fork that was prepared for a session does not happen to another one that took its name since, however alike
/// they are.
pub async fn a_fork_is_of_the_session_that_was_seen(harness: &Harness) {
    let journal = harness.journal().await;
    let store = journal.store();
    let mut prepared = None;
    for round in 0..2 {
        harness.session(&journal, "a").await;
        let mut main = History::begin(&journal, &key("a")).await;
        main.append(vec![message("1")]).await.unwrap();
        let info = store.open(&key("a")).await.unwrap();
        let head = info.branch(&BranchId::main()).unwrap().head;
        let fork = Fork {
            session: key("a"),
            genesis: info.header.genesis,
            branch: BranchId::new("side").unwrap(),
            from: at("main", head.seq.0),
            hash: head.hash,
            base: None,
        };
        // Before the branch exists, and once one of that name and place does.
        if let Some(stale) = prepared.replace(fork.clone()) {
            for made in [false, true] {
                let refused = store.fork(&stale).await.unwrap_err();
                assert_eq!(*refused.kind(), ErrorKind::Stale, "{refused:?}");
                let branches = store.open(&key("a")).await.unwrap().branches;
                assert_eq!(branches.len(), if made { 3 } else { 2 }, "{branches:?}");
                store.fork(&fork).await.unwrap();
            }
        }
        if round == 0 {
            journal.clear_session(&key("a")).await.unwrap();
        }
    }
}

/// The same fork again is no error; another one under its name is; nonsense is named.
pub async fn fork_is_safe_to_repeat_and_refuses_nonsense(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut main = History::begin(&journal, &key("a")).await;
    main.append_steps(4).await.unwrap();
    let first = main.fork("side", 3).await.unwrap();
    let again = main.fork("side", 3).await.unwrap();
    assert_eq!(first.head, again.head);
    for (from, name, expected) in [
        (at("main", 2), "side", "AlreadyExists"),
        (at("main", 2), "main", "AlreadyExists"),
        (at("main", 2), "inbox", "Invalid"),
        (at("inbox", 0), "x", "Invalid"),
        (at("main", 99), "x", "NotFound"),
        (at("nowhere", 1), "x", "NotFound"),
    ] {
        let error = journal.fork(&key("a"), &from, BranchId::new(name).unwrap()).await.unwrap_err();
        assert_eq!(error.kind().catalog_entry().name, expected, "{from} {name}: {error:?}");
    }
    let error = journal.fork(&key("missing"), &at("main", 0), BranchId::new("x").unwrap()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound);
}

/// The state at every single record is the fold of the records up to it.
pub async fn every_position_can_be_restored(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut main = History::begin(&journal, &key("a")).await;
    main.append_steps(5).await.unwrap();
    let mut side = main.fork("side", 6).await.unwrap();
    side.append_steps(3).await.unwrap();
    for history in [&main, &side] {
        for seq in 0..=history.head.seq.0 {
            let position = Position::new(history.branch.clone(), Seq(seq));
            let restored = journal.load(&key("a"), Some(&position)).await.unwrap();
            assert_eq!(restored.state, history.state_after(seq as usize), "{position}");
        }
    }
    let beyond = journal.load(&key("a"), Some(&at("main", main.head.seq.0 + 1))).await.unwrap_err();
    assert_eq!(*beyond.kind(), ErrorKind::NotFound);
}

/// Checkpoints come newest first along the line of history, by page, by id, with later marks.
pub async fn checkpoints_are_found_newest_first(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut main = History::begin(&journal, &key("a")).await;
    for n in 1..=5 {
        main.append(vec![message("m"), checkpoint(&format!("c{n}")), message("behind")]).await.unwrap();
    }
    let mut side = main.fork("side", 5).await.unwrap();
    side.append(vec![checkpoint("s1"), checkpoint("s2")]).await.unwrap();
    let ids = |found: Vec<rekindle_core::CheckpointInfo>| {
        found.into_iter().map(|info| info.checkpoint.id.to_string()).collect::<Vec<_>>()
    };
    let all = journal.checkpoints(&key("a"), None, None, 100).await.unwrap();
    assert_eq!(all[0].position, at("main", 14));
    assert_eq!(ids(all), ["c5", "c4", "c3", "c2", "c1"]);
    let before = CheckpointId::new("c4").unwrap();
    assert_eq!(ids(journal.checkpoints(&key("a"), None, Some(&before), 2).await.unwrap()), ["c3", "c2"]);
    let on_side = journal.checkpoints(&key("a"), Some(&at("side", 7)), None, 100).await.unwrap();
    assert_eq!(ids(on_side), ["s2", "s1", "c2", "c1"]);
    let marked = CheckpointMarked {
        checkpoint: CheckpointId::new("s1").unwrap(),
        pinned: Some(true),
        tags: Some(vec!["good".into()]),
        extra: Extra::new(),
    };
    journal.send(&key("a"), &[marked.into()]).await.unwrap();
    let found = journal.checkpoint(&key("a"), &CheckpointId::new("s1").unwrap()).await.unwrap();
    assert!(found.checkpoint.pinned && found.checkpoint.tags == ["good"]);
    let restored = journal.load(&key("a"), Some(&found.position)).await.unwrap();
    assert_eq!(restored.checkpoint.unwrap().checkpoint.id.as_str(), "s1");
    let missing = journal.checkpoint(&key("a"), &CheckpointId::new("nope").unwrap()).await.unwrap_err();
    assert_eq!(*missing.kind(), ErrorKind::NotFound);
    let first = Checkpoint { step: 7, ..Checkpoint::new(CheckpointId::new("after 7").unwrap()) };
    let again = Checkpoint { step: 7, ..Checkpoint::new(CheckpointId::new("after 7 again").unwrap()) };
    main.append(vec![first.into(), message("m"), again.into()]).await.unwrap();
    let found = journal.checkpoint_at_step(&key("a"), None, 7).await.unwrap();
    assert_eq!(found.checkpoint.id.as_str(), "after 7 again");
    assert_eq!(*journal.checkpoint_at_step(&key("a"), None, 8).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// A branch goes unless it is the first, the current one, run by somebody or forked from.
pub async fn a_branch_can_be_removed_unless_needed(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut main = History::begin(&journal, &key("a")).await;
    main.append_steps(3).await.unwrap();
    let mut first = main.fork("first", 3).await.unwrap();
    first.append_steps(2).await.unwrap();
    let second = first.fork("second", first.head.seq.0).await.unwrap();
    let remove = |branch: &str| {
        let removal = Removal::Branch { session: key("a"), branch: BranchId::new(branch).unwrap() };
        let store = journal.store().clone();
        async move { store.remove(&removal).await }
    };
    for branch in ["main", "inbox", "first"] {
        assert_eq!(*remove(branch).await.unwrap_err().kind(), ErrorKind::Protected, "{branch}");
    }
    let owner = OwnerId::new("o").unwrap();
    let lease =
        journal.store().acquire(&key("a"), &second.branch, &owner, std::time::Duration::from_secs(9)).await.unwrap();
    assert_eq!(*remove("second").await.unwrap_err().kind(), ErrorKind::Protected);
    journal.store().release(&lease).await.unwrap();
    let lease =
        journal.store().acquire(&key("a"), &BranchId::main(), &owner, std::time::Duration::from_secs(9)).await.unwrap();
    journal.store().release(&lease).await.unwrap();
    remove("second").await.unwrap();
    let removed = remove("first").await.unwrap();
    assert!(removed.frames == 2 && removed.bytes > 0, "{removed:?}");
    assert_eq!(remove("first").await.unwrap(), Default::default());
    let journal = harness.journal_over(journal.store().clone());
    assert_eq!(journal.open(&key("a")).await.unwrap().branches.len(), 2);
    assert_eq!(journal.load(&key("a"), None).await.unwrap().state, main.state_after(usize::MAX));
    // The name is free again.
    main.fork("first", 2).await.unwrap().append_steps(1).await.unwrap();
}

/// A caller that names what it saw is told whether history moved or is another.
pub async fn what_was_seen_can_be_checked(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut main = History::begin(&journal, &key("a")).await;
    main.append_steps(3).await.unwrap();
    let seen = main.head;
    journal.check_seen(&key("a"), &main.branch, seen).await.unwrap();
    main.append(vec![message("1"), message("2")]).await.unwrap();
    let other = Head { hash: Hash::of(b"other"), ..seen };
    let future = Head { seq: Seq(99), ..seen };
    for (seen, words) in [(seen, "2 records were appended"), (other, "is not what was seen"), (future, "not there")] {
        let error = journal.check_seen(&key("a"), &main.branch, seen).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Stale);
        assert!(error.message().contains(words), "{error:?}");
        assert_eq!(error.position().map(|position| position.seq), Some(seen.seq));
    }
}

/// A session that is removed as it was seen takes nothing along that came since, however close.
pub async fn a_session_goes_only_as_it_was_seen(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut main = History::begin(&journal, &key("a")).await;
    main.append_steps(2).await.unwrap();
    let seen = journal.open(&key("a")).await.unwrap().heads();
    main.fork("first", 2).await.unwrap();
    let refused = async |heads| journal.clear_session_at(&key("a"), heads).await.unwrap_err().kind().clone();
    assert_eq!(refused(seen).await, ErrorKind::Stale);
    let seen = journal.open(&key("a")).await.unwrap().heads();
    journal.send(&key("a"), &[message("m")]).await.unwrap();
    assert_eq!(refused(seen).await, ErrorKind::Stale);
    let seen = journal.open(&key("a")).await.unwrap().heads();
    let (owner, ttl) = (OwnerId::new("o").unwrap(), std::time::Duration::from_secs(9));
    let lease = journal.store().acquire(&key("a"), &BranchId::main(), &owner, ttl).await.unwrap();
    assert_eq!(refused(seen.clone()).await, ErrorKind::Protected);
    journal.store().release(&lease).await.unwrap();
    assert!(journal.clear_session_at(&key("a"), seen.clone()).await.unwrap().frames > 0);
    assert_eq!(journal.clear_session_at(&key("a"), seen).await.unwrap(), Default::default());
    for round in 0..4 {
        nothing_goes_unseen(harness, &journal, &format!("round {round}")).await;
    }
}

async fn nothing_goes_unseen(harness: &Harness, journal: &Journal, id: &str) {
    harness.session(journal, id).await;
    let (sender, session) = (journal.clone(), key(id));
    let sending = tokio::spawn(async move {
        let mut acknowledged = 0;
        while acknowledged < 20 && sender.send(&session, &[message("m")]).await.is_ok() {
            acknowledged += 1;
        }
        acknowledged
    });
    let gone = loop {
        let heads = journal.open(&key(id)).await.unwrap().heads();
        match journal.clear_session_at(&key(id), heads.clone()).await {
            Ok(_) => break heads,
            Err(error) => assert_eq!(*error.kind(), ErrorKind::Stale, "{error:?}"),
        }
    };
    assert_eq!(gone[&BranchId::inbox()].seq, Seq(sending.await.unwrap()));
}
