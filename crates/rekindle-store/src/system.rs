//! What core may not touch: the operating system's clock and its randomness.

use rekindle_core::{BootTime, Clock, Error, ErrorKind, IdSource, Result, Timestamp};

/// The clocks of this machine.
///
/// On Linux the kernel is asked itself, not the C library, so that all processes of the machine are
/// told the same time.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        machine::now()
    }

    fn since_boot(&self) -> Option<BootTime> {
        machine::since_boot()
    }
}

#[cfg(target_os = "linux")]
mod machine {
    use std::sync::OnceLock;

    use rekindle_core::{BootTime, Hash, Timestamp};
    use rustix::time::{ClockId, Timespec, clock_gettime};

    pub(super) fn now() -> Timestamp {
        Timestamp(micros(clock_gettime(ClockId::Realtime)))
    }

    pub(super) fn since_boot() -> Option<BootTime> {
        static BOOT: OnceLock<Option<u64>> = OnceLock::new();
        let boot = (*BOOT.get_or_init(boot))?;
        Some(BootTime { boot, micros: micros(clock_gettime(ClockId::Boottime)) })
    }

    /// Tells this start of this machine from every other. A time namespace has a boot clock of its own.
    fn boot() -> Option<u64> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
        let hash = Hash::of(format!("{} {}", boot.trim(), namespace.display()).as_bytes());
        hash.0.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn micros(time: Timespec) -> u64 {
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        seconds.saturating_mul(1_000_000).saturating_add(u64::try_from(time.tv_nsec / 1_000).unwrap_or_default())
    }
}

#[cfg(not(target_os = "linux"))]
mod machine {
    use std::time::{SystemTime, UNIX_EPOCH};

    use rekindle_core::{BootTime, Timestamp};

    pub(super) fn now() -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since_epoch.as_micros()).unwrap_or(Timestamp::MAX.0))
    }

    pub(super) fn since_boot() -> Option<BootTime> {
        None
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
