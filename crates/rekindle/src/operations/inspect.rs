//! The state of a session at any moment, and the difference of two.

use std::collections::BTreeMap;

use rekindle_core::record::HistoryLost;
use rekindle_core::{CheckpointInfo, Damage, Head, Position, Restored, Result, SessionKey, State, StateDiff, Status};
use serde::Serialize;
use serde_json::Value;

use super::at::At;
use super::show::{self, EffectView, RunView, WaitView};
use crate::engine::Engine;
use crate::executor::View;

/// A session as it was at a moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspected {
    /// The session.
    pub session: SessionKey,
    /// The moment.
    pub position: Position,
    /// What a later resume can say it saw.
    pub head: Head,
    /// Whether its branch ends here.
    pub is_head: bool,
    /// The last checkpoint at or before it.
    pub checkpoint: Option<CheckpointInfo>,
    /// What it was doing.
    pub status: Status,
    /// The run at that moment.
    pub run: Option<RunView>,
    /// What it waited for.
    pub waits: Vec<WaitView>,
    /// Calls whose results were not yet taken into a log.
    pub effects: Vec<EffectView>,
    /// Logs and registers.
    pub state: State,
    /// Kinds of records this version does not know, with how many.
    pub unknown: BTreeMap<String, u64>,
    /// Damage to newer records of the branch: the state here may not be the last there was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<Damage>,
    /// Records that could not be read any more and that the line went on without.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<HistoryLost>,
}

/// The complete state at a moment. Nothing is executed.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::operations::{self, At, Change};
/// use rekindle::{Engine, Json};
///
/// let engine = Engine::memory()?;
/// let session = engine.create("notes").await?;
/// let set = Change::SetMemory { key: "colour".into(), value: Json::from("blue") };
/// operations::edit(&engine, session.key(), &At::Latest, &[set], "maria", "to begin with").await?;
/// let seen = operations::inspect(&engine, session.key(), &At::Latest).await?;
/// assert_eq!(seen.state.register("memory/colour"), Some(&Json::from("blue")));
/// # Ok(()) }
/// ```
pub async fn inspect(engine: &Engine, session: &SessionKey, at: &At) -> Result<Inspected> {
    let restored = at.load(engine, session).await.map_err(|error| error.during("inspect"))?;
    let checkpoint = engine.journal().last_checkpoint(&restored).await?;
    let is_head = restored.info.branch(&restored.position.branch)?.head == restored.head;
    let now = restored.info.observed_at;
    let status = if is_head { show::status(&restored) } else { restored.state.status() };
    let damage = damage_of(engine, &restored).await?;
    let Restored { state, position, head, .. } = restored;
    Ok(Inspected {
        session: session.clone(),
        head,
        is_head,
        checkpoint,
        status,
        run: state.run().map(RunView::of),
        waits: state.waits().map(|wait| WaitView::of(wait, now)).collect(),
        effects: state.effects().map(EffectView::of).collect(),
        unknown: state.unknown().clone(),
        damage,
        lost: state.lost().to_vec(),
        position,
        state,
    })
}

/// The way the run of a state came, as the kind of its executor tells it.
pub fn view(engine: &Engine, state: &State) -> Result<View> {
    engine.descriptors().of(state).view(state)
}

/// One side of a difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiffSide {
    /// The session.
    pub session: SessionKey,
    /// The moment.
    pub position: Position,
    /// Damage to newer records of the branch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<Damage>,
}

/// The difference of two states.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// The first.
    pub a: DiffSide,
    /// The second.
    pub b: DiffSide,
    /// Whether both are the same.
    pub same: bool,
    /// What differs.
    pub diff: StateDiff,
    /// The same as JSON Patch (RFC 6902) from the first to the second.
    pub patch: Value,
    /// The same for people.
    pub text: String,
}

/// What must change in the state at `a` to get the state at `b`. The sessions may be the same.
pub async fn diff(engine: &Engine, a: (&SessionKey, &At), b: (&SessionKey, &At)) -> Result<Diff> {
    let first = a.1.load(engine, a.0).await.map_err(|error| error.during("diff"))?;
    let second = b.1.load(engine, b.0).await.map_err(|error| error.during("diff"))?;
    let diff = StateDiff::between(&first.state, &second.state);
    let (first_damage, second_damage) = (damage_of(engine, &first).await?, damage_of(engine, &second).await?);
    let side = |session: &SessionKey, restored: Restored, damage| DiffSide {
        session: session.clone(),
        position: restored.position,
        damage,
    };
    Ok(Diff {
        same: diff.is_empty(),
        patch: diff.to_json_patch()?,
        text: diff.to_string(),
        diff,
        a: side(a.0, first, first_damage),
        b: side(b.0, second, second_damage),
    })
}

/// Damage to records behind a state that was read.
async fn damage_of(engine: &Engine, restored: &Restored) -> Result<Vec<Damage>> {
    engine.journal().damage_at_end(&restored.info, &restored.position).await
}
