//! What operations cost in requests.

use rekindle_core::Store;
use rekindle_core::{Append, BranchId, Head, NewSession, ReadFrames, Seq, SessionQuery};
use rekindle_store::{ObjectsStore, StoreOptions};

use crate::script::{frame, head_of, header, key};
use crate::simulated::Simulated;

fn count(requests: &[(&'static str, String)], kind: &str) -> usize {
    requests.iter().filter(|(found, _)| *found == kind).count()
}

struct Writer {
    objects: Simulated,
    store: ObjectsStore,
    head: Head,
}

impl Writer {
    async fn new(compact_every: u64) -> Self {
        let objects = Simulated::default();
        let clock = std::sync::Arc::new(crate::script::StillClock::default());
        let options = StoreOptions::new().with_clock(clock);
        let store = ObjectsStore::with_compaction(objects.bucket(), options, compact_every).unwrap();
        let info = store.create(&NewSession::new(header("a"))).await.unwrap();
        let head = info.branch(&BranchId::main()).unwrap().head;
        Self { objects, store, head }
    }

    /// Appends, and gives the requests that took.
    async fn append(&mut self, text: &str) -> Vec<(&'static str, String)> {
        let before = self.objects.requests();
        let frame = frame(&key("a"), &BranchId::main(), self.head, text);
        let append = Append::new(key("a"), BranchId::main(), self.head, vec![frame.clone()]);
        self.store.append(&append).await.unwrap();
        self.head = head_of(&frame);
        self.objects.requests_since(before)
    }
}

#[tokio::test]
async fn an_append_is_one_write_and_one_small_read() {
    let mut writer = Writer::new(1_000).await;
    // The first one also writes the session's line for lists, and the second one marks that as old.
    writer.append("first").await;
    writer.append("second").await;
    for n in 0..100 {
        let requests = writer.append(&format!("text {n}")).await;
        let kinds: Vec<_> = requests.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, ["PUT", "GET"], "append {n}: {requests:?}");
    }
}

#[tokio::test]
async fn snapshots_do_not_list_or_rewrite_much() {
    let mut writer = Writer::new(16).await;
    let mut requests = Vec::new();
    for n in 0..1_600 {
        requests.extend(writer.append(&format!("text {n} {}", "x".repeat(400))).await);
    }
    let lists = count(&requests, "LIST");
    assert!((90..=110).contains(&lists), "one for each snapshot: {lists}");
    let segments = requests.iter().filter(|(kind, name)| *kind == "PUT" && name.contains("/segments/")).count();
    assert!(segments <= 110, "{segments}");
    // Frames are merged again and again, but only into what is at least as large: the reads tell.
    let merged = requests.iter().filter(|(kind, name)| *kind == "GET" && name.contains("/segments/")).count();
    assert!(merged <= 2 * lists, "{merged} segments were read to be merged, in {lists} snapshots");
    let left = writer.objects.names();
    assert!(left.len() < 40, "{} objects are left: {left:?}", left.len());
}

#[tokio::test]
async fn a_point_read_does_not_read_the_history() {
    let mut writer = Writer::new(64).await;
    for n in 0..1_000 {
        writer.append(&format!("text {n} {}", "x".repeat(2_000))).await;
    }
    let clock = std::sync::Arc::new(crate::script::StillClock::default());
    let options = StoreOptions::new().with_clock(clock);
    let cold = ObjectsStore::with_compaction(writer.objects.bucket(), options, 64).unwrap();
    let read = |seq: u64| ReadFrames::all(key("a"), BranchId::main()).with_range(Seq(seq), Seq(seq));
    let before = writer.objects.requests();
    assert_eq!(cold.read(&read(500)).await.unwrap().slots.len(), 1);
    let opening = writer.objects.requests_since(before);
    assert_eq!(count(&opening, "LIST"), 1, "{opening:?}");
    // The list, the snapshot, a change for each group since, an index and a frame.
    assert!(opening.len() <= 8, "{opening:?}");
    let before = writer.objects.requests();
    assert_eq!(cold.read(&read(501)).await.unwrap().slots.len(), 1);
    let warm = writer.objects.requests_since(before);
    // What stands behind a head that is known never changes.
    assert_eq!((count(&warm, "GET"), warm.len()), (1, 1), "{warm:?}");
}

#[tokio::test]
async fn a_list_costs_a_few_requests_however_many_sessions_there_are() {
    for sessions in [20, 500] {
        let objects = Simulated::default();
        let clock = std::sync::Arc::new(crate::script::StillClock::default());
        let open = || {
            let clock = clock.clone();
            ObjectsStore::over(objects.bucket(), StoreOptions::new().with_clock(clock)).unwrap()
        };
        let store = open();
        for n in 0..sessions {
            clock.set(n);
            store.create(&NewSession::new(header(&format!("s{n}")))).await.unwrap();
        }
        // Their lines are written behind them.
        while objects.names().iter().any(|name| name.starts_with("marks/")) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        for store in [open(), store] {
            let before = objects.requests();
            let page = store.list(&SessionQuery::new(Default::default()).with_limit(20)).await.unwrap();
            assert_eq!(page.sessions.len(), 20);
            let requests = objects.requests_since(before);
            assert!(requests.len() <= 5, "{sessions} sessions: {requests:?}");
        }
    }
}
