//! The names of objects. Everything of a session lies below one folder; numbers have a fixed
//! width, so that names sort as numbers do.
//!
//! ```text
//! sessions/<namespace>/<session>/heads/<number>      a snapshot: the newest one counts
//! sessions/<namespace>/<session>/log/<number>        a change; numbers are never used twice
//! sessions/<namespace>/<session>/segments/<number>-… frames, merged; the number is its snapshot's
//! catalog/<namespace>/<time>-<nonce>-<session>       sessions by creation, for lists
//! clock/<nonce>                                      read back to learn the service's time
//! probe/<nonce>                                      written to try out conditional writes
//! ```

use rekindle_core::{Namespace, SessionKey, Timestamp, file_name};

use crate::names::from_file_name;

/// The largest number of a change or a snapshot.
pub(super) const LARGEST_NUMBER: u64 = u64::MAX >> 2;

/// The folder of objects that tell the time.
pub(super) const CLOCK: &str = "clock";
/// The folder of objects that try out a service.
pub(super) const PROBE: &str = "probe";

/// The folder of a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Folder(String);

impl Folder {
    pub(super) fn of(key: &SessionKey) -> Self {
        Self::named(&key.namespace, &file_name(key.id.as_str()))
    }

    /// The folder of the session whose id is encoded as `name`.
    pub(super) fn named(namespace: &Namespace, name: &str) -> Self {
        Self(format!("{}/{name}", sessions(namespace)))
    }

    /// The folder of the session that an object belongs to, or an entry of the catalogue.
    pub(super) fn of_object(name: &str) -> Option<Self> {
        let mut parts = name.split('/');
        match (parts.next()?, parts.next()?, parts.next()?) {
            ("sessions", namespace, id) => Some(Self(format!("sessions/{namespace}/{id}"))),
            ("catalog", namespace, _) => Some(Self(format!("sessions/{namespace}/{}", parse_entry(name)?.1))),
            _ => None,
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.0
    }

    /// Returns true if it is that of the session whose id is encoded as `name`.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.0.rsplit_once('/').is_some_and(|(_, last)| last == name)
    }

    /// The namespace of the session, if it can be told.
    pub(super) fn namespace(&self) -> Option<Namespace> {
        let (namespace, _) = self.0.strip_prefix("sessions/")?.split_once('/')?;
        Namespace::new(from_file_name(namespace)?).ok()
    }

    pub(super) fn heads(&self) -> String {
        format!("{}/heads", self.0)
    }

    pub(super) fn head(&self, number: u64) -> String {
        format!("{}/heads/{number:020}", self.0)
    }

    pub(super) fn log(&self, number: u64) -> String {
        format!("{}/log/{number:020}", self.0)
    }

    pub(super) fn segment(&self, name: &str) -> String {
        format!("{}/segments/{name}", self.0)
    }

    /// What an object of this folder is.
    pub(super) fn kind_of(&self, name: &str) -> Option<Kind> {
        let (kind, rest) = name.strip_prefix(&self.0)?.strip_prefix('/')?.split_once('/')?;
        match kind {
            "heads" => Some(Kind::Head(number(rest)?)),
            "log" => Some(Kind::Log(number(rest)?)),
            "segments" => Some(Kind::Segment(number(rest.split_once('-')?.0)?, rest.to_owned())),
            _ => None,
        }
    }
}

/// A number of this layout, far enough from the end of all numbers to be counted on from.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number <= LARGEST_NUMBER)
}

/// What an object of a session is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Head(u64),
    Log(u64),
    /// The number of the snapshot it was written for, and its name.
    Segment(u64, String),
}

/// The name of a new segment for the snapshot `head`.
pub(super) fn segment_name(head: u64, nonce: &[u8; 16], part: usize) -> String {
    format!("{head:020}-{}-{part:04}", hex(nonce))
}

/// The folder of all sessions of a namespace.
pub(super) fn sessions(namespace: &Namespace) -> String {
    format!("sessions/{}", file_name(namespace.as_str()))
}

pub(super) fn catalog(namespace: &Namespace) -> String {
    format!("catalog/{}", file_name(namespace.as_str()))
}

/// The entry of a session in the catalogue of its namespace.
pub(super) fn catalog_entry(key: &SessionKey, created_at: Timestamp, nonce: &[u8; 16]) -> String {
    let id = file_name(key.id.as_str());
    format!("{}/{:016x}-{}-{id}", catalog(&key.namespace), created_at.0, hex(nonce))
}

/// The time and the encoded session id of a catalogue entry.
pub(super) fn parse_entry(name: &str) -> Option<(Timestamp, &str)> {
    let (_, last) = name.rsplit_once('/')?;
    let (time, rest) = last.split_once('-')?;
    let (_, id) = rest.split_once('-')?;
    Some((Timestamp(u64::from_str_radix(time, 16).ok()?), id))
}

pub(super) fn hex(nonce: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*nonce))
}

pub(super) fn parse_hex(text: &str) -> Option<[u8; 16]> {
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rekindle_core::SessionId;

    #[test]
    fn names_are_read_back() {
        let key: SessionKey = SessionId::new("../A-b").unwrap().into();
        let folder = Folder::of(&key);
        assert_eq!(folder.namespace(), Some(Namespace::default()));
        assert_eq!(folder.kind_of(&folder.head(7)), Some(Kind::Head(7)));
        assert_eq!(folder.kind_of(&folder.log(8)), Some(Kind::Log(8)));
        let segment = segment_name(9, &[1; 16], 2);
        assert_eq!(folder.kind_of(&folder.segment(&segment)), Some(Kind::Segment(9, segment)));
        assert_eq!(folder.kind_of("sessions/other/log/1"), None);
        let entry = catalog_entry(&key, Timestamp(5), &[2; 16]);
        assert_eq!(parse_entry(&entry), Some((Timestamp(5), file_name("../A-b").as_str())));
        assert_eq!(Folder::named(&key.namespace, parse_entry(&entry).unwrap().1), folder);
    }

    #[test]
    fn fuzzed_names() {
        let key: SessionKey = SessionId::new("a").unwrap().into();
        let folder = Folder::of(&key);
        let seeds = [folder.head(7), folder.log(8), folder.segment(&segment_name(9, &[1; 16], 2))];
        let entry = catalog_entry(&key, Timestamp(5), &[1; 16]);
        rekindle_fuzz::fuzz!("object-name").seeds(seeds).words([entry]).text(|text| {
            let _ = (parse_entry(text), parse_hex(text));
            folder.kind_of(text)
        });
    }
}
