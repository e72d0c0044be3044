//! In a cluster, inbox and job are in different places: whoever writes may go in between.

use std::sync::Arc;
use std::time::Duration;

use rekindle_core::queue::{ClaimRequest, Job, NewJob, SettleJob, Settlement};
use rekindle_core::{BranchId, OwnerId, Store};
use rekindle_store::{StoreOptions, open};
use rekindle_testkit::ManualClock;

use crate::fixtures::{cluster, created, key, prefix, step_on};

const HOLD: Duration = Duration::from_secs(60);

async fn claim(store: &dyn Store) -> Option<Job> {
    let request = ClaimRequest::new(OwnerId::new("worker").unwrap(), key("s").namespace, 1, HOLD);
    store.queue().unwrap().claim(&request).await.unwrap().jobs.pop()
}

async fn park(store: &dyn Store, job: &Job) {
    let claim = job.claim.clone().unwrap();
    let settlement = Settlement::Later { ready_at: None };
    let settle =
        SettleJob { session: key("s"), worker: claim.worker, number: claim.number, wakes: job.wakes, settlement };
    store.queue().unwrap().settle(&settle).await.unwrap();
}

#[tokio::test]
async fn a_writer_that_went_is_not_forgotten_because_another_one_has_finished() {
    let (server, prefix, clock) = (cluster(), prefix(), Arc::new(ManualClock::default()));
    let url = format!("{}?cluster=true&prefix={prefix}", server.url());
    let store: Arc<dyn Store> = open(&url, StoreOptions::new().with_clock(clock.clone())).unwrap();
    let head = created(&*store, "s").await;
    store.queue().unwrap().enqueue(&NewJob::new(key("s"))).await.unwrap();
    let first = step_on("s", BranchId::inbox(), head, 1);
    store.append(&first).await.unwrap();

    // One write fails in the middle: nobody knows whether it was carried out.
    let second = step_on("s", BranchId::inbox(), first.head(), 1);
    let frames = server.command(&["KEYS", &format!("{prefix}:*:frames:*")]).trim().to_owned();
    let aside = format!("{frames}:aside");
    server.command(&["RENAME", &frames, &aside]);
    server.command(&["SET", &frames, "x"]);
    store.append(&second).await.unwrap_err();
    server.command(&["DEL", &frames]);
    server.command(&["RENAME", &aside, &frames]);

    // Another one gets through, and a worker has seen everything there is.
    store.append(&second).await.unwrap();
    let job = claim(&*store).await.unwrap();
    park(&*store, &job).await;
    assert_eq!(claim(&*store).await, None);
    clock.advance(Duration::from_secs(10));
    assert!(claim(&*store).await.is_some(), "what the one that failed may have written is looked for");
}
