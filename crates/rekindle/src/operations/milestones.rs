//! What happened on a branch that is worth a line of its own, besides its checkpoints.

use std::ops::ControlFlow;

use rekindle_core::codec::{Batch, Place};
use rekindle_core::{
    BranchId, Damage, Error, MAX_FRAMES, Marks, Position, ReadFrames, Record, Result, Seq, SessionKey, Slot,
    StoreExt as _,
};
use serde::Serialize;

use super::history::StoredRecord;
use crate::engine::Engine;

/// What a record must be about.
const TOLD: Marks = Marks(Marks::RUN.0 | Marks::WAIT.0 | Marks::AUDIT.0);

/// The newest milestones of one branch's own history, newest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Milestones {
    /// The session.
    pub session: SessionKey,
    /// The branch.
    pub branch: BranchId,
    /// The records: starts, changes and ends of runs, waits, edits and what else people decided.
    pub records: Vec<StoredRecord>,
    /// What cannot be read among them.
    pub damage: Vec<Damage>,
    /// Whether there are older ones.
    pub more: bool,
}

/// The newest milestones of a branch, at most `limit`: starts, changes and ends of runs, waits,
/// edits and what else people decided. Checkpoints are in the [`log`](super::log). The cost follows
/// the number of milestones read, not the length of the history.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::{Agent, BranchId, Engine, operations};
/// use rekindle::core::Record;
/// use rekindle_models::{Script, ScriptedModel};
///
/// let engine = Engine::memory()?;
/// let session = engine.create("talk").await?;
/// let agent = Agent::builder("greeter", ScriptedModel::new(Script::new("demo").text("hello"))).build()?;
/// agent.run_once("hi", &session).await?;
/// let found = operations::milestones(&engine, session.key(), &BranchId::main(), 10).await?;
/// assert!(matches!(found.records[0].record, Record::RunEnded(_)));
/// # Ok(()) }
/// ```
pub async fn milestones(engine: &Engine, session: &SessionKey, branch: &BranchId, limit: usize) -> Result<Milestones> {
    let context = |error: Error| error.during("milestones").on(session);
    let info = engine.journal().open(session).await.map_err(context)?;
    info.branch(branch).map_err(context)?;
    milestones_known(engine, session, branch, limit).await
}

/// The newest milestones of a branch that is known to exist, such as one of a [`log`](super::log):
/// the session is not opened for each of many branches.
pub async fn milestones_known(
    engine: &Engine,
    session: &SessionKey,
    branch: &BranchId,
    limit: usize,
) -> Result<Milestones> {
    let context = |error: Error| error.during("milestones").on(session);
    let (journal, branch) = (engine.journal(), branch.clone());
    let place = Place { session, branch: &branch };
    let (mut records, mut damage) = (Vec::new(), Vec::new());
    // One more than wanted says whether there are more.
    let wanted = limit.saturating_add(1);
    let read = ReadFrames::all(session.clone(), branch.clone()).with_marks(TOLD).with_newest_first();
    let read = read.with_limit(wanted.clamp(64, MAX_FRAMES));
    let mut visit = |slots: Vec<Slot>| {
        for slot in slots {
            let read = match slot {
                Slot::Damaged(found) => Err(found),
                Slot::Whole(frame) => journal.codec().decode(place, &frame),
            };
            match read {
                Ok(batch) => records.extend(told(&batch, &branch)),
                Err(found) => damage.push(found),
            }
        }
        Ok(if records.len() >= wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    journal.store().read_pages(&read, &mut visit).await.map_err(context)?;
    let more = records.len() > limit;
    records.truncate(limit);
    Ok(Milestones { session: session.clone(), branch, records, damage, more })
}

/// The milestones of a batch, newest first.
fn told(batch: &Batch, branch: &BranchId) -> Vec<StoredRecord> {
    let told = batch.numbered().filter(|(_, record)| record.marks().intersects(TOLD));
    let stored = |(seq, record): (Seq, &Record)| StoredRecord {
        position: Position::new(branch.clone(), seq),
        at: batch.at,
        record: record.clone(),
    };
    let mut told: Vec<_> = told.map(stored).collect();
    told.reverse();
    told
}
