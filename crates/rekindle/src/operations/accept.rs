//! Accepting that a session is in an older state than it was, or is gone.

use std::collections::BTreeMap;

use rekindle_core::high_water::HighWater;
use rekindle_core::record::{Accepted, Extra};
use rekindle_core::{BranchId, Damage, DamageKind, Error, ErrorKind, Head, Position, Record, Result, SessionKey};
use serde::Serialize;

use super::write;
use crate::engine::Engine;

/// What was accepted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AcceptedState {
    /// The session.
    pub session: SessionKey,
    /// What was found.
    pub found: Found,
    /// The records that are gone.
    pub missing: Vec<Damage>,
    /// Where branches ended before.
    pub heads_before: BTreeMap<BranchId, Head>,
    /// Where the acceptance is on record.
    pub position: Option<Position>,
}

/// How a session compares with its marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// Nothing is missing: there was nothing to accept.
    Whole,
    /// It was in an older state.
    RolledBack,
    /// It was gone.
    Gone,
}

/// Accepts that a session is in an older state than its high-water marks show: that is recorded in its
/// inbox, and the marks are set to what is there. Of a session that is gone the marks are removed.
///
/// Calls whose records are gone may have happened, and a resume makes them again.
pub async fn accept_rollback(
    engine: &Engine,
    session: &SessionKey,
    author: &str,
    reason: &str,
) -> Result<AcceptedState> {
    let context = |error: Error| error.during("accept").on(session);
    if reason.trim().is_empty() {
        return Err(context(Error::invalid("nothing says why the older state is accepted")));
    }
    let store = engine.journal().store().clone();
    let marks = marks_of(&*store).map_err(context)?;
    let heads_before = highest(marks.marked(session).await.map_err(context)?);
    let mut accepted = AcceptedState {
        session: session.clone(),
        found: Found::Whole,
        missing: Vec::new(),
        heads_before,
        position: None,
    };
    match engine.journal().open(session).await {
        Ok(info) => {
            accepted.missing = info.damage.into_iter().filter(|damage| damage.kind == DamageKind::RolledBack).collect();
            if accepted.missing.is_empty() {
                return Ok(accepted);
            }
            accepted.found = Found::RolledBack;
        }
        Err(error) if *error.kind() == ErrorKind::NotFound && !accepted.heads_before.is_empty() => {
            accepted.found = Found::Gone;
        }
        Err(error) => return Err(context(error)),
    }
    if accepted.found == Found::RolledBack {
        let record = Record::from(Accepted {
            what: Accepted::ROLLED_BACK.to_owned(),
            author: write::by(author),
            reason: reason.to_owned(),
            heads_before: accepted.heads_before.clone(),
            extra: Extra::new(),
        });
        // On record first: after a crash in between it is accepted again.
        marks.permit(session);
        accepted.position = Some(engine.journal().send(session, &[record]).await.map_err(context)?);
    }
    marks.accept(session).await.map_err(context)?;
    Ok(accepted)
}

fn marks_of(store: &dyn rekindle_core::Store) -> Result<&dyn HighWater> {
    store.high_water().ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "no marks are kept of this store, so no older state is noticed")
            .hint("turn on `marks` (sqlite:, file:), or name an `anchor`")
    })
}

/// The highest head of each branch in any place.
fn highest(places: Vec<BTreeMap<BranchId, Head>>) -> BTreeMap<BranchId, Head> {
    let mut all: BTreeMap<BranchId, Head> = BTreeMap::new();
    for (branch, head) in places.into_iter().flatten() {
        let known = all.entry(branch).or_insert(head);
        if head.seq > known.seq {
            *known = head;
        }
    }
    all
}
