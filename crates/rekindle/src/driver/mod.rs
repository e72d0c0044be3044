//! The one driver for everything durable. An executor works through it and nothing else: it
//! reads the state, commits records, performs effects, waits, and is told when to stop.

mod budget;
mod checkpoint;
mod checkpoint_config;
mod control;
mod drift;
mod effect;
mod frequency;
mod inbox;
mod lease;
mod limits;
mod live;
mod looked;
mod lost;
mod open;
mod options;
mod own_run;
mod persist;
mod run;
#[cfg(test)]
mod tests;
mod unsaved;
mod validate;
mod waits;

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rekindle_core::codec::Limits;
use rekindle_core::record::{Durability, RegisterSet};
use rekindle_core::{
    BranchId, CheckpointId, EffectId, Epoch, Json, Lease, MessageId, Record, RegisterKey, Result, RunId, Seq,
    SessionKey, State, Timestamp, WaitId,
};
use rekindle_store::BranchWriter;
use tokio::sync::{Mutex, Notify};

pub use budget::{Budget, Budgets, Spent};
pub use checkpoint::NewCheckpoint;
pub use checkpoint_config::CheckpointConfig;
pub use drift::Fingerprint;
pub use effect::{Attempt, Effect, Performed, Recorded, Tried};
pub use frequency::{Frequency, Smart};
pub use inbox::Inbox;
pub use lease::Evicted;
pub use options::{DamagedInbox, OnWait, PersistFailure, ResumeOptions, RunOptions};
pub use run::{End, RunHandle, RunReport, Stopper};
pub use waits::WaitPurpose;

pub(crate) use budget::{Ledger, REGISTER as BUDGET};
pub(crate) use control::Stop;
pub(crate) use drift::REGISTER as DEFINITION;
pub(crate) use effect::Known;
pub(crate) use inbox::{
    NextInput, Received, Unread, for_owner, holds_message, is_for_branch, marked_input, next_input, on_branch,
    read_behind,
};
pub(crate) use limits::{check_value, shortened};
pub(crate) use live::Live;
pub(crate) use looked::Looked;
pub(crate) use lost::of as history_lost;
pub(crate) use open::{Opening, open};
pub(crate) use options::run_option_setters;
pub(crate) use own_run::{
    NEXT_RUN, exists as run_exists, is_cancelled_early, is_kept as is_run_kept, next as next_run, of_next_queued,
    of_turn as run_of_turn,
};
pub(crate) use run::{panic_text, start};

use crate::engine::Engine;
use crate::event::{LiveEvent, LiveKind};
use crate::executor::Descriptor;
use crate::secret::{Cleaned, GivenSecrets, Redactor, Secret, disarm_record};
use control::Control;
use lease::Deadline;
use unsaved::Unsaved;

/// The prefix of registers that are the session's memory.
pub const MEMORY: &str = "memory/";
/// The register of a command that was taken over and is to be obeyed.
pub(crate) const STOPPING: &str = "stopping";
/// The prefix of registers that say where secrets were said to be. They are for people: nothing follows them.
pub(crate) const SECRET: &str = "secret/";

/// One run of one session, as its executor and its calls see it. Cheap to clone.
#[derive(Clone)]
pub struct Driver {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    engine: Engine,
    lease: Lease,
    incarnation: String,
    run: RunId,
    /// The runs this one continues, directly.
    continues: Option<RunId>,
    evicted: Option<Evicted>,
    /// Who started or resumed it.
    author: String,
    /// The run it continues if that had not ended by itself: commands to that run are meant for this
    /// one.
    stands_for: Option<RunId>,
    options: RunOptions,
    deadline: Deadline,
    control: Control,
    live: Arc<Live>,
    redactor: Arc<Redactor>,
    given: GivenSecrets,
    /// The descriptor of the executor.
    descriptor: Arc<dyn Descriptor>,
    /// By how much the lease's keeper was woken too late, at worst.
    late_micros: AtomicU64,
    inbox_seen: AtomicU64,
    inbox_news: AtomicBool,
    /// Not all of the inbox was taken over at once.
    inbox_rest: AtomicBool,
    /// Something arrived that a waiting run should look at.
    news: Notify,
    /// The last record that was committed.
    committed: AtomicU64,
    core: Mutex<Core>,
}

