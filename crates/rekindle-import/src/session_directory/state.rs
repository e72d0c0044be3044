//! The state of a graph as a session directory has it, as logs and registers of ours.

use std::collections::BTreeMap;

use rekindle::Json;
use rekindle::core::Record;
use rekindle::core::codec::Redaction;
use rekindle::core::record::CheckpointType;
use rekindle::executor::stored::MEMORY;
use rekindle::executor::stored::agent::{LOOP, LoopState, MESSAGES_OF, Phase as LoopPhase, Scope};
use rekindle::executor::stored::graph::{
    GRAPH, GraphRegister, METRICS, NodeMetrics, Phase, ROOT, STRAND, Strand, VISITS, path as path_log,
};
use rekindle::graph::{GraphMetrics, Visited};
use rekindle::message::Message;
use serde_json::{Value, json};

use crate::chat::{self, Standing};
use crate::read::{Object, Read, array, count, sub, text};
use crate::write::{chain, kept};

/// The most nodes a path may have.
const NODES: usize = 10_000;

/// Where a checkpoint stands in the graph.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    pub(super) id: String,
    pub(super) kind: CheckpointType,
    pub(super) current: Option<String>,
    pub(super) next: Option<String>,
    /// The nodes that were completed, in order.
    completed: Vec<String>,
    /// Whether the graph came to its end here.
    end: bool,
}

impl Moment {
    pub(super) fn read(object: &Object, stem: &str) -> Read<Self> {
        let kind = text(object, "checkpoint_type").or_else(|| text(object, "type")).ok_or("it has no type")?;
        let kind: CheckpointType =
            serde_json::from_value(kind.into()).map_err(|_| "its type is not one that can be read".to_owned())?;
        let node = |value: &Value| value.as_str().map(str::to_owned).ok_or("its path names something else than a node");
        let path = array(object, "execution_path")?.unwrap_or_default();
        if path.len() > NODES {
            return Err(format!("its path has {} nodes; {NODES} are allowed", path.len()));
        }
        let mut completed: Vec<String> = path.iter().map(node).collect::<Result<_, _>>()?;
        let current = text(object, "current_node").map(str::to_owned);
        let next = text(object, "next_node").map(str::to_owned);
        // A mark by hand that names what comes next stands behind its node.
        if is_complete(kind) || (is_by_hand(kind) && next.is_some()) {
            // Some write the path before the node is added to it.
            completed.extend(current.clone().filter(|current| completed.last() != Some(current)));
        } else if completed.last() == current.as_ref() {
            completed.pop();
        }
        Ok(Self {
            id: text(object, "checkpoint_id").unwrap_or(stem).to_owned(),
            kind,
            current,
            next,
            completed,
            end: false,
        })
    }

    /// A node that was completed before stays completed, even if it is current once more.
    pub(super) fn follow(&mut self, before: &Self) {
        let Some(current) = self.current.clone() else { return };
        let whole: Vec<String> = self.completed.iter().cloned().chain([current]).collect();
        if !is_complete(self.kind) && !self.completed.starts_with(&before.completed) && whole == before.completed {
            self.completed = whole;
        }
    }

    /// What came next, if only the checkpoint behind this one says it.
    pub(super) fn learn(&mut self, behind: &Self) {
        if self.next.is_some() || !self.is_past() || !behind.completed.starts_with(&self.completed) {
            return;
        }
        let went_on = behind.completed.get(self.completed.len());
        self.next = match went_on {
            Some(node) => Some(node.clone()),
            // Another mark of the same moment.
            None if behind.is_past() => behind.next.clone(),
            None => behind.current.clone(),
        };
    }

    /// Whether the current node has run.
    fn is_past(&self) -> bool {
        let is_last = self.current.is_some() && self.completed.last() == self.current.as_ref();
        is_complete(self.kind) || (is_by_hand(self.kind) && is_last)
    }

    /// Whether a resume repeats the current node, because nothing says what came after it.
    fn repeats(&self) -> bool {
        self.is_past() && self.next.is_none() && !self.end
    }

    /// Marks the end of the graph, if this can be it.
    pub(super) fn end_here(&mut self) -> bool {
        self.end = self.is_past() && self.next.is_none();
        self.end
    }

    fn strand(&self) -> Read<Strand> {
        let at_work = matches!(self.kind, CheckpointType::NodeStart | CheckpointType::LoopIteration);
        let (first, second) = if at_work { (&self.current, &self.next) } else { (&self.next, &self.current) };
        let node = first.as_ref().or(second.as_ref()).ok_or("it names no node")?;
        let phase = if self.end { Phase::Ended } else { Phase::Ready };
        let mut strand = Strand::ready(node);
        strand.phase = phase;
        Ok(strand)
    }
}

