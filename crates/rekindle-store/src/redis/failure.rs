//! The one place where errors of Redis become the errors of the contract.

use redis::{ErrorKind as RedisKind, RedisError};
use rekindle_core::{Error, ErrorKind};

/// The error of the contract for an error of the server that `shown` names.
pub(super) fn server_error(shown: &str, error: RedisError) -> Error {
    let (kind, what, hint) = meaning(&error);
    let reported = Error::new(kind, format!("{what}: {shown}"));
    match hint {
        Some(hint) => reported.hint(hint),
        None => reported,
    }
    .because(error)
}

/// The error about a server that does not hold the store it held before.
pub(super) fn another_store(shown: &str) -> Error {
    let message = format!("the server holds another store than before, or none: {shown}");
    Error::corrupt(message).hint(
        "it may have been emptied, restarted without its data, or replaced by a replica that had none; restore the \
         data, or open the store anew to go on with what is there",
    )
}

fn meaning(error: &RedisError) -> (ErrorKind, &'static str, Option<&'static str>) {
    if error.kind() == RedisKind::AuthenticationFailed {
        return (ErrorKind::Invalid, "the server refuses the login", Some("check user and password"));
    }
    if error.detail().is_some_and(|detail| detail.contains("DB index")) {
        let hint = "name another with /NUMBER behind the host; a cluster has 0 alone";
        return (ErrorKind::Invalid, "the server has no database of that number", Some(hint));
    }
    match error.code() {
        Some(code) => answered(code),
        None if error.is_timeout() => (
            ErrorKind::StoreUnavailable,
            "the server did not answer in time",
            Some("the call may or may not have been carried out; it is safe to repeat"),
        ),
        None if error.is_connection_refusal() => (
            ErrorKind::StoreUnavailable,
            "the server cannot be reached",
            Some("check that Redis runs there and that host and port are right"),
        ),
        None => (
            ErrorKind::StoreUnavailable,
            "the connection to the server failed",
            Some("the call may or may not have been carried out; it is safe to repeat"),
        ),
    }
}

fn answered(code: &str) -> (ErrorKind, &'static str, Option<&'static str>) {
    match code {
        "OOM" => (
            ErrorKind::PersistFailed,
            "the server has no memory left for the write",
            Some("raise maxmemory, or remove or prune sessions; what was acknowledged is kept"),
        ),
        "MISCONF" => (
            ErrorKind::PersistFailed,
            "the server cannot write its data to disk and takes no writes",
            Some("look at the server's log; usually its disk is full"),
        ),
        "NOREPLICAS" => {
            (ErrorKind::PersistFailed, "the server has too few replicas to take writes", Some("start the replicas"))
        }
        "READONLY" => (
            ErrorKind::StoreUnavailable,
            "the server is a read-only replica",
            Some("name the primary, or open the store read-only"),
        ),
        "LOADING" => (ErrorKind::StoreUnavailable, "the server is still loading its data", None),
        "BUSY" | "TRYAGAIN" | "MASTERDOWN" | "CLUSTERDOWN" => (ErrorKind::StoreUnavailable, "the server is busy", None),
        "NOAUTH" | "WRONGPASS" => (ErrorKind::Invalid, "the server refuses the login", Some("check user and password")),
        "NOPERM" => (
            ErrorKind::Invalid,
            "the user may not do that on the server",
            Some("the user needs the keys and the channel of the prefix, and scripts"),
        ),
        "MOVED" | "ASK" | "CROSSSLOT" => (
            ErrorKind::Unsupported,
            "the server is part of a cluster",
            Some("add cluster=true to the parameters of the URL"),
        ),
        _ => (
            ErrorKind::Corrupt,
            "the server could not carry it out on what it holds",
            Some("something else may have written under this prefix; use another one"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_get_the_kind_callers_can_act_on() {
        for code in ["NOAUTH", "WRONGPASS", "NOPERM"] {
            assert_eq!(answered(code).0, ErrorKind::Invalid, "{code}");
        }
        for code in ["READONLY", "LOADING", "BUSY", "CLUSTERDOWN"] {
            assert_eq!(answered(code).0, ErrorKind::StoreUnavailable, "{code}");
        }
        for code in ["OOM", "MISCONF", "NOREPLICAS"] {
            assert_eq!(answered(code).0, ErrorKind::PersistFailed, "{code}");
        }
        assert_eq!(answered("MOVED").0, ErrorKind::Unsupported);
        assert_eq!(answered("WRONGTYPE").0, ErrorKind::Corrupt);
    }

    #[test]
    fn what_did_not_arrive_may_be_repeated() {
        let error = RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert_eq!(*server_error("redis://h", error).kind(), ErrorKind::StoreUnavailable);
    }
}
