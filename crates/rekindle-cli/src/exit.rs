//! How the program ends. Scripts rely on these numbers; `rekindle help exit-codes` lists them.

use std::process::ExitCode;

use rekindle::{ErrorKind, RunOutcome};

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It did what it was asked to.
    Ok,
    /// A run failed or used up a budget, or a check found something.
    Failed,
    /// The command line, a file or an argument is not right.
    Usage,
    /// What was named does not exist.
    NotFound,
    /// The run waits for somebody.
    Waiting,
    /// The run was cancelled.
    Cancelled,
    /// Somebody else has the session, or it has moved on.
    Conflict,
    /// What is stored is damaged or was set back, or written by a newer version.
    Integrity,
    /// The model or the store cannot be reached.
    Unreachable,
    /// A run was asked to stop, and did not confirm it in time.
    Unconfirmed,
    /// The run was paused by a signal.
    Interrupted,
}

impl Exit {
    /// Every way to end, with what it means.
    pub const ALL: [(Self, &str); 11] = [
        (Self::Ok, "done"),
        (Self::Failed, "the run failed or used up a budget, or a check found something"),
        (Self::Usage, "the command line, a file or an argument is not right"),
        (Self::NotFound, "what was named does not exist"),
        (Self::Waiting, "the run waits for somebody: see `rekindle waits`"),
        (Self::Cancelled, "the run was cancelled"),
        (Self::Conflict, "somebody else has the session, or it has moved on"),
        (Self::Integrity, "what is stored is damaged or was set back, or was written by a newer version"),
        (Self::Unreachable, "a model or the store cannot be reached, or cannot keep the data"),
        (Self::Unconfirmed, "a run was asked to stop, and did not confirm it within the time of --wait"),
        (Self::Interrupted, "paused by Ctrl-C or SIGTERM: resume it"),
    ];

    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Waiting => 4,
            Self::Cancelled => 5,
            Self::Conflict => 6,
            Self::Integrity => 7,
            Self::Unreachable => 8,
            Self::Unconfirmed => 9,
            Self::Interrupted => 130,
        }
    }

    /// How the program ends after a run.
    pub fn of_run(outcome: RunOutcome, cause: Option<&ErrorKind>, interrupted: bool) -> Self {
        match outcome {
            RunOutcome::Idle | RunOutcome::Succeeded => Self::Ok,
            RunOutcome::Failed => Self::Failed,
            RunOutcome::Cancelled => Self::Cancelled,
            RunOutcome::Waiting => Self::Waiting,
            // A budget is spent, and the work is not done.
            RunOutcome::Paused if cause.is_some() => Self::Failed,
            // Somebody else asked for the pause: this run did as it was told.
            RunOutcome::Paused if !interrupted => Self::Ok,
            RunOutcome::Paused => Self::Interrupted,
        }
    }

    /// How the program ends after an error.
    pub fn of_error(kind: &ErrorKind) -> Self {
        use ErrorKind as Kind;
        match kind {
            Kind::NotFound => Self::NotFound,
            Kind::Conflict { .. }
            | Kind::Fenced { .. }
            | Kind::AlreadyRunning { .. }
            | Kind::AlreadyExists
            | Kind::Stale
            | Kind::Drift
            | Kind::Unfinished
            | Kind::NotResumable
            | Kind::Protected
            | Kind::WaitClosed => Self::Conflict,
            Kind::Corrupt
            | Kind::VersionTooNew { .. }
            | Kind::KeyMissing { .. }
            | Kind::RolledBack
            | Kind::Unverified => Self::Integrity,
            Kind::StoreUnavailable | Kind::PersistFailed | Kind::ModelFailed => Self::Unreachable,
            Kind::Invalid | Kind::Limit { .. } | Kind::Unsupported | Kind::Untrusted => Self::Usage,
            _ => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
