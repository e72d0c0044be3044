//! Everything that writes but appending: creating, forking, leasing, removing. Each runs inside
//! a transaction of the writer, on the session as it is there.

use rekindle_core::{
    BranchId, BranchInfo, Error, ErrorKind, Fork, Lease, LeaseRequest, Moment, NewSession, ReadFrames, Removal,
    Removed, Seq, SessionInfo, SessionKey, Timestamp,
};
use rusqlite::{Connection, params};

use super::failure::Outcome;
use super::frames::{self, FrameRow};
use super::index::{self, Line};
use super::jobs;
use super::rows::{StoredSession, find_session, insert_branch, missing, signed};
use super::writer::Scope;

/// Creates a session; `parts` are the frames of its base.
pub(super) fn create(scope: &mut Scope, new: &NewSession, parts: &[FrameRow]) -> Outcome<SessionInfo> {
    let (now, connection, key) = (scope.now(), &scope.connection, &new.header.key);
    if find_session(connection, key, now)?.is_some() {
        return Err(Error::new(ErrorKind::AlreadyExists, "the session exists already").into());
    }
    let info = new.session_info(now.wall);
    let session = insert_session(connection, new, info.created_at)?;
    for branch in &info.branches {
        let id = insert_branch(connection, session, branch)?;
        if branch.branch == info.current {
            frames::insert_base(connection, id, parts)?;
            set_current(connection, session, id)?;
        }
    }
    stored(find_session(connection, key, now)?).map(|found| found.info)
}

/// Starts a branch; `parts` are the frames of its base.
pub(super) fn fork(scope: &mut Scope, fork: &Fork, parts: &[FrameRow]) -> Outcome<BranchInfo> {
    let (now, connection) = (scope.now(), &scope.connection);
    let found = existing(connection, &fork.session, "fork", now)?;
    if let Some(existing) = fork.decide(&found.info)? {
        return Ok(existing);
    }
    let info = fork.branch_info(now.wall);
    let branch = insert_branch(connection, found.id, &info)?;
    frames::insert_base(connection, branch, parts)?;
    Ok(info)
}

/// Carries out a request about a lease.
pub(super) fn lease(scope: &mut Scope, request: &LeaseRequest) -> Outcome<Lease> {
    let (now, connection) = (scope.now(), &scope.connection);
    let mut found = existing(connection, &request.session, "lease", now)?;
    let current = found.info.current.clone();
    let lease = request.decide(&mut found.info, now.wall)?;
    let branch = found.info.branch(&request.branch)?;
    let boot = branch.lease.as_ref().and_then(|lease| now.boot_at(lease.expires_at));
    let id = stored(found.branch_id(&request.branch))?;
    connection
        .prepare_cached(
            "UPDATE branches SET epoch = ?2, lease_owner = ?3, lease_epoch = ?4, lease_expires = ?5, lease_boot = ?6,
                 lease_until = ?7
             WHERE id = ?1",
        )?
        .execute(params![
            id,
            signed(branch.epoch.0),
            branch.lease.as_ref().map(|lease| lease.owner.as_str()),
            branch.lease.as_ref().map(|lease| signed(lease.epoch.0)),
            branch.lease.as_ref().map(|lease| signed(lease.expires_at.0)),
            boot.map(|boot| boot.boot.cast_signed()),
            boot.map(|boot| signed(boot.micros)),
        ])?;
    if found.info.current != current {
        set_current(connection, found.id, id)?;
    }
    Ok(lease)
}

