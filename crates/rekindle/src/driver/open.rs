//! Opening a session for a run: lease, restore, the checks, and the records every run begins with.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use rekindle_core::record::{
    BudgetRaised, CheckpointSubstituted, DriftAccepted, Edit, Extra, HistoryLost, InboxTaken, RegisterSet,
    RegisterUnset, RunStarted, StaleAccepted,
};
use rekindle_core::{
    BranchId, BranchInfo, CheckpointId, Error, ErrorKind, Head, Json, Lease, LeaseAction, LeaseRequest, OwnerId,
    Position, Record, Restored, Result, RunId, Seq, SessionInfo, SessionKey, State, Status, StoreExt as _, Target,
};
use rekindle_store::{BranchWriter, WriterOptions};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::control::Control;
use super::inbox::{INPUTS, Unread, has_message, inputs_begun, read_behind};
use super::lease::{Deadline, Evicted, keep, release};
use super::looked::Looked;
use super::lost::lost_before;
use super::validate::{Case, Situation, validate};
use super::{
    Core, Driver, Fingerprint, Ledger, MEMORY, ResumeOptions, RunOptions, SECRET, STOPPING, Shared, budget, drift,
    limits, own_run, register,
};
use crate::engine::Engine;
use crate::executor::{Executor, Input};
use crate::secret::{Given, GivenSecrets, Redactor, missing};

/// What is to be opened, and for whom.
pub(crate) struct Opening<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) session: &'a SessionKey,
    pub(crate) executor: &'a dyn Executor,
    pub(crate) input: &'a Input,
    pub(crate) options: RunOptions,
    pub(crate) resume: ResumeOptions,
    /// The secrets of the run: its own, and those of the engine.
    pub(crate) given: GivenSecrets,
}

/// A run that may begin.
pub(crate) struct Opened {
    pub(crate) driver: Driver,
    pub(crate) case: Case,
    pub(crate) keeper: Keeper,
}

