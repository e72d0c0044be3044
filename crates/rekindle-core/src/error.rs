//! The one error type that crosses crate boundaries, its kinds and their stable codes.
//!
//! An [`Error`] answers five questions: what went wrong ([`ErrorKind`]), what was being done
//! (the operation), on which session and position, whether trying again can help
//! ([`Retry`]), and what the user should do next (the hint). Nothing here does I/O.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use crate::id::{BranchId, OwnerId, SessionKey};
use crate::position::{Epoch, Position, Seq};
use crate::time::Timestamp;

/// Shorthand for results of this crate's contracts.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Whether repeating the same call can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same call fails again until the caller changes something.
    Never,
    /// The cause may pass: try the same call again, with backoff. Appends are safe to repeat.
    Later,
}

/// What went wrong. Match on this; never on the text of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is not legal: an id, a name, a range, a combination of options.
    Invalid,
    /// A size, depth or count is over its limit.
    Limit {
        /// What was measured, e.g. `record bytes`.
        what: Cow<'static, str>,
        /// What was found.
        found: u64,
        /// The most that is allowed.
        limit: u64,
    },
    /// The named session, branch, checkpoint or position does not exist.
    NotFound,
    /// Something with that name exists already.
    AlreadyExists,
    /// The branch has moved on since the caller looked: somebody else appended.
    Conflict {
        /// The head the caller expected.
        expected: Seq,
        /// The head the branch has.
        actual: Seq,
    },
    /// Another branch of the session is not as the caller saw it: a condition of the append fails.
    Overtaken {
        /// The other branch.
        branch: BranchId,
    },
    /// Nothing proves where the data comes from.
    Unverified,
    /// The caller's lease is not the current one: it expired, was released or was taken over.
    Fenced {
        /// The epoch the caller holds.
        held: Epoch,
        /// The epoch the branch has now.
        current: Epoch,
    },
    /// Another owner holds the lease.
    AlreadyRunning {
        /// Who holds it.
        owner: OwnerId,
        /// On which branch.
        branch: BranchId,
        /// The epoch of the lease: with the owner it names exactly this holder.
        epoch: Epoch,
        /// Until when, by the store's clock.
        until: Timestamp,
    },
    /// What the caller saw is no longer what the journal says.
    Stale,
    /// The agent, tools, plan or graph changed since the session was written.
    Drift,
    /// The session is in no condition to be resumed.
    NotResumable,
    /// Stored bytes are damaged, forged, reordered or missing.
    Corrupt,
    /// Written by a newer version of the format than this one reads.
    VersionTooNew {
        /// What carries the version, e.g. `frame` or `schema`.
        what: Cow<'static, str>,
        /// The version found.
        found: u32,
        /// The newest version this build reads.
        supported: u32,
    },
    /// Stored bytes need a key that was not given.
    KeyMissing {
        /// The id of the key the bytes were written with.
        key: String,
    },
    /// What should be removed is protected.
    Protected,
    /// The store declares that it cannot do this.
    Unsupported,
    /// The store cannot be reached or is busy.
    StoreUnavailable,
    /// The store could not make the data durable (disk full, I/O error).
    PersistFailed,
    /// The handle was closed, or an earlier failure stopped it.
    Closed,
    /// A run is not finished, and what was asked for needs a finished one.
    Unfinished,
    /// The wait was answered, has expired or was cancelled.
    WaitClosed,
    /// What is on record for a call is not for this call: other tool, other arguments.
    EffectMismatch,
    /// A call may or may not have happened, and its policy lets nobody but a person decide.
    InDoubt,
    /// A budget is used up.
    BudgetSpent {
        /// Which.
        budget: Cow<'static, str>,
        /// How much was used.
        used: u64,
        /// How much there was.
        limit: u64,
    },
    /// The model gave no answer.
    ModelFailed,
    /// A step, a tool or the loop around them failed for good.
    StepFailed,
    /// The session was set back to an older state than its high-water marks show.
    RolledBack,
    /// Something that was found, not named, would choose code, secrets or servers, and is not trusted.
    Untrusted,
}

