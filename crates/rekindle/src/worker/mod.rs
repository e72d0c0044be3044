//! Workers: processes that share a store and run the sessions that are in its queues.
//!
//! A worker keeps nothing of its own. It claims jobs, runs their sessions under the lease each run
//! takes anyway, and says what became of them; what it held when it died becomes ready by itself,
//! and another worker goes on from the journal. A session that waits holds no slot: an answer, a
//! signal, a message or a time makes its job ready again.
//!
//! ```
//! use rekindle::operations::{self, Enqueue};
//! use rekindle::worker::Worker;
//! use rekindle::{Agent, Engine, SessionHeader};
//! use rekindle_models::{Script, ScriptedModel};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> rekindle::Result<()> {
//! let guide = Agent::builder("guide", ScriptedModel::new(Script::new("m").text("Take a hat."))).build()?;
//! let engine = Engine::memory()?; // a store that processes share: sqlite:, postgres:, redis:
//!
//! let mut header = SessionHeader::new(engine.key("trip-42")?);
//! header.agent = Some("guide".to_owned());
//! operations::enqueue(&engine, &Enqueue::new(header, "maria").message("What should I pack?")).await?;
//!
//! let worker = Worker::builder(engine.clone()).work(guide).until_idle().build()?;
//! let report = worker.run(Default::default()).await?;
//! assert_eq!(report.succeeded, 1);
//! # Ok(()) }
//! ```

mod claims;
mod event;
mod job;
mod look;
mod work;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rekindle_core::queue::{Queue, WorkerInfo};
use rekindle_core::{Error, OwnerId, QueueName, Result, SessionKey, Timestamp};
use tokio::sync::Notify;

pub use event::{WorkerEvent, WorkerReport};
pub use tokio_util::sync::CancellationToken;
pub use work::{Resolver, Work, work};

use crate::engine::Engine;
use crate::operations::queue_of;
use work::Kept;

/// Somebody who is told what a worker does.
type Observer = Arc<dyn Fn(&WorkerEvent) + Send + Sync>;

/// What a worker is to be.
#[must_use = "a builder does nothing before `build`"]
pub struct WorkerBuilder {
    engine: Engine,
    works: Vec<Arc<dyn Work>>,
    resolver: Option<Arc<dyn Resolver>>,
    observer: Option<Observer>,
    name: Option<String>,
    settings: Settings,
    hold: Option<Duration>,
}

/// How a worker behaves.
#[derive(Clone, Debug)]
struct Settings {
    queues: Vec<QueueName>,
    agent_limits: BTreeMap<String, u32>,
    concurrency: u32,
    attempts: u32,
    hold: Duration,
    sweep: Duration,
    accept_drift: Option<String>,
    until_idle: bool,
}

/// Takes jobs from queues and runs their sessions, until it is told to stop.
pub struct Worker {
    core: Arc<Core>,
}

/// What the tasks of a worker share.
struct Core {
    engine: Engine,
    name: OwnerId,
    settings: Settings,
    works: BTreeMap<String, Arc<dyn Work>>,
    resolver: Option<Arc<dyn Resolver>>,
    kept: Kept,
    running: Mutex<HashMap<SessionKey, Running>>,
    /// There may be something to claim, or room for it.
    changed: Notify,
    /// It met a job it cannot run: others go first when that is ready again.
    missed: AtomicBool,
    longest_grace: LongestGrace,
    drain: CancellationToken,
    at_once: CancellationToken,
    report: Mutex<WorkerReport>,
    observer: Option<Observer>,
}

/// The longest grace of the runs a worker has begun, as it is now.
#[derive(Clone, Debug, Default)]
pub struct LongestGrace(Arc<AtomicU64>);

