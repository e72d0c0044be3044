//! A connection that was lent from the pool. It goes back only if it is known to be idle: whatever
//! stopped half way, by an error, a timeout or a caller who went, is closed instead.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::Object;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

/// A value for a statement, with its type.
pub(super) type Value<'a> = (&'a (dyn ToSql + Sync), Type);

/// The time as the server sees it, in microseconds; parameter `$number` is the time of a clock that
/// was given, or null.
pub(super) fn now(number: usize) -> String {
    format!("coalesce(${number}::int8, (extract(epoch FROM clock_timestamp()) * 1000000)::int8)")
}

/// The condition that a lease which ends at `until` is live at `now`: it is not over, and ends within
/// [`MAX_LEASE`](rekindle_core::MAX_LEASE).
pub(super) fn live(until: &str, now: &str) -> String {
    format!("({until} > {now} AND {until} <= {now} + 86400000000)")
}

/// A connection in use.
#[derive(Debug)]
pub(super) struct Lent {
    client: Option<Object>,
    prepare: bool,
    timeout: Duration,
    idle: AtomicBool,
    in_transaction: AtomicBool,
}

impl Lent {
    /// A connection out of the pool.
    pub(super) fn new(client: Object, prepare: bool, timeout: Duration) -> Self {
        let (idle, in_transaction) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { client: Some(client), prepare, timeout, idle, in_transaction }
    }

    fn client(&self) -> &Object {
        self.client.as_ref().expect("it is there until this is dropped")
    }

    /// Whether it was never used before.
    pub(super) fn is_new(&self) -> bool {
        Object::metrics(self.client()).recycle_count == 0
    }

    /// Runs one statement.
    pub(super) async fn query(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, Error> {
        if !self.prepare {
            return self.query_once(sql, values).await;
        }
        let types: Vec<Type> = values.iter().map(|(_, kind)| kind.clone()).collect();
        let statement = self.client().prepare_typed_cached(sql, &types).await?;
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|(value, _)| *value).collect();
        self.client().query(&statement, &values).await
    }

    /// Runs one statement that is hardly ever the same twice: nobody remembers it.
    pub(super) async fn query_once(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, Error> {
        self.client().query_typed(sql, values).await
    }

    /// Runs one statement that gives one row or none.
    pub(super) async fn query_opt(&self, sql: &str, values: &[Value<'_>]) -> Result<Option<Row>, Error> {
        Ok(self.query(sql, values).await?.into_iter().next())
    }

    /// Runs a script.
    pub(super) async fn script(&self, sql: &str) -> Result<(), Error> {
        self.client().batch_execute(sql).await
    }

    /// Begins a transaction. Whoever stops in the middle of it loses their locks after a while.
    pub(super) async fn begin(&self) -> Result<(), Error> {
        self.in_transaction.store(true, Ordering::Relaxed);
        let limit = self.timeout.as_millis().min(i32::MAX as u128);
        self.script(&format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = {limit};
             SET LOCAL idle_in_transaction_session_timeout = {limit}"
        ))
        .await
    }

    /// Ends a transaction; what it did is durable.
    pub(super) async fn commit(&self) -> Result<(), Error> {
        self.script("COMMIT").await?;
        self.in_transaction.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Undoes a transaction, if there is one.
    pub(super) async fn roll_back(&self) -> Result<(), Error> {
        match self.in_transaction.swap(false, Ordering::Relaxed) {
            true => self.script("ROLLBACK").await,
            false => Ok(()),
        }
    }

    /// Nothing more is asked of it: it may go back to the pool.
    pub(super) async fn end(&self) -> Result<(), Error> {
        self.roll_back().await?;
        self.idle.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(client) = self.client.take()
            && !self.idle.load(Ordering::Relaxed)
        {
            drop(Object::take(client));
        }
    }
}