/// One line of the error catalogue: what users see in `docs/errors.md`.
#[derive(Clone, Copy, Debug)]
pub struct CatalogEntry {
    /// The stable code, e.g. `RK0005`.
    pub code: &'static str,
    /// The kind's name, e.g. `Conflict`.
    pub name: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

macro_rules! catalog {
    ($($pattern:pat => $code:literal, $name:literal, $retry:ident, $meaning:literal, $remedy:literal;)*) => {
        impl ErrorKind {
            fn entry(&self) -> (&'static CatalogEntry, Retry) {
                match self {
                    $($pattern => {
                        const ENTRY: CatalogEntry = CatalogEntry { code: $code, name: $name, meaning: $meaning, remedy: $remedy };
                        (&ENTRY, Retry::$retry)
                    })*
                }
            }
        }
        /// Every error code, in order. The source of `docs/errors.md`.
        pub const CATALOG: &[CatalogEntry] = &[
            $(CatalogEntry { code: $code, name: $name, meaning: $meaning, remedy: $remedy },)*
        ];
    };
}

catalog! {
    ErrorKind::Invalid => "RK0001", "Invalid", Never,
        "an argument is not legal", "correct the argument the message names";
    ErrorKind::Limit { .. } => "RK0002", "Limit", Never,
        "a size, depth or count is over its limit", "make the input smaller, keep large values outside the journal, or raise the limit in the codec's `Limits`";
    ErrorKind::NotFound => "RK0003", "NotFound", Never,
        "the session, branch, checkpoint or position does not exist", "check the id and the namespace; list what exists";
    ErrorKind::AlreadyExists => "RK0004", "AlreadyExists", Never,
        "something with that name exists already", "open it instead of creating it, or choose another id";
    ErrorKind::Conflict { .. } => "RK0005", "Conflict", Never,
        "somebody else appended to the branch first", "read the new records, decide again, then append at the new head";
    ErrorKind::Fenced { .. } => "RK0006", "Fenced", Never,
        "the lease behind this write is no longer the current one", "stop this run; acquire the lease again and resume from the journal";
    ErrorKind::AlreadyRunning { .. } => "RK0007", "AlreadyRunning", Later,
        "another owner holds the lease of this session", "wait for it to end or expire, or cancel that run";
    ErrorKind::Stale => "RK0008", "Stale", Never,
        "the journal moved or changed since the caller looked", "look again, or resume with `allow_stale`, which is recorded";
    ErrorKind::Drift => "RK0009", "Drift", Never,
        "the agent, its tools, the plan or the graph changed since the session was written", "restore the old definition, or resume with `accept_drift`, which is recorded";
    ErrorKind::NotResumable => "RK0010", "NotResumable", Never,
        "the session has nothing to resume", "send a new message, or fork it at an earlier checkpoint";
    ErrorKind::Corrupt => "RK0011", "Corrupt", Never,
        "stored bytes are damaged, forged, out of order or missing", "run verify to list all damage; fork or resume from the nearest earlier valid checkpoint";
    ErrorKind::VersionTooNew { .. } => "RK0012", "VersionTooNew", Never,
        "written by a newer version of Rekindle", "upgrade Rekindle to at least the version that wrote it";
    ErrorKind::KeyMissing { .. } => "RK0013", "KeyMissing", Never,
        "the bytes are protected by a key that was not given", "add the key with the id the message names to the key ring";
    ErrorKind::Protected => "RK0014", "Protected", Never,
        "what should be removed is protected: newest, leased, waiting, unfinished, pinned or a fork's source", "see the plan's reasons; end, unpin or remove what depends on it first";
    ErrorKind::Unsupported => "RK0015", "Unsupported", Never,
        "this store declares that it cannot do that", "use a store whose capabilities include it";
    ErrorKind::StoreUnavailable => "RK0016", "StoreUnavailable", Later,
        "the store is busy or cannot be reached", "try again; the call is safe to repeat";
    ErrorKind::PersistFailed => "RK0017", "PersistFailed", Later,
        "the store could not make the data durable", "free disk space or mend the device, then try again; nothing acknowledged was lost";
    ErrorKind::Closed => "RK0018", "Closed", Never,
        "the handle was closed or stopped after an earlier failure", "open it again; the first failure is the source of this error";
    ErrorKind::Unfinished => "RK0019", "Unfinished", Never,
        "the session has an unfinished run", "resume it, cancel it, or send the message to its inbox";
    ErrorKind::WaitClosed => "RK0020", "WaitClosed", Never,
        "the wait was answered before, has expired or was cancelled", "look at the session's waits; a decision that counted stays as it is";
    ErrorKind::EffectMismatch => "RK0021", "EffectMismatch", Never,
        "the outcome on record belongs to a call with another tool or other arguments", "undo the edit, or fork before the call and go on from there";
    ErrorKind::InDoubt => "RK0022", "InDoubt", Never,
        "the outcome of a call with side effects was not recorded, and nobody may repeat it", "find out whether it happened and settle the effect by hand, then resume";
    ErrorKind::BudgetSpent { .. } => "RK0023", "BudgetSpent", Never,
        "a budget of the session is used up", "resume with a raised budget, which is recorded, or cancel the run";
    ErrorKind::ModelFailed => "RK0024", "ModelFailed", Later,
        "the model gave no answer", "resume later; nothing that was answered is asked again";
    ErrorKind::StepFailed => "RK0025", "StepFailed", Never,
        "a step failed for good", "mend what the message names, then resume, or send a new message";
    ErrorKind::Overtaken { .. } => "RK0026", "Overtaken", Never,
        "another branch of the session moved since the caller looked at it", "look at the session again and decide again";
    ErrorKind::RolledBack => "RK0027", "RolledBack", Never,
        "the session was set back to an older state: records that were there are gone", "put the newer state back, or accept the older one with `rekindle verify SESSION --accept --reason TEXT`, which is recorded";
    ErrorKind::Unverified => "RK0028", "Unverified", Never,
        "nothing proves where the data comes from, although this journal signs or encrypts", "take it from where it was signed with a key that is configured here, or accept it explicitly, which is recorded";
    ErrorKind::Untrusted => "RK0029", "Untrusted", Never,
        "a file that was found, or data of a session, would choose programs, secrets or servers, and is not trusted here", "look at what it would do, then trust it with `rekindle trust FILE`, or name the file on the command line";
}

/// An error with its context. Small on the stack; everything else is behind one box.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    operation: Option<&'static str>,
    session: Option<SessionKey>,
    position: Option<Position>,
    hint: Option<Cow<'static, str>>,
    gone: bool,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// A new error of `kind`; `message` says what happened, in lower case.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            operation: None,
            session: None,
            position: None,
            hint: None,
            gone: false,
            source: None,
        }))
    }

    /// The error of a session that a high-water mark names and that is not there.
    pub(crate) fn of_gone_session(mut self) -> Self {
        self.0.gone = true;
        self
    }

    /// Returns whether something is not there that must be there by a high-water mark.
    pub fn is_gone(&self) -> bool {
        self.0.gone
    }

    /// An argument that is not legal.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Damaged stored bytes.
    pub fn corrupt(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Something that does not exist.
    pub fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// A measure over its limit.
    pub fn limit(what: impl Into<Cow<'static, str>>, found: u64, limit: u64) -> Self {
        let what = what.into();
        let message = format!("{what}: {found} is over the limit of {limit}");
        Self::new(ErrorKind::Limit { what, found, limit }, message)
    }

    /// Names the operation; the innermost name stays.
    #[must_use]
    pub fn during(mut self, operation: &'static str) -> Self {
        self.0.operation.get_or_insert(operation);
        self
    }

    /// Names the session; the innermost name stays.
    #[must_use]
    pub fn on(mut self, session: &SessionKey) -> Self {
        self.0.session.get_or_insert_with(|| session.clone());
        self
    }

    /// Names the position; the innermost name stays.
    #[must_use]
    pub fn at(mut self, position: Position) -> Self {
        self.0.position.get_or_insert(position);
        self
    }

    /// Replaces the general remedy by one that fits this case.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds a fact to the message.
    #[must_use]
    pub fn adding(mut self, fact: impl fmt::Display) -> Self {
        self.0.message = format!("{}; {fact}", self.0.message).into();
        self
    }

    /// Keeps the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The stable code, e.g. `RK0005`.
    pub fn code(&self) -> &'static str {
        self.0.kind.entry().0.code
    }

    /// Whether repeating the same call can succeed.
    pub fn retry(&self) -> Retry {
        self.0.kind.entry().1
    }

    /// What happened, without context.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What was being done.
    pub fn operation(&self) -> Option<&'static str> {
        self.0.operation
    }

    /// On which session.
    pub fn session(&self) -> Option<&SessionKey> {
        self.0.session.as_ref()
    }

    /// At which position.
    pub fn position(&self) -> Option<&Position> {
        self.0.position.as_ref()
    }

    /// What the user should do next.
    pub fn next_step(&self) -> &str {
        match &self.0.hint {
            Some(hint) => hint,
            None => self.0.kind.entry().0.remedy,
        }
    }

    /// The same error again, for a second reader of one failure (the source becomes text).
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self(Box::new(Inner {
            kind: self.0.kind.clone(),
            message: self.0.message.clone(),
            operation: self.0.operation,
            session: self.0.session.clone(),
            position: self.0.position.clone(),
            hint: self.0.hint.clone(),
            gone: self.0.gone,
            source: self.0.source.as_ref().map(|source| source.to_string().into()),
        }))
    }
}

