//! Looking back: checkpoints, the graph of branches, raw records.

use rekindle_core::{
    BranchId, CheckpointId, CheckpointInfo, Damage, Entry, Error, Head, MAX_FRAMES, Position, Record, Result, Seq,
    SessionInfo, SessionKey, Status, Timestamp,
};
use serde::Serialize;

use super::at::At;
use crate::engine::Engine;

/// Which checkpoints to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryOptions {
    /// On the line of history that leads here.
    pub at: At,
    /// Only those before this one: the `next` of the page before.
    pub before: Option<CheckpointId>,
    /// How many at most.
    pub limit: usize,
}

impl Default for HistoryOptions {
    /// The newest fifty of the current branch.
    fn default() -> Self {
        Self { at: At::Latest, before: None, limit: 50 }
    }
}

/// A page of checkpoints, newest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistoryPage {
    /// The session.
    pub session: SessionKey,
    /// The position whose past this is.
    pub position: Position,
    /// The checkpoints.
    pub checkpoints: Vec<CheckpointInfo>,
    /// How to go on, if there are more.
    pub next: Option<CheckpointId>,
}

/// The checkpoints that lead to a moment, newest first.
pub async fn history(engine: &Engine, session: &SessionKey, options: &HistoryOptions) -> Result<HistoryPage> {
    history_where(engine, session, options, |_| true).await
}

/// The same, of those checkpoints alone that `keep` keeps. A page is full unless there are no more.
pub async fn history_where(
    engine: &Engine,
    session: &SessionKey,
    options: &HistoryOptions,
    keep: impl Fn(&CheckpointInfo) -> bool,
) -> Result<HistoryPage> {
    let (info, position) = options.at.locate(engine, session).await.map_err(|error| error.during("history"))?;
    // One more than wanted says whether there are more.
    let wanted = options.limit.saturating_add(1);
    let (mut checkpoints, mut before, mut ask) = (Vec::new(), options.before.clone(), wanted);
    while checkpoints.len() < wanted {
        let found = engine.journal().checkpoints_opened(&info, Some(&position), before.as_ref(), ask).await?;
        let is_last = found.len() < ask;
        before = found.last().map(|last| last.checkpoint.id.clone());
        checkpoints.extend(found.into_iter().filter(&keep));
        if is_last {
            break;
        }
        // Every page is read from the end of history, so few large ones are cheaper than many small ones.
        ask = ask.saturating_mul(4);
    }
    let more = checkpoints.len() > options.limit;
    checkpoints.truncate(options.limit);
    let next = checkpoints.last().filter(|_| more).map(|last| last.checkpoint.id.clone());
    Ok(HistoryPage { session: session.clone(), position, checkpoints, next })
}

/// The graph of a session's branches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionLog {
    /// The session.
    pub session: SessionKey,
    /// The branch a resume goes on with.
    pub current: BranchId,
    /// The branches, oldest first; the inbox is none of them.
    pub branches: Vec<BranchLog>,
    /// What the store noticed when it opened the session, and damage to the newest records of the current branch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<Damage>,
}

/// A branch in the graph.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BranchLog {
    /// The branch.
    pub branch: BranchId,
    /// Where it was forked from.
    pub parent: Option<Position>,
    /// Its end.
    pub head: Head,
    /// Up to where its history was compacted.
    pub base: Option<Head>,
    /// What it is doing.
    pub status: Status,
    /// Whether a resume goes on with it.
    pub current: bool,
    /// Whether somebody runs it now.
    pub running: bool,
    /// When it began.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The newest of its own checkpoints, newest first; those before its fork are its parent's.
    pub checkpoints: Vec<CheckpointInfo>,
}

