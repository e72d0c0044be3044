//! What sessions wait for.

use std::ops::ControlFlow;

use rekindle_core::codec::Batch;
use rekindle_core::record::{WaitCloseReason, WaitDecision};
use rekindle_core::{
    BranchId, BranchInfo, Damage, Error, ErrorKind, Namespace, Position, Record, Restored, Result, Seq, SessionInfo,
    SessionKey, SessionQuery, Status, StoreExt as _, Timestamp, WaitId, WaitState,
};
use serde::Serialize;

use super::answer::as_seen;
use super::inbox;
use super::line::Line;
use super::show::WaitView;
use crate::engine::Engine;
use crate::wait::verdict;

/// An open wait of some session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpenWait {
    /// The session.
    pub session: SessionKey,
    /// Its title.
    pub title: Option<String>,
    /// The branch.
    pub branch: BranchId,
    /// True if that is the branch a resume goes on with.
    pub current: bool,
    /// The wait.
    pub wait: WaitView,
    /// Whether it is answered, and only a resume is missing.
    pub answered: bool,
    /// Records of the inbox that cannot be read: an answer may be among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<Damage>,
}

/// Everything that waits for somebody.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OpenWaits {
    /// The waits, oldest session first.
    pub waits: Vec<OpenWait>,
    /// Sessions that wait and cannot be read, and why.
    pub unreadable: Vec<(SessionKey, String)>,
}

/// All open waits of a namespace, of every branch of its sessions.
///
/// A store finds sessions by the status of their current branch only, so all sessions are listed. What is
/// restored are branches that wait, and forks nothing was written to: they stand where they were forked.
pub async fn waits(engine: &Engine, namespace: &Namespace) -> Result<OpenWaits> {
    let mut query = SessionQuery::new(namespace.clone()).with_limit(500);
    query.oldest_first = true;
    let mut open = OpenWaits::default();
    for info in engine.journal().store().list_all(&query).await.map_err(|error| error.during("waits"))? {
        let session = info.header.key.clone();
        match waits_in(engine, info).await {
            Ok(waits) => open.waits.extend(waits),
            // It was deleted since it was listed.
            Err(error) if *error.kind() == ErrorKind::NotFound => {}
            Err(error) => open.unreadable.push((session, error.to_string())),
        }
    }
    Ok(open)
}

/// The open waits of a session, of its current branch first and then of the others.
pub async fn waits_of(engine: &Engine, session: &SessionKey) -> Result<Vec<OpenWait>> {
    let context = |error: Error| error.during("waits").on(session);
    let info = engine.journal().open(session).await.map_err(context)?;
    waits_in(engine, info).await.map_err(context)
}

async fn waits_in(engine: &Engine, info: SessionInfo) -> Result<Vec<OpenWait>> {
    let mut open = Vec::new();
    for branch in may_wait(&info) {
        // The index may say something else than the records, which count.
        let waits = branch.status == Status::Waiting || is_unwritten(branch);
        if waits || engine.journal().recorded_status(&info, branch).await? == Some(Status::Waiting) {
            open.extend(waits_on(engine, &info, branch).await?);
        }
    }
    Ok(open)
}

/// Returns whether nothing was written to a fork. The index says that it is idle, although it is what it was forked from.
fn is_unwritten(branch: &BranchInfo) -> bool {
    branch.parent.as_ref().is_some_and(|parent| parent.seq == branch.head.seq)
}

/// The branches that may wait, the current one first: those that the index calls waiting, and those with any record
/// about a wait.
fn may_wait(info: &SessionInfo) -> Vec<&BranchInfo> {
    let may_wait =
        |branch: &&BranchInfo| branch.status == Status::Waiting || branch.last_wait > Seq::ZERO || is_unwritten(branch);
    let mut branches: Vec<_> =
        info.branches.iter().filter(|branch| !branch.branch.is_inbox()).filter(may_wait).collect();
    branches.sort_by_key(|branch| branch.branch != info.current);
    branches
}

async fn waits_on(engine: &Engine, info: &SessionInfo, branch: &BranchInfo) -> Result<Vec<OpenWait>> {
    let session = &info.header.key;
    let head = Position::new(branch.branch.clone(), branch.head.seq);
    let restored = engine.journal().load(session, Some(&head)).await?;
    if restored.state.status() != Status::Waiting {
        return Ok(Vec::new());
    }
    let now = restored.info.observed_at;
    let unread = inbox::unread(engine, &restored).await?;
    let open = |wait: &WaitState| {
        let seen = as_seen(wait, &branch.branch, &unread);
        OpenWait {
            session: session.clone(),
            title: restored.info.header.title.clone(),
            branch: branch.branch.clone(),
            current: branch.branch == info.current,
            answered: verdict(&seen, now).is_some_and(|(_, expired)| !expired),
            wait: WaitView::of(&seen, now),
            lost: unread.damage().cloned().collect(),
        }
    };
    Ok(restored.state.waits().map(open).collect())
}