/// Whether the current node has run at a checkpoint of that type.
fn is_complete(kind: CheckpointType) -> bool {
    matches!(kind, CheckpointType::NodeComplete | CheckpointType::EdgeTransition)
}

/// Whether somebody made the checkpoint, at whatever moment.
pub(super) fn is_by_hand(kind: CheckpointType) -> bool {
    matches!(kind, CheckpointType::SafePoint | CheckpointType::UserCheckpoint)
}

/// What a node and its model said to each other.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    node: String,
    place: String,
    messages: Vec<Message>,
    beside: Json,
    /// What the node has given so far, as its cursor says.
    outputs: Object,
    /// From which checkpoint on it holds.
    from: usize,
}

impl Conversation {
    pub(super) fn new(
        node: &str,
        place: String,
        messages: &[Value],
        meta: Option<Value>,
        cursor: Option<Value>,
    ) -> Read<Self> {
        let messages = chat::messages(messages)?;
        let outputs = cursor.as_ref().and_then(|cursor| cursor.get("outputs")?.as_object()).cloned();
        let beside = Json::from(json!({ "meta": meta, "cursor": cursor }));
        Ok(Self { node: node.to_owned(), place, messages, beside, outputs: outputs.unwrap_or_default(), from: 0 })
    }

    /// Takes out of its calls what must not be stored.
    pub(super) fn redact(&mut self, redaction: &Redaction) -> Read<()> {
        chat::redact_calls(&mut self.messages, redaction).map_err(|error| chain(&error))
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Where the loop of its node stands, with the messages it stands behind.
    fn stand(&self, over: bool) -> Read<(Vec<Message>, Standing)> {
        let mut messages = self.messages.clone();
        let standing = chat::stand(&mut messages, over, 0, &Scope::node(&self.node))
            .map_err(|error| format!("`{}`: {}", self.place, chain(&error)))?;
        Ok((messages, standing))
    }

    /// Only the last form of a conversation is stored: it belongs where its node was last at work.
    fn settle(&mut self, moments: &[Moment]) {
        let last = moments.len().saturating_sub(1);
        let mentions = |moment: &Moment| moment.current.as_ref() == Some(&self.node);
        self.from = match moments.iter().rposition(mentions) {
            Some(at) if moments[at].is_past() => at,
            Some(at) => (at + 1).min(last),
            None => last,
        };
    }
}

/// Whether a visit that is next has begun in its conversation already, behind so many visits before
/// it. Open calls are always its own. A conversation in which the model is to answer is, if somebody
/// spoke more often than there were visits; one that has its answer, if there was no visit before:
/// otherwise the visit would be taken for done with what an earlier one said.
fn has_begun(at: &LoopState, visits: u64) -> bool {
    match at.phase {
        LoopPhase::Act => true,
        LoopPhase::Think => at.turn > visits,
        _ => at.turn > 0 && visits == 0,
    }
}

/// What the checkpoints so far came to.
pub(super) struct Before {
    turn: u64,
    completed: Vec<String>,
    /// How often each node was completed, in all runs.
    visits: BTreeMap<String, u64>,
    /// The number of the last checkpoint.
    last: usize,
    /// The path of all runs so far.
    path: Vec<Json>,
    path_from: usize,
    memory: Option<BTreeMap<String, Json>>,
    outputs: Object,
    conversations: Vec<Conversation>,
}

/// What a checkpoint comes to.
#[derive(Default)]
pub(super) struct After {
    pub(super) logs: BTreeMap<String, Vec<Json>>,
    pub(super) registers: BTreeMap<String, Json>,
    pub(super) fresh: bool,
    pub(super) step: u64,
    pub(super) effects: Vec<Record>,
    pub(super) notes: Vec<String>,
}

impl Before {
    pub(super) fn new(moments: &[Moment], mut conversations: Vec<Conversation>) -> Self {
        conversations.iter_mut().for_each(|conversation| conversation.settle(moments));
        Self {
            turn: 0,
            completed: Vec::new(),
            visits: BTreeMap::new(),
            last: moments.len().saturating_sub(1),
            path: Vec::new(),
            path_from: 0,
            memory: None,
            outputs: Object::new(),
            conversations,
        }
    }

