//! The clocks of this process.

use std::sync::Arc;

use rekindle::core::BootTime;
use rekindle::{Clock, Error, Result, Timestamp};
use rekindle_store::SystemClock;

/// By how many seconds the wall clock of this process is off. For tests of processes whose clocks
/// differ: the kernel is asked for the time, so nothing outside the program can shift it. In no help,
/// because nobody else has a use for it.
const OFFSET: &str = "REKINDLE_TEST_CLOCK_OFFSET";

/// The clocks of this machine, with a wall clock that is off. The clock that started with the machine
/// is as it is.
#[derive(Debug)]
struct Shifted {
    micros: i64,
}

impl Clock for Shifted {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0.saturating_add_signed(self.micros))
    }

    fn since_boot(&self) -> Option<BootTime> {
        SystemClock.since_boot()
    }
}

/// The clock that a test demands, if one does.
pub fn shifted() -> Result<Option<Arc<dyn Clock>>> {
    let Some(text) = std::env::var_os(OFFSET) else { return Ok(None) };
    let seconds = text.to_str().and_then(|text| text.parse::<i32>().ok());
    let seconds = seconds.ok_or_else(|| Error::invalid(format!("${OFFSET} is no number of seconds")))?;
    Ok(Some(Arc::new(Shifted { micros: i64::from(seconds) * 1_000_000 })))
}
