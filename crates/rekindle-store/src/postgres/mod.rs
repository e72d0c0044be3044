//! The PostgreSQL store: journals and jobs on a server that many machines share.
//!
//! Nothing is kept in a connection: every statement names its schema, locks end with their
//! transaction, and time is the server's. So it works through a pooler, and behind a failover the
//! next connection is checked to lead to the same store.

mod append;
mod change;
mod claim;
mod connection;
mod failure;
mod frames;
mod group;
mod jobs;
mod lease;
mod list;
mod notices;
mod put;
mod queue;
mod rows;
mod schema;
mod settings;
mod tls;
mod values;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use rekindle_core::queue::Queue;
use rekindle_core::values::Values;
use rekindle_core::{
    Append, Appended, Base, BranchInfo, Capabilities, Clock, Defect, Error, ErrorKind, Fork, FramePage, Lease,
    LeaseRequest, Namespace, NewSession, ReadFrames, Removal, Removed, Result, SessionInfo, SessionKey, SessionPage,
    SessionQuery, Store,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use self::append::{AppendSql, BranchCache};
use self::connection::{Abandoned, Lent};
use self::failure::{Outcome, pool_error, unanswered};
use self::frames::FrameRows;
use self::group::{Group, Turn};
use self::rows::{find_session, missing, signed};
use self::schema::Allowed;
use self::settings::Settings;
use crate::options::StoreOptions;

/// Rows share pages of 8 KB: what is a third smaller often costs half.
const COMPRESS_FROM: usize = 1 << 10;
/// How often work that met other work is done again.
const COLLISIONS: u32 = 5;
/// How much longer than other calls a removal may take: it reads everything it removes.
const REMOVAL_PATIENCE: u32 = 20;

/// Keeps journals and jobs in a PostgreSQL database.
///
/// Clones share the connections. Opening does not connect: the first call does, and creates the
/// schema if need be.
///
/// ```
/// use rekindle_store::{PostgresStore, StoreOptions};
/// let url = "postgres://rekindle@db.example.com/rekindle?sslmode=verify-full";
/// let options = StoreOptions::new().with_setting("password", "from a secret store");
/// # let url = "postgres://rekindle@db.example.com/rekindle";
/// let store = PostgresStore::open(url, options)?;
/// # drop(store);
/// # Ok::<(), rekindle_core::Error>(())
/// ```
#[derive(Clone)]
pub struct PostgresStore(Arc<Inner>);

struct Inner {
    settings: Settings,
    pool: Pool,
    tls: MakeRustlsConnect,
    clock: Option<Arc<dyn Clock>>,
    create: bool,
    read_only: bool,
    /// The name of the schema, quoted.
    schema: String,
    channel: String,
    append_sql: AppendSql,
    branches: BranchCache,
    group: Group,
    abandoned: Abandoned,
    /// The identity of the store, once it was seen.
    identity: Mutex<Option<String>>,
}

/// What work on a connection has at hand.
struct Scope<'a> {
    connection: &'a Lent,
    store: &'a Inner,
    schema: &'a str,
    /// The time of a clock that was given, in place of the server's.
    now: Option<i64>,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { settings, read_only, .. } = &*self.0;
        f.debug_struct("PostgresStore")
            .field("url", &settings.shown)
            .field("schema", &settings.schema)
            .field("read_only", read_only)
            .finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// A store in the database that `url` names; nothing is asked of the server yet.
    pub fn open(url: &str, options: StoreOptions) -> Result<Self> {
        Inner::open(url, options).map(|inner| Self(Arc::new(inner))).map_err(|error| error.during("open store"))
    }
}

impl Inner {
    fn open(url: &str, options: StoreOptions) -> Result<Self> {
        let settings = Settings::read(url, &options)?;
        let tls = tls::connector(&settings.trust)?;
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let pool = Pool::builder(Manager::from_config(settings.config.clone(), tls.clone(), manager))
            .max_size(settings.pool)
            // Less than the whole, so that it is said what was waited for.
            .wait_timeout(Some(settings.timeout.mul_f32(0.9)))
            .create_timeout(Some(settings.timeout))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| Error::invalid("there can be no pool of connections").because(error))?;
        let schema = settings.quoted_schema();
        Ok(Self {
            pool,
            tls,
            clock: options.clock,
            create: options.create,
            read_only: options.read_only,
            channel: settings.channel(),
            append_sql: AppendSql::new(&schema),
            branches: BranchCache::default(),
            group: Group::default(),
            abandoned: Abandoned::default(),
            identity: Mutex::new(None),
            schema,
            settings,
        })
    }

    fn scope<'a>(&'a self, connection: &'a Lent) -> Scope<'a> {
        let now = self.clock.as_ref().map(|clock| signed(clock.now().0));
        Scope { connection, store: self, schema: &self.schema, now }
    }

    /// Does `work` on a connection within its time. Work that met other work is done again.
    async fn run<T, F>(&self, patience: Duration, mut work: impl FnMut(Arc<Lent>) -> F) -> Result<T>
    where
        F: Future<Output = Outcome<T>>,
    {
        let attempts = async {
            let mut collisions = 0;
            loop {
                let connection = Arc::new(self.lend(patience).await?);
                let outcome = work(connection.clone()).await;
                let again =
                    outcome.as_ref().err().is_some_and(failure::Failure::is_collision) && collisions < COLLISIONS;
                let lost = outcome.as_ref().err().is_some_and(failure::Failure::ends_connection);
                // What was done stands whether or not the connection can be used again.
                if lost || connection.end().await.is_err() {
                    self.drop_idle();
                }
                if !again {
                    return outcome.map_err(|failure| failure.into_error(&self.settings.shown));
                }
                collisions += 1;
                tokio::time::sleep(Duration::from_millis(5 << collisions)).await;
            }
        };
        tokio::time::timeout(patience, attempts).await.unwrap_or_else(|_| {
            self.drop_idle();
            Err(unanswered(&self.settings.shown))
        })
    }

    /// A connection that is known to lead to the store.
    async fn lend(&self, patience: Duration) -> Result<Lent> {
        let settings = &self.settings;
        self.abandoned.ended().await;
        let client = self.pool.get().await.map_err(|error| pool_error(&settings.shown, settings.pool, error))?;
        let connection = Lent::new(client, settings.prepare, patience, self.abandoned.clone());
        if connection.is_new() {
            let known = self.known();
            let allowed = Allowed { create: self.create, write: !self.read_only };
            let checked = schema::check(&connection, settings, known.as_deref(), allowed).await;
            let identity = checked.map_err(|failure| failure.into_error(&settings.shown))?;
            self.recognise(identity)?;
        }
        Ok(connection)
    }

    fn known(&self) -> Option<String> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers which store this is. Two first connections may lead to different ones.
    fn recognise(&self, identity: String) -> Result<()> {
        let mut known = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get_or_insert_with(|| identity.clone()) == &identity {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::StoreUnavailable, "two connections lead to two different stores")
                .hint("name one server, or servers that are replicas of each other")),
        }
    }

    /// Closes connections nobody uses: what ended one has probably ended all.
    fn drop_idle(&self) {
        self.pool.retain(|_, _| false);
    }

    fn writable(&self) -> Result<()> {
        match self.read_only {
            true => {
                let message = format!("the store was opened read-only: {}", self.settings.shown);
                Err(Error::new(ErrorKind::Unsupported, message).hint("open the store for writing"))
            }
            false => Ok(()),
        }
    }

    /// What a notice about a session carries.
    fn payload(&self, session: &SessionKey) -> String {
        serde_json::to_string(&(session.namespace.as_str(), session.id.as_str())).expect("two strings are always JSON")
    }
}

