//! Ids as newtypes. Parsing is the only way in, so an id that exists is a legal one.
//!
//! A user may choose any printable text of up to 256 bytes; generated ids carry a prefix and
//! sort by time. Ids are data: whoever builds a path, a key or a query from one must encode or
//! bind it ([`file_name`] is the encoding for paths).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;
use crate::time::Timestamp;

/// The longest id, in bytes of UTF-8.
pub const MAX_ID_BYTES: usize = 256;

/// Says why `text` is not a legal id, or nothing if it is one.
fn reason_against(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("is empty".into());
    }
    if text.len() > MAX_ID_BYTES {
        return Some(format!("has {} bytes; {MAX_ID_BYTES} are allowed", text.len()));
    }
    if text.trim() != text {
        return Some("begins or ends with white space".into());
    }
    text.chars()
        .find(|c| !is_printable(*c))
        .map(|c| format!("contains the unprintable character U+{:04X}", u32::from(c)))
}

/// Printable: no controls, no line or paragraph separators, nothing that reorders the text
/// around it on a terminal, no non-characters. Joiners stay, emoji need them.
fn is_printable(c: char) -> bool {
    !(c.is_control()
        || matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{2028}' | '\u{2029}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}')
        || u32::from(c) & 0xFFFE == 0xFFFE)
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $what:literal $(, prefix $prefix:literal)?) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text` and makes it an id.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Error> {
                let text = text.as_ref();
                match reason_against(text) {
                    None => Ok(Self(text.into())),
                    Some(reason) => Err(Error::invalid(format!(concat!("the ", $what, " {}"), reason))
                        .hint(format!("use 1 to {MAX_ID_BYTES} bytes of printable UTF-8"))),
                }
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            $(
                /// The prefix of generated ids of this type.
                pub const PREFIX: &'static str = $prefix;

                /// A new id that sorts by time.
                pub fn generate(ids: &IdSource, now: Timestamp) -> Self {
                    Self(ids.next($prefix, now).into())
                }
            )?
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(text).map_err(serde::de::Error::custom)
            }
        }
    };
}

id_type! {
    /// The tenant or project that owns sessions. Every look-up is scoped by it.
    Namespace, "namespace"
}
id_type! {
    /// One durable piece of agent work.
    SessionId, "session id", prefix "ses_"
}
id_type! {
    /// One line of history in a session: `main` first.
    BranchId, "branch name", prefix "br_"
}
id_type! {
    /// A marked position.
    CheckpointId, "checkpoint id", prefix "ckpt_"
}
id_type! {
    /// One execution of a session.
    RunId, "run id", prefix "run_"
}
id_type! {
    /// A call that reaches outside. Stable over retry and resume.
    EffectId, "effect id", prefix "eff_"
}
id_type! {
    /// A durable pause for a person, a signal or a time.
    WaitId, "wait id", prefix "wait_"
}
id_type! {
    /// A message in a session's inbox.
    MessageId, "message id", prefix "msg_"
}
id_type! {
    /// Who holds a lease: a process, a worker, a person at a terminal.
    OwnerId, "owner id", prefix "own_"
}
id_type! {
    /// Where jobs wait for workers: `default`, unless said otherwise.
    QueueName, "queue name"
}
id_type! {
    /// The name of a log, e.g. `messages`.
    LogName, "log name"
}
id_type! {
    /// The key of a register, e.g. `loop`.
    RegisterKey, "register key"
}

impl Default for Namespace {
    fn default() -> Self {
        Self("default".into())
    }
}

impl Default for QueueName {
    fn default() -> Self {
        Self("default".into())
    }
}

impl BranchId {
    /// The first branch of every session.
    pub fn main() -> Self {
        static MAIN: std::sync::LazyLock<BranchId> = std::sync::LazyLock::new(|| BranchId("main".into()));
        MAIN.clone()
    }

    /// The branch every session has for what others send it: messages, commands, answers.
    /// It is never leased and cannot be forked from or to.
    pub fn inbox() -> Self {
        static INBOX: std::sync::LazyLock<BranchId> = std::sync::LazyLock::new(|| BranchId("inbox".into()));
        INBOX.clone()
    }

    /// Whether this is the inbox.
    pub fn is_inbox(&self) -> bool {
        self.as_str() == "inbox"
    }
}

/// A session's full name: its namespace and its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionKey {
    /// The owner.
    pub namespace: Namespace,
    /// The session.
    pub id: SessionId,
}

impl SessionKey {
    /// A session in a namespace.
    pub fn new(namespace: Namespace, id: SessionId) -> Self {
        Self { namespace, id }
    }
}

impl From<SessionId> for SessionKey {
    /// The session of that id in the default namespace.
    fn from(id: SessionId) -> Self {
        Self::new(Namespace::default(), id)
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.as_str() == "default" { self.id.fmt(f) } else { write!(f, "{}/{}", self.namespace, self.id) }
    }
}

/// Makes ids and nonces from a seed: unique per seed, and the same every time for the same
/// seed, which is what tests want. Whoever does I/O seeds it from the operating system.
pub struct IdSource {
    key: [u8; 32],
    counter: AtomicU64,
}

impl fmt::Debug for IdSource {
    /// Without the seed: who knows it knows every id and nonce to come.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdSource").field("counter", &self.counter).finish_non_exhaustive()
    }
}

impl IdSource {
    /// A source that makes the sequence of `seed`.
    pub fn seeded(seed: [u8; 32]) -> Self {
        Self { key: seed, counter: AtomicU64::new(0) }
    }

    /// Sixteen bytes that this source has not given before.
    pub fn nonce(&self) -> [u8; 16] {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        let hash = blake3::keyed_hash(&self.key, &count.to_le_bytes());
        let mut nonce = [0; 16];
        nonce.copy_from_slice(&hash.as_bytes()[..16]);
        nonce
    }

    /// A ULID (48 bits of milliseconds, 80 of randomness) in lower case behind `prefix`.
    fn next(&self, prefix: &str, now: Timestamp) -> String {
        const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
        let mut random = [0; 16];
        random[6..].copy_from_slice(&self.nonce()[..10]);
        let millis = u128::from(now.as_millis() & 0xFFFF_FFFF_FFFF) << 80;
        let value = millis | u128::from_be_bytes(random);
        let mut text = String::with_capacity(prefix.len() + 26);
        text.push_str(prefix);
        for digit in (0..26).rev() {
            text.push(char::from(DIGITS[(value >> (5 * digit)) as usize & 31]));
        }
        text
    }
}

/// Encodes any id as one safe file name: lower-case letters, digits, `-` and `_` stay, every
/// other byte becomes `%xx`; a long name is cut and ends with a hash of the whole. The result
/// is never empty, never hidden, never a path and the same on case-insensitive file systems.
pub fn file_name(id: &str) -> String {
    const LONGEST: usize = 180;
    let mut name = String::with_capacity(id.len());
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    if name.len() > LONGEST {
        let hash = blake3::hash(id.as_bytes()).to_hex();
        name.truncate(LONGEST - 34);
        name.push_str("%~");
        name.push_str(&hash[..32]);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn any_printable_id_is_legal() {
        for text in ["a", "../../etc/passwd", "%2e%2e", "C:\\x", "a b", "🦀👩‍👩‍👧", "';DROP TABLE x", &"x".repeat(256)]
        {
            assert_eq!(SessionId::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn unprintable_and_oversized_ids_are_refused() {
        for text in [
            "",
            "a\0b",
            "a\nb",
            "\u{1b}[2J",
            "a\u{202E}b",
            " a",
            "a ",
            "\u{FFFF}",
            &"x".repeat(257),
            &"x".repeat(10_240),
        ] {
            let error = SessionId::new(text).unwrap_err();
            assert_eq!(error.code(), "RK0001", "{text:?}");
            assert!(error.message().starts_with("the session id"), "{error}");
        }
        assert!(serde_json::from_str::<SessionId>("\"a\\u0000\"").is_err());
    }

    #[test]
    fn generated_ids_sort_by_time_and_are_unique() {
        let ids = IdSource::seeded([7; 32]);
        let mut previous = String::new();
        let mut seen = HashSet::new();
        for millis in 0..1_000u64 {
            let id = SessionId::generate(&ids, Timestamp(1_700_000_000_000_000 + millis * 1_000));
            assert!(id.as_str() > previous.as_str());
            assert_eq!(id.as_str().len(), 30);
            previous = id.to_string();
            assert!(seen.insert(id));
        }
        assert!(previous.starts_with("ses_01"));
    }

    #[test]
    fn file_names_are_safe_and_distinct() {
        let ids = [
            "a",
            "A",
            ".",
            "..",
            "../x",
            "a/b",
            "a%2fb",
            "con",
            "é",
            "a:b",
            &"x".repeat(256),
            &format!("{}y", "x".repeat(255)),
        ];
        let names: HashSet<String> = ids.iter().map(|id| file_name(id)).collect();
        assert_eq!(names.len(), ids.len());
        for name in names {
            assert!(!name.is_empty() && name.len() <= 255 && !name.starts_with('.'));
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_%~".contains(&b)),
                "{name}"
            );
        }
    }
}
