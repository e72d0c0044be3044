//! Stores that several workers share, work for them, and hands that hold them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rekindle::operations::{self, Enqueue, EnqueuedJob, JobInput, JobView};
use rekindle::worker::{Worker, WorkerBuilder, WorkerEvent, WorkerReport};
use rekindle::{Engine, Flow, Json, Result, SessionHeader, SessionKey, State, Status, Store};
use rekindle_store::{MemoryStore, StoreOptions};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::Ledger;

/// How long leases and claims last.
pub const LEASE: Duration = Duration::from_millis(1_500);

/// A store that keeps a queue, and what it is called.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Memory,
    Sqlite,
}

/// A store that outlives the processes that open it.
pub struct Place {
    kind: Kind,
    directory: TempDir,
    memory: MemoryStore,
}

impl Place {
    pub fn new(kind: Kind) -> Self {
        Self { kind, directory: TempDir::new().unwrap(), memory: MemoryStore::new(StoreOptions::new()) }
    }

    /// The store, as a new process would open it.
    pub fn store(&self) -> Arc<dyn Store> {
        match self.kind {
            Kind::Memory => Arc::new(self.memory.clone()),
            Kind::Sqlite => {
                let url = format!("sqlite:{}/store.db", self.directory.path().display());
                rekindle_store::open(&url, StoreOptions::new()).unwrap()
            }
        }
    }

    /// An engine of its own.
    pub fn engine(&self) -> Engine {
        Engine::over(self.store()).unwrap().with_lease(LEASE).with_poll(Duration::from_millis(20))
    }

    pub fn ledger(&self) -> Ledger {
        Ledger::new(self.directory.path().join("ledger"))
    }

    /// The database of a store that is one.
    pub fn database(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.directory.path().join("store.db")).unwrap()
    }

    pub fn ledger_path(&self) -> String {
        self.directory.path().join("ledger").display().to_string()
    }

    /// A worker of its own over that store.
    pub fn worker(&self) -> WorkerBuilder {
        Worker::builder(self.engine()).sweep(Duration::from_millis(500))
    }
}

/// Tests over each store that keeps a queue.
macro_rules! on_each_store {
    ($($test:ident)*) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::kit::Place::new(crate::kit::Kind::Memory)).await;
            })*
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::kit::Place::new(crate::kit::Kind::Sqlite)).await;
            })*
        }
    };
}
pub(crate) use on_each_store;

/// A worker at work.
pub struct Hand {
    pub drain: CancellationToken,
    events: Arc<Mutex<Vec<WorkerEvent>>>,
    task: JoinHandle<Result<WorkerReport>>,
}

/// Has a worker work.
pub fn working(builder: WorkerBuilder) -> Hand {
    let (drain, events) = (CancellationToken::new(), Arc::new(Mutex::new(Vec::new())));
    let heard = Arc::clone(&events);
    let worker = builder.observer(move |event| heard.lock().unwrap().push(event.clone())).build().unwrap();
    let task = tokio::spawn(worker.run(drain.clone()));
    Hand { drain, events, task }
}

impl Hand {
    pub fn events(&self) -> Vec<WorkerEvent> {
        self.events.lock().unwrap().clone()
    }

    /// Drains it.
    pub async fn stop(self) -> WorkerReport {
        self.drain.cancel();
        self.task.await.unwrap().unwrap()
    }

    /// Waits until it ends by itself.
    pub async fn end(self) -> WorkerReport {
        tokio::time::timeout(Duration::from_secs(60), self.task).await.unwrap().unwrap().unwrap()
    }
}

/// Waits until something is so; a minute is more than any machine needs.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(60), async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what} never came"));
}

pub fn header(engine: &Engine, id: &str, agent: &str) -> SessionHeader {
    SessionHeader { agent: Some(agent.to_owned()), ..SessionHeader::new(engine.key(id).unwrap()) }
}

/// A job with an input.
pub fn job(engine: &Engine, id: &str, agent: &str, input: impl Into<Value>) -> Enqueue {
    Enqueue::new(header(engine, id, agent), "maria").input(JobInput::Input(Json::from(input.into())))
}

pub async fn put(engine: &Engine, id: &str, agent: &str, input: impl Into<Value>) -> EnqueuedJob {
    operations::enqueue(engine, &job(engine, id, agent, input)).await.unwrap()
}

pub async fn state(engine: &Engine, id: &str) -> State {
    engine.journal().load(&engine.key(id).unwrap(), None).await.unwrap().state
}

pub async fn status(engine: &Engine, id: &str) -> Status {
    engine.journal().open(&engine.key(id).unwrap()).await.unwrap().status()
}

pub async fn job_of(engine: &Engine, id: &str) -> Option<JobView> {
    operations::job(engine, &engine.key(id).unwrap()).await.unwrap()
}

/// Waits until a session is in that status and has no job.
pub async fn until_over(engine: &Engine, id: &str, wanted: Status) {
    until(&format!("{id} {wanted}"), async || status(engine, id).await == wanted && job_of(engine, id).await.is_none())
        .await;
}

/// A flow that writes its input into the ledger, once the gate lets it.
pub fn noting(name: &str, ledger: &Ledger, gate: &Arc<Semaphore>) -> Flow {
    let (ledger, gate) = (ledger.clone(), Arc::clone(gate));
    Flow::new(name, move |context, what: String| {
        let (ledger, gate) = (ledger.clone(), Arc::clone(&gate));
        async move {
            let note = async |_| {
                gate.acquire().await.unwrap().forget();
                ledger.write(&what);
                Ok(true)
            };
            context.step("note", &what, note).await
        }
    })
}

/// A gate that lets everybody through.
pub fn open_gate() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(Semaphore::MAX_PERMITS))
}

/// A worker in a process of its own, as far as its tasks go: they end without a word when it dies.
pub struct Mortal(tokio::runtime::Runtime);

impl Mortal {
    pub fn working(builder: WorkerBuilder) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let worker = builder.build().unwrap();
        runtime.spawn(worker.run(CancellationToken::new()));
        Self(runtime)
    }

    pub fn die(self) {
        self.0.shutdown_background();
    }
}

pub fn key(engine: &Engine, id: &str) -> SessionKey {
    engine.key(id).unwrap()
}
