//! Rows to the types of the contract and back.

use std::collections::HashMap;
use std::str::FromStr;

use rekindle_core::{
    BootTime, BranchId, BranchInfo, Damage, DamageKind, Epoch, Error, Hash, Head, LeaseInfo, Moment, Namespace,
    OwnerId, Position, Seq, SessionHeader, SessionId, SessionInfo, SessionKey, Status, Timestamp,
};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

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
    pub(super) fn branch_id(&self, branch: &BranchId) -> Option<i64> {
        self.info.branches.iter().zip(&self.branch_ids).find(|(info, _)| info.branch == *branch).map(|(_, id)| *id)
    }
}

/// The columns [`SessionRow::read`] expects.
pub(super) const SESSION_COLUMNS: &str = "s.id, s.namespace, s.session, s.created_at, s.current_branch, s.header";

/// The columns [`branch`] expects.
macro_rules! branch_columns {
    () => {
        "b.id, b.name, b.parent_branch, b.fork_seq, b.head, b.head_hash, b.base_seq, b.base_hash, b.status, \
         b.created_at, b.updated_at, b.epoch, b.lease_owner, b.lease_epoch, b.lease_expires, b.lease_boot, \
         b.lease_until, b.last_wait"
    };
}

/// How many columns [`branch`] expects.
const BRANCH_COLUMNS: usize = 18;

/// A session with its branches, which are few: sorting them here takes less than having them sorted.
pub(super) const FIND: &str = concat!(
    "SELECT ",
    branch_columns!(),
    ", s.id, s.namespace, s.session, s.created_at, s.current_branch, s.header \
     FROM sessions s LEFT JOIN branches b ON b.session = s.id WHERE s.namespace = ?1 AND s.session = ?2",
);

const BRANCHES_OF_MANY: &str = concat!(
    "SELECT ",
    branch_columns!(),
    ", b.session FROM branches b WHERE b.session IN (SELECT value FROM json_each(?1)) ORDER BY b.id",
);

/// A row of `sessions`.
#[derive(Debug)]
pub(super) struct SessionRow {
    id: i64,
    key: SessionKey,
    created_at: Timestamp,
    current_branch: i64,
    header: String,
}

impl SessionRow {
    /// Reads [`SESSION_COLUMNS`].
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Self::read_from(row, 0)
    }

    /// Reads [`SESSION_COLUMNS`] from column `at` on.
    fn read_from(row: &Row<'_>, at: usize) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(at)?,
            key: SessionKey::new(parsed::<Namespace>(row, at + 1)?, parsed::<SessionId>(row, at + 2)?),
            created_at: Timestamp(unsigned(row, at + 3)?),
            current_branch: row.get(at + 4)?,
            header: row.get(at + 5)?,
        })
    }

    /// Adds the branches of many sessions, all with one query.
    pub(super) fn complete_all(
        rows: Vec<Self>,
        connection: &Connection,
        now: Moment,
    ) -> rusqlite::Result<Vec<StoredSession>> {
        let ids: Vec<String> = rows.iter().map(|row| row.id.to_string()).collect();
        let mut statement = connection.prepare_cached(BRANCHES_OF_MANY)?;
        let mut of_sessions: HashMap<i64, Vec<(i64, BranchInfo)>> = HashMap::new();
        let mut found = statement.query([format!("[{}]", ids.join(","))])?;
        while let Some(row) = found.next()? {
            of_sessions.entry(row.get(BRANCH_COLUMNS)?).or_default().push((row.get(0)?, branch(row, now)?));
        }
        let complete = |row: Self| {
            let branches = of_sessions.remove(&row.id).unwrap_or_default();
            row.with_branches(branches, now)
        };
        Ok(rows.into_iter().map(complete).collect())
    }

    fn with_branches(self, branches: Vec<(i64, BranchInfo)>, now: Moment) -> StoredSession {
        let (branch_ids, branches): (Vec<_>, Vec<_>) = branches.into_iter().unzip();
        let current = branch_ids.iter().position(|id| *id == self.current_branch);
        let current = current.map_or_else(BranchId::main, |index| branches[index].branch.clone());
        let (header, damage) = header_or_damage(&self.key, &self.header);
        let info = SessionInfo {
            header,
            created_at: self.created_at,
            branches,
            current,
            observed_at: now.wall,
            damage: damage.into_iter().collect(),
        };
        StoredSession { id: self.id, branch_ids, info }
    }
}

/// A session, if it exists.
pub(super) fn find_session(
    connection: &Connection,
    key: &SessionKey,
    now: Moment,
) -> rusqlite::Result<Option<StoredSession>> {
    let mut statement = connection.prepare_cached(FIND)?;
    let mut rows = statement.query([key.namespace.as_str(), key.id.as_str()])?;
    let (mut session, mut branches) = (None, Vec::new());
    while let Some(row) = rows.next()? {
        if session.is_none() {
            session = Some(SessionRow::read_from(row, BRANCH_COLUMNS)?);
        }
        if let Some(id) = row.get::<_, Option<i64>>(0)? {
            branches.push((id, branch(row, now)?));
        }
    }
    branches.sort_unstable_by_key(|(id, _)| *id);
    Ok(session.map(|session| session.with_branches(branches, now)))
}

