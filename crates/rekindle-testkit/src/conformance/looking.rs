//! Looking at the same session again and again.

use rekindle_core::retention::{Policy, Rule};
use rekindle_core::{BranchId, Journal, Position, Removal, State};

use crate::fixture::{Harness, key};
use crate::history::{History, checkpoint, message};

/// Whoever looks again sees what is there now, whatever happened since: appends, forks, pruning, another
/// branch of the same name and length, another session of the same name.
pub async fn looking_again_sees_what_is_there(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut main = History::begin(&journal, &key("a")).await;
    for n in 0..6 {
        main.append(vec![message(&format!("m{n}")), checkpoint(&format!("c{n}"))]).await.unwrap();
        assert_eq!(seen(&journal, &main).await, main.state_after(usize::MAX), "after {n} appends");
        assert_eq!(seen(&journal, &main).await, main.state_after(usize::MAX), "the same again");
    }
    for text in ["one", "other"] {
        let mut fork = main.fork("side", 3).await.unwrap();
        fork.append(vec![message(text)]).await.unwrap();
        assert_eq!(seen(&journal, &fork).await, fork.state_after(usize::MAX), "{text}");
        let removal = Removal::Branch { session: key("a"), branch: fork.branch };
        journal.store().remove(&removal).await.unwrap();
    }
    // A branch without a checkpoint of its own, and one that grows out of it.
    let mut stem = main.fork("stem", 4).await.unwrap();
    stem.append(vec![message("a")]).await.unwrap();
    stem.append(vec![message("b")]).await.unwrap();
    let mut leaf = stem.fork("leaf", stem.head.seq.0).await.unwrap();
    assert_eq!(seen(&journal, &leaf).await, leaf.state_after(usize::MAX), "nothing of its own");
    leaf.append(vec![message("c")]).await.unwrap();
    stem.append(vec![message("d")]).await.unwrap();
    for when in ["before", "pruned"] {
        for history in [&main, &stem, &leaf] {
            assert_eq!(seen(&journal, history).await, history.state_after(usize::MAX), "{when}: {}", history.branch);
        }
        journal.prune(&key("a"), &Policy::new([Rule::LastN(1)])).await.unwrap();
    }
    main.append(vec![message("behind the base")]).await.unwrap();
    assert_eq!(seen(&journal, &main).await, main.state_after(usize::MAX), "behind the base");

    // Whoever opened it before it was pruned beyond what they saw sees it as it is now.
    let before = journal.open(&key("a")).await.unwrap();
    for n in 0..3 {
        main.append(vec![message("x"), checkpoint(&format!("d{n}"))]).await.unwrap();
    }
    journal.prune(&key("a"), &Policy::new([Rule::LastN(1)])).await.unwrap();
    let loaded = journal.load_opened(before.clone(), None).await.unwrap();
    assert_eq!(loaded.state, main.state_after(usize::MAX));
    assert_eq!(harness.journal_over(journal.store().clone()).recall(before, None).await.unwrap().state, loaded.state);

    let length = main.head.seq;
    journal.clear_session(&key("a")).await.unwrap();
    harness.session(&journal, "a").await;
    let mut again = History::begin(&journal, &key("a")).await;
    while again.head.seq < length {
        again.append(vec![message("another session")]).await.unwrap();
    }
    assert_eq!(seen(&journal, &again).await, again.state_after(usize::MAX), "made again");
}

/// What somebody sees who looks at the end of a branch, which is what somebody sees who reads it all.
async fn seen(journal: &Journal, history: &History) -> State {
    let end = Position::new(BranchId::clone(&history.branch), history.head.seq);
    let info = journal.open(&history.session).await.unwrap();
    let recalled = journal.recall(info.clone(), Some(&end)).await.unwrap();
    let loaded = journal.load(&history.session, Some(&end)).await.unwrap();
    assert_eq!((recalled.head, &recalled.checkpoint), (loaded.head, &loaded.checkpoint));
    assert_eq!(recalled.info, info);
    recalled.state
}
