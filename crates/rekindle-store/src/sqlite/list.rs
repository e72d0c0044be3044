//! Listing sessions: every filter is part of the query, every value is bound.

use rekindle_core::{Cursor, Moment, SessionInfo, SessionPage, SessionQuery, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use serde::Serialize;

use super::failure::Outcome;
use super::rows::{SESSION_COLUMNS, SessionRow, signed};

/// The page of sessions that `query` asks for, as seen at `now`.
pub(super) fn list(connection: &Connection, query: &SessionQuery, now: Moment) -> Outcome<SessionPage> {
    let mut filter = Filter::of(query, now);
    let total = match query.total {
        true => Some(filter.count(connection)?),
        false => None,
    };
    if query.limit == 0 {
        return Ok(SessionPage { sessions: Vec::new(), next: None, total });
    }
    if let Some(after) = &query.after {
        let direction = if query.oldest_first { ">" } else { "<" };
        let values = [signed(after.created_at.0).into(), after.id.as_str().to_owned().into()];
        filter.and(&format!("(s.created_at, s.session) {direction} (?, ?)"), values);
    }
    let mut sessions = filter.sessions(connection, query, now)?;
    let more = sessions.len() > query.limit;
    sessions.truncate(query.limit);
    let next = sessions.last().filter(|_| more).map(Cursor::behind);
    Ok(SessionPage { sessions, next, total })
}

/// Conditions and the values bound in them, in order.
struct Filter {
    sql: String,
    values: Vec<Value>,
}

// A branch that runs without a live lease was interrupted; nothing is written when that happens.
const STATUS: &str = "(SELECT CASE WHEN b.status = 'running' AND NOT coalesce(
        CASE WHEN b.lease_boot = ? THEN b.lease_until - ? ELSE b.lease_expires - ? END BETWEEN 1 AND 86400000000, 0)
        THEN 'interrupted' ELSE b.status END FROM branches b WHERE b.id = s.current_branch)
    IN (SELECT value FROM json_each(?))";
const UPDATED: &str =
    "max(s.created_at, coalesce((SELECT max(b.updated_at) FROM branches b WHERE b.session = s.id), 0))";
// A header that is damaged has no tags and no labels.
const TAGS: &str = "NOT EXISTS (SELECT 1 FROM json_each(?) wanted WHERE wanted.value NOT IN (
        SELECT tag.value FROM json_each(CASE WHEN json_valid(s.header) THEN s.header ELSE '{}' END, '$.tags') tag))";
const LABELS: &str = "NOT EXISTS (SELECT 1 FROM json_each(?) wanted WHERE NOT EXISTS (
        SELECT 1 FROM json_each(CASE WHEN json_valid(s.header) THEN s.header ELSE '{}' END, '$.labels') label
        WHERE label.key = wanted.key AND label.value = wanted.value))";

impl Filter {
    fn of(query: &SessionQuery, now: Moment) -> Self {
        let mut filter = Self { sql: "s.namespace = ?".into(), values: vec![text(query.namespace.as_str())] };
        if !query.statuses.is_empty() {
            let boot = now.boot.map_or(Value::Null, |boot| boot.boot.cast_signed().into());
            let since = now.boot.map_or(Value::Null, |boot| signed(boot.micros).into());
            filter.and(STATUS, [boot, since, signed(now.wall.0).into(), json(&query.statuses)]);
        }
        if let Some(agent) = &query.agent {
            filter.and("s.agent = ?", [text(agent)]);
        }
        if !query.tags.is_empty() {
            filter.and(TAGS, [json(&query.tags)]);
        }
        if !query.labels.is_empty() {
            filter.and(LABELS, [json(&query.labels)]);
        }
        if let Some(parent) = &query.parent {
            let values = [text(parent.id.as_str()), text(parent.namespace.as_str())];
            filter.and("s.parent_session = ? AND s.parent_namespace = ?", values);
        }
        if query.top_level {
            filter.and("s.parent_session IS NULL", []);
        }
        if let Some(wanted) = &query.text {
            filter.and("instr(s.search, ?) > 0", [text(&wanted.to_lowercase())]);
        }
        filter.and_time("s.created_at >= ?", query.created_from);
        filter.and_time("s.created_at < ?", query.created_before);
        filter.and_time(&format!("{UPDATED} >= ?"), query.updated_from);
        filter.and_time(&format!("{UPDATED} < ?"), query.updated_before);
        filter
    }

    fn and<const N: usize>(&mut self, condition: &str, values: [Value; N]) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.values.extend(values);
    }

    fn and_time(&mut self, condition: &str, time: Option<Timestamp>) {
        if let Some(time) = time {
            self.and(condition, [signed(time.0).into()]);
        }
    }

    fn count(&self, connection: &Connection) -> rusqlite::Result<u64> {
        let sql = format!("SELECT count(*) FROM sessions s WHERE {}", self.sql);
        let count: i64 =
            connection.prepare_cached(&sql)?.query_row(params_from_iter(&self.values), |row| row.get(0))?;
        Ok(count.unsigned_abs())
    }

    /// One session more than asked for, if there is one.
    fn sessions(mut self, connection: &Connection, query: &SessionQuery, now: Moment) -> Outcome<Vec<SessionInfo>> {
        let order = if query.oldest_first { "ASC" } else { "DESC" };
        let sql = format!(
            "SELECT {SESSION_COLUMNS} FROM sessions s WHERE {} ORDER BY s.created_at {order}, s.session {order} LIMIT ?",
            self.sql
        );
        self.values.push(signed(query.limit as u64 + 1).into());
        let mut statement = connection.prepare_cached(&sql)?;
        let rows = statement.query_map(params_from_iter(&self.values), SessionRow::read)?;
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(SessionRow::complete_all(rows, connection, now)?.into_iter().map(|stored| stored.info).collect())
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn json(value: &impl Serialize) -> Value {
    Value::Text(serde_json::to_string(value).expect("strings in lists and maps are always JSON"))
}
