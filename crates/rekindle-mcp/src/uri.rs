//! The addresses of resources: `rekindle://sessions/{session_id}` and what is under it. Ids are
//! percent-encoded, so that any of them is one segment.

use rekindle::{CheckpointId, Error, Result, SessionId};

const SESSIONS: &str = "rekindle://sessions/";
const CHECKPOINTS: &str = "/checkpoints/";

/// The template of a session's address.
pub(crate) const SESSION_TEMPLATE: &str = "rekindle://sessions/{session_id}";
/// The template of a checkpoint's address.
pub(crate) const CHECKPOINT_TEMPLATE: &str = "rekindle://sessions/{session_id}/checkpoints/{checkpoint_id}";

/// What an address names, in the namespace of the server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Address {
    /// A session.
    Session(SessionId),
    /// A checkpoint of a session.
    Checkpoint(SessionId, CheckpointId),
}

impl Address {
    /// What `uri` names.
    pub(crate) fn parse(uri: &str) -> Result<Self> {
        let rest = uri.strip_prefix(SESSIONS).ok_or_else(unknown)?;
        match rest.split_once(CHECKPOINTS) {
            None => Ok(Self::Session(SessionId::new(decoded(rest)?)?)),
            Some((session, checkpoint)) => {
                Ok(Self::Checkpoint(SessionId::new(decoded(session)?)?, CheckpointId::new(decoded(checkpoint)?)?))
            }
        }
    }

    /// Its address.
    pub(crate) fn uri(&self) -> String {
        match self {
            Self::Session(session) => format!("{SESSIONS}{}", encoded(session.as_str())),
            Self::Checkpoint(session, checkpoint) => {
                format!("{SESSIONS}{}{CHECKPOINTS}{}", encoded(session.as_str()), encoded(checkpoint.as_str()))
            }
        }
    }

    /// The session it is or belongs to.
    pub(crate) fn session(&self) -> &SessionId {
        match self {
            Self::Session(session) | Self::Checkpoint(session, _) => session,
        }
    }
}

fn unknown() -> Error {
    Error::not_found("there is no such resource")
        .hint(format!("addresses are {SESSION_TEMPLATE} and {CHECKPOINT_TEMPLATE}, with percent-encoded ids"))
}

fn encoded(id: &str) -> String {
    let mut text = String::with_capacity(id.len());
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// One segment; a `/` in it must be encoded.
fn decoded(segment: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
                let (high, low) = (digit().ok_or_else(unknown)?, digit().ok_or_else(unknown)?);
                bytes.push(u8::try_from(high * 16 + low).map_err(|_| unknown())?);
            }
            b'/' | b'?' | b'#' => return Err(unknown()),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| unknown())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn any_id_is_one_segment_and_comes_back() {
        for id in ["a", "a/b", "../../etc", "100%", "ä 🦀", "a/checkpoints/b", "?x#y"] {
            let session = Address::Session(SessionId::new(id).unwrap());
            assert_eq!(Address::parse(&session.uri()).unwrap(), session, "{id}");
            let checkpoint = Address::Checkpoint(SessionId::new(id).unwrap(), CheckpointId::new(id).unwrap());
            assert_eq!(Address::parse(&checkpoint.uri()).unwrap(), checkpoint, "{id}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for uri in
            ["", "x", "file:///etc/passwd", "rekindle://sessions/", "rekindle://sessions/a/b", "rekindle://sessions/%"]
                .into_iter()
                .chain(["rekindle://sessions/%zz", "rekindle://sessions/%ff", "rekindle://sessions/a/checkpoints/"])
        {
            assert!(Address::parse(uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn fuzzed_addresses() {
        let seeds = ["rekindle://sessions/ses_1", "rekindle://sessions/a%2Fb/checkpoints/ck%201"];
        rekindle_fuzz::fuzz!("mcp-address").seeds(seeds).words(["%", "%2f", "/checkpoints/", "?"]).text(|text| {
            let address = Address::parse(text)?;
            assert_eq!(Address::parse(&address.uri()).unwrap(), address);
            Ok::<(), Error>(())
        });
    }
}
