//! Middleware: what looks at a turn from the side, may change what is sent and done, and keeps
//! state of its own in the session.

use std::fmt;

use async_trait::async_trait;
use rekindle_core::record::{RegisterSet, RegisterUnset};
use rekindle_core::{Error, Json, Record, Result, State};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::driver::register;
use crate::message::{Message, ToolCall, ToolResult};
use crate::model::ModelRequest;
use crate::tool::Approval;

/// The prefix of registers that hold the state of middleware.
const PREFIX: &str = "middleware/";

/// Looks at a turn from the side. Every hook does nothing unless it is written.
///
/// # Contract
/// * A hook may run again for the same moment if the process died before what followed was
///   recorded; its state is then as it was before that moment.
/// * What a hook sets in its state is committed together with what it was called for.
#[async_trait]
pub trait Middleware: fmt::Debug + Send + Sync + 'static {
    /// Its name; its state stands under it.
    fn name(&self) -> &str;

    /// What state it keeps.
    fn state(&self) -> StateSpec {
        StateSpec::default()
    }

    /// Turns the state an older version left into that of this one.
    fn upgrade(&self, from: u32, _state: Json) -> Result<Json> {
        Err(Error::invalid(format!("middleware `{}` cannot read its state of version {from}", self.name())))
    }

    /// A turn begins with these messages; they are recorded as this leaves them.
    async fn before_turn(&self, _state: &mut MiddlewareState, _input: &mut Vec<Message>) -> Result<Verdict> {
        Ok(Verdict::Continue)
    }

    /// The model is about to be asked. Changes what is sent, never what is stored.
    async fn before_model(&self, _state: &mut MiddlewareState, _request: &mut ModelRequest) -> Result<Verdict> {
        Ok(Verdict::Continue)
    }

    /// The model has answered; the answer is recorded as this leaves it.
    async fn after_model(&self, _state: &mut MiddlewareState, _answer: &mut Message) -> Result<Verdict> {
        Ok(Verdict::Continue)
    }

    /// A call is about to be made, with the arguments as this leaves them.
    async fn before_tool(&self, _state: &mut MiddlewareState, _call: &mut ToolCall) -> Result<Gate> {
        Ok(Gate::Open)
    }

    /// A call has ended; its result is recorded as this leaves it. Calls end in parallel, so this
    /// has no state to change.
    async fn after_tool(&self, _call: &ToolCall, _result: &mut ToolResult) -> Result<()> {
        Ok(())
    }
}

/// Whether the turn goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Continue,
    /// It ends here, well, for this reason.
    Terminate(String),
}

/// Whether a call is made.
#[derive(Clone, Debug, PartialEq)]
pub enum Gate {
    /// It is.
    Open,
    /// It is not; the model is told why.
    Deny(String),
    /// A person must agree first.
    Ask(Approval),
    /// It is not; this is its result.
    Answer(Json),
}

/// How long middleware keeps its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Until the run ends; a resume begins with none.
    Run,
    /// Until the turn ends, over resumes.
    Turn,
    /// As long as the session.
    #[default]
    Session,
}

/// What state middleware keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSpec {
    /// The version of its form.
    pub version: u32,
    /// How long it is kept.
    pub scope: Scope,
    /// Whether it is stored; otherwise it ends with the process.
    pub persistent: bool,
}

impl Default for StateSpec {
    fn default() -> Self {
        Self { version: 1, scope: Scope::Session, persistent: true }
    }
}

/// The state of one middleware.
#[derive(Clone, Debug, Default)]
pub struct MiddlewareState {
    value: Option<Json>,
    changed: bool,
}

impl MiddlewareState {
    /// What was set last; nothing at first.
    pub fn get<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        self.value.as_ref().map(Json::decode).transpose()
    }

    /// Sets it.
    pub fn set<T: Serialize>(&mut self, value: &T) -> Result<()> {
        let value = Json::of(value)?;
        self.changed |= self.value.as_ref() != Some(&value);
        self.value = Some(value);
        Ok(())
    }
}

/// The stored form.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    version: u32,
    scope: Scope,
    value: Json,
}

/// All middleware of an agent with their states, during one run.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    states: Vec<MiddlewareState>,
    /// What the registers begin with,
    prefix: String,
    /// and those of state that lasts as long as the session.
    lasting: String,
    /// State on record of middleware that is not there any more, kept as it is.
    pub(crate) unknown: Vec<String>,
}

impl Stack {
    /// The states on record.
    pub(crate) fn load(
        middleware: &[std::sync::Arc<dyn Middleware>],
        state: &State,
        place: &crate::executor::agent::Scope,
        agent: &str,
    ) -> Result<Self> {
        let prefix = place.name(PREFIX);
        // Inside a node, what belongs to the session belongs to its agent.
        let lasting = if prefix == PREFIX { prefix.clone() } else { format!("agent/{agent}/{PREFIX}") };
        let mut states = Vec::new();
        for layer in middleware {
            let spec = layer.state();
            let of = if spec.scope == Scope::Session { &lasting } else { &prefix };
            let stored = state.register(&format!("{of}{}", layer.name()));
            let stored: Option<Stored> = stored.map(Json::decode).transpose()?;
            // The state of a run ends with it.
            let value = match stored.filter(|_| spec.persistent && spec.scope != Scope::Run) {
                Some(stored) if stored.version == spec.version => Some(stored.value),
                Some(stored) if stored.version > spec.version => {
                    return Err(Error::new(
                        rekindle_core::ErrorKind::VersionTooNew {
                            what: format!("state of middleware `{}`", layer.name()).into(),
                            found: stored.version,
                            supported: spec.version,
                        },
                        format!("middleware `{}` is older than the state it left", layer.name()),
                    ));
                }
                Some(stored) => Some(layer.upgrade(stored.version, stored.value)?),
                None => None,
            };
            states.push(MiddlewareState { value, changed: false });
        }
        let known = |name: &str| middleware.iter().any(|layer| layer.name() == name);
        let registers = state.registers_under(&prefix).filter_map(|(key, _)| key.as_str().strip_prefix(&prefix));
        let unknown = registers.filter(|name| !known(name)).map(str::to_owned).collect();
        Ok(Self { states, prefix, lasting, unknown })
    }

    /// The state of the layer with that number.
    pub(crate) fn state(&mut self, layer: usize) -> &mut MiddlewareState {
        &mut self.states[layer]
    }

    /// A turn begins: what was kept for the last one goes.
    pub(crate) fn begin_turn(&mut self, middleware: &[std::sync::Arc<dyn Middleware>]) {
        for (layer, state) in middleware.iter().zip(&mut self.states) {
            if layer.state().scope == Scope::Turn && state.value.take().is_some() {
                state.changed = true;
            }
        }
    }

    /// The records of what changed since this was last asked.
    pub(crate) fn changes(&mut self, middleware: &[std::sync::Arc<dyn Middleware>]) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for (layer, state) in middleware.iter().zip(&mut self.states) {
            let spec = layer.state();
            if !std::mem::take(&mut state.changed) || !spec.persistent {
                continue;
            }
            let of = if spec.scope == Scope::Session { &self.lasting } else { &self.prefix };
            let key = register(&format!("{of}{}", layer.name()))?;
            records.push(match &state.value {
                Some(value) => {
                    let stored = Stored { version: spec.version, scope: spec.scope, value: value.clone() };
                    RegisterSet::new(key, Json::of(&stored)?).into()
                }
                None => RegisterUnset::new(key).into(),
            });
        }
        Ok(records)
    }
}
