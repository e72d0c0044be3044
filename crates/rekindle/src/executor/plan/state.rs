//! Where a plan stands, as the session's registers and logs say it.
//!
//! | name | holds |
//! | --- | --- |
//! | register `plan` | [`PlanRegister`] |
//! | register `step/<id>` | [`StepRegister`]; a step without one is pending |
//! | register `memory/<key>` | the context |
//! | log `results` | [`StepResult`] of each completed step, in the order they ended |

use std::sync::LazyLock;

use rekindle_core::record::RegisterSet;
use rekindle_core::{Json, LogName, Record, Result, State, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::driver::register;

/// The register that says which run of the plan this is.
pub const PLAN: &str = "plan";
/// The prefix of the registers of steps.
pub const STEP: &str = "step/";

/// The log of what steps gave back.
pub fn results() -> LogName {
    static NAME: LazyLock<LogName> =
        LazyLock::new(|| LogName::new("results").expect("`results` is a legal name of a log"));
    NAME.clone()
}

/// Which run of the plan this is, and whether it is over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlanRegister {
    /// The turn, from 1: each time the plan is run anew.
    pub turn: u64,
    /// The request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub query: String,
    /// Whether it has come to its end, well or not. One that failed goes on when it is resumed.
    #[serde(default)]
    pub done: bool,
    /// How many results of earlier turns stand in the log.
    #[serde(default)]
    pub results_from: usize,
    /// The last failure of this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
}

/// What went wrong last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LastError {
    /// The step that failed.
    pub step: String,
    /// What it said.
    pub message: String,
    /// When.
    pub at: Timestamp,
}

/// How far a step is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepStatus {
    /// It waits for its dependencies, or for its turn.
    #[default]
    Pending,
    /// It has begun and not ended.
    Running,
    /// It is done.
    Completed,
    /// It failed.
    Failed,
    /// Somebody decided that it is left out.
    Skipped,
    /// Something it depends on failed.
    Blocked,
}

impl StepStatus {
    /// The name used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Blocked => "blocked",
        }
    }
}

/// How far a step is, as its register says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StepRegister {
    /// The turn it is about; in another turn, the step is pending.
    pub turn: u64,
    /// How far the step is in that turn.
    pub status: StepStatus,
    /// How often it failed for good: each resume tries it anew.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// What it said then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

fn is_zero(failures: &u32) -> bool {
    *failures == 0
}

/// What a completed step gave back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StepResult {
    /// The step.
    pub step_id: String,
    /// What its tool gave back.
    pub output: Json,
    /// When.
    pub completed_at: Timestamp,
    /// How long it took, all tries together.
    pub duration_ms: u64,
    /// The tokens it used.
    #[serde(default, skip_serializing_if = "no_tokens")]
    pub tokens: u64,
}

fn no_tokens(tokens: &u64) -> bool {
    *tokens == 0
}

impl PlanRegister {
    pub(crate) fn load(state: &State) -> Result<Self> {
        Ok(state.register(PLAN).map(Json::decode).transpose()?.unwrap_or_default())
    }

    pub(crate) fn record(&self) -> Result<Record> {
        Ok(RegisterSet::new(register(PLAN)?, Json::of(self)?).into())
    }

    /// The results of this turn.
    pub(crate) fn results<'a>(&self, state: &'a State) -> &'a [Json] {
        // The name is static, so the borrow is of the state alone.
        state.log(&results()).get(self.results_from..).unwrap_or_default()
    }
}

impl StepRegister {
    /// A step that is so far, without failures.
    pub fn new(turn: u64, status: StepStatus) -> Self {
        Self { turn, status, failures: 0, error: None }
    }

    /// How far the step is in that turn.
    pub(crate) fn load(state: &State, step: &str, turn: u64) -> Result<Self> {
        let known: Option<Self> = state.register(&format!("{STEP}{step}")).map(Json::decode).transpose()?;
        Ok(known.filter(|known| known.turn == turn).unwrap_or(Self::new(turn, StepStatus::Pending)))
    }

    pub(crate) fn record(&self, step: &str) -> Result<Record> {
        Ok(RegisterSet::new(register(&format!("{STEP}{step}"))?, Json::of(self)?).into())
    }
}

impl StepResult {
    /// The result of a step that took no time and no tokens.
    pub fn new(step: &str, output: Json, completed_at: Timestamp) -> Self {
        Self { step_id: step.to_owned(), output, completed_at, duration_ms: 0, tokens: 0 }
    }
}

impl LastError {
    /// A failure of `step` at `now`.
    pub fn new(step: &str, message: &str, now: Timestamp) -> Self {
        Self { step: step.to_owned(), message: message.to_owned(), at: now }
    }
}

/// Whether the plan has not come to its end, as far as the state says.
pub(crate) fn is_mid_turn(state: &State) -> bool {
    PlanRegister::load(state).is_ok_and(|plan| plan.turn > 0 && !plan.done)
}

/// An error if a plan could not read `value` in the register `key`. Registers that are none of its
/// own take anything.
pub(crate) fn check_register(key: &str, value: &Json) -> Result<()> {
    match key {
        PLAN => value.decode::<PlanRegister>().map(drop),
        _ if key.starts_with(STEP) => value.decode::<StepRegister>().map(drop),
        _ => Ok(()),
    }
}

/// An error if a plan could not read `item` in the log of that name. Logs that are none of its own
/// take anything.
pub(crate) fn check_item(log: &str, item: &Json) -> Result<()> {
    if log == results().as_str() { item.decode::<StepResult>().map(drop) } else { Ok(()) }
}
