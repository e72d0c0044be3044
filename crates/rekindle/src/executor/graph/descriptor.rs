//! Sessions of graphs, from their state alone.

use rekindle_core::record::CheckpointType;
use rekindle_core::{EffectId, Journal, Json, LogName, Record, RegisterKey, Result, State};

use super::state::{self, GraphRegister, OVERLAY};
use super::{GraphState, NODE};
use crate::executor::agent::{Scope, closing_in, settled_in, unended_calls};
use crate::executor::call::given_up;
use crate::executor::{Descriptor, Settled, View};

/// The descriptor of graphs.
#[derive(Debug)]
pub(crate) struct GraphDescriptor;

impl Descriptor for GraphDescriptor {
    fn kind(&self) -> &str {
        "graph"
    }

    fn is_mid_turn(&self, state: &State) -> bool {
        state::is_mid_turn(state)
    }

    fn closing(&self, state: &State, journal: &Journal, why: &str) -> Result<Vec<Record>> {
        let at = GraphRegister::load(state)?;
        let mut records: Vec<Record> = Vec::new();
        if at.turn == 0 || at.done {
            return Ok(records);
        }
        for scope in loops(state) {
            records.extend(closing_in(state, journal, &scope, why)?);
        }
        let mut records = given_up(state, records, why);
        records.push(GraphRegister { done: true, ..at }.record()?);
        Ok(records)
    }

    /// The calls of the last answers of agents in nodes that have not ended.
    fn unended_calls(&self, state: &State) -> Result<Vec<EffectId>> {
        let mut calls = Vec::new();
        for scope in loops(state) {
            calls.extend(unended_calls(state, &scope)?);
        }
        Ok(calls)
    }

    fn turn(&self, state: &State) -> Option<u64> {
        GraphRegister::load(state).ok().map(|graph| graph.turn)
    }

    /// The number of the last visit.
    fn step(&self, state: &State) -> Option<u64> {
        GraphRegister::load(state).ok().map(|graph| graph.step)
    }

    fn checkpoint_type(&self) -> CheckpointType {
        CheckpointType::NodeStart
    }

    fn result(&self, state: &State) -> Result<Option<Json>> {
        super::child::result(state).map(Some)
    }

    fn view(&self, state: &State) -> Result<View> {
        let GraphState { path, outputs, metrics, .. } = GraphState::of(state)?;
        let mut view = View::of_path(path.into_iter().map(|visited| visited.node));
        (view.outputs, view.retries, view.failed) = (outputs, metrics.total_retries, metrics.nodes_with_failures);
        Ok(view)
    }

    fn check_register(&self, key: &str, value: &Json) -> Result<()> {
        state::check_register(key, value)
    }

    fn check_item(&self, log: &LogName, item: &Json) -> Result<()> {
        state::check_item(log.as_str(), item)
    }

    /// What strands have written.
    fn overlays(&self, state: &State, key: &str) -> Vec<RegisterKey> {
        let layers = state.registers_under(OVERLAY).map(|(register, _)| register);
        layers.filter(|register| register.as_str().rsplit('/').next() == Some(key)).cloned().collect()
    }

    fn settled(&self, state: &State, journal: &Journal, effect: &EffectId, how: Settled<'_>) -> Result<Json> {
        match (effect.as_str().split_once(':'), how) {
            // A call of the loop of an agent in a node.
            (Some((node, _)), _) => settled_in(&Scope::node(node), state, journal, effect, how),
            // The graph takes it over as the result of the node when it goes on.
            (None, Ok(value)) => Ok(value.clone()),
            (None, Err(_)) => Ok(Json::null()),
        }
    }
}

/// The loops of agents in nodes.
fn loops(state: &State) -> Vec<Scope> {
    let keys =
        state.registers_under(NODE).filter_map(|(key, _)| key.as_str().strip_prefix(NODE)?.strip_suffix("/loop"));
    // An output may have any name.
    keys.filter(|name| !name.contains("/output")).map(Scope::node).collect()
}
