//! Checks the database as a whole: its pages, its tables, and that every index has every row.

use rekindle_core::{Defect, Namespace, SessionId, SessionKey};
use rusqlite::{Connection, ErrorCode, OptionalExtension as _};

use super::failure::{Failure, Outcome};

const REINDEX: &str = "make a copy of the database, then make its indexes anew: sqlite3 FILE REINDEX";

/// The most defects that are named.
const MOST: usize = 100;

/// What is wrong with the database. Reads all of it.
pub(super) fn defects(connection: &Connection) -> Outcome<Vec<Defect>> {
    match findings(connection) {
        Ok(found) => found.into_iter().map(|detail| Ok(defect(connection, detail)?)).collect(),
        // So damaged that it cannot be checked.
        Err(error) if is_damage(&error) => Ok(vec![plain("the database", error.to_string())]),
        Err(error) => Err(Failure::from(error)),
    }
}

/// The sessions of a namespace that the index of lists lacks, and branches whose session is gone. Reads the tables of
/// both, and no frames.
pub(super) fn unlisted(connection: &Connection, namespace: &Namespace) -> Outcome<Vec<Defect>> {
    let sql = format!(
        "SELECT session FROM sessions NOT INDEXED WHERE namespace = ?1
         AND id NOT IN (SELECT id FROM sessions INDEXED BY sessions_by_age WHERE namespace = ?1) LIMIT {MOST}"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let names = statement.query_map([namespace.as_str()], |row| row.get::<_, String>(0))?;
    let mut found = Vec::new();
    for name in names {
        found.push(Defect {
            session: SessionId::new(name?).ok().map(|id| SessionKey::new(namespace.clone(), id)),
            place: "index sessions_by_age".into(),
            detail: "the session is there, but the index that lists go by lacks it".into(),
            hint: REINDEX.into(),
        });
    }
    let sql = "SELECT count(DISTINCT b.session) FROM branches b NOT INDEXED
               WHERE NOT EXISTS (SELECT 1 FROM sessions s NOT INDEXED WHERE s.id = b.session)";
    let headless: i64 = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    if headless > 0 {
        let detail = match headless {
            1 => "the records of a session are there, its row is gone".to_owned(),
            number => format!("the records of {number} sessions are there, their rows are gone"),
        };
        found.push(plain("table sessions", detail));
    }
    Ok(found)
}

fn findings(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({MOST})"))?;
    let found = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(found.into_iter().filter(|detail| detail != "ok").take(MOST).collect())
}

fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

fn defect(connection: &Connection, detail: String) -> rusqlite::Result<Defect> {
    let Some((row, index)) = missing_row(&detail) else { return Ok(plain("the database", detail)) };
    let found = Defect {
        session: session_of(connection, row, index)
            .or_else(|error| if is_damage(&error) { Ok(None) } else { Err(error) })?,
        place: format!("index {index}"),
        hint: REINDEX.into(),
        detail: detail.clone(),
    };
    Ok(found)
}

fn plain(place: &str, detail: String) -> Defect {
    let hint = "restore the database from a copy, or save what can be read: sqlite3 FILE .recover";
    Defect { session: None, place: place.into(), detail, hint: hint.into() }
}

/// The row and the index in `row 3 missing from index sessions_by_age`.
fn missing_row(detail: &str) -> Option<(i64, &str)> {
    let (row, index) = detail.strip_prefix("row ")?.split_once(" missing from index ")?;
    Some((row.parse().ok()?, index))
}

/// The session that a row of an indexed table belongs to, read without any index.
fn session_of(connection: &Connection, row: i64, index: &str) -> rusqlite::Result<Option<SessionKey>> {
    let table: Option<String> = connection
        .query_row("SELECT tbl_name FROM sqlite_master WHERE type = 'index' AND name = ?1", [index], |row| row.get(0))
        .optional()?;
    let query = match table.as_deref() {
        Some("sessions") => "SELECT namespace, session FROM sessions NOT INDEXED WHERE id = ?1",
        Some("branches") => {
            "SELECT namespace, sessions.session FROM branches NOT INDEXED, sessions NOT INDEXED
             WHERE branches.id = ?1 AND sessions.id = branches.session"
        }
        Some("bases") => {
            "SELECT namespace, sessions.session FROM bases NOT INDEXED, branches NOT INDEXED, sessions NOT INDEXED
             WHERE bases.id = ?1 AND branches.id = bases.branch AND sessions.id = branches.session"
        }
        _ => return Ok(None),
    };
    let named: Option<(String, String)> =
        connection.query_row(query, [row], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    Ok(named
        .and_then(|(namespace, id)| Some(SessionKey::new(Namespace::new(namespace).ok()?, SessionId::new(id).ok()?))))
}

#[cfg(test)]
mod tests {
    use super::missing_row;

    #[test]
    fn rows_that_an_index_lacks_are_told_from_other_findings() {
        let check = |detail: &str, expected| assert_eq!(missing_row(detail), expected, "{detail}");
        check("row 3 missing from index sessions_by_age", Some((3, "sessions_by_age")));
        check("row 3 missing from", None);
        check("row x missing from index a", None);
        check("wrong # of entries in index sessions_by_age", None);
        check("Tree 4 page 9: btreeInitPage() returns error code 11", None);
    }
}
