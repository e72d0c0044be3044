//! Servers that are not fit for a store, and what stands in one.

use std::time::Duration;

use rekindle_core::queue::{ClaimRequest, NewJob, SettleJob, Settlement};
use rekindle_core::{BranchId, Error, ErrorKind, Head, Namespace, OwnerId, Removal, SessionQuery, Store as _};
use rekindle_fixtures::Redis;
use rekindle_store::{StoreOptions, open};

use crate::fixtures::{cluster, created, key, step, step_on, store};

async fn refusal(url: &str) -> Error {
    store(url).open(&key("a")).await.unwrap_err()
}

/// `NotFound` is the answer of a store that was opened.
async fn is_opened(url: &str) {
    assert_eq!(*refusal(url).await.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let server = Redis::start(&[]);
    server.command(&["CONFIG", "SET", "requirepass", "right-secret"]);
    let wrong = format!("redis://:wrong-secret@127.0.0.1:{}", server.port());
    for url in [&wrong, &server.url()] {
        let error = refusal(url).await;
        assert_eq!(*error.kind(), ErrorKind::Invalid);
        assert!(error.message().contains("refuses the login"), "{error}");
        let shown = format!("{error:?} {error} {} {:?}", error.next_step(), store(url));
        assert!(!shown.contains("-secret"), "{shown}");
    }
    let handle = open(&wrong, StoreOptions::new().with_setting("password", "right-secret")).unwrap();
    assert_eq!(*handle.open(&key("a")).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_server_that_forgets_keys_is_refused() {
    let server = Redis::start(&[]);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let error = refusal(&server.url()).await;
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("allkeys-lru"), "{error}");
    is_opened(&format!("{}?evict=allow", server.url())).await;
    server.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    is_opened(&server.url()).await;
}

#[tokio::test]
async fn a_promise_the_server_does_not_keep_is_refused() {
    let server = Redis::start(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    is_opened(&format!("{}?durability=aof-everysec", server.url())).await;
    for promise in ["durability=aof-always", "durable=true"] {
        let url = format!("{}?{promise}", server.url());
        assert_eq!(*refusal(&url).await.kind(), ErrorKind::Unsupported);
        assert!(store(&url).capabilities().durable);
    }
    server.command(&["CONFIG", "SET", "appendfsync", "always"]);
    is_opened(&format!("{}?durability=aof-always", server.url())).await;
    server.command(&["CONFIG", "SET", "appendonly", "no"]);
    assert_eq!(*refusal(&format!("{}?durability=aof-everysec", server.url())).await.kind(), ErrorKind::Unsupported);
    assert!(!store(&server.url()).capabilities().durable);
}

#[tokio::test]
async fn a_server_that_keeps_its_settings_to_itself_is_believed_only_on_request() {
    let server = Redis::start(&["--appendonly", "yes"]);
    server.command(&["ACL", "SETUSER", "guest", "on", ">pass", "~*", "&*", "+@all", "-config"]);
    let url = format!("redis://guest:pass@127.0.0.1:{}", server.port());
    let error = refusal(&format!("{url}?durability=aof-always")).await;
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
    assert!(error.next_step().contains("durable=true"), "{error}");
    is_opened(&format!("{url}?durable=true")).await;
    is_opened(&url).await;
}

#[tokio::test]
async fn what_is_no_store_of_this_version_is_refused() {
    let server = Redis::start(&[]);
    server.command(&["SET", "rekindle:store", "2 abc"]);
    assert!(matches!(refusal(&server.url()).await.kind(), ErrorKind::VersionTooNew { found: 2, supported: 1, .. }));
    server.command(&["SET", "rekindle:store", "something else"]);
    assert_eq!(*refusal(&server.url()).await.kind(), ErrorKind::Corrupt);
    let absent = open(&format!("{}?prefix=new", server.url()), StoreOptions::new().with_create(false)).unwrap();
    let error = absent.list(&SessionQuery::new(Namespace::default())).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound);
    assert_eq!(server.command(&["EXISTS", "new:store"]), "0");
}

#[tokio::test]
async fn a_cluster_must_be_named_as_one() {
    let error = refusal(&cluster().url()).await;
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
    assert!(error.next_step().contains("cluster=true"), "{error}");
    let error = refusal(&format!("{}?cluster=true", Redis::shared().url())).await;
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
}

fn owner() -> OwnerId {
    OwnerId::new("w1").unwrap()
}

fn asking() -> ClaimRequest {
    ClaimRequest::new(owner(), Namespace::default(), 1, Duration::from_secs(30))
}

#[tokio::test]
async fn ids_are_in_no_key_and_what_is_removed_is_gone() {
    let server = Redis::start(&[]);
    let handle = store(&server.url());
    for id in ["plain", "{tag}", "a:b*c", "🦀"] {
        let head = created(&*handle, id).await;
        handle.append(&step(id, head, 10)).await.unwrap();
        handle.queue().unwrap().enqueue(&NewJob::new(key(id))).await.unwrap();
    }
    let keys = server.command(&["KEYS", "*"]);
    for name in keys.lines().filter(|name| *name != "rekindle:store") {
        let tag = name.strip_prefix("rekindle:{").and_then(|rest| rest.split_once('}')).map(|(tag, _)| tag);
        assert!(tag.is_some_and(|tag| tag.len() == 32 && tag.bytes().all(|byte| byte.is_ascii_hexdigit())), "{name}");
    }
    for id in ["plain", "{tag}", "a:b*c", "🦀"] {
        let removed = handle.remove(&Removal::Session { session: key(id) }).await.unwrap();
        assert_eq!(removed.frames, 1);
    }
    assert_eq!(server.command(&["KEYS", "*"]), "rekindle:store");
}

/// What a crash can leave in a cluster, where a list and a queue are in other slots than sessions.
#[tokio::test]
async fn a_cluster_mends_what_a_crash_left() {
    let server = cluster();
    let handle = store(&format!("{}?cluster=true&prefix=mend", server.url()));
    created(&*handle, "a").await;
    let names = server.command(&["KEYS", "mend:*:list"]);
    // Listed, but not created; removed and made again, but still listed as it was.
    server.command(&["-c", "ZADD", &names, "0", "00000000000000000005ghost", "0", "00000000000000000006a"]);
    let page = handle.list(&SessionQuery::new(Namespace::default()).with_total()).await.unwrap();
    assert_eq!((page.sessions.len(), page.total), (1, Some(1)));

    // Written to the inbox, but not woken.
    let queue = handle.queue().unwrap();
    queue.enqueue(&NewJob::new(key("a"))).await.unwrap();
    let job = queue.claim(&asking()).await.unwrap().jobs.pop().unwrap();
    let (session, number, wakes) = (key("a"), job.claims, job.wakes);
    let settlement = Settlement::Later { ready_at: None };
    queue.settle(&SettleJob { session, worker: owner(), number, wakes, settlement }).await.unwrap();
    assert!(queue.claim(&asking()).await.unwrap().jobs.is_empty());
    let pending = names.replace(":list", ":pending");
    server.command(&["-c", "ZADD", &pending, "1", "a"]);
    assert_eq!(queue.claim(&asking()).await.unwrap().jobs.pop().unwrap().session, key("a"));
    assert_eq!(server.command(&["-c", "EXISTS", &pending]), "0");
}

/// An inbox is written without its job: nothing is pending once it is done.
#[tokio::test]
async fn a_cluster_forgets_what_is_done() {
    let server = cluster();
    let handle = store(&format!("{}?cluster=true&prefix=done", server.url()));
    created(&*handle, "a").await;
    let info = handle.open(&key("a")).await.unwrap();
    let head: Head = info.branch(&BranchId::inbox()).unwrap().head;
    handle.append(&step_on("a", BranchId::inbox(), head, 10)).await.unwrap();
    assert_eq!(server.command(&["KEYS", "done:*:pending"]), "");
}