    /// Takes over the next checkpoint.
    pub(super) fn next(&mut self, moment: &Moment, object: &Object, number: usize) -> Read<After> {
        let strand = moment.strand()?;
        let memory = memory(object)?;
        let metrics = metrics(object)?;
        let outputs = sub(object, "accumulated_outputs")?.cloned().unwrap_or_default();
        let mut after = After { fresh: self.turn == 0, ..After::default() };
        if self.turn > 0 && !moment.completed.starts_with(&self.completed) {
            after.fresh = true;
            after.notes.push("its path does not go on from the one before: it is another run of the graph".into());
        }
        if after.fresh {
            self.turn += 1;
            self.path_from = self.path.len();
            self.completed.clear();
        }
        if moment.repeats() {
            after.notes.push("nothing says what came next: a resume repeats its node".into());
        }
        if memory.is_none() {
            after.notes.push("it has no memory; that of the checkpoint before it holds".into());
        }
        let memory = memory.or(self.memory.clone()).unwrap_or_default();
        self.visit(moment, &memory, &outputs)?;
        after.step = self.path.len() as u64;
        self.registers(&mut after, moment, &strand, &memory, metrics)?;
        if !outputs.is_empty() {
            after.registers.insert(kept("outputs"), Json::from(Value::Object(outputs.clone())));
        }
        after.logs.insert(path_log().to_string(), self.path.clone());
        self.converse(&mut after, moment, &strand, number)?;
        self.memory = Some(memory);
        self.outputs = outputs;
        Ok(after)
    }

    /// Appends the nodes that were completed since.
    fn visit(&mut self, moment: &Moment, memory: &BTreeMap<String, Json>, outputs: &Object) -> Read<()> {
        let known = self.completed.len();
        let mut visits = counts(&moment.completed[..known]);
        for (index, node) in moment.completed.iter().enumerate().skip(known) {
            let last = index + 1 == moment.completed.len();
            let next = if last { moment.next.as_ref() } else { moment.completed.get(index + 1) };
            let next = next.or(moment.current.as_ref().filter(|_| last && !moment.is_past()));
            let alone = moment.completed.len() == known + 1;
            let visit = visits.entry(node).or_default();
            *visit += 1;
            *self.visits.entry(node.clone()).or_default() += 1;
            let mut visited = Visited::new(self.path.len() as u64 + 1, node, *visit);
            visited.next = next.filter(|_| !moment.end || !last).cloned().into_iter().collect();
            visited.wrote = if alone { self.wrote(memory) } else { Vec::new() };
            visited.output = if last { self.output(node, memory, outputs) } else { None };
            self.path.push(Json::of(&visited).map_err(|error| chain(&error))?);
        }
        self.completed.clone_from(&moment.completed);
        Ok(())
    }

    /// The keys of the memory that changed since the checkpoint before.
    fn wrote(&self, memory: &BTreeMap<String, Json>) -> Vec<String> {
        let before = |key: &String| self.memory.as_ref().and_then(|before| before.get(key));
        memory.iter().filter(|(key, value)| before(key) != Some(*value)).map(|(key, _)| key.clone()).collect()
    }

    /// What a node gave back and is not in the memory.
    fn output(&self, node: &str, memory: &BTreeMap<String, Json>, outputs: &Object) -> Option<Json> {
        if let Some(own) = outputs.get(node) {
            return Some(Json::from(own.clone()));
        }
        let is_new = |(key, value): &(&String, &Value)| {
            self.outputs.get(*key) != Some(*value) && memory.get(*key) != Some(&Json::from((*value).clone()))
        };
        let new: Object = outputs.iter().filter(is_new).map(|(key, value)| (key.clone(), value.clone())).collect();
        (!new.is_empty()).then(|| Json::from(Value::Object(new)))
    }

    fn registers(
        &self,
        after: &mut After,
        moment: &Moment,
        strand: &Strand,
        memory: &BTreeMap<String, Json>,
        (metrics, all): (GraphMetrics, Option<Json>),
    ) -> Read<()> {
        let graph = self.graph(self.path.len() as u64, moment.end);
        let mut set = |key: String, value: rekindle::Result<Json>| -> Read<()> {
            after.registers.insert(key, value.map_err(|error| chain(&error))?);
            Ok(())
        };
        set(GRAPH.into(), Json::of(&graph))?;
        set(format!("{STRAND}{ROOT}"), Json::of(strand))?;
        for (node, metrics) in by_node(&metrics, &strand.node) {
            set(format!("{METRICS}{node}"), Json::of(&metrics))?;
        }
        for (node, visits) in counts(&moment.completed) {
            set(format!("{VISITS}{node}"), Json::of(&visits))?;
        }
        for (key, value) in memory {
            set(format!("{MEMORY}{key}"), Ok(value.clone()))?;
        }
        all.into_iter().try_for_each(|all| set(kept("metrics"), Ok(all)))
    }

