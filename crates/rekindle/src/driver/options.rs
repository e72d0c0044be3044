//! How a run behaves, and what may be said when it is resumed.

use std::time::Duration;

use rekindle_core::record::Durability;
use rekindle_core::retention::Policy;
use rekindle_core::{BranchId, CheckpointId, Head, Json, Result, RunId};

use super::CheckpointConfig;
use super::looked::{Handover, Looked};
use super::{Budget, Budgets, Fingerprint, Frequency};
use crate::secret::{Given, Secret, SecretRef};

/// Policy for when the store fails for longer than a few tries. A store that is out of reach is
/// tried again first, as long as [`Engine::with_store_patience`](crate::Engine::with_store_patience)
/// says and the lease lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PersistFailure {
    /// The run stops before its next side effect, with the store's error.
    #[default]
    Halt,
    /// The run stands still until the store is back, it is stopped, or its lease is lost.
    Pause,
    /// The run goes on and says so; what is not stored is stored once the store is back. It halts
    /// when more is waiting than the queue holds, and when its lease can no longer be renewed:
    /// somebody else may own the session then.
    Degrade,
}

/// What a run does when everything it could go on with waits for somebody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnWait {
    /// It ends with the status `waiting` and frees its process; an answer and a resume go on.
    #[default]
    Suspend,
    /// It stays and goes on as soon as it is answered.
    Hold,
}

/// What a run does about records of its inbox that cannot be read: what was sent in them is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DamagedInbox {
    /// It does not begin, or stops before its next step, with an error that names the records.
    #[default]
    Stop,
    /// It goes on without them; which they are is recorded.
    Continue,
}

/// How a run behaves.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// When its commits are on disk.
    pub durability: Durability,
    /// What happens when they cannot be.
    pub on_persist_failure: PersistFailure,
    /// Which positions are marked as checkpoints.
    pub checkpoints: Frequency,
    /// The same for graphs; the graph's own unless this says otherwise.
    pub checkpoint_config: Option<CheckpointConfig>,
    /// What one turn may use.
    pub budgets: Budgets,
    /// What the whole session may use.
    pub session_budgets: Budgets,
    /// Whether the outcome of each call is recorded on its own. Without it a step that was
    /// interrupted is repeated whole, replay-safe calls that had ended included. Calls that are not
    /// replay-safe are recorded on their own in any case.
    pub pending_writes: bool,
    /// What is pruned when a run ends.
    pub retention: Option<Policy>,
    /// What happens when everything waits.
    pub on_wait: OnWait,
    /// What happens when records of its inbox cannot be read.
    pub on_damaged_inbox: DamagedInbox,
    /// How long calls that are under way may take to end when the run is stopped.
    pub grace: Duration,
    /// A partial answer is kept after so many more bytes,
    pub partial_bytes: usize,
    /// or after so long, whichever comes first.
    pub partial_interval: Duration,
    /// Adds what its runs depend on beside what its executor says: programs and servers that are started for
    /// them. A change is drift.
    pub depends_on: Fingerprint,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Async,
            on_persist_failure: PersistFailure::Halt,
            checkpoints: Frequency::PerTurn,
            checkpoint_config: None,
            budgets: Budgets::default(),
            session_budgets: Budgets::default(),
            pending_writes: true,
            retention: None,
            on_wait: OnWait::Suspend,
            on_damaged_inbox: DamagedInbox::Stop,
            grace: Duration::from_secs(10),
            partial_bytes: 4 << 10,
            partial_interval: Duration::from_secs(2),
            depends_on: Fingerprint::new(),
        }
    }
}

impl RunOptions {
    /// What is weaker than usual, as the run's first record says it.
    pub(crate) fn weakened(&self) -> Vec<String> {
        let mut weakened = Vec::new();
        if self.durability == Durability::Exit {
            let text = "durability=exit: before the run ends or pauses, only calls that are not replay-safe and what led \
                        to them are on disk";
            weakened.push(text.to_owned());
        }
        if !self.pending_writes {
            let text =
                "pending_writes=false: an interrupted step is repeated whole, except calls that are not replay-safe";
            weakened.push(text.to_owned());
        }
        if self.on_persist_failure == PersistFailure::Degrade {
            weakened.push("on_persist_failure=degrade: the run goes on while the store is away".to_owned());
        }
        if self.on_damaged_inbox == DamagedInbox::Continue {
            let text = "on_damaged_inbox=continue: the run goes on without records of its inbox that cannot be read";
            weakened.push(text.to_owned());
        }
        weakened
    }
}

