//! Damage to a SQLite database, with SQL.

use rusqlite::Connection;

use super::prepared::Copied;
use super::table::{How, Part};

/// Branch `?1` of a session; everything here is done to `s`.
const BRANCH: &str =
    "(SELECT b.id FROM branches b JOIN sessions x ON x.id = b.session WHERE x.session = 's' AND b.name = 'BRANCH')";

pub fn damage(copied: &Copied, how: How) {
    let path = copied.place.path("data");
    let database = Connection::open(&path).unwrap();
    let main = BRANCH.replace("BRANCH", "main");
    let run = |sql: &str| assert!(database.execute(sql, []).unwrap() > 0, "{how:?}: {sql}");
    match how {
        How::Flip(Part::Header) => {
            let header: String = one(&database, "SELECT header FROM sessions WHERE session = 's'");
            let flipped = flip(header.as_bytes());
            let sql = "UPDATE sessions SET header = CAST(?1 AS TEXT) WHERE session = 's'";
            assert_eq!(database.execute(sql, [flipped]).unwrap(), 1);
        }
        How::Flip(Part::Key) => {
            let mut read = database.prepare("SELECT value FROM small_values WHERE kind = 'data-key'").unwrap();
            let keys: Vec<Vec<u8>> = read.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
            assert_eq!(keys.len(), 2);
            for key in keys {
                let changed = database.execute("UPDATE small_values SET value = ?2 WHERE value = ?1", [&key, &flip(&key)]);
                assert_eq!(changed.unwrap(), 1);
            }
        }
        How::Flip(part) => {
            let row = frame(&database, part, "s");
            let body: Vec<u8> = one(&database, &format!("SELECT body FROM frames WHERE id = {row}"));
            let sql = format!("UPDATE frames SET body = ?1 WHERE id = {row}");
            assert_eq!(database.execute(&sql, [flip(&body)]).unwrap(), 1);
        }
        How::Exchange => {
            run("UPDATE sessions SET search = header");
            run("UPDATE sessions SET header = (SELECT o.search FROM sessions o WHERE o.id <> sessions.id)");
        }
        How::Foreign => {
            let (own, other) = (frame(&database, Part::Last, "s"), frame(&database, Part::Last, "t"));
            run(&format!("UPDATE frames SET body = (SELECT body FROM frames WHERE id = {other}) WHERE id = {own}"));
        }
        How::Branch => run(&format!(
            "INSERT INTO branches (session, name, parent_branch, fork_seq, head, head_hash, status, created_at, updated_at, epoch)
             SELECT b.session, 'forged', 'main', f.last, f.last, substr(f.body, 81, 32), 'idle', b.created_at, b.updated_at, 1
             FROM branches b JOIN frames f ON f.branch = b.id WHERE b.id = {main} AND f.last = 21"
        )),
        How::Current => {
            let other = BRANCH.replace("BRANCH", "other");
            run(&format!("UPDATE sessions SET current_branch = {other} WHERE session = 's'"));
        }
        How::Hide => {
            run("UPDATE frames SET marks = 0");
            run("UPDATE branches SET recent = x''");
        }
        How::Lease => run(&format!(
            "UPDATE branches SET lease_owner = 'somebody', lease_epoch = epoch, lease_expires = 9000000000000000 WHERE id = {main}"
        )),
        How::Status => run(&format!("UPDATE branches SET status = 'succeeded' WHERE id = {main}")),
        How::Cut => {
            run(&format!(
                "UPDATE branches SET head = 16, status = 'waiting', recent = substr(recent, 1, 24 * (SELECT count(*) FROM frames
                 WHERE branch = {main} AND last <= 16)), head_hash = (SELECT substr(body, 81, 32) FROM frames
                 WHERE branch = {main} AND last = 16) WHERE id = {main}"
            ));
            run(&format!("DELETE FROM frames WHERE branch = {main} AND last > 16"));
        }
        How::Older => {}
        How::Delete(Part::Header) => run("DELETE FROM sessions WHERE session = 's'"),
        How::Delete(Part::Key) => run("DELETE FROM small_values WHERE kind = 'data-key'"),
        How::Delete(Part::Main) => run(&format!("DELETE FROM branches WHERE id = {main}")),
        How::Delete(Part::Session) => {
            let own = "(SELECT id FROM branches WHERE session = (SELECT id FROM sessions WHERE session = 's'))";
            run(&format!("DELETE FROM frames WHERE branch IN {own}"));
            run("DELETE FROM branches WHERE session = (SELECT id FROM sessions WHERE session = 's')");
            run("DELETE FROM sessions WHERE session = 's'");
        }
        How::Delete(Part::Listed) => {
            let root = "SELECT rootpage FROM sqlite_master WHERE name = 'sessions_by_age'";
            let page = one::<u32>(&database, root) as usize;
            let size: u32 = database.pragma_query_value(None, "page_size", |row| row.get(0)).unwrap();
            drop(database);
            unlist(&path, (page - 1) * size as usize..page * size as usize);
        }
        How::Delete(part) => run(&format!("DELETE FROM frames WHERE id = {}", frame(&database, part, "s"))),
    }
}

fn one<T: rusqlite::types::FromSql>(database: &Connection, sql: &str) -> T {
    database.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// The row of a frame.
fn frame(database: &Connection, part: Part, session: &str) -> i64 {
    let name = if part == Part::Inbox { "inbox" } else { "main" };
    let branch = BRANCH.replace("BRANCH", name).replace("'s'", &format!("'{session}'"));
    let mut read = database.prepare(&format!("SELECT id FROM frames WHERE branch = {branch} ORDER BY last")).unwrap();
    let rows: Vec<i64> = read.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    rows[part.among(rows.len())]
}

/// Changes the namespace in an entry of an index, so that the session is not found by it.
fn unlist(path: &std::path::Path, page: std::ops::Range<usize>) {
    let mut bytes = std::fs::read(path).unwrap();
    let entries = &mut bytes[page];
    // An entry is the namespace, eight bytes of a time, the session and the row.
    let at = entries.windows(16).position(|window| window[..7] == *b"default" && window[15] == b's').unwrap();
    entries[at] += 1;
    std::fs::write(path, bytes).unwrap();
}

/// The bytes with one bit in their middle changed.
pub fn flip(bytes: &[u8]) -> Vec<u8> {
    let mut flipped = bytes.to_vec();
    flipped[bytes.len() / 2] ^= 1;
    flipped
}
