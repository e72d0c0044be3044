//! Everything worth knowing of a session, on one page.

use std::collections::BTreeMap;

use rekindle_core::record::{EffectKind, HistoryLost, InDoubtPolicy, RunOutcome, WaitDecision, WaitOpened};
use rekindle_core::{
    BranchId, BranchInfo, CheckpointInfo, Damage, EffectId, EffectState, Epoch, ErrorKind, Hash, Json, Marks, OwnerId,
    Record, Restored, Result, RunId, RunInfo, SessionHeader, SessionInfo, SessionKey, SessionQuery, State, Status,
    StoreExt as _, Timestamp, WaitId, WaitState,
};
use serde::Serialize;

use super::answer::as_seen;
use super::inbox;
use crate::driver::{BUDGET, Ledger, Spent, WaitPurpose};
use crate::engine::Engine;

/// A session on one page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// Title, tags, labels, agent, parent.
    pub header: SessionHeader,
    /// What it is doing.
    pub status: Status,
    /// When it was created.
    pub created_at: Timestamp,
    /// When anything in it last changed.
    pub updated_at: Timestamp,
    /// The branch a resume goes on with.
    pub current: BranchId,
    /// Its branches with their heads, the inbox among them.
    pub branches: Vec<BranchInfo>,
    /// Who runs it now.
    pub owner: Option<Owner>,
    /// The last run.
    pub run: Option<RunView>,
    /// What was used.
    pub spent: Spending,
    /// How many items each log has, `messages` among them.
    pub logs: BTreeMap<String, usize>,
    /// What it waits for, with the answers no run has read yet.
    pub waits: Vec<WaitView>,
    /// Calls that were begun and have not ended; in doubt if nobody runs the session, unless they wait
    /// for an answer.
    pub effects: Vec<EffectView>,
    /// The session that started it.
    pub parent: Option<SessionKey>,
    /// The sessions it started.
    pub children: Vec<Related>,
    /// The last checkpoint of the current branch.
    pub checkpoint: Option<CheckpointInfo>,
    /// Whether a resume would go on with something.
    pub resumable: Resumable,
    /// Records of the inbox that no run has taken over yet.
    pub unread: usize,
    /// Kinds of records this version does not know, with how many.
    pub unknown: BTreeMap<String, u64>,
    /// What the store noticed when it opened the session, and records of the inbox that cannot be read.
    pub damage: Vec<Damage>,
    /// Records that could not be read any more and that the session went on without.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<HistoryLost>,
    /// Why its state cannot be read, if it cannot. What comes from the state is empty then.
    pub unreadable: Option<String>,
}

/// Who runs a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// Who.
    pub owner: OwnerId,
    /// On which branch.
    pub branch: BranchId,
    /// The epoch of its lease.
    pub epoch: Epoch,
    /// Until when, unless it is renewed.
    pub until: Timestamp,
}

/// A run, as its first and last record say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunView {
    /// The run.
    pub run: RunId,
    /// What drove it.
    pub executor: String,
    /// The run it went on from.
    pub continues: Option<RunId>,
    /// What was weaker than usual.
    pub weakened: Vec<String>,
    /// How it ended, if it did.
    pub outcome: Option<RunOutcome>,
    /// Why.
    pub reason: String,
    /// The error's code, if it failed.
    pub code: Option<String>,
}

/// What was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spending {
    /// By the last turn.
    pub turn: Spent,
    /// By the session.
    pub session: Spent,
}

/// An open wait.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitView {
    /// What it is for.
    #[serde(flatten)]
    pub opened: WaitOpened,
    /// What was decided so far.
    pub decisions: Vec<WaitDecision>,
    /// What an approval must name: the digest of the arguments, of the changed ones if somebody
    /// changed them.
    pub approve_digest: Option<Hash>,
    /// Whether it has run out of time, so that the next run closes it.
    pub expired: bool,
}

/// A call that was begun.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EffectView {
    /// The effect.
    pub effect: EffectId,
    /// What kind of call it is.
    pub kind: EffectKind,
    /// The tool, model or step.
    pub name: String,
    /// Which try it is.
    pub attempt: u32,
    /// What is done if it never ends.
    pub policy: InDoubtPolicy,
    /// Whether it ended.
    pub settled: bool,
    /// The arguments, where they stand nowhere else.
    pub arguments: Option<Json>,
    /// Its child session, if it has one.
    pub child: Option<SessionKey>,
    /// What went wrong in the last try, if that is known.
    pub error: Option<String>,
    /// What it has streamed.
    pub partials: Vec<Json>,
    /// The open wait whose answer is its result: nothing about such a call is in doubt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitId>,
}

