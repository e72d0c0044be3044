//! What core may not touch: the operating system's clock and its randomness.

use std::time::{SystemTime, UNIX_EPOCH};

use rekindle_core::{Clock, Error, ErrorKind, IdSource, Result, Timestamp};

/// The wall clock of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since_epoch.as_micros()).unwrap_or(Timestamp::MAX.0))
    }
}

/// A source of ids seeded by the operating system.
pub fn system_ids() -> Result<IdSource> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| {
        Error::new(ErrorKind::StoreUnavailable, format!("the operating system gave no randomness: {error}"))
    })?;
    Ok(IdSource::seeded(seed))
}
