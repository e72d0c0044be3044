//! High-water marks: the highest head of each branch, kept apart from the data, so that a store that
//! was set back to an older state is noticed.

mod mark;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

pub use mark::{BranchMark, Mark, Standing, gone, replaced};

use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, Namespace, SessionKey};
use crate::position::{Head, Position};
use crate::session::Damage;

/// Marks that a store keeps of its sessions, apart from their data.
#[async_trait]
pub trait HighWater: Send + Sync {
    /// Where marks are kept.
    fn places(&self) -> Vec<MarkPlace>;

    /// The heads that must be there, by place. A place that cannot be read is an error.
    async fn marked(&self, session: &SessionKey) -> Result<Vec<BTreeMap<BranchId, Head>>>;

    /// Sessions of a namespace that must be there and are not.
    async fn gone(&self, namespace: &Namespace) -> Result<Vec<GoneSession>>;

    /// Lets this process append to a session although it was rolled back: for the record that says so.
    fn permit(&self, session: &SessionKey);

    /// Sets the marks of a session to what is there, or removes them if it is gone.
    async fn accept(&self, session: &SessionKey) -> Result<()>;

    /// Waits until everything appended so far is in the marks, as far as their places can be reached.
    async fn flush(&self);
}

/// A place where marks are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MarkPlace {
    /// For people: a path or a URL without secrets.
    pub place: String,
    /// Whether it is apart from the store itself, and advanced with a delay.
    pub anchor: bool,
    /// How far it may lie behind, besides the time a write takes.
    #[serde(skip)]
    pub lag: Duration,
    /// Why it cannot be used at the moment.
    pub trouble: Option<String>,
}

/// A session that was there and is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GoneSession {
    /// Which.
    pub session: SessionKey,
    /// Where its branches ended.
    pub heads: BTreeMap<BranchId, Head>,
}

/// The error of whatever would go on with a session that was rolled back.
pub fn rolled_back(session: &SessionKey, damage: &[Damage]) -> Error {
    let (first, more) = match damage.split_first() {
        Some((first, more)) => (first, more.len()),
        None => return Error::new(ErrorKind::RolledBack, "the session was set back to an older state").on(session),
    };
    let others = if more > 0 { format!(", and {more} more") } else { String::new() };
    let message =
        format!("the session was set back to an older state: on branch `{}` {}{others}", first.branch, first.detail);
    Error::new(ErrorKind::RolledBack, message)
        .on(session)
        .at(Position::new(first.branch.clone(), first.first))
        .hint(format!("put the newer state back, or accept this one with: {}", accept_command(session)))
}

/// The command that accepts an older state, or that a session is gone.
pub fn accept_command(session: &SessionKey) -> String {
    let id = session.id.as_str();
    let plain = !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c));
    let id = if plain { id.to_owned() } else { format!("'{}'", id.replace('\'', r"'\''")) };
    format!("rekindle verify {id} --accept --reason TEXT")
}

/// The error of creating a session that a mark names and that is not there, given the error of opening it: only a
/// person decides that it is gone.
pub fn not_created_anew(session: &SessionKey, gone: &Error) -> Error {
    Error::new(ErrorKind::RolledBack, format!("{}; it is not created anew", gone.message()))
        .on(session)
        .hint(format!("put it back from a copy, or accept that it is gone with: {}", accept_command(session)))
}

/// The error of a session that a mark names and that is not in the store.
pub fn session_gone(session: &SessionKey, heads: &BTreeMap<BranchId, Head>) -> Error {
    Error::not_found(gone(session, heads))
        .of_gone_session()
        .on(session)
        .hint(format!("put it back from a copy, or accept that it is gone with: {}", accept_command(session)))
}
