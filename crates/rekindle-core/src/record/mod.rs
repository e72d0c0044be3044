//! Records: the only things a journal stores.
//!
//! A record is written as an object with one entry, `{"<kind>": {…}}`, or `{"<kind>@<version>": …}`
//! once a kind has more than its first version. Unknown kinds and unknown fields are kept as
//! they are. Everything stored or hashed is defined in this module and nowhere else; its bytes
//! are pinned by `tests/golden/`.

mod audit;
mod checkpoint;
mod effect;
mod inbox;
mod run;
mod state;
mod wait;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::json::Json;

pub use audit::{Accepted, BudgetRaised, DriftAccepted, Edit, HistoryLost, SessionDescribed, StaleAccepted};
pub use checkpoint::{
    Checkpoint, CheckpointMarked, CheckpointRemoved, CheckpointSource, CheckpointSubstituted, CheckpointTrigger,
    CheckpointType,
};
pub use effect::{EffectIntent, EffectKind, EffectOutcome, EffectPartial, InDoubtPolicy, OutcomeStatus, Usage};
pub use inbox::{Command, InboxAnswer, InboxCommand, InboxMessage, InboxMode, InboxTaken};
pub use run::{Durability, RunEnded, RunOutcome, RunStarted, RunState, RunStateKind};
pub use state::{LogAppend, LogAppendOutcomes, LogSplice, RegisterSet, RegisterUnset};
pub use wait::{
    Decision, Voice, WaitCloseReason, WaitClosed, WaitDecision, WaitExpired, WaitKind, WaitOpened, WaitReminded,
};

/// Fields of a record that this version does not know, kept as they came.
pub type Extra = BTreeMap<String, Value>;

/// The body of one kind of record.
trait Body: Serialize + for<'de> Deserialize<'de> {
    /// The version this build writes.
    const VERSION: u32 = 1;

    /// Turns the body of an older version into this one.
    fn upgrade(from: u32, _body: Value) -> Result<Value, String> {
        Err(format!("there is no reader for version {from}"))
    }
}

/// A record of a kind, or of a version of a kind, that this build does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The kind, with `@version` if it has one.
    pub tag: String,
    /// The body, as it came.
    pub body: Json,
}

impl Unknown {
    /// An error if this is a newer version of a kind that this build knows: ignoring it would
    /// give a wrong state. A kind that nobody here knows may be passed over.
    pub fn check_version(&self) -> Result<(), Error> {
        let (kind, found) = split_tag(&self.tag);
        match Record::supported_version(kind) {
            Some(supported) => Err(Error::new(
                ErrorKind::VersionTooNew { what: Cow::Owned(format!("record `{kind}`")), found, supported },
                format!("record `{kind}` has version {found}; this build reads up to {supported}"),
            )),
            None => Ok(()),
        }
    }
}

fn split_tag(tag: &str) -> (&str, u32) {
    match tag.rsplit_once('@') {
        Some((kind, version)) => version.parse().map_or((tag, 1), |version| (kind, version)),
        None => (tag, 1),
    }
}

macro_rules! records {
    ($($(#[$doc:meta])* $kind:literal => $variant:ident,)*) => {
        /// One entry of the journal.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Record {
            $($(#[$doc])* $variant($variant),)*
            /// A kind or version this build does not know, kept verbatim.
            Unknown(Unknown),
        }

        impl Record {
            /// Every kind this build writes.
            pub const KINDS: &'static [&'static str] = &[$($kind),*];

            /// The kind, e.g. `log_append`.
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $kind,)*
                    Self::Unknown(unknown) => split_tag(&unknown.tag).0,
                }
            }

            /// The newest version of `kind` this build reads, if it knows the kind.
            pub fn supported_version(kind: &str) -> Option<u32> {
                match kind {
                    $($kind => Some(<$variant as Body>::VERSION),)*
                    _ => None,
                }
            }
        }

        $(impl From<$variant> for Record {
            fn from(body: $variant) -> Self {
                Self::$variant(body)
            }
        })*

        impl Serialize for Record {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(Some(1))?;
                match self {
                    $(Self::$variant(body) => map.serialize_entry(tag_of::<$variant>($kind).as_ref(), body)?,)*
                    Self::Unknown(unknown) => map.serialize_entry(&unknown.tag, &unknown.body)?,
                }
                map.end()
            }
        }

        impl<'de> Visitor<'de> for RecordVisitor {
            type Value = Record;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a record: an object with one entry")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
                let Some(tag) = map.next_key::<Cow<'de, str>>()? else {
                    return Err(A::Error::custom("a record has no kind"));
                };
                let (kind, version) = split_tag(&tag);
                let record = match kind {
                    $($kind if version <= <$variant as Body>::VERSION => {
                        Record::$variant(read_body::<$variant, A>(version, &mut map)?)
                    })*
                    _ => Record::Unknown(Unknown { body: map.next_value()?, tag: tag.into_owned() }),
                };
                match map.next_key::<serde::de::IgnoredAny>()? {
                    None => Ok(record),
                    Some(_) => Err(A::Error::custom("a record has more than one kind")),
                }
            }
        }
    };
}

