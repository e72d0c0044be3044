//! Answering what a session waits for.

use rekindle_core::record::{Decision, Extra, InboxAnswer, WaitDecision, WaitKind, WaitOpened};
use rekindle_core::{
    BranchId, Condition, Error, ErrorKind, Hash, Identity, Json, MessageId, Position, Record, Restored, Result,
    SessionKey, Timestamp, WaitId, WaitState,
};
use serde::{Deserialize, Serialize};

use super::inbox::{self, Received};
use super::show::{self, Owner};
use super::{plain, waits, write};
use crate::driver::{is_for_branch, on_branch};
use crate::engine::Engine;
use crate::wait::{check_answer, verdict};

/// An answer to a wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The wait.
    pub wait: WaitId,
    /// Yes, no, or an answer.
    pub decision: Decision,
    /// By whom.
    pub author: String,
    /// The credential of the author; see [`Identity`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// True if the credential does not prove the author.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub claimed: bool,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Json>,
    /// The arguments to use in place of those shown; only with an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Json>,
    /// The digest of the arguments that were shown; an approval must name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Hash>,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Its id; without one it is generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<MessageId>,
    /// The branch the wait stands on; without one it is found, on the current branch first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchId>,
}

impl Answer {
    /// A decision without anything beside it.
    pub fn new(wait: WaitId, decision: Decision, by: impl Into<Identity>) -> Self {
        let Identity { author, credential, claimed } = by.into();
        Self {
            wait,
            decision,
            author,
            credential,
            claimed,
            value: None,
            arguments: None,
            digest: None,
            reason: String::new(),
            id: None,
            branch: None,
        }
    }

    /// Yes, to exactly the arguments with that digest.
    pub fn approve(wait: WaitId, digest: Option<Hash>, by: impl Into<Identity>) -> Self {
        Self { digest, ..Self::new(wait, Decision::Approve, by) }
    }

    /// No.
    pub fn reject(wait: WaitId, by: impl Into<Identity>, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ..Self::new(wait, Decision::Reject, by) }
    }

    /// Here is the answer.
    pub fn value(wait: WaitId, value: Json, by: impl Into<Identity>) -> Self {
        Self { value: Some(value), ..Self::new(wait, Decision::Answer, by) }
    }

    /// Answers the wait of that branch.
    #[must_use]
    pub fn on_branch(mut self, branch: BranchId) -> Self {
        self.branch = Some(branch);
        self
    }

    /// The same, with other arguments than those shown.
    #[must_use]
    pub fn with_arguments(mut self, arguments: Json) -> Self {
        self.arguments = Some(arguments);
        self
    }
}

/// What came of an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answered {
    /// The wait.
    pub wait: WaitId,
    /// The branch it stands on.
    pub branch: Option<BranchId>,
    /// Where the answer stands; nothing if it was taken over and is not in the inbox any more.
    pub position: Option<Position>,
    /// Whether the same answer was given before.
    pub repeated: bool,
    /// Whether the wait is decided now; if not, more must approve.
    pub decided: bool,
    /// Owner that runs the branch and takes the answer over.
    pub owner: Option<Owner>,
    /// Whether somebody must resume the session for it to go on.
    pub resume_needed: bool,
}

/// Answers an open wait. The answer is checked first: against the schema, the digest of what was
/// shown, and time. The same answer by the same author counts once; another answer to a wait that
/// is decided is `WaitClosed`, which says by whom and when.
pub async fn answer(engine: &Engine, session: &SessionKey, answer: &Answer) -> Result<Answered> {
    let given = give(engine, session, answer).await;
    given.map_err(|error| error.during("answer").on(session))
}

/// How often an answer is judged anew because something else came into the inbox meanwhile.
const ATTEMPTS: usize = 32;

async fn give(engine: &Engine, session: &SessionKey, answer: &Answer) -> Result<Answered> {
    give_from(engine, session, answer, None).await
}

/// The same, where the end of the branch the wait stands on may have been restored already.
async fn give_from(
    engine: &Engine,
    session: &SessionKey,
    answer: &Answer,
    mut restored: Option<Restored>,
) -> Result<Answered> {
    for json in [&answer.value, &answer.arguments].into_iter().flatten() {
        plain::refuse(engine, "the answer", json)?;
    }
    let answer = &Answer { id: answer.id.clone().or_else(|| Some(engine.new_message_id())), ..answer.clone() };
    for _ in 0..ATTEMPTS {
        let open = match restored.take() {
            Some(restored) => restored,
            None => match waits::find(engine, session, &answer.wait, answer.branch.as_ref()).await? {
                waits::Found::Open(restored) => *restored,
                waits::Found::Closed(closed) => return closed_before(engine, session, answer, &closed).await,
            },
        };
        let branch = open.position.branch.clone();
        let answer = &answer.clone().on_branch(branch.clone());
        match give_to(engine, &open, answer).await {
            Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. } | ErrorKind::Overtaken { .. }) => {}
            given => return given.map(|given| taken_by(given, branch)),
        }
    }
    let message = "too many others write to the inbox at the same time";
    Err(Error::new(ErrorKind::StoreUnavailable, message))
}

