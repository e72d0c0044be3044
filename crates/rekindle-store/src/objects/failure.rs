//! The one place where errors of object services become errors of the contract.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use object_store::Error as ServiceError;
use rekindle_core::{Error, ErrorKind};

/// How much of a service's own words is repeated.
const LONGEST_DETAIL: usize = 400;

/// The error to report about a request for `name` in the bucket shown as `shown`.
pub(super) fn service_error(shown: &str, name: &str, error: &ServiceError) -> Error {
    let (kind, what, hint) = meaning(error);
    let reported = Error::new(kind, format!("{what}: `{name}` in {shown}")).because(detail(error));
    match hint {
        Some(hint) => reported.hint(hint),
        None => reported,
    }
}

/// The error to report about a request that was not answered in time.
pub(super) fn unanswered(shown: &str, name: &str, limit: Duration) -> Error {
    let message = format!("the object service gave no answer within {} s: `{name}` in {shown}", limit.as_secs_f64());
    Error::new(ErrorKind::StoreUnavailable, message)
}

fn meaning(error: &ServiceError) -> (ErrorKind, &'static str, Option<&'static str>) {
    if is_full(error) {
        return (ErrorKind::PersistFailed, "the disk is full", None);
    }
    if no_bucket(error) {
        let hint = "create the bucket, and check its name, the region and the endpoint";
        return (ErrorKind::NotFound, "there is no such bucket", Some(hint));
    }
    match error {
        ServiceError::NotFound { .. } => (ErrorKind::NotFound, "there is no such object or bucket", None),
        ServiceError::PermissionDenied { .. } | ServiceError::Unauthenticated { .. } => (
            ErrorKind::Invalid,
            "the object service refuses access",
            Some("check the keys and what they may do: read, write, delete and list; and the clock of this machine"),
        ),
        ServiceError::NotImplemented { .. } | ServiceError::NotSupported { .. } => (
            ErrorKind::Unsupported,
            "the object service cannot do this",
            Some("use a service with conditional writes (If-None-Match)"),
        ),
        ServiceError::UnknownConfigurationKey { .. } | ServiceError::InvalidPath { .. } => {
            (ErrorKind::Invalid, "the object service was asked for something it does not know", None)
        }
        _ if is_refusal(&error.to_string()) => (
            ErrorKind::Invalid,
            "the object service refuses the request",
            Some("check the name of the bucket, the region and the endpoint"),
        ),
        _ => (ErrorKind::StoreUnavailable, "the object service gave no answer", None),
    }
}

fn is_full(error: &ServiceError) -> bool {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(current) = next {
        let kind = current.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) {
            return true;
        }
        next = current.source();
    }
    false
}

/// Returns whether a service will refuse the request as often as it is made: a status of 4xx that does not ask to try
/// again, or a redirection to another region.
fn is_refusal(text: &str) -> bool {
    let status = text.split_once("status code: ").and_then(|(_, rest)| rest.get(..3)?.parse::<u16>().ok());
    let passing = [408, 409, 425, 429];
    let refused = status.is_some_and(|status| (400..500).contains(&status) && !passing.contains(&status));
    (refused && !text.contains("RequestTimeout")) || text.contains("redirect without LOCATION")
}

/// Whether it is the bucket that is missing rather than an object in it: services say so only in words.
pub(super) fn no_bucket(error: &ServiceError) -> bool {
    let text = error.to_string();
    ["NoSuchBucket", "ContainerNotFound", "bucket does not exist"].iter().any(|word| text.contains(word))
}

/// A service's own words, without the queries of addresses: one may hold a signature.
pub(super) fn detail(error: &dyn StdError) -> String {
    let mut plain = String::new();
    let mut in_query = false;
    for character in error.to_string().chars() {
        in_query = match character {
            '?' => {
                plain.push_str("?***");
                true
            }
            _ if in_query => !(character.is_whitespace() || matches!(character, ')' | '"' | '\'' | '<' | '>')),
            _ => false,
        };
        if plain.len() > LONGEST_DETAIL {
            plain.push('…');
            break;
        }
        if !in_query && character != '?' {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::{detail, is_refusal};

    #[test]
    fn what_is_refused_for_good_is_not_repeated() {
        for (text, expected) in [
            ("Server returned non-2xx status code: 400 Bad Request: x", true),
            ("Server returned non-2xx status code: 400 Bad Request: <Code>RequestTimeout</Code>", false),
            ("Server returned non-2xx status code: 405 Method Not Allowed: ", true),
            ("Server returned non-2xx status code: 409 Conflict: ", false),
            ("Server returned non-2xx status code: 429 Too Many Requests: ", false),
            ("Server returned non-2xx status code: 503 Service Unavailable: ", false),
            ("Received redirect without LOCATION, this normally indicates a wrong region", true),
            ("HTTP error: error sending request", false),
        ] {
            assert_eq!(is_refusal(text), expected, "{text}");
        }
    }

    #[test]
    fn signatures_in_addresses_are_not_repeated() {
        let error = std::io::Error::other("error sending request for url (https://a.example/b?sig=abc&x=1): closed");
        assert_eq!(detail(&error), "error sending request for url (https://a.example/b?***): closed");
    }
}
