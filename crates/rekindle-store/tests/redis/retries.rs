//! Calls that are made again while the server is away: callers of a store that was opened by its URL see nothing of it.

use std::sync::Arc;
use std::time::Duration;

use rekindle_core::{ErrorKind, NewSession, SessionHeader, Store as _};
use rekindle_fixtures::Redis;
use rekindle_store::{StoreOptions, open};

use crate::fixtures::{created, frames, key, step};
use crate::proxy::Proxy;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_server_is_not_noticed() {
    let server = Arc::new(Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]));
    let store = open(&server.url(), StoreOptions::new()).unwrap();
    let mut head = created(&*store, "a").await;
    for _ in 0..3 {
        let server = server.clone();
        let restarted = tokio::task::spawn_blocking(move || {
            server.kill();
            server.restart();
        });
        for _ in 0..20 {
            head = store.append(&step("a", head, 100)).await.unwrap().head;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        restarted.await.unwrap();
    }
    assert!(store.retries().requests > 0, "{:?}", store.retries());
    assert_eq!(frames(&*store, "a").await.len() as u64, head.seq.0);
    assert_eq!(head.seq.0, 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_reply_was_lost_happened_once() {
    let server = Redis::start(&[]);
    let proxy = Proxy::start(server.port());
    let store = open(&format!("{}?timeout=500", proxy.url()), StoreOptions::new()).unwrap();
    created(&*store, "before").await;
    let header = |incarnation: &str| SessionHeader { incarnation: incarnation.into(), ..SessionHeader::new(key("a")) };
    let lose_one_reply = async |call: &mut (dyn Future<Output = ()> + Send + Unpin)| {
        proxy.swallow(true);
        let pass = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            proxy.cut();
            proxy.swallow(false);
        };
        tokio::join!(call, pass);
    };
    let mut head = None;
    lose_one_reply(&mut Box::pin(async {
        let info = store.create(&NewSession::new(header("ours"))).await.expect("the session is its own");
        head = Some(info.branches[0].head);
    }))
    .await;
    let mut refused = None;
    lose_one_reply(&mut Box::pin(async { refused = store.create(&NewSession::new(header("theirs"))).await.err() }))
        .await;
    assert_eq!(*refused.unwrap().kind(), ErrorKind::AlreadyExists);
    let append = step("a", head.unwrap(), 100);
    lose_one_reply(&mut Box::pin(async {
        assert_eq!(store.append(&append).await.unwrap().head, append.head());
    }))
    .await;
    assert_eq!(frames(&*store, "a").await.len(), 1);
    assert!(store.retries().requests >= 2, "{:?}", store.retries());
}
