//! Writing, and what happens when it fails.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rekindle_core::{Condition, Error, ErrorKind, Position, Record, Result};

use super::{Core, Driver, PersistFailure, limits, unsaved};
use crate::event::LiveKind;

/// The pause before a store that is away is tried again the first time, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Driver {
    /// Gives what was staged to the writer. Nothing is awaited before it is in the writer's queue,
    /// which keeps it over failures: whoever drops this future loses nothing.
    pub(super) async fn write(&self, core: &mut Core) -> Result<()> {
        core.stage_ledger()?;
        if core.staged.is_empty() {
            return Ok(());
        }
        let head = core.writer.enqueue(&core.staged)?;
        core.staged.clear();
        core.staged_bytes = 0;
        core.unsaved.enqueued(head.seq);
        core.unsaved.saved(core.writer.durable().seq);
        self.shared.committed.store(head.seq.0, Ordering::SeqCst);
        match core.writer.settle().await {
            Ok(()) => Ok(()),
            Err(error) => self.failed(core, error).await,
        }
    }

    /// Commits a record, after everything before it, if a condition on another branch holds; on disk
    /// when it returns. `Overtaken` if it does not: then nothing was recorded.
    pub(super) async fn commit_if(&self, core: &mut Core, record: Record, condition: Condition) -> Result<()> {
        self.write(core).await?;
        match core.writer.commit_if(std::slice::from_ref(&record), condition).await {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Overtaken { .. }) => return Err(error),
            Err(error) => self.failed(core, error).await?,
        }
        self.shared.committed.store(core.writer.head().seq.0, Ordering::SeqCst);
        core.state.apply(&record)
    }

    /// Writes what is staged if more of it would not fit into one batch.
    pub(super) async fn make_room(&self, core: &mut Core, records: &[Record]) -> Result<()> {
        let bytes: usize = records.iter().map(limits::size).sum();
        limits::check_batch(records.len(), bytes, &core.limits)?;
        let full = core.staged_bytes.saturating_add(bytes) > core.limits.batch_bytes / 2
            || core.staged.len() + records.len() > core.limits.batch_records / 2;
        if full { self.write(core).await } else { Ok(()) }
    }

    /// An error if records are too many or too large to be committed together.
    pub(crate) fn check_fits(&self, records: &[Record]) -> Result<()> {
        let bytes: usize = records.iter().map(limits::size).sum();
        limits::check_batch(records.len(), bytes, self.limits())
    }

    /// Everything committed so far is on disk when it returns.
    pub(super) async fn flush(&self) -> Result<()> {
        let mut core = self.shared.core.lock().await;
        self.write(&mut core).await?;
        if core.degraded {
            return self.try_to_recover(&mut core).await;
        }
        match core.writer.flush().await {
            Ok(_) => Ok(()),
            Err(error) => self.failed(&mut core, error).await,
        }
    }

    /// Repeats a read while the store is away, as long as a write would be repeated.
    pub(crate) async fn insist<T, F, Fut>(&self, mut read: F) -> Result<T>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        let mut outage: Option<Outage<'_>> = None;
        loop {
            let error = match read().await {
                Err(error) if is_away(&error) => error,
                other => {
                    if let Some(outage) = outage {
                        outage.over(other.is_ok());
                    }
                    return other;
                }
            };
            outage.get_or_insert_with(|| Outage::new(self, self.patience(), &error)).pause(error).await?;
        }
    }

    /// An error that ended a run which can write nothing more, with what is on record and what is
    /// not.
    pub(super) async fn cut_off(&self, error: Error) -> Error {
        let mut core = self.shared.core.lock().await;
        let durable = core.writer.durable().seq;
        core.unsaved.saved(durable);
        let error = error.adding(format!("on record up to {}", Position::new(self.branch().clone(), durable)));
        match core.unsaved.in_doubt(&core.state, &core.fresh) {
            calls if calls.is_empty() => error,
            calls => {
                error.adding(format!("in doubt, because the outcome is not on record: {}", unsaved::named(&calls)))
            }
        }
    }

    /// The store failed; what was committed stands in the writer's queue.
    async fn failed(&self, core: &mut Core, error: Error) -> Result<()> {
        if !is_persistence(&error) {
            return Err(error);
        }
        match self.options().on_persist_failure {
            PersistFailure::Halt if is_away(&error) => self.wait_for_store(core, error).await,
            PersistFailure::Halt => Err(error),
            PersistFailure::Pause => self.wait_for_store(core, error).await,
            PersistFailure::Degrade => {
                if core.writer.is_full() {
                    let (batches, _) = core.writer.backlog();
                    let message = format!("{batches} batches wait for the store and there is no room for more");
                    return Err(Error::new(ErrorKind::PersistFailed, message).because(error));
                }
                if !core.degraded {
                    core.degraded = true;
                    self.say(|| LiveKind::Degraded { error: error.to_string() });
                }
                self.try_to_recover(core).await
            }
        }
    }

    /// Stands still until the store is back, as long as the run may.
    async fn wait_for_store(&self, core: &mut Core, error: Error) -> Result<()> {
        let mut outage = Outage::new(self, self.patience(), &error);
        let mut last = error;
        loop {
            outage.pause(last).await?;
            match go_on(core).await {
                Ok(()) => break,
                Err(again) if is_persistence(&again) => last = again,
                Err(other) => return Err(other),
            }
        }
        outage.over(true);
        Ok(())
    }

    /// The limit on waiting for a store that is away; none if the run waits until it is back.
    fn patience(&self) -> Option<Duration> {
        match self.options().on_persist_failure {
            PersistFailure::Pause => None,
            PersistFailure::Halt | PersistFailure::Degrade => Some(self.engine().store_patience()),
        }
    }

    /// Tries whether the store is back; if not, the run goes on without it.
    async fn try_to_recover(&self, core: &mut Core) -> Result<()> {
        match go_on(core).await {
            Ok(()) => {
                core.degraded = false;
                self.say(|| LiveKind::StoreBack);
                Ok(())
            }
            Err(error) if is_persistence(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// A time during which the store is away. Its beginning is announced once, and so is its end.
struct Outage<'a> {
    driver: &'a Driver,
    since: Instant,
    pause: Duration,
    patience: Option<Duration>,
}

impl<'a> Outage<'a> {
    fn new(driver: &'a Driver, patience: Option<Duration>, error: &Error) -> Self {
        if patience.is_none_or(|patience| !patience.is_zero()) {
            driver.say(|| LiveKind::StoreAway { error: error.to_string() });
        }
        Self { driver, since: Instant::now(), pause: FIRST_PAUSE, patience }
    }

    /// Waits before the next try. Returns the error if there is to be none: patience has run out,
    /// the lease may have, or the run is to stop.
    async fn pause(&mut self, error: Error) -> Result<()> {
        let is_over = |patience: Duration| self.since.elapsed() >= patience || self.driver.shared.deadline.has_passed();
        if self.patience.is_some_and(is_over) {
            return Err(error);
        }
        // Several runs that lost the same server do not come back to it all at once.
        let spread = self.driver.random() % 256;
        let pause = self.pause.mul_f64(0.75 + spread as f64 / 512.0);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(()),
            () = self.driver.control().asked() => Err(self.driver.control().lost().unwrap_or(error)),
        }
    }

    /// Announces that the store is back, if the answer was a good one.
    fn over(self, well: bool) {
        if well {
            self.driver.say(|| LiveKind::StoreBack);
        }
    }
}

async fn go_on(core: &mut Core) -> Result<()> {
    core.writer.retry().await?;
    core.writer.flush().await.map(drop)
}

/// Whether the store is to blame, rather than the lease or the records.
fn is_persistence(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::StoreUnavailable | ErrorKind::PersistFailed | ErrorKind::Closed)
}

/// Returns true if the store is out of reach or busy, which passes by itself more often than a full disk.
fn is_away(error: &Error) -> bool {
    *error.kind() == ErrorKind::StoreUnavailable
}