/// Removes; `parts` are the frames that stand in the place of history.
pub(super) fn remove(scope: &mut Scope, removal: &Removal, parts: &[FrameRow]) -> Outcome<Removed> {
    let (now, connection) = (scope.now(), &scope.connection);
    let Some(found) = find_session(connection, removal.session(), now)? else {
        return match removal {
            Removal::History { session, .. } => Err(missing(session, "remove").into()),
            _ => Ok(Removed::default()),
        };
    };
    if !removal.decide(&found.info, now.wall)? {
        return Ok(Removed::default());
    }
    let before = match removal {
        Removal::Session { .. } | Removal::SessionAt { .. } => remove_session(connection, &found)?,
        Removal::Branch { branch, .. } => remove_branch(connection, &found, branch)?,
        Removal::History { branch, base, .. } => {
            let (line, removed) = remove_frames(connection, &found, branch, base.head.seq)?;
            index::trim(connection, &line, base.head.seq)?;
            let id = line.id;
            frames::insert_base(connection, id, parts)?;
            connection
                .prepare_cached("UPDATE branches SET base_seq = ?2, base_hash = ?3 WHERE id = ?1")?
                .execute(params![id, signed(base.head.seq.0), base.head.hash.0])?;
            removed
        }
    };
    Ok(Removed {
        frames: before.frames.saturating_sub(parts.len() as u64),
        bytes: before.bytes.saturating_sub(FrameRow::bytes(parts) as u64),
    })
}

fn existing(connection: &Connection, key: &SessionKey, operation: &'static str, now: Moment) -> Outcome<StoredSession> {
    find_session(connection, key, now)?.ok_or_else(|| missing(key, operation).into())
}

/// What the same transaction has just seen or written.
fn stored<T>(found: Option<T>) -> Outcome<T> {
    found.ok_or_else(|| Error::corrupt("a row is not found although it is there").into())
}

fn insert_session(connection: &Connection, new: &NewSession, created_at: Timestamp) -> Outcome<i64> {
    let header = &new.header;
    let text =
        serde_json::to_string(header).map_err(|error| Error::invalid("the header cannot be written").because(error))?;
    let mut statement = connection.prepare_cached(
        "INSERT INTO sessions (namespace, session, agent, parent_namespace, parent_session, search, header, created_at,
             current_branch)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0)",
    )?;
    Ok(statement.insert(params![
        header.key.namespace.as_str(),
        header.key.id.as_str(),
        header.agent,
        header.parent.as_ref().map(|parent| parent.namespace.as_str()),
        header.parent.as_ref().map(|parent| parent.id.as_str()),
        header.search_text(),
        text,
        signed(created_at.0),
    ])?)
}

fn set_current(connection: &Connection, session: i64, branch: i64) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("UPDATE sessions SET current_branch = ?2 WHERE id = ?1")?;
    statement.execute([session, branch]).map(drop)
}

fn remove_session(connection: &Connection, found: &StoredSession) -> Outcome<Removed> {
    let mut removed = Removed::default();
    for branch in &found.info.branches {
        let of_branch = remove_branch(connection, found, &branch.branch)?;
        removed.frames += of_branch.frames;
        removed.bytes += of_branch.bytes;
    }
    jobs::remove(connection, &found.info.header.key)?;
    connection.prepare_cached("DELETE FROM sessions WHERE id = ?1")?.execute([found.id])?;
    Ok(removed)
}

fn remove_branch(connection: &Connection, found: &StoredSession, branch: &BranchId) -> Outcome<Removed> {
    let (line, removed) = remove_frames(connection, found, branch, Seq::MAX)?;
    index::remove(connection, line.id)?;
    connection.prepare_cached("DELETE FROM branches WHERE id = ?1")?.execute([line.id])?;
    Ok(removed)
}

/// Removes the base of a branch and its history up to and including `through`.
fn remove_frames(
    connection: &Connection,
    found: &StoredSession,
    branch: &BranchId,
    through: Seq,
) -> Outcome<(Line, Removed)> {
    let key = &found.info.header.key;
    let line = stored(Line::find(connection, key, branch)?)?;
    let history = ReadFrames::all(key.clone(), branch.clone()).with_range(Seq(1), through).with_limit(usize::MAX);
    let removed = frames::remove(connection, &line, &history)?;
    Ok((line, removed))
}
