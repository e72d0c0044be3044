//! Replay: a session walked through again as it was, from its records alone. Nothing is executed;
//! what calls returned is what the journal says they returned.

use std::ops::ControlFlow;

use rekindle_core::codec::Batch;
use rekindle_core::record::EffectKind;
use rekindle_core::{BranchId, Error, Position, Record, Result, Seq, SessionKey, State, Timestamp};
use serde::{Deserialize, Serialize};

use super::at::At;
use super::line::Line;
use crate::engine::Engine;

/// How large the steps of a replay are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// One record at a time.
    Records,
    /// One step at a time. A step ends with the record by which a model's answer or the results of
    /// calls go into the conversation, the result of a custom step is settled, a checkpoint is
    /// made, or a run ends; whatever comes first.
    #[default]
    Steps,
}

/// Why a step of a replay ends where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepEnd {
    /// History before this was compacted; this is the state it left. Always the first step.
    Base,
    /// It is one record.
    Record,
    /// A model answered.
    Answer,
    /// The results of calls went into the conversation.
    Results,
    /// A custom step ended.
    Step,
    /// A checkpoint was made.
    Checkpoint,
    /// A run ended.
    RunEnd,
    /// There is no more.
    End,
}

/// One step of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayStep<'a> {
    /// Its number, from 1; the base is 0.
    pub number: u64,
    /// Its last record.
    pub position: &'a Position,
    /// When that was committed.
    pub at: Timestamp,
    /// Why it ends there.
    pub end: StepEnd,
    /// Its records.
    pub records: &'a [Record],
    /// The state after it.
    pub state: &'a State,
}

/// What a replay came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// The session.
    pub session: SessionKey,
    /// The last record shown.
    pub position: Position,
    /// Steps shown, the base not counted.
    pub steps: u64,
    /// Records shown.
    pub records: u64,
    /// Whether the observer stopped it.
    pub stopped: bool,
}

/// Watches a replay; it goes on as long as this says so.
type Observer<'a> = dyn FnMut(&ReplayStep<'_>) -> ControlFlow<()> + Send + 'a;

/// Walks through the history that leads to a position (to the end of the current branch if none
/// is given), over forks and compacted history, and shows each step to `observer`. The cost is
/// linear in the history.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use std::ops::ControlFlow;
/// use rekindle::operations::{self, By};
/// use rekindle::{Agent, Engine};
/// use rekindle_models::{Script, ScriptedModel};
///
/// let engine = Engine::memory()?;
/// let session = engine.create("talk").await?;
/// let agent = Agent::builder("greeter", ScriptedModel::new(Script::new("demo").text("hello"))).build()?;
/// agent.run_once("hi", &session).await?;
/// let mut ends = Vec::new();
/// operations::replay(&engine, session.key(), None, By::Steps, &mut |step| {
///     ends.push(step.end);
///     ControlFlow::Continue(())
/// }).await?;
/// assert!(ends.contains(&operations::StepEnd::Answer));
/// # Ok(()) }
/// ```
pub async fn replay(
    engine: &Engine,
    session: &SessionKey,
    through: Option<&Position>,
    by: By,
    observer: &mut Observer<'_>,
) -> Result<Replayed> {
    let context = |error: Error| error.during("replay").on(session);
    let at = through.map_or(At::Latest, |position| At::Position(position.clone()));
    let (info, position) = at.locate(engine, session).await.map_err(context)?;
    // Says what is wrong with the position, if anything is, before anything is shown.
    let line = checked_line(engine, &info, &position).await.map_err(context)?;
    let state = line.first_state(engine, session).await.map_err(context)?;
    let mut player = Player::new(session, by, state, observer);
    if let Some(base) = &line.base {
        player.last = base.clone();
        player.show(StepEnd::Base);
    }
    if !player.stopped {
        let walked = line.walk(engine, session, &mut |branch, batch| player.batch(branch, batch)).await;
        let _ = walked.map_err(context)?;
        player.rest();
    }
    Ok(player.replayed())
}

/// The line to a position that is known to exist.
pub(super) async fn checked_line(
    engine: &Engine,
    info: &rekindle_core::SessionInfo,
    position: &Position,
) -> Result<Line> {
    let branch = info.branch(&position.branch)?;
    let pruned = branch.base.is_some_and(|base| position.seq < base.seq);
    if position.seq > branch.head.seq || pruned {
        // The journal's own error says which records there are.
        engine.journal().load(&info.header.key, Some(position)).await?;
    }
    Line::to(info, position)
}

/// Folds batches and shows them.
struct Player<'a, 'b> {
    session: &'a SessionKey,
    by: By,
    state: State,
    observer: &'a mut Observer<'b>,
    last: Position,
    at: Timestamp,
    /// What belongs to the step under way.
    pending: Vec<Record>,
    steps: u64,
    records: u64,
    stopped: bool,
}

impl<'a, 'b> Player<'a, 'b> {
    fn new(session: &'a SessionKey, by: By, state: State, observer: &'a mut Observer<'b>) -> Self {
        Self {
            session,
            by,
            state,
            observer,
            last: Position::new(BranchId::main(), Seq::ZERO),
            at: Timestamp::default(),
            pending: Vec::new(),
            steps: 0,
            records: 0,
            stopped: false,
        }
    }

    fn batch(&mut self, branch: &BranchId, batch: &Batch) -> Result<ControlFlow<()>> {
        self.at = batch.at;
        for (seq, record) in batch.numbered() {
            let end = match self.by {
                By::Records => Some(StepEnd::Record),
                By::Steps => ends(&self.state, record),
            };
            self.last = Position::new(branch.clone(), seq);
            let applied = self.state.apply(record);
            applied.map_err(|error| error.on(self.session).at(self.last.clone()))?;
            self.pending.push(record.clone());
            if let Some(end) = end {
                self.step(end);
            }
            if self.stopped {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Shows what is left behind the last step.
    fn rest(&mut self) {
        if !self.pending.is_empty() && !self.stopped {
            self.step(StepEnd::End);
        }
    }

    fn step(&mut self, end: StepEnd) {
        self.steps += 1;
        self.records += self.pending.len() as u64;
        self.show(end);
        self.pending.clear();
    }

    fn show(&mut self, end: StepEnd) {
        let step = ReplayStep {
            number: self.steps,
            position: &self.last,
            at: self.at,
            end,
            records: &self.pending,
            state: &self.state,
        };
        self.stopped = (self.observer)(&step).is_break();
    }

    fn replayed(self) -> Replayed {
        Replayed {
            session: self.session.clone(),
            position: self.last,
            steps: self.steps,
            records: self.records,
            stopped: self.stopped,
        }
    }
}

/// Whether a step ends with `record`, given the state before it.
fn ends(state: &State, record: &Record) -> Option<StepEnd> {
    let kind = |effect| state.effect(effect).map(|known| known.intent.kind);
    match record {
        Record::LogAppendOutcomes(append) => {
            let answer = append.effects.iter().all(|effect| kind(effect) == Some(EffectKind::Model));
            Some(if answer { StepEnd::Answer } else { StepEnd::Results })
        }
        Record::EffectOutcome(outcome) if outcome.settles() && kind(&outcome.effect) == Some(EffectKind::Step) => {
            Some(StepEnd::Step)
        }
        Record::Checkpoint(_) => Some(StepEnd::Checkpoint),
        Record::RunEnded(_) => Some(StepEnd::RunEnd),
        _ => None,
    }
}
