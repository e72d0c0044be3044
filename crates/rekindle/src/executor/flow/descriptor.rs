//! Sessions of flows, from their state alone.

use rekindle_core::{Journal, Json, Record, Result, State};

use super::{FlowState, REGISTER};
use crate::executor::Descriptor;

/// The descriptor of flows.
#[derive(Debug)]
pub(crate) struct FlowDescriptor;

impl FlowDescriptor {
    fn read(state: &State) -> Option<FlowState> {
        state.register(REGISTER)?.decode().ok()
    }
}

impl Descriptor for FlowDescriptor {
    fn kind(&self) -> &str {
        "flow"
    }

    fn is_mid_turn(&self, state: &State) -> bool {
        Self::read(state).is_some_and(|flow| !flow.done)
    }

    fn closing(&self, _: &State, _: &Journal, _: &str) -> Result<Vec<Record>> {
        Ok(Vec::new())
    }

    fn turn(&self, state: &State) -> Option<u64> {
        Self::read(state).map(|flow| flow.turn)
    }

    fn returns_value(&self) -> bool {
        true
    }

    fn check_register(&self, key: &str, value: &Json) -> Result<()> {
        if key == REGISTER { value.decode::<FlowState>().map(drop) } else { Ok(()) }
    }
}
