//! Writing, and what happens when it fails.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rekindle_core::{Condition, Error, ErrorKind, Record, Result};

use super::{Core, Driver, PersistFailure, limits};
use crate::event::LiveKind;

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

    /// The store failed; what was committed stands in the writer's queue.
    async fn failed(&self, core: &mut Core, error: Error) -> Result<()> {
        if !is_persistence(&error) {
            return Err(error);
        }
        match self.options().on_persist_failure {
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

    /// Stands still until the store is back.
    async fn wait_for_store(&self, core: &mut Core, error: Error) -> Result<()> {
        self.say(|| LiveKind::StoreAway { error: error.to_string() });
        let mut pause = Duration::from_millis(20);
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.control().asked() => return Err(self.control().lost().unwrap_or(error)),
            }
            pause = (pause * 2).min(Duration::from_secs(2));
            match go_on(core).await {
                Ok(()) => break,
                Err(again) if is_persistence(&again) => {}
                Err(other) => return Err(other),
            }
        }
        self.say(|| LiveKind::StoreBack);
        Ok(())
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

async fn go_on(core: &mut Core) -> Result<()> {
    core.writer.retry().await?;
    core.writer.flush().await.map(drop)
}

/// Whether the store is to blame, rather than the lease or the records.
fn is_persistence(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::StoreUnavailable | ErrorKind::PersistFailed | ErrorKind::Closed)
}
