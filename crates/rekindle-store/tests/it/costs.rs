//! What a call may read: counted, not timed.

use std::sync::Arc;

use rekindle_core::codec::Codec;
use rekindle_core::{CheckpointId, IdSource, Journal, SessionHeader, SessionId, SessionKey};
use rekindle_store::{MemoryStore, MeteredStore, SystemClock};
use rekindle_testkit::{History, checkpoint, message};

use crate::fixtures::Seen;

#[tokio::test]
async fn the_newest_checkpoints_are_read_without_the_rest_of_history() {
    let seen = Arc::new(Seen::default());
    let store = Arc::new(MeteredStore::new(MemoryStore::default(), seen.clone()));
    let journal = Journal::new(store, Codec::new(), Arc::new(SystemClock), IdSource::seeded([1; 32]));
    let session: SessionKey = SessionId::new("long").unwrap().into();
    journal.create(SessionHeader::new(session.clone())).await.unwrap();
    let mut history = History::begin(&journal, &session).await;
    for n in 0..1_000 {
        history.append(vec![message("m"), checkpoint(&format!("c{n}"))]).await.unwrap();
    }
    let frames_read = || {
        seen.0.lock().unwrap().drain(..).filter(|call| call.operation == "read").map(|call| call.frames).sum::<u64>()
    };
    frames_read();
    let newest = journal.checkpoints(&session, None, None, 3).await.unwrap();
    assert_eq!(newest.iter().map(|found| found.checkpoint.id.as_str()).collect::<Vec<_>>(), ["c999", "c998", "c997"]);
    assert!(frames_read() <= 64);
    let before = CheckpointId::new("c900").unwrap();
    let page = journal.checkpoints(&session, None, Some(&before), 2).await.unwrap();
    assert_eq!(page.iter().map(|found| found.checkpoint.id.as_str()).collect::<Vec<_>>(), ["c899", "c898"]);
    assert!(frames_read() <= 128);
    assert_eq!(journal.checkpoints(&session, None, None, usize::MAX).await.unwrap().len(), 1_000);
}
