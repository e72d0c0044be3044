//! Running a graph: which strands can go on, how many nodes run at once, and where strands meet.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use rekindle_core::record::{CheckpointType, LogAppend, RegisterSet, RunOutcome};
use rekindle_core::{Error, ErrorKind, Json, Record, Result};

use super::GraphDescriptor;
use super::Inner;
use super::agent_node::scope_name;
use super::join::Join;
use super::node::{Node, Prepared, parent};
use super::state::{GraphRegister, Phase, ROOT, Strand, VISITS, path};
use super::view::GraphSummary;
use super::visit::Visit;
use crate::driver::{CheckpointConfig, Driver, End, NewCheckpoint, OnWait, Recorded, Spent, Stop, register};
use crate::executor::Descriptor as _;
use crate::executor::agent::{LoopState, Scope};
use crate::executor::call::Ended;
use crate::executor::crew::Crew;
use crate::message::ToolResult;

/// How a visit ended, as far as its strand is concerned.
#[derive(Debug)]
pub(super) enum VisitEnd {
    /// What came of it is on record.
    Done,
    /// It waits for somebody.
    Waits(String),
    /// The run is to stop.
    Stopped,
}

/// One run of a graph.
pub(super) struct Run<'a> {
    graph: &'a Inner,
    driver: &'a Driver,
    config: &'a CheckpointConfig,
    at: GraphRegister,
    strands: BTreeMap<String, Strand>,
    /// Strands whose node is under way.
    active: HashSet<String>,
    /// Strands whose node failed in this run.
    failed: HashSet<String>,
    /// Strands that wait for somebody, and for what.
    waiting: BTreeSet<String>,
    waits_for: Option<String>,
    /// Strands that were under way when a wait was decided: it may be theirs, and they may have looked
    /// at it before.
    overtaken: HashSet<String>,
    /// Visits since it was last looked how many marks there are.
    since_look: u64,
    visited: u64,
    halted: bool,
    failure: Option<Error>,
}

impl<'a> Run<'a> {
    /// Where the state says the graph stands.
    pub(super) async fn load(graph: &'a Inner, driver: &'a Driver, config: &'a CheckpointConfig) -> Result<Self> {
        let (at, strands) =
            driver.read(|state| Ok::<_, Error>((GraphRegister::load(state)?, Strand::all(state)?))).await?;
        Ok(Self {
            graph,
            driver,
            config,
            at,
            strands,
            active: HashSet::new(),
            failed: HashSet::new(),
            waiting: BTreeSet::new(),
            waits_for: None,
            overtaken: HashSet::new(),
            since_look: 0,
            visited: 0,
            halted: false,
            failure: None,
        })
    }

    /// Runs until the graph ends, waits or is to stop.
    pub(super) async fn go(mut self) -> Result<End> {
        let mut jobs: Crew<'a, (String, Result<VisitEnd>)> = Crew::default();
        loop {
            let stop = jobs.attend(self.driver.proceed()).await?;
            if stop.is_none() && !self.halted {
                let room = self.graph.parallel().saturating_sub(jobs.len());
                for visit in jobs.attend(self.start(room)).await {
                    let driver = self.driver;
                    jobs.push(async move { (visit.strand.clone(), visit.run(driver).await) });
                }
            }
            if let Some((strand, ended)) = jobs.next().await {
                jobs.attend(self.ended(strand, ended)).await;
                continue;
            }
            if let Some(error) = self.failure.take() {
                let told = self.summary(Some(error.message().to_owned())).await?;
                self.driver.tell(told).await;
                return Err(error);
            }
            if let Some((stop, reason)) = stop.or(self.driver.proceed().await?) {
                return self.stopped(stop, reason).await;
            }
            if let Some(end) = self.rest().await? {
                return Ok(end);
            }
        }
    }

