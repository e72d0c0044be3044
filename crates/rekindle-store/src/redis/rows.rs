//! A session as a hash, and back.
//!
//! | field | what it is | written by |
//! | --- | --- | --- |
//! | `v` | a version: moves when branches or leases change | changes |
//! | `made` | the nonce of the call that created it | creating |
//! | `header`, `created`, `current` | as in [`SessionInfo`] | appends; creating; leases |
//! | `i:<branch>` | what else is known of a branch, and its place among them | changes |
//! | `e:<branch>`, `x:<branch>` | epoch and end of its lease, or nothing | leases; the end also by appends |
//! | `h:<branch>`, `u:<branch>`, `s:<branch>` | its head, when it was written last, its status | appends |
//! | `w:<branch>` | its last record about a wait, if there is one | appends |

use std::collections::HashMap;

use bytes::Bytes;
use redis::Value;
use rekindle_core::{
    BranchId, BranchInfo, Damage, DamageKind, Error, Hash, Head, Result, Seq, SessionHeader, SessionInfo, SessionKey,
    Timestamp,
};
use serde::{Deserialize, Serialize};

use super::value;

/// A session and what a change of it must name.
#[derive(Debug)]
pub(super) struct StoredSession {
    pub(super) version: String,
    pub(super) info: SessionInfo,
    /// The header as it is stored.
    pub(super) header: String,
    /// The places of its branches, in the order of `info.branches`.
    places: Vec<u64>,
}

impl StoredSession {
    /// The place of a branch, or of the next one.
    pub(super) fn place(&self, branch: &BranchId) -> u64 {
        let known = self.info.branches.iter().zip(&self.places).find(|(info, _)| info.branch == *branch);
        known.map_or_else(|| self.places.last().map_or(0, |last| last.saturating_add(1)), |(_, place)| *place)
    }
}

#[derive(Serialize, Deserialize)]
struct StoredBranch {
    place: u64,
    info: BranchInfo,
}

/// A field with its value.
pub(super) type Field = (String, String);

/// A head as it is stored and compared.
pub(super) fn head_text(head: Head) -> String {
    format!("{} {}", head.seq, head.hash)
}

/// The fields of a new session.
pub(super) fn session_fields(info: &SessionInfo) -> Result<Vec<Field>> {
    let mut fields = vec![
        ("header".to_owned(), header_text(&info.header)?),
        ("created".to_owned(), info.created_at.0.to_string()),
        ("current".to_owned(), info.current.to_string()),
    ];
    for (place, branch) in (0u64..).zip(&info.branches) {
        fields.extend(branch_fields(place, branch)?);
    }
    Ok(fields)
}

/// The fields of a new branch.
pub(super) fn branch_fields(place: u64, info: &BranchInfo) -> Result<Vec<Field>> {
    let name = &info.branch;
    let mut fields = changed_fields(place, info)?;
    fields.extend([
        (format!("h:{name}"), head_text(info.head)),
        (format!("u:{name}"), info.updated_at.0.to_string()),
        (format!("s:{name}"), info.status.to_string()),
    ]);
    Ok(fields)
}

/// The fields of a branch that changes may write.
pub(super) fn changed_fields(place: u64, info: &BranchInfo) -> Result<Vec<Field>> {
    let name = &info.branch;
    let stored = serde_json::to_string(&StoredBranch { place, info: info.clone() })
        .map_err(|error| Error::invalid("the branch cannot be written").because(error))?;
    let lease = info.lease.as_ref();
    Ok(vec![
        (format!("i:{name}"), stored),
        (format!("e:{name}"), lease.map(|lease| lease.epoch.to_string()).unwrap_or_default()),
        (format!("x:{name}"), lease.map(|lease| lease.expires_at.0.to_string()).unwrap_or_default()),
    ])
}

/// The names of a branch's fields.
pub(super) fn branch_field_names(branch: &BranchId) -> Vec<String> {
    ["i", "e", "x", "h", "u", "s", "w"].iter().map(|kind| format!("{kind}:{branch}")).collect()
}

/// A header as it is stored.
pub(super) fn header_text(header: &SessionHeader) -> Result<String> {
    serde_json::to_string(header).map_err(|error| Error::invalid("the header cannot be written").because(error))
}

/// How many arguments follow, and the fields.
pub(super) fn field_args(fields: Vec<Field>) -> Vec<Bytes> {
    let count = Bytes::from(fields.len().to_string());
    let pairs = fields.into_iter().flat_map(|(name, value)| [Bytes::from(name), Bytes::from(value)]);
    std::iter::once(count).chain(pairs).collect()
}

/// The session of a hash; nothing if there is none.
pub(super) fn session(key: &SessionKey, hash: Value, now: Timestamp) -> Result<Option<StoredSession>> {
    let fields = Fields::new(hash)?;
    match fields.0.is_empty() {
        true => Ok(None),
        false => fields.session(key, now).map(Some).map_err(|error| error.on(key)),
    }
}

struct Fields(HashMap<String, String>);

impl Fields {
    fn new(hash: Value) -> Result<Self> {
        let mut texts = value::texts(hash)?.into_iter();
        let mut fields = HashMap::new();
        while let (Some(name), Some(text)) = (texts.next(), texts.next()) {
            fields.insert(name, text);
        }
        Ok(Self(fields))
    }

