//! Replicas: those that must confirm what is written, and those that cannot be written.

use rekindle_core::values::{Change, Changed, ValueKey, ValueKind};
use rekindle_core::{ErrorKind, Namespace, NewSession, SessionHeader, Store as _};
use rekindle_fixtures::{Redis, Signal};
use rekindle_store::{StoreOptions, open};

use crate::fixtures::{created, frames, key, step, store, wait_until};

fn pair() -> (Redis, Redis) {
    let primary = Redis::start(&[]);
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &primary.port().to_string()]);
    wait_until("the replica is connected", || {
        primary.command(&["INFO", "replication"]).contains("connected_slaves:1")
            && replica.command(&["INFO", "replication"]).contains("master_link_status:up")
    });
    (primary, replica)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_waits_for_its_replica() {
    let (primary, replica) = pair();
    // The first acknowledgement of a replica takes up to a second.
    wait_until("the replica acknowledges", || primary.command(&["WAIT", "1", "1000"]) == "1");
    let handle = store(&format!("{}?wait=1&wait_timeout=5000", primary.url()));
    let head = created(&*handle, "a").await;
    let head = handle.append(&step("a", head, 10)).await.unwrap().head;

    let hasty = store(&format!("{}?wait=1&wait_timeout=200", primary.url()));
    hasty.open(&key("a")).await.unwrap();
    replica.signal(Signal::Stop);
    let append = step("a", head, 10);
    for _ in 0..2 {
        let error = hasty.append(&append).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::PersistFailed, "{error:?}");
        assert!(error.message().contains("stands on the primary, but 0 of 1 replicas"), "{error}");
    }
    assert_eq!(frames(&*hasty, "a").await.len(), 2, "it was written once");
    replica.signal(Signal::Continue);
    // As new, and over the connection of another handle: a repetition waits, too.
    assert_eq!(handle.append(&append).await.unwrap().head, append.head());
    assert_eq!(frames(&*handle, "a").await.len(), 2);

    primary.command(&["FLUSHALL"]);
    primary.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(*handle.append(&append).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_a_value_waits_for_its_replica_each_time() {
    let (primary, replica) = pair();
    wait_until("the replica acknowledges", || primary.command(&["WAIT", "1", "1000"]) == "1");
    let hasty = || store(&format!("{}?wait=1&wait_timeout=200", primary.url()));
    created(&*store(&primary.url()), "a").await;
    let key = ValueKey::new(Namespace::default(), ValueKind::DATA_KEY, "a").unwrap();
    replica.signal(Signal::Stop);
    let change = Change::set(key, "1").if_is(None);
    for _ in 0..2 {
        // Over a connection of its own, which has written nothing yet that could be waited for.
        let error = hasty().values().unwrap().change(&change).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::PersistFailed, "{error:?}");
    }
    replica.signal(Signal::Continue);
    let patient = store(&format!("{}?wait=1&wait_timeout=5000", primary.url()));
    assert_eq!(patient.values().unwrap().change(&change).await.unwrap(), Changed::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_read_but_not_written() {
    let (primary, replica) = pair();
    let handle = store(&primary.url());
    let head = created(&*handle, "a").await;
    handle.append(&step("a", head, 10)).await.unwrap();
    let error = store(&replica.url()).open(&key("a")).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::StoreUnavailable);
    assert!(error.message().contains("read-only replica of 127.0.0.1"), "{error}");
    assert!(error.next_step().contains("name the primary"), "{error}");

    wait_until("the replica has it", || replica.command(&["DBSIZE"]) == primary.command(&["DBSIZE"]));
    let reader = open(&replica.url(), StoreOptions::new().with_read_only(true)).unwrap();
    assert_eq!(reader.open(&key("a")).await.unwrap().branches.len(), 2);
    assert_eq!(frames(&*reader, "a").await.len(), 1);
    let error = reader.create(&NewSession::new(SessionHeader::new(key("b")))).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_becomes_a_replica_says_so() {
    let (primary, replica) = pair();
    let handle = store(&primary.url());
    let head = created(&*handle, "a").await;
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    primary.command(&["REPLICAOF", "127.0.0.1", &replica.port().to_string()]);
    for _ in 0..2 {
        let error = handle.append(&step("a", head, 10)).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{error:?}");
    }
}