/// The graph of branches, each with its newest checkpoints, at most `limit` of each. The session is
/// opened once, and of each branch only its own history is read.
pub async fn log(engine: &Engine, session: &SessionKey, limit: usize) -> Result<SessionLog> {
    let info = engine.journal().open(session).await.map_err(|error| error.during("log"))?;
    let checkpoints = engine.journal().own_checkpoints(&info, limit).await.map_err(|error| error.during("log"))?;
    let mut branches = Vec::new();
    for (branch, own) in info.branches.iter().zip(checkpoints).filter(|(branch, _)| !branch.branch.is_inbox()) {
        branches.push(BranchLog {
            branch: branch.branch.clone(),
            parent: branch.parent.clone(),
            head: branch.head,
            base: branch.base,
            status: branch.status_at(info.observed_at),
            current: info.current == branch.branch,
            running: branch.live_lease(info.observed_at).is_some(),
            created_at: branch.created_at,
            updated_at: branch.updated_at,
            checkpoints: own,
        });
    }
    branches.sort_by(|a, b| {
        let order = |branch: &BranchLog| (branch.parent.is_some(), branch.created_at);
        order(a).cmp(&order(b)).then_with(|| a.branch.cmp(&b.branch))
    });
    let damage = newest_damage(engine, &info).await.map_err(|error| error.during("log"))?;
    Ok(SessionLog { session: session.clone(), current: info.current, branches, damage })
}

/// What is known to be damaged without reading all of a session.
async fn newest_damage(engine: &Engine, info: &SessionInfo) -> Result<Vec<Damage>> {
    let mut damage = info.damage.clone();
    let branch = info.current_branch()?;
    let base = branch.base.map_or(Seq::ZERO, |base| base.seq);
    let before = Position::new(branch.branch.clone(), branch.first_own().previous().max(base));
    let found = engine.journal().damage_at_end(info, &before).await?;
    damage.extend(found.into_iter().filter(|found| !info.damage.contains(found)));
    Ok(damage)
}

/// Which records to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordsOptions {
    /// Of this branch, which may be the inbox; of the current one if none is named.
    pub branch: Option<BranchId>,
    /// From this record on.
    pub from: Seq,
    /// How many at most.
    pub limit: usize,
}

impl Default for RecordsOptions {
    /// The first hundred of the current branch.
    fn default() -> Self {
        Self { branch: None, from: Seq(1), limit: 100 }
    }
}

/// A page of one branch's own records, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordPage {
    /// The session.
    pub session: SessionKey,
    /// The branch.
    pub branch: BranchId,
    /// Where the branch was forked from: records before that are its parent's.
    pub parent: Option<Position>,
    /// Up to where its history was compacted: those records are gone.
    pub base: Option<Seq>,
    /// The records.
    pub records: Vec<StoredRecord>,
    /// What cannot be read among them.
    pub damage: Vec<Damage>,
    /// How to go on, if there are more.
    pub next: Option<Seq>,
}

/// A record with where and when it was written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredRecord {
    /// Where.
    pub position: Position,
    /// When, by the writer's clock.
    pub at: Timestamp,
    /// What it says.
    pub record: Record,
}

/// A page of raw records of one branch. Damage is part of the answer.
pub async fn records(engine: &Engine, session: &SessionKey, options: &RecordsOptions) -> Result<RecordPage> {
    let info = engine.journal().open(session).await.map_err(|error| error.during("records"))?;
    let branch = info.branch(options.branch.as_ref().unwrap_or(&info.current))?;
    if options.limit == 0 {
        return Err(Error::invalid("a page needs room for at least one record").during("records").on(session));
    }
    let batches = options.limit.min(MAX_FRAMES);
    let mut page = RecordPage {
        session: session.clone(),
        branch: branch.branch.clone(),
        parent: branch.parent.clone(),
        base: branch.base.map(|base| base.seq),
        records: Vec::new(),
        damage: Vec::new(),
        next: None,
    };
    let entries = engine.journal().read(session, &branch.branch, options.from, batches).await?;
    let last = page.fill(entries, options);
    page.next = last.filter(|last| *last < branch.head.seq).map(Seq::next);
    Ok(page)
}

impl RecordPage {
    /// Takes over what fits; the last record of that, if there is any.
    fn fill(&mut self, entries: Vec<Entry>, options: &RecordsOptions) -> Option<Seq> {
        let mut last = None;
        for entry in entries {
            let batch = match entry {
                Entry::Batch(batch) => batch,
                Entry::Damaged(damage) => {
                    last = Some(damage.last);
                    self.damage.push(damage);
                    continue;
                }
            };
            for (seq, record) in batch.numbered().filter(|(seq, _)| *seq >= options.from) {
                if self.records.len() == options.limit {
                    return last;
                }
                let position = Position::new(self.branch.clone(), seq);
                self.records.push(StoredRecord { position, at: batch.at, record: record.clone() });
                last = Some(seq);
            }
        }
        last
    }
}
