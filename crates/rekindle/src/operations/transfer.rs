//! Checking a session, and moving it between stores.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, Write};

use rekindle_core::{BranchId, Defect, Head, ImportOptions, Result, SessionKey, Transferred, VerifyReport};
use serde::Serialize;

use crate::engine::Engine;

/// What verification found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verified {
    /// Whether nothing is wrong. A torn tail is not: nothing acknowledged was in it.
    pub sound: bool,
    /// The details.
    #[serde(flatten)]
    pub report: VerifyReport,
}

/// Reads and checks every byte of a session. `seen` holds heads that were there before: the
/// session must still contain them.
pub async fn verify(engine: &Engine, session: &SessionKey, seen: &BTreeMap<BranchId, Head>) -> Result<Verified> {
    let report = engine.journal().verify(session, seen).await.map_err(|error| error.during("verify"))?;
    Ok(Verified { sound: report.is_sound(), report })
}

/// Checks what surrounds the journals of a store, e.g. the indexes that sessions are found by. May read everything.
pub async fn check(engine: &Engine) -> Result<Vec<Defect>> {
    let mut found = engine.journal().store().check().await.map_err(|error| error.during("check"))?;
    let known: HashSet<SessionKey> = found.iter().filter_map(|defect| defect.session.clone()).collect();
    let unlisted = unlisted(engine).await?.into_iter();
    found.extend(unlisted.filter(|defect| defect.session.as_ref().is_none_or(|session| !known.contains(session))));
    Ok(found)
}

/// Returns the sessions of the namespace that are there and that lists leave out, because what lists go by is damaged.
/// Costs about as much as listing all sessions.
pub async fn unlisted(engine: &Engine) -> Result<Vec<Defect>> {
    let store = engine.journal().store();
    store.unlisted(engine.namespace()).await.map_err(|error| error.during("list"))
}

/// What an export or import moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// The session.
    pub session: SessionKey,
    /// Frames moved.
    pub frames: u64,
    /// Whether the chain hashes are those of the origin. They are not if the keys differ.
    pub same_hashes: bool,
}

impl From<Transferred> for Moved {
    fn from(transferred: Transferred) -> Self {
        let Transferred { session, frames, same_hashes } = transferred;
        Self { session, frames, same_hashes }
    }
}

/// Writes a session with all its branches as one portable file. It is written in plain text, even
/// if the store is encrypted.
pub async fn export(engine: &Engine, session: &SessionKey, writer: &mut (dyn Write + Send)) -> Result<Moved> {
    engine.journal().export(session, writer).await.map(Moved::from)
}

/// Reads a session from an exported file. Safe to repeat after a failure.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::{Engine, operations};
/// use rekindle::core::ImportOptions;
///
/// let engine = Engine::memory()?;
/// let session = engine.create("trip-42").await?;
/// let mut file = Vec::new();
/// operations::export(&engine, session.key(), &mut file).await?;
///
/// let other = Engine::memory()?;
/// let moved = operations::import(&other, &mut file.as_slice(), &ImportOptions::default()).await?;
/// assert_eq!(&moved.session, session.key());
/// # Ok(()) }
/// ```
pub async fn import(engine: &Engine, reader: &mut (dyn BufRead + Send), options: &ImportOptions) -> Result<Moved> {
    engine.journal().import(reader, options).await.map(Moved::from)
}