/// Names the owner that takes an answer over: a run of another branch leaves it alone.
fn taken_by(given: Answered, branch: BranchId) -> Answered {
    let owner = given.owner.filter(|owner| owner.branch == branch);
    Answered { branch: Some(branch), resume_needed: owner.is_none(), owner, ..given }
}

/// Gives an answer to a wait that is open; `Conflict` if something else came into the inbox meanwhile,
/// `Overtaken` if something happened to a wait of its branch.
async fn give_to(engine: &Engine, restored: &Restored, answer: &Answer) -> Result<Answered> {
    let now = restored.info.observed_at;
    let (wait, unread) = with_unread(engine, restored, &answer.wait).await?;
    let owner = show::owner(&restored.info);
    let answered = |position, repeated, decided| Answered {
        wait: answer.wait.clone(),
        branch: None,
        position,
        repeated,
        decided,
        resume_needed: owner.is_none(),
        owner: owner.clone(),
    };
    let decided = |wait: &WaitState| verdict(wait, now).is_some_and(|(_, expired)| !expired);
    let by_id = unread.iter().any(|received| has_id(&received.record, answer));
    if by_id || since_change(&wait).iter().any(|decision| is_same(decision, answer)) {
        let position = unread.iter().find(|received| is_answer(&received.record, answer)).map(Received::position);
        return Ok(answered(position, true, decided(&wait)));
    }
    if decided(&wait) {
        return Err(decided_before(&wait, &unread));
    }
    let record = record(engine, answer);
    check(&wait, &record, now)?;
    let mut after = wait;
    after.decisions.push(WaitDecision::from(&record));
    // If the wait is decided, closed or found expired meanwhile, the append is refused.
    let branch = restored.info.branch(&restored.position.branch)?;
    if branch.head != restored.head {
        // The branch went on while it was read: what is known of it is not of one moment.
        let message = format!("branch `{}` has moved since it was looked at", branch.branch);
        return Err(Error::new(ErrorKind::Overtaken { branch: branch.branch.clone() }, message));
    }
    let unchanged = Condition::last_wait(branch.branch.clone(), branch.last_wait);
    let position = inbox::put_behind(engine, &restored.info, record.into(), Some(unchanged)).await?;
    Ok(answered(Some(position), false, decided(&after)))
}

/// Gives the signal `name` to the session that waits for it: to its current branch, or to the one other
/// branch that does.
pub async fn signal(
    engine: &Engine,
    session: &SessionKey,
    name: &str,
    value: Json,
    by: impl Into<Identity>,
) -> Result<Answered> {
    let author = by.into();
    let context = |error: Error| error.during("signal").on(session);
    let restored = engine.journal().load(session, None).await.map_err(context)?;
    let is_named = |opened: &WaitOpened| opened.kind == WaitKind::Signal && opened.prompt == name;
    let here = restored.state.waits().find(|wait| is_named(&wait.opened)).map(|wait| wait.opened.wait.clone());
    let given = match here {
        Some(wait) => give_from(engine, session, &Answer::value(wait, value, author), Some(restored)).await,
        None => {
            let (wait, branch) = signalled_elsewhere(engine, session, name).await.map_err(context)?;
            give(engine, session, &Answer::value(wait, value, author).on_branch(branch)).await
        }
    };
    given.map_err(|error| context(error.during("answer").on(session)))
}

/// The wait for a signal on a branch that is not the current one.
async fn signalled_elsewhere(engine: &Engine, session: &SessionKey, name: &str) -> Result<(WaitId, BranchId)> {
    let mut signals = waits::waits_of(engine, session).await?;
    signals.retain(|open| open.wait.opened.kind == WaitKind::Signal);
    let named: Vec<_> = signals.iter().filter(|open| open.wait.opened.prompt == name).collect();
    match named.as_slice() {
        [one] => Ok((one.wait.opened.wait.clone(), one.branch.clone())),
        [] => {
            let names: Vec<_> = signals.iter().map(|open| format!("`{}`", open.wait.opened.prompt)).collect();
            let hint = match names.as_slice() {
                [] => "it waits for no signal at all".to_owned(),
                names => format!("it waits for: {}", names.join(", ")),
            };
            Err(Error::not_found(format!("the session does not wait for a signal `{name}`")).hint(hint))
        }
        many => {
            let branches: Vec<_> = many.iter().map(|open| open.branch.to_string()).collect();
            let message = format!("the branches {} wait for the signal `{name}`", branches.join(", "));
            Err(Error::invalid(message).hint("answer the wait of the branch that is meant"))
        }
    }
}

