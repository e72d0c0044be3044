//! Why work on the server did not succeed, and the one place where PostgreSQL's errors become the
//! errors of the contract.

use deadpool_postgres::{PoolError, TimeoutType};
use rekindle_core::{Error, ErrorKind};
use tokio_postgres::error::SqlState;

/// The outcome of work on a connection.
pub(super) type Outcome<T> = Result<T, Failure>;

/// Why work on a connection did not succeed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The contract says no. Nothing is wrong with the server.
    Refused(Error),
    /// The server could not do it, or could not be asked.
    Database(tokio_postgres::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl Failure {
    /// Whether the same work may succeed if it is done again at once: it met other work.
    pub(super) fn is_collision(&self) -> bool {
        let Self::Database(error) = self else { return false };
        let code = error.code();
        code == Some(&SqlState::T_R_SERIALIZATION_FAILURE) || code == Some(&SqlState::T_R_DEADLOCK_DETECTED)
    }

    /// Whether the connection is of no more use: it is lost, or leads to a server that should not
    /// be asked again.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Refused(_) => false,
            Self::Database(error) => match error.as_db_error() {
                None => true,
                Some(error) => {
                    let ended = ["FATAL", "PANIC"].contains(&error.severity());
                    let gone = [
                        &SqlState::READ_ONLY_SQL_TRANSACTION,
                        &SqlState::UNDEFINED_TABLE,
                        &SqlState::INVALID_SCHEMA_NAME,
                        &SqlState::INVALID_SQL_STATEMENT_NAME,
                    ];
                    ended || gone.contains(&error.code())
                }
            },
        }
    }

    /// The error to report about the server at `shown`.
    pub(super) fn into_error(self, shown: &str) -> Error {
        match self {
            Self::Refused(error) => error,
            Self::Database(error) => database_error(shown, error),
        }
    }
}

/// The error of the contract for an error of the server at `shown`.
pub(super) fn database_error(shown: &str, error: tokio_postgres::Error) -> Error {
    let (kind, what, hint) = match error.code() {
        Some(code) => meaning_of(code),
        None => meaning_of_loss(&error),
    };
    let reported = Error::new(kind, format!("{what}: {shown}"));
    let reported = if hint.is_empty() { reported } else { reported.hint(hint) };
    reported.because(error)
}

/// The error of a pool that gave no connection.
pub(super) fn pool_error(shown: &str, most: usize, error: PoolError) -> Error {
    match error {
        PoolError::Backend(error) => database_error(shown, error),
        PoolError::Timeout(TimeoutType::Wait) => {
            Error::new(ErrorKind::StoreUnavailable, format!("all {most} connections are busy: {shown}"))
                .hint("try again, or allow more connections with `pool=` in the URL")
        }
        PoolError::Timeout(_) => unanswered(shown),
        other => Error::new(ErrorKind::StoreUnavailable, format!("there is no connection: {shown}")).because(other),
    }
}

/// The error of a server that says nothing.
pub(super) fn unanswered(shown: &str) -> Error {
    Error::new(ErrorKind::StoreUnavailable, format!("the server did not answer in time: {shown}")).hint(
        "look whether it is overloaded or cut off; try again, which is safe, or allow more with `timeout=` in the URL",
    )
}

type Meaning = (ErrorKind, &'static str, &'static str);

fn meaning_of_loss(error: &tokio_postgres::Error) -> Meaning {
    if is_conversion(error) {
        return (ErrorKind::Corrupt, "a row of the database cannot be read", "");
    }
    if error.to_string().starts_with("invalid configuration") {
        return (
            ErrorKind::Invalid,
            "the server asks for a password, and none was given",
            "give it apart from the URL if you can: the setting `password`, at the command line `store_password`",
        );
    }
    if is_tls(error) {
        return (
            ErrorKind::StoreUnavailable,
            "no encrypted connection to the server could be made",
            "check that the server offers TLS, that its certificate names the host, and that `sslrootcert=` names the \
             certificate it was signed by; `sslmode=prefer` does not ask who answers",
        );
    }
    (
        ErrorKind::StoreUnavailable,
        "the connection to the server failed",
        "check that the server runs and that host and port are right; try again, which is safe",
    )
}

