//! The connection: made when it is first needed, checked, and made anew after it broke. Nothing is
//! sent twice behind the caller's back, but by a cluster's client, which follows slots that move.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind as RedisKind, RedisError, ServerErrorKind, Value};
use rekindle_core::{Clock, Error, ErrorKind, Result, Timestamp};
use tokio::sync::Mutex;

use super::config::Config;
use super::failure::{another_store, server_error};
use super::handshake;
use super::keys::Keys;
use super::scripts::{self, Script};
use super::value;

/// A script's keys and arguments.
#[derive(Debug, Default)]
pub(super) struct Call {
    keys: Vec<String>,
    args: Vec<Bytes>,
    writes: bool,
}

impl Call {
    /// A call that only reads.
    pub(super) fn reading(keys: impl IntoIterator<Item = String>) -> Self {
        Self { keys: keys.into_iter().collect(), args: Vec::new(), writes: false }
    }

    /// A call that may write.
    pub(super) fn writing(keys: impl IntoIterator<Item = String>) -> Self {
        Self { writes: true, ..Self::reading(keys) }
    }

    /// One more argument.
    pub(super) fn arg(mut self, arg: impl Into<Bytes>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// More arguments.
    pub(super) fn args(mut self, args: impl IntoIterator<Item = Bytes>) -> Self {
        self.args.extend(args);
        self
    }

    fn command(&self, name: &str, script: &str, guard: Option<(&str, &str)>, now: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len() + usize::from(guard.is_some()));
        for key in &self.keys {
            command.arg(key);
        }
        if let Some((key, _)) = guard {
            command.arg(key);
        }
        command.arg(now);
        for arg in &self.args {
            command.arg(&arg[..]);
        }
        command.arg(guard.map_or("", |(_, identity)| identity));
        command
    }
}

/// One server or a cluster.
#[derive(Clone)]
pub(super) enum Wire {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Wire {
    pub(super) async fn send(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::Single(connection) => connection.req_packed_command(command).await,
            Self::Cluster(connection) => connection.req_packed_command(command).await,
        }?
        .extract_error()
    }
}

#[derive(Clone)]
struct Connected {
    wire: Wire,
    number: u64,
}

#[derive(Default)]
struct State {
    connected: Option<Connected>,
    /// How the last attempt to connect failed, for those who waited for it.
    failure: Option<Error>,
}

/// A lazy connection to the server of a store.
pub(super) struct Link {
    pub(super) config: Config,
    pub(super) keys: Keys,
    clock: Option<Arc<dyn Clock>>,
    /// What the store said it is when it was first met.
    identity: OnceLock<String>,
    attempts: AtomicU64,
    state: Mutex<State>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(config: Config, clock: Option<Arc<dyn Clock>>) -> Self {
        if config.uses_tls() {
            // Without one, the first connection would panic. Fails if there is one already.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let keys = Keys::new(&config.prefix, config.connection.redis_settings().db());
        let (identity, attempts, state) = (OnceLock::new(), AtomicU64::new(0), Mutex::default());
        Self { config, keys, clock, identity, attempts, state }
    }

    /// Whether all keys are on one server, so that one script may touch any of them.
    pub(super) fn is_single(&self) -> bool {
        !self.config.cluster
    }

    /// A duration from now as scripts take it: if this machine tells the time, the point in time.
    pub(super) fn later(&self, now: Option<Timestamp>, duration: std::time::Duration) -> String {
        match now {
            Some(now) => now.plus(duration).0.to_string(),
            None => u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).to_string(),
        }
    }

    /// The time, if this machine tells it.
    pub(super) fn told_time(&self) -> Option<Timestamp> {
        self.clock.as_ref().map(|clock| clock.now())
    }

    /// The store's time; an error if the store is another one by now.
    pub(super) async fn now(&self) -> Result<Timestamp> {
        if !self.is_single() {
            self.check_identity().await?;
        }
        let answer = self.run(&scripts::TIME, &Call::reading([self.keys.written()])).await?;
        value::number(answer).map(Timestamp)
    }

    /// Runs a script at the time it is now.
    pub(super) async fn run(&self, script: &Script, call: &Call) -> Result<Value> {
        self.run_at(script, call, self.told_time()).await
    }

    /// Runs a script at the time this machine tells, or the server if it is not said.
    pub(super) async fn run_at(&self, script: &Script, call: &Call, now: Option<Timestamp>) -> Result<Value> {
        let connected = self.connected().await?;
        let now = now.map(|now| now.0.to_string()).unwrap_or_default();
        let key = self.keys.store();
        let guard = self.identity.get().filter(|_| self.is_single()).map(|identity| (key.as_str(), identity.as_str()));
        let command = call.command("EVALSHA", &script.hash, guard, &now);
        let mut answer = self.send(&connected, &command, call.writes).await;
        if let Err(error) = &answer
            && error.kind() == RedisKind::Server(ServerErrorKind::NoScript)
        {
            let command = call.command("EVAL", &script.code, guard, &now);
            answer = self.send(&connected, &command, call.writes).await;
        }
        match answer {
            Ok((value, confirmed)) => self.confirm(confirmed).map(|()| value),
            Err(error) => Err(self.failed(&connected, error).await),
        }
    }

    /// Sends a command that reads, or that a script would not make safer.
    pub(super) async fn query(&self, command: &Cmd) -> Result<Value> {
        let mut connected = self.connected().await?;
        match connected.wire.send(command).await {
            Ok(value) => Ok(value),
            Err(error) => Err(self.failed(&connected, error).await),
        }
    }