/// Keeps the lease alive as long as it is held.
pub(crate) struct Keeper(Vec<JoinHandle<()>>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Opens a session for a run. Whatever fails, nothing was recorded and the lease is given back.
pub(crate) async fn open(opening: Opening<'_>) -> Result<Opened> {
    let claim = claim(&opening).await.map_err(|error| error.during("run"))?;
    let held = claim.lease.clone();
    let opened = open_under(&opening, claim).await;
    if opened.is_err() {
        release(opening.engine, &held).await;
    }
    opened.map_err(|error| error.during("run").on(opening.session))
}

/// The lease of the branch the run goes on with.
struct Claim {
    lease: Lease,
    /// When it was asked for.
    asked: Instant,
    /// The owner whose lease was ended for it.
    evicted: Option<Evicted>,
    /// Up to where the inbox is none of this branch's business.
    inbox_skipped: Seq,
    /// Whether the branch was made for this run.
    forked: bool,
    /// What was accepted although history had moved, before the branch was made.
    stale: Option<Record>,
    /// What was read of the session before, if its branch still ends there.
    looked: Option<Looked>,
}

async fn claim(opening: &Opening<'_>) -> Result<Claim> {
    let Opening { engine, session, resume, .. } = opening;
    let looked = resume.handover.take(session);
    let info = match &looked {
        Some(looked) => looked.restored.info.clone(),
        None => engine.journal().open(session).await?,
    };
    info.check_header()?;
    let wanted = match &resume.checkpoint {
        Some(id) => Some(resumable(opening, id).await?),
        None => None,
    };
    let branch = match (&wanted, &resume.branch) {
        (Some(position), _) => info.branch(&position.branch)?,
        (None, Some(branch)) => info.branch(branch)?,
        (None, None) => info.current_branch()?,
    };
    let exact = wanted.is_some();
    let start = wanted.unwrap_or_else(|| Position::new(branch.branch.clone(), branch.head.seq));
    let forks = start.seq != branch.head.seq;
    let moves = branch.branch != info.current;
    let mut stale = None;
    if forks || moves {
        // What would be refused must not move the session to another branch first.
        stale = check_before(opening, &start, branch).await?;
    }
    // The branch that ran last has taken over what was sent before.
    let inbox_skipped = match moves && !forks {
        true => engine.journal().load(session, None).await.map_or(Seq::ZERO, |now| now.state.inbox_taken()),
        false => Seq::ZERO,
    };
    let owner = engine.new_owner()?;
    let held = if forks { &info.current } else { &branch.branch };
    let Acquired { lease, asked, evicted } = acquire(opening, held, &owner).await?;
    let looked = looked.filter(|looked| looked.is_current(&lease));
    let claim = Claim { lease, asked, evicted, inbox_skipped, forked: false, stale, looked };
    // The branch may have gone on while somebody else's lease was waited for.
    let went_on = exact && !forks && claim.lease.head.seq != start.seq;
    if forks || went_on { claim.move_to_fork(engine, &start).await } else { Ok(claim) }
}

/// Where a checkpoint is, if a run may be resumed from it.
async fn resumable(opening: &Opening<'_>, id: &CheckpointId) -> Result<Position> {
    let found = opening.engine.journal().checkpoint(opening.session, id).await?;
    match found.checkpoint.resumable {
        true => Ok(found.position),
        false => Err(Error::new(ErrorKind::NotResumable, format!("checkpoint `{id}` cannot be resumed from"))
            .at(found.position)
            .hint("choose an earlier checkpoint")),
    }
}

/// The checks, before anything is claimed: everything that could be refused later.
async fn check_before(opening: &Opening<'_>, start: &Position, branch: &BranchInfo) -> Result<Option<Record>> {
    let journal = opening.engine.journal();
    let mut restored = match opening.resume.fallback {
        true => journal.load_or_fall_back(opening.session, Some(start)).await?.0,
        false => journal.load(opening.session, Some(start)).await?,
    };
    fill_secrets(opening, &mut restored.state).await?;
    let stale = check_seen(opening, &branch.branch, branch.head).await?;
    let taken = restored.state.inbox_taken();
    if start.seq == branch.head.seq {
        // What was sent to the branch while another one ran.
        let unread = read_behind(opening.engine, opening.session, taken.0, usize::MAX).await?;
        unread.check(opening.session, opening.options.on_damaged_inbox)?;
    }
    let (_, records, ..) = prepare(opening, &restored, taken, None, None).await?;
    let limits = journal.codec().limits();
    records.iter().try_for_each(|record| limits::check(record, limits))?;
    Ok(stale)
}

/// A lease just acquired, when it was asked for, and the owner whose lease was ended for it.
struct Acquired {
    lease: Lease,
    asked: Instant,
    evicted: Option<Evicted>,
}

/// Acquires the lease, after ending that of an owner that is dead or that the caller evicts. Only
/// the holder that was seen is ended: one that came meanwhile is alive, and refuses.
async fn acquire(opening: &Opening<'_>, branch: &BranchId, owner: &OwnerId) -> Result<Acquired> {
    let Opening { engine, session, resume, .. } = opening;
    let store = engine.journal().store();
    let started = Instant::now();
    let mut evicted: Option<Evicted> = None;
    loop {
        let asked = Instant::now();
        let error = match store.acquire(session, branch, owner, engine.lease()).await {
            Ok(lease) => {
                engine.observe(&lease);
                return Ok(Acquired { lease, asked, evicted });
            }
            Err(error) => error,
        };
        let ErrorKind::AlreadyRunning { owner: holder, branch: held, epoch, .. } = error.kind() else {
            return Err(error);
        };
        let dead = engine.has_died(holder);
        // An explicit take-over is for the first owner that is met, not for whoever follows it.
        if dead || (resume.take_over && evicted.is_none()) {
            let action = LeaseAction::Release { owner: holder.clone(), epoch: *epoch };
            let request = LeaseRequest { session: (*session).clone(), branch: held.clone(), action };
            match store.lease(&request).await {
                Ok(_) => evicted = Some(Evicted { owner: holder.clone(), dead }),
                Err(moved) if matches!(moved.kind(), ErrorKind::Fenced { .. }) => {}
                Err(error) => return Err(error),
            }
        } else if started.elapsed() < resume.patience {
            tokio::time::sleep(Duration::from_millis(20)).await;
        } else {
            return Err(owned(error, engine));
        }
    }
}

/// Somebody else runs the session: what can be done about it.
fn owned(error: Error, engine: &Engine) -> Error {
    let seconds = engine.lease().as_secs_f32();
    error.hint(format!(
        "wait with `patience(…)`: the lease of a dead process ends at most {seconds:.0} s after it was last renewed; \
         if the process is alive, pause or cancel its run; `take_over()` evicts it, dead or alive"
    ))
}

impl Claim {
    /// Starts a branch at `position` and moves the lease there. What was sent before is not meant
    /// for the new branch.
    async fn move_to_fork(self, engine: &Engine, position: &Position) -> Result<Self> {
        let journal = engine.journal();
        let (old, evicted, stale) = (self.lease, self.evicted, self.stale);
        let moved = async {
            let branch = BranchId::generate(journal.ids(), journal.clock().now());
            journal.fork(&old.session, position, branch.clone()).await?;
            let inbox_skipped = journal.open(&old.session).await?.branch(&BranchId::inbox())?.head.seq;
            let asked = Instant::now();
            let lease = journal.store().acquire(&old.session, &branch, &old.info.owner, engine.lease()).await?;
            Ok(Self { lease, asked, evicted, inbox_skipped, forked: true, stale, looked: None })
        };
        let moved = moved.await;
        release(engine, &old).await;
        moved
    }
}

async fn open_under(opening: &Opening<'_>, mut claim: Claim) -> Result<Opened> {
    let (mut restored, claim, substituted, unread) = match claim.looked.take() {
        Some(Looked { restored, unread }) => (restored, claim, None, Some(unread)),
        None => {
            let (restored, claim, substituted) = restore(opening, claim).await?;
            (restored, claim, substituted, None)
        }
    };
    if let Err(error) = fill_secrets(opening, &mut restored.state).await {
        release(opening.engine, &claim.lease).await;
        return Err(error);
    }
    let prepared = async {
        let prepared = prepare_claimed(opening, &restored, &claim, unread.as_ref()).await?;
        let lost = lost_history(opening, &restored, &claim).await?;
        // On record before the first record of the run: who looks at the session finds the run.
        if claim.lease.branch != restored.info.current {
            opening.engine.journal().choose_branch(opening.session, &claim.lease.branch).await?;
        }
        Ok::<_, Error>((prepared, lost))
    };
    let ((case, mut records, started, ledger), lost) = match prepared.await {
        Ok(prepared) => prepared,
        Err(error) => {
            release(opening.engine, &claim.lease).await;
            return Err(error);
        }
    };
    records.splice(0..0, lost.into_iter().map(Record::from));
    records.extend(substituted);
    let taken = restored.state.inbox_taken();
    // A branch that was just made was sent nothing.
    let passed_by = Some((taken, claim.inbox_skipped)).filter(|(taken, to)| to > taken && !claim.forked);
    let info = restored.info.clone();
    let driver = driver(opening, restored, claim, &started, ledger);
    if let Err(error) = driver.begin(records, case, passed_by, (unread, &info)).await {
        release(opening.engine, &driver.shared.lease).await;
        return Err(error);
    }
    let tasks =
        vec![tokio::spawn(keep(Arc::clone(&driver.shared))), tokio::spawn(Arc::clone(&driver.shared).enforce_grace())];
    Ok(Opened { driver, case, keeper: Keeper(tasks) })
}

/// What the branch of a run does not know of the lines it was forked from.
async fn lost_history(opening: &Opening<'_>, restored: &Restored, claim: &Claim) -> Result<Vec<HistoryLost>> {
    let (engine, branch) = (opening.engine, &claim.lease.branch);
    let author = opening.resume.author();
    match restored.info.branch(branch) {
        Ok(info) if info.parent.is_none() => Ok(Vec::new()),
        Ok(_) => lost_before(engine, &restored.info, branch, &restored.state, &author).await,
        // It was made since.
        Err(_) => {
            let info = engine.journal().open(opening.session).await?;
            lost_before(engine, &info, branch, &restored.state, &author).await
        }
    }
}

impl Driver {
    /// Stages what every run begins with, and what stands in its inbox. A command that was sent
    /// before a new turn was meant for what came before it.
    async fn begin(
        &self,
        records: Vec<Record>,
        case: Case,
        passed_by: Option<(Seq, Seq)>,
        (unread, info): (Option<Unread>, &SessionInfo),
    ) -> Result<()> {
        let mut core = self.shared.core.lock().await;
        let most = core.limits.batch_records / 4;
        let mut records = records;
        while !records.is_empty() {
            let rest = records.split_off(most.min(records.len()));
            self.make_room(&mut core, &records).await?;
            core.stage(std::mem::replace(&mut records, rest))?;
        }
        match case {
            Case::Resume => self.shared.obey_pending(&core.state),
            Case::NewTurn if core.state.register(STOPPING).is_some() => {
                core.stage(vec![RegisterUnset::new(register(STOPPING)?).into()])?;
            }
            Case::NewTurn => {}
        }
        if let Some((command, records)) = own_run::take_cancel(&core.state, self.run())? {
            core.stage(records)?;
            self.shared.obey(&command);
        }
        if let Some((from, to)) = passed_by {
            self.take_passed_by(&mut core, from, to, case == Case::Resume).await?;
        }
        let unread = match unread {
            Some(unread) => unread,
            None => self.read_inbox(core.state.inbox_taken(), info).await?,
        };
        self.take_over(&mut core, unread, case == Case::Resume).await
    }
}

/// The state at the end of the branch or, if that is damaged and it was asked for, of a new
/// branch that begins at the nearest whole checkpoint.
async fn restore(opening: &Opening<'_>, claim: Claim) -> Result<(Restored, Claim, Option<Record>)> {
    let journal = opening.engine.journal();
    let lease = &claim.lease;
    let position = Position::new(lease.branch.clone(), lease.head.seq);
    if !opening.resume.fallback {
        let restored = journal.load(&lease.session, Some(&position)).await?;
        return Ok((restored, claim, None));
    }
    let (restored, damage) = journal.load_or_fall_back(&lease.session, Some(&position)).await?;
    let (Some(damage), Some(used)) = (damage, restored.checkpoint.clone()) else {
        return Ok((restored, claim, None));
    };
    let newest = journal.checkpoints(&lease.session, Some(&position), None, 1).await?;
    let wanted = newest.first().map_or_else(|| used.checkpoint.id.clone(), |newest| newest.checkpoint.id.clone());
    let substituted = CheckpointSubstituted {
        wanted,
        used: used.checkpoint.id,
        reason: damage.to_string(),
        author: Some(opening.resume.author()),
        extra: Extra::new(),
    };
    let claim = claim.move_to_fork(opening.engine, &restored.position).await?;
    Ok((restored, claim, Some(substituted.into())))
}

/// What a run begins with.
type Prepared = (Case, Vec<Record>, RunStarted, Ledger);

/// The same, under a lease. A branch that was just made ends where nobody has seen it end.
async fn prepare_claimed(
    opening: &Opening<'_>,
    restored: &Restored,
    claim: &Claim,
    unread: Option<&Unread>,
) -> Result<Prepared> {
    let stale = match claim.forked {
        true => claim.stale.clone(),
        false => check_seen(opening, &claim.lease.branch, claim.lease.head).await?,
    };
    let taken = restored.state.inbox_taken().max(claim.inbox_skipped);
    let (case, mut records, started, ledger) =
        prepare(opening, restored, taken, claim.evicted.as_ref(), unread).await?;
    records.splice(0..0, stale);
    Ok((case, records, started, ledger))
}

/// The checks, and the records a run begins with.
async fn prepare(
    opening: &Opening<'_>,
    restored: &Restored,
    inbox_taken: Seq,
    evicted: Option<&Evicted>,
    unread: Option<&Unread>,
) -> Result<Prepared> {
    let Opening { engine, executor, options, resume, .. } = opening;
    let state = &restored.state;
    let mut records = Vec::new();
    if inbox_taken > state.inbox_taken() {
        records.push(InboxTaken::new(inbox_taken).into());
    }
    let (case, drift) = check(opening, restored, inbox_taken, unread).await?;
    let run = run_id(opening, restored, inbox_taken, case, unread).await?;
    let continues = state.run().map(|run| run.started.run.clone()).filter(|_| case == Case::Resume);
    let fingerprint = executor.fingerprint();
    let started = RunStarted {
        fingerprint: Some(fingerprint.hash()),
        durability: options.durability,
        weakened: options.weakened(),
        evicted: evicted.map(|evicted| evicted.owner.clone()),
        ..RunStarted::new(run, executor.descriptor().kind()).continuing(continues)
    };
    if case == Case::NewTurn {
        // Before the run begins: the fold drops what settled in earlier runs when a new one does.
        records.extend(executor.closing(state, engine.journal())?);
    }
    records.push(started.clone().into());
    records.extend(own_run::taken(state)?);
    records.extend(input_taken(resume, state, case)?);
    records.extend(drift);
    records.extend(modifications(opening, state)?);
    let mut ledger: Ledger = state.register(budget::REGISTER).map(Json::decode).transpose()?.unwrap_or_default();
    records.extend(raise(opening, &mut ledger)?);
    ledger.raised_now &= case == Case::NewTurn;
    Ok((case, records, started, ledger))
}

/// The id of the run: the one that what it begins with asks for, unless there is a run of that id.
async fn run_id(
    opening: &Opening<'_>,
    restored: &Restored,
    inbox_taken: Seq,
    case: Case,
    unread: Option<&Unread>,
) -> Result<RunId> {
    let (engine, state) = (opening.engine, &restored.state);
    let descriptor = opening.executor.descriptor();
    let reads = case == Case::NewTurn && !opening.input.is_new() && descriptor.reads_messages();
    let mut wanted = opening.resume.run.clone().filter(|_| case == Case::NewTurn);
    if wanted.is_none() && reads {
        let read = match unread {
            Some(_) => Unread::default(),
            None => read_behind(engine, opening.session, inbox_taken.0, usize::MAX).await?,
        };
        wanted = own_run::of_turn(&*descriptor, state, unread.unwrap_or(&read))?;
    }
    match wanted.or_else(|| own_run::next(state)) {
        Some(wanted) if !own_run::exists(engine, &restored.info, &wanted).await? => Ok(wanted),
        _ => Ok(RunId::generate(engine.journal().ids(), engine.journal().clock().now())),
    }
}

/// What is to be done, and what is recorded about a definition that changed; or why it is refused.
async fn check(
    opening: &Opening<'_>,
    restored: &Restored,
    inbox_taken: Seq,
    unread: Option<&Unread>,
) -> Result<(Case, Vec<Record>)> {
    check_executor(opening, restored)?;
    let descriptor = opening.executor.descriptor();
    let has_input = opening.input.is_new() || has_queued(opening, restored, inbox_taken, unread).await?;
    let case = validate(&Situation {
        session: opening.session,
        state: &restored.state,
        position: &restored.position,
        has_input,
        descriptor: &*descriptor,
        gives_up_failed: opening.executor.gives_up_failed(),
    })?;
    let drift = check_drift(opening, restored, &opening.executor.fingerprint(), case)?;
    let given = opening.given.named().iter().map(|(name, _)| name).filter(|name| opening.given.kept(name).is_some());
    let set: Vec<&str> = opening.resume.set.iter().map(|(key, _)| key).chain(given).map(String::as_str).collect();
    match case {
        Case::Resume => opening.executor.check(&restored.state, &set)?,
        Case::NewTurn => opening.executor.check_input(opening.input, &set)?,
    }
    Ok((case, drift))
}

/// Says that the run begins with an input of the inbox, unless another run has.
fn input_taken(resume: &ResumeOptions, state: &State, case: Case) -> Result<Option<Record>> {
    let Some(number) = resume.input.filter(|_| case == Case::NewTurn) else { return Ok(None) };
    if inputs_begun(state)? + 1 != number {
        return Err(Error::new(ErrorKind::Stale, format!("another run began with input {number}")));
    }
    Ok(Some(RegisterSet::new(register(INPUTS)?, Json::of(&number)?).into()))
}

/// What the caller saw of a branch, against where it ends.
async fn check_seen(opening: &Opening<'_>, branch: &BranchId, head: Head) -> Result<Option<Record>> {
    let Some(seen) = opening.resume.seen.filter(|seen| *seen != head) else { return Ok(None) };
    let stale = opening.engine.journal().check_seen(opening.session, branch, seen).await;
    match (stale, &opening.resume.allow_stale) {
        (Ok(()), _) => Ok(None),
        (Err(error), None) => Err(error),
        (Err(_), Some(reason)) => {
            let accepted = StaleAccepted {
                expected: seen,
                actual: head,
                author: opening.resume.author(),
                reason: reason.clone(),
                extra: Extra::new(),
            };
            Ok(Some(accepted.into()))
        }
    }
}

fn check_executor(opening: &Opening<'_>, restored: &Restored) -> Result<()> {
    let descriptor = opening.executor.descriptor();
    let kind = descriptor.kind();
    match restored.state.run().map(|run| run.started.executor.as_str()) {
        Some(other) if other != kind => {
            Err(Error::invalid(format!("the session was run by `{other}`, and this is `{kind}`"))
                .hint("use another session, or the executor that ran it"))
        }
        _ => Ok(()),
    }
}

/// Whether a message waits for a turn of its own. While a turn is not finished, there is none.
async fn has_queued(opening: &Opening<'_>, restored: &Restored, taken: Seq, unread: Option<&Unread>) -> Result<bool> {
    let (descriptor, state) = (opening.executor.descriptor(), &restored.state);
    if !descriptor.reads_messages() || descriptor.is_mid_turn(state) {
        return Ok(false);
    }
    let read = match unread {
        Some(_) => Unread::default(),
        None => read_behind(opening.engine, opening.session, taken.0, usize::MAX).await?,
    };
    let unread = unread.unwrap_or(&read);
    // Otherwise a session whose message is lost would look as if it had been sent none.
    unread.check(opening.session, opening.options.on_damaged_inbox)?;
    Ok(has_message(state, unread)? || descriptor.has_queued(state))
}

fn check_drift(opening: &Opening<'_>, restored: &Restored, new: &Fingerprint, case: Case) -> Result<Vec<Record>> {
    let recorded = restored.state.register(drift::REGISTER);
    let old: Option<Fingerprint> = recorded.map(Json::decode).transpose()?;
    let mut changes = old.as_ref().map_or_else(Vec::new, |old| old.changes(new));
    let started = &opening.options.depends_on;
    let old_started: Option<Fingerprint> = restored.state.register(drift::STARTED).map(Json::decode).transpose()?;
    changes.extend(old_started.iter().flat_map(|old| old.changes(started)));
    let mut records = Vec::new();
    if let (Some(old), Case::Resume, false) = (&old, case, changes.is_empty()) {
        let Some(reason) = &opening.resume.accept_drift else { return Err(drift::refused(&changes)) };
        let accepted = DriftAccepted {
            from: old.hash(),
            to: new.hash(),
            changes: changes.clone(),
            author: opening.resume.author(),
            reason: reason.clone(),
            extra: Extra::new(),
        };
        records.push(accepted.into());
    }
    if old.is_none() || !changes.is_empty() {
        records.push(RegisterSet::new(register(drift::REGISTER)?, new.to_json()?).into());
    }
    if old_started.as_ref().unwrap_or(&Fingerprint::new()) != started {
        records.push(RegisterSet::new(register(drift::STARTED)?, started.to_json()?).into());
    }
    Ok(records)
}

/// Looks up the secrets that the memory holds marks of, or that the run was given for it, and puts them in
/// place of the marks. Only this process sees that state.
async fn fill_secrets(opening: &Opening<'_>, state: &mut State) -> Result<()> {
    let Opening { engine, executor, resume, given, .. } = opening;
    if given.named().is_empty() {
        return Ok(());
    }
    let redaction = engine.journal().codec().redaction();
    let mut wanted = missing(state);
    wanted.extend(executor.reads());
    wanted.retain(|name| given.has(name));
    let own = resume.secrets.iter().map(|(name, _)| name);
    let held = |name: &&String| redaction.excludes(name) || state.register(&format!("{MEMORY}{name}")).is_some();
    wanted.extend(own.filter(held).cloned());
    given.keep(&wanted).await?;
    given.fill(state)
}

/// What the caller set: memory by value, secrets by reference.
fn modifications(opening: &Opening<'_>, state: &State) -> Result<Vec<Record>> {
    let Opening { resume, executor, given, .. } = opening;
    let mut records = Vec::new();
    let mut set = |key: &str, value: Json| {
        records.push(RegisterSet::new(register(&format!("{MEMORY}{key}"))?, value).into());
        // What the executor holds beside the memory counts less than what is set now.
        let overlays = executor.descriptor().overlays(state, key);
        records.extend(overlays.into_iter().map(|register| Record::from(RegisterUnset::new(register))));
        Ok::<_, Error>(())
    };
    for (key, value) in &resume.set {
        set(key, value.clone())?;
    }
    // The value goes into the state of this process, its mark into the journal.
    let mut keys = if given.named().is_empty() { Vec::new() } else { executor.reads() };
    keys.extend(resume.secrets.iter().map(|(name, _)| name.clone()));
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let held = state.register(&format!("{MEMORY}{key}"));
        let is_own = resume.secrets.iter().any(|(name, _)| *name == key);
        match given.kept(&key).map(Json::from) {
            Some(value) if held.is_none() || is_own && held != Some(&value) => set(&key, value)?,
            _ => {}
        }
    }
    for (number, (name, given)) in resume.secrets.iter().enumerate() {
        let counts = !resume.secrets[number + 1..].iter().any(|(later, _)| later == name);
        if let (true, Given::Reference(reference)) = (counts, given) {
            let (key, value) = (format!("{SECRET}{name}"), Json::from(reference.as_str()));
            if state.register(&key) != Some(&value) {
                records.push(RegisterSet::new(register(&key)?, value).into());
            }
        }
    }
    if !records.is_empty() {
        let reason = "set when the run was started or resumed".to_owned();
        records.insert(0, Edit { author: resume.author(), reason, extra: Extra::new() }.into());
    }
    Ok(records)
}

