//! Tidying up. Everything can be tried first: a dry run says what would go, and changes nothing.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Duration;

use rekindle_core::retention::{Policy, PrunePlan, Reason, Rule};
use rekindle_core::{
    BranchId, CheckpointId, DeletePlan, Error, ErrorKind, Namespace, ReadFrames, Receipt, Removed, Result, Seq,
    SessionKey, Slot, Status, StoreExt as _, Timestamp,
};
use serde::Serialize;

use super::show;
use crate::engine::Engine;

/// What was freed. Nothing in a dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Freed {
    /// Frames removed, less frames written in their place.
    pub frames: u64,
    /// Bytes removed, less bytes written in their place.
    pub bytes: u64,
}

impl From<Removed> for Freed {
    fn from(removed: Removed) -> Self {
        Self { frames: removed.frames, bytes: removed.bytes }
    }
}

/// What pruning did or would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pruned {
    /// True if nothing was changed.
    pub dry_run: bool,
    /// What goes, what stays and why.
    pub plan: PrunePlan,
    /// Bytes of the history that is compacted: the most that can be freed.
    pub history_bytes: u64,
    /// What that freed.
    pub freed: Freed,
}

/// What `policy` would remove from a session. Changes nothing.
pub async fn plan_prune(engine: &Engine, session: &SessionKey, policy: &Policy) -> Result<PrunePlan> {
    engine.journal().plan_prune(session, policy, None).await.map_err(|error| error.during("prune"))
}

/// Removes the checkpoints of a session that `policy` does not keep, and the history nothing
/// needs any more.
pub async fn prune(engine: &Engine, session: &SessionKey, policy: &Policy, dry_run: bool) -> Result<Pruned> {
    let context = |error: Error| error.during("prune");
    let plan = plan_prune(engine, session, policy).await?;
    let history_bytes = history_bytes(engine, session, &plan).await.map_err(context)?;
    if dry_run {
        return Ok(Pruned { dry_run, plan, history_bytes, freed: Freed::default() });
    }
    let done = engine.journal().apply_prune(session, plan, None).await.map_err(context)?;
    Ok(Pruned { dry_run, plan: done.plan, history_bytes, freed: done.removed.into() })
}

/// How large the history is that a plan compacts.
async fn history_bytes(engine: &Engine, session: &SessionKey, plan: &PrunePlan) -> Result<u64> {
    let mut bytes = 0;
    for trim in &plan.trims {
        let read = ReadFrames::all(session.clone(), trim.branch.clone()).with_range(Seq(1), trim.through);
        let mut count = |slots: Vec<Slot>| {
            let whole = slots.iter().filter_map(|slot| if let Slot::Whole(frame) = slot { Some(frame) } else { None });
            bytes += whole.map(|frame| frame.stored_len() as u64).sum::<u64>();
            Ok(ControlFlow::Continue(()))
        };
        engine.journal().store().read_pages(&read, &mut count).await?;
    }
    Ok(bytes)
}

/// Removes the checkpoints of a session made before `cutoff`, except what is protected.
pub async fn delete_older_than(
    engine: &Engine,
    session: &SessionKey,
    cutoff: Timestamp,
    dry_run: bool,
) -> Result<Pruned> {
    let age = engine.journal().clock().now().since(cutoff);
    prune(engine, session, &Policy::new([Rule::MaxAge(age)]), dry_run).await
}

/// Checkpoints that are no longer marks, or would not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unmarked {
    /// True if nothing was changed.
    pub dry_run: bool,
    /// The checkpoints.
    pub checkpoints: Vec<CheckpointId>,
}

/// Unmarks checkpoints. Refuses protected ones (`Protected`, with the reasons) and unknown ones,
/// and then changes nothing. Their bytes go with the next [`prune`].
pub async fn delete_checkpoints(
    engine: &Engine,
    session: &SessionKey,
    ids: &[CheckpointId],
    dry_run: bool,
) -> Result<Unmarked> {
    let journal = engine.journal();
    if dry_run {
        let plan = journal.plan_prune(session, &Policy::default(), None).await?;
        check_deletable(session, &plan, ids)?;
    } else if !ids.is_empty() {
        journal.delete_checkpoints(session, ids).await?;
    }
    Ok(Unmarked { dry_run, checkpoints: ids.to_vec() })
}

