//! Small values of the SQLite store: rows of one table, changed by the writer.

use async_trait::async_trait;
use bytes::Bytes;
use rekindle_core::Result;
use rekindle_core::values::{Change, Changed, Decision, ValueKey, ValuePage, ValueQuery, Values, check_keys};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::SqliteStore;
use super::failure::Outcome;
use super::writer::{Call, Scope};

#[async_trait]
impl Values for SqliteStore {
    async fn get(&self, key: &ValueKey) -> Result<Option<Bytes>> {
        let key = key.clone();
        self.read_with("get value", None, move |snapshot, _| Ok(find(snapshot, &key)?)).await
    }

    async fn get_many(&self, keys: &[ValueKey]) -> Result<Vec<Option<Bytes>>> {
        check_keys(keys)?;
        let keys = keys.to_vec();
        let find_all = move |snapshot: &Connection| {
            let found: rusqlite::Result<_> = keys.iter().map(|key| find(snapshot, key)).collect();
            found
        };
        self.read_with("get values", None, move |snapshot, _| Ok(find_all(snapshot)?)).await
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        change.check()?;
        let change = change.clone();
        // It writes only once it can no longer be refused.
        let call = Call::on_jobs("change value", move |scope| carry_out(scope, &change));
        self.write(call.unguarded()).await
    }

    async fn list(&self, query: &ValueQuery) -> Result<ValuePage> {
        query.check()?;
        let query = query.clone();
        self.read_with("list values", None, move |snapshot, _| Ok(list(snapshot, &query)?)).await
    }
}

fn find(connection: &Connection, key: &ValueKey) -> rusqlite::Result<Option<Bytes>> {
    let sql = "SELECT value FROM small_values WHERE namespace = ?1 AND kind = ?2 AND key = ?3";
    let name = params![key.namespace().as_str(), key.kind().as_str(), key.key()];
    let value = connection.prepare_cached(sql)?.query_row(name, |row| row.get::<_, Vec<u8>>(0)).optional()?;
    Ok(value.map(Bytes::from))
}

fn carry_out(scope: &mut Scope, change: &Change) -> Outcome<Changed> {
    let (key, connection) = (&change.key, &scope.connection);
    let current = find(connection, key)?;
    match change.decide(current.as_deref()) {
        Decision::Keep => return Ok(Changed::Done),
        Decision::Refuse => return Ok(Changed::Differs(current)),
        Decision::Write => {}
    }
    let (namespace, kind) = (key.namespace().as_str(), key.kind().as_str());
    match &change.value {
        Some(value) => {
            let sql = "INSERT INTO small_values (namespace, kind, key, value) VALUES (?1, ?2, ?3, ?4)
                ON CONFLICT (namespace, kind, key) DO UPDATE SET value = excluded.value";
            connection.prepare_cached(sql)?.execute(params![namespace, kind, key.key(), &value[..]])?;
        }
        None => {
            let sql = "DELETE FROM small_values WHERE namespace = ?1 AND kind = ?2 AND key = ?3";
            connection.prepare_cached(sql)?.execute(params![namespace, kind, key.key()])?;
        }
    }
    Ok(Changed::Done)
}

fn list(connection: &Connection, query: &ValueQuery) -> rusqlite::Result<ValuePage> {
    // Every key comes behind the empty text.
    let after = query.after.as_deref().unwrap_or_default();
    let sql = "SELECT key, value FROM small_values WHERE namespace = ?1 AND kind = ?2 AND key > ?3 ORDER BY key";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(params![query.namespace.as_str(), query.kind.as_str(), after], |row| {
        Ok((row.get(0)?, Bytes::from(row.get::<_, Vec<u8>>(1)?)))
    })?;
    ValuePage::fill(query.limit, rows)
}