    /// Which run of the graph this is.
    fn graph(&self, step: u64, done: bool) -> GraphRegister {
        let mut graph = GraphRegister::default();
        (graph.turn, graph.step, graph.done) = (self.turn, step, done);
        (graph.path_from, graph.step_from) = (self.path_from, self.path_from as u64);
        graph
    }

    /// The agent of a node stands in the middle of its work: its visit has begun.
    fn at_work(&self, after: &mut After, conversation: &Conversation, turn: u64) -> Read<()> {
        let node = &conversation.node;
        let step = self.path.len() as u64 + 1;
        let mut strand = Strand::ready(node);
        (strand.phase, strand.step, strand.turn) = (Phase::Running, step, turn);
        let graph = self.graph(step, false);
        let visits = self.completed.iter().filter(|known| *known == node).count() as u64 + 1;
        let begun = [
            (GRAPH.to_owned(), Json::of(&graph)),
            (format!("{STRAND}{ROOT}"), Json::of(&strand)),
            (format!("{VISITS}{node}"), Json::of(&visits)),
        ];
        for (key, value) in begun {
            after.registers.insert(key, value.map_err(|error| chain(&error))?);
        }
        // Nobody says which visit gave them, if there were others.
        for (key, value) in conversation.outputs.iter().filter(|_| !self.visits.contains_key(node)) {
            after.registers.insert(Scope::node(node).name(&format!("output/{key}")), Json::from(value.clone()));
        }
        Ok(())
    }

    /// Puts the conversations in place that hold from here on. Only their last form is stored, so
    /// only at the last checkpoint can the node that is next have begun in one.
    fn converse(&self, after: &mut After, moment: &Moment, strand: &Strand, number: usize) -> Read<()> {
        let is_next = number == self.last && strand.phase == Phase::Ready && !moment.repeats();
        for conversation in self.conversations.iter().filter(|conversation| conversation.from <= number) {
            let node = &conversation.node;
            let visits = self.visits.get(node).copied().unwrap_or(0);
            let (mut messages, mut standing) = conversation.stand(false)?;
            if is_next && strand.node == *node && has_begun(&standing.at, visits) {
                self.at_work(after, conversation, standing.at.turn)?;
            } else {
                (messages, standing) = conversation.stand(true)?;
            }
            let stored = chat::stored(&messages).map_err(|error| chain(&error))?;
            after.logs.insert(format!("{MESSAGES_OF}{node}"), stored);
            after.effects.extend(standing.effects);
            let at = Json::of(&standing.at).map_err(|error| chain(&error))?;
            after.registers.insert(Scope::node(node).name(LOOP), at);
            after.registers.insert(kept(&format!("conversation/{node}")), conversation.beside.clone());
        }
        Ok(())
    }
}

/// What went wrong, node by node. Which node tried again, nobody says: it counts for the current one.
fn by_node(metrics: &GraphMetrics, current: &str) -> BTreeMap<String, NodeMetrics> {
    let failed = metrics.nodes_with_failures.iter();
    let mut nodes: BTreeMap<String, NodeMetrics> = failed.map(|node| (node.clone(), failed_once())).collect();
    if metrics.total_retries > 0 {
        nodes.entry(current.to_owned()).or_default().retries = metrics.total_retries;
    }
    nodes
}

fn failed_once() -> NodeMetrics {
    let mut metrics = NodeMetrics::default();
    metrics.failures = 1;
    metrics
}

/// How often each node is named.
fn counts(nodes: &[String]) -> BTreeMap<&String, u64> {
    let mut counts = BTreeMap::new();
    nodes.iter().for_each(|node| *counts.entry(node).or_default() += 1);
    counts
}

fn memory(object: &Object) -> Read<Option<BTreeMap<String, Json>>> {
    let memory = sub(object, "shared_memory")?;
    Ok(memory.map(|memory| memory.iter().map(|(key, value)| (key.clone(), Json::from(value.clone()))).collect()))
}

/// The metrics that have a place of their own and, if there are others, all of them.
fn metrics(object: &Object) -> Read<(GraphMetrics, Option<Json>)> {
    let Some(said) = sub(object, "metrics_snapshot")? else { return Ok((GraphMetrics::default(), None)) };
    let nodes = array(said, "nodes_with_failures")?.unwrap_or_default();
    let mut metrics = GraphMetrics::default();
    metrics.total_retries = count(said, "total_retries").unwrap_or(0);
    metrics.nodes_with_failures = nodes.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let known = ["total_retries", "nodes_with_failures"];
    let others = said.keys().any(|key| !known.contains(&key.as_str()));
    Ok((metrics, others.then(|| Json::from(Value::Object(said.clone())))))
}