fn raise(opening: &Opening<'_>, ledger: &mut Ledger) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for &(budget, limit) in &opening.resume.raise {
        let configured = opening.options.budgets.limit(budget).or(opening.options.session_budgets.limit(budget));
        let before = ledger.raise(budget, limit).or(configured);
        let raised = BudgetRaised {
            budget: budget.as_str().to_owned(),
            from: Json::of(&before)?,
            to: Json::of(&limit)?,
            author: opening.resume.author(),
            reason: String::new(),
            extra: Extra::new(),
        };
        records.push(raised.into());
    }
    Ok(records)
}

fn driver(opening: &Opening<'_>, restored: Restored, claim: Claim, started: &RunStarted, ledger: Ledger) -> Driver {
    let Claim { lease, asked, evicted, inbox_skipped, .. } = claim;
    let engine = opening.engine;
    let target = Target::new(lease.session.clone(), lease.branch.clone(), lease.head)
        .with_fence(lease.info.epoch)
        .with_renew(engine.lease());
    let writer = BranchWriter::new(engine.journal().clone(), target, WriterOptions::new(opening.options.durability));
    let live = engine.live(&lease.session);
    live.begin(lease.branch.clone(), writer.watermark());
    let inbox_taken = restored.state.inbox_taken().max(inbox_skipped).0;
    let has_failed = restored.state.status() == Status::Failed;
    let codec = engine.journal().codec();
    let redactor = Arc::new(Redactor::new(engine.masks().clone(), codec.redaction().clone()));
    let core = Core {
        limits: *engine.journal().codec().limits(),
        redactor: Arc::clone(&redactor),
        last_checkpoint: restored.state.checkpoint().cloned(),
        passing: VecDeque::new(),
        ledger_changed: !opening.resume.raise.is_empty(),
        state: restored.state,
        writer,
        staged: Vec::new(),
        staged_bytes: 0,
        unsaved: Default::default(),
        known_messages: None,
        told: None,
        woken: Default::default(),
        fresh: Default::default(),
        ledger,
        counted: Instant::now(),
        clean: true,
        degraded: false,
        bytes_since_step: 0,
    };
    let shared = Shared {
        engine: engine.clone(),
        incarnation: restored.info.header.incarnation,
        run: started.run.clone(),
        stands_for: started.continues.clone().filter(|_| !has_failed),
        continues: started.continues.clone(),
        evicted,
        author: opening.resume.author(),
        options: opening.options.clone(),
        deadline: Deadline::new(asked, engine.lease()),
        control: Control::default(),
        live,
        redactor,
        given: opening.given.clone(),
        descriptor: opening.executor.descriptor(),
        late_micros: AtomicU64::new(0),
        inbox_seen: AtomicU64::new(inbox_taken),
        inbox_news: AtomicBool::new(false),
        inbox_rest: AtomicBool::new(false),
        news: Notify::new(),
        committed: AtomicU64::new(lease.head.seq.0),
        core: tokio::sync::Mutex::new(core),
        lease,
    };
    Driver { shared: Arc::new(shared) }
}
