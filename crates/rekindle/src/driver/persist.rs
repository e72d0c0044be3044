//! Writing, and what happens when it fails.

use std::time::Duration;

use rekindle_core::{Error, ErrorKind, Head, Record, Result};

use super::{Core, Driver, PersistFailure};
use crate::event::LiveKind;

impl Driver {
    /// Gives what was staged to the writer.
    pub(super) async fn write(&self, core: &mut Core) -> Result<()> {
        core.forget_written();
        core.stage_ledger()?;
        if core.staged.is_empty() {
            return Ok(());
        }
        core.in_flight = Some((core.writer.head(), core.staged.len()));
        let written = core.writer.commit(&core.staged).await;
        core.forget_written();
        self.shared.committed.store(core.writer.head().seq.0, std::sync::atomic::Ordering::SeqCst);
        match written {
            Ok(_) => Ok(()),
            Err(error) => {
                // What did not even come into the queue.
                let missing = Some(std::mem::take(&mut core.staged)).filter(|records| !records.is_empty());
                self.failed(core, error, missing.as_ref()).await
            }
        }
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
            Err(error) => self.failed(&mut core, error, None).await,
        }
    }

    /// The store failed. `missing` is what is not even in the writer's queue.
    async fn failed(&self, core: &mut Core, error: Error, missing: Option<&Vec<Record>>) -> Result<()> {
        if !is_persistence(&error) {
            return Err(error);
        }
        match self.options().on_persist_failure {
            PersistFailure::Halt => Err(error),
            PersistFailure::Pause => self.wait_for_store(core, error, missing).await,
            PersistFailure::Degrade => {
                if !core.degraded {
                    core.degraded = true;
                    self.say(|| LiveKind::Degraded { error: error.to_string() });
                }
                if let Some(records) = missing {
                    core.writer.hold(records).map_err(|full| full.because(error))?;
                }
                self.try_to_recover(core).await
            }
        }
    }

    /// Stands still until the store is back.
    async fn wait_for_store(&self, core: &mut Core, error: Error, missing: Option<&Vec<Record>>) -> Result<()> {
        self.say(|| LiveKind::StoreAway { error: error.to_string() });
        let mut pause = Duration::from_millis(20);
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.control().asked() => return Err(self.control().lost().unwrap_or(error)),
            }
            pause = (pause * 2).min(Duration::from_secs(2));
            match go_on(core, missing).await {
                Ok(_) => break,
                Err(again) if is_persistence(&again) => {}
                Err(other) => return Err(other),
            }
        }
        self.say(|| LiveKind::StoreBack);
        Ok(())
    }

    /// Tries whether the store is back; if not, the run goes on without it.
    async fn try_to_recover(&self, core: &mut Core) -> Result<()> {
        match go_on(core, None).await {
            Ok(_) => {
                core.degraded = false;
                self.say(|| LiveKind::StoreBack);
                Ok(())
            }
            Err(error) if is_persistence(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Core {
    /// After a write, or one whose future was dropped: what is in the writer's queue is no longer
    /// staged.
    fn forget_written(&mut self) {
        if let Some((before, count)) = self.in_flight.take()
            && self.writer.head() != before
        {
            self.staged.drain(..count);
        }
    }
}

async fn go_on(core: &mut Core, missing: Option<&Vec<Record>>) -> Result<Head> {
    core.writer.retry().await?;
    if let Some(records) = missing {
        core.writer.commit(records).await?;
    }
    core.writer.flush().await
}

/// Whether the store is to blame, rather than the lease or the records.
fn is_persistence(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::StoreUnavailable | ErrorKind::PersistFailed | ErrorKind::Closed)
}
