//! Forks and edits: another line of history, or one more record on this one. Nothing is lost.

use rekindle_core::record::{CheckpointSource, Edit, Extra, InboxTaken};
use rekindle_core::{
    BranchId, BranchInfo, CheckpointId, Damage, Error, ErrorKind, Position, Record, Restored, Result, Seq, SessionInfo,
    SessionKey, Target,
};
use serde::Serialize;

use super::at::At;
use super::change::{self, Change};
use super::write;
use crate::contention::Contention;
use crate::driver::history_lost;
use crate::engine::Engine;

/// How to fork.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForkOptions {
    /// The name of the new branch; without one it is generated.
    pub branch: Option<BranchId>,
    /// What is changed on the new branch, as its first batch.
    pub edits: Vec<Change>,
    /// Who forks.
    pub author: String,
    /// Why.
    pub reason: String,
}

/// A fork.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Forked {
    /// The session.
    pub session: SessionKey,
    /// The new branch: resume with it to go on there.
    pub branch: BranchId,
    /// Where it begins.
    pub from: Position,
    /// Where it ends.
    pub position: Position,
    /// The checkpoint that marks its edits.
    pub checkpoint: Option<CheckpointId>,
    /// Damage to records behind the place where it begins: calls that may have been begun there are in doubt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<Damage>,
}

/// Starts a branch at a moment; copies nothing, costs the same at any moment, and disturbs nobody
/// who runs the session. The current branch stays the current one: name the new one at the resume.
/// What was sent to the session before, answers and commands too, stays with the branch it was sent
/// to. Safe to repeat with the same branch name.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::operations::{self, At, Change, ForkOptions};
/// use rekindle::{Engine, Json};
///
/// let engine = Engine::memory()?;
/// let session = engine.create("plan").await?;
/// let what_if = Change::SetMemory { key: "budget".into(), value: Json::parse("900")? };
/// let options = ForkOptions { edits: vec![what_if], author: "maria".into(), ..ForkOptions::default() };
/// let fork = operations::fork(&engine, session.key(), &At::Latest, options).await?;
/// let there = operations::inspect(&engine, session.key(), &At::Head(fork.branch)).await?;
/// assert_eq!(there.state.register("memory/budget").unwrap().as_str(), "900");
/// # Ok(()) }
/// ```
pub async fn fork(engine: &Engine, session: &SessionKey, at: &At, options: ForkOptions) -> Result<Forked> {
    let (_, from) = at.locate(engine, session).await.map_err(|error| error.during("fork"))?;
    fork_at(engine, session, &from, &options, CheckpointSource::Fork)
        .await
        .map_err(|error| error.during("fork").on(session))
}

async fn fork_at(
    engine: &Engine,
    session: &SessionKey,
    from: &Position,
    options: &ForkOptions,
    source: CheckpointSource,
) -> Result<Forked> {
    let journal = engine.journal();
    // Everything that can be wrong with the edits is found before the branch is made.
    let edited = match options.edits.as_slice() {
        [] => None,
        edits => {
            let restored = journal.load(session, Some(from)).await?;
            let said = (options.author.as_str(), options.reason.as_str());
            Some(edit_records(engine, &restored, edits, said, source)?)
        }
    };
    let (edits, checkpoint) = edited.map_or((Vec::new(), None), |(edits, id)| (edits, Some(id)));
    let generate = || BranchId::generate(journal.ids(), journal.clock().now());
    let branch = options.branch.clone().unwrap_or_else(generate);
    let made = journal.fork(session, from, branch.clone()).await?;
    let from = made.parent.clone().unwrap_or_else(|| from.clone());
    let info = journal.open(session).await?;
    let damage = journal.damage_at_end(&info, &from).await?;
    let mut records = Vec::from_iter(lost_behind(engine, info, &from, &damage, &options.author).await?);
    records.extend(edits);
    let head = begin_fork(engine, session, &made, &from, records).await?;
    let position = Position::new(branch.clone(), head);
    Ok(Forked { session: session.clone(), position, branch, from, checkpoint, damage })
}

/// The record that says that the records behind a fork are lost, if they are. What is older is looked for when the
/// branch is run.
async fn lost_behind(
    engine: &Engine,
    info: SessionInfo,
    from: &Position,
    damage: &[Damage],
    author: &str,
) -> Result<Option<Record>> {
    if damage.is_empty() {
        return Ok(None);
    }
    let restored = engine.journal().load_opened(info, Some(from)).await?;
    Ok(history_lost(&*engine.descriptors().of(&restored.state), &restored.state, damage, &write::by(author))
        .map(Record::from))
}