/// A session this one is related to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Related {
    /// The session.
    pub session: SessionKey,
    /// What it is doing.
    pub status: Status,
}

/// Whether a resume would go on with something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resumable {
    /// Whether it would.
    pub resumable: bool,
    /// Why, or why not.
    pub why: String,
}

/// Everything worth knowing of a session. What cannot be read is said, and is no error.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::{Engine, Status, operations};
///
/// let engine = Engine::memory()?;
/// let session = engine.create("trip-42").await?;
/// let shown = operations::show(&engine, session.key()).await?;
/// assert_eq!(shown.status, Status::Idle);
/// assert!(!shown.resumable.resumable);
/// # Ok(()) }
/// ```
pub async fn show(engine: &Engine, session: &SessionKey) -> Result<Shown> {
    let journal = engine.journal();
    let loaded = match journal.load(session, None).await {
        Ok(restored) => Ok(restored),
        Err(error) if is_about_bytes(error.kind()) => Err(error.to_string()),
        Err(error) => return Err(error.during("show")),
    };
    let info = match &loaded {
        Ok(restored) => restored.info.clone(),
        Err(_) => journal.open(session).await?,
    };
    let checkpoints = journal.checkpoints(session, None, None, 1).await;
    let mut shown = from_info(info, checkpoints.unwrap_or_default().into_iter().next());
    shown.children = children(engine, session).await?;
    match loaded {
        Ok(restored) => fill(engine, &mut shown, &restored).await?,
        Err(why) => shown.unreadable = Some(why),
    }
    Ok(shown)
}

fn is_about_bytes(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corrupt | ErrorKind::KeyMissing { .. } | ErrorKind::VersionTooNew { .. })
}

fn from_info(info: SessionInfo, checkpoint: Option<CheckpointInfo>) -> Shown {
    Shown {
        status: info.status(),
        created_at: info.created_at,
        updated_at: info.updated_at(),
        owner: owner(&info),
        parent: info.header.parent.clone(),
        header: info.header,
        current: info.current,
        branches: info.branches,
        run: None,
        spent: Spending::default(),
        logs: BTreeMap::new(),
        waits: Vec::new(),
        effects: Vec::new(),
        children: Vec::new(),
        checkpoint,
        resumable: Resumable { resumable: false, why: "its state cannot be read".into() },
        unread: 0,
        unknown: BTreeMap::new(),
        damage: info.damage,
        lost: Vec::new(),
        unreadable: None,
    }
}

async fn fill(engine: &Engine, shown: &mut Shown, restored: &Restored) -> Result<()> {
    let (state, now) = (&restored.state, restored.info.observed_at);
    // The index of a new fork says `idle`; the state says what it was forked from.
    shown.status = status(restored);
    shown.run = state.run().map(RunView::of);
    let ledger: Ledger = state.register(BUDGET).map(Json::decode).and_then(Result::ok).unwrap_or_default();
    shown.spent = Spending { turn: ledger.turn, session: ledger.session };
    shown.logs = state.logs().map(|(name, items)| (name.to_string(), items.len())).collect();
    shown.effects = state.open_effects().map(|effect| EffectView::in_state(effect, state)).collect();
    shown.unknown = state.unknown().clone();
    shown.lost = state.lost().to_vec();
    let unread = inbox::unread(engine, restored).await?;
    let is_new = |damage: &&Damage| !shown.damage.contains(damage);
    let damaged: Vec<Damage> = unread.damage().filter(is_new).cloned().collect();
    shown.damage.extend(damaged);
    shown.waits =
        state.waits().map(|wait| WaitView::of(&as_seen(wait, &restored.position.branch, &unread), now)).collect();
    shown.unread = unread.iter().filter(|received| !is_remark(&received.record)).count();
    let message = unread.iter().any(|received| matches!(received.record, Record::InboxMessage(_)));
    shown.resumable = resumable(engine, shown, state, message);
    if unread.damage().next().is_some() && shown.owner.is_none() {
        shown.resumable.why.push_str("; its inbox is damaged, so a resume must be told to go on without what is lost");
    }
    Ok(())
}

