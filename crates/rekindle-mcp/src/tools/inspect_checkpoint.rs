//! `inspect_checkpoint`.

use std::collections::BTreeMap;

use rekindle::core::LogName;
use rekindle::executor::View;
use rekindle::operations::{self, EffectView, Inspected, RunView};
use rekindle::{Engine, Error, Json, Result, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::{
    CheckpointView, MAX_VALUES, Omitted, OpenWait, PositionView, blank_is_none, fitting, moment, page, stored_name,
};
use super::{Answer, Caller, Effect, Tool};
use crate::server::Core;

const MEMORY: &str = "memory/";

pub(super) struct InspectCheckpoint;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The session.
    #[serde(alias = "sessionId")]
    session_id: String,
    /// The checkpoint; where the session stands if left out.
    #[serde(default, alias = "checkpointId", deserialize_with = "blank_is_none")]
    checkpoint_id: Option<String>,
    /// Whether to show the memory.
    #[serde(default, alias = "includeMemory")]
    include_memory: bool,
    /// A log to show items of, e.g. `messages`.
    #[serde(default, deserialize_with = "blank_is_none")]
    log: Option<String>,
    /// The first item to show of that log, from 0; its last ones if left out.
    #[serde(default)]
    from: Option<usize>,
    /// How many items to show of that log; 20 if left out, 100 at most.
    #[serde(default)]
    limit: Option<u32>,
    /// A register to show in full, e.g. `memory/plan`.
    #[serde(default, deserialize_with = "blank_is_none")]
    register: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    /// The session.
    session_id: String,
    /// The last checkpoint at or before this moment.
    checkpoint: Option<CheckpointView>,
    /// Its id.
    checkpoint_id: Option<String>,
    /// What kind of moment it marks.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// The node of a graph it is about.
    current_node: Option<String>,
    /// Where this moment is.
    position: PositionView,
    /// Whether the branch ends here.
    is_head: bool,
    /// What the session was doing.
    status: String,
    /// The run at that moment.
    run: Option<Run>,
    /// What it waited for; `answer_wait` answers what is still open.
    waits: Vec<OpenWait>,
    /// Calls whose results were not yet taken into the state.
    pending_calls: Vec<Call>,
    /// The nodes of a graph that were completed, in order: the newest 1000.
    execution_path: Vec<String>,
    /// What the nodes of a graph wrote last, by key.
    #[schemars(with = "BTreeMap<String, Value>")]
    accumulated_outputs: BTreeMap<String, Json>,
    /// What went wrong on the way of a graph.
    metrics_snapshot: Metrics,
    /// The memory, if it was asked for.
    #[schemars(with = "Option<BTreeMap<String, Value>>")]
    memory: Option<BTreeMap<String, Json>>,
    /// The logs, with the number of their items; `log` shows them.
    logs: BTreeMap<String, usize>,
    /// The registers, with their size in bytes; `register` shows one. The first 1000.
    registers: BTreeMap<String, usize>,
    /// The items of the log that was asked for.
    items: Option<Items>,
    /// The value of the register that was asked for.
    #[schemars(with = "Option<Value>")]
    value: Option<Json>,
    /// What is too large to be shown here: ask for it by its name.
    omitted: Vec<Omitted>,
}

/// A run.
#[derive(Serialize, JsonSchema)]
struct Run {
    /// Its id.
    run_id: String,
    /// What drove it: `agent`, `plan`, `graph`, `flow`.
    executor: String,
    /// How it ended, if it did.
    outcome: Option<String>,
    /// Why.
    reason: String,
    /// The code of the error, if it failed.
    error_code: Option<String>,
}

impl From<&RunView> for Run {
    fn from(run: &RunView) -> Self {
        Self {
            run_id: run.run.to_string(),
            executor: run.executor.clone(),
            outcome: run.outcome.map(stored_name),
            reason: run.reason.clone(),
            error_code: run.code.clone(),
        }
    }
}

/// A call of a tool, a model or a step.
#[derive(Serialize, JsonSchema)]
struct Call {
    /// Its id.
    effect_id: String,
    /// What kind of call it is.
    kind: String,
    /// The tool, model or step.
    name: String,
    /// Which try it is.
    attempt: u32,
    /// Whether it has ended.
    settled: bool,
}

impl From<&EffectView> for Call {
    fn from(effect: &EffectView) -> Self {
        Self {
            effect_id: effect.effect.to_string(),
            kind: stored_name(effect.kind),
            name: effect.name.clone(),
            attempt: effect.attempt,
            settled: effect.settled,
        }
    }
}

/// What went wrong on the way of a graph.
#[derive(Default, Serialize, JsonSchema)]
struct Metrics {
    /// How often calls were tried again.
    total_retries: u64,
    /// The nodes that failed at least once.
    nodes_with_failures: Vec<String>,
}

