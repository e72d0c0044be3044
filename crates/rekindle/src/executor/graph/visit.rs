//! What goes on record when a visit of a node ends: what it wrote, what comes next, and the marks
//! behind it, as one atomic batch.

use std::cell::OnceCell;
use std::time::Duration;

use async_trait::async_trait;
use rekindle_core::record::{CheckpointTrigger, CheckpointType, LogAppendOutcomes, RegisterSet};
use rekindle_core::{Error, ErrorKind, Json, Record, Result, State};
use serde_json::Value;

use super::condition::Facts;
use super::node::{GraphMemory, Node, Prepared};
use super::spec::EdgeSpec;
use super::state::{NodeMetrics, Phase, Strand, Visited, path};
use crate::driver::{CheckpointConfig, Driver, NewCheckpoint, Recorded, panic_text, register, shortened};
use crate::executor::call::{DecidedBy, Ended, Ready, Shape};
use crate::memory::MemoryView;

/// One visit of a node.
#[derive(Clone)]
pub(super) struct Visit<'a> {
    pub(super) node: &'a Node,
    pub(super) config: &'a CheckpointConfig,
    /// The strand, and what its register says.
    pub(super) strand: String,
    pub(super) at: Strand,
    /// Which visit of the node it is in this run.
    pub(super) visit: u64,
    /// Which run of the graph it is part of.
    pub(super) turn: u64,
    /// Where the strand meets others, if it was split off.
    pub(super) join: Option<String>,
}

/// What a strand does next.
enum Onward {
    /// Goes on with this node.
    To(String),
    /// Is split, to go on with these at the same time.
    Split(Vec<String>),
    /// It has come to the end.
    End,
    /// No edge holds.
    Stuck,
}

#[async_trait]
impl Shape for Visit<'_> {
    async fn record(&self, driver: &Driver, ready: &Ready, ended: Ended) -> Result<Recorded> {
        let tried = driver.read(|state| state.effect(&ready.effect.id).map_or(1, |known| known.intent.attempt)).await;
        let retries = u64::from(tried.saturating_sub(1));
        let mut recorded = match ended.result.error {
            true => self.failed(driver, ended, retries).await?,
            false => self.completed(driver, ended, retries).await?,
        };
        if !recorded.value.as_str().eq("null") {
            recorded.records.push(LogAppendOutcomes::new(path(), vec![ready.effect.id.clone()]).into());
        }
        Ok(recorded)
    }

    fn memory(&self) -> MemoryView {
        self.node.memory(&self.strand)
    }

    fn closes_interrupted(&self) -> bool {
        false
    }

    fn node(&self) -> Option<String> {
        Some(self.node.spec.id.clone())
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Definition
    }
}