/// Whether a record of the inbox is no business of a run.
fn is_remark(record: &Record) -> bool {
    record.marks().intersects(Marks::CHECKPOINT | Marks::SESSION)
}

/// The status at the end of a branch, as seen now.
pub(super) fn status(restored: &Restored) -> Status {
    let branch = restored.info.branch(&restored.position.branch);
    let live = branch.is_ok_and(|branch| branch.live_lease(restored.info.observed_at).is_some());
    restored.state.status().seen(live)
}

/// Who runs the session now.
pub(super) fn owner(info: &SessionInfo) -> Option<Owner> {
    info.live_lease().map(|(branch, lease)| Owner {
        owner: lease.owner.clone(),
        branch: branch.branch.clone(),
        epoch: lease.epoch,
        until: lease.expires_at,
    })
}

async fn children(engine: &Engine, session: &SessionKey) -> Result<Vec<Related>> {
    let mut query = SessionQuery::new(session.namespace.clone()).with_limit(500);
    query.parent = Some(session.clone());
    query.oldest_first = true;
    let found = engine.journal().store().list_all(&query).await?;
    Ok(found.iter().map(|info| Related { session: info.header.key.clone(), status: info.status() }).collect())
}

fn resumable(engine: &Engine, shown: &Shown, state: &State, message: bool) -> Resumable {
    let is = |resumable, why: String| Resumable { resumable, why };
    let descriptor = engine.descriptors().of(state);
    if let Some(owner) = &shown.owner {
        return is(false, format!("{} runs it on branch `{}` until {}", owner.owner, owner.branch, owner.until));
    }
    match shown.status {
        Status::Waiting => {
            let answers =
                if shown.waits.len() == 1 { "an answer".into() } else { format!("{} answers", shown.waits.len()) };
            is(true, format!("it waits for {answers}; a resume goes on with what came"))
        }
        status if status.is_unfinished() => is(true, format!("the last run is {status}")),
        Status::Failed | Status::Idle if descriptor.is_mid_turn(state) => {
            is(true, "the last turn was not finished".into())
        }
        _ if message && descriptor.reads_messages() => {
            is(true, "a message waits in its inbox for a turn of its own".into())
        }
        status => {
            let next = if descriptor.reads_messages() { "give it a message to start a turn" } else { "run it anew" };
            is(false, format!("it is {status}, with nothing unfinished; {next}"))
        }
    }
}

impl RunView {
    pub(super) fn of(run: &RunInfo) -> Self {
        Self {
            run: run.started.run.clone(),
            executor: run.started.executor.clone(),
            continues: run.started.continues.clone(),
            weakened: run.started.weakened.clone(),
            outcome: run.ended.as_ref().map(|ended| ended.outcome),
            reason: run.ended.as_ref().map(|ended| ended.reason.clone()).unwrap_or_default(),
            code: run.ended.as_ref().and_then(|ended| ended.code.clone()),
        }
    }
}

impl WaitView {
    pub(super) fn of(wait: &WaitState, now: Timestamp) -> Self {
        Self {
            opened: wait.opened.clone(),
            decisions: wait.decisions.clone(),
            approve_digest: crate::wait::shown_digest(wait),
            expired: crate::wait::is_due(wait, now),
        }
    }
}

impl EffectView {
    pub(super) fn of(effect: &EffectState) -> Self {
        let intent = &effect.intent;
        Self {
            effect: intent.effect.clone(),
            kind: intent.kind,
            name: intent.name.clone(),
            attempt: intent.attempt,
            policy: intent.policy,
            settled: effect.is_settled(),
            arguments: intent.arguments.clone(),
            child: intent.child.clone(),
            error: effect.outcome.as_ref().and_then(|outcome| outcome.error.clone()),
            partials: effect.partials.clone(),
            waits_for: None,
        }
    }

    /// An effect, with the wait its result comes from.
    pub(super) fn in_state(effect: &EffectState, state: &State) -> Self {
        let is_of = |wait: &&WaitState| wait.opened.effect.as_ref() == Some(&effect.intent.effect);
        let wait = state.waits().find(|wait| is_of(wait) && WaitPurpose::of(wait) != WaitPurpose::InDoubt);
        Self { waits_for: wait.map(|wait| wait.opened.wait.clone()), ..Self::of(effect) }
    }
}