impl LongestGrace {
    /// The time a worker that drains may have to wait for calls under way.
    pub fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn raise(&self, grace: Duration) {
        self.0.fetch_max(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

/// A job under way.
#[derive(Clone, Debug)]
struct Running {
    /// The number of its claim.
    number: u64,
    /// Its claim is somebody else's.
    lost: CancellationToken,
}

impl Worker {
    /// A worker over an engine's store and namespace. Give it something to run.
    pub fn builder(engine: Engine) -> WorkerBuilder {
        let settings = Settings {
            queues: Vec::new(),
            agent_limits: BTreeMap::new(),
            concurrency: 4,
            attempts: 5,
            hold: engine.lease(),
            sweep: Duration::from_secs(5),
            accept_drift: None,
            until_idle: false,
        };
        let (works, resolver, observer, name, hold) = (Vec::new(), None, None, None, None);
        WorkerBuilder { engine, works, resolver, observer, name, settings, hold }
    }

    /// Its name, as others see it.
    pub fn name(&self) -> &OwnerId {
        &self.core.name
    }

    /// The longest grace of its runs, to be looked at while it works.
    pub fn longest_grace(&self) -> LongestGrace {
        self.core.longest_grace.clone()
    }

    /// Works until `drain` is cancelled: then it takes no more jobs, has its runs pause within their
    /// grace, and gives them back for another worker to go on with at once.
    pub async fn run(self, drain: CancellationToken) -> Result<WorkerReport> {
        self.run_until(drain, CancellationToken::new()).await
    }

    /// The same; once `at_once` is cancelled too, calls under way are not waited for any more. What
    /// they did is then in doubt, and treated so by whoever goes on.
    pub async fn run_until(mut self, drain: CancellationToken, at_once: CancellationToken) -> Result<WorkerReport> {
        if let Some(core) = Arc::get_mut(&mut self.core) {
            (core.drain, core.at_once) = (drain, at_once);
        }
        claims::run(self.core).await.map_err(|error| error.during("work"))
    }
}

impl WorkerBuilder {
    /// Something it can run.
    pub fn work(self, work: impl Work) -> Self {
        self.shared_work(Arc::new(work))
    }

    /// The same, shared.
    pub fn shared_work(mut self, work: Arc<dyn Work>) -> Self {
        self.works.push(work);
        self
    }

    /// What finds out what runs a session it has no work for. Without one, it takes the jobs of its
    /// works alone.
    pub fn resolver(mut self, resolver: impl Resolver) -> Self {
        self.resolver = Some(Arc::new(resolver));
        self
    }

    /// A queue it takes jobs from; may be said more than once. Any, if never said.
    pub fn queue(mut self, queue: QueueName) -> Self {
        self.settings.queues.push(queue);
        self
    }

    /// How many jobs it runs at once: 4 unless this says otherwise.
    pub fn concurrency(mut self, most: u32) -> Self {
        self.settings.concurrency = most;
        self
    }

    /// It leaves a job of that agent alone while so many are under way, over all workers.
    pub fn agent_limit(mut self, agent: impl Into<String>, most: NonZeroU32) -> Self {
        self.settings.agent_limits.insert(agent.into(), most.get());
        self
    }

    /// How often a session that does not get on is tried before it is given up: 5 unless this says
    /// otherwise.
    pub fn attempts(mut self, most: u32) -> Self {
        self.settings.attempts = most;
        self
    }

    /// How long a claim lasts without being renewed: as long as the engine's leases unless this says
    /// otherwise.
    pub fn hold(mut self, hold: Duration) -> Self {
        self.hold = Some(hold);
        self
    }

    /// How often it looks for jobs although nobody told it of any: every 5 seconds unless this says
    /// otherwise.
    pub fn sweep(mut self, sweep: Duration) -> Self {
        self.settings.sweep = sweep;
        self
    }

    /// What its name begins with; it ends with something unique.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Goes on with sessions although what runs them changed since; recorded in each.
    pub fn accept_drift(mut self, reason: impl Into<String>) -> Self {
        self.settings.accept_drift = Some(reason.into());
        self
    }

    /// It ends by itself when no job of its queues is ready, under way or about to be ready.
    pub fn until_idle(mut self) -> Self {
        self.settings.until_idle = true;
        self
    }

    /// Is told what the worker does, as it does it. Must return soon.
    pub fn observer(mut self, observer: impl Fn(&WorkerEvent) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// The worker; `Unsupported` if the store keeps no queue.
    pub fn build(self) -> Result<Worker> {
        let context = |error: Error| error.during("build worker");
        queue_of(&self.engine).map_err(context)?;
        self.check().map_err(context)?;
        let engine = match &self.name {
            Some(name) => self.engine.with_owner(name.clone()),
            None => self.engine,
        };
        let name = engine.new_owner().map_err(context)?;
        let hold = self.hold.unwrap_or(self.settings.hold).max(Duration::from_millis(50));
        let core = Core {
            engine,
            name,
            settings: Settings { hold, ..self.settings },
            works: self.works.into_iter().map(|work| (work.name().to_owned(), work)).collect(),
            resolver: self.resolver,
            kept: Kept::default(),
            running: Mutex::default(),
            changed: Notify::new(),
            missed: AtomicBool::new(false),
            longest_grace: LongestGrace::default(),
            drain: CancellationToken::new(),
            at_once: CancellationToken::new(),
            report: Mutex::default(),
            observer: self.observer,
        };
        Ok(Worker { core: Arc::new(core) })
    }

    fn check(&self) -> Result<()> {
        if self.works.is_empty() && self.resolver.is_none() {
            return Err(Error::invalid("the worker has nothing to run").hint("give it an agent, a plan or a graph"));
        }
        let settings = &self.settings;
        for (what, number) in [("concurrency", settings.concurrency), ("attempts", settings.attempts)] {
            if number == 0 {
                let message = format!("with {what} of zero nothing would ever run");
                return Err(Error::invalid(message).hint("use at least 1"));
            }
        }
        let mut names: Vec<&str> = self.works.iter().map(|work| work.name()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::invalid(format!("the worker has two works named `{}`", pair[0]))
                .hint("sessions know what runs them by name: give each its own")),
            None => Ok(()),
        }
    }
}

impl Core {
    fn queue(&self) -> Result<&dyn Queue> {
        queue_of(&self.engine)
    }

    /// The agents whose jobs it takes; nothing means any.
    fn agents(&self) -> Option<Vec<String>> {
        self.resolver.is_none().then(|| self.works.keys().cloned().collect())
    }

    fn running(&self) -> MutexGuard<'_, HashMap<SessionKey, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: WorkerEvent) {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).note(&event);
        if let Some(observer) = &self.observer {
            observer(&event);
        }
    }

    /// Takes note of the store's time.
    fn observe(&self, now: Timestamp) {
        if let Some(seconds) = self.engine.clock().observe(now) {
            self.tell(WorkerEvent::ClockOff { seconds });
        }
    }

    fn info(&self, started_at: Timestamp) -> WorkerInfo {
        WorkerInfo {
            worker: self.name.clone(),
            namespace: self.engine.namespace().clone(),
            queues: self.settings.queues.clone(),
            agents: self.agents(),
            slots: self.settings.concurrency,
            running: u32::try_from(self.running().len()).unwrap_or(u32::MAX),
            draining: self.drain.is_cancelled(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at,
            seen_at: Timestamp::default(),
            until: Timestamp::default(),
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("name", &self.core.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
