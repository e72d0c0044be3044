//! Results kept by hand, for programs that drive their own loop: what parallel calls returned,
//! saved one by one, so that none is repeated when the process dies before all have ended.

use rekindle_core::record::{Edit, Extra, LogAppend, LogSplice};
use rekindle_core::{Error, Json, LogName, Position, Restored, Result, SessionKey, Timestamp};
use serde::{Deserialize, Serialize};

use super::write::{self, Decided};
use crate::engine::Engine;

/// The prefix of the logs they stand in.
const PREFIX: &str = "pending/";

/// What one call returned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingWrite {
    /// The call.
    pub call: String,
    /// The tool.
    pub tool: String,
    /// What it returned.
    pub result: Json,
    /// The iteration it belongs to.
    pub iteration: u64,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Saves results under a key, behind those that are there. Durable when it returns.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::operations::pending::{self, PendingWrite};
/// use rekindle::{Engine, Json, Timestamp};
///
/// let engine = Engine::memory()?;
/// let session = engine.create("mine").await?;
/// let write = PendingWrite {
///     call: "call_1".into(),
///     tool: "weather".into(),
///     result: Json::from("cold"),
///     iteration: 1,
///     created_at: Timestamp(0),
/// };
/// pending::save(&engine, session.key(), "step-1", &[write.clone()]).await?;
/// assert_eq!(pending::load(&engine, session.key(), "step-1").await?, [write]);
/// pending::delete(&engine, session.key(), "step-1").await?;
/// assert!(pending::load(&engine, session.key(), "step-1").await?.is_empty());
/// # Ok(()) }
/// ```
pub async fn save(engine: &Engine, session: &SessionKey, key: &str, writes: &[PendingWrite]) -> Result<Position> {
    let context = |error: Error| error.during("save pending writes").on(session);
    let log = log_of(key).map_err(context)?;
    let items: Vec<Json> = writes.iter().map(Json::of).collect::<Result<_>>().map_err(context)?;
    let decide = |_: &Restored| {
        if items.is_empty() {
            return Ok(Decided::Nothing(()));
        }
        Ok(Decided::Append(vec![LogAppend::new(log.clone(), items.clone()).into()], ()))
    };
    let (position, ()) = write::change(engine, session, None, decide).await.map_err(context)?;
    Ok(position)
}

/// The results saved under a key, in the order they were saved: a copy. Empty if there are none.
pub async fn load(engine: &Engine, session: &SessionKey, key: &str) -> Result<Vec<PendingWrite>> {
    let context = |error: Error| error.during("load pending writes").on(session);
    let log = log_of(key).map_err(context)?;
    let restored = engine.journal().load(session, None).await.map_err(context)?;
    restored.state.log(&log).iter().map(Json::decode).collect::<Result<_>>().map_err(context)
}

/// Removes the results saved under a key; how many there were.
pub async fn delete(engine: &Engine, session: &SessionKey, key: &str) -> Result<usize> {
    let context = |error: Error| error.during("delete pending writes").on(session);
    let log = log_of(key).map_err(context)?;
    let decide = |restored: &Restored| {
        let count = restored.state.log(&log).len();
        if count == 0 {
            return Ok(Decided::Nothing(0));
        }
        let reason = format!("pending writes of `{key}` were deleted");
        let edit = Edit { author: "program".into(), reason, extra: Extra::new() };
        let splice = LogSplice::new(log.clone(), 0, count as u64, Vec::new());
        Ok(Decided::Append(vec![edit.into(), splice.into()], count))
    };
    let (_, count) = write::change(engine, session, None, decide).await.map_err(context)?;
    Ok(count)
}

fn log_of(key: &str) -> Result<LogName> {
    if key.is_empty() {
        return Err(Error::invalid("the key of pending writes is empty"));
    }
    LogName::new(format!("{PREFIX}{key}"))
}
