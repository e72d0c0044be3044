//! Notes of which sessions have large values in which bucket. One is written before the first value, so it is there when
//! the session goes, and it outlives the session until its values are gone.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::SessionKey;
use crate::values::{Change, Changed, ValueKey, ValueKind, Values};

/// The large values of all sessions that had one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValuesNote {
    /// One for each session that has, or may have, values.
    pub sessions: Vec<NotedValues>,
}

/// The large values of one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedValues {
    /// Tells the session from others of its name.
    pub incarnation: String,
    /// The bucket, without secrets.
    pub place: String,
    /// The last part of the name of their folder, which no other note names: a session that comes back has another one.
    /// None for values that an earlier version wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Set before the session is removed: from then on the values go as soon as the session is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub going: bool,
}

impl ValuesNote {
    /// The note of a session's name, if there is one.
    pub async fn read(values: &dyn Values, session: &SessionKey) -> Result<Option<Self>> {
        values.get(&Self::key(session)?).await?.map(|bytes| Self::parse(session, &bytes)).transpose()
    }

    /// Changes the note of a session's name as `change` says, which returns whether it did.
    pub async fn edit(
        values: &dyn Values,
        session: &SessionKey,
        change: impl Fn(&mut Self) -> bool + Send,
    ) -> Result<()> {
        let key = Self::key(session)?;
        let mut found = values.get(&key).await?;
        loop {
            let mut note = match &found {
                Some(bytes) => Self::parse(session, bytes)?,
                None => Self::default(),
            };
            if !change(&mut note) {
                return Ok(());
            }
            let wanted = match note.sessions.is_empty() {
                true => Change::delete(key.clone()),
                false => Change::set(key.clone(), note.to_bytes()?),
            };
            match values.change(&wanted.if_is(found)).await? {
                Changed::Done => return Ok(()),
                Changed::Differs(now) => found = now,
            }
        }
    }

    /// The values of the session with that incarnation.
    pub fn of(&self, incarnation: &str) -> Option<&NotedValues> {
        self.sessions.iter().find(|noted| noted.incarnation == incarnation)
    }

    /// Reads a note.
    pub fn parse(session: &SessionKey, bytes: &[u8]) -> Result<Self> {
        let damaged = |error| Error::corrupt("the note of its large values cannot be read").because(error).on(session);
        serde_json::from_slice(bytes).map_err(damaged)
    }

    fn to_bytes(&self) -> Result<Bytes> {
        let written = serde_json::to_vec(self);
        written.map(Bytes::from).map_err(|error| Error::invalid("a note cannot be written").because(error))
    }

    fn key(session: &SessionKey) -> Result<ValueKey> {
        ValueKey::new(session.namespace.clone(), ValueKind::LARGE_VALUES, session.id.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SessionId;

    #[test]
    fn notes_stay_readable() {
        let session: SessionKey = SessionId::new("s").unwrap().into();
        let bytes = br#"{"sessions":[{"incarnation":"1","place":"s3://b"},{"incarnation":"2","place":"x","folder":"00ff","going":true}]}"#;
        let note = ValuesNote::parse(&session, bytes).unwrap();
        assert_eq!(&note.to_bytes().unwrap()[..], bytes);
        assert!(note.of("2").unwrap().going && note.of("3").is_none());
    }

    #[test]
    fn fuzzed_notes() {
        let session: SessionKey = SessionId::new("s").unwrap().into();
        let seed = br#"{"sessions":[{"incarnation":"2","place":"x","going":true}]}"#;
        rekindle_fuzz::fuzz!("values-note").seeds([seed.to_vec()]).bytes(|bytes| {
            let note = ValuesNote::parse(&session, bytes).ok()?;
            assert_eq!(ValuesNote::parse(&session, &note.to_bytes().unwrap()).unwrap(), note);
            Some(())
        });
    }
}