/// The same refusals as the journal's own.
fn check_deletable(session: &SessionKey, plan: &PrunePlan, ids: &[CheckpointId]) -> Result<()> {
    let context = |error: Error| Err(error.during("delete checkpoints").on(session));
    if let Some(planned) = plan.keep.iter().find(|planned| ids.contains(&planned.checkpoint)) {
        let reasons: Vec<_> = planned.reasons.iter().map(Reason::to_string).collect();
        let message = format!("checkpoint `{}` is protected: {}", planned.checkpoint, reasons.join(", "));
        return context(Error::new(ErrorKind::Protected, message));
    }
    let known = |id: &CheckpointId| plan.remove.iter().any(|planned| planned.checkpoint == *id);
    match ids.iter().find(|id| !known(id)) {
        Some(unknown) => context(Error::not_found(format!("there is no checkpoint `{unknown}`"))),
        None => Ok(()),
    }
}

/// Sessions that were deleted, or would be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deleted {
    /// True if nothing was changed.
    pub dry_run: bool,
    /// Which go, and which are protected and why.
    pub plan: DeletePlan,
    /// What that freed.
    pub freed: Freed,
}

/// Deletes the sessions of a namespace that were inactive for `threshold` or longer, except what
/// is protected.
pub async fn delete_inactive(
    engine: &Engine,
    namespace: &Namespace,
    threshold: Duration,
    dry_run: bool,
) -> Result<Deleted> {
    delete_inactive_of(engine, namespace, threshold, &[], dry_run).await
}

/// The same, of those alone that have one of `statuses`; any if there are none.
pub async fn delete_inactive_of(
    engine: &Engine,
    namespace: &Namespace,
    threshold: Duration,
    statuses: &[Status],
    dry_run: bool,
) -> Result<Deleted> {
    let context = |error: Error| error.during("delete inactive");
    let mut plan = engine.journal().plan_delete_inactive(namespace, threshold).await.map_err(context)?;
    if !statuses.is_empty() {
        retain_statuses(engine, &mut plan, statuses).await.map_err(context)?;
    }
    if dry_run {
        return Ok(Deleted { dry_run, plan, freed: Freed::default() });
    }
    let (plan, removed) = engine.journal().apply_delete(plan).await.map_err(context)?;
    Ok(Deleted { dry_run, plan, freed: removed.into() })
}

