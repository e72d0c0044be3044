//! What is wrong with a plan or a graph, all of it at once, each with its place.

use rekindle_core::{Error, Result};

/// How many are told.
const TOLD: usize = 10;

/// What is wrong.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<String>);

impl Faults {
    /// Something is wrong at `place`.
    pub(crate) fn add(&mut self, place: impl Into<String>, why: impl AsRef<str>) {
        self.0.push(format!("{}: {}", place.into(), why.as_ref()));
    }

    /// An error if anything is wrong with `what`. What was told is told once.
    pub(crate) fn settle(&mut self, what: &str, name: &str) -> Result<()> {
        let faults = std::mem::take(&mut self.0);
        if faults.is_empty() {
            return Ok(());
        }
        let more = faults.len().saturating_sub(TOLD);
        let mut text = faults.into_iter().take(TOLD).collect::<Vec<_>>().join("; ");
        if more > 0 {
            text.push_str(&format!("; and {more} more"));
        }
        Err(Error::invalid(format!("{what} `{name}` is not valid: {text}")))
    }
}

/// What a step or a node may be called, so that it can stand in references, registers and drawings.
pub(crate) fn check_id(id: &str) -> Result<(), String> {
    let legal = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    match id.is_empty() || id.len() > 64 || !id.chars().all(legal) {
        true => {
            let short: String = id.chars().take(80).collect();
            Err(format!("`{short}` is no id; use up to 64 letters, digits, `_` and `-`"))
        }
        false => Ok(()),
    }
}
