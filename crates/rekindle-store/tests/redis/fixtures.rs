//! Stores on servers, and small things to write.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rekindle_core::codec::{Codec, Place, Stamp};
use rekindle_core::record::RegisterSet;
use rekindle_core::{
    Append, BranchId, Clock, Head, Json, NewSession, ReadFrames, Record, RegisterKey, Seq, SessionHeader, SessionId,
    SessionKey, Slot, Store, StoreExt as _, Timestamp,
};
use rekindle_fixtures::Redis;
use rekindle_store::{RedisStore, StoreOptions, open};
use rekindle_testkit::Fixture;

/// A prefix nobody else uses in this process.
pub fn prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A store of its own on the server all tests share.
pub struct Shared(String);

impl Default for Shared {
    fn default() -> Self {
        Self(prefix())
    }
}

#[async_trait]
impl Fixture for Shared {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        let url = format!("{}?prefix={}", Redis::shared().url(), self.0);
        open(&url, StoreOptions::new().with_clock(clock)).unwrap()
    }

    async fn stored_bytes(&self) -> Option<u64> {
        let sum = "local sum = 0
            for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
                sum = sum + redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 0)
            end
            return sum";
        let pattern = format!("{}:*", self.0);
        Some(Redis::shared().command(&["EVAL", sum, "0", &pattern]).parse().unwrap())
    }
}

/// The server that is a whole cluster, for all tests.
pub fn cluster() -> &'static Redis {
    static CLUSTER: LazyLock<Redis> = LazyLock::new(|| start_cluster(&[]));
    &CLUSTER
}

/// Starts a server that is a whole cluster.
pub fn start_cluster(settings: &[&str]) -> Redis {
    let own = ["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"];
    let server = Redis::start(&[&own, settings].concat());
    server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    wait_until("the cluster is complete", || server.command(&["CLUSTER", "INFO"]).contains("cluster_state:ok"));
    server
}

/// A store of its own on the cluster all tests share.
pub struct Cluster(String);

impl Default for Cluster {
    fn default() -> Self {
        Self(prefix())
    }
}

#[async_trait]
impl Fixture for Cluster {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        let url = format!("{}?cluster=true&prefix={}", cluster().url(), self.0);
        open(&url, StoreOptions::new().with_clock(clock)).unwrap()
    }
}

/// Waits for something, but not for ever.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(30), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The store itself, which makes no call again.
pub fn store(url: &str) -> Arc<dyn Store> {
    Arc::new(RedisStore::open(url, StoreOptions::new()).unwrap())
}

/// The key of a session.
pub fn key(id: &str) -> SessionKey {
    SessionId::new(id).unwrap().into()
}

/// Creates a session; the head of `main`.
pub async fn created(store: &dyn Store, id: &str) -> Head {
    let info = store.create(&NewSession::new(SessionHeader::new(key(id)))).await.unwrap();
    info.branch(&BranchId::main()).unwrap().head
}

/// An append of one record of `size` bytes behind `head`.
pub fn step(id: &str, head: Head, size: usize) -> Append {
    step_on(id, BranchId::main(), head, size)
}

/// An append to any branch.
pub fn step_on(id: &str, branch: BranchId, head: Head, size: usize) -> Append {
    let value = Json::from("x".repeat(size).as_str());
    let record: Record = RegisterSet::new(RegisterKey::new("r").unwrap(), value).into();
    let session = key(id);
    let place = Place { session: &session, branch: &branch };
    let stamp = Stamp { after: head, at: Timestamp(head.seq.0), nonce: [3; 16] };
    let frame = Codec::new().without_compression().encode(place, stamp, &[record]).unwrap();
    Append::new(session, branch, head, vec![frame])
}

/// Everything on `main`, oldest first.
pub async fn frames(store: &dyn Store, id: &str) -> Vec<Seq> {
    let slots = store.read_all(&ReadFrames::all(key(id), BranchId::main())).await.unwrap();
    let whole = slots.into_iter().map(|slot| match slot {
        Slot::Whole(frame) => frame.last,
        Slot::Damaged(damage) => panic!("{damage:?}"),
    });
    whole.collect()
}
