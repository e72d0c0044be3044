//! Archives: sessions that nobody needs now, out of the store and in object storage, and back.
//!
//! An archive is one object, the compressed export of a session, and a small JSON entry beside it:
//!
//! ```text
//! archives/<namespace>/<session>/<incarnation>-<hash>.rekindle.jsonl.zst
//! archives/<namespace>/<session>/<incarnation>.json
//! ```
//!
//! The object is named by its content and never overwritten; the entry, written last, makes it an
//! archive. Only when both were written and the object was read back does the session leave the
//! store. So a crash leaves the session, the archive, or both, and repeating finishes. An archive is removed by marking its
//! entry first and deleting it last, so that repeating finishes that too.

mod entry;
mod garbage;
mod place;
mod restore;
mod write;

use std::collections::BTreeMap;
use std::time::Duration;

use rekindle_core::retention::Reason;
use rekindle_core::{
    BranchId, Error, ErrorKind, Head, Namespace, Result, SessionInfo, SessionKey, SessionQuery, Status, StoreExt as _,
};
use serde::Serialize;

pub use entry::{ArchiveEntry, Archives, archives};
pub(super) use garbage::{clear_unnamed, unnamed};
pub use place::ArchivePlace;
pub use restore::{RestoreOptions, Restored, restore};
pub use write::{ArchiveOptions, Archived, archive};

/// What archives are below.
const FOLDER: &str = "archives";

/// Which sessions of a namespace can be archived.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArchivePlan {
    /// Those that go.
    pub archive: Vec<SessionKey>,
    /// Those that stay, and why.
    pub protected: Vec<(SessionKey, Reason)>,
}

/// The sessions of a namespace that were inactive for `threshold` or longer and have one of
/// `statuses`, any if there are none. Changes nothing.
pub async fn plan_archive(
    engine: &crate::Engine,
    namespace: &Namespace,
    threshold: Duration,
    statuses: &[Status],
) -> Result<ArchivePlan> {
    let mut query = SessionQuery::new(namespace.clone()).with_limit(500);
    query.updated_before = Some(engine.journal().clock().now().minus(threshold));
    query.oldest_first = true;
    let mut plan = ArchivePlan { archive: Vec::new(), protected: Vec::new() };
    let found = engine.journal().store().list_all(&query).await;
    for info in found.map_err(|error| error.during("archive"))? {
        // A local clock that is ahead must not make a session look older than it is.
        if info.observed_at.since(info.updated_at()) < threshold {
            continue;
        }
        let key = info.header.key.clone();
        let info = match by_records(engine, info.clone()).await {
            // To archive it fails, and says why.
            Err(error) if *error.kind() == ErrorKind::Corrupt => info,
            other => other.map_err(|error| error.during("archive"))?,
        };
        if !statuses.is_empty() && !statuses.contains(&info.status()) {
            continue;
        }
        match reason_against(&info) {
            Some(reason) => plan.protected.push((key, reason)),
            None => plan.archive.push(key),
        }
    }
    Ok(plan)
}

/// Returns a session with the statuses that its records say. An encrypted session can be archived without its key: then
/// those of the index count.
async fn by_records(engine: &crate::Engine, info: SessionInfo) -> Result<SessionInfo> {
    match engine.journal().with_recorded_statuses(info.clone()).await {
        Err(error) if matches!(error.kind(), ErrorKind::KeyMissing { .. }) => Ok(info),
        other => other,
    }
}

/// Why a session cannot leave the store: somebody runs it, or it is not at its end.
fn reason_against(info: &SessionInfo) -> Option<Reason> {
    if info.live_lease().is_some() {
        return Some(Reason::Leased);
    }
    let statuses: Vec<Status> = info.branches.iter().map(|branch| branch.status_at(info.observed_at)).collect();
    match statuses {
        statuses if statuses.contains(&Status::Waiting) => Some(Reason::Waiting),
        statuses if statuses.iter().any(|status| status.is_unfinished()) => Some(Reason::UnfinishedRun),
        _ => None,
    }
}

fn protected(session: &SessionKey, reason: &Reason) -> Error {
    Error::new(ErrorKind::Protected, format!("the session cannot be archived: {reason}"))
        .on(session)
        .hint("let its run come to an end, or cancel it, and try again")
}

fn heads(info: &SessionInfo) -> BTreeMap<BranchId, Head> {
    info.heads()
}