/// The setters of run options that every builder has, for a builder with a field `options`.
macro_rules! run_option_setters {
    () => {
        /// When commits are on disk.
        #[must_use]
        pub fn durability(mut self, durability: rekindle_core::record::Durability) -> Self {
            self.options.durability = durability;
            self
        }

        /// What happens when they cannot be.
        #[must_use]
        pub fn on_persist_failure(mut self, policy: $crate::PersistFailure) -> Self {
            self.options.on_persist_failure = policy;
            self
        }

        /// What the whole session may use.
        #[must_use]
        pub fn session_budgets(mut self, budgets: $crate::Budgets) -> Self {
            self.options.session_budgets = budgets;
            self
        }

        /// What is pruned when a run ends.
        #[must_use]
        pub fn retention(mut self, policy: rekindle_core::retention::Policy) -> Self {
            self.options.retention = Some(policy);
            self
        }

        /// What happens when everything waits for somebody.
        #[must_use]
        pub fn on_wait(mut self, on_wait: $crate::OnWait) -> Self {
            self.options.on_wait = on_wait;
            self
        }

        /// What happens when records of the session's inbox cannot be read.
        #[must_use]
        pub fn on_damaged_inbox(mut self, policy: $crate::DamagedInbox) -> Self {
            self.options.on_damaged_inbox = policy;
            self
        }

        /// Whether the outcome of each call is recorded on its own.
        #[must_use]
        pub fn pending_writes(mut self, pending_writes: bool) -> Self {
            self.options.pending_writes = pending_writes;
            self
        }

        /// How long calls under way may take to end when the run is stopped.
        #[must_use]
        pub fn grace(mut self, grace: std::time::Duration) -> Self {
            self.options.grace = grace;
            self
        }
    };
}
pub(crate) use run_option_setters;

/// What may be said when a run starts or is resumed. The default says nothing.
///
/// ```
/// use rekindle::ResumeOptions;
/// let options = ResumeOptions::new("maria")
///     .set("region", "eu-west-1")
///     .secret("token", "@env:TOKEN")?
///     .accept_drift("the new prompt only adds a sentence");
/// # let _ = options;
/// # Ok::<(), rekindle::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ResumeOptions {
    pub(crate) author: String,
    pub(crate) seen: Option<Head>,
    pub(crate) allow_stale: Option<String>,
    pub(crate) accept_drift: Option<String>,
    pub(crate) set: Vec<(String, Json)>,
    pub(crate) secrets: Vec<(String, Given)>,
    pub(crate) raise: Vec<(Budget, u64)>,
    pub(crate) checkpoint: Option<CheckpointId>,
    pub(crate) branch: Option<BranchId>,
    pub(crate) fallback: bool,
    pub(crate) take_over: bool,
    pub(crate) patience: Duration,
    pub(crate) checkpoint_config: Option<CheckpointConfig>,
    pub(crate) on_wait: Option<OnWait>,
    pub(crate) on_damaged_inbox: Option<DamagedInbox>,
    pub(crate) input: Option<u64>,
    pub(crate) handover: Handover,
    pub(crate) run: Option<RunId>,
}

impl ResumeOptions {
    /// Nothing but who says it.
    pub fn new(author: impl Into<String>) -> Self {
        Self { author: author.into(), ..Self::default() }
    }

    /// What the caller saw: if the branch does not end there any more, `Stale`.
    #[must_use]
    pub fn seen(mut self, head: Head) -> Self {
        self.seen = Some(head);
        self
    }

    /// Goes on although history moved since; recorded.
    #[must_use]
    pub fn allow_stale(mut self, reason: impl Into<String>) -> Self {
        self.allow_stale = Some(reason.into());
        self
    }

    /// Goes on although the agent, its tools, the plan or the graph changed; recorded.
    #[must_use]
    pub fn accept_drift(mut self, reason: impl Into<String>) -> Self {
        self.accept_drift = Some(reason.into());
        self
    }