impl ErrorKind {
    /// The kind's entry in the catalogue.
    pub fn catalog_entry(&self) -> &'static CatalogEntry {
        self.entry().0
    }
}

impl fmt::Display for Error {
    /// What happened; with `{:#}` also the code, the causes and what to do next.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return fmt::Debug::fmt(self, f);
        }
        let inner = &self.0;
        if let Some(operation) = inner.operation {
            write!(f, "{operation}: ")?;
        }
        f.write_str(&inner.message)?;
        match (&inner.session, &inner.position) {
            (Some(session), Some(position)) => write!(f, " (session {session}, position {position})"),
            (Some(session), None) => write!(f, " (session {session})"),
            (None, Some(position)) => write!(f, " (position {position})"),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {self}", self.code())?;
        let mut source = self.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        write!(f, " (hint: {})", self.next_step())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_order() {
        for (index, entry) in CATALOG.iter().enumerate() {
            assert_eq!(entry.code, format!("RK{:04}", index + 1));
        }
    }

    #[test]
    fn context_is_kept_from_the_inside_out() {
        let error = Error::corrupt("checksum differs").during("decode").during("load").because(Error::invalid("inner"));
        assert_eq!(error.to_string(), "decode: checksum differs");
        assert_eq!(error.code(), "RK0011");
        assert_eq!(error.retry(), Retry::Never);
        assert!(format!("{error:?}").contains("inner"));
        assert_eq!(format!("{error:#}"), format!("{error:?}"));
        assert_eq!(error.duplicate().to_string(), error.to_string());
    }

    #[test]
    fn an_error_is_one_pointer() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