records! {
    /// Appends items to a log.
    "log_append" => LogAppend,
    /// Appends the outcomes of effects to a log, without storing them again.
    "log_append_outcomes" => LogAppendOutcomes,
    /// Replaces a stretch of a log; only beside an [`Edit`].
    "log_splice" => LogSplice,
    /// Sets a register.
    "register_set" => RegisterSet,
    /// Removes a register.
    "register_unset" => RegisterUnset,
    /// An effect is about to start.
    "effect_intent" => EffectIntent,
    /// An effect has ended.
    "effect_outcome" => EffectOutcome,
    /// What an effect has streamed so far.
    "effect_partial" => EffectPartial,
    /// Marks this position.
    "checkpoint" => Checkpoint,
    /// Checkpoints are no longer marks (in the inbox).
    "checkpoint_removed" => CheckpointRemoved,
    /// A checkpoint was pinned, unpinned or tagged (in the inbox).
    "checkpoint_marked" => CheckpointMarked,
    /// An earlier checkpoint was used in place of a damaged one.
    "checkpoint_substituted" => CheckpointSubstituted,
    /// A run began.
    "run_started" => RunStarted,
    /// A run began or ceased to wait.
    "run_state" => RunState,
    /// A run ended.
    "run_ended" => RunEnded,
    /// A durable pause began.
    "wait_opened" => WaitOpened,
    /// Somebody decided on a wait.
    "wait_decision" => WaitDecision,
    /// The reminder of a wait was sent.
    "wait_reminded" => WaitReminded,
    /// A wait ran out of time.
    "wait_expired" => WaitExpired,
    /// A wait ended.
    "wait_closed" => WaitClosed,
    /// A message for the session (in the inbox).
    "inbox_message" => InboxMessage,
    /// A command for the session (in the inbox).
    "inbox_command" => InboxCommand,
    /// An answer to a wait (in the inbox).
    "inbox_answer" => InboxAnswer,
    /// The run has taken over the inbox up to a record.
    "inbox_taken" => InboxTaken,
    /// Somebody changed the state by hand; the changes follow in the same batch.
    "edit" => Edit,
    /// Somebody accepted that the definition changed.
    "drift_accepted" => DriftAccepted,
    /// Somebody accepted that history moved.
    "stale_accepted" => StaleAccepted,
    /// Somebody raised a budget.
    "budget_raised" => BudgetRaised,
    /// Title, tags, labels or metadata changed (in the inbox).
    "session_described" => SessionDescribed,
    /// A person accepted something that would otherwise be refused (in the inbox).
    "accepted" => Accepted,
    /// Records that cannot be read any more were passed over.
    "history_lost" => HistoryLost,
}

struct RecordVisitor;

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RecordVisitor)
    }
}

