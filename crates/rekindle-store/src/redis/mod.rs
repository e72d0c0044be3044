//! The Redis store: sessions as hashes and streams, changed by scripts.
//!
//! `session.rs` says how a session is changed, `rows.rs` and `frames.rs` what stands in its keys,
//! `keys.rs` how they are named, `queue.rs` how jobs are kept, `link.rs` and `handshake.rs` how the
//! server is reached and what is asked of it. The scripts are in `scripts/`.

mod config;
mod failure;
mod frames;
mod handshake;
mod jobs;
mod keys;
mod link;
mod list;
mod notices;
mod queue;
mod rows;
mod scripts;
mod session;
mod value;
mod values;

use std::sync::Arc;

use async_trait::async_trait;
use rekindle_core::queue::Queue;
use rekindle_core::values::Values;
use rekindle_core::{
    Append, Appended, BranchInfo, Capabilities, Defect, Error, ErrorKind, Fork, FramePage, Lease, LeaseRequest,
    Namespace, NewSession, ReadFrames, Removal, Removed, Result, SessionInfo, SessionKey, SessionPage, SessionQuery,
    Store,
};

use self::config::Config;
use self::link::Link;
use crate::options::StoreOptions;

/// A server takes up to 512 MiB as one value; answers are gathered in its memory.
const MAX_FRAME_BYTES: usize = 64 << 20;
/// All of it is memory.
const COMPRESS_FROM: usize = 512;

/// Keeps journals and queues on a Redis server or cluster, Redis 7 or newer. Clones share the
/// connection, which is made when it is first needed.
///
/// What survives is up to the server: see `docs/stores/redis.md`.
#[derive(Clone, Debug)]
pub struct RedisStore {
    link: Arc<Link>,
}

impl RedisStore {
    /// The store a URL names: `redis://[user[:password]@]host[:port][/database][?parameters]`, or
    /// `rediss://` for an encrypted connection. Nothing is sent yet.
    ///
    /// The settings `username` and `password` of the options win over the URL. `ca_certificate`,
    /// `client_certificate` and `client_key` are PEM, for `rediss://`.
    pub fn open(url: &str, options: StoreOptions) -> Result<Self> {
        let config = Config::new(url, &options)?;
        Ok(Self { link: Arc::new(Link::new(config, options.clock)) })
    }

    fn writable(&self, operation: &'static str) -> Result<()> {
        if !self.link.config.read_only {
            return Ok(());
        }
        let message = format!("the store was opened read-only: {}", self.link.config.shown);
        Err(Error::new(ErrorKind::Unsupported, message).during(operation))
    }
}

#[async_trait]
impl Store for RedisStore {
    fn capabilities(&self) -> Capabilities {
        let capabilities = Capabilities::new("redis")
            .with_multi_process()
            .with_max_frame_bytes(MAX_FRAME_BYTES)
            .with_compress_from(COMPRESS_FROM);
        if self.link.config.is_durable() { capabilities.with_durable() } else { capabilities }
    }

    async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        let key = &new.header.key;
        self.writable("create")?;
        self.create_session(new).await.map_err(|error| error.during("create").on(key))
    }

    async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        let found = self.find(session).await.map_err(|error| error.during("open").on(session))?;
        found.map(|found| found.info).ok_or_else(|| session::missing(session, "open"))
    }

    async fn append(&self, append: &Append) -> Result<Appended> {
        self.writable("append")?;
        self.append_frames(append).await.map_err(|error| append.error(error))
    }

    async fn read(&self, read: &ReadFrames) -> Result<FramePage> {
        self.read_page(read).await.map_err(|error| error.during("read").on(&read.session))
    }

    async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        self.list_page(query).await.map_err(|error| error.during("list"))
    }

    async fn unlisted(&self, namespace: &Namespace) -> Result<Vec<Defect>> {
        self.not_in_list(namespace).await.map_err(|error| error.during("list"))
    }

    async fn fork(&self, fork: &Fork) -> Result<BranchInfo> {
        self.writable("fork")?;
        self.start_branch(fork).await.map_err(|error| error.during("fork").on(&fork.session))
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Lease> {
        self.writable("lease")?;
        self.decide_lease(request).await.map_err(|error| error.during("lease").on(&request.session))
    }

    async fn remove(&self, removal: &Removal) -> Result<Removed> {
        self.writable("remove")?;
        self.remove_parts(removal).await.map_err(|error| error.during("remove").on(removal.session()))
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }

    fn values(&self) -> Option<&dyn Values> {
        Some(self)
    }
}
