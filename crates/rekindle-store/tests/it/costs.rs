//! What a call may read: counted, not timed.

use std::sync::Arc;

use rekindle_core::codec::Codec;
use rekindle_core::{CheckpointId, IdSource, Journal, SessionHeader, SessionId, SessionKey};
use rekindle_store::{MemoryStore, MeteredStore, SystemClock};
use rekindle_testkit::{History, checkpoint, message};

use crate::fixtures::Seen;

/// A journal over a store that counts, and what it counted.
fn counted() -> (Journal, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let store = Arc::new(MeteredStore::new(MemoryStore::default(), seen.clone()));
    (Journal::new(store, Codec::new(), Arc::new(SystemClock), IdSource::seeded([1; 32])), seen)
}

/// How many frames were read since this was last asked.
fn frames_read(seen: &Seen) -> u64 {
    seen.0.lock().unwrap().drain(..).filter(|call| call.operation == "read").map(|call| call.frames).sum()
}

#[tokio::test]
async fn looking_again_reads_only_what_is_new() {
    let (journal, seen) = counted();
    let session: SessionKey = SessionId::new("long").unwrap().into();
    journal.create(SessionHeader::new(session.clone())).await.unwrap();
    let mut history = History::begin(&journal, &session).await;
    history.append_steps(1_000).await.unwrap();
    let look = async || journal.recall(journal.open(&session).await.unwrap(), None).await.unwrap().state;
    assert_eq!(look().await, history.state_after(usize::MAX));
    assert!(frames_read(&seen) >= 1_000);
    assert_eq!(look().await, history.state_after(usize::MAX));
    assert_eq!(frames_read(&seen), 0);
    history.append_steps(2).await.unwrap();
    assert_eq!(look().await, history.state_after(usize::MAX));
    assert_eq!(frames_read(&seen), 2);
}

#[tokio::test]
async fn what_is_kept_in_mind_is_bounded() {
    let (journal, seen) = counted();
    let sessions: Vec<SessionKey> = (0..100).map(|n| SessionId::new(format!("s{n}")).unwrap().into()).collect();
    for session in &sessions {
        journal.create(SessionHeader::new(session.clone())).await.unwrap();
        History::begin(&journal, session).await.append_steps(1).await.unwrap();
    }
    let look = async |session: &SessionKey| drop(journal.recall(journal.open(session).await.unwrap(), None).await);
    for session in &sessions {
        look(session).await;
    }
    frames_read(&seen);
    look(&sessions[99]).await;
    assert_eq!(frames_read(&seen), 0, "the last ones are remembered");
    look(&sessions[0]).await;
    assert_eq!(frames_read(&seen), 1, "the first ones are not");

    let large: SessionKey = SessionId::new("large").unwrap().into();
    journal.create(SessionHeader::new(large.clone())).await.unwrap();
    let mut history = History::begin(&journal, &large).await;
    // It is stored in very little.
    let pattern = "x".repeat(6 << 20);
    for _ in 0..3 {
        history.append(vec![message(&pattern)]).await.unwrap();
    }
    look(&large).await;
    frames_read(&seen);
    look(&large).await;
    assert_eq!(frames_read(&seen), 3, "what is large is not kept");
    look(&sessions[99]).await;
    assert_eq!(frames_read(&seen), 0, "and drives out nothing");
}

#[tokio::test]
async fn the_newest_checkpoints_are_read_without_the_rest_of_history() {
    let (journal, seen) = counted();
    let session: SessionKey = SessionId::new("long").unwrap().into();
    journal.create(SessionHeader::new(session.clone())).await.unwrap();
    let mut history = History::begin(&journal, &session).await;
    for n in 0..1_000 {
        history.append(vec![message("m"), checkpoint(&format!("c{n}"))]).await.unwrap();
    }
    frames_read(&seen);
    let newest = journal.checkpoints(&session, None, None, 3).await.unwrap();
    assert_eq!(newest.iter().map(|found| found.checkpoint.id.as_str()).collect::<Vec<_>>(), ["c999", "c998", "c997"]);
    assert!(frames_read(&seen) <= 64);
    let before = CheckpointId::new("c900").unwrap();
    let page = journal.checkpoints(&session, None, Some(&before), 2).await.unwrap();
    assert_eq!(page.iter().map(|found| found.checkpoint.id.as_str()).collect::<Vec<_>>(), ["c899", "c898"]);
    assert!(frames_read(&seen) <= 128);
    assert_eq!(journal.checkpoints(&session, None, None, usize::MAX).await.unwrap().len(), 1_000);
}
