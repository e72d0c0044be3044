//! Small values of the PostgreSQL store. A change is one statement that names what it expects; only
//! if that finds nothing to change, the value is read to learn why.

use std::collections::HashMap;

use async_trait::async_trait;
use bytes::Bytes;
use rekindle_core::values::{
    Change, Changed, Decision, Expected, ValueKey, ValuePage, ValueQuery, Values, check_keys, keys_by_kind,
};
use rekindle_core::{Error, ErrorKind, PAGE_BYTES, Result};
use tokio_postgres::types::Type;

use super::connection::Value;
use super::failure::Outcome;
use super::rows::signed;
use super::{PostgresStore, Scope, run};

/// How often others may change a value between a statement and the look at why it did nothing.
const TRIES: usize = 100;

#[async_trait]
impl Values for PostgresStore {
    async fn get(&self, key: &ValueKey) -> Result<Option<Bytes>> {
        run!(self, scope => find(&scope, key)).map_err(|error| error.during("get value"))
    }

    async fn get_many(&self, keys: &[ValueKey]) -> Result<Vec<Option<Bytes>>> {
        check_keys(keys)?;
        run!(self, scope => find_many(&scope, keys)).map_err(|error| error.during("get values"))
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        change.check()?;
        let context = |error: Error| error.during("change value");
        self.0.writable().map_err(context)?;
        run!(self, scope => carry_out(&scope, change)).map_err(context)
    }

    async fn list(&self, query: &ValueQuery) -> Result<ValuePage> {
        query.check()?;
        run!(self, scope => list(&scope, query)).map_err(|error| error.during("list values"))
    }
}

async fn find(scope: &Scope<'_>, key: &ValueKey) -> Outcome<Option<Bytes>> {
    let sql =
        format!("SELECT value FROM {}.small_values WHERE namespace = $1 AND kind = $2 AND key = $3", scope.schema);
    let (namespace, kind, key) = (key.namespace().as_str(), key.kind().as_str(), key.key());
    let name: [Value<'_>; 3] = [(&namespace, Type::TEXT), (&kind, Type::TEXT), (&key, Type::TEXT)];
    match scope.connection.query_opt(&sql, &name).await? {
        Some(row) => Ok(Some(row.try_get::<_, Vec<u8>>(0)?.into())),
        None => Ok(None),
    }
}

/// One statement for each kind in a namespace: for one, as a rule.
async fn find_many(scope: &Scope<'_>, keys: &[ValueKey]) -> Outcome<Vec<Option<Bytes>>> {
    let sql = format!(
        "SELECT key, value FROM {}.small_values WHERE namespace = $1 AND kind = $2 AND key = ANY($3)",
        scope.schema
    );
    let mut found = vec![None; keys.len()];
    for ((namespace, kind), places) in keys_by_kind(keys) {
        let (namespace, kind) = (namespace.as_str(), kind.as_str());
        let names: Vec<&str> = places.iter().map(|at| keys[*at].key()).collect();
        let wanted: [Value<'_>; 3] = [(&namespace, Type::TEXT), (&kind, Type::TEXT), (&names, Type::TEXT_ARRAY)];
        let mut values: HashMap<String, Bytes> = HashMap::new();
        for row in scope.connection.query(&sql, &wanted).await? {
            values.insert(row.try_get(0)?, row.try_get::<_, Vec<u8>>(1)?.into());
        }
        for at in places {
            found[at] = values.get(keys[at].key()).cloned();
        }
    }
    Ok(found)
}

async fn carry_out(scope: &Scope<'_>, change: &Change) -> Outcome<Changed> {
    for _ in 0..TRIES {
        if wrote(scope, change).await? {
            return Ok(Changed::Done);
        }
        let current = find(scope, &change.key).await?;
        match change.decide(current.as_deref()) {
            Decision::Keep => return Ok(Changed::Done),
            Decision::Refuse => return Ok(Changed::Differs(current)),
            // It became what was expected after the statement had looked.
            Decision::Write => {}
        }
    }
    let error = Error::new(ErrorKind::StoreUnavailable, "others were faster every time").hint("try again");
    Err(error.into())
}

/// Carries the change out if the value is as expected; returns whether it was.
async fn wrote(scope: &Scope<'_>, change: &Change) -> Outcome<bool> {
    let table = format!("{}.small_values", scope.schema);
    let named = "namespace = $1 AND kind = $2 AND key = $3";
    let key = &change.key;
    let (namespace, kind, key) = (key.namespace().as_str(), key.kind().as_str(), key.key());
    let (value, expected) = match &change.expected {
        Expected::Is(Some(expected)) => (change.value.as_deref(), Some(&expected[..])),
        _ => (change.value.as_deref(), None),
    };
    let mut values: Vec<Value<'_>> = vec![(&namespace, Type::TEXT), (&kind, Type::TEXT), (&key, Type::TEXT)];
    if value.is_some() {
        values.push((&value, Type::BYTEA));
    }
    if expected.is_some() {
        values.push((&expected, Type::BYTEA));
    }
    let insert = format!("INSERT INTO {table} (namespace, kind, key, value) VALUES ($1, $2, $3, $4) ON CONFLICT");
    let sql = match (&change.expected, value) {
        (Expected::Anything, Some(_)) => {
            format!("{insert} (namespace, kind, key) DO UPDATE SET value = excluded.value RETURNING true")
        }
        (Expected::Is(None), Some(_)) => format!("{insert} DO NOTHING RETURNING true"),
        (Expected::Is(Some(_)), Some(_)) => {
            format!("UPDATE {table} SET value = $4 WHERE {named} AND value = $5 RETURNING true")
        }
        (Expected::Anything, None) => format!("DELETE FROM {table} WHERE {named} RETURNING true"),
        (Expected::Is(Some(_)), None) => {
            format!("DELETE FROM {table} WHERE {named} AND value = $4 RETURNING true")
        }
        // That nothing is there and is to be there needs no statement.
        (Expected::Is(None), None) => return Ok(false),
    };
    Ok(scope.connection.query_opt(&sql, &values).await?.is_some())
}

async fn list(scope: &Scope<'_>, query: &ValueQuery) -> Outcome<ValuePage> {
    // Every key comes behind the empty text. Values that would make the page too large are left out.
    let sql = format!(
        "SELECT key, CASE WHEN before < $5 THEN value END FROM (
             SELECT key, value, sum(octet_length(key) + octet_length(value)) OVER (ORDER BY key)
                 - octet_length(key) - octet_length(value) AS before
             FROM (SELECT key, value FROM {}.small_values WHERE namespace = $1 AND kind = $2 AND key > $3
                   ORDER BY key LIMIT $4) page) sized
         ORDER BY key",
        scope.schema
    );
    let (namespace, kind) = (query.namespace.as_str(), query.kind.as_str());
    let after = query.after.as_deref().unwrap_or_default();
    let values: [Value<'_>; 5] = [
        (&namespace, Type::TEXT),
        (&kind, Type::TEXT),
        (&after, Type::TEXT),
        (&signed(query.limit as u64 + 1), Type::INT8),
        (&signed(PAGE_BYTES as u64), Type::INT8),
    ];
    let rows = scope.connection.query(&sql, &values).await?;
    let mut page = ValuePage::default();
    for row in &rows {
        if !page.has_room(query.limit) {
            break;
        }
        let Some(value) = row.try_get::<_, Option<Vec<u8>>>(1)? else {
            page.more = true;
            break;
        };
        page.values.push((row.try_get(0)?, value.into()));
    }
    Ok(page)
}
