//! Damage to a schema of PostgreSQL, with SQL.

use rekindle_fixtures::Postgres;

use super::prepared::Copied;
use super::table::{How, Part};

/// Copies a schema with all its rows.
pub fn duplicate(from: &str, to: &str) {
    Postgres::shared().sql(&format!(
        "CREATE SCHEMA {to}; DO $$ DECLARE t text; BEGIN
           FOR t IN SELECT table_name FROM information_schema.tables WHERE table_schema = '{from}' LOOP
             EXECUTE format('CREATE TABLE {to}.%I (LIKE {from}.%I INCLUDING ALL)', t, t);
             EXECUTE format('INSERT INTO {to}.%I OVERRIDING SYSTEM VALUE SELECT * FROM {from}.%I', t, t);
           END LOOP;
           PERFORM setval(pg_get_serial_sequence('{to}.sessions', 'id'), 1000);
           PERFORM setval(pg_get_serial_sequence('{to}.branches', 'id'), 1000);
         END $$"
    ));
}

pub fn damage(copied: &Copied, how: How) {
    let schema = &copied.name;
    let branch = |session: &str, name: &str| {
        format!(
            "(SELECT b.id FROM {schema}.branches b JOIN {schema}.sessions x ON x.id = b.session
              WHERE x.session = '{session}' AND b.name = '{name}')"
        )
    };
    let main = branch("s", "main");
    let frame = |session: &str, part: Part| {
        let branch = branch(session, if part == Part::Inbox { "inbox" } else { "main" });
        let count = sql(&format!("SELECT count(*) FROM {schema}.frames WHERE branch = {branch}")).parse().unwrap();
        let row = "SELECT ctid FROM {schema}.frames WHERE branch = {branch} ORDER BY last LIMIT 1";
        let row = row.replace("{schema}", schema).replace("{branch}", &branch);
        format!("({row} OFFSET {})", part.among(count))
    };
    let flip = |column: &str| {
        let middle = format!("length({column}) / 2");
        format!("{column} = set_byte({column}, {middle}, get_byte({column}, {middle}) # 1)")
    };
    let statements = match how {
        How::Flip(Part::Header) => {
            vec![format!("UPDATE {schema}.sessions SET {} WHERE session = 's'", flip("header"))]
        }
        How::Flip(Part::Key) => vec![format!("UPDATE {schema}.small_values SET {} WHERE kind = 'data-key'", flip("value"))],
        How::Flip(part) => {
            vec![format!("UPDATE {schema}.frames SET {} WHERE ctid = {}", flip("body"), frame("s", part))]
        }
        How::Exchange => vec![format!(
            "UPDATE {schema}.sessions x SET header = o.header FROM {schema}.sessions o WHERE o.id <> x.id"
        )],
        How::Foreign => vec![format!(
            "UPDATE {schema}.frames SET body = (SELECT body FROM {schema}.frames WHERE ctid = {}) WHERE ctid = {}",
            frame("t", Part::Last),
            frame("s", Part::Last)
        )],
        How::Branch => vec![format!(
            "INSERT INTO {schema}.branches (session, name, parent_branch, fork_seq, head, head_hash, status, created_at, updated_at, epoch)
             SELECT b.session, 'forged', 'main', f.last, f.last, substring(f.body FROM 81 FOR 32), 'idle', b.created_at, b.updated_at, 1
             FROM {schema}.branches b JOIN {schema}.frames f ON f.branch = b.id WHERE b.id = {main} AND f.last = 21"
        )],
        How::Current => vec![format!("UPDATE {schema}.sessions SET current = 'other' WHERE session = 's'")],
        How::Hide => vec![format!("UPDATE {schema}.frames SET marks = 0")],
        How::Lease => vec![format!(
            "UPDATE {schema}.branches SET lease_owner = 'somebody', lease_epoch = epoch, lease_expires = 9000000000000000
             WHERE id = {main}"
        )],
        How::Status => vec![format!("UPDATE {schema}.branches SET status = 'succeeded' WHERE id = {main}")],
        How::Cut => vec![
            format!(
                "UPDATE {schema}.branches SET head = 16, status = 'waiting', head_hash = (SELECT substring(body FROM 81 FOR 32)
                 FROM {schema}.frames WHERE branch = {main} AND last = 16) WHERE id = {main}"
            ),
            format!("DELETE FROM {schema}.frames WHERE branch = {main} AND last > 16"),
        ],
        How::Older => vec![],
        How::Delete(Part::Header) => vec![format!("DELETE FROM {schema}.sessions WHERE session = 's'")],
        How::Delete(Part::Key) => vec![format!("DELETE FROM {schema}.small_values WHERE kind = 'data-key'")],
        How::Delete(Part::Main) => vec![format!("DELETE FROM {schema}.branches WHERE id = {main}")],
        How::Delete(Part::Session) => {
            let own = format!("(SELECT id FROM {schema}.sessions WHERE session = 's')");
            vec![
                format!("DELETE FROM {schema}.frames WHERE branch IN (SELECT id FROM {schema}.branches WHERE session = {own})"),
                format!("DELETE FROM {schema}.branches WHERE session = {own}"),
                format!("DELETE FROM {schema}.sessions WHERE session = 's'"),
            ]
        }
        How::Delete(Part::Listed) => unreachable!("PostgreSQL lists its table"),
        How::Delete(part) => vec![format!("DELETE FROM {schema}.frames WHERE ctid = {}", frame("s", part))],
    };
    for statement in statements {
        let changed = sql(&format!("WITH changed AS ({statement} RETURNING 1) SELECT count(*) FROM changed"));
        assert_ne!(changed, "0", "{how:?}: {statement}");
    }
}

fn sql(sql: &str) -> String {
    Postgres::shared().sql(sql)
}
