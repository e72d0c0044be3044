//! Leases in one statement: what others do while it waits for them counts.

use std::time::Duration;

use rekindle_core::{
    BranchId, ErrorKind, LeaseAction, LeaseRequest, OwnerId, Position, Seq, SessionQuery, Status, StoreExt as _, Target,
};
use rekindle_testkit::message;

use crate::wakes::{Scene, key};

/// The lease of `main`, for a moment, with or without regard to other branches.
fn request(owner: &str, whole_session: bool) -> LeaseRequest {
    let (owner, ttl) = (OwnerId::new(owner).unwrap(), Duration::from_secs(60));
    let action = LeaseAction::Acquire { owner, ttl, whole_session };
    LeaseRequest { session: key(), branch: BranchId::main(), action }
}

impl Scene {
    /// What a request comes to that waits for a session while somebody does `meanwhile` to it.
    async fn lease_while(&self, request: LeaseRequest, meanwhile: &str) -> rekindle_core::Result<rekindle_core::Lease> {
        self.sql("BEGIN; SELECT FROM {s}.sessions FOR UPDATE").await;
        let journal = self.journal.clone();
        let lease = tokio::spawn(async move { journal.store().lease(&request).await });
        self.waiting(1).await;
        self.sql(&format!("{meanwhile}; COMMIT").replace("{soon}", SOON)).await;
        lease.await.unwrap()
    }

    async fn version(&self) -> String {
        let sql = format!("SELECT xmin::text FROM {}.sessions", self.schema);
        self.watching.query_one(&sql, &[]).await.unwrap().get(0)
    }
}

/// A minute from now.
const SOON: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::int8 + 60000000";

/// A branch that was started, and is leased.
const BRANCH: &str = "UPDATE {s}.sessions SET current = current;
    INSERT INTO {s}.branches (session, name, parent_branch, fork_seq, head, head_hash, status, created_at, updated_at, epoch,
        lease_owner, lease_epoch, lease_expires)
    SELECT session, 'other', name, 0, 0, head_hash, status, created_at, updated_at, 1, 'them', 1, {soon}
    FROM {s}.branches WHERE name = 'main'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_was_started_and_leased_meanwhile_counts() {
    let scene = Scene::new().await;
    let before = scene.journal.open(&key()).await.unwrap().branch(&BranchId::main()).unwrap().epoch;
    let refused = scene.lease_while(request("us", true), BRANCH).await.unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::AlreadyRunning { owner, .. } if owner.as_str() == "them"),
        "{refused:?}"
    );
    let lease = scene.journal.store().lease(&request("us", false)).await.unwrap();
    assert_eq!(lease.info.epoch.0, before.0 + 1, "nothing was taken before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_was_taken_meanwhile_counts_and_one_that_ended_does_not() {
    let scene = Scene::new().await;
    let taken = "UPDATE {s}.branches SET epoch = 7, lease_owner = 'them', lease_epoch = 7, lease_expires = {soon}
        WHERE name = 'main'";
    let refused = scene.lease_while(request("us", true), taken).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::AlreadyRunning { .. }), "{refused:?}");
    let ended = "UPDATE {s}.branches SET lease_expires = 1 WHERE name = 'main'";
    let lease = scene.lease_while(request("us", true), ended).await.unwrap();
    assert_eq!((lease.info.owner.as_str(), lease.info.epoch.0), ("us", 8), "the next epoch after theirs");
}

#[tokio::test]
async fn starting_a_branch_writes_the_row_of_its_session() {
    let scene = Scene::new().await;
    let before = scene.version().await;
    let from = Position::new(BranchId::main(), Seq::ZERO);
    scene.journal.fork(&key(), &from, BranchId::new("other").unwrap()).await.unwrap();
    assert_ne!(scene.version().await, before);
}

#[tokio::test]
async fn a_lease_without_end_counts_as_expired() {
    let scene = Scene::new().await;
    let store = scene.journal.store();
    let lease = store.lease(&request("them", true)).await.unwrap();
    let head = lease.head;
    let target = |head| Target::new(key(), BranchId::main(), head);
    for far in ["9223372036854775807", "9000000000000000", "(extract(epoch FROM now()) * 1000000)::int8 + 86460000000"]
    {
        scene
            .sql(&format!("UPDATE {{s}}.branches SET status = 'running', lease_expires = {far} WHERE name = 'main'"))
            .await;
        let fenced = target(head).with_fence(lease.info.epoch);
        let refused = scene.journal.append(&fenced, &[message("m")]).await.unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Fenced { .. }), "{far}: {refused:?}");
        let refused = store.renew(&lease, Duration::from_secs(60)).await.unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Fenced { .. }), "{far}: {refused:?}");
        let interrupted = SessionQuery::new(key().namespace).with_status(Status::Interrupted);
        assert_eq!(scene.journal.list(&interrupted).await.unwrap().sessions.len(), 1, "{far}");
    }
    scene.journal.append(&target(head), &[message("m")]).await.unwrap();
    let taken = store.lease(&request("us", true)).await.unwrap();
    assert_eq!((taken.info.owner.as_str(), taken.info.epoch.0), ("us", lease.info.epoch.0 + 1));
}