/// What changes while a run works.
struct Core {
    limits: Limits,
    redactor: Arc<Redactor>,
    state: State,
    writer: BranchWriter,
    /// Applied to the state, and not yet given to the writer.
    staged: Vec<Record>,
    staged_bytes: usize,
    /// Records of calls that the store has not confirmed.
    unsaved: Unsaved,
    /// The messages of the inbox that were taken over, once somebody asked.
    known_messages: Option<HashSet<MessageId>>,
    /// What the run has come to so far.
    told: Option<Json>,
    /// Waits that were decided, and whoever waits was told.
    woken: HashSet<WaitId>,
    /// Intents that this process recorded and has not started: they are not in doubt.
    fresh: HashSet<EffectId>,
    ledger: Ledger,
    ledger_changed: bool,
    last_checkpoint: Option<CheckpointId>,
    /// Marks of this run that may go when there are too many, oldest first.
    passing: VecDeque<(CheckpointId, bool)>,
    /// Up to when active time was counted.
    counted: Instant,
    /// Nothing failed since the run began.
    clean: bool,
    /// The store failed and the run goes on without it.
    degraded: bool,
    /// Effects that ended without their outcome being on record yet (`pending_writes` is off).
    bytes_since_step: usize,
}

impl Driver {
    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// The descriptor of the executor.
    pub(crate) fn descriptor(&self) -> &dyn Descriptor {
        &*self.shared.descriptor
    }

    /// The session.
    pub fn session(&self) -> &SessionKey {
        &self.shared.lease.session
    }

    /// The branch.
    pub fn branch(&self) -> &BranchId {
        &self.shared.lease.branch
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.shared.run
    }

    /// The generation of the lease: hand it to whatever refuses older ones.
    pub fn fence(&self) -> Epoch {
        self.shared.lease.info.epoch
    }

    /// How the run behaves.
    pub fn options(&self) -> &RunOptions {
        &self.shared.options
    }

    /// Now, by the store's clock.
    pub fn now(&self) -> Timestamp {
        self.engine().journal().clock().now()
    }

    /// Looks at the state.
    pub async fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.shared.core.lock().await.state)
    }

    /// A register, decoded; nothing if it is not set.
    pub async fn register<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        self.read(|state| state.register(key).map(Json::decode).transpose()).await
    }

    /// Takes records over into the state. They are written together with the next commit: use
    /// this for what can be derived again if that commit never comes.
    pub async fn stage(&self, records: Vec<Record>) -> Result<()> {
        let mut core = self.shared.core.lock().await;
        self.make_room(&mut core, &records).await?;
        core.stage(records)
    }

    /// Takes records over into the state and commits them, with what was staged before, as one
    /// atomic batch. When that is on disk depends on the durability of the run.
    pub async fn commit(&self, records: Vec<Record>) -> Result<()> {
        let mut core = self.shared.core.lock().await;
        self.make_room(&mut core, &records).await?;
        core.stage(records)?;
        self.write(&mut core).await
    }

    /// Takes over what a turn begins with, in one batch with the start of its run: a turn that was
    /// announced is there. An error if that is too much.
    pub(crate) async fn stage_beginning(&self, records: Vec<Record>) -> Result<()> {
        let mut core = self.shared.core.lock().await;
        let bytes: usize = records.iter().map(limits::size).sum();
        let (all, together) = (core.staged.len() + records.len(), core.staged_bytes.saturating_add(bytes));
        limits::check_batch(all, together, &core.limits)
            .map_err(|error| error.hint("give a run less to begin with"))?;
        core.stage(records)
    }

    /// Commits what was staged, if anything was.
    pub async fn commit_staged(&self) -> Result<()> {
        let mut core = self.shared.core.lock().await;
        self.write(&mut core).await
    }

    /// Returns once everything committed so far is on disk; at once if the durability of the run is
    /// `exit`. Calls made with [`Driver::perform`] that are not replay-safe wait for the disk in every
    /// mode.
    pub async fn barrier(&self) -> Result<()> {
        if self.options().durability == Durability::Exit {
            return Ok(());
        }
        self.flush().await
    }

    /// A key of the session's memory.
    pub async fn memory(&self, key: &str) -> Option<Json> {
        self.read(|state| state.register(&format!("{MEMORY}{key}")).cloned()).await
    }

    /// The value of a secret that was given to the run or to its engine. It is looked up now, never stored,
    /// and masked in whatever the run stores and says. A reference that stands in the session is not followed.
    pub async fn secret(&self, name: &str) -> Result<Secret> {
        let secret = self.shared.given.look_up(name).await?;
        secret.ok_or_else(|| {
            let error = rekindle_core::Error::not_found(format!("no secret `{name}` was given"));
            error.hint(format!("start or resume with secret {name}=@env:VARIABLE"))
        })
    }

    /// The secrets the run was given.
    pub(crate) fn given(&self) -> &GivenSecrets {
        &self.shared.given
    }

    /// Masks a secret from now on that the run uses without having been given it, as a model its key.
    pub(crate) fn hide(&self, name: &str, secret: &Secret) {
        self.shared.redactor.learn(name, secret);
    }

    pub(crate) fn redactor(&self) -> &Redactor {
        &self.shared.redactor
    }

    /// Takes note of what was used; recorded with the next commit.
    pub async fn spend(&self, spent: Spent) {
        let mut core = self.shared.core.lock().await;
        core.ledger.spend(spent);
        core.ledger_changed = true;
    }

    /// What the run has come to so far, for its report if it ends with an error.
    pub(crate) async fn tell(&self, value: Json) {
        self.shared.core.lock().await.told = Some(value);
    }

    /// Takes note of what is about to be used; recorded once something was.
    pub(crate) async fn reserve(&self, spent: Spent) {
        self.shared.core.lock().await.ledger.spend(spent);
    }

    /// What was taken note of is recorded with the next commit.
    pub(crate) async fn record_spent(&self) {
        self.shared.core.lock().await.ledger_changed = true;
    }

    /// An error if a budget is used up.
    pub async fn check_budgets(&self) -> Result<()> {
        let mut core = self.shared.core.lock().await;
        core.count_time();
        core.ledger.check(&self.options().budgets, &self.options().session_budgets)
    }

    /// An error if more was asked for than a budget has.
    pub(crate) async fn check_asked(&self) -> Result<()> {
        let core = self.shared.core.lock().await;
        core.ledger.check_asked(&self.options().budgets, &self.options().session_budgets)
    }

    /// The limits on what is stored.
    pub(crate) fn limits(&self) -> &Limits {
        self.engine().journal().codec().limits()
    }

    /// Takes back what was noted as used.
    pub(crate) async fn refund(&self, spent: Spent) {
        let mut core = self.shared.core.lock().await;
        core.ledger.refund(&spent);
        core.ledger_changed = true;
    }

    /// Whether a message came in between, since this was last asked.
    pub(crate) fn take_interrupt(&self) -> bool {
        self.shared.control.take_interrupt()
    }

    /// To what a budget was raised for this turn.
    pub(crate) async fn raised(&self, budget: Budget) -> Option<u64> {
        self.shared.core.lock().await.ledger.raised.get(&budget).copied()
    }

    /// What this turn and the session have used.
    pub async fn spent(&self) -> (Spent, Spent) {
        let mut core = self.shared.core.lock().await;
        core.count_time();
        (core.ledger.turn, core.ledger.session)
    }

    /// A new turn begins: its budgets are full.
    pub async fn begin_turn(&self) {
        let mut core = self.shared.core.lock().await;
        core.ledger.next_turn();
        core.ledger_changed = true;
    }

    /// Says something that is not stored, to whoever listens.
    pub fn say(&self, kind: impl FnOnce() -> LiveKind) {
        let after = Seq(self.shared.committed.load(Ordering::SeqCst));
        let kind = || self.shared.redactor.clean_said(kind());
        self.shared.live.say(|| LiveEvent { run: self.run().clone(), after, kind: kind() });
    }

    /// The token of the current step's calls.
    pub fn step_token(&self) -> tokio_util::sync::CancellationToken {
        self.shared.control.step()
    }

    /// A new step begins, and with it a new token for its calls.
    pub fn begin_step(&self) -> tokio_util::sync::CancellationToken {
        self.shared.control.begin_step()
    }

    pub(crate) fn random(&self) -> u64 {
        let nonce = self.engine().journal().ids().nonce();
        u64::from_le_bytes(nonce[..8].try_into().unwrap_or_default())
    }

    pub(crate) fn control(&self) -> &Control {
        &self.shared.control
    }
}