/// The wait as the next run will see it, with the answers it has not read yet.
async fn with_unread(engine: &Engine, restored: &Restored, wait: &WaitId) -> Result<(WaitState, Vec<Received>)> {
    let found = restored.state.wait(wait).ok_or_else(|| Error::not_found(format!("there is no wait `{wait}`")))?;
    let mut unread = inbox::unread(engine, restored).await?.records;
    let branch = &restored.position.branch;
    let is_meant = |given: &InboxAnswer| given.wait == *wait && is_for_branch(given, branch);
    unread.retain(|received| matches!(&received.record, Record::InboxAnswer(given) if is_meant(given)));
    Ok((as_seen(found, branch, &unread), unread))
}

/// A wait with the answers of the inbox that will count, each judged by when it was given.
pub(super) fn as_seen(wait: &WaitState, branch: &BranchId, unread: &[Received]) -> WaitState {
    let mut seen = wait.clone();
    for received in unread {
        if let Record::InboxAnswer(given) = &received.record
            && given.wait == wait.opened.wait
            && is_for_branch(given, branch)
            && check_answer(&seen, given, received.at).is_ok()
        {
            seen.decisions.push(WaitDecision::from(given));
        }
    }
    seen
}

fn record(engine: &Engine, answer: &Answer) -> InboxAnswer {
    let record = InboxAnswer {
        message: answer.id.clone().unwrap_or_else(|| engine.new_message_id()),
        wait: answer.wait.clone(),
        decision: answer.decision,
        author: write::by(&answer.author),
        credential: answer.credential.clone(),
        claimed: answer.claimed,
        value: answer.value.clone(),
        arguments: answer.arguments.clone(),
        digest: answer.digest,
        reason: answer.reason.clone(),
        extra: Extra::new(),
    };
    match &answer.branch {
        Some(branch) => on_branch(record, branch),
        None => record,
    }
}

fn check(wait: &WaitState, answer: &InboxAnswer, now: Timestamp) -> Result<()> {
    let approves = wait.opened.kind == WaitKind::Approval && answer.decision == Decision::Approve;
    if answer.arguments.is_some() && !approves {
        return Err(Error::invalid("only an approval can change the arguments")
            .hint("approve with the arguments you want, or leave them out"));
    }
    check_answer(wait, answer, now)
}

/// The decisions since somebody changed the arguments: those before were about others.
fn since_change(wait: &WaitState) -> &[WaitDecision] {
    let changed = wait.decisions.iter().rposition(|decision| decision.arguments.is_some());
    &wait.decisions[changed.unwrap_or(0)..]
}

/// Whether the same person decided the same.
fn is_same(decision: &WaitDecision, answer: &Answer) -> bool {
    let is_author = match &answer.credential {
        Some(_) => decision.credential == answer.credential,
        None => decision.credential.is_none() && decision.author == write::by(&answer.author),
    };
    is_author
        && decision.decision == answer.decision
        && decision.value == answer.value
        && decision.arguments == answer.arguments
}

fn is_answer(record: &Record, answer: &Answer) -> bool {
    has_id(record, answer)
        || matches!(record, Record::InboxAnswer(given) if is_same(&WaitDecision::from(given), answer))
}

fn has_id(record: &Record, answer: &Answer) -> bool {
    matches!(record, Record::InboxAnswer(given) if Some(&given.message) == answer.id.as_ref())
}

fn decided_before(wait: &WaitState, unread: &[Received]) -> Error {
    let last = wait.decisions.last();
    let by = last.map_or("somebody", |decision| decision.author.as_str());
    let when = unread.last().map(|received| format!(" at {}", received.at)).unwrap_or_default();
    let message = format!("the wait `{}` was decided by {by}{when}", wait.opened.wait);
    Error::new(ErrorKind::WaitClosed, message).hint("resume the session if nobody runs it: that decision counts")
}

/// What to say about a wait that is over: the same answer again is no error.
async fn closed_before(
    engine: &Engine,
    session: &SessionKey,
    answer: &Answer,
    closed: &waits::ClosedWait,
) -> Result<Answered> {
    if closed.decisions.iter().any(|decision| is_same(decision, answer)) {
        let restored: Restored = engine.journal().load(session, None).await?;
        let owner = show::owner(&restored.info);
        let unfinished = restored.state.status().is_unfinished();
        return Ok(Answered {
            wait: answer.wait.clone(),
            branch: None,
            position: None,
            repeated: true,
            decided: true,
            resume_needed: owner.is_none() && unfinished,
            owner,
        });
    }
    Err(closed.error(&answer.wait))
}
