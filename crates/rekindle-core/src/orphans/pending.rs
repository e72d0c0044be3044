//! Records of erasures: written before a session with a data key goes, so that the key goes too whatever happens in
//! between.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::SessionKey;
use crate::journal::Receipt;
use crate::values::{Change, Changed, MAX_VALUE_BYTES, ValueKey, ValueKind, Values};

/// The erasures of all sessions that had one name and are not finished.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PendingErasures {
    /// One for each session.
    pub erasures: Vec<PendingErasure>,
}

/// An erasure that was begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingErasure {
    /// Tells the session from others of its name.
    pub incarnation: String,
    /// The receipt that was asked for, without its signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<Receipt>>,
}

impl PendingErasures {
    /// The erasures of a session's name that are not finished.
    pub async fn read(values: &dyn Values, session: &SessionKey) -> Result<Self> {
        match values.get(&Self::key(session)?).await? {
            Some(bytes) => Self::parse(session, &bytes),
            None => Ok(Self::default()),
        }
    }

    /// Records an erasure, in place of an older one of the same session.
    pub async fn record(values: &dyn Values, session: &SessionKey, erasure: &PendingErasure) -> Result<()> {
        Self::edit(values, session, |pending| {
            pending.erasures.retain(|known| known.incarnation != erasure.incarnation);
            pending.erasures.push(erasure.clone());
            // A receipt of thousands of branches does not fit: the key goes all the same.
            if pending.to_bytes().is_ok_and(|bytes| bytes.len() > MAX_VALUE_BYTES) {
                pending.erasures.iter_mut().for_each(|erasure| erasure.receipt = None);
            }
        })
        .await
    }

    /// Takes an erasure off the record: it is finished, or will not happen.
    pub async fn forget(values: &dyn Values, session: &SessionKey, incarnation: &str) -> Result<()> {
        Self::edit(values, session, |pending| pending.erasures.retain(|known| known.incarnation != incarnation)).await
    }

    async fn edit(values: &dyn Values, session: &SessionKey, change: impl Fn(&mut Self) + Send) -> Result<()> {
        let key = Self::key(session)?;
        let mut found = values.get(&key).await?;
        loop {
            let before = match &found {
                Some(bytes) => Self::parse(session, bytes)?,
                None => Self::default(),
            };
            let mut pending = before.clone();
            change(&mut pending);
            if pending == before {
                return Ok(());
            }
            let wanted = match pending.erasures.is_empty() {
                true => Change::delete(key.clone()),
                false => Change::set(key.clone(), pending.to_bytes()?),
            };
            match values.change(&wanted.if_is(found)).await? {
                Changed::Done => return Ok(()),
                Changed::Differs(now) => found = now,
            }
        }
    }

    /// Reads a record.
    pub fn parse(session: &SessionKey, bytes: &[u8]) -> Result<Self> {
        let damaged = |error| Error::corrupt("the record of its removal cannot be read").because(error).on(session);
        serde_json::from_slice(bytes).map_err(damaged)
    }

    fn to_bytes(&self) -> Result<Bytes> {
        let written = serde_json::to_vec(self);
        written.map(Bytes::from).map_err(|error| Error::invalid("a removal cannot be recorded").because(error))
    }

    fn key(session: &SessionKey) -> Result<ValueKey> {
        ValueKey::new(session.namespace.clone(), ValueKind::REMOVAL, session.id.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SessionId;

    #[test]
    fn records_stay_readable() {
        let session: SessionKey = SessionId::new("s").unwrap().into();
        let bytes = br#"{"erasures":[{"incarnation":"1"}]}"#;
        let pending = PendingErasures::parse(&session, bytes).unwrap();
        assert_eq!(&pending.to_bytes().unwrap()[..], bytes);
    }

    #[test]
    fn fuzzed_erasures() {
        let session: SessionKey = SessionId::new("s").unwrap().into();
        let seed = br#"{"erasures":[{"incarnation":"1"}]}"#;
        rekindle_fuzz::fuzz!("pending-erasure").seeds([seed.to_vec()]).bytes(|bytes| {
            let pending = PendingErasures::parse(&session, bytes).ok()?;
            assert_eq!(PendingErasures::parse(&session, &pending.to_bytes().unwrap()).unwrap(), pending);
            Some(())
        });
    }
}
