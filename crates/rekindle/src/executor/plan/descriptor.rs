//! Sessions of plans, from their state alone.

use rekindle_core::record::CheckpointType;
use rekindle_core::{Error, Journal, Json, LogName, Record, Result, State};

use super::state::{self, PlanRegister, StepRegister};
use super::{StepStatus, check};
use crate::driver::{DEFINITION, Fingerprint};
use crate::executor::Descriptor;
use crate::executor::call::given_up;

/// The descriptor of plans.
#[derive(Debug)]
pub(crate) struct PlanDescriptor;

impl Descriptor for PlanDescriptor {
    fn kind(&self) -> &str {
        "plan"
    }

    fn is_mid_turn(&self, state: &State) -> bool {
        state::is_mid_turn(state)
    }

    fn closing(&self, state: &State, _: &Journal, _: &str) -> Result<Vec<Record>> {
        let at = PlanRegister::load(state)?;
        let mut records = given_up(state, Vec::new(), "the plan was given up before the call ended");
        if at.turn > 0 && !at.done {
            records.push(PlanRegister { done: true, ..at }.record()?);
        }
        Ok(records)
    }

    fn turn(&self, state: &State) -> Option<u64> {
        PlanRegister::load(state).ok().map(|at| at.turn)
    }

    /// The number of completed steps of this turn.
    fn step(&self, state: &State) -> Option<u64> {
        PlanRegister::load(state).ok().map(|at| at.results(state).len() as u64)
    }

    fn checkpoint_type(&self) -> CheckpointType {
        CheckpointType::Step
    }

    fn result(&self, state: &State) -> Result<Option<Json>> {
        super::child::result(state).map(Some)
    }

    fn check_register(&self, key: &str, value: &Json) -> Result<()> {
        state::check_register(key, value)
    }

    fn check_item(&self, log: &LogName, item: &Json) -> Result<()> {
        state::check_item(log.as_str(), item)
    }

    fn skip_step(&self, state: &State, step: &str) -> Result<Record> {
        let at = PlanRegister::load(state)?;
        if !state::is_mid_turn(state) {
            return Err(Error::invalid("there is no plan under way, so no step can be left out")
                .hint("leave steps out of a plan that failed, waits or is paused"));
        }
        let definition: Option<Fingerprint> = state.register(DEFINITION).map(Json::decode).transpose()?;
        if definition.is_some_and(|plan| !plan.has(&format!("step {step}"))) {
            return Err(check::no_step(step).hint("inspect the session to see its steps"));
        }
        let known = StepRegister::load(state, step, at.turn)?;
        if known.status == StepStatus::Completed {
            return Err(Error::invalid(format!("step `{step}` is completed, so it cannot be left out any more")));
        }
        StepRegister { status: StepStatus::Skipped, ..known }.record(step)
    }
}
