//! Leases: one owner, fenced by epoch, expiring by the store's clock.

use std::sync::Arc;
use std::time::Duration;

use rekindle_core::record::{InboxMessage, RunEnded, RunOutcome, RunStarted};
use rekindle_core::{
    BranchId, Epoch, ErrorKind, Json, LeaseAction, LeaseRequest, MAX_LEASE, MessageId, OwnerId, Record, RunId,
    SessionQuery, Status, Store, StoreExt as _,
};

use crate::fixture::{Harness, key};
use crate::history::{History, message};

const TTL: Duration = Duration::from_secs(30);

fn owner(name: &str) -> OwnerId {
    OwnerId::new(name).unwrap()
}

fn run_started() -> Record {
    RunStarted::new(RunId::new("run").unwrap(), "agent").into()
}

fn run_ended(outcome: RunOutcome) -> Record {
    RunEnded::new(RunId::new("run").unwrap(), outcome).into()
}

/// An owner whose lease was taken over can no longer append, renew or release.
pub async fn stale_owner_is_fenced(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut old = History::begin(&journal, &key("a")).await;
    let lease = journal.store().acquire(&key("a"), &BranchId::main(), &owner("old"), TTL).await.unwrap();
    old.fence = Some(lease.info.epoch);
    old.append_steps(2).await.unwrap();
    harness.clock.advance(TTL);
    let taken = journal.store().acquire(&key("a"), &BranchId::main(), &owner("new"), TTL).await.unwrap();
    assert!(taken.info.epoch > lease.info.epoch);
    assert_eq!(taken.head, old.head);
    let error = old.append_steps(1).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Fenced { held: lease.info.epoch, current: taken.info.epoch });
    assert_eq!(error.session(), Some(&key("a")));
    assert!(matches!(journal.store().renew(&lease, TTL).await.unwrap_err().kind(), ErrorKind::Fenced { .. }));
    assert!(matches!(journal.store().release(&lease).await.unwrap_err().kind(), ErrorKind::Fenced { .. }));
    let mut new = old.clone();
    new.fence = Some(taken.info.epoch);
    new.append_steps(1).await.unwrap();
    assert_eq!(journal.load(&key("a"), None).await.unwrap().state, new.state_after(usize::MAX));
}

/// A lease expires by the store's clock: its owner cannot append any more even if nobody took
/// it over, and anybody may.
pub async fn expired_lease_is_taken_over(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut history = History::begin(&journal, &key("a")).await;
    let lease = journal.store().acquire(&key("a"), &BranchId::main(), &owner("one"), TTL).await.unwrap();
    history.fence = Some(lease.info.epoch);
    let refused = journal.store().acquire(&key("a"), &BranchId::main(), &owner("two"), TTL).await.unwrap_err();
    let ErrorKind::AlreadyRunning { owner: holder, until, .. } = refused.kind() else { panic!("{refused:?}") };
    assert_eq!((holder, *until), (&owner("one"), lease.info.expires_at));
    harness.clock.advance(TTL - Duration::from_micros(1));
    history.append_steps(1).await.unwrap();
    harness.clock.advance(Duration::from_micros(1));
    assert!(matches!(history.append_steps(1).await.unwrap_err().kind(), ErrorKind::Fenced { .. }));
    let second = journal.store().acquire(&key("a"), &BranchId::main(), &owner("two"), TTL).await.unwrap();
    assert_eq!(second.info.epoch, Epoch(lease.info.epoch.0 + 1));
    journal.store().release(&second).await.unwrap();
    journal.store().release(&second).await.expect("a release may be repeated");
    // Released: free at once, and the epoch still grows.
    let third = journal.store().acquire(&key("a"), &BranchId::main(), &owner("one"), TTL).await.unwrap();
    assert_eq!(third.info.epoch, Epoch(second.info.epoch.0 + 1));
}

/// Who writes without a lease is refused while somebody holds one.
pub async fn unleased_append_respects_a_lease(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut history = History::begin(&journal, &key("a")).await;
    history.append_steps(1).await.unwrap();
    let lease = journal.store().acquire(&key("a"), &BranchId::main(), &owner("one"), TTL).await.unwrap();
    assert!(matches!(history.append_steps(1).await.unwrap_err().kind(), ErrorKind::AlreadyRunning { .. }));
    journal.store().release(&lease).await.unwrap();
    history.append_steps(1).await.unwrap();
    history.fence = Some(lease.info.epoch);
    assert!(matches!(history.append_steps(1).await.unwrap_err().kind(), ErrorKind::Fenced { .. }));
}