fn is_conversion(error: &tokio_postgres::Error) -> bool {
    // Neither kind has a method of its own; both say so in the same words.
    let text = error.to_string();
    text.starts_with("error deserializing column") || text.starts_with("error retrieving column")
}

fn is_tls(error: &tokio_postgres::Error) -> bool {
    error.to_string().starts_with("error performing TLS handshake")
}

fn meaning_of(code: &SqlState) -> Meaning {
    use ErrorKind::{Corrupt, Invalid, PersistFailed, StoreUnavailable};
    let known = [
        (&SqlState::INVALID_PASSWORD, Invalid, "the server refuses the password", "check user and password"),
        (
            &SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            Invalid,
            "the server lets this user not in",
            "check user and password, whether pg_hba.conf lets them in from here, and whether it demands TLS",
        ),
        (
            &SqlState::INVALID_CATALOG_NAME,
            ErrorKind::NotFound,
            "the server has no such database",
            "create it with `CREATE DATABASE`, or name another one",
        ),
        (
            &SqlState::INSUFFICIENT_PRIVILEGE,
            Invalid,
            "the user may not do this",
            "grant it what docs/stores/postgres.md lists, or let its owner create the schema first",
        ),
        (
            &SqlState::READ_ONLY_SQL_TRANSACTION,
            StoreUnavailable,
            "the server is a read-only replica, or was told to be read-only",
            "name the primary server, or all of them with `target_session_attrs=read-write`; to read only, open the \
             store read-only",
        ),
        (
            &SqlState::TOO_MANY_CONNECTIONS,
            StoreUnavailable,
            "the server has no connection left",
            "try again; allow fewer with `pool=`, raise max_connections, or put a pooler in front of the server",
        ),
        (&SqlState::DISK_FULL, PersistFailed, "the disk of the server is full", ""),
        (&SqlState::OUT_OF_MEMORY, StoreUnavailable, "the server is out of memory", ""),
        (
            &SqlState::UNDEFINED_TABLE,
            StoreUnavailable,
            "this is not the store it was: its tables are gone",
            "name the server that has them, or restore them from a backup; nothing was created in their place",
        ),
        (
            &SqlState::INVALID_SCHEMA_NAME,
            StoreUnavailable,
            "this is not the store it was: its schema is gone",
            "name the server that has it, or restore it from a backup; nothing was created in its place",
        ),
        (
            &SqlState::DUPLICATE_TABLE,
            Invalid,
            "the schema belongs to another program",
            "choose another one with `schema=` in the URL; this one was not changed",
        ),
        (
            &SqlState::UNDEFINED_COLUMN,
            Invalid,
            "the tables of the schema are those of another program",
            "choose another one with `schema=` in the URL; this one was not changed",
        ),
        (
            &SqlState::INVALID_SQL_STATEMENT_NAME,
            StoreUnavailable,
            "the server forgot a prepared statement: a pooler stands before it",
            "add `prepare=false` to the URL",
        ),
        (&SqlState::QUERY_CANCELED, StoreUnavailable, "the server gave up after its time limit", ""),
        (&SqlState::DATA_CORRUPTED, Corrupt, "the database is damaged", "restore it from a backup"),
        (&SqlState::INDEX_CORRUPTED, Corrupt, "an index of the database is damaged", "run REINDEX on it"),
    ];
    if let Some((_, kind, what, hint)) = known.into_iter().find(|(state, ..)| *state == code) {
        return (kind, what, hint);
    }
    match &code.code()[..2] {
        // Connection exceptions, resources, the operator intervenes, locks, the system.
        "08" | "53" | "57" | "55" | "40" | "25" => (StoreUnavailable, "the server is not available now", ""),
        "58" => (PersistFailed, "the server could not read or write its files", ""),
        "XX" => (Corrupt, "the database is damaged", "look into the log of the server"),
        "54" => (Invalid, "a value is larger than the server allows", ""),
        _ => (StoreUnavailable, "the server refused a statement", "look at the cause and into the log of the server"),
    }
}
