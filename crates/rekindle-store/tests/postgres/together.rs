//! Appends that wait together travel together, and nobody notices but the server.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use rekindle_core::codec::Codec;
use rekindle_core::{
    Append, Appended, BranchId, Epoch, ErrorKind, Journal, LogName, OwnerId, Result, SessionHeader, SessionId,
    SessionKey, StoreExt as _,
};
use rekindle_fixtures::Postgres;
use rekindle_store::{StoreOptions, SystemClock, open, system_ids};
use rekindle_testkit::{History, message};
use tokio_postgres::{Client, NoTls};

use crate::fixture::Shared;

const DEADLINE: Duration = Duration::from_secs(60);
/// So many travel alone at a time.
const ALONE: usize = 2;

type Call<'a> = Pin<Box<dyn Future<Output = Result<Appended>> + Send + 'a>>;

fn key(id: &str) -> SessionKey {
    SessionId::new(id).unwrap().into()
}

/// Sessions, and a connection that holds up those that travel alone.
struct Scene {
    journal: Journal,
    schema: String,
    other: Client,
    watching: Client,
    held: Vec<History>,
    histories: Vec<History>,
}

async fn connect() -> Client {
    let (client, connection) = tokio_postgres::connect(&Postgres::shared().url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Scene {
    async fn new(sessions: usize) -> Self {
        let shared = Shared::default();
        let store = open(&shared.url, StoreOptions::new()).unwrap();
        let journal = Journal::new(store, Codec::new(), Arc::new(SystemClock), system_ids().unwrap());
        let (mut held, mut histories) = (Vec::new(), Vec::new());
        for number in 0..ALONE + sessions {
            let id = key(&format!("s{number:02}"));
            journal.create(SessionHeader::new(id.clone())).await.unwrap();
            let mut history = History::begin(&journal, &id).await;
            let lease = journal.store().acquire(&id, &BranchId::main(), &OwnerId::new("o").unwrap(), DEADLINE).await;
            history.fence = Some(lease.unwrap().info.epoch);
            // From then on its row is known.
            history.append_steps(1).await.unwrap();
            if number < ALONE { held.push(history) } else { histories.push(history) }
        }
        let (other, watching) = (connect().await, connect().await);
        Self { journal, schema: shared.quoted_schema(), other, watching, held, histories }
    }

    /// The next append of a session.
    fn next(&self, history: &History, text: &str) -> Append {
        self.journal.prepare(&history.target(), &[message(text)]).unwrap()
    }

    /// Holds up the appends of the first sessions, which thereby are under way.
    async fn hold(&self) -> Vec<tokio::task::JoinHandle<Result<Appended>>> {
        let sql = format!(
            "BEGIN; SELECT FROM {0}.branches b JOIN {0}.sessions s ON s.id = b.session
             WHERE s.session < 's{ALONE:02}' FOR UPDATE OF b",
            self.schema
        );
        self.other.batch_execute(&sql).await.unwrap();
        let appends = self.held.iter().map(|history| self.next(history, "held"));
        let store = self.journal.store();
        let calls: Vec<_> = appends
            .map(|append| {
                let store = Arc::clone(store);
                tokio::spawn(async move { store.append(&append).await })
            })
            .collect();
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND strpos(query, $1) > 0";
        let waits = async {
            while self.watching.query_one(sql, &[&self.schema]).await.unwrap().get::<_, i64>(0) < ALONE as i64 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, waits).await.unwrap();
        calls
    }

    async fn let_go(&self) {
        self.other.batch_execute("COMMIT").await.unwrap();
    }

    /// In how many transactions the last frames of these sessions were written.
    async fn transactions(&self) -> i64 {
        let sql = format!(
            "SELECT count(DISTINCT f.xmin::text) FROM {0}.frames f JOIN {0}.branches b ON b.id = f.branch AND b.head = f.last
             JOIN {0}.sessions s ON s.id = b.session WHERE s.session >= 's{ALONE:02}' AND b.name = 'main'",
            self.schema
        );
        self.watching.query_one(&sql, &[]).await.unwrap().get(0)
    }
}

/// Begins a call: it has its place in the line, and waits.
async fn begin(call: &mut Call<'_>) {
    std::future::poll_fn(|context| {
        assert!(call.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_is_written_in_one_transaction() {
    let scene = Scene::new(20).await;
    let held = scene.hold().await;
    let appends: Vec<Append> = scene.histories.iter().map(|history| scene.next(history, "m")).collect();
    let mut calls: Vec<Call<'_>> = appends.iter().map(|append| scene.journal.store().append(append)).collect();
    for call in &mut calls {
        begin(call).await;
    }
    scene.let_go().await;
    for (append, appended) in appends.iter().zip(join_all(calls).await) {
        assert_eq!(appended.unwrap().head, append.head());
    }
    for call in held {
        call.await.unwrap().unwrap();
    }
    assert_eq!(scene.transactions().await, 1);
    for (history, append) in scene.histories.iter().zip(&appends) {
        let loaded = scene.journal.load(&history.session, None).await.unwrap();
        assert_eq!(loaded.position.seq, append.head().seq);
        assert!(loaded.info.live_lease().is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_refused_does_not_harm_the_others() {
    let scene = Scene::new(6).await;
    let mut appends: Vec<Append> = scene.histories.iter().map(|history| scene.next(history, "m")).collect();
    // One is there already, one is behind a head that moved, one is of an owner who is not it any more.
    scene.journal.store().append(&appends[0]).await.unwrap();
    scene.journal.store().append(&scene.next(&scene.histories[1], "other")).await.unwrap();
    appends[2].fence = Some(Epoch(appends[2].fence.unwrap().0 + 1));
    // And one session writes twice.
    let mut behind = scene.histories[3].clone();
    behind.head = appends[3].head();
    appends.push(scene.next(&behind, "n"));
    let held = scene.hold().await;
    let mut calls: Vec<Call<'_>> = appends.iter().map(|append| scene.journal.store().append(append)).collect();
    for call in &mut calls {
        begin(call).await;
    }
    scene.let_go().await;
    let outcomes = join_all(calls).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        match (at, outcome.as_ref().map_err(|error| error.kind())) {
            (1, Err(ErrorKind::Conflict { .. })) | (2, Err(ErrorKind::Fenced { .. })) => {}
            (0 | 3.., Ok(appended)) => assert_eq!(appended.head, appends[at].head()),
            (_, other) => panic!("{at}: {other:?}"),
        }
    }
    for call in held {
        call.await.unwrap().unwrap();
    }
    let log = LogName::new("messages").unwrap();
    for (at, messages) in [(0, 2), (1, 2), (2, 1), (3, 3), (4, 2)] {
        let loaded = scene.journal.load(&scene.histories[at].session, None).await.unwrap();
        assert_eq!(loaded.state.log(&log).len(), messages, "session {at}");
    }
}

#[test]
fn who_waits_for_a_runtime_that_ends_travels_alone() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let scene = second.block_on(Scene::new(3));
    // Those under way belong to the first runtime, which ends; those who wait belong to the second.
    second.block_on(async {
        let store = scene.journal.store();
        let appends: Vec<Append> = scene.histories.iter().map(|history| scene.next(history, "m")).collect();
        let entered = first.enter();
        let held = scene.hold().await;
        drop(entered);
        let mut calls: Vec<Call<'_>> = appends.iter().map(|append| store.append(append)).collect();
        for call in &mut calls {
            begin(call).await;
        }
        first.shutdown_background();
        for outcome in tokio::time::timeout(DEADLINE, join_all(calls)).await.unwrap() {
            outcome.unwrap();
        }
        for call in held {
            assert!(call.await.is_err(), "its runtime ended");
        }
        scene.let_go().await;
    });
    drop(scene);
}