/// The row of a branch, if it exists.
pub(super) fn find_branch(
    connection: &Connection,
    key: &SessionKey,
    branch: &BranchId,
) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached(
            "SELECT b.id FROM sessions s JOIN branches b ON b.session = s.id
             WHERE s.namespace = ?1 AND s.session = ?2 AND b.name = ?3",
        )?
        .query_row([key.namespace.as_str(), key.id.as_str(), branch.as_str()], |row| row.get(0))
        .optional()
}

/// The error about a session that does not exist.
pub(super) fn missing(session: &SessionKey, operation: &'static str) -> Error {
    Error::not_found("there is no such session").during(operation).on(session)
}

/// Adds a branch; its row.
pub(super) fn insert_branch(connection: &Connection, session: i64, info: &BranchInfo) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(
            "INSERT INTO branches (session, name, parent_branch, fork_seq, head, head_hash, base_seq, base_hash, status,
                 created_at, updated_at, epoch)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .insert(params![
            session,
            info.branch.as_str(),
            info.parent.as_ref().map(|parent| parent.branch.as_str()),
            info.parent.as_ref().map(|parent| signed(parent.seq.0)),
            signed(info.head.seq.0),
            info.head.hash.0,
            info.base.map(|base| signed(base.seq.0)),
            info.base.map(|base| base.hash.0),
            info.status.as_str(),
            signed(info.created_at.0),
            signed(info.updated_at.0),
            signed(info.epoch.0),
        ])
}

/// SQLite's integers are signed; every number of the contract that matters fits.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The header in `text`, or what is wrong with it.
pub(super) fn header(key: &SessionKey, text: &str) -> Result<SessionHeader, String> {
    let header: SessionHeader =
        serde_json::from_str(text).map_err(|error| format!("the header cannot be read: {error}"))?;
    if header.key == *key { Ok(header) } else { Err(format!("the header is that of session {}", header.key)) }
}

// A session whose header is damaged still has a name and records, and can be found and exported.
fn header_or_damage(key: &SessionKey, text: &str) -> (SessionHeader, Option<Damage>) {
    match header(key, text) {
        Ok(header) => (header, None),
        Err(detail) => {
            let (first, last) = (Seq::ZERO, Seq::ZERO);
            let damage = Damage::new(DamageKind::Header, BranchId::main(), first, last, detail);
            (SessionHeader::new(key.clone()), Some(damage))
        }
    }
}

fn branch(row: &Row<'_>, now: Moment) -> rusqlite::Result<BranchInfo> {
    let parent = match optional_parsed::<BranchId>(row, 2)? {
        Some(branch) => Some(Position::new(branch, Seq(unsigned(row, 3)?))),
        None => None,
    };
    let base = match row.get::<_, Option<[u8; 32]>>(7)? {
        Some(hash) => Some(Head { seq: Seq(unsigned(row, 6)?), hash: Hash(hash) }),
        None => None,
    };
    let lease = match optional_parsed::<OwnerId>(row, 12)? {
        Some(owner) => Some(lease(row, owner, now)?),
        None => None,
    };
    Ok(BranchInfo {
        branch: parsed(row, 1)?,
        parent,
        head: Head { seq: Seq(unsigned(row, 4)?), hash: Hash(row.get(5)?) },
        last_wait: Seq(unsigned(row, 17)?),
        base,
        status: parsed::<Status>(row, 8)?,
        created_at: Timestamp(unsigned(row, 9)?),
        updated_at: Timestamp(unsigned(row, 10)?),
        epoch: Epoch(unsigned(row, 11)?),
        lease,
    })
}

fn lease(row: &Row<'_>, owner: OwnerId, now: Moment) -> rusqlite::Result<LeaseInfo> {
    let boot = match row.get::<_, Option<i64>>(15)? {
        Some(boot) => Some(BootTime { boot: boot.cast_unsigned(), micros: unsigned(row, 16)? }),
        None => None,
    };
    let expires_at = Timestamp(unsigned(row, 14)?);
    let mut lease = LeaseInfo { owner, epoch: Epoch(unsigned(row, 13)?), expires_at, boot };
    lease.seen_at(now);
    Ok(lease)
}

pub(super) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

pub(super) fn parsed<T: FromStr<Err = Error>>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    parse(row.get_ref(column)?.as_str()?, column)
}

pub(super) fn optional_parsed<T: FromStr<Err = Error>>(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<T>> {
    row.get_ref(column)?.as_str_or_null()?.map(|text| parse(text, column)).transpose()
}

fn parse<T: FromStr<Err = Error>>(text: &str, column: usize) -> rusqlite::Result<T> {
    text.parse().map_err(|error: Error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into()))
}