async fn retain_statuses(engine: &Engine, plan: &mut DeletePlan, statuses: &[Status]) -> Result<()> {
    let mut of_status = HashSet::new();
    for session in plan.delete.iter().chain(plan.protected.iter().map(|(session, _)| session)) {
        match engine.journal().open(session).await {
            Ok(info) => {
                if statuses.contains(&engine.journal().with_recorded_statuses(info).await?.status()) {
                    of_status.insert(session.clone());
                }
            }
            // It was deleted since.
            Err(error) if *error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    plan.delete.retain(|session| of_status.contains(session));
    plan.protected.retain(|(session, _)| of_status.contains(session));
    Ok(())
}

/// A session that was deleted with everything in it, or would be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cleared {
    /// True if nothing was changed.
    pub dry_run: bool,
    /// The session.
    pub session: SessionKey,
    /// Its branches, with the number of their last record.
    pub branches: Vec<(BranchId, u64)>,
    /// What that freed.
    pub freed: Freed,
    /// True if it was removed before, and only what was left over of it is cleared.
    pub before: bool,
    /// True if it cannot be read: then neither what it held nor which data key is its own is known. The key is without a
    /// session once it is removed ([`prune_keys`](super::prune_keys)).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unreadable: bool,
    /// Places with large values of it that stay, because another bucket is configured for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<String>,
    /// Places with large values of it that stay, because other stores may use them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
}

/// Erases a session as [`clear_session`] does, and gives a receipt: signed if there is a main key. Repeated after it
/// stopped, it finishes and gives the receipt.
pub async fn erase_session(engine: &Engine, session: &SessionKey, author: &str) -> Result<(Cleared, Receipt)> {
    let context = |error: Error| error.during("erase session").on(session);
    let mut cleared = clear_session(engine, session, true).await?;
    if cleared.unreadable {
        let hint = "remove it without a receipt; `rekindle keys prune` then destroys its data key";
        return Err(context(
            Error::corrupt("the session cannot be read, so no receipt can say what was there").hint(hint),
        ));
    }
    let (receipt, removed) = engine.journal().erase(session, Some(author.to_owned())).await.map_err(context)?;
    let finished = engine.journal().finish_removal(session).await.map_err(context)?;
    (cleared.dry_run, cleared.freed) = (false, removed.into());
    (cleared.elsewhere, cleared.kept) = (finished.elsewhere, finished.kept);
    Ok((cleared, receipt))
}

/// Deletes a session and everything in it, its data key too, whatever it is doing, unless somebody runs it
/// (`Protected`). One that cannot be read goes as well, without its key. The sessions it started stay. A removal that stopped is finished: then the session was removed before, and
/// what was left over of it is cleared.
pub async fn clear_session(engine: &Engine, session: &SessionKey, dry_run: bool) -> Result<Cleared> {
    let context = |error: Error| error.during("clear session").on(session);
    let info = match engine.journal().open(session).await {
        Err(error) if *error.kind() == ErrorKind::NotFound => {
            let finished = finish(engine, session, dry_run).await.map_err(context)?;
            return finished.ok_or_else(|| context(error));
        }
        Err(error) if *error.kind() == ErrorKind::Corrupt => {
            return clear_unreadable(engine, session, dry_run).await.map_err(context);
        }
        other => other.map_err(context)?,
    };
    if let Some(owner) = show::owner(&info) {
        let message = format!("{} runs it on branch `{}`", owner.owner, owner.branch);
        return Err(context(Error::new(ErrorKind::Protected, message).hint("cancel the run first, then try again")));
    }
    let branches = info.branches.iter().map(|branch| (branch.branch.clone(), branch.head.seq.0)).collect();
    let mut cleared = Cleared {
        dry_run,
        session: session.clone(),
        branches,
        freed: Freed::default(),
        before: false,
        unreadable: false,
        elsewhere: Vec::new(),
        kept: Vec::new(),
    };
    if !dry_run {
        cleared.freed = engine.journal().clear_session(session).await.map_err(context)?.into();
        let finished = engine.journal().finish_removal(session).await.map_err(context)?;
        (cleared.elsewhere, cleared.kept) = (finished.elsewhere, finished.kept);
    }
    Ok(cleared)
}

/// Deletes a session that cannot be read, or says so.
async fn clear_unreadable(engine: &Engine, session: &SessionKey, dry_run: bool) -> Result<Cleared> {
    let mut cleared = Cleared {
        dry_run,
        session: session.clone(),
        branches: Vec::new(),
        freed: Freed::default(),
        before: false,
        unreadable: true,
        elsewhere: Vec::new(),
        kept: Vec::new(),
    };
    if !dry_run {
        cleared.freed = engine.journal().clear_session(session).await?.into();
        let finished = engine.journal().finish_removal(session).await?;
        (cleared.elsewhere, cleared.kept) = (finished.elsewhere, finished.kept);
    }
    Ok(cleared)
}

/// Finishes the removal of a session that is gone; nothing if none was begun.
async fn finish(engine: &Engine, session: &SessionKey, dry_run: bool) -> Result<Option<Cleared>> {
    let journal = engine.journal();
    if !journal.is_removal_unfinished(session).await? {
        return Ok(None);
    }
    let finished = if dry_run { Default::default() } else { journal.finish_removal(session).await? };
    Ok(Some(Cleared {
        dry_run,
        session: session.clone(),
        branches: Vec::new(),
        freed: Freed { frames: 0, bytes: finished.bytes },
        before: true,
        unreadable: false,
        elsewhere: finished.elsewhere,
        kept: finished.kept,
    }))
}
