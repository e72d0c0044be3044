//! A store of your own: this one wraps another and is slow on purpose, to show that an agent whose
//! commits overlap with its work does not wait for the disk where it need not.
//!
//! ```text
//! cargo run -p rekindle --example custom_store
//! ```
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rekindle::Durability;
use rekindle::core::{
    Append, Appended, BranchInfo, Capabilities, Fork, FramePage, Lease, LeaseRequest, NewSession, ReadFrames, Removal,
    Removed, SessionPage,
};
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::tool;
use rekindle::{Agent, Engine, Result, SessionInfo, SessionKey, SessionQuery, Store};
use rekindle_models::{Script, ScriptedModel, Turn};
use serde_json::json;

/// Takes its time for every append, and counts them.
#[derive(Debug)]
struct SlowStore {
    inner: Arc<dyn Store>,
    delay: Duration,
    appends: AtomicU64,
}

#[async_trait]
impl Store for SlowStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        self.inner.create(new).await
    }

    async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        self.inner.open(session).await
    }

    async fn append(&self, append: &Append) -> Result<Appended> {
        self.appends.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(self.delay).await;
        self.inner.append(append).await
    }

    async fn read(&self, read: &ReadFrames) -> Result<FramePage> {
        self.inner.read(read).await
    }

    async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        self.inner.list(query).await
    }

    async fn fork(&self, fork: &Fork) -> Result<BranchInfo> {
        self.inner.fork(fork).await
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Lease> {
        self.inner.lease(request).await
    }

    async fn remove(&self, removal: &Removal) -> Result<Removed> {
        self.inner.remove(removal).await
    }
}

#[derive(serde::Deserialize, JsonSchema)]
struct Page {
    number: u32,
}

fn agent(durability: Durability) -> Result<Agent> {
    let read = tool("read", "Reads a page.", async |_, page: Page| Ok(format!("page {}", page.number)));
    let thinking = Duration::from_millis(40);
    let script = (1..=5)
        .map(|number| Turn::call("read", json!({ "number": number })).delayed(thinking))
        .fold(Script::new("scripted"), Script::turn)
        .turn(Turn::text("Read all five.").delayed(thinking));
    Agent::builder("reader", ScriptedModel::new(script)).tool(read).durability(durability).build()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    for durability in [Durability::Sync, Durability::Async] {
        let inner = Engine::memory()?.journal().store().clone();
        let store = Arc::new(SlowStore { inner, delay: Duration::from_millis(20), appends: AtomicU64::new(0) });
        let session = Engine::over(store.clone())?.create("book").await?;
        let start = Instant::now();
        agent(durability)?.run_once("Read the first five pages.", &session).await?;
        let appends = store.appends.load(Ordering::Relaxed);
        println!("{durability:?}: {appends} appends of 20 ms, {} ms in all", start.elapsed().as_millis());
    }
    Ok(())
}
