//! Rows to the types of the contract and back.

use std::str::FromStr;

use rekindle_core::{
    BranchId, BranchInfo, Damage, DamageKind, Epoch, Error, Hash, Head, LeaseInfo, Namespace, OwnerId, Position, Seq,
    SessionHeader, SessionId, SessionInfo, SessionKey, Status, Timestamp,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Scope;
use super::connection::{Value, now};
use super::failure::Outcome;

/// A session with the ids of its rows.
#[derive(Debug)]
pub(super) struct StoredSession {
    /// The row of the session.
    pub(super) id: i64,
    /// The rows of its branches, in the order of `info.branches`.
    pub(super) branch_ids: Vec<i64>,
    /// Everything else.
    pub(super) info: SessionInfo,
}

impl StoredSession {
    /// The row of a branch.
    pub(super) fn branch_id(&self, branch: &BranchId) -> Outcome<i64> {
        let found = self.info.branches.iter().zip(&self.branch_ids).find(|(info, _)| info.branch == *branch);
        found.map(|(_, id)| *id).ok_or_else(|| Error::corrupt("a row is not found although it is there").into())
    }
}

/// What [`sessions`] reads of `page`, the sessions to give, and of the time in `clock`. The header
/// stands in the first row of each session only.
pub(super) fn with_branches(schema: &str, order: &str) -> String {
    format!(
        "SELECT c.now, p.id, p.namespace, p.session, p.created_at, p.current,
             CASE WHEN row_number() OVER (PARTITION BY p.id ORDER BY b.id) = 1 THEN p.header END,
             b.id, b.name, b.parent_branch, b.fork_seq, b.head, b.head_hash, b.base_seq, b.base_hash, b.status,
             b.created_at, b.updated_at, b.epoch, b.lease_owner, b.lease_epoch, b.lease_expires, b.last_wait
         FROM clock c CROSS JOIN page p JOIN {schema}.branches b ON b.session = p.id
         ORDER BY p.created_at {order}, p.session {order}, b.id"
    )
}

/// A session, if it exists.
pub(super) async fn find_session(scope: &Scope<'_>, key: &SessionKey) -> Outcome<Option<StoredSession>> {
    let schema = scope.schema;
    let sql = format!(
        "WITH clock AS MATERIALIZED (SELECT {} AS now),
             page AS (SELECT * FROM {schema}.sessions WHERE namespace = $1 AND session = $2)
         {}",
        now(3),
        with_branches(schema, "")
    );
    let names = [key.namespace.as_str(), key.id.as_str()];
    let values: [Value<'_>; 3] = [(&names[0], Type::TEXT), (&names[1], Type::TEXT), (&scope.now, Type::INT8)];
    Ok(sessions(&scope.connection.query(&sql, &values).await?)?.pop())
}

/// The sessions in rows that [`with_branches`] gave.
pub(super) fn sessions(rows: &[Row]) -> Outcome<Vec<StoredSession>> {
    let mut sessions: Vec<StoredSession> = Vec::new();
    for row in rows {
        let id: i64 = row.try_get(1)?;
        if sessions.last().is_none_or(|last| last.id != id) {
            sessions.push(session(row, id)?);
        }
        if let Some(session) = sessions.last_mut() {
            session.branch_ids.push(row.try_get(7)?);
            session.info.branches.push(branch(row)?);
        }
    }
    for StoredSession { info, .. } in &mut sessions {
        if !info.branches.iter().any(|branch| branch.branch == info.current) {
            info.current = BranchId::main();
        }
    }
    Ok(sessions)
}

fn session(row: &Row, id: i64) -> Outcome<StoredSession> {
    let key = SessionKey::new(parsed::<Namespace>(row, 2)?, parsed::<SessionId>(row, 3)?);
    let (header, damage) = header_or_damage(&key, row.try_get::<_, Option<&[u8]>>(6)?.unwrap_or_default());
    let info = SessionInfo {
        header,
        created_at: time(row, 4)?,
        branches: Vec::new(),
        current: parsed(row, 5)?,
        observed_at: time(row, 0)?,
        damage: damage.into_iter().collect(),
    };
    Ok(StoredSession { id, branch_ids: Vec::new(), info })
}

fn branch(row: &Row) -> Outcome<BranchInfo> {
    let parent = match optional_parsed::<BranchId>(row, 9)? {
        Some(branch) => Some(Position::new(branch, Seq(unsigned(row, 10)?))),
        None => None,
    };
    let base = match row.try_get::<_, Option<&[u8]>>(14)? {
        Some(_) => Some(Head { seq: Seq(unsigned(row, 13)?), hash: hash(row, 14)? }),
        None => None,
    };
    let lease = match optional_parsed::<OwnerId>(row, 19)? {
        Some(owner) => {
            Some(LeaseInfo { owner, epoch: Epoch(unsigned(row, 20)?), expires_at: time(row, 21)?, boot: None })
        }
        None => None,
    };
    Ok(BranchInfo {
        branch: parsed(row, 8)?,
        parent,
        head: Head { seq: Seq(unsigned(row, 11)?), hash: hash(row, 12)? },
        last_wait: Seq(unsigned(row, 22)?),
        base,
        status: parsed::<Status>(row, 15)?,
        created_at: time(row, 16)?,
        updated_at: time(row, 17)?,
        epoch: Epoch(unsigned(row, 18)?),
        lease,
    })
}

/// The error about a session that does not exist.
pub(super) fn missing(session: &SessionKey, operation: &'static str) -> Error {
    Error::not_found("there is no such session").during(operation).on(session)
}

/// PostgreSQL's integers are signed; every number of the contract that matters fits.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The header in `bytes`, or what is wrong with it.
pub(super) fn header(key: &SessionKey, bytes: &[u8]) -> Result<SessionHeader, String> {
    let header: SessionHeader =
        serde_json::from_slice(bytes).map_err(|error| format!("the header cannot be read: {error}"))?;
    if header.key == *key { Ok(header) } else { Err(format!("the header is that of session {}", header.key)) }
}

// A session whose header is damaged still has a name and records, and can be found and exported.
fn header_or_damage(key: &SessionKey, bytes: &[u8]) -> (SessionHeader, Option<Damage>) {
    match header(key, bytes) {
        Ok(header) => (header, None),
        Err(detail) => {
            let (first, last) = (Seq::ZERO, Seq::ZERO);
            let damage = Damage::new(DamageKind::Header, BranchId::main(), first, last, detail);
            (SessionHeader::new(key.clone()), Some(damage))
        }
    }
}

/// What of a header is written into columns of its own, so that lists can filter by it.
#[derive(Debug)]
pub(super) struct HeaderColumns {
    pub(super) agent: Option<Vec<u8>>,
    pub(super) search: Vec<u8>,
    pub(super) tags: Vec<Vec<u8>>,
    pub(super) labels: Vec<Vec<u8>>,
    pub(super) header: Vec<u8>,
}

impl HeaderColumns {
    /// The columns of `header`.
    pub(super) fn of(header: &SessionHeader) -> Outcome<Self> {
        let bytes = serde_json::to_vec(header)
            .map_err(|error| Error::invalid("the header cannot be written").because(error))?;
        Ok(Self {
            agent: header.agent.as_ref().map(|agent| agent.as_bytes().to_vec()),
            search: header.search_text().into_bytes(),
            tags: header.tags.iter().map(|tag| tag.as_bytes().to_vec()).collect(),
            labels: header.labels.iter().map(|(name, value)| label(name, value)).collect(),
            header: bytes,
        })
    }
}

/// A label as one value: no other name and value give the same.
pub(super) fn label(name: &str, value: &str) -> Vec<u8> {
    format!("{}:{name}{value}", name.len()).into_bytes()
}

/// A time.
pub(super) fn time(row: &Row, column: usize) -> Outcome<Timestamp> {
    unsigned(row, column).map(Timestamp)
}

/// A number that is never negative.
pub(super) fn unsigned(row: &Row, column: usize) -> Outcome<u64> {
    let number: i64 = row.try_get(column)?;
    u64::try_from(number).map_err(|_| Error::corrupt(format!("a row holds the number {number}")).into())
}

/// A hash.
pub(super) fn hash(row: &Row, column: usize) -> Outcome<Hash> {
    Hash::from_slice(row.try_get(column)?).ok_or_else(|| Error::corrupt("a row holds a hash of a wrong length").into())
}

/// An id.
pub(super) fn parsed<T: FromStr<Err = Error>>(row: &Row, column: usize) -> Outcome<T> {
    parse(row.try_get(column)?)
}

/// An id that may be missing.
pub(super) fn optional_parsed<T: FromStr<Err = Error>>(row: &Row, column: usize) -> Outcome<Option<T>> {
    row.try_get::<_, Option<&str>>(column)?.map(parse).transpose()
}

fn parse<T: FromStr<Err = Error>>(text: &str) -> Outcome<T> {
    text.parse().map_err(|error: Error| Error::corrupt("a row holds what is not legal").because(error).into())
}
