//! A server that dies, or is not heard of, under load: nothing acknowledged is lost, nothing is
//! written twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rekindle_core::{ErrorKind, Head, Seq, Store};
use rekindle_fixtures::Redis;
use tokio::task::JoinHandle;

use crate::fixtures::{created, frames, start_cluster, step, store};
use crate::proxy::Proxy;

/// Appends one record after the other and repeats what was not acknowledged.
struct Writer {
    acknowledged: Arc<AtomicU64>,
    stops: Arc<AtomicBool>,
    task: JoinHandle<Head>,
}

impl Writer {
    fn start(store: Arc<dyn Store>, id: &'static str, mut head: Head) -> Self {
        let (acknowledged, stops) = (Arc::new(AtomicU64::new(head.seq.0)), Arc::new(AtomicBool::new(false)));
        let (count, stop) = (acknowledged.clone(), stops.clone());
        let task = tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                match store.append(&step(id, head, 200)).await {
                    Ok(appended) => {
                        head = appended.head;
                        count.store(head.seq.0, Ordering::SeqCst);
                    }
                    Err(error) => {
                        assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{error:?}");
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                }
            }
            head
        });
        Self { acknowledged, stops, task }
    }

    fn count(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    async fn get_on(&self) {
        let before = self.count();
        let on = async {
            while self.count() < before + 100 && !self.task.is_finished() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), on).await.expect("the writer gets on");
    }

    async fn stop(self) -> Head {
        self.stops.store(true, Ordering::SeqCst);
        self.task.await.unwrap()
    }
}

fn up_to(head: Head) -> Vec<Seq> {
    (1..=head.seq.0).map(Seq).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_keeps_what_it_acknowledged() {
    let server = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let url = format!("{}?durability=aof-always", server.url());
    let handle = store(&url);
    assert!(handle.capabilities().durable);
    let head = created(&*handle, "a").await;
    let writer = Writer::start(handle, "a", head);
    for _ in 0..3 {
        writer.get_on().await;
        server.kill();
        let acknowledged = writer.count();
        server.restart();
        assert!(frames(&*store(&url), "a").await.len() as u64 >= acknowledged);
    }
    writer.get_on().await;
    let head = writer.stop().await;
    assert_eq!(frames(&*store(&url), "a").await, up_to(head));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_are_made_anew() {
    let server = Redis::shared();
    let proxy = Proxy::start(server.port());
    let handle = store(&format!("{}?prefix=cut", proxy.url()));
    let head = created(&*handle, "a").await;
    let writer = Writer::start(handle.clone(), "a", head);
    for _ in 0..10 {
        writer.get_on().await;
        proxy.cut();
    }
    writer.get_on().await;
    let head = writer.stop().await;
    assert_eq!(frames(&*handle, "a").await, up_to(head));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_no_conflict() {
    let server = Redis::shared();
    let proxy = Proxy::start(server.port());
    let handle = store(&format!("{}?prefix=swallow&timeout=2000", proxy.url()));
    let head = created(&*handle, "a").await;
    // The server knows the script: otherwise its answer to that would be the one that is lost.
    let mut head = handle.append(&step("a", head, 10)).await.unwrap().head;
    for cut in [false, true] {
        let append = step("a", head, 10);
        proxy.swallow(true);
        let error = handle.append(&append).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::StoreUnavailable);
        assert!(error.next_step().contains("safe to repeat"), "{error}");
        let direct = store(&format!("{}?prefix=swallow", server.url()));
        assert_eq!(frames(&*direct, "a").await.last(), Some(&append.head().seq), "it was carried out");
        proxy.swallow(false);
        if cut {
            proxy.cut();
        }
        head = handle.append(&append).await.unwrap().head;
        assert_eq!(head, append.head());
    }
    assert_eq!(frames(&*handle, "a").await, up_to(head));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_comes_back_is_used_again() {
    let server = start_cluster(&["--appendonly", "yes", "--appendfsync", "always"]);
    let handle = store(&format!("{}?cluster=true&timeout=3000", server.url()));
    let head = created(&*handle, "a").await;
    let writer = Writer::start(handle.clone(), "a", head);
    for _ in 0..2 {
        writer.get_on().await;
        server.kill();
        server.restart();
    }
    writer.get_on().await;
    let head = writer.stop().await;
    assert_eq!(frames(&*handle, "a").await, up_to(head));
}
