//! Leases and claims by the server's clock; the suites for all stores bring one of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rekindle_core::queue::{ClaimRequest, NewJob};
use rekindle_core::{BranchId, ErrorKind, Lease, MAX_LEASE, Namespace, OwnerId, Store, StoreExt as _};
use rekindle_fixtures::Redis;
use tokio::time::{sleep, timeout};

use crate::fixtures::{created, frames, key, prefix, step, store};

const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(600);
const DEADLINE: Duration = Duration::from_secs(20);

fn owner(name: &str) -> OwnerId {
    OwnerId::new(name).unwrap()
}

async fn acquire(store: &dyn Store, name: &str, ttl: Duration) -> rekindle_core::Result<Lease> {
    store.acquire(&key("a"), &BranchId::main(), &owner(name), ttl).await
}

#[tokio::test]
async fn leases_end_by_the_servers_clock() {
    let handle = store(&format!("{}?prefix={}", Redis::shared().url(), prefix()));
    let head = created(&*handle, "a").await;
    let first = acquire(&*handle, "first", SHORT).await.unwrap();
    let refused = acquire(&*handle, "second", LONG).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::AlreadyRunning { .. }), "{refused:?}");
    let taken = async {
        loop {
            match acquire(&*handle, "second", LONG).await {
                Ok(lease) => return lease,
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let second = timeout(DEADLINE, taken).await.expect("the first lease ends");
    assert!(second.info.epoch > first.info.epoch);
    let mut append = step("a", head, 10);
    append.fence = Some(first.info.epoch);
    assert!(matches!(handle.append(&append).await.unwrap_err().kind(), ErrorKind::Fenced { .. }));
    append.fence = None;
    assert!(matches!(handle.append(&append).await.unwrap_err().kind(), ErrorKind::AlreadyRunning { .. }));

    // An append keeps the lease alive for as long as it says.
    let second = handle.renew(&second, LONG).await.unwrap();
    (append.fence, append.renew) = (Some(second.info.epoch), Some(LONG * 2));
    handle.append(&append).await.unwrap();
    let info = handle.open(&key("a")).await.unwrap();
    let lease = info.branch(&BranchId::main()).unwrap().lease.clone().unwrap();
    let left = lease.expires_at.since(info.observed_at);
    assert!(left > LONG && left <= LONG * 2, "{left:?}");
    // The longest there is.
    let longest = handle.renew(&second, MAX_LEASE).await.unwrap();
    assert!(matches!(acquire(&*handle, "first", LONG).await.unwrap_err().kind(), ErrorKind::AlreadyRunning { .. }));
    handle.release(&longest).await.unwrap();
    acquire(&*handle, "first", LONG).await.unwrap();
}

#[tokio::test]
async fn a_lease_without_end_counts_as_expired() {
    let prefix = prefix();
    let handle = store(&format!("{}?prefix={prefix}", Redis::shared().url()));
    let head = created(&*handle, "a").await;
    let lease = acquire(&*handle, "first", LONG).await.unwrap();
    let hash = Redis::shared().command(&["KEYS", &format!("{prefix}:*:session")]);
    let ends = |at: &str| Redis::shared().command(&["HSET", &hash, "x:main", at]);
    for far in ["9223372036854775807", "9000000000000000"] {
        ends(far);
        let mut append = step("a", head, 10);
        append.fence = Some(lease.info.epoch);
        assert!(matches!(handle.append(&append).await.unwrap_err().kind(), ErrorKind::Fenced { .. }), "{far}");
        assert!(matches!(handle.renew(&lease, LONG).await.unwrap_err().kind(), ErrorKind::Fenced { .. }), "{far}");
        assert!(handle.open(&key("a")).await.unwrap().live_lease().is_none(), "{far}");
    }
    handle.append(&step("a", head, 10)).await.unwrap();
    let second = acquire(&*handle, "second", LONG).await.unwrap();
    assert_eq!(second.info.epoch.0, lease.info.epoch.0 + 1);
}

#[tokio::test]
async fn claims_run_out_by_the_servers_clock() {
    let handle = store(&format!("{}?prefix={}", Redis::shared().url(), prefix()));
    created(&*handle, "a").await;
    let queue = handle.queue().unwrap();
    queue.enqueue(&NewJob::new(key("a"))).await.unwrap();
    let ask = |name: &str, hold| ClaimRequest::new(owner(name), Namespace::default(), 1, hold);
    assert_eq!(queue.claim(&ask("first", SHORT)).await.unwrap().jobs.len(), 1);
    let taken = async {
        loop {
            let claimed = queue.claim(&ask("second", LONG)).await.unwrap();
            match claimed.jobs.into_iter().next() {
                Some(job) => return job,
                None => sleep(claimed.next.expect("the claim ends").since(claimed.now)).await,
            }
        }
    };
    let job = timeout(DEADLINE, taken).await.expect("the first claim ends");
    assert_eq!((job.claims, job.claim.unwrap().worker), (2, owner("second")));
}

/// What each owner got acknowledged, by record.
type Acknowledged = Arc<Mutex<BTreeMap<u64, u64>>>;

/// Takes the lease whenever it can, appends under it until it is lost, and is late at times.
async fn compete(handle: Arc<dyn Store>, number: usize, acknowledged: Acknowledged, until: Instant) {
    let name = format!("owner {number}");
    let mut turn = 0u64;
    while Instant::now() < until {
        let Ok(lease) = acquire(&*handle, &name, Duration::from_millis(40)).await else {
            sleep(Duration::from_millis(5)).await;
            continue;
        };
        let mut head = lease.head;
        loop {
            turn += 1;
            if turn.is_multiple_of(7) {
                sleep(Duration::from_millis(60)).await;
            }
            // Nobody writes the same: that would be a repetition.
            let mut append = step("a", head, 20 + number);
            append.fence = Some(lease.info.epoch);
            append.renew = turn.is_multiple_of(2).then_some(Duration::from_millis(40));
            match handle.append(&append).await {
                Ok(appended) => head = appended.head,
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Fenced { .. }), "{error:?}");
                    break;
                }
            }
            assert_eq!(acknowledged.lock().unwrap().insert(head.seq.0, lease.info.epoch.0), None);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_never_interleave() {
    let url = format!("{}?prefix={}", Redis::shared().url(), prefix());
    let handle = store(&url);
    created(&*handle, "a").await;
    let acknowledged = Acknowledged::default();
    let until = Instant::now() + Duration::from_secs(3);
    // Two with a connection of their own, two with a shared one.
    let handles = [store(&url), store(&url), handle.clone(), handle.clone()];
    let owners = handles
        .into_iter()
        .enumerate()
        .map(|(number, handle)| tokio::spawn(compete(handle, number, acknowledged.clone(), until)));
    for owner in owners.collect::<Vec<_>>() {
        owner.await.unwrap();
    }
    let acknowledged = acknowledged.lock().unwrap().clone();
    assert_eq!(frames(&*handle, "a").await.len(), acknowledged.len(), "each record was acknowledged once");
    let epochs: Vec<_> = acknowledged.values().collect();
    assert!(epochs.is_sorted(), "an owner wrote after a later one");
    let owners: BTreeSet<_> = epochs.into_iter().collect();
    assert!(owners.len() > 3, "the lease changed hands only {} times", owners.len());
}