/// A stretch of a log.
#[derive(Serialize, JsonSchema)]
struct Items {
    /// The log.
    log: String,
    /// The index of the first item shown.
    from: usize,
    /// How many items the log has.
    total: usize,
    /// The items.
    #[schemars(with = "Vec<Value>")]
    items: Vec<Json>,
    /// The index to go on with, if there are more.
    next_from: Option<usize>,
}

impl Tool for InspectCheckpoint {
    const NAME: &'static str = "inspect_checkpoint";
    const TITLE: &'static str = "Inspect a checkpoint";
    const DESCRIPTION: &'static str = "Shows the state of a session at a checkpoint, or where it stands: what it was \
        doing and waited for, its memory, its logs (`log: \"messages\"` for the conversation). Nothing is executed.";
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = Output;

    async fn call(core: &Core, args: Args, _caller: Caller) -> Result<Answer<Output>> {
        let session = core.key(&args.session_id)?;
        let at = moment(args.checkpoint_id.clone())?;
        let seen = operations::inspect(&core.engine, &session, &at).await?;
        described(&core.engine, args, &seen).map_err(|error| error.during("inspect").on(&session)).map(Answer::from)
    }
}

fn described(engine: &Engine, args: Args, seen: &Inspected) -> Result<Output> {
    let (mut left, mut omitted) = (MAX_VALUES, Vec::new());
    let state = &seen.state;
    let value = args.register.as_deref().map(|key| register(state, key)).transpose()?;
    let items = args.log.as_deref().map(|log| items(state, log, &args, &mut left)).transpose()?;
    let memory = args.include_memory.then(|| memory(state, &mut left, &mut omitted));
    let way = Way::of(operations::view(engine, state).unwrap_or_default(), &mut left, &mut omitted);
    let checkpoint = seen.checkpoint.as_ref();
    Ok(Output {
        session_id: args.session_id,
        checkpoint_id: checkpoint.map(|info| info.checkpoint.id.to_string()),
        kind: checkpoint.map(|info| stored_name(info.checkpoint.kind)),
        current_node: checkpoint.and_then(|info| info.checkpoint.node.clone()),
        checkpoint: checkpoint.map(CheckpointView::from),
        position: (&seen.position).into(),
        is_head: seen.is_head,
        status: seen.status.to_string(),
        run: seen.run.as_ref().map(Run::from),
        waits: seen.waits.iter().take(PARTS).map(OpenWait::from).collect(),
        pending_calls: seen.effects.iter().take(PARTS).map(Call::from).collect(),
        execution_path: way.path,
        accumulated_outputs: way.outputs,
        metrics_snapshot: way.metrics,
        memory,
        logs: state.logs().take(PARTS).map(|(name, items)| (name.to_string(), items.len())).collect(),
        registers: state.registers().take(PARTS).map(|(key, value)| (key.to_string(), value.as_str().len())).collect(),
        items,
        value,
        omitted,
    })
}

/// The most entries of one list.
const PARTS: usize = 1_000;

fn register(state: &State, key: &str) -> Result<Json> {
    state.register(key).cloned().ok_or_else(|| {
        Error::not_found(format!("there is no register `{key}` at this moment"))
            .hint("call without `register` to see those there are")
    })
}

fn memory(state: &State, left: &mut usize, omitted: &mut Vec<Omitted>) -> BTreeMap<String, Json> {
    let named = state.registers_under(MEMORY);
    let named = named.map(|(key, value)| (key.as_str().strip_prefix(MEMORY).unwrap_or_default().to_owned(), value));
    fitting(named, left, omitted, |key| format!("{MEMORY}{key}"))
}

/// A stretch of a log: at least one item, and no more than fit.
fn items(state: &State, name: &str, args: &Args, left: &mut usize) -> Result<Items> {
    let log = state.log(&LogName::new(name)?);
    let limit = page(args.limit, 20);
    let from = args.from.unwrap_or_else(|| log.len().saturating_sub(limit)).min(log.len());
    let mut items: Vec<Json> = Vec::new();
    for item in log.iter().skip(from).take(limit) {
        let rest = left.checked_sub(item.as_str().len());
        if rest.is_none() && !items.is_empty() {
            break;
        }
        *left = rest.unwrap_or_default();
        items.push(item.clone());
    }
    let next_from = Some(from + items.len()).filter(|next| *next < log.len());
    Ok(Items { log: name.to_owned(), from, total: log.len(), items, next_from })
}

/// The way a graph came.
#[derive(Default)]
struct Way {
    path: Vec<String>,
    outputs: BTreeMap<String, Json>,
    metrics: Metrics,
}

impl Way {
    fn of(view: View, left: &mut usize, omitted: &mut Vec<Omitted>) -> Self {
        let older = view.path.len().saturating_sub(PARTS);
        let named = view.outputs.iter().map(|(key, value)| (key.clone(), value));
        Self {
            outputs: fitting(named, left, omitted, |key| format!("{MEMORY}{key}")),
            metrics: Metrics { total_retries: view.retries, nodes_with_failures: view.failed.into_iter().collect() },
            path: view.path.into_iter().skip(older).collect(),
        }
    }
}
