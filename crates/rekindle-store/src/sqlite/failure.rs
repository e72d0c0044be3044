//! Why work inside the database did not succeed, and the one place where SQLite's errors become
//! the errors of the contract.

use std::path::Path;

use rekindle_core::{Error, ErrorKind};
use rusqlite::ErrorCode;

use super::holder;

/// The outcome of work inside a transaction.
pub(super) type Outcome<T> = Result<T, Failure>;

/// Why work inside a transaction did not succeed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The contract says no. Nothing is wrong with the database or with other work on it.
    Refused(Error),
    /// The database could not do it. The transaction is lost.
    Database(rusqlite::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl Failure {
    /// The error to report about the database at `path`.
    pub(super) fn into_error(self, path: &Path) -> Error {
        match self {
            Self::Refused(error) => error,
            Self::Database(error) => database_error(path, error),
        }
    }
}

/// Whether another connection holds what is needed.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// The error of the contract for an error of the database at `path`.
pub(super) fn database_error(path: &Path, error: rusqlite::Error) -> Error {
    let (kind, what, hint) = meaning(&error);
    let reported = Error::new(kind, format!("{what}: {}", path.display()));
    if is_busy(&error)
        && let Some(holder) = holder::of(path)
    {
        return reported.adding(holder.said()).hint(holder.hint()).because(error);
    }
    match hint {
        Some(hint) => reported.hint(hint),
        None => reported,
    }
    .because(error)
}

fn meaning(error: &rusqlite::Error) -> (ErrorKind, &'static str, Option<&'static str>) {
    let Some(code) = error.sqlite_error_code() else {
        // Not from SQLite but from reading a row: a column holds what this program never writes.
        return (ErrorKind::Corrupt, "a row of the database cannot be read", None);
    };
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => (
            ErrorKind::StoreUnavailable,
            "the database is locked",
            Some("another process holds it; try again when that one has finished"),
        ),
        ErrorCode::CannotOpen | ErrorCode::PermissionDenied => (
            ErrorKind::StoreUnavailable,
            "the database cannot be opened",
            Some("check that the directory exists and that file and directory may be read and written"),
        ),
        ErrorCode::DiskFull => (ErrorKind::PersistFailed, "the disk of the database is full", None),
        ErrorCode::SystemIoFailure => (ErrorKind::PersistFailed, "reading or writing the database failed", None),
        ErrorCode::ReadOnly => (
            ErrorKind::PersistFailed,
            "the database may not be written",
            Some("make the file and its directory writable, or open the store read-only"),
        ),
        ErrorCode::NotADatabase => (
            ErrorKind::Corrupt,
            "the file is not a database",
            Some("name another file, or restore this one from a copy; it was not changed"),
        ),
        ErrorCode::TooBig => (ErrorKind::Invalid, "a value is larger than the database allows", None),
        ErrorCode::OutOfMemory | ErrorCode::OperationInterrupted | ErrorCode::SchemaChanged => {
            (ErrorKind::StoreUnavailable, "the database could not finish", None)
        }
        _ => (
            ErrorKind::Corrupt,
            "the database is damaged",
            Some("restore it from a copy, or save what can be read with sqlite3's `.recover`"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    fn check(code: i32, expected: ErrorKind) {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        let error = Failure::from(error).into_error(Path::new("/data/rekindle.db"));
        assert_eq!(*error.kind(), expected);
        assert!(error.message().contains("/data/rekindle.db"), "{error}");
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    fn errors_of_sqlite_get_the_kind_callers_can_act_on() {
        for code in
            [ffi::SQLITE_BUSY, ffi::SQLITE_BUSY_SNAPSHOT, ffi::SQLITE_LOCKED, ffi::SQLITE_CANTOPEN, ffi::SQLITE_NOMEM]
        {
            check(code, ErrorKind::StoreUnavailable);
        }
        for code in [
            ffi::SQLITE_FULL,
            ffi::SQLITE_IOERR,
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_READONLY,
            ffi::SQLITE_READONLY_DIRECTORY,
        ] {
            check(code, ErrorKind::PersistFailed);
        }
        for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB, ffi::SQLITE_ERROR, ffi::SQLITE_CORRUPT_INDEX] {
            check(code, ErrorKind::Corrupt);
        }
    }
}
