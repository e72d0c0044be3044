//! State that somebody else keeps here: saved as it is, given back unchanged, numbered step by step.

use std::collections::BTreeSet;

use rekindle_core::record::{CheckpointSource, RegisterSet};
use rekindle_core::{
    CheckpointId, CheckpointInfo, Error, Json, Position, RegisterKey, Restored, Result, SessionHeader, SessionKey,
};
use serde::Serialize;

use super::at::At;
use super::write::{self, Decided};
use crate::engine::Engine;

/// The register a saved state stands in.
const SAVED: &str = "saved";

/// A state that was saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Saved {
    /// The session.
    pub session: SessionKey,
    /// The checkpoint that marks it.
    pub checkpoint: CheckpointId,
    /// Its number: one more than the checkpoint before it has.
    pub step: u64,
    /// Where it stands.
    pub position: Position,
    /// The keys whose values were left out, because such values are never stored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// A saved state, with the checkpoint it was read at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SavedState {
    /// The session.
    pub session: SessionKey,
    /// The checkpoint.
    pub checkpoint: CheckpointInfo,
    /// What was saved.
    pub state: Json,
}

/// Saves a state of a program that keeps its own: one record and the checkpoint that marks it. Makes
/// the session if it is not there; `AlreadyRunning` if somebody runs it. Values of excluded keys, such as `api_key`,
/// are left out, and named in what is returned.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::{Engine, Json, operations};
///
/// let engine = Engine::memory()?;
/// let session = engine.key("notes")?;
/// let state = Json::parse(r#"{"page": 7.50}"#)?;
/// assert_eq!(operations::save_state(&engine, &session, &state, "half way", "maria").await?.step, 1);
/// assert_eq!(operations::saved_state(&engine, &session, None).await?.state, state);
/// # Ok(()) }
/// ```
pub async fn save_state(
    engine: &Engine,
    session: &SessionKey,
    state: &Json,
    description: &str,
    author: &str,
) -> Result<Saved> {
    let context = |error: Error| error.during("save state").on(session);
    engine.journal().open_or_create(SessionHeader::new(session.clone())).await.map_err(context)?;
    let key = RegisterKey::new(SAVED).map_err(context)?;
    let decide = |restored: &Restored| {
        let mut checkpoint = write::mark(engine, restored, CheckpointSource::Update, description);
        checkpoint.step = checkpoint.step.saturating_add(1);
        checkpoint.extra.insert("author".into(), write::by(author).into());
        let given = (checkpoint.id.clone(), checkpoint.step);
        let set = RegisterSet::new(key.clone(), state.clone());
        Ok(Decided::Append(vec![set.into(), checkpoint.into()], given))
    };
    let (position, (checkpoint, step)) = write::change(engine, session, None, decide).await.map_err(context)?;
    let excluded = engine.journal().codec().redaction().excluded_values(state);
    let left_out: BTreeSet<String> = excluded.into_iter().map(|(key, _)| key).collect();
    Ok(Saved { session: session.clone(), checkpoint, step, position, left_out: left_out.into_iter().collect() })
}

/// What was saved last, or what stood saved at a checkpoint.
pub async fn saved_state(engine: &Engine, session: &SessionKey, at: Option<&CheckpointId>) -> Result<SavedState> {
    let context = |error: Error| error.during("saved state").on(session);
    let at = at.map_or(At::Latest, |id| At::Checkpoint(id.clone()));
    let restored = at.load(engine, session).await.map_err(context)?;
    let state = restored.state.register(SAVED).cloned();
    match (state, restored.checkpoint) {
        (Some(state), Some(checkpoint)) => Ok(SavedState { session: session.clone(), checkpoint, state }),
        _ => Err(context(
            Error::not_found("no state was saved in this session up to there")
                .hint("save one first; what the session's own runs know is shown by inspecting the checkpoint"),
        )),
    }
}
