//! Requests that fail on the way there, on the way back and in the middle, through a proxy before the S3.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use rekindle_core::values::{Change, Changed, Expected, ValueKey, ValueKind};
use rekindle_core::{
    Append, BranchId, ErrorKind, Head, LeaseAction, LeaseRequest, Namespace, NewSession, OwnerId, ReadFrames, Store,
};
use rekindle_fixtures::{Proxy, ProxyFault, S3, S3Request};
use rekindle_store::{Bucket, ObjectsStore, StoreOptions};

use crate::script::{frame, head_of, header, key};

/// A proxy before an S3 of its own.
fn proxied() -> Proxy {
    Proxy::start(S3::start().port())
}

fn opened(proxy: &Proxy, settings: &str) -> ObjectsStore {
    ObjectsStore::open(&(proxy.url("b") + settings), StoreOptions::new()).unwrap()
}

/// The plan that does `fault` to the first request of each kind for each object.
fn each_once(fault: ProxyFault) -> impl FnMut(&S3Request) -> ProxyFault + Send + 'static {
    let mut seen = HashSet::new();
    move |request| match seen.insert((request.method.clone(), request.key.clone())) {
        true => fault,
        false => ProxyFault::None,
    }
}

/// Creates a session, leases it, appends, and reads everything with a handle that knows nothing.
async fn works(store: &ObjectsStore, fresh: &ObjectsStore) {
    let created = store.create(&NewSession::new(header("a"))).await.unwrap();
    let main = BranchId::main();
    let mut head = created.branch(&main).unwrap().head;
    let action =
        LeaseAction::Acquire { owner: OwnerId::new("o").unwrap(), ttl: Duration::from_secs(3600), whole_session: true };
    let lease = LeaseRequest { session: key("a"), branch: main.clone(), action };
    let epoch = store.lease(&lease).await.unwrap().info.epoch;
    for n in 0..6 {
        head = append(store, head, epoch, n).await;
    }
    let slots = fresh.read(&ReadFrames::all(key("a"), main.clone())).await.unwrap().slots;
    assert_eq!(slots.len(), 6);
    assert_eq!(fresh.open(&key("a")).await.unwrap().branch(&main).unwrap().head, head);
    let values = store.values().unwrap();
    let name = ValueKey::new(Namespace::default(), ValueKind::DATA_KEY, "k").unwrap();
    for (expected, value) in [(None, "1"), (Some("1"), "2")] {
        let expected = Expected::Is(expected.map(Bytes::from));
        let change = Change { key: name.clone(), expected, value: Some(value.into()) };
        assert_eq!(values.change(&change).await.unwrap(), Changed::Done, "it did not recognise itself");
    }
}

async fn append(store: &ObjectsStore, head: Head, epoch: rekindle_core::Epoch, n: usize) -> Head {
    let frame = frame(&key("a"), &BranchId::main(), head, &format!("text {n}"));
    let mut append = Append::new(key("a"), BranchId::main(), head, vec![frame.clone()]);
    append.fence = Some(epoch);
    assert_eq!(store.append(&append).await.unwrap().head, head_of(&frame));
    head_of(&frame)
}

#[tokio::test]
async fn each_request_may_fail_once_in_any_way() {
    for fault in [
        ProxyFault::SlowDown,
        ProxyFault::Cut,
        ProxyFault::ReplyLost,
        ProxyFault::CutBehind,
        ProxyFault::Truncated(0),
        ProxyFault::Truncated(20),
    ] {
        let proxy = proxied();
        proxy.set_faults(each_once(fault));
        let store = opened(&proxy, "");
        works(&store, &opened(&proxy, "")).await;
        assert!(store.retries().requests > 5, "{fault:?}: {:?}", store.retries());
    }
}

#[tokio::test]
async fn each_write_may_go_unanswered() {
    for (fault, settings) in [
        (ProxyFault::SilentBehind, "&answer_within=200ms"),
        (ProxyFault::Silent, "&answer_within=200ms"),
        // The client's own timeout.
        (ProxyFault::SilentBehind, "&timeout=1%20s"),
    ] {
        let proxy = proxied();
        let mut plan = each_once(fault);
        proxy.set_faults(move |request| match request.method.as_str() {
            "PUT" if request.key.contains("/log/") || request.key.starts_with("values/") => plan(request),
            _ => ProxyFault::None,
        });
        let store = opened(&proxy, settings);
        works(&store, &opened(&proxy, settings)).await;
        assert!(store.retries().requests > 5, "{fault:?}: {:?}", store.retries());
    }
}

#[tokio::test]
async fn four_seconds_of_throttling_are_waited_out() {
    let proxy = proxied();
    let store = opened(&proxy, "");
    proxy.throttle(Duration::from_secs(4));
    store.create(&NewSession::new(header("a"))).await.unwrap();
    let retries = store.retries();
    assert!(retries.requests > 4 && retries.last.unwrap().contains("503"));
}

#[tokio::test]
async fn refused_connections_are_tried_again_until_there_is_one() {
    let proxy = proxied();
    let store = opened(&proxy, "");
    store.create(&NewSession::new(header("a"))).await.unwrap();
    let before = store.retries().requests;
    proxy.refuse();
    let opening = tokio::spawn({
        let store = store.clone();
        async move { store.open(&key("a")).await }
    });
    // More than the half second after which it was given up once.
    while store.retries().requests < before + 5 {
        assert!(!opening.is_finished(), "it was given up");
        tokio::task::yield_now().await;
    }
    proxy.accept();
    opening.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_was_tried_for_long_enough_says_so() {
    let proxy = proxied();
    proxy.set_faults(|_| ProxyFault::SlowDown);
    for (settings, requests) in [("&retry_attempts=3", 3), ("&retry_for=0s", 1)] {
        let bucket = Bucket::open(&(proxy.url("b") + settings), &StoreOptions::new()).unwrap();
        proxy.take_requests();
        let error = bucket.get("a").await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::StoreUnavailable);
        assert_eq!(proxy.take_requests().len(), requests, "{settings}");
        assert_eq!(error.to_string().contains("tried 3 times in "), requests == 3, "{error}");
    }
    for wrong in ["&retry_for=soon", "&retry_attempts=0", "&answer_within=5"] {
        let error = Bucket::open(&(proxy.url("b") + wrong), &StoreOptions::new()).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Invalid, "{wrong}: {error}");
    }
}
