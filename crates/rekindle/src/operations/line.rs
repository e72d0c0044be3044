//! The line of history that leads to a position, over all the branches it runs through.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use rekindle_core::codec::Batch;
use rekindle_core::{BranchId, Entry, Error, Position, Result, Seq, SessionInfo, SessionKey, State};

use crate::engine::Engine;

/// How many batches are read at once.
const PAGE: usize = 256;

/// The line of history that leads to a position.
#[derive(Debug)]
pub(super) struct Line {
    /// Up to where it was compacted, if it was.
    pub(super) base: Option<Position>,
    stretches: VecDeque<Stretch>,
}

/// The part of a line that stands on one branch.
#[derive(Debug)]
struct Stretch {
    branch: BranchId,
    from: Seq,
    through: Seq,
}

impl Line {
    /// The line that leads to `position`. The caller has loaded the state there, so it is known
    /// to be whole.
    pub(super) fn to(info: &SessionInfo, position: &Position) -> Result<Self> {
        let mut line = Self { base: None, stretches: VecDeque::new() };
        let (mut branch, mut through) = (info.branch(&position.branch)?, position.seq);
        for _ in 0..=info.branches.len() {
            let base = branch.base.filter(|base| base.seq <= through);
            let from = base.map_or(branch.first_own(), |base| base.seq.next());
            if through >= from {
                line.stretches.push_front(Stretch { branch: branch.branch.clone(), from, through });
            }
            line.base = base.map(|base| Position::new(branch.branch.clone(), base.seq));
            match &branch.parent {
                Some(parent) if base.is_none() => {
                    through = through.min(parent.seq);
                    branch = info.branch(&parent.branch)?;
                }
                _ => return Ok(line),
            }
        }
        Err(Error::corrupt("the branches are forked from each other in a circle").on(&info.header.key))
    }

    /// The state the line begins with.
    pub(super) async fn first_state(&self, engine: &Engine, session: &SessionKey) -> Result<State> {
        match &self.base {
            Some(base) => Ok(engine.journal().load(session, Some(base)).await?.state),
            None => Ok(State::default()),
        }
    }

    /// Gives every batch to `visit`, oldest first, until it says to stop. Of the last batch only
    /// the records that count.
    pub(super) async fn walk(
        &self,
        engine: &Engine,
        session: &SessionKey,
        visit: &mut (dyn FnMut(&BranchId, &Batch) -> Result<ControlFlow<()>> + Send),
    ) -> Result<ControlFlow<()>> {
        for stretch in &self.stretches {
            let mut next = stretch.from;
            while next <= stretch.through {
                let began = next;
                let entries = engine.journal().read(session, &stretch.branch, next, PAGE).await?;
                for entry in entries {
                    let batch = match entry {
                        Entry::Batch(batch) if batch.first > stretch.through => break,
                        Entry::Batch(batch) => batch,
                        Entry::Damaged(damage) => return Err(damage.to_error(session)),
                    };
                    let batch = cut(batch, next, stretch.through);
                    next = batch.last.next();
                    if visit(&stretch.branch, &batch)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                if next == began {
                    return Err(gone(session, &stretch.branch, next));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// A batch without the records before `from` and after `through`.
fn cut(mut batch: Batch, from: Seq, through: Seq) -> Batch {
    let keep = |seq: Seq| seq >= from && seq <= through;
    let first = batch.first;
    let mut index = 0;
    batch.records.retain(|_| {
        index += 1;
        keep(Seq(first.0 + index - 1))
    });
    batch.first = first.max(from);
    batch.last = batch.last.min(through);
    batch
}

fn gone(session: &SessionKey, branch: &BranchId, seq: Seq) -> Error {
    Error::corrupt(format!("record {seq} is gone"))
        .on(session)
        .at(Position::new(branch.clone(), seq))
        .hint("if somebody pruned the session meanwhile, try again; otherwise run verify")
}
