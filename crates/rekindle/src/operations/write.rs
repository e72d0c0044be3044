//! Changing a session by hand: one atomic append at the end of a branch that nobody runs.
//!
//! No lease is taken. The store refuses an append without one while somebody's lease is live, and
//! any append behind a head that has moved; so what is written here follows exactly the state it
//! was decided on, a crash leaves no lease behind, and the current branch stays the current one.

use rekindle_core::record::{Checkpoint, CheckpointSource, CheckpointTrigger, CheckpointType};
use rekindle_core::{
    BranchId, CheckpointId, Error, ErrorKind, Json, Position, Record, Restored, Result, SessionKey, Target,
};

use crate::contention::{Contention, is_lost};
use crate::driver::{BUDGET, Ledger};
use crate::engine::Engine;

/// What was decided on the state at the end of a branch.
pub(super) enum Decided<T> {
    /// These records are appended.
    Append(Vec<Record>, T),
    /// There is nothing to do.
    Nothing(T),
}

/// Loads the end of a branch (of the current one if none is named), has `decide` say what follows
/// it, and appends that; again if somebody was quicker. `AlreadyRunning` if somebody runs the
/// branch. Where the branch ends then, and what was decided.
pub(super) async fn change<T>(
    engine: &Engine,
    session: &SessionKey,
    branch: Option<&BranchId>,
    mut decide: impl FnMut(&Restored) -> Result<Decided<T>>,
) -> Result<(Position, T)> {
    let journal = engine.journal();
    let mut contention = Contention::default();
    loop {
        let restored = load_head(engine, session, branch).await?;
        let (records, given) = match decide(&restored)? {
            Decided::Nothing(given) => return Ok((restored.position, given)),
            Decided::Append(records, given) => (records, given),
        };
        check(&restored, &records)?;
        let target = Target::new(session.clone(), restored.position.branch.clone(), restored.head);
        match journal.append(&target, &records).await {
            Ok(appended) => return Ok((Position::new(target.branch, appended.head.seq), given)),
            Err(error) if is_lost(&error) => contention.lost(engine, session).await?,
            Err(error) => return Err(explained(error)),
        }
    }
}

pub(super) async fn load_head(engine: &Engine, session: &SessionKey, branch: Option<&BranchId>) -> Result<Restored> {
    let journal = engine.journal();
    match branch {
        None => journal.load(session, None).await,
        Some(branch) => {
            let head = super::at::head_of(&journal.open(session).await?, branch)?;
            journal.load(session, Some(&head)).await
        }
    }
}

/// An error if the records cannot follow: what is written must be readable for ever.
pub(super) fn check(restored: &Restored, records: &[Record]) -> Result<()> {
    let mut state = restored.state.clone();
    for record in records {
        state.apply(record).map_err(|error| {
            Error::invalid("the change does not fit the state").because(error).at(restored.position.clone())
        })?;
    }
    Ok(())
}

/// `AlreadyRunning`, with what can be done about it.
fn explained(error: Error) -> Error {
    match error.kind() {
        ErrorKind::AlreadyRunning { .. } => {
            error.hint("pause the run first and try again, or fork the session and change the fork")
        }
        _ => error,
    }
}

/// A checkpoint somebody asked for, behind `restored`.
pub(super) fn mark(engine: &Engine, restored: &Restored, source: CheckpointSource, description: &str) -> Checkpoint {
    let (journal, state) = (engine.journal(), &restored.state);
    let ledger: Ledger = state.register(BUDGET).map(Json::decode).and_then(Result::ok).unwrap_or_default();
    let stands_at = engine.descriptors().of(state).step(state).unwrap_or_default();
    let before = restored.checkpoint.as_ref().map_or(0, |before| before.checkpoint.step);
    Checkpoint {
        parent: state.checkpoint().cloned(),
        source,
        trigger: CheckpointTrigger::Manual,
        kind: CheckpointType::UserCheckpoint,
        step: stands_at.max(before),
        description: description.to_owned(),
        active_micros: ledger.session.active_micros,
        usage: ledger.session.usage(),
        fingerprint: state.run().and_then(|run| run.started.fingerprint),
        ..Checkpoint::new(CheckpointId::generate(journal.ids(), journal.clock().now()))
    }
}

/// Who did it, as records say it.
pub(super) fn by(author: &str) -> String {
    if author.is_empty() { "unknown".to_owned() } else { author.to_owned() }
}