/// One run per session, unless the caller explicitly wants branches to run side by side.
pub async fn a_lease_covers_the_session_unless_told_otherwise(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut history = History::begin(&journal, &key("a")).await;
    history.append_steps(2).await.unwrap();
    let fork = history.fork("side", 2).await.unwrap();
    let main = journal.store().acquire(&key("a"), &BranchId::main(), &owner("one"), TTL).await.unwrap();
    let refused = journal.store().acquire(&key("a"), &fork.branch, &owner("two"), TTL).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::AlreadyRunning { branch, .. } if *branch == BranchId::main()));
    let action = LeaseAction::Acquire { owner: owner("two"), ttl: TTL, whole_session: false };
    let request = LeaseRequest { session: key("a"), branch: fork.branch.clone(), action };
    let side = journal.store().lease(&request).await.unwrap();
    assert_eq!(journal.store().open(&key("a")).await.unwrap().current, fork.branch);
    for (mut history, lease) in [(history, main), (fork, side)] {
        history.fence = Some(lease.info.epoch);
        history.append_steps(1).await.unwrap();
    }
    let inbox = journal.store().acquire(&key("a"), &BranchId::inbox(), &owner("x"), TTL).await.unwrap_err();
    assert_eq!(*inbox.kind(), ErrorKind::Invalid);
}

/// Of many who ask at once, one becomes the owner.
pub async fn only_one_of_many_acquires(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let store: Arc<dyn Store> = journal.store().clone();
            tokio::spawn(
                async move { store.acquire(&key("a"), &BranchId::main(), &owner(&format!("o{n}")), TTL).await },
            )
        })
        .collect();
    let mut owners = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => owners += 1,
            Err(error) => assert!(matches!(error.kind(), ErrorKind::AlreadyRunning { .. }), "{error:?}"),
        }
    }
    assert_eq!(owners, 1);
}

/// A lease ends only for the owner and epoch that are named: of many who saw the same owner dead, one
/// becomes the next owner, and none of the others ends that one's lease.
pub async fn only_the_owner_that_was_seen_is_evicted(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let store = journal.store();
    let dead = store.acquire(&key("a"), &BranchId::main(), &owner("dead"), TTL).await.unwrap();
    let evict = |owner: &str, epoch| {
        let action = LeaseAction::Release { owner: self::owner(owner), epoch };
        LeaseRequest { session: key("a"), branch: BranchId::main(), action }
    };
    let imposter = store.lease(&evict("another", dead.info.epoch)).await.unwrap_err();
    assert!(matches!(imposter.kind(), ErrorKind::Fenced { .. }), "{imposter:?}");
    let refused = store.acquire(&key("a"), &BranchId::main(), &owner("one"), TTL).await.unwrap_err();
    let ErrorKind::AlreadyRunning { owner: holder, epoch, .. } = refused.kind() else { panic!("{refused:?}") };
    assert_eq!((holder, *epoch), (&owner("dead"), dead.info.epoch));
    // Everybody saw the same owner, and ends its lease before asking for one.
    let tasks: Vec<_> = (0..6)
        .map(|n| {
            let (store, request): (Arc<dyn Store>, _) = (store.clone(), evict("dead", dead.info.epoch));
            tokio::spawn(async move {
                match store.lease(&request).await {
                    Err(error) => assert!(matches!(error.kind(), ErrorKind::Fenced { .. }), "{error:?}"),
                    Ok(ended) => assert_eq!(ended.info.epoch, dead.info.epoch),
                }
                store.acquire(&key("a"), &BranchId::main(), &owner(&format!("o{n}")), TTL).await
            })
        })
        .collect();
    let mut granted = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            Ok(lease) => granted.push(lease),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::AlreadyRunning { .. }), "{error:?}"),
        }
    }
    let [winner] = granted.as_slice() else { panic!("{granted:?}") };
    store.renew(winner, TTL).await.expect("the new owner is not evicted by those who saw the old one");
    assert!(matches!(store.renew(&dead, TTL).await.unwrap_err().kind(), ErrorKind::Fenced { .. }));
}

/// An append renews its lease when it says so, and a renewal does too.
pub async fn appends_renew_the_lease(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let history = History::begin(&journal, &key("a")).await;
    let lease = journal.store().acquire(&key("a"), &BranchId::main(), &owner("one"), TTL).await.unwrap();
    harness.clock.advance(TTL / 2);
    let target = history.target().with_fence(lease.info.epoch).with_renew(TTL);
    let head = journal.append(&target, &[message("renews")]).await.unwrap().head;
    harness.clock.advance(TTL / 2);
    let mut target = history.target().with_fence(lease.info.epoch);
    target.expected = head;
    journal.append(&target, &[message("still owner")]).await.unwrap();
    let renewed = journal.store().renew(&lease, TTL).await.unwrap();
    assert_eq!(renewed.info.epoch, lease.info.epoch);
    harness.clock.advance(TTL - Duration::from_secs(1));
    assert!(journal.store().renew(&lease, TTL).await.is_ok());
}