    /// Sets a key of the session's memory. Text that is JSON counts as JSON, any other as a string.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: &str) -> Self {
        let value = Json::parse(value).unwrap_or_else(|_| Json::from(value));
        self.set.push((key.into(), value));
        self
    }

    /// Sets a key of the session's memory.
    #[must_use]
    pub fn set_json(mut self, key: impl Into<String>, value: Json) -> Self {
        self.set.push((key.into(), value));
        self
    }

    /// Says where a secret is. The reference is recorded, the secret never. A tool asks for it by name; a key
    /// of the memory of that name holds it, if it is one that is never stored, stood there before, or is one
    /// that the plan or the graph reads.
    ///
    /// It counts for this run. A later resume is told again, or the engine is
    /// ([`Engine::with_secret`](crate::Engine::with_secret)): references in sessions are not followed.
    pub fn secret(mut self, name: impl Into<String>, reference: &str) -> Result<Self> {
        self.secrets.push((name.into(), Given::Reference(reference.parse()?)));
        Ok(self)
    }

    /// The same for a secret that nothing else is said of.
    #[must_use]
    pub fn default_secret(mut self, name: impl Into<String>, reference: SecretRef) -> Self {
        self.secrets.insert(0, (name.into(), Given::Reference(reference)));
        self
    }

    /// Gives a secret itself, as somebody typed it in. Only its name is recorded.
    #[must_use]
    pub fn secret_value(mut self, name: impl Into<String>, secret: Secret) -> Self {
        self.secrets.push((name.into(), Given::Value(secret)));
        self
    }

    /// Raises a budget to `limit`; recorded.
    #[must_use]
    pub fn raise(mut self, budget: Budget, limit: u64) -> Self {
        self.raise.push((budget, limit));
        self
    }

    /// Goes on from an earlier checkpoint, on a new branch. Nothing of the old one is lost.
    #[must_use]
    pub fn from_checkpoint(mut self, checkpoint: CheckpointId) -> Self {
        self.checkpoint = Some(checkpoint);
        self
    }

    /// Goes on with that branch instead of the current one.
    #[must_use]
    pub fn on_branch(mut self, branch: BranchId) -> Self {
        self.branch = Some(branch);
        self
    }

    /// If history is damaged, goes on from the nearest earlier checkpoint that is whole, on a new
    /// branch; recorded.
    #[must_use]
    pub fn fallback(mut self) -> Self {
        self.fallback = true;
        self
    }

    /// Evicts the owner of the session, dead or alive, without waiting for its lease to expire: it
    /// can write nothing any more. Only the owner met first is evicted; if another one was quicker,
    /// it is `AlreadyRunning`. [`RunHandle::evicted`](crate::RunHandle::evicted) names it, and so does
    /// the run's first record. An owner that the engine knows to be dead
    /// ([`Engine::with_dead_owners`](crate::Engine::with_dead_owners)) needs no take-over.
    #[must_use]
    pub fn take_over(mut self) -> Self {
        self.take_over = true;
        self
    }

    /// How long to wait for another owner's lease to end.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// When the run of a graph makes checkpoints, whatever the graph and the engine say.
    #[must_use]
    pub fn checkpoint_config(mut self, config: CheckpointConfig) -> Self {
        self.checkpoint_config = Some(config);
        self
    }

    /// What happens when everything waits, whatever the options of what runs say.
    #[must_use]
    pub fn on_wait(mut self, on_wait: OnWait) -> Self {
        self.on_wait = Some(on_wait);
        self
    }

    /// What happens when records of the session's inbox cannot be read, whatever the options of what runs say.
    #[must_use]
    pub fn on_damaged_inbox(mut self, policy: DamagedInbox) -> Self {
        self.on_damaged_inbox = Some(policy);
        self
    }

    /// The run begins with that input of the inbox: taken in the same commit, and refused as stale if
    /// somebody was quicker. It has the id the input asks for.
    #[must_use]
    pub(crate) fn taking_input(mut self, number: u64, run: Option<RunId>) -> Self {
        self.input = Some(number);
        self.run = run;
        self
    }

    /// What whoever starts the run has just read of the session.
    pub(crate) fn having_looked(mut self, looked: Option<Looked>) -> Self {
        self.handover = Handover::of(looked);
        self
    }

    pub(crate) fn author(&self) -> String {
        if self.author.is_empty() { "unknown".to_owned() } else { self.author.clone() }
    }
}