fn capabilities() -> Capabilities {
    let mut capabilities =
        Capabilities::new("postgres").with_durable().with_multi_process().with_compress_from(COMPRESS_FROM);
    // It is used again, but the files do not shrink.
    capabilities.frees_space = false;
    capabilities
}

fn base_rows(base: Option<&Base>) -> Result<FrameRows> {
    FrameRows::of(base.map(|base| &base.frames[..]).unwrap_or_default())
}

/// Does work on a connection: reads as a call of [`Inner::run`].
macro_rules! run {
    ($store:expr, $scope:ident => $work:expr) => {{
        let inner = &*$store.0;
        run!(inner, inner.settings.timeout, $scope => $work)
    }};
    ($inner:expr, $patience:expr, $scope:ident => $work:expr) => {
        $inner.run($patience, |connection| async move {
            let $scope = $inner.scope(&connection);
            $work.await
        }).await
    };
}
use run;

#[async_trait]
impl Store for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        let context = |error: Error| error.during("create").on(&new.header.key);
        self.0.writable().map_err(context)?;
        let base = &base_rows(new.base.as_ref()).map_err(context)?;
        run!(self, scope => change::create(&scope, new, base)).map_err(context)
    }

    async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        let found = run!(self, scope => find_session(&scope, session));
        let found = found.map_err(|error| error.during("open").on(session))?;
        found.map(|found| found.info).ok_or_else(|| missing(session, "open"))
    }

    async fn append(&self, append: &Append) -> Result<Appended> {
        append.check()?;
        self.0.writable().map_err(|error| append.error(error))?;
        let rows = &Arc::new(FrameRows::of(&append.frames).map_err(|error| append.error(error))?);
        // Held until the append has arrived.
        let _turn = match group::take_turn(&self.0, append, rows).await.map_err(|error| append.error(error))? {
            Turn::Done => return Ok(Appended { head: append.head() }),
            Turn::Alone(turn) => turn,
        };
        run!(self, scope => append::append(&scope, append, rows)).map_err(|error| append.error(error))
    }

    async fn read(&self, read: &ReadFrames) -> Result<FramePage> {
        read.check()?;
        run!(self, scope => frames::read(&scope, read)).map_err(|error| error.during("read").on(&read.session))
    }

    async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        query.check()?;
        run!(self, scope => list::list(&scope, query)).map_err(|error| error.during("list"))
    }

    async fn unlisted(&self, _: &Namespace) -> Result<Vec<Defect>> {
        run!(self, scope => list::headless(&scope)).map_err(|error| error.during("list"))
    }

    async fn fork(&self, fork: &Fork) -> Result<BranchInfo> {
        let context = |error: Error| error.during("fork").on(&fork.session);
        self.0.writable().map_err(context)?;
        let base = &base_rows(fork.base.as_ref()).map_err(context)?;
        run!(self, scope => change::fork(&scope, fork, base)).map_err(context)
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Lease> {
        request.check()?;
        let context = |error: Error| error.during("lease").on(&request.session);
        self.0.writable().map_err(context)?;
        run!(self, scope => lease::lease(&scope, request)).map_err(context)
    }

    async fn remove(&self, removal: &Removal) -> Result<Removed> {
        let context = |error: Error| error.during("remove").on(removal.session());
        self.0.writable().map_err(context)?;
        let base = match removal {
            Removal::History { base, .. } => Some(base),
            _ => None,
        };
        let (base, inner) = (&base_rows(base).map_err(context)?, &*self.0);
        let patience = inner.settings.timeout * REMOVAL_PATIENCE;
        run!(inner, patience, scope => change::remove(&scope, removal, base)).map_err(context)
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }

    fn values(&self) -> Option<&dyn Values> {
        Some(self)
    }
}
