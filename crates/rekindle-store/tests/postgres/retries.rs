//! Calls that are made again while the server is away: callers of a store that was opened by its URL see nothing of it.

use std::sync::Arc;
use std::time::Duration;

use rekindle_core::{
    BranchId, ErrorKind, Namespace, NewSession, ReadFrames, SessionHeader, SessionId, SessionKey, SessionQuery,
    Store as _, StoreExt as _,
};
use rekindle_fixtures::Postgres;
use rekindle_store::{StoreOptions, open};
use rekindle_testkit::{History, message};

use crate::faults::{journal, session};
use crate::fixture::new_schema;
use crate::proxy::{Mode, Proxy};

fn key(id: &str) -> SessionKey {
    SessionId::new(id).unwrap().into()
}

/// Loses replies until the server has answered something, then lets them pass.
async fn lose_one_reply(proxy: &Proxy, call: impl Future<Output = ()>) {
    proxy.set(Mode::LoseReplies);
    let pass = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        proxy.set(Mode::Pass);
    };
    tokio::join!(call, pass);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_server_is_not_noticed() {
    let server = Arc::new(Postgres::start(&[]));
    let store = open(&server.url(), StoreOptions::new()).unwrap();
    let journal = journal(store.clone());
    let mut history = session(&journal, "s").await;
    for _ in 0..3 {
        let server = server.clone();
        let restarted = tokio::task::spawn_blocking(move || {
            server.kill();
            server.restart();
        });
        for _ in 0..20 {
            history.append_steps(1).await.unwrap();
            assert_eq!(store.open(&key("s")).await.unwrap().branch(&BranchId::main()).unwrap().head, history.head);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        restarted.await.unwrap();
    }
    let seen = store.retries();
    assert!(seen.requests > 0 && seen.last.is_some(), "{seen:?}");
    let restored = journal.load(&key("s"), None).await.unwrap();
    assert_eq!(restored.state, history.state_after(usize::MAX));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_reply_was_lost_happened_once() {
    let proxy = Proxy::before(Postgres::shared().port());
    let store = open(&proxy.url(&format!("pool=1&schema={}", new_schema())), StoreOptions::new()).unwrap();
    let journal = journal(store.clone());
    // Connected, and the schema is there.
    assert!(store.list(&SessionQuery::new(Namespace::default())).await.unwrap().sessions.is_empty());

    lose_one_reply(&proxy, async {
        journal.create(SessionHeader::new(key("s"))).await.expect("the session is its own");
    })
    .await;
    // One that somebody else created is not.
    let theirs = NewSession::new(SessionHeader { incarnation: "theirs".into(), ..SessionHeader::new(key("s")) });
    let mut refused = None;
    lose_one_reply(&proxy, async { refused = store.create(&theirs).await.err() }).await;
    assert_eq!(*refused.unwrap().kind(), ErrorKind::AlreadyExists);

    let history = History::begin(&journal, &key("s")).await;
    let append = journal.prepare(&history.target(), &[message("once")]).unwrap();
    lose_one_reply(&proxy, async {
        assert_eq!(store.append(&append).await.unwrap().head, append.head());
    })
    .await;
    let frames = store.read_all(&ReadFrames::all(key("s"), BranchId::main())).await.unwrap();
    assert_eq!(frames.len(), 1);
    assert!(store.retries().requests >= 2, "{:?}", store.retries());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_long_is_tried_can_be_said() {
    let server = Postgres::start(&[]);
    server.stop();
    for (settings, says) in [("retry_for=0s", None), ("retry_attempts=3", Some("tried 3 times"))] {
        let store = open(&format!("{}?{settings}", server.url()), StoreOptions::new()).unwrap();
        let error = store.open(&key("s")).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::StoreUnavailable);
        let text = format!("{error:#}");
        assert!(says.map_or(!text.contains("tried"), |says| text.contains(says)), "{settings}: {text}");
    }
    let wrong = open(&format!("{}?retry_for=soon", server.url()), StoreOptions::new()).unwrap_err();
    assert!(wrong.next_step().contains("retry_for=6s"), "{wrong:?}");
}