fn tag_of<B: Body>(kind: &'static str) -> Cow<'static, str> {
    match B::VERSION {
        1 => Cow::Borrowed(kind),
        version => Cow::Owned(format!("{kind}@{version}")),
    }
}

fn read_body<'de, B: Body, A: MapAccess<'de>>(version: u32, map: &mut A) -> Result<B, A::Error> {
    if version == B::VERSION {
        return map.next_value();
    }
    let body = B::upgrade(version, map.next_value()?).map_err(A::Error::custom)?;
    serde_json::from_value(body).map_err(A::Error::custom)
}

/// What a frame's records are about, kept outside the sealed bytes so that a store can find
/// checkpoints or waits without reading everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Marks(pub u8);

impl Marks {
    /// Nothing of note.
    pub const NONE: Self = Self(0);
    /// Holds a checkpoint, or something about checkpoints.
    pub const CHECKPOINT: Self = Self(1);
    /// Holds the start, a change or the end of a run.
    pub const RUN: Self = Self(2);
    /// Holds something about a wait.
    pub const WAIT: Self = Self(4);
    /// Holds a decision by a person that must stay on record.
    pub const AUDIT: Self = Self(8);
    /// Describes the session.
    pub const SESSION: Self = Self(16);

    /// Every mark by itself.
    pub const EACH: [Self; 5] = [Self::CHECKPOINT, Self::RUN, Self::WAIT, Self::AUDIT, Self::SESSION];

    /// The marks of `records` together.
    pub fn of(records: &[Record]) -> Self {
        Self(records.iter().fold(0, |marks, record| marks | record.marks().0))
    }

    /// Whether any mark of `other` is set here.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl std::ops::BitOr for Marks {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Record {
    /// What this record is about.
    pub fn marks(&self) -> Marks {
        match self {
            Self::Checkpoint(_) | Self::CheckpointRemoved(_) | Self::CheckpointMarked(_) => Marks::CHECKPOINT,
            Self::RunStarted(_) | Self::RunState(_) | Self::RunEnded(_) => Marks::RUN,
            Self::WaitOpened(_) | Self::WaitReminded(_) | Self::WaitExpired(_) | Self::WaitClosed(_) => Marks::WAIT,
            Self::WaitDecision(_) | Self::InboxAnswer(_) => Marks::WAIT | Marks::AUDIT,
            Self::CheckpointSubstituted(_)
            | Self::Edit(_)
            | Self::DriftAccepted(_)
            | Self::StaleAccepted(_)
            | Self::Accepted(_)
            | Self::BudgetRaised(_)
            | Self::HistoryLost(_) => Marks::AUDIT,
            Self::SessionDescribed(_) => Marks::SESSION,
            _ => Marks::NONE,
        }
    }
}

/// Leaves a field out of the stored form when it says nothing.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> Record {
        let record: Record = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
        record
    }

    #[test]
    fn unknown_kinds_and_fields_are_kept_verbatim() {
        let record = round_trip(r#"{"shiny_new":{"z":1,"a":[1.0, 2e3]}}"#);
        assert_eq!(record.kind(), "shiny_new");
        round_trip(r#"{"register_set":{"key":"k","value":{"z": 1},"later":{"x":[1]}}}"#);
    }

    #[test]
    fn a_newer_version_of_a_known_kind_is_kept_but_not_ignored() {
        let Record::Unknown(unknown) = round_trip(r#"{"register_set@7":{"anything":true}}"#) else {
            panic!("version 7 is not known")
        };
        let error = unknown.check_version().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::VersionTooNew { found: 7, supported: 1, .. }), "{error:?}");
        let other = Unknown { tag: "shiny_new@2".into(), body: Json::null() };
        assert!(other.check_version().is_ok());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "{}",
            "[]",
            "1",
            r#"{"a":1,"b":2}"#,
            r#"{"register_set":{"key":"k"}}"#,
            r#"{"register_set":{"key":"","value":1}}"#,
        ] {
            assert!(serde_json::from_str::<Record>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_older_version_goes_through_the_upgrade_chain() {
        #[derive(Serialize, Deserialize)]
        struct Third {
            total: u32,
        }
        impl Body for Third {
            const VERSION: u32 = 3;
            fn upgrade(from: u32, mut body: Value) -> Result<Value, String> {
                if from < 2 {
                    body = serde_json::json!({ "sum": body["n"] });
                }
                Ok(serde_json::json!({ "total": body["sum"] }))
            }
        }
        struct Read(u32);
        impl<'de> Visitor<'de> for Read {
            type Value = Third;
            fn expecting(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
                Ok(())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Third, A::Error> {
                map.next_key::<String>()?;
                read_body(self.0, &mut map)
            }
        }
        for (version, text) in [(1, r#"{"k":{"n":5}}"#), (2, r#"{"k":{"sum":5}}"#), (3, r#"{"k":{"total":5}}"#)] {
            let third = serde_json::Deserializer::from_str(text).deserialize_map(Read(version)).unwrap();
            assert_eq!(third.total, 5);
        }
        assert_eq!(tag_of::<Third>("k"), "k@3");
    }
}
