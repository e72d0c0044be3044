//! A message that arrives while a job is being made: whoever claims the job finds the message, or is
//! woken for it.

use std::sync::Arc;
use std::time::Duration;

use rekindle_core::codec::Codec;
use rekindle_core::queue::{ClaimRequest, Job, JobQuery, NewJob, SettleJob, Settlement};
use rekindle_core::{Append, BranchId, Head, Journal, OwnerId, Seq, SessionHeader, SessionId, SessionKey, Target};
use rekindle_fixtures::Postgres;
use rekindle_store::{StoreOptions, SystemClock, open, system_ids};
use rekindle_testkit::message;
use tokio_postgres::{Client, NoTls};

use crate::fixture::Shared;

const DEADLINE: Duration = Duration::from_secs(60);

/// A session, and a connection that holds others up.
pub(crate) struct Scene {
    pub(crate) journal: Arc<Journal>,
    pub(crate) schema: String,
    other: Client,
    pub(crate) watching: Client,
}

async fn connect() -> Client {
    let (client, connection) = tokio_postgres::connect(&Postgres::shared().url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Scene {
    pub(crate) async fn new() -> Self {
        let shared = Shared::default();
        let store = open(&shared.url, StoreOptions::new()).unwrap();
        let journal = Journal::new(store, Codec::new(), Arc::new(SystemClock), system_ids().unwrap());
        journal.create(SessionHeader::new(key())).await.unwrap();
        let (other, watching) = (connect().await, connect().await);
        Self { journal: Arc::new(journal), schema: shared.quoted_schema(), other, watching }
    }

    pub(crate) async fn sql(&self, sql: &str) {
        self.other.batch_execute(&sql.replace("{s}", &self.schema)).await.unwrap();
    }

    /// Waits until so many statements on this schema wait for a lock.
    pub(crate) async fn waiting(&self, number: i64) {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND strpos(query, $1) > 0";
        let waits = async {
            while self.watching.query_one(sql, &[&self.schema]).await.unwrap().get::<_, i64>(0) < number {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, waits).await.unwrap();
    }

    async fn message(&self) -> Append {
        let genesis = self.journal.open(&key()).await.unwrap().header.genesis;
        let target = Target::new(key(), BranchId::inbox(), Head { seq: Seq::ZERO, hash: genesis });
        self.journal.prepare(&target, &[message("m")]).unwrap()
    }

    async fn job(&self) -> Option<Job> {
        let query = JobQuery::new(key().namespace);
        self.journal.store().queue().unwrap().jobs(&query).await.unwrap().jobs.pop()
    }

    /// Does what a worker does if there is a job: looks into the inbox, and waits for what comes.
    /// Whether there was a job, and a message.
    async fn work(&self) -> Option<bool> {
        let queue = self.journal.store().queue().unwrap();
        let worker = OwnerId::new("worker").unwrap();
        let claimed = queue.claim(&ClaimRequest::new(worker.clone(), key().namespace, 1, DEADLINE)).await.unwrap();
        let job = claimed.jobs.into_iter().next()?;
        let info = self.journal.open(&key()).await.unwrap();
        let found = info.branch(&BranchId::inbox()).unwrap().head.seq > Seq::ZERO;
        let (number, settlement) = (job.claim.unwrap().number, Settlement::Later { ready_at: None });
        queue.settle(&SettleJob { session: key(), worker, number, wakes: job.wakes, settlement }).await.unwrap();
        Some(found)
    }
}

pub(crate) fn key() -> SessionKey {
    SessionId::new("s").unwrap().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_made_while_the_inbox_is_written_is_not_left_asleep() {
    let scene = Scene::new().await;
    scene.sql("BEGIN; SELECT FROM {s}.branches WHERE name = 'inbox' FOR UPDATE").await;
    let (append, journal) = (scene.message().await, scene.journal.clone());
    let append = tokio::spawn(async move { journal.store().append(&append).await });
    scene.waiting(1).await;
    let journal = scene.journal.clone();
    let enqueue = tokio::spawn(async move { journal.store().queue().unwrap().enqueue(&NewJob::new(key())).await });
    // It is there, or waits for the message.
    tokio::select! {
        () = scene.waiting(2) => {}
        () = async { while scene.job().await.is_none() { tokio::task::yield_now().await } } => {}
    }
    let early = scene.work().await;
    scene.sql("COMMIT").await;
    append.await.unwrap().unwrap();
    enqueue.await.unwrap().unwrap();
    assert!(early == Some(true) || scene.work().await == Some(true), "the message waits, and nobody knows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_waited_for_a_job_to_be_made_wakes_it() {
    let scene = Scene::new().await;
    // Somebody makes the same job and takes it back: the other one is held up just before it is there.
    scene
        .sql(
            "BEGIN; INSERT INTO {s}.jobs (session, namespace, name, queue, priority, enqueued_at, claims, attempts, wakes, note)
             VALUES (-1, 'default', 's', 'default', 0, 0, 0, 0, 0, '')",
        )
        .await;
    let journal = scene.journal.clone();
    let enqueue = tokio::spawn(async move { journal.store().queue().unwrap().enqueue(&NewJob::new(key())).await });
    scene.waiting(1).await;
    let (append, journal) = (scene.message().await, scene.journal.clone());
    let append = tokio::spawn(async move { journal.store().append(&append).await });
    scene.waiting(2).await;
    scene.sql("ROLLBACK").await;
    append.await.unwrap().unwrap();
    assert_eq!(enqueue.await.unwrap().unwrap().job.wakes, 0);
    assert_eq!(scene.job().await.unwrap().wakes, 1);
}
