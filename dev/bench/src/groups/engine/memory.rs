//! What a long session holds in memory while it runs, measured in a process of its own.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rekindle::Durability;
use rekindle::core::record::{InDoubtPolicy, LogAppend};
use rekindle::core::{LogName, Target};
use rekindle::message::Message;
use rekindle::model::{Answer, Deltas, Model, ModelCapabilities, ModelError, ModelRequest};
use rekindle::{Agent, BranchId, Engine, Json};
use rekindle_core::codec::Codec;
use tokio::runtime::Builder;

use super::subject::Fetch;
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::groups::child;
use crate::workload::{Messages, StoreKind};

/// The messages of a long session.
const MESSAGES: usize = 10_000;
/// The flag under which this program measures itself; not for people.
pub const FLAG: &str = "--resident-child";

/// Measures memory.
pub async fn measure(bench: &Bench) -> Result<()> {
    bench.progress("resident memory of a long session");
    let directory = bench.directory()?;
    let bytes = write_session(directory.path()).await?;
    let told = child(FLAG, directory.path())?;
    let [resident] = told[..] else { return Err("the child did not tell one figure".into()) };
    let name = format!("resident memory of a session of {MESSAGES} messages");
    bench.record(name, (resident, bytes as f64), "bytes", Bar::AtMost(2.0))
}

async fn write_session(directory: &std::path::Path) -> Result<usize> {
    let engine = Engine::with_journal(StoreKind::Sqlite.journal(directory, Codec::new())?);
    let session = engine.create("long").await?;
    let log = LogName::new("messages")?;
    let mut texts = Messages::new(11);
    let mut head = session.info().await?.branch(&BranchId::main())?.head;
    let mut bytes = 0;
    for _ in 0..MESSAGES / 100 {
        let items = (0..100).map(|index| {
            let text = texts.next().content;
            let message = if index % 2 == 0 { Message::user(text) } else { Message::assistant(text) };
            message.to_json()
        });
        let items: Vec<Json> = items.collect::<rekindle::Result<_>>()?;
        bytes += items.iter().map(|item| item.as_str().len()).sum::<usize>();
        let target = Target::new(session.key().clone(), BranchId::main(), head);
        let appended = engine.journal().append(&target, &[LogAppend::new(log.clone(), items).into()]).await?;
        head = appended.head;
    }
    Ok(bytes)
}

/// Looks at the memory of its process when it is asked, and answers nothing of use.
#[derive(Debug)]
struct Looking(Arc<std::sync::atomic::AtomicUsize>);

#[async_trait]
impl Model for Looking {
    fn name(&self) -> &str {
        "looking"
    }

    fn capabilities(&self) -> ModelCapabilities {
        ModelCapabilities::default()
    }

    async fn answer(&self, request: &ModelRequest, _deltas: &Deltas) -> Result<Answer, ModelError> {
        // What was freed while the session was restored is given back to the system in time.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let resident = resident().map_err(|error| ModelError::fatal(error.to_string()))?;
        self.0.store(resident, std::sync::atomic::Ordering::SeqCst);
        Ok(Answer::text(format!("{} messages", request.view.len())))
    }
}

/// Runs a turn of the session in `directory` and prints by how much the process grew.
pub fn resident_child(directory: &std::path::Path) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let engine = Engine::with_journal(StoreKind::Sqlite.journal(directory, Codec::new())?);
        let session = engine.open_session("long").await?;
        let seen = Arc::default();
        let agent = Agent::builder("bench", Looking(Arc::clone(&seen)))
            .tool(Fetch::new(InDoubtPolicy::ReplaySafe)?)
            .durability(Durability::Async)
            .build()?;
        let before = resident()?;
        agent.run_once("and now?", &session).await?;
        println!("{}", seen.load(std::sync::atomic::Ordering::SeqCst).saturating_sub(before));
        Ok(())
    })
}

/// The resident memory of this process, in bytes.
fn resident() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kilobytes: usize = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1_024)
}
