//! Finding sessions.

use rekindle_core::{Result, SessionPage, SessionQuery};

use crate::engine::Engine;

/// A page of sessions, newest first unless the query says otherwise.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::{Engine, SessionQuery, operations};
///
/// let engine = Engine::memory()?;
/// engine.create("one").await?;
/// engine.create("two").await?;
/// let page = operations::list(&engine, &SessionQuery::new(engine.namespace().clone()).with_limit(1)).await?;
/// assert_eq!(page.sessions.len(), 1);
/// assert!(page.next.is_some());
/// # Ok(()) }
/// ```
pub async fn list(engine: &Engine, query: &SessionQuery) -> Result<SessionPage> {
    engine.journal().list(query).await.map_err(|error| error.during("list"))
}