/// Writes the first batch of a fork; where the branch ends then.
async fn begin_fork(
    engine: &Engine,
    session: &SessionKey,
    made: &BranchInfo,
    from: &Position,
    edits: Vec<Record>,
) -> Result<Seq> {
    let is_new = made.head.seq == from.seq;
    let edited = |record: &Record| !matches!(record, Record::HistoryLost(_));
    if !is_new && edits.iter().any(edited) {
        let message = format!("branch `{}` exists already and has gone on", made.branch);
        return Err(Error::new(ErrorKind::AlreadyExists, message).hint("choose another name for the branch"));
    }
    let mut records = edits;
    records.splice(0..0, inbox_taken(engine, session).await?);
    if !is_new || records.is_empty() {
        return Ok(made.head.seq);
    }
    let target = Target::new(session.clone(), made.branch.clone(), made.head);
    Ok(engine.journal().append(&target, &records).await?.head.seq)
}

/// What was sent before a fork was meant for the branch it was forked from: an approval given
/// there approves nothing here, and a command that stopped a run there stops none here.
async fn inbox_taken(engine: &Engine, session: &SessionKey) -> Result<Option<Record>> {
    let info = engine.journal().open(session).await?;
    let sent = info.branch(&BranchId::inbox())?.head.seq;
    Ok((sent > Seq::ZERO).then(|| InboxTaken::new(sent).into()))
}

/// An edit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Edited {
    /// The session.
    pub session: SessionKey,
    /// The branch that was edited: a new one unless the edit was at the end of one.
    pub branch: BranchId,
    /// Whether the branch is new: resume with it to go on there.
    pub forked: bool,
    /// Where the branch ends now.
    pub position: Position,
    /// The checkpoint that marks the edit.
    pub checkpoint: CheckpointId,
    /// Damage to records behind the place where a new branch begins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<Damage>,
}

/// Changes the state at a moment, as a new record that says who did it and why. At the end of a
/// branch that branch goes on with it, unless somebody runs it (`AlreadyRunning`); anywhere else a
/// new branch begins there, so that nothing is lost.
pub async fn edit(
    engine: &Engine,
    session: &SessionKey,
    at: &At,
    changes: &[Change],
    author: &str,
    reason: &str,
) -> Result<Edited> {
    let context = |error: Error| error.during("edit").on(session);
    if changes.is_empty() {
        return Err(context(Error::invalid("there is nothing to change").hint("give at least one change")));
    }
    let mut contention = Contention::default();
    loop {
        let (info, position) = at.locate(engine, session).await.map_err(context)?;
        let is_head = info.branch(&position.branch).map_err(context)?.head.seq == position.seq;
        let edited = match is_head {
            true => edit_head(engine, session, &position, changes, (author, reason)).await,
            false => edit_fork(engine, session, &position, changes, (author, reason)).await.map(Some),
        };
        if let Some(edited) = edited.map_err(context)? {
            return Ok(edited);
        }
        contention.lost(engine, session).await.map_err(context)?;
    }
}

/// Edits the end of a branch; nothing if it has moved on meanwhile.
async fn edit_head(
    engine: &Engine,
    session: &SessionKey,
    seen: &Position,
    changes: &[Change],
    said: (&str, &str),
) -> Result<Option<Edited>> {
    let decide = |restored: &Restored| {
        if restored.position != *seen {
            return Ok(write::Decided::Nothing(None));
        }
        let (records, checkpoint) = edit_records(engine, restored, changes, said, CheckpointSource::Update)?;
        Ok(write::Decided::Append(records, Some(checkpoint)))
    };
    let (position, checkpoint) = write::change(engine, session, Some(&seen.branch), decide).await?;
    Ok(checkpoint.map(|checkpoint| Edited {
        session: session.clone(),
        branch: position.branch.clone(),
        forked: false,
        position,
        checkpoint,
        damage: Vec::new(),
    }))
}

async fn edit_fork(
    engine: &Engine,
    session: &SessionKey,
    from: &Position,
    changes: &[Change],
    (author, reason): (&str, &str),
) -> Result<Edited> {
    let options =
        ForkOptions { branch: None, edits: changes.to_vec(), author: author.to_owned(), reason: reason.to_owned() };
    let forked = fork_at(engine, session, from, &options, CheckpointSource::Update).await?;
    let checkpoint = forked.checkpoint.ok_or_else(|| Error::invalid("there is nothing to change"))?;
    let Forked { session, branch, position, damage, .. } = forked;
    Ok(Edited { session, branch, forked: true, position, checkpoint, damage })
}

/// The batch of an edit: who and why, the changes, and the checkpoint that marks them.
fn edit_records(
    engine: &Engine,
    restored: &Restored,
    changes: &[Change],
    (author, reason): (&str, &str),
    source: CheckpointSource,
) -> Result<(Vec<Record>, CheckpointId)> {
    let edit = Edit { author: write::by(author), reason: reason.to_owned(), extra: Extra::new() };
    let mut records: Vec<Record> = vec![edit.into()];
    records.extend(change::records(engine, &restored.state, changes)?);
    let description = match reason {
        "" => format!("edited by {}", write::by(author)),
        reason => format!("edited by {}: {reason}", write::by(author)),
    };
    let checkpoint = write::mark(engine, restored, source, &description);
    let id = checkpoint.id.clone();
    records.push(checkpoint.into());
    Ok((records, id))
}