    /// Lets strands meet, and begins whatever can begin. What has begun is run even if something
    /// else fails.
    async fn start(&mut self, room: usize) -> Vec<Visit<'a>> {
        let mut begun = Vec::new();
        if let Err(error) = self.begin_ready(room, &mut begun).await {
            self.fail(error);
        }
        begun
    }

    async fn begin_ready(&mut self, room: usize, begun: &mut Vec<Visit<'a>>) -> Result<()> {
        self.wake().await?;
        loop {
            self.meet().await?;
            let mut moved = false;
            for strand in self.can_begin(room.saturating_sub(begun.len())) {
                match self.begin(&strand).await? {
                    Some(visit) => {
                        self.active.insert(strand);
                        begun.push(visit);
                    }
                    // It moved on without a visit, so there may be more to begin.
                    None => moved = true,
                }
            }
            if !moved {
                return Ok(());
            }
        }
    }

    /// Strands that can begin or go on with their node, so many at most.
    fn can_begin(&self, most: usize) -> Vec<String> {
        let can_begin = |(id, strand): &(&String, &Strand)| {
            let phase = matches!(strand.phase, Phase::Ready | Phase::Running | Phase::Failed | Phase::Choosing);
            phase && !self.active.contains(*id) && !self.failed.contains(*id) && !self.waiting.contains(*id)
        };
        self.strands.iter().filter(can_begin).map(|(id, _)| id.clone()).take(most).collect()
    }

    /// Lets strands go on whose waits were decided while others ran. Whether there are any.
    async fn wake(&mut self) -> Result<bool> {
        if self.waiting.is_empty() || !self.driver.wake().await? {
            return Ok(false);
        }
        self.waiting.clear();
        self.waits_for = None;
        self.overtaken.extend(self.active.iter().cloned());
        Ok(true)
    }

    /// Where all strands of a split have arrived, they become one again.
    async fn meet(&mut self) -> Result<()> {
        while let Some((id, strands)) = self.complete_split() {
            let node = self.graph.node(&self.strands[&id].node)?;
            let join = Join { node: &node.spec.id, rules: &node.spec.merge, reducers: &self.graph.reducers };
            let mut records = self.driver.read(|state| join.records(state, &id, &strands)).await?;
            for strand in &strands {
                records.push(Strand::remove(strand)?);
            }
            // Where the strands it was split off with meet too, it has arrived with them.
            let outer = parent(&id).and_then(|outer| self.strands.get(outer));
            let met = match outer.is_some_and(|outer| outer.node == node.spec.id) {
                true => Strand { phase: Phase::Arrived, ..Strand::ready(&node.spec.id) },
                false => Strand::ready(&node.spec.id),
            };
            records.push(met.record(&id)?);
            self.driver.commit(records).await?;
            strands.iter().for_each(|strand| drop(self.strands.remove(strand)));
            self.strands.insert(id, met);
        }
        Ok(())
    }

    /// A strand that was split, and its strands, if all of them have arrived.
    fn complete_split(&self) -> Option<(String, Vec<String>)> {
        self.strands.iter().filter(|(_, strand)| strand.phase == Phase::Split).find_map(|(id, strand)| {
            let strands: Vec<String> = (1..=strand.strands).map(|number| format!("{id}.{number}")).collect();
            let arrived = |strand: &String| self.strands.get(strand).is_some_and(|s| s.phase == Phase::Arrived);
            strands.iter().all(arrived).then(|| (id.clone(), strands))
        })
    }

    /// Begins or goes on with the node of a strand. Nothing if it ended before it began.
    async fn begin(&mut self, id: &str) -> Result<Option<Visit<'a>>> {
        let strand = self.strands[id].clone();
        let node = self.graph.node(&strand.node)?;
        let key = format!("{VISITS}{}", strand.node);
        let known: u64 = self.driver.register(&key).await?.unwrap_or_default();
        let join = parent(id).and_then(|parent| self.strands.get(parent)).map(|parent| parent.node.clone());
        let mut visit = Visit {
            node,
            config: self.config,
            strand: id.to_owned(),
            at: strand.clone(),
            visit: known.max(1),
            turn: self.at.turn,
            join,
        };
        // A run that was not given its secrets stops here: nothing has failed, and nothing is decided without them.
        let view = node.memory(id);
        let given = |state: &rekindle_core::State| node.looks_at().try_for_each(|key| view.check_given(state, key));
        self.driver.read(given).await?;
        if strand.phase == Phase::Choosing {
            let records = visit.choose_again(self.driver).await?;
            self.driver.commit(records).await?;
            self.reload().await?;
            return Ok(None);
        }
        if strand.phase == Phase::Ready {
            self.driver.check_budgets().await?;
            if known >= node.max_visits {
                return Err(too_often(node, known));
            }
            visit.at = self.entered(id, node, &strand).await?;
            visit.visit = known + 1;
            self.record_start(&visit, &key).await?;
        }
        if let Some(key) = self.lacks(&visit).await {
            let why = format!("memory key `{key}` is missing");
            let result = ToolResult::failed(&visit.call(Json::null()), &why);
            let recorded = visit.failed(self.driver, Ended::new(result), 0).await?;
            record(self.driver, recorded).await?;
            self.note(id).await?;
            return Ok(None);
        }
        Ok(Some(visit))
    }

    /// The strand, with its node begun.
    async fn entered(&mut self, id: &str, node: &Node, strand: &Strand) -> Result<Strand> {
        self.at.step += 1;
        let turn = match &node.work {
            Prepared::Loop { continues, .. } => {
                let scope = Scope::node(scope_name(&node.spec.id, id, self.at.step, continues.then_some(self.at.turn)));
                self.driver.read(|state| LoopState::load_in(state, &scope)).await?.turn + 1
            }
            _ => 0,
        };
        Ok(Strand { phase: Phase::Running, step: self.at.step, turn, ..strand.clone() })
    }

    /// Stages what says that a node has begun; committed with the first thing it does.
    async fn record_start(&mut self, visit: &Visit<'a>, visits: &str) -> Result<()> {
        let count = RegisterSet::new(register(visits)?, Json::of(&visit.visit)?).into();
        let spent = Spent { iterations: 1, ..Spent::default() };
        match visit.defers_intent() {
            // Recorded with its outcome: until then there is nothing on record that could be resumed.
            true => self.driver.reserve(spent).await,
            false => self.driver.spend(spent).await,
        }
        self.driver.stage(vec![self.at.record()?, visit.at.record(&visit.strand)?, count]).await?;
        self.strands.insert(visit.strand.clone(), visit.at.clone());
        let marked = match self.config.smartly() {
            Some(smart) => smart.before_risky && visit.is_risky(),
            None => self.config.on_node_start,
        };
        if marked {
            let description = format!("node `{}` starts", visit.node.spec.id);
            self.driver.stage_checkpoint(visit.mark(CheckpointType::NodeStart, description)).await?;
        }
        Ok(())
    }

    /// A key that the node needs and that is not there.
    async fn lacks(&self, visit: &Visit<'a>) -> Option<String> {
        let view = visit.node.memory(&visit.strand);
        let lacks = |state: &rekindle_core::State| {
            visit.node.needs().find(|key| view.look(state, key).is_none()).map(str::to_owned)
        };
        self.driver.read(lacks).await
    }

    async fn ended(&mut self, strand: String, ended: Result<VisitEnd>) {
        self.active.remove(&strand);
        let overtaken = self.overtaken.remove(&strand);
        let noted = match ended {
            Ok(VisitEnd::Done) => self.note(&strand).await,
            // It looks again, since what was decided is told only once.
            Ok(VisitEnd::Waits(_)) if overtaken => Ok(()),
            Ok(VisitEnd::Waits(what)) => {
                self.waiting.insert(strand.clone());
                self.waits_for.get_or_insert(what);
                Ok(())
            }
            Ok(VisitEnd::Stopped) => Ok(()),
            Err(error) => Err(error),
        };
        match noted {
            // Others can go on; the run fails when they have ended.
            Err(error) if *error.kind() == ErrorKind::InDoubt => {
                self.failed.insert(strand);
                self.failure.get_or_insert(error);
            }
            Err(error) => self.fail(error),
            Ok(()) => {}
        }
    }

    /// A visit has ended: where its strand stands now.
    async fn note(&mut self, strand: &str) -> Result<()> {
        if !self.driver.options().pending_writes {
            // Otherwise it is on record already.
            self.driver.commit_staged().await?;
        }
        self.reload().await?;
        self.visited += 1;
        if self.strands.get(strand).is_some_and(|strand| strand.phase == Phase::Failed) {
            self.failed.insert(strand.to_owned());
        }
        self.since_look += 1;
        if self.config.max_per_session > 0 && self.since_look >= self.config.prune_after_node_count.max(1) {
            self.since_look = 0;
            self.driver.drop_surplus(self.config.max_per_session).await;
        }
        Ok(())
    }

    async fn reload(&mut self) -> Result<()> {
        self.strands = self.driver.read(Strand::all).await?;
        Ok(())
    }

    /// Nothing more is started; what is under way may end.
    fn fail(&mut self, error: Error) {
        self.halted = true;
        self.failure.get_or_insert(error);
    }

    /// Nothing is under way: the graph waits, or it has come to its end.
    async fn rest(&mut self) -> Result<Option<End>> {
        if self.wake().await? {
            return Ok(None);
        }
        if let Some(what) = self.waits_for.take() {
            if self.driver.options().on_wait == OnWait::Hold {
                self.driver.hold().await?;
                self.waiting.clear();
                return Ok(None);
            }
            self.driver.remind().await?;
            let what = match self.what_failed() {
                Some(failed) => format!("{what}; meanwhile {failed}"),
                None => what,
            };
            let value = Some(self.summary(Some(what.clone())).await?);
            return Ok(Some(End { value, ..End::new(RunOutcome::Waiting, what) }));
        }
        if let Some(error) = self.what_failed() {
            let value = Some(self.summary(Some(error.clone())).await?);
            return Ok(Some(End { value, ..End::new(RunOutcome::Failed, error) }));
        }
        match self.strands.get(ROOT).map(|root| root.phase) {
            Some(Phase::Ended) => self.finish().await.map(Some),
            phase => Err(Error::new(ErrorKind::StepFailed, format!("the graph stands still ({phase:?})"))
                .hint("inspect the session; if its registers were edited, take that back")),
        }
    }

    /// The nodes that failed, and why.
    fn what_failed(&self) -> Option<String> {
        let failed = self.strands.values().filter(|strand| strand.phase == Phase::Failed);
        let failed: Vec<String> = failed
            .map(|strand| format!("node `{}` failed: {}", strand.node, strand.error.as_deref().unwrap_or_default()))
            .collect();
        (!failed.is_empty()).then(|| failed.join("; "))
    }

    async fn finish(&mut self) -> Result<End> {
        let value = Some(self.summary(None).await?);
        // What nobody waits for any more is closed.
        let waits = self.driver.read(|state| state.waits().map(crate::wait::cancelled).collect::<Vec<_>>()).await;
        self.driver.stage(waits).await?;
        self.driver.stage(vec![GraphRegister { done: true, ..self.at.clone() }.record()?]).await?;
        if self.config.keep_clean_only {
            self.driver.drop_unclean().await;
        }
        let last = self.strands.get(ROOT).map(|root| root.node.clone());
        let checkpoint = NewCheckpoint {
            node: last,
            ..NewCheckpoint::auto(CheckpointType::NodeComplete, self.at.step, "Execution complete")
        };
        Ok(End { value, checkpoint: Some(checkpoint), ..End::new(RunOutcome::Succeeded, "Execution complete") })
    }

    async fn summary(&self, error: Option<String>) -> Result<Json> {
        let (turn, _) = self.driver.spent().await;
        Json::of(&GraphSummary {
            success: error.is_none(),
            error,
            total_duration_ms: turn.active_micros / 1_000,
            tokens: turn.input_tokens.saturating_add(turn.output_tokens),
            nodes_visited: self.visited,
        })
    }

    async fn stopped(&mut self, stop: Stop, reason: String) -> Result<End> {
        let value = Some(self.summary(Some(reason.clone())).await?);
        if stop < Stop::Cancel {
            return Ok(End { value, ..End::new(RunOutcome::Paused, reason) });
        }
        let journal = self.driver.engine().journal();
        let records =
            self.driver.read(|state| GraphDescriptor.closing(state, journal, "the run was cancelled")).await?;
        self.driver.stage(records).await?;
        Ok(End { value, ..End::new(RunOutcome::Cancelled, reason) })
    }
}

/// Commits what a visit without an effect of its own left behind.
pub(super) async fn record(driver: &Driver, recorded: Recorded) -> Result<()> {
    let mut records = recorded.records;
    if recorded.value.as_str() != "null" {
        records.push(LogAppend::new(path(), vec![recorded.value]).into());
    }
    driver.commit_marked(records, recorded.checkpoints).await
}

fn too_often(node: &Node, visits: u64) -> Error {
    let id = &node.spec.id;
    Error::new(
        ErrorKind::StepFailed,
        format!("node `{id}` was visited {visits} times, and its limit is {}", node.max_visits),
    )
    .hint(format!("if that is right, raise `max_visits` of `{id}` and resume with `accept_drift`"))
}

/// Records of strands that do not exist any more.
pub(super) fn leftovers(state: &rekindle_core::State, prefixes: &[&str]) -> Vec<Record> {
    let under = prefixes.iter().flat_map(|prefix| state.registers_under(prefix).map(|(key, _)| key.clone()));
    under.map(|key| rekindle_core::record::RegisterUnset::new(key).into()).collect()
}