/// Where a wait stands.
pub(super) enum Found {
    /// It is open, at the end of this branch.
    Open(Box<Restored>),
    /// It was open once.
    Closed(Box<ClosedWait>),
}

/// A wait that is over.
pub(super) struct ClosedWait {
    /// What was decided.
    pub(super) decisions: Vec<WaitDecision>,
    reason: WaitCloseReason,
    at: Timestamp,
    position: Position,
}

impl ClosedWait {
    /// How it ended, as an error for whoever comes too late.
    pub(super) fn error(&self, wait: &WaitId) -> Error {
        let at = self.at;
        let message = match (self.reason, self.decisions.last()) {
            (WaitCloseReason::Answered, Some(last)) => {
                format!("the wait `{wait}` was decided by {} and closed at {at}", last.author)
            }
            (WaitCloseReason::Answered, None) => format!("the wait `{wait}` was answered at {at}"),
            (WaitCloseReason::Expired, _) => format!("the wait `{wait}` expired, and was closed at {at}"),
            (WaitCloseReason::Cancelled, _) => format!("the wait `{wait}` was cancelled at {at}"),
        };
        Error::new(ErrorKind::WaitClosed, message).at(self.position.clone())
    }
}

/// Finds a wait: on the branch that is named, or else on the current one if it is open there, or
/// else on the only other one where it is.
pub(super) async fn find(
    engine: &Engine,
    session: &SessionKey,
    wait: &WaitId,
    branch: Option<&BranchId>,
) -> Result<Found> {
    let first = super::write::load_head(engine, session, branch).await?;
    if first.state.wait(wait).is_some() {
        return Ok(Found::Open(Box::new(first)));
    }
    let mut closed = closing_of(engine, &first, wait).await?;
    let is_other = |info: &&BranchInfo| !info.branch.is_inbox() && info.branch != first.position.branch;
    let mut open = Vec::new();
    for other in first.info.branches.iter().filter(|_| branch.is_none()).filter(is_other) {
        let head = Position::new(other.branch.clone(), other.head.seq);
        // A branch that cannot be read must not hide what stands on the others.
        let Ok(restored) = engine.journal().load(session, Some(&head)).await else { continue };
        if restored.state.wait(wait).is_some() {
            open.push(restored);
        } else if closed.is_none() {
            closed = closing_of(engine, &restored, wait).await?;
        }
    }
    match (open.len(), closed) {
        (0, Some(closed)) => Ok(Found::Closed(Box::new(closed))),
        (0, None) => Err(unknown(&first, wait)),
        (1, _) => Ok(Found::Open(Box::new(open.remove(0)))),
        _ => Err(ambiguous(&open, wait)),
    }
}

fn ambiguous(open: &[Restored], wait: &WaitId) -> Error {
    let names: Vec<_> = open.iter().map(|restored| restored.position.branch.to_string()).collect();
    Error::invalid(format!("the wait `{wait}` is open on {} branches: {}", names.len(), names.join(", ")))
        .hint("name the branch you mean")
}

/// How a wait ended on the line of history that leads to `restored`.
async fn closing_of(engine: &Engine, restored: &Restored, wait: &WaitId) -> Result<Option<ClosedWait>> {
    let line = Line::to(&restored.info, &restored.position)?;
    let mut decisions = Vec::new();
    let mut found = None;
    let mut visit = |branch: &BranchId, batch: &Batch| {
        for (seq, record) in batch.numbered() {
            match record {
                Record::WaitDecision(decision) if decision.wait == *wait => decisions.push(decision.clone()),
                Record::WaitClosed(closed) if closed.wait == *wait => {
                    found = Some((closed.reason, batch.at, Position::new(branch.clone(), seq)));
                }
                _ => {}
            }
        }
        Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    let _ = line.walk(engine, &restored.info.header.key, &mut visit).await?;
    Ok(found.map(|(reason, at, position)| ClosedWait { decisions, reason, at, position }))
}

fn unknown(restored: &Restored, wait: &WaitId) -> Error {
    let open: Vec<_> = restored.state.waits().map(|wait| wait.opened.wait.to_string()).collect();
    let hint = match open.as_slice() {
        [] => "the session waits for nothing".to_owned(),
        open => format!("it waits for: {}", open.join(", ")),
    };
    Error::not_found(format!("the session has no wait `{wait}`")).hint(hint)
}
