//! A connection that was lent from the pool. It goes back only if it is known to be idle: whatever
//! stopped half way, by an error, a timeout or a caller who went, is closed instead.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object};
use tokio::runtime::Handle;
use tokio::sync::watch;
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
    abandoned: Abandoned,
}

impl Lent {
    /// A connection out of the pool.
    pub(super) fn new(client: Object, prepare: bool, timeout: Duration, abandoned: Abandoned) -> Self {
        let (idle, in_transaction) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { client: Some(client), prepare, timeout, idle, in_transaction, abandoned }
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
            self.abandoned.finish(Object::take(client), self.in_transaction.load(Ordering::Relaxed));
        }
    }
}

/// Time a statement that was abandoned has to end before the next call no longer waits for it.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// The statements under way whose callers went away. The server carries them out or not; the next call of this store comes
/// behind them, so that one that repeats a call cannot overtake it on another connection.
#[derive(Clone, Debug)]
pub(super) struct Abandoned(watch::Sender<usize>);

impl Default for Abandoned {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Abandoned {
    /// Waits until none is under way.
    pub(super) async fn ended(&self) {
        if *self.0.borrow() > 0 {
            // The sender is here, so this ends with the last one.
            let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
        }
    }

    /// Lets a connection come to the end of what it does, and closes it.
    fn finish(&self, client: ClientWrapper, in_transaction: bool) {
        let Ok(runtime) = Handle::try_current() else { return };
        self.0.send_modify(|count| *count += 1);
        let under_way = UnderWay(self.0.clone());
        runtime.spawn(async move {
            let last = if in_transaction { "ROLLBACK" } else { "" };
            // Answered behind everything that was sent before. That it fails is an end, too.
            let _ = tokio::time::timeout(ENDS_WITHIN, client.batch_execute(last)).await;
            drop(under_way);
        });
    }
}

/// A statement that is counted until this is dropped, which the end of a runtime does as well.
struct UnderWay(watch::Sender<usize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