/// No lease is given for longer than [`MAX_LEASE`], and one that ends later than that from now, as after
/// a clock was set back, counts as expired.
pub async fn a_lease_has_a_longest_time(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let store = journal.store();
    let mut history = History::begin(&journal, &key("a")).await;
    let (instant, main) = (Duration::from_micros(1), BranchId::main());
    let is_refused = |error: &rekindle_core::Error| matches!(error.kind(), ErrorKind::Limit { .. });
    for ttl in [MAX_LEASE + instant, Duration::MAX] {
        assert!(is_refused(&store.acquire(&key("a"), &main, &owner("one"), ttl).await.unwrap_err()), "{ttl:?}");
    }
    let lease = store.acquire(&key("a"), &main, &owner("one"), MAX_LEASE).await.unwrap();
    assert!(is_refused(&store.renew(&lease, Duration::MAX).await.unwrap_err()));
    let target = history.target().with_fence(lease.info.epoch).with_renew(MAX_LEASE + instant);
    assert!(is_refused(&journal.append(&target, &[message("too long")]).await.unwrap_err()));
    history.fence = Some(lease.info.epoch);
    history.append(vec![run_started()]).await.unwrap();
    assert_eq!(journal.open(&key("a")).await.unwrap().status(), Status::Running);
    harness.clock.set_back(instant);
    assert_eq!(journal.open(&key("a")).await.unwrap().status(), Status::Interrupted);
    let interrupted = SessionQuery::new(Default::default()).with_status(Status::Interrupted);
    assert_eq!(journal.list(&interrupted).await.unwrap().sessions.len(), 1);
    assert!(matches!(history.append_steps(1).await.unwrap_err().kind(), ErrorKind::Fenced { .. }));
    assert!(matches!(store.renew(&lease, TTL).await.unwrap_err().kind(), ErrorKind::Fenced { .. }));
    history.fence = None;
    history.append_steps(1).await.expect("nobody holds a lease");
    let taken = store.acquire(&key("a"), &main, &owner("two"), TTL).await.unwrap();
    assert_eq!(taken.info.epoch, Epoch(lease.info.epoch.0 + 1));
}

/// A run whose lease expired is listed as interrupted without anybody having marked it.
pub async fn interrupted_is_derived_from_the_lease(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut history = History::begin(&journal, &key("a")).await;
    let lease = journal.store().acquire(&key("a"), &BranchId::main(), &owner("one"), TTL).await.unwrap();
    history.fence = Some(lease.info.epoch);
    history.append(vec![run_started()]).await.unwrap();
    let listed = |status| {
        let journal = journal.clone();
        async move {
            let query = SessionQuery::new(Default::default()).with_status(status).with_total();
            journal.list(&query).await.unwrap().total.unwrap()
        }
    };
    assert_eq!(journal.open(&key("a")).await.unwrap().status(), Status::Running);
    assert_eq!((listed(Status::Running).await, listed(Status::Interrupted).await), (1, 0));
    harness.clock.advance(TTL);
    assert_eq!(journal.open(&key("a")).await.unwrap().status(), Status::Interrupted);
    assert_eq!((listed(Status::Running).await, listed(Status::Interrupted).await), (0, 1));
    let again = journal.store().acquire(&key("a"), &BranchId::main(), &owner("two"), TTL).await.unwrap();
    history.fence = Some(again.info.epoch);
    assert_eq!(journal.open(&key("a")).await.unwrap().status(), Status::Running);
    history.append(vec![run_ended(RunOutcome::Succeeded)]).await.unwrap();
    journal.store().release(&again).await.unwrap();
    assert_eq!(listed(Status::Succeeded).await, 1);
}

/// Anybody may send to a running session, at the same time, and nothing is lost.
pub async fn the_inbox_needs_no_lease(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut history = History::begin(&journal, &key("a")).await;
    let lease = journal.store().acquire(&key("a"), &BranchId::main(), &owner("one"), TTL).await.unwrap();
    history.fence = Some(lease.info.epoch);
    let senders: Vec<_> = (0..6)
        .map(|sender| {
            let journal = journal.clone();
            tokio::spawn(async move {
                for n in 0..5 {
                    let record =
                        InboxMessage::new(MessageId::new(format!("m-{sender}-{n}")).unwrap(), Json::from("hi"));
                    journal.send(&key("a"), &[record.into()]).await.unwrap();
                }
            })
        })
        .collect();
    history.append_steps(10).await.unwrap();
    for sender in senders {
        sender.await.unwrap();
    }
    let entries = journal.read(&key("a"), &BranchId::inbox(), rekindle_core::Seq(1), 1_000).await.unwrap();
    assert_eq!(entries.len(), 30);
    assert_eq!(journal.load(&key("a"), None).await.unwrap().state, history.state_after(usize::MAX));
    assert!(journal.verify(&key("a"), &Default::default()).await.unwrap().is_sound());
}
