//! Copying sessions between stores.

use rekindle_core::{CopyOptions, CopyProgress, CopyReport, Diverged, Error, ErrorKind, Result, SessionKey};

use crate::engine::Engine;

/// Copies a session with all its branches to another store, as it is, or brings the copy there up
/// to date. May be stopped at any moment and repeated. Leases and jobs are not copied; of a session
/// that runs, what is durable when the copy begins.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::core::{CopyOptions, CopyOutcome};
/// use rekindle::{Engine, operations};
///
/// let (from, to) = (Engine::memory()?, Engine::memory()?);
/// let session = from.create("trip-42").await?;
/// let options = CopyOptions::default();
/// let copied = operations::copy(&from, &to, session.key(), &options, &|_| ()).await?;
/// assert_eq!(copied.outcome, CopyOutcome::Copied);
/// let again = operations::copy(&from, &to, session.key(), &options, &|_| ()).await?;
/// assert_eq!(again.outcome, CopyOutcome::There);
/// # Ok(()) }
/// ```
pub async fn copy(
    from: &Engine,
    to: &Engine,
    session: &SessionKey,
    options: &CopyOptions,
    progress: CopyProgress<'_>,
) -> Result<CopyReport> {
    let copied = from.journal().copy(to.journal(), session, options, progress).await;
    copied.map_err(|error| match (error.kind(), options.diverged) {
        (ErrorKind::AlreadyExists, Diverged::Refuse) => refused(error),
        _ => error,
    })
}

fn refused(error: Error) -> Error {
    error.hint("leave it as it is, copy under another name, or replace what is there")
}