    fn get(&self, name: &str) -> Result<&str> {
        let absent = || Error::corrupt(format!("the session has no field `{name}`"));
        self.0.get(name).map(String::as_str).ok_or_else(absent)
    }

    fn time(&self, name: &str) -> Result<Timestamp> {
        value::parsed(self.get(name)?).map(Timestamp)
    }

    fn session(&self, key: &SessionKey, now: Timestamp) -> Result<StoredSession> {
        let header_text = self.get("header")?;
        let (header, damage) = header_or_damage(key, header_text);
        let mut branches = self.branches()?;
        branches.sort_by_key(|branch| branch.place);
        let places = branches.iter().map(|branch| branch.place).collect();
        let info = SessionInfo {
            header,
            created_at: self.time("created")?,
            branches: branches.into_iter().map(|branch| branch.info).collect(),
            current: self.get("current")?.parse()?,
            observed_at: now,
            damage: damage.into_iter().collect(),
        };
        let version = self.get("v")?.to_owned();
        Ok(StoredSession { version, info, header: header_text.to_owned(), places })
    }

    fn branches(&self) -> Result<Vec<StoredBranch>> {
        let names = self.0.keys().filter_map(|name| name.strip_prefix("i:"));
        names.map(|name| self.branch(name)).collect()
    }

    fn branch(&self, name: &str) -> Result<StoredBranch> {
        let unreadable = |error| Error::corrupt(format!("branch `{name}` cannot be read")).because(error);
        let mut stored: StoredBranch = serde_json::from_str(self.get(&format!("i:{name}"))?).map_err(unreadable)?;
        let info = &mut stored.info;
        if info.branch.as_str() != name {
            return Err(Error::corrupt(format!("branch `{name}` says that it is `{}`", info.branch)));
        }
        info.head = parse_head(self.get(&format!("h:{name}"))?)?;
        info.updated_at = self.time(&format!("u:{name}"))?;
        info.status = self.get(&format!("s:{name}"))?.parse()?;
        info.last_wait = match self.0.get(&format!("w:{name}")) {
            Some(text) => Seq(value::parsed(text)?),
            None => Seq::ZERO,
        };
        if let Some(lease) = &mut info.lease {
            lease.expires_at = self.time(&format!("x:{name}"))?;
        }
        Ok(stored)
    }
}

/// A head as it is stored.
pub(super) fn parse_head(text: &str) -> Result<Head> {
    let wrong = || Error::corrupt("the head of a branch cannot be read");
    let (seq, hash) = text.split_once(' ').ok_or_else(wrong)?;
    let seq = seq.parse().map_err(|_| wrong())?;
    Ok(Head { seq: Seq(seq), hash: hash.parse::<Hash>().map_err(|_| wrong())? })
}

// A session whose header is damaged still has a name and records, and can be found and exported.
fn header_or_damage(key: &SessionKey, text: &str) -> (SessionHeader, Option<Damage>) {
    let detail = match serde_json::from_str::<SessionHeader>(text) {
        Ok(header) if header.key == *key => return (header, None),
        Ok(header) => format!("the header is that of session {}", header.key),
        Err(error) => format!("the header cannot be read: {error}"),
    };
    let (first, last) = (Seq::ZERO, Seq::ZERO);
    let damage = Damage::new(DamageKind::Header, BranchId::main(), first, last, detail);
    (SessionHeader::new(key.clone()), Some(damage))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Vec<Field> {
        let key: SessionKey = rekindle_core::SessionId::new("a").unwrap().into();
        let info = rekindle_core::NewSession::new(SessionHeader::new(key)).session_info(Timestamp(5));
        let mut fields = session_fields(&info).unwrap();
        fields.extend([("v".to_owned(), "1".to_owned()), ("w:main".to_owned(), "3".to_owned())]);
        fields
    }

    /// Fields as text: a line for each name and each value.
    #[test]
    fn fuzzed_sessions() {
        let key: SessionKey = rekindle_core::SessionId::new("a").unwrap().into();
        let seed: Vec<String> = stored().into_iter().flat_map(|(name, value)| [name, value]).collect();
        let words = [
            "\ni:main\n",
            "\nh:main\n",
            "\ne:main\n7",
            "\"place\":",
            "\"lease\":{\"owner\":\"o\",\"epoch\":1,\"expires_at\":1}",
        ];
        rekindle_fuzz::fuzz!("redis-session").seeds([seed.join("\n")]).words(words).text(|text| {
            let values = text.split('\n').map(|part| Value::BulkString(part.as_bytes().to_vec())).collect();
            let session = session(&key, Value::Array(values), Timestamp(1)).ok()??;
            for branch in &session.info.branches {
                let _ = session.place(&branch.branch);
            }
            let _ = session.place(&BranchId::new("new").unwrap());
            let _ = session_fields(&session.info).unwrap();
            Some(())
        });
        rekindle_fuzz::fuzz!("redis-head").seeds([head_text(Head { seq: Seq(7), hash: Hash::of(b"x") })]).text(
            |text| {
                let head = parse_head(text).ok()?;
                assert_eq!(parse_head(&head_text(head)).ok(), Some(head));
                Some(())
            },
        );
    }
}
