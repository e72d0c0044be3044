//! Servers that freeze, fill up, forget or are set back.

use std::time::Duration;

use rekindle_core::queue::{NewJob, Notice};
use rekindle_core::{ErrorKind, Namespace, SessionQuery, Store};
use rekindle_fixtures::{Redis, Signal};
use tokio::time::timeout;

use crate::fixtures::{created, frames, key, step, store, wait_until};
use crate::proxy::Proxy;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_is_not_waited_for() {
    let server = Redis::start(&["--appendonly", "yes"]);
    let handle = store(&format!("{}?timeout=1500", server.url()));
    let head = created(&*handle, "a").await;
    server.signal(Signal::Stop);
    let append = step("a", head, 10);
    for _ in 0..2 {
        let refused = timeout(Duration::from_secs(20), handle.append(&append)).await.expect("it ends");
        assert_eq!(*refused.unwrap_err().kind(), ErrorKind::StoreUnavailable);
    }
    server.signal(Signal::Continue);
    assert_eq!(handle.append(&append).await.unwrap().head, append.head());
    assert_eq!(frames(&*handle, "a").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_told() {
    let server = Redis::start(&[]);
    let handle = store(&server.url());
    created(&*handle, "a").await;
    server.stop();
    for _ in 0..2 {
        assert_eq!(*handle.open(&key("a")).await.unwrap_err().kind(), ErrorKind::StoreUnavailable);
    }
    let error = store(&server.url()).open(&key("a")).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::StoreUnavailable);
    assert!(error.message().contains("cannot be reached"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_says_so_and_keeps_the_rest() {
    let server = Redis::start(&["--maxmemory", "8mb", "--maxmemory-policy", "noeviction"]);
    let handle = store(&server.url());
    let mut head = created(&*handle, "a").await;
    let refused = loop {
        let append = step("a", head, 100_000);
        match handle.append(&append).await {
            Ok(appended) => head = appended.head,
            Err(error) => {
                assert_eq!(*error.kind(), ErrorKind::PersistFailed, "{error:?}");
                break append;
            }
        }
        assert!(head.seq.0 < 1_000, "it never fills up");
    };
    assert_eq!(frames(&*handle, "a").await.len() as u64, head.seq.0);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(handle.append(&refused).await.unwrap().head, refused.head());
    assert_eq!(frames(&*handle, "a").await.len() as u64, head.seq.0 + 1);
}

/// Every call of a handle that knew a store is refused.
async fn refuses_everything(handle: &dyn Store, append: &rekindle_core::Append) {
    let new = rekindle_core::NewSession::new(rekindle_core::SessionHeader::new(key("b")));
    let errors = [
        handle.append(append).await.unwrap_err(),
        handle.create(&new).await.unwrap_err(),
        handle.open(&key("a")).await.unwrap_err(),
        handle.list(&SessionQuery::new(Namespace::default())).await.unwrap_err(),
        handle.queue().unwrap().enqueue(&NewJob::new(key("a"))).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(error.message().contains("another store than before, or none"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_server_is_not_started_anew() {
    let server = Redis::start(&[]);
    let handle = store(&server.url());
    let head = created(&*handle, "a").await;
    server.command(&["FLUSHALL"]);
    refuses_everything(&*handle, &step("a", head, 10)).await;
    assert_eq!(server.command(&["DBSIZE"]), "0");
    // Somebody else does start anew.
    created(&*store(&server.url()), "b").await;
    refuses_everything(&*handle, &step("a", head, 10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_restarted_without_its_data_is_not_started_anew() {
    let server = Redis::start(&["--appendonly", "no"]);
    let handle = store(&server.url());
    let head = created(&*handle, "a").await;
    server.kill();
    server.restart();
    // The first call finds out that the connection is gone.
    assert_eq!(*handle.open(&key("a")).await.unwrap_err().kind(), ErrorKind::StoreUnavailable);
    refuses_everything(&*handle, &step("a", head, 10)).await;
    assert_eq!(server.command(&["DBSIZE"]), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_set_back_is_a_conflict() {
    let primary = Redis::start(&[]);
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &primary.port().to_string()]);
    let proxy = Proxy::start(primary.port());
    let handle = store(&proxy.url());
    let mut head = created(&*handle, "a").await;
    for _ in 0..2 {
        head = handle.append(&step("a", head, 10)).await.unwrap().head;
    }
    wait_until("the replica has it", || {
        replica.command(&["DBSIZE"]) == primary.command(&["DBSIZE"])
            && replica.command(&["INFO", "replication"]).contains("master_link_status:up")
    });
    let offset = |server: &Redis| {
        let info = server.command(&["INFO", "replication"]);
        info.lines().find_map(|line| line.strip_prefix("master_repl_offset:").map(|offset| offset.trim().to_owned()))
    };
    wait_until("the replica has caught up", || offset(&primary) == offset(&replica));
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    head = handle.append(&step("a", head, 10)).await.unwrap().head;
    proxy.lead_to(replica.port());
    let append = step("a", head, 10);
    let error = loop {
        match handle.append(&append).await {
            Err(error) if *error.kind() == ErrorKind::StoreUnavailable => {}
            other => break other.unwrap_err(),
        }
    };
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error:?}");
    assert!(error.message().contains("the branch ends at record 2, not 3"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_listens_hears_again_after_a_break() {
    let server = Redis::shared();
    let proxy = Proxy::start(server.port());
    let handle = store(&format!("{}?prefix=listen", server.url()));
    created(&*handle, "a").await;
    let listener = store(&format!("{}?prefix=listen", proxy.url()));
    let mut notices = listener.queue().unwrap().listen().await.unwrap();
    for _ in 0..2 {
        proxy.cut();
        let heard = timeout(Duration::from_secs(20), notices.next()).await.expect("it connects again");
        assert_eq!(heard, Notice::Anything);
        handle.queue().unwrap().enqueue(&NewJob::new(key("a"))).await.unwrap();
        let heard = timeout(Duration::from_secs(20), notices.next()).await.expect("it is told");
        assert_eq!(heard, Notice::Ready);
    }
}
