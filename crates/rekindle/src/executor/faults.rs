//! What is wrong with a plan or a graph, all of it at once, each with its place.

use std::fmt;

use rekindle_core::{Error, Result};

/// How many are told.
const TOLD: usize = 10;

/// Something that is wrong with a plan or a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpecFault {
    /// Where, e.g. `steps[3].dependencies[0]`; behind it may stand which step or node that is, in
    /// brackets.
    pub place: String,
    /// What is wrong there.
    pub why: String,
}

/// Everything that is wrong with a plan or a graph: the source of the error its builder gives.
///
/// ```
/// use rekindle::executor::SpecFaults;
/// use rekindle::Plan;
/// use rekindle::plan::StepSpec;
/// use std::error::Error;
///
/// let error = Plan::builder("p").step(StepSpec::new("a", "nothing")).build().unwrap_err();
/// let faults = error.source().and_then(|source| source.downcast_ref::<SpecFaults>()).unwrap();
/// assert_eq!(faults.iter().next().unwrap().place, "steps[0].action (step `a`)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecFaults(Vec<SpecFault>);

impl SpecFaults {
    /// The faults, in the order they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, SpecFault> {
        self.0.iter()
    }
}

impl fmt::Display for SpecFaults {
    /// Only how many there are: the error they are the source of tells them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("one fault"),
            faults => write!(f, "{faults} faults"),
        }
    }
}

impl std::error::Error for SpecFaults {}

/// What is wrong, while it is being gathered.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<SpecFault>);

impl Faults {
    /// Something is wrong at `place`.
    pub(crate) fn add(&mut self, place: impl Into<String>, why: impl AsRef<str>) {
        self.0.push(SpecFault { place: place.into(), why: why.as_ref().to_owned() });
    }

    /// An error if anything is wrong with `what`. What was told is told once.
    pub(crate) fn settle(&mut self, what: &str, name: &str) -> Result<()> {
        let faults = std::mem::take(&mut self.0);
        if faults.is_empty() {
            return Ok(());
        }
        let more = faults.len().saturating_sub(TOLD);
        let told = faults.iter().take(TOLD).map(|fault| format!("{}: {}", fault.place, fault.why));
        let mut text = told.collect::<Vec<_>>().join("; ");
        if more > 0 {
            text.push_str(&format!("; and {more} more"));
        }
        Err(Error::invalid(format!("{what} `{name}` is not valid: {text}")).because(SpecFaults(faults)))
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