impl Visit<'_> {
    /// What goes on record when the node has done its work.
    pub(super) async fn completed(&self, driver: &Driver, ended: Ended, retries: u64) -> Result<Recorded> {
        let took = ended.took;
        let content = ended.result.content;
        let mut writes = ended.remember;
        let saved = self.node.save.iter().filter(|(key, _)| !self.node.keeps_to_itself(key, &content, &writes));
        let saved: Vec<_> = saved.collect();
        let whole = content.as_str() == "null" || saved.iter().any(|(_, pointer)| pointer.is_empty());
        for (key, pointer) in saved {
            writes.push((key.clone(), part(&self.node.spec.id, &content, key, pointer)?));
        }
        let output = (!whole).then(|| content.clone());
        self.recorded(driver, writes, content, output, None, took, retries).await
    }

    /// What goes on record when it failed: the way on, if an edge is meant for that.
    pub(super) async fn failed(&self, driver: &Driver, ended: Ended, retries: u64) -> Result<Recorded> {
        let error = shortened(ended.result.content.decode::<String>().unwrap_or_default());
        driver.record_spent().await;
        let holds = driver.read(|state| {
            let facts = VisitFacts { view: &self.memory(), state, writes: &[], result: None, parsed: OnceCell::new() };
            !self.node.edges_that_hold(&facts).is_empty()
        });
        if holds.await {
            let result = ended.result.content;
            return self.recorded(driver, Vec::new(), result, None, Some(error), ended.took, retries).await;
        }
        let failures = self.at.failures.saturating_add(1);
        let strand = Strand { phase: Phase::Failed, failures, error: Some(error.clone()), ..self.at.clone() };
        let mut records = vec![strand.record(&self.strand)?];
        records.extend(self.metrics(driver, retries, 1).await?);
        let description = format!("node `{}` failed: {error}", self.node.spec.id);
        let checkpoint =
            NewCheckpoint { trigger: CheckpointTrigger::Error, ..self.mark(CheckpointType::NodeStart, description) };
        Ok(Recorded {
            records,
            checkpoints: vec![NewCheckpoint { passing: false, ..checkpoint }],
            ..Json::null().into()
        })
    }

    #[allow(clippy::too_many_arguments, reason = "everything a visit leaves behind is decided here together")]
    async fn recorded(
        &self,
        driver: &Driver,
        writes: Vec<(String, Json)>,
        result: Json,
        output: Option<Json>,
        error: Option<String>,
        took: Duration,
        retries: u64,
    ) -> Result<Recorded> {
        driver.record_spent().await;
        let view = self.memory();
        let mut records: Vec<Record> = Vec::new();
        for (key, value) in &writes {
            records.push(view.write(key, value.clone())?);
        }
        let outcome = error.is_none().then_some(&result);
        let onward = driver.read(|state| {
            let facts = VisitFacts { view: &view, state, writes: &writes, result: outcome, parsed: OnceCell::new() };
            self.onward(&facts)
        });
        let onward = onward.await?;
        let next = match &onward {
            Onward::To(node) => vec![node.clone()],
            Onward::Split(nodes) => nodes.clone(),
            Onward::End | Onward::Stuck => Vec::new(),
        };
        records.extend(self.advance(&onward)?);
        records.extend(self.metrics(driver, retries, u64::from(error.is_some())).await?);
        let failed = error.is_some();
        let bytes: usize = writes.iter().map(|(_, value)| value.as_str().len()).sum();
        let visited = Visited {
            step: self.at.step,
            node: self.node.spec.id.clone(),
            visit: self.visit,
            strand: (self.strand != super::state::ROOT).then(|| self.strand.clone()),
            next: next.clone(),
            wrote: writes.into_iter().map(|(key, _)| key).collect(),
            output,
            error,
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        };
        let value = Json::of(&visited)?;
        let mut checkpoints = self.marks(next, took, bytes + value.as_str().len());
        if failed {
            // By the edge for it the graph goes on, and from here on nothing is clean.
            checkpoints.iter_mut().for_each(|mark| mark.trigger = CheckpointTrigger::Error);
        }
        Ok(Recorded { records, checkpoints, ..value.into() })
    }

    /// What comes next.
    fn onward(&self, facts: &VisitFacts<'_>) -> Result<Onward> {
        if self.node.edges.is_empty() {
            return Ok(Onward::End);
        }
        if let Prepared::Route { choose: Some(choose) } = &self.node.work {
            let memory = GraphMemory { view: facts.view, state: facts.state };
            let named = unharmed(&format!("router `{}`", self.node.spec.id), || (choose.0)(&memory))?;
            return match self.node.edges.iter().any(|edge| edge.to == named) {
                true => Ok(Onward::To(named)),
                false => Err(Error::new(
                    ErrorKind::StepFailed,
                    format!("router `{}` chose `{named}`, to which it has no edge", self.node.spec.id),
                )),
            };
        }
        let holds = self.node.edges_that_hold(facts);
        Ok(match (holds.first(), &self.node.spec.fan_out) {
            // Its edges are for failures alone.
            (None, _) if !facts.failed() && self.node.edges.iter().all(EdgeSpec::is_for_failure) => Onward::End,
            (None, _) => Onward::Stuck,
            (Some(_), Some(_)) if !facts.failed() => Onward::Split(holds.iter().map(|edge| edge.to.clone()).collect()),
            (Some(first), _) => Onward::To(first.to.clone()),
        })
    }

    /// The records that move the strand on.
    fn advance(&self, onward: &Onward) -> Result<Vec<Record>> {
        let step = |node: &str, join: Option<&str>| match join == Some(node) {
            true => Strand { phase: Phase::Arrived, ..Strand::ready(node) },
            false => Strand::ready(node),
        };
        let join = self.join.as_deref();
        match (onward, &self.node.spec.fan_out) {
            (Onward::To(node), _) => Ok(vec![step(node, join).record(&self.strand)?]),
            (Onward::End, _) => {
                let ended = Strand { phase: Phase::Ended, ..Strand::ready(&self.node.spec.id) };
                Ok(vec![ended.record(&self.strand)?])
            }
            (Onward::Stuck, _) => {
                let stuck = Strand { phase: Phase::Choosing, error: None, ..self.at.clone() };
                Ok(vec![stuck.record(&self.strand)?])
            }
            (Onward::Split(nodes), meets) => {
                let meets = meets.as_deref().unwrap_or_default();
                let split = Strand { phase: Phase::Split, strands: nodes.len(), ..Strand::ready(meets) };
                let mut records = vec![split.record(&self.strand)?];
                for (number, node) in nodes.iter().enumerate() {
                    records.push(step(node, Some(meets)).record(&format!("{}.{}", self.strand, number + 1))?);
                }
                Ok(records)
            }
        }
    }

    /// Chooses again what comes next, for a node that is completed and led nowhere.
    pub(super) async fn choose_again(&self, driver: &Driver) -> Result<Vec<Record>> {
        let view = self.memory();
        let onward = driver.read(|state| {
            let visited = state.log(&path()).iter().rev().find_map(|item| {
                let visited: Visited = item.decode().ok()?;
                (visited.step == self.at.step).then_some(visited)
            });
            let output = visited.and_then(|visited| visited.output).or_else(|| self.saved_whole(state));
            let facts = VisitFacts {
                view: &view,
                state,
                writes: &[],
                result: output.as_ref().or(Some(&NULL)),
                parsed: OnceCell::new(),
            };
            self.onward(&facts)
        });
        match onward.await? {
            Onward::Stuck => Err(Error::new(
                ErrorKind::StepFailed,
                format!("no edge of node `{}` holds, and it has no default", self.node.spec.id),
            )
            .hint("set what its conditions look at and resume, or give it a default edge")),
            onward => self.advance(&onward),
        }
    }

    /// The result of the visit, where it went into the memory as a whole.
    fn saved_whole(&self, state: &State) -> Option<Json> {
        let (key, _) = self.node.save.iter().find(|(_, pointer)| pointer.is_empty())?;
        self.memory().look(state, key)
    }

    async fn metrics(&self, driver: &Driver, retries: u64, failures: u64) -> Result<Option<Record>> {
        if retries + failures == 0 {
            return Ok(None);
        }
        let key = register(&format!("{}{}", super::state::METRICS, self.node.spec.id))?;
        let known: Option<NodeMetrics> = driver.register(key.as_str()).await?;
        let mut metrics = known.unwrap_or_default();
        metrics.retries = metrics.retries.saturating_add(retries);
        metrics.failures = metrics.failures.saturating_add(failures);
        Ok(Some(RegisterSet::new(key, Json::of(&metrics)?).into()))
    }

    /// The marks behind a node that was completed.
    fn marks(&self, next: Vec<String>, took: Duration, bytes: usize) -> Vec<NewCheckpoint> {
        let id = &self.node.spec.id;
        let then = match next.as_slice() {
            [] => String::new(),
            next => format!(", then {}", next.iter().map(|node| format!("`{node}`")).collect::<Vec<_>>().join(" and ")),
        };
        let completes = match self.config.smartly() {
            Some(smart) => took >= smart.slow || bytes >= smart.large,
            None => self.config.on_node_complete,
        };
        let mut marks = Vec::new();
        if completes {
            let mark = self.mark(CheckpointType::NodeComplete, format!("node `{id}` completed{then}"));
            marks.push(NewCheckpoint { next: next.clone(), ..mark });
        }
        if self.node.spec.safe_point {
            let mark = self.mark(CheckpointType::SafePoint, format!("safe point after node `{id}`"));
            marks.push(NewCheckpoint { next: next.clone(), passing: false, ..mark });
        }
        if self.config.on_edge && !next.is_empty() {
            let mark = self.mark(CheckpointType::EdgeTransition, format!("from node `{id}`{then}"));
            marks.push(NewCheckpoint { next, ..mark });
        }
        marks
    }

    pub(super) fn mark(&self, kind: CheckpointType, description: String) -> NewCheckpoint {
        let node = Some(self.node.spec.id.clone());
        NewCheckpoint { node, passing: true, ..NewCheckpoint::auto(kind, self.at.step, description) }
    }
}

