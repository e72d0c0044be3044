//! Pieces that the arguments and results of several tools share.

use std::collections::BTreeMap;

use rekindle::core::CheckpointInfo;
use rekindle::core::record::CheckpointType;
use rekindle::operations::{At, Change, WaitView};
use rekindle::{CheckpointId, Json, Position, Result, Timestamp};
use schemars::JsonSchema;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The most items a page may have.
const MAX_PAGE: u32 = 100;

/// The most bytes of values one result holds; what is over is named, with its size.
pub(super) const MAX_VALUES: usize = 256 << 10;

/// How many items a page has: what was asked for, within bounds.
pub(super) fn page(limit: Option<u32>, usual: u32) -> usize {
    limit.unwrap_or(usual).clamp(1, MAX_PAGE) as usize
}

/// An optional text; an empty one counts as none.
pub(super) fn blank_is_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty()))
}

/// A JSON object, or a text that holds one.
pub(super) fn object_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(Map::new()),
        Value::Object(object) => Ok(object),
        Value::String(text) if text.trim().is_empty() => Ok(Map::new()),
        Value::String(text) => serde_json::from_str(&text)
            .map_err(|error| D::Error::custom(format_args!("the text holds no JSON object: {error}"))),
        _ => Err(D::Error::custom("expected a JSON object, or a text that holds one")),
    }
}

/// The moment a checkpoint stands for; the end of the current branch if none is named.
pub(super) fn moment(checkpoint: Option<String>) -> Result<At> {
    Ok(match checkpoint {
        Some(id) => At::Checkpoint(CheckpointId::new(id)?),
        None => At::Latest,
    })
}

/// Changes that set keys of the memory.
pub(super) fn memory_changes(modifications: Map<String, Value>) -> Vec<Change> {
    modifications.into_iter().map(|(key, value)| Change::SetMemory { key, value: Json::from(value) }).collect()
}

/// A time in RFC 3339.
pub(super) fn time(at: Timestamp) -> String {
    at.to_string()
}

/// The name under which something is stored, e.g. `node_complete`.
pub(super) fn stored_name(of: impl Serialize) -> String {
    serde_json::to_value(of).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// A kind of checkpoint by its stored name.
pub(super) fn checkpoint_type(name: &str) -> Result<CheckpointType> {
    serde_json::from_value(Value::from(name)).map_err(|_| {
        rekindle::Error::invalid(format!("`{name}` is no type of checkpoint")).hint(
            "use one of turn, iteration, step, node_start, node_complete, edge_transition, loop_iteration, safe_point, \
             user_checkpoint",
        )
    })
}

/// Where something stands in the history of a session.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PositionView {
    /// The branch.
    branch: String,
    /// The number of the record on it.
    seq: u64,
}

impl From<&Position> for PositionView {
    fn from(position: &Position) -> Self {
        Self { branch: position.branch.to_string(), seq: position.seq.0 }
    }
}

/// A checkpoint, without the state it stands for.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CheckpointView {
    /// Its id.
    checkpoint_id: String,
    /// What kind of moment it marks.
    #[serde(rename = "type")]
    kind: String,
    /// When it was made.
    created_at: String,
    /// The number of the step it follows.
    step: u64,
    /// The node of a graph it is about.
    current_node: Option<String>,
    /// What comes after that node.
    next_nodes: Vec<String>,
    /// Whether nothing failed on the way here.
    is_clean: bool,
    /// Whether a run may be resumed from here.
    can_resume_from: bool,
    /// Why it is worth coming back to.
    description: String,
    /// Whether retention keeps it whatever happens.
    pinned: bool,
    /// For filters and retention.
    tags: Vec<String>,
    /// The checkpoint before it.
    parent_id: Option<String>,
    /// The run that made it.
    run_id: Option<String>,
    /// Where it is.
    position: PositionView,
}

impl From<&CheckpointInfo> for CheckpointView {
    fn from(info: &CheckpointInfo) -> Self {
        let checkpoint = &info.checkpoint;
        Self {
            checkpoint_id: checkpoint.id.to_string(),
            kind: stored_name(checkpoint.kind),
            created_at: time(info.created_at),
            step: checkpoint.step,
            current_node: checkpoint.node.clone(),
            next_nodes: checkpoint.next.clone(),
            is_clean: checkpoint.clean,
            can_resume_from: checkpoint.resumable,
            description: checkpoint.description.clone(),
            pinned: checkpoint.pinned,
            tags: checkpoint.tags.clone(),
            parent_id: checkpoint.parent.as_ref().map(ToString::to_string),
            run_id: checkpoint.run.as_ref().map(ToString::to_string),
            position: (&info.position).into(),
        }
    }
}

/// Something a session waits for.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct OpenWait {
    /// What `answer_wait` names.
    wait_id: String,
    /// What it is for: `approval`, `question`, `signal`, …
    kind: String,
    /// What to show a person, or the signal's name.
    prompt: String,
    /// The arguments of the call to approve.
    #[schemars(with = "Option<Value>")]
    arguments: Option<Json>,
    /// What an approval must name: it stands for exactly these arguments.
    digest: Option<String>,
    /// JSON Schema of the answer; of an approval, that of the arguments.
    #[schemars(with = "Option<Value>")]
    answer_schema: Option<Json>,
    /// How many must approve.
    approvals_needed: u32,
    /// How many have decided so far.
    decisions: usize,
    /// When it ends by itself.
    expires_at: Option<String>,
}

impl From<&WaitView> for OpenWait {
    fn from(wait: &WaitView) -> Self {
        let opened = &wait.opened;
        Self {
            wait_id: opened.wait.to_string(),
            kind: stored_name(opened.kind),
            prompt: opened.prompt.clone(),
            arguments: opened.arguments.clone(),
            digest: wait.approve_digest.map(|digest| digest.to_string()),
            answer_schema: opened.schema.clone(),
            approvals_needed: opened.approvals,
            decisions: wait.decisions.len(),
            expires_at: opened.expires_at.map(time),
        }
    }
}

/// Something that was too large to be part of a result.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(super) struct Omitted {
    /// What.
    pub(super) name: String,
    /// How large it is.
    pub(super) bytes: usize,
}

/// As many of `values` as fit into what is `left`, and the names of the others.
pub(super) fn fitting<'a>(
    values: impl Iterator<Item = (String, &'a Json)>,
    left: &mut usize,
    omitted: &mut Vec<Omitted>,
    called: impl Fn(&str) -> String,
) -> BTreeMap<String, Json> {
    let mut taken = BTreeMap::new();
    for (name, value) in values {
        let bytes = name.len() + value.as_str().len();
        match left.checked_sub(bytes) {
            Some(rest) => {
                *left = rest;
                taken.insert(name, value.clone());
            }
            None => omitted.push(Omitted { name: called(&name), bytes }),
        }
    }
    taken
}
