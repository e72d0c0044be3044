//! The engine: a journal and everything else that runs share. Cheap to clone.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rekindle_core::codec::Codec;
use rekindle_core::{
    Clock, Journal, Lease, MessageId, Namespace, OwnerId, Result, SessionHeader, SessionId, SessionInfo, SessionKey,
    Store,
};
use rekindle_store::{StoreOptions, SystemClock, system_ids};

use crate::clock::StoreClock;
use crate::driver::{CheckpointConfig, Live};
use crate::executor::{Descriptor, Descriptors, built_in};
use crate::pace::Pace;
use crate::secret::{Given, Masks, NoSecrets, SecretRef, SecretSource};
use crate::session::Session;

/// The level at which frames are compressed: the quickest, since small frames gain little by more.
const COMPRESSION: i32 = 1;

/// Where sessions live and how their runs behave towards each other.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::Engine;
///
/// // For real: Engine::open("sqlite:./agents.db")?
/// let engine = Engine::memory()?;
/// let session = engine.create("trip-42").await?;
/// assert_eq!(session.key().id.as_str(), "trip-42");
/// assert!(engine.open_session("trip-43").await.is_err()); // a typo never makes a session
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    namespace: Namespace,
}

struct Shared {
    journal: Journal,
    clock: Arc<StoreClock>,
    secrets: Arc<dyn SecretSource>,
    /// Secrets that every run is given.
    given: Vec<(String, SecretRef)>,
    masks: Masks,
    lease: Duration,
    poll: Duration,
    idle_poll: Option<Duration>,
    store_patience: Option<Duration>,
    owner: String,
    has_died: fn(&OwnerId) -> bool,
    checkpoint_config: Option<CheckpointConfig>,
    /// The kinds of executors that are known, for every engine made of this one.
    descriptors: Arc<Descriptors>,
    /// One for every engine made of this one: they share what runs.
    live: Arc<Mutex<HashMap<SessionKey, Weak<Live>>>>,
}

impl Engine {
    /// Over the store a URL names: `memory:`, `file:./dir` or `sqlite:./rekindle.db`.
    pub fn open(url: &str) -> Result<Self> {
        Self::over(rekindle_store::open(url, StoreOptions::new())?)
    }

    /// In memory: everything works, and nothing outlives the process.
    pub fn memory() -> Result<Self> {
        Self::open("memory:")
    }

    /// Over a store, with a codec that suits it and the clock and randomness of this machine.
    pub fn over(store: Arc<dyn Store>) -> Result<Self> {
        let codec = Codec::new().with_compression(store.capabilities().compress_from, COMPRESSION);
        Ok(Self::with_journal(Journal::new(store, codec, Arc::new(SystemClock), system_ids()?)))
    }

    /// Over a journal: choose codec, clock and ids yourself.
    pub fn with_journal(journal: Journal) -> Self {
        let clock = Arc::new(StoreClock::new(Arc::clone(journal.clock())));
        let shared = Shared {
            journal: journal.with_clock(Arc::clone(&clock) as _),
            clock,
            secrets: Arc::new(NoSecrets),
            given: Vec::new(),
            masks: Masks::default(),
            lease: Duration::from_secs(15),
            poll: Duration::from_millis(250),
            idle_poll: None,
            store_patience: None,
            owner: String::new(),
            has_died: |_| false,
            checkpoint_config: None,
            descriptors: Arc::new(built_in()),
            live: Arc::default(),
        };
        Self { shared: Arc::new(shared), namespace: Namespace::default() }
    }

    /// Where secrets come from.
    #[must_use]
    pub fn with_secrets(self, secrets: impl SecretSource) -> Self {
        self.change(|shared| shared.secrets = Arc::new(secrets))
    }

    /// Says where a secret is, for every run that is not told otherwise: the operator's side of a name that
    /// stands in sessions. References that stand in sessions themselves are not followed.
    #[must_use]
    pub fn with_secret(self, name: impl Into<String>, reference: SecretRef) -> Self {
        self.change(|shared| shared.given.push((name.into(), reference)))
    }