/// What a function of the program says; if it panics, that is an error like any other.
pub(super) fn unharmed<T>(who: &str, function: impl FnOnce() -> T) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(function))
        .map_err(|panic| Error::new(ErrorKind::StepFailed, format!("{who} panicked: {}", panic_text(panic.as_ref()))))
}

static NULL: std::sync::LazyLock<Json> = std::sync::LazyLock::new(Json::null);

/// The part of a result that goes into a key.
fn part(node: &str, content: &Json, key: &str, pointer: &str) -> Result<Json> {
    if pointer.is_empty() {
        return Ok(content.clone());
    }
    let value = content.to_value()?;
    value.pointer(pointer).cloned().map(Json::from).ok_or_else(|| {
        Error::invalid(format!("the result of node `{node}` has nothing at `{pointer}`, which goes into `{key}`"))
    })
}

/// What the conditions of edges are asked about: the memory with what was just written, and the
/// result.
struct VisitFacts<'a> {
    view: &'a MemoryView,
    state: &'a State,
    writes: &'a [(String, Json)],
    /// Nothing if the node failed.
    result: Option<&'a Json>,
    parsed: OnceCell<Option<Value>>,
}

impl Facts for VisitFacts<'_> {
    fn memory(&self, key: &str) -> Option<Value> {
        let written = self.writes.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.clone());
        written.or_else(|| self.view.look(self.state, key))?.to_value().ok()
    }

    fn result(&self) -> Option<Value> {
        self.parsed.get_or_init(|| self.result?.to_value().ok()).clone()
    }

    fn failed(&self) -> bool {
        self.result.is_none()
    }
}
