//! Calls that are given up again and again, on a service with latency.

use std::sync::Arc;
use std::time::Duration;

use rekindle_core::{Append, BranchId, Head, NewSession, ReadFrames, Store};
use rekindle_store::{ObjectsStore, StoreOptions};
use tokio::time::timeout;

use crate::script::{StillClock, frame, head_of, header, key};
use crate::simulated::Simulated;

/// The latency of each request, and how long callers wait: less than reading a session takes.
const LATENCY: Duration = Duration::from_millis(40);
const PATIENCE: Duration = Duration::from_millis(120);
/// How often a caller may give up before it has an answer.
const TRIES: usize = 12;

/// Objects with a session of 50 changes, and where it ends.
async fn prepared() -> (Simulated, Head) {
    let objects = Simulated::default();
    let store = opened(&objects);
    let info = store.create(&NewSession::new(header("a"))).await.unwrap();
    let mut head = info.branch(&BranchId::main()).unwrap().head;
    for n in 0..50 {
        let frame = frame(&key("a"), &BranchId::main(), head, &format!("text {n}"));
        store.append(&Append::new(key("a"), BranchId::main(), head, vec![frame.clone()])).await.unwrap();
        head = head_of(&frame);
    }
    objects.set_latency(LATENCY);
    (objects, head)
}

/// A handle that knows nothing yet.
fn opened(objects: &Simulated) -> ObjectsStore {
    let options = StoreOptions::new().with_clock(Arc::new(StillClock::default()));
    ObjectsStore::over(objects.bucket(), options).unwrap()
}

/// Calls until there is an answer in time.
async fn insisting<T>(what: &str, call: impl AsyncFn() -> T) -> T {
    for _ in 0..TRIES {
        if let Ok(answer) = timeout(PATIENCE, call()).await {
            return answer;
        }
    }
    panic!("{what} gets nowhere if it is given up after {PATIENCE:?}");
}

#[tokio::test(start_paused = true)]
async fn a_look_that_is_given_up_again_and_again_gets_somewhere() {
    let (objects, head) = prepared().await;
    let store = opened(&objects);
    let info = insisting("open", async || store.open(&key("a")).await).await.unwrap();
    assert_eq!(info.branch(&BranchId::main()).unwrap().head, head);
    let store = opened(&objects);
    let read = ReadFrames::all(key("a"), BranchId::main());
    let page = insisting("read", async || store.read(&read).await).await.unwrap();
    assert_eq!(page.slots.len(), 50);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_the_service_is_found_out_although_callers_give_up() {
    let objects = Simulated::default();
    let store = ObjectsStore::over(objects.bucket(), StoreOptions::new()).unwrap();
    store.create(&NewSession::new(header("a"))).await.unwrap();
    objects.set_latency(LATENCY);
    let store = ObjectsStore::over(objects.bucket(), StoreOptions::new()).unwrap();
    insisting("open", async || store.open(&key("a")).await).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_caller_went_away_is_made_to_its_end() {
    let (objects, head) = prepared().await;
    let store = opened(&objects);
    let frame = frame(&key("a"), &BranchId::main(), head, "one more");
    let append = Append::new(key("a"), BranchId::main(), head, vec![frame.clone()]);
    assert!(timeout(LATENCY, store.append(&append)).await.is_err(), "it cannot be done in that time");
    // The next call of this handle comes behind it.
    let info = store.open(&key("a")).await.unwrap();
    assert_eq!(info.branch(&BranchId::main()).unwrap().head, head_of(&frame));
    let before = objects.requests();
    assert_eq!(store.append(&append).await.unwrap().head, head_of(&frame));
    assert!(objects.requests_since(before).iter().all(|(kind, _)| *kind != "PUT"), "it was written twice");
}
