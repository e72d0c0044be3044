//! History that is lost: records behind a fork that cannot be read any more. A call may have been begun in them, so
//! what the new branch has not recorded is in doubt.

use rekindle_core::record::HistoryLost;
use rekindle_core::{BranchId, Damage, Marks, Position, ReadFrames, Result, Seq, SessionInfo, SessionKey, State};

use crate::engine::Engine;
use crate::executor::Descriptor;

/// The records that say what a branch does not know of the lines it was forked from; none once it has a run of its own,
/// which has recorded it. Reads everything behind its fork points.
pub(crate) async fn lost_before(
    engine: &Engine,
    info: &SessionInfo,
    branch: &BranchId,
    state: &State,
    author: &str,
) -> Result<Vec<HistoryLost>> {
    let (journal, session) = (engine.journal(), &info.header.key);
    let (mut lost, descriptor) = (Vec::new(), engine.descriptors().of(state));
    let mut at = Position::new(branch.clone(), info.branch(branch)?.head.seq);
    // Every step leads to another branch, so more steps than branches mean a circle.
    for _ in 0..=info.branches.len() {
        let Some(parent) = info.branch(&at.branch)?.parent.clone() else { break };
        if has_run(engine, session, &at).await? {
            break;
        }
        lost.extend(of(&*descriptor, state, &journal.damage_behind(info, &parent).await?, author));
        at = parent;
    }
    let is_known = |lost: &HistoryLost| {
        let same =
            |known: &HistoryLost| (&known.branch, known.from, known.through) == (&lost.branch, lost.from, lost.through);
        state.lost().iter().any(same)
    };
    lost.retain(|lost| !is_known(lost));
    Ok(lost)
}

/// The record that says that a line which goes on from `state` does not know records that are damaged.
pub(crate) fn of(descriptor: &dyn Descriptor, state: &State, damage: &[Damage], author: &str) -> Option<HistoryLost> {
    let lost = HistoryLost::of(damage)?;
    // A state that its executor cannot read has no calls that it could go on with.
    let calls = descriptor.unended_calls(state).unwrap_or_default();
    let turn = descriptor.open_turn(state);
    Some(HistoryLost { calls, turn, author: Some(author.to_owned()), ..lost })
}

/// Returns true if a run began on the branch of a position, there or before.
async fn has_run(engine: &Engine, session: &SessionKey, at: &Position) -> Result<bool> {
    let all = ReadFrames::all(session.clone(), at.branch.clone()).with_range(Seq(1), at.seq);
    let page = engine.journal().store().read(&all.with_marks(Marks::RUN).with_limit(1)).await?;
    Ok(!page.slots.is_empty())
}
