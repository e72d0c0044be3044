//! The life of a worker: claiming jobs, saying that it lives, listening, and draining.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rekindle_core::queue::{Beat, ClaimRequest, Claimed, Held, MAX_CLAIMS, Notice, Notices};
use rekindle_core::{Result, Timestamp};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::event::{WorkerEvent, WorkerReport};
use super::{Core, job};
use crate::engine::Engine;

/// How often runs look into their inbox when the store tells of what arrives.
const SLOW_POLL: Duration = Duration::from_secs(2);
/// How long to wait before a store that failed is asked again.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// How much later a worker looks that met a job it cannot run, so that one that can is quicker.
const AFTER_YOU: Duration = Duration::from_millis(300);
/// A job that becomes ready within this time keeps a worker that ends when it is idle.
const SOON: Duration = Duration::from_secs(5);
/// How often such a worker looks whether others are done.
const IDLE_LOOK: Duration = Duration::from_millis(200);

/// A task that ends with whoever holds this.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Works until it is told to stop.
pub(super) async fn run(core: Arc<Core>) -> Result<WorkerReport> {
    let beaten = core.queue()?.beat(&beat(&core, Timestamp::default(), false)).await?;
    core.observe(beaten.now);
    let started_at = beaten.now;
    let notices = core.queue()?.listen().await;
    // Without word from the store, runs keep looking for themselves.
    let told = notices.is_ok();
    let engine = if told { slowed(&core.engine) } else { core.engine.clone() };
    let _listening = notices.ok().map(|notices| Task(tokio::spawn(listen(Arc::clone(&core), notices))));
    let beating = Task(tokio::spawn(keep_beating(Arc::clone(&core), started_at)));
    core.tell(WorkerEvent::Started { worker: core.name.clone(), slots: core.settings.concurrency });
    let mut jobs = JoinSet::new();
    claim_on(&core, &engine, &mut jobs).await;
    if core.drain.is_cancelled() {
        core.tell(WorkerEvent::Draining { running: core.running().len() });
    }
    while jobs.join_next().await.is_some() {}
    drop(beating);
    // That it cannot say so is no harm: it counts as gone when it was not heard of for a while.
    let _ = core.queue()?.beat(&beat(&core, started_at, true)).await;
    core.tell(WorkerEvent::Stopped);
    Ok(*core.report.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

fn slowed(engine: &Engine) -> Engine {
    engine.clone().with_poll(engine.poll().max(SLOW_POLL))
}

/// Claims jobs and starts them, as long as it should.
async fn claim_on(core: &Arc<Core>, engine: &Engine, jobs: &mut JoinSet<()>) {
    let mut away = false;
    while !core.drain.is_cancelled() {
        while jobs.try_join_next().is_some() {}
        let pause = match claim_once(core, engine, jobs).await {
            Ok(Some(pause)) => {
                away = false;
                pause
            }
            Ok(None) => return,
            Err(error) => {
                if !std::mem::replace(&mut away, true) {
                    core.tell(WorkerEvent::StoreAway { error: error.to_string() });
                }
                STORE_PAUSE
            }
        };
        tokio::select! {
            () = core.changed.notified() => {}
            () = tokio::time::sleep(pause) => {}
            () = core.drain.cancelled() => {}
        }
    }
}

/// Claims as many jobs as there is room for, and starts them: when to look again, or nothing if it
/// is enough.
async fn claim_once(core: &Arc<Core>, engine: &Engine, jobs: &mut JoinSet<()>) -> Result<Option<Duration>> {
    let free = (core.settings.concurrency as usize).saturating_sub(core.running().len()).min(MAX_CLAIMS);
    if free == 0 {
        return Ok(Some(core.settings.sweep));
    }
    let quiet = core.settings.until_idle && is_quiet(core).await?;
    let claimed = claim(core, free).await?;
    let next = claimed.next.map(|next| next.since(claimed.now));
    if quiet && claimed.jobs.is_empty() && next.is_none_or(|next| next > SOON) {
        return Ok(None);
    }
    for claimed in claimed.jobs {
        jobs.spawn(job::handle(Arc::clone(core), engine.clone(), claimed));
    }
    // With room left, whatever else was ready is held back by a limit.
    let most = if core.settings.until_idle { IDLE_LOOK } else { core.settings.sweep };
    let late = if core.missed.load(Ordering::SeqCst) { AFTER_YOU } else { Duration::ZERO };
    Ok(Some(next.map_or(most, |next| (next + late).min(most))))
}

async fn claim(core: &Core, most: usize) -> Result<Claimed> {
    let request = ClaimRequest {
        queues: core.settings.queues.clone(),
        agents: core.agents(),
        agent_limits: core.settings.agent_limits.clone(),
        ..ClaimRequest::new(core.name.clone(), core.engine.namespace().clone(), most, core.settings.hold)
    };
    let claimed = core.queue()?.claim(&request).await?;
    core.observe(claimed.now);
    for job in &claimed.jobs {
        job::take_slot(core, job);
    }
    Ok(claimed)
}

/// Whether nobody has a job of its queues. Asked before a claim: what is given back meanwhile, the
/// claim finds.
async fn is_quiet(core: &Core) -> Result<bool> {
    if !core.running().is_empty() {
        return Ok(false);
    }
    let queues = core.queue()?.queues(core.engine.namespace()).await?;
    let ours = |name| core.settings.queues.is_empty() || core.settings.queues.contains(name);
    Ok(queues.iter().filter(|info| ours(&info.queue)).all(|info| info.claimed == 0))
}

fn beat(core: &Core, started_at: Timestamp, ends: bool) -> Beat {
    let held =
        |(session, running): (&_, &super::Running)| Held { session: Clone::clone(session), number: running.number };
    let held = core.running().iter().map(held).collect();
    Beat { worker: core.info(started_at), held, hold: core.settings.hold, ends }
}

/// Says that the worker lives, often enough to keep its claims.
async fn keep_beating(core: Arc<Core>, started_at: Timestamp) {
    let every = core.settings.hold / 3;
    let mut away = false;
    let mut told_of_drain = false;
    loop {
        let next = Instant::now() + every;
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = core.drain.cancelled(), if !told_of_drain => told_of_drain = true,
        }
        let Ok(queue) = core.queue() else { return };
        match queue.beat(&beat(&core, started_at, false)).await {
            Ok(beaten) => {
                away = false;
                core.observe(beaten.now);
                for session in beaten.lost {
                    // The run's lease decides whether it may still write; it need not go on.
                    if let Some(running) = core.running().get(&session) {
                        running.lost.cancel();
                    }
                }
            }
            Err(error) if !away => {
                away = true;
                core.tell(WorkerEvent::StoreAway { error: error.to_string() });
            }
            Err(_) => {}
        }
    }
}

/// Hands on what the store tells.
async fn listen(core: Arc<Core>, mut notices: Box<dyn Notices>) {
    loop {
        match notices.next().await {
            Notice::Ready => core.changed.notify_one(),
            Notice::Inbox(session) => {
                let here = core.running().contains_key(&session);
                if here {
                    core.engine.live(&session).wake_inbox();
                }
            }
            Notice::Anything => {
                core.changed.notify_one();
                let sessions: Vec<_> = core.running().keys().cloned().collect();
                sessions.iter().for_each(|session| core.engine.live(session).wake_inbox());
            }
        }
    }
}