    /// For a cluster: elsewhere every script checks.
    async fn check_identity(&self) -> Result<()> {
        let answer = self.query(redis::cmd("GET").arg(self.keys.store())).await?;
        let same = value::bytes(answer).is_ok_and(|found| self.identity.get().is_some_and(|known| found == known));
        if same { Ok(()) } else { Err(another_store(&self.config.shown)) }
    }

    /// Waits until the replicas have all that was written so far, if they must.
    pub(super) async fn confirm_all(&self) -> Result<()> {
        if self.config.replicas.is_none() {
            return Ok(());
        }
        // A server answers for the last write of the same connection: this is one.
        let call = Call::writing([self.keys.written()]);
        self.run(&scripts::TOUCH, &call).await.map(drop)
    }

    /// The answer, and how many replicas have it.
    async fn send(
        &self,
        connected: &Connected,
        command: &Cmd,
        writes: bool,
    ) -> Result<(Value, Option<u32>), RedisError> {
        let mut wire = connected.wire.clone();
        let (Wire::Single(connection), Some(replicas), true) = (&mut wire, self.config.replicas, writes) else {
            return Ok((wire.send(command).await?, None));
        };
        let mut both = redis::pipe();
        let millis = replicas.timeout.as_millis() as u64;
        both.add_command(command.clone()).cmd("WAIT").arg(replicas.count).arg(millis);
        let mut answers = connection.req_packed_commands(&both, 0, 2).await?.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil).extract_error();
        let (answer, confirmed) = (next()?, next()?);
        Ok((answer, Some(redis::from_redis_value(confirmed)?)))
    }

    fn confirm(&self, confirmed: Option<u32>) -> Result<()> {
        let (Some(confirmed), Some(replicas)) = (confirmed, self.config.replicas) else { return Ok(()) };
        if confirmed >= replicas.count {
            return Ok(());
        }
        let message = format!(
            "the write stands on the primary, but {confirmed} of {} replicas confirmed it within {} ms: {}",
            replicas.count,
            replicas.timeout.as_millis(),
            self.config.shown
        );
        let error = Error::new(ErrorKind::PersistFailed, message);
        Err(error.hint("repeat the call, which waits again; if it stays so, look at the replicas"))
    }

    async fn connected(&self) -> Result<Connected> {
        let before = self.attempts.load(Ordering::Acquire);
        let mut state = self.state.lock().await;
        if let Some(connected) = &state.connected {
            return Ok(connected.clone());
        }
        if let Some(failure) = state.failure.as_ref().filter(|_| self.attempts.load(Ordering::Acquire) != before) {
            return Err(failure.duplicate());
        }
        let number = self.attempts.fetch_add(1, Ordering::AcqRel);
        match self.connect().await {
            Ok(wire) => {
                let connected = Connected { wire, number };
                *state = State { connected: Some(connected.clone()), failure: None };
                Ok(connected)
            }
            Err(error) => {
                state.failure = Some(error.duplicate());
                Err(error)
            }
        }
    }

    async fn connect(&self) -> Result<Wire> {
        let client = self.client()?;
        let report = |error| server_error(&self.config.shown, error);
        let connection = client.get_multiplexed_async_connection_with_config(&self.timeouts()).await.map_err(report)?;
        let mut wire = Wire::Single(connection);
        handshake::check(&self.config, &mut wire).await?;
        if self.config.cluster {
            wire = Wire::Cluster(self.cluster().await.map_err(report)?);
        }
        let known = self.identity.get().map(String::as_str);
        let identity = handshake::identity(&self.config, &self.keys, known, &mut wire).await?;
        if *self.identity.get_or_init(|| identity.clone()) != identity {
            return Err(another_store(&self.config.shown));
        }
        Ok(wire)
    }

    /// A client of the one server the URL names.
    pub(super) fn client(&self) -> Result<Client> {
        let connection = self.config.connection.clone();
        let client = match &self.config.certificates {
            Some(certificates) => Client::build_with_tls(connection, certificates.clone()),
            None => Client::open(connection),
        };
        client.map_err(|error| match error.is_io_error() {
            true => {
                let message = format!("the certificates cannot be used: {}", self.config.shown);
                Error::invalid(message).hint("give them as PEM").because(error).during("open store")
            }
            false => server_error(&self.config.shown, error),
        })
    }

    fn timeouts(&self) -> AsyncConnectionConfig {
        let waiting = self.config.replicas.map(|replicas| replicas.timeout).unwrap_or_default();
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.config.timeout))
            .set_response_timeout(Some(self.config.timeout + waiting))
    }

    async fn cluster(&self) -> Result<ClusterConnection, RedisError> {
        let mut builder = ClusterClientBuilder::new([self.config.connection.clone()])
            .connection_timeout(self.config.timeout)
            .response_timeout(self.config.timeout)
            .retries(3);
        if let Some(certificates) = &self.config.certificates {
            builder = builder.certs(certificates.clone());
        }
        builder.build()?.get_async_connection().await
    }

    /// The error of the contract; a connection that is of no use any more is given up.
    async fn failed(&self, connected: &Connected, error: RedisError) -> Error {
        if error.code() == Some("IDENTITY") {
            return another_store(&self.config.shown);
        }
        if error.is_io_error() || error.is_unrecoverable_error() || error.code() == Some("READONLY") {
            let mut state = self.state.lock().await;
            if state.connected.as_ref().is_some_and(|current| current.number == connected.number) {
                state.connected = None;
            }
        }
        server_error(&self.config.shown, error)
    }
}