    /// Shares the secrets a program knows with everything it runs: whatever is masked in one is in all.
    #[must_use]
    pub fn with_masks(self, masks: Masks) -> Self {
        self.change(|shared| shared.masks = masks)
    }

    /// The secrets that are masked in what runs store and say.
    pub fn masks(&self) -> &Masks {
        &self.shared.masks
    }

    /// How long a lease lasts without being renewed: how long after a process dies until another
    /// may take over. Fifteen seconds unless this says otherwise.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        self.change(|shared| shared.lease = lease.max(Duration::from_millis(50)))
    }

    /// How often a run looks for what other processes sent it.
    #[must_use]
    pub fn with_poll(self, poll: Duration) -> Self {
        self.change(|shared| shared.poll = poll.max(Duration::from_millis(5)))
    }

    /// How seldom a run looks for what other processes sent it while nothing comes: each fruitless look doubles
    /// the time until the next one, up to this. Unless this is set, what the store declares
    /// ([`Capabilities::idle_poll`](rekindle_core::Capabilities::idle_poll)).
    #[must_use]
    pub fn with_idle_poll(self, most: Duration) -> Self {
        self.change(|shared| shared.idle_poll = Some(most))
    }

    /// Limits how long a run tries again while its store is out of reach or busy, before it does what
    /// its [`PersistFailure`](crate::PersistFailure) says. The lease of the run is a limit in any case, and
    /// the only one unless this is set.
    #[must_use]
    pub fn with_store_patience(self, patience: Duration) -> Self {
        self.change(|shared| shared.store_patience = Some(patience))
    }

    /// What the ids of lease owners begin with, so that people can tell who runs a session.
    #[must_use]
    pub fn with_owner(self, owner: impl Into<String>) -> Self {
        self.change(|shared| shared.owner = owner.into())
    }

    /// Tells owners that are known to be dead: their leases are not waited for, neither by a resume
    /// with [`patience`](crate::ResumeOptions::patience) nor by a parent for its child. Any doubt must
    /// count as alive.
    #[must_use]
    pub fn with_dead_owners(self, has_died: fn(&OwnerId) -> bool) -> Self {
        self.change(|shared| shared.has_died = has_died)
    }

    /// Sets another clock than the journal's own for the time that passes between two answers of the store.
    /// The expiry of waits and the times in records go by the store's time, once it has answered.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        self.change(|shared| {
            shared.clock = Arc::new(StoreClock::new(clock));
            shared.journal = shared.journal.clone().with_clock(Arc::clone(&shared.clock) as _);
        })
    }

    /// When graphs make checkpoints here, whatever they say themselves.
    #[must_use]
    pub fn with_checkpoint_config(self, config: CheckpointConfig) -> Self {
        self.change(|shared| shared.checkpoint_config = Some(config))
    }

    /// Makes a kind of executor known, so that operations and front ends can tell about its sessions before one of them
    /// was run here. The executors of this crate are known, and so is each that was run by this engine.
    #[must_use]
    pub fn with_executor(self, descriptor: impl Descriptor) -> Self {
        self.shared.descriptors.learn(Arc::new(descriptor));
        self
    }

    /// The same engine, for the sessions of another namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// The journal.
    pub fn journal(&self) -> &Journal {
        &self.shared.journal
    }

    /// The namespace sessions are looked up in.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The full name of a session of this engine's namespace.
    pub fn key(&self, id: &str) -> Result<SessionKey> {
        Ok(SessionKey::new(self.namespace.clone(), SessionId::new(id)?))
    }

    /// Creates a session; `AlreadyExists` if there is one of that name.
    pub async fn create(&self, id: &str) -> Result<Session> {
        self.create_with(SessionHeader::new(self.key(id)?)).await
    }

    /// Creates a session with a generated name.
    pub async fn create_new(&self) -> Result<Session> {
        let journal = self.journal();
        let id = SessionId::generate(journal.ids(), journal.clock().now());
        self.create_with(SessionHeader::new(SessionKey::new(self.namespace.clone(), id))).await
    }

    /// Creates a session with a title, tags, a parent and so on.
    pub async fn create_with(&self, header: SessionHeader) -> Result<Session> {
        let info = self.journal().create(header).await?;
        Ok(self.session(&info))
    }

    /// Opens a session; `NotFound` if there is none of that name.
    pub async fn open_session(&self, id: &str) -> Result<Session> {
        let info = self.journal().open(&self.key(id)?).await?;
        Ok(self.session(&info))
    }

    /// Opens a session, or creates it.
    pub async fn open_or_create(&self, id: &str) -> Result<Session> {
        let info = self.journal().open_or_create(SessionHeader::new(self.key(id)?)).await?;
        Ok(self.session(&info))
    }

    fn session(&self, info: &SessionInfo) -> Session {
        Session::new(self.clone(), info.header.key.clone())
    }

    fn change(self, change: impl FnOnce(&mut Shared)) -> Self {
        let shared = &self.shared;
        let mut copy = Shared {
            journal: shared.journal.clone(),
            clock: Arc::clone(&shared.clock),
            secrets: Arc::clone(&shared.secrets),
            given: shared.given.clone(),
            masks: shared.masks.clone(),
            lease: shared.lease,
            poll: shared.poll,
            idle_poll: shared.idle_poll,
            store_patience: shared.store_patience,
            owner: shared.owner.clone(),
            has_died: shared.has_died,
            checkpoint_config: shared.checkpoint_config.clone(),
            descriptors: Arc::clone(&shared.descriptors),
            live: Arc::clone(&shared.live),
        };
        change(&mut copy);
        Self { shared: Arc::new(copy), namespace: self.namespace }
    }

    /// The secrets that every run is given.
    pub(crate) fn given(&self) -> impl Iterator<Item = (String, Given)> {
        self.shared.given.iter().map(|(name, reference)| (name.clone(), Given::Reference(reference.clone())))
    }

    pub(crate) fn secrets(&self) -> &Arc<dyn SecretSource> {
        &self.shared.secrets
    }

    /// The store's time, as far as it is known.
    pub(crate) fn clock(&self) -> &StoreClock {
        &self.shared.clock
    }

    /// Takes note of the store's time by a lease that was just granted or renewed.
    pub(crate) fn observe(&self, lease: &Lease) {
        let _ = self.shared.clock.observe(lease.observed_at);
    }

    /// The kinds of executors that are known.
    pub(crate) fn descriptors(&self) -> &Descriptors {
        &self.shared.descriptors
    }

    pub(crate) fn checkpoint_config(&self) -> Option<&CheckpointConfig> {
        self.shared.checkpoint_config.as_ref()
    }

    pub(crate) fn lease(&self) -> Duration {
        self.shared.lease
    }

    pub(crate) fn store_patience(&self) -> Duration {
        self.shared.store_patience.unwrap_or(self.shared.lease)
    }

    pub(crate) fn poll(&self) -> Duration {
        self.shared.poll
    }

    /// The pace at which a session is looked at for what other processes write.
    pub(crate) fn pace(&self) -> Pace {
        let declared = || self.journal().store().capabilities().idle_poll;
        Pace::new(self.shared.poll, self.shared.idle_poll.or_else(declared).unwrap_or_default())
    }

    /// A new owner: one for each run, so that two runs of one process are as strange to each
    /// other as two processes.
    pub(crate) fn new_owner(&self) -> Result<OwnerId> {
        let unique = OwnerId::generate(self.journal().ids(), self.journal().clock().now());
        if self.shared.owner.is_empty() { Ok(unique) } else { OwnerId::new(format!("{}/{unique}", self.shared.owner)) }
    }

    /// Whether an owner is known to be dead.
    pub(crate) fn has_died(&self, owner: &OwnerId) -> bool {
        (self.shared.has_died)(owner)
    }

    pub(crate) fn new_message_id(&self) -> MessageId {
        MessageId::generate(self.journal().ids(), self.journal().clock().now())
    }

    /// What listens to a session in this process.
    pub(crate) fn live(&self, session: &SessionKey) -> Arc<Live> {
        let mut map = self.shared.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = map.get(session).and_then(Weak::upgrade) {
            return live;
        }
        map.retain(|_, live| live.strong_count() > 0);
        let live = Arc::new(Live::default());
        map.insert(session.clone(), Arc::downgrade(&live));
        live
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
