//! The remains of a call that did not come back.

/// The parts of an earlier call that still run although they should have ended. The engine then
/// repeats only calls that may be repeated, and tells people about the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Leftovers {
    /// Description of what runs, for people: `process 4711 (sleep)`.
    pub running: Vec<String>,
}

impl Leftovers {
    /// Nothing is left.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns true if nothing is left.
    pub fn is_none(&self) -> bool {
        self.running.is_empty()
    }

    /// Everything that runs, in one line.
    pub(crate) fn text(&self) -> String {
        const SHOWN: usize = 10;
        let more = self.running.len().saturating_sub(SHOWN);
        let shown = self.running.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
        match more {
            0 => shown,
            more => format!("{shown} and {more} more"),
        }
    }
}
