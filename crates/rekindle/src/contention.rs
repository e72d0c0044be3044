//! Tries again what was refused because others wrote to the same branch at the same time.

use std::time::Duration;

use rekindle_core::{Error, ErrorKind, Result, SessionKey};

use crate::engine::Engine;

/// Number of tries in all.
const TRIES: u32 = 24;
/// The longest pause before the second try; doubled before each further one,
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// up to this.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Counts the tries of one change, and spaces them at random: those who met do not meet again.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    lost: u32,
}

impl Contention {
    /// Waits before the next try. An error once there were too many.
    pub(crate) async fn lost(&mut self, engine: &Engine, session: &SessionKey) -> Result<()> {
        self.lost += 1;
        if self.lost >= TRIES {
            let message = format!("others wrote to the session at the same time, {TRIES} times in a row");
            return Err(Error::new(ErrorKind::StoreUnavailable, message)
                .on(session)
                .hint("nothing was changed; run the same command again"));
        }
        let nonce = engine.journal().ids().nonce();
        let longest = FIRST_PAUSE.saturating_mul(1 << self.lost.min(16)).min(LONGEST_PAUSE);
        tokio::time::sleep(longest.mul_f64(f64::from(nonce[0]) / 255.0)).await;
        Ok(())
    }
}

/// Returns true if another writer was quicker.
pub(crate) fn is_lost(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict { .. })
}