impl Core {
    /// Takes records over into the state, all of them or none. Secrets are not among what is stored.
    fn stage(&mut self, mut records: Vec<Record>) -> Result<()> {
        for record in &records {
            limits::check(record, &self.limits)?;
        }
        records.iter_mut().for_each(|record| disarm_record(&self.state, record));
        self.redactor.learn_from(&records);
        let (applied, stored): (Vec<_>, Vec<_>) =
            self.redactor.clean(records).into_iter().map(|Cleaned { applied, stored }| (applied, stored)).unzip();
        self.state.check(&applied)?;
        for (applied, stored) in applied.into_iter().zip(stored) {
            self.unsaved.note(&self.state, &applied);
            self.state.apply(&applied)?;
            let record = stored.unwrap_or(applied);
            let size = limits::size(&record);
            self.bytes_since_step += size;
            self.staged_bytes += size;
            self.staged.push(record);
        }
        Ok(())
    }

    fn stage_ledger(&mut self) -> Result<()> {
        if std::mem::take(&mut self.ledger_changed) {
            self.count_time();
            let key = register(budget::REGISTER)?;
            let value = Json::of(&self.ledger)?;
            self.stage(vec![RegisterSet::new(key, value).into()])?;
        }
        Ok(())
    }

    fn count_time(&mut self) {
        let now = Instant::now();
        self.ledger.spend_time(now.duration_since(self.counted));
        self.counted = now;
    }
}

/// A register key of our own making.
pub(crate) fn register(key: &str) -> Result<RegisterKey> {
    RegisterKey::new(key)
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("session", self.session()).field("run", self.run()).finish_non_exhaustive()
    }
}
