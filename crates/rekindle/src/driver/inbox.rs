//! The inbox: what others send a run, taken over between its steps.

use std::collections::{BTreeMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rekindle_core::codec::Limits;
use rekindle_core::record::{
    Command, HistoryLost, InboxAnswer, InboxCommand, InboxMessage, InboxMode, InboxTaken, LogAppend, RegisterSet,
    RunOutcome, WaitDecision,
};
use rekindle_core::{
    BranchId, Damage, DamageKind, Entry, Error, Head, Json, LogName, MessageId, OwnerId, Position, Record, Result,
    RunId, Seq, SessionInfo, SessionKey, State, Timestamp, WaitId, WaitState,
};

use super::{Core, DamagedInbox, Driver, End, NewCheckpoint, STOPPING, Shared, Stop, limits, own_run, register};
use crate::engine::Engine;
use crate::message::Message;
use crate::wait::check_answer;
use serde::{Deserialize, Serialize};

/// How many batches of the inbox are read at once.
const PAGE: usize = 256;
/// How many records are taken over at once.
const TAKE: usize = 1_000;

/// The logs into which messages from the inbox go; the executor takes them from there.
#[derive(Clone, Copy, Debug)]
pub struct Inbox;

impl Inbox {
    /// Messages for the next model call.
    pub const STEER: &'static str = "inbox/steer";
    /// Messages for the next turn.
    pub const QUEUE: &'static str = "inbox/queue";
    /// Inputs for runs of plans, graphs and flows.
    pub const INPUT: &'static str = "inbox/input";
}

/// The register that says with how many inputs of the inbox runs have begun.
pub(crate) const INPUTS: &str = "inbox/inputs";
/// The field that marks a message as the input of a run.
const MARK: &str = "input";

/// The field of a command that names the holder of the lease it is meant for.
const OWNER: &str = "owner";

/// A command for the run that holds the session's lease under that name, and no other.
pub(crate) fn for_owner(mut command: InboxCommand, owner: &OwnerId) -> InboxCommand {
    command.extra.insert(OWNER.into(), owner.as_str().into());
    command
}

/// The field of an answer that names the branch its wait stands on.
const BRANCH: &str = "branch";

/// An answer to a wait of that branch: a run of another one leaves it alone.
pub(crate) fn on_branch(mut answer: InboxAnswer, branch: &BranchId) -> InboxAnswer {
    answer.extra.insert(BRANCH.into(), branch.as_str().into());
    answer
}

/// Returns true if an answer may be meant for a wait of that branch. One that names no branch was written by an
/// older version, and is meant for the branch that reads it.
pub(crate) fn is_for_branch(answer: &InboxAnswer, branch: &BranchId) -> bool {
    answer.extra.get(BRANCH).is_none_or(|named| named.as_str() == Some(branch.as_str()))
}

/// An input as it is kept once it was taken over.
#[derive(Debug, Serialize, Deserialize)]
struct KeptInput {
    message: MessageId,
    input: Json,
    /// The run that begins with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<RunId>,
}

/// An input of the inbox with which no run has begun.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NextInput {
    /// Which it is, from 1.
    pub(crate) number: u64,
    pub(crate) input: Json,
    /// The id its run is to have.
    pub(crate) run: Option<RunId>,
}

/// A message that is the input of a run.
pub(crate) fn marked_input(mut message: InboxMessage) -> InboxMessage {
    message.extra.insert(MARK.into(), true.into());
    message
}

/// Whether a message is the input of a run.
pub(crate) fn is_input(message: &InboxMessage) -> bool {
    message.extra.get(MARK) == Some(&serde_json::Value::Bool(true))
}

/// The run that begins with an input that was taken over.
pub(super) fn run_of_kept(item: &Json) -> Option<RunId> {
    item.decode::<KeptInput>().ok()?.run
}

/// With how many inputs runs have begun.
pub(crate) fn inputs_begun(state: &State) -> Result<u64> {
    Ok(state.register(INPUTS).map(Json::decode).transpose()?.unwrap_or_default())
}

/// The first input with which no run has begun, taken over or not.
pub(crate) fn next_input(state: &State, unread: &[Received]) -> Result<Option<NextInput>> {
    let begun = inputs_begun(state)?;
    let number = begun + 1;
    let index = usize::try_from(begun).unwrap_or(usize::MAX);
    if let Some(item) = state.log(&LogName::new(Inbox::INPUT)?).get(index) {
        let KeptInput { input, run, .. } = item.decode()?;
        return Ok(Some(NextInput { number, input, run }));
    }
    let known = known_messages(state)?;
    let unread = unread.iter().find_map(|entry| match &entry.record {
        Record::InboxMessage(message) if is_input(message) && !known.contains(&message.message) => Some(message),
        _ => None,
    });
    Ok(unread.map(|message| NextInput { number, input: message.content.clone(), run: message.run.clone() }))
}

/// Whether a message for a turn of its own is among the entries.
pub(crate) fn holds_message(state: &State, entries: &[Received]) -> Result<bool> {
    has_message(state, entries)
}

impl Driver {
    /// Between two steps: takes over what arrived in the inbox, and says whether the run is to
    /// stop. An error if the session is no longer ours.
    pub(crate) async fn proceed(&self) -> Result<Option<(Stop, String)>> {
        loop {
            if let Some(error) = self.control().lost() {
                return Err(error);
            }
            let news = self.shared.inbox_news.swap(false, Ordering::SeqCst);
            if self.shared.inbox_rest.swap(false, Ordering::SeqCst) || news {
                let mut core = self.shared.core.lock().await;
                self.take_inbox(&mut core, true).await?;
            }
            let stopping = self.control().stopping();
            // What made us stop must be taken over together with the end of the run.
            if stopping.is_none() || !self.shared.inbox_news.load(Ordering::SeqCst) {
                return Ok(stopping);
            }
        }
    }

    /// Between two steps, for any executor: takes over what arrived in the inbox and, if the run is
    /// to stop, gives the end it should come to. An error if the session is no longer ours.
    pub async fn stop_requested(&self) -> Result<Option<End>> {
        let outcome = |stop| if stop == Stop::Cancel { RunOutcome::Cancelled } else { RunOutcome::Paused };
        Ok(self.proceed().await?.map(|(stop, reason)| End::new(outcome(stop), reason)))
    }

    /// Takes over what stands in the inbox; recorded with the next commit. Commands are obeyed,
    /// unless they were meant for an earlier run.
    pub(super) async fn take_inbox(&self, core: &mut Core, obey: bool) -> Result<()> {
        let taken = core.state.inbox_taken();
        let entries = self.insist(|| read_behind(self.engine(), self.session(), taken.0, TAKE)).await?;
        self.take_over(core, entries, obey).await
    }

    /// Reads the inbox of a session that was opened before.
    pub(super) async fn read_inbox(&self, taken: Seq, info: &SessionInfo) -> Result<Unread> {
        let unread = self.insist(|| read_behind(self.engine(), self.session(), taken.0, TAKE)).await?;
        if unread.len() < TAKE { unread.up_to(taken, info) } else { Ok(unread) }
    }

    /// Takes over everything that stands in the inbox, and gives its end.
    pub(super) async fn take_whole_inbox(&self, core: &mut Core) -> Result<Head> {
        loop {
            let info = self.engine().journal().open(self.session()).await?;
            let head = info.branch(&BranchId::inbox())?.head;
            let before = core.state.inbox_taken();
            if before >= head.seq {
                return Ok(head);
            }
            self.take_inbox(core, true).await?;
            if core.state.inbox_taken() == before {
                self.take_over(core, Unread::default().up_to(before, &info)?, true).await?;
            }
        }
    }

    /// The same with what was read of the inbox before. Records that cannot be read stop the run, unless its policy is
    /// to go on without them, which is recorded.
    pub(super) async fn take_over(&self, core: &mut Core, unread: Unread, obey: bool) -> Result<()> {
        unread.check(self.session(), self.options().on_damaged_inbox)?;
        let Unread { records: mut entries, mut damaged, behind_end } = unread;
        let all = entries.len();
        entries.truncate(fitting(&entries, core.limits.batch_bytes / 4));
        if entries.len() < all {
            let taken = entries.last().map(|entry| entry.seq);
            damaged.retain(|damage| taken.is_some_and(|taken| damage.first <= taken));
        }
        let ends = entries.last().map(|entry| entry.seq).into_iter().chain(damaged.iter().map(|damage| damage.last));
        let Some(last) = ends.max() else { return core.stage(self.passed_over(core, &behind_end)) };
        damaged.extend(behind_end);
        if entries.len() < all || all >= TAKE {
            // The rest follows with the next step.
            self.shared.inbox_rest.store(true, Ordering::SeqCst);
        }
        let mut known = match core.known_messages.take() {
            Some(known) => known,
            None => known_messages(&core.state)?,
        };
        let mut records = self.passed_over(core, &damaged);
        records.push(InboxTaken::new(last).into());
        records.extend(taken_over(&core.state, &entries, self.branch(), &mut known, &core.limits)?);
        core.known_messages = Some(known);
        records.extend(self.shared.pending_stop(&entries, obey)?);
        records.extend(own_run::cancelled_early(&*self.shared.descriptor, &core.state, &entries, self.run())?);
        self.make_room(core, &records).await?;
        core.stage(records)?;
        for entry in &entries {
            if let Record::InboxCommand(command) = &entry.record
                && command.command == Command::Checkpoint
                && self.shared.is_for_us(command, true)
            {
                self.stage_checkpoint_in(core, NewCheckpoint::manual(&command.reason))?;
            }
        }
        self.shared.react(&entries, obey);
        self.shared.inbox_seen.fetch_max(last.0, Ordering::SeqCst);
        Ok(())
    }

    /// The records that say which records of the inbox the run goes on without.
    fn passed_over(&self, core: &Core, damaged: &[Damage]) -> Vec<Record> {
        let known = |lost: &HistoryLost| {
            let same = |known: &HistoryLost| known.branch == lost.branch && known.through == lost.through;
            core.state.lost().iter().any(same)
        };
        let lost = damaged.iter().filter_map(|damage| HistoryLost::of(std::slice::from_ref(damage)));
        let lost = lost.filter(|lost| !known(lost));
        let author = Some(self.shared.author.clone());
        lost.map(|lost| HistoryLost { author: author.clone(), ..lost }.into()).collect()
    }
}

impl Driver {
    /// Takes over what was sent to this very branch while another one ran, which passed it by: answers to
    /// its waits, and commands to the run it goes on from. Messages belong to the branch that ran.
    pub(super) async fn take_passed_by(&self, core: &mut Core, from: Seq, to: Seq, obey: bool) -> Result<()> {
        let mut unread = read_behind(self.engine(), self.session(), from.0, usize::MAX).await?;
        unread.damaged.retain(|damage| damage.first <= to);
        unread.check(self.session(), self.options().on_damaged_inbox)?;
        let Unread { records: mut entries, damaged, .. } = unread;
        entries.retain(|entry| {
            entry.seq <= to
                && match &entry.record {
                    Record::InboxAnswer(answer) => {
                        answer.extra.contains_key(BRANCH) && is_for_branch(answer, self.branch())
                    }
                    Record::InboxCommand(command) => command.only_run.is_some(),
                    _ => false,
                }
        });
        let mut records = self.passed_over(core, &damaged);
        records.extend(taken_over(&core.state, &entries, self.branch(), &mut HashSet::new(), &core.limits)?);
        records.extend(self.shared.pending_stop(&entries, obey)?);
        self.make_room(core, &records).await?;
        core.stage(records)?;
        self.shared.react(&entries, obey);
        Ok(())
    }
}

impl Shared {
    /// What commands and interrupting messages mean for what is under way; unless `all` count, only
    /// commands to this very run.
    pub(super) fn react(&self, entries: &[Received], all: bool) {
        for entry in entries {
            match &entry.record {
                Record::InboxCommand(command) if self.is_for_us(command, all) => self.obey(command),
                Record::InboxMessage(message)
                    if all && message.mode == InboxMode::Interrupt && self.descriptor.reads_messages() =>
                {
                    self.control.interrupt_step();
                }
                _ => {}
            }
        }
    }

    /// Says in the state that the run is to stop, until it has: a command that was taken over must
    /// not be lost by a crash before its run ended.
    fn pending_stop(&self, entries: &[Received], all: bool) -> Result<Option<Record>> {
        let stop = entries.iter().rev().find_map(|entry| match &entry.record {
            Record::InboxCommand(command) if command.command != Command::Checkpoint && self.is_for_us(command, all) => {
                Some(command)
            }
            _ => None,
        });
        let Some(command) = stop else { return Ok(None) };
        Ok(Some(RegisterSet::new(register(STOPPING)?, Json::of(command)?).into()))
    }

    /// Obeys a command that an earlier run had taken over and did not live to obey.
    pub(super) fn obey_pending(&self, state: &State) {
        let pending = state.register(STOPPING).and_then(|json| json.decode::<InboxCommand>().ok());
        if let Some(command) = pending {
            self.obey(&command);
        }
    }

    /// Returns true if a command is meant for this run: one that names it or its lease or, if `all` count, the
    /// run it goes on from or none.
    fn is_for_us(&self, command: &InboxCommand, all: bool) -> bool {
        match &command.only_run {
            None => match command.extra.get(OWNER) {
                Some(owner) => owner.as_str() == Some(self.lease.info.owner.as_str()),
                None => all,
            },
            Some(run) => *run == self.run || (all && self.stands_for.as_ref() == Some(run)),
        }
    }

    pub(super) fn obey(&self, command: &InboxCommand) {
        let by = command.author.as_deref().unwrap_or("somebody");
        let reason = |what: &str| match command.reason.as_str() {
            "" => format!("{what} by {by}"),
            reason => format!("{what} by {by}: {reason}"),
        };
        match command.command {
            Command::Pause => self.control.stop(Stop::Pause, reason("paused")),
            Command::Interrupt => self.control.stop(Stop::Interrupt, reason("interrupted")),
            Command::Cancel => self.control.stop(Stop::Cancel, reason("cancelled")),
            // Marked when it is taken over.
            Command::Checkpoint => {}
        }
    }

    /// When the run is asked to pause, its calls have the grace period to end.
    pub(super) async fn enforce_grace(self: Arc<Self>) {
        self.control.asked().await;
        tokio::time::sleep(self.options.grace).await;
        self.control.stop_calls();
    }
}

/// Something that was put into the inbox.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) seq: Seq,
    /// Time at which it was sent, by the store's time as the sender knew it.
    pub(crate) at: Timestamp,
    pub(crate) record: Record,
}

impl Received {
    pub(crate) fn position(&self) -> Position {
        Position::new(BranchId::inbox(), self.seq)
    }
}

/// What was read of the inbox: records, and damage where there is no telling what was sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread {
    pub(crate) records: Vec<Received>,
    /// Damage within the inbox.
    damaged: Vec<Damage>,
    /// Damage behind its end, where the next record will stand.
    behind_end: Vec<Damage>,
}

impl Deref for Unread {
    type Target = [Received];

    fn deref(&self) -> &[Received] {
        &self.records
    }
}

impl Unread {
    /// Keeps what stands behind a record.
    pub(crate) fn behind(mut self, taken: Seq) -> Self {
        self.records.retain(|received| received.seq > taken);
        self.damaged.retain(|damage| damage.last > taken);
        self
    }

    /// The same, with the damage that the session knows of: what was read behind `taken` may end before the inbox does,
    /// and a store may have noticed damage behind its end.
    pub(crate) fn up_to(mut self, taken: Seq, info: &SessionInfo) -> Result<Self> {
        let (inbox, head) = (BranchId::inbox(), info.branch(&BranchId::inbox())?.head.seq);
        let read = self.records.last().map(|received| received.seq);
        let last = read.into_iter().chain(self.damaged.iter().map(|damage| damage.last)).fold(taken, Seq::max);
        if last < head {
            self.damaged.push(gone(last.next(), head));
        }
        let behind = |damage: &&Damage| damage.branch == inbox && damage.last > taken && is_lost(damage);
        for damage in info.damage.iter().filter(behind) {
            if !self.damaged.iter().any(|known| known.first <= damage.first && known.last >= damage.last) {
                let list = if damage.first > head { &mut self.behind_end } else { &mut self.damaged };
                list.push(damage.clone());
            }
        }
        Ok(self)
    }

    /// All damage.
    pub(crate) fn damage(&self) -> impl Iterator<Item = &Damage> {
        self.damaged.iter().chain(&self.behind_end)
    }

    /// An error if there is damage, unless the policy is to go on without what cannot be read.
    pub(crate) fn check(&self, session: &SessionKey, policy: DamagedInbox) -> Result<()> {
        match self.error(session) {
            Some(error) if policy == DamagedInbox::Stop => Err(error),
            _ => Ok(()),
        }
    }

    /// The error about the records that cannot be read, if there are any.
    pub(crate) fn error(&self, session: &SessionKey) -> Option<Error> {
        let first = self.damage().next()?;
        let spans = self.damage().take(10).map(|damage| match damage.first == damage.last {
            true => damage.first.to_string(),
            false => format!("{} to {}", damage.first, damage.last),
        });
        let (spans, more) = (spans.collect::<Vec<_>>().join(", "), self.damage().count().saturating_sub(10));
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let message = format!(
            "the inbox cannot be read at {spans}{more}: a message, an answer or a command may be lost ({})",
            first.detail
        );
        let hint = "verify the session and look at the records of its inbox; restore it from a copy, or resume and \
                    go on without them (`on_damaged_inbox` = `continue`), then send again what was lost";
        let kind = first.to_error(session).kind().clone();
        Some(Error::new(kind, message).on(session).at(first.position()).hint(hint))
    }
}

/// Returns true if records cannot be read because of it.
fn is_lost(damage: &Damage) -> bool {
    !matches!(damage.kind, DamageKind::Torn | DamageKind::Header | DamageKind::Index | DamageKind::RolledBack)
}

fn gone(first: Seq, last: Seq) -> Damage {
    Damage::new(DamageKind::Missing, BranchId::inbox(), first, last, "the records are gone")
}

/// The records of the inbox behind `seq`, about as many as are wanted, and what cannot be read among them.
pub(crate) async fn read_behind(engine: &Engine, session: &SessionKey, seq: u64, wanted: usize) -> Result<Unread> {
    let mut unread = Unread::default();
    let mut from = Seq(seq).next();
    loop {
        let entries = engine.journal().read(session, &BranchId::inbox(), from, PAGE).await?;
        let full = entries.len() >= PAGE;
        for entry in entries {
            match entry {
                Entry::Batch(batch) => {
                    if batch.first > from {
                        unread.damaged.push(gone(from, batch.first.previous()));
                    }
                    from = batch.last.next();
                    let records = batch.numbered().filter(|(at, _)| at.0 > seq);
                    let received =
                        |(seq, record): (Seq, &Record)| Received { seq, at: batch.at, record: record.clone() };
                    unread.records.extend(records.map(received));
                }
                Entry::Damaged(damage) => {
                    from = damage.last.next().max(from);
                    unread.damaged.push(damage);
                }
            }
        }
        if !full || unread.records.len() >= wanted {
            return Ok(unread);
        }
    }
}

/// How many of the entries, at least one, have no more than so many bytes together.
fn fitting(entries: &[Received], bytes: usize) -> usize {
    let mut left = bytes;
    let fit = entries.iter().take(TAKE).take_while(|entry| {
        let size = match &entry.record {
            Record::InboxMessage(message) => message.content.as_str().len(),
            Record::InboxAnswer(answer) => {
                let values = [&answer.value, &answer.arguments];
                values.into_iter().flatten().map(|value| value.as_str().len()).sum()
            }
            _ => 0,
        };
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    });
    fit.count().max(1).min(entries.len())
}

/// What the entries do to the state.
fn taken_over(
    state: &State,
    entries: &[Received],
    branch: &BranchId,
    known: &mut HashSet<MessageId>,
    limits: &Limits,
) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    let mut answers = HashSet::new();
    let mut waits: BTreeMap<&WaitId, WaitState> = BTreeMap::new();
    for entry in entries {
        match &entry.record {
            Record::InboxMessage(message) if known.insert(message.message.clone()) => {
                records.push(message_record(message, limits)?);
            }
            Record::InboxAnswer(answer) if is_for_branch(answer, branch) && answers.insert(answer.message.clone()) => {
                let Some(wait) = state.wait(&answer.wait) else { continue };
                // One after the other: what an answer may be depends on those before it.
                let wait = waits.entry(&answer.wait).or_insert_with(|| wait.clone());
                let decision = WaitDecision::from(answer);
                let storable = limits::check(&decision.clone().into(), limits).is_ok();
                // Judged by when it was given, however late it is read.
                if storable && check_answer(wait, answer, entry.at).is_ok() {
                    wait.decisions.push(decision.clone());
                    records.push(decision.into());
                }
            }
            _ => {}
        }
    }
    Ok(records)
}

/// Whether there is a message among the entries that was not taken over before.
pub(super) fn has_message(state: &State, entries: &[Received]) -> Result<bool> {
    let known = known_messages(state)?;
    Ok(entries.iter().any(|entry| match &entry.record {
        Record::InboxMessage(message) => !is_input(message) && !known.contains(&message.message),
        _ => false,
    }))
}

/// The messages that were taken over before: somebody may send one again.
pub(super) fn known_messages(state: &State) -> Result<HashSet<MessageId>> {
    let mut known = HashSet::new();
    for log in [Inbox::STEER, Inbox::QUEUE] {
        let items = state.log(&LogName::new(log)?).iter();
        known.extend(items.filter_map(|item| Message::from_json(item).ok()?.id));
    }
    let inputs = state.log(&LogName::new(Inbox::INPUT)?).iter();
    known.extend(inputs.filter_map(|item| Some(item.decode::<KeptInput>().ok()?.message)));
    Ok(known)
}

/// The record that takes a message over. One that is too large is replaced by word of it: it must
/// not stop the session for ever.
fn message_record(message: &InboxMessage, limits: &Limits) -> Result<Record> {
    if is_input(message) {
        // Its size was checked when it was put there; what is too large all the same stops the run.
        let InboxMessage { message, content: input, run, .. } = message.clone();
        let kept = KeptInput { message, input, run };
        return Ok(LogAppend::new(LogName::new(Inbox::INPUT)?, vec![Json::of(&kept)?]).into());
    }
    let log = log_for(message)?;
    let record: Record = LogAppend::new(log.clone(), vec![stored_message(message)?]).into();
    if limits::check(&record, limits).is_ok() {
        return Ok(record);
    }
    let text = format!("[a message of {} bytes was too large to be taken over]", message.content.as_str().len());
    let notice = InboxMessage { content: Json::from(text.as_str()), ..message.clone() };
    Ok(LogAppend::new(log, vec![stored_message(&notice)?]).into())
}

/// A message as somebody put it into the inbox: a stored message, or anything else as text. It
/// keeps the id it was sent with.
fn stored_message(sent: &InboxMessage) -> Result<Json> {
    let message = Message::from_json(&sent.content).unwrap_or_else(|_| {
        let text = sent.content.decode::<String>().unwrap_or_else(|_| sent.content.as_str().to_owned());
        Message::user(text)
    });
    let author = message.author.clone().or_else(|| sent.author.clone());
    let mut message = Message { id: Some(sent.message.clone()), author, ..message };
    own_run::set(&mut message, sent.run.as_ref());
    message.to_json()
}

fn log_for(message: &InboxMessage) -> Result<LogName> {
    LogName::new(match message.mode {
        InboxMode::Queue => Inbox::QUEUE,
        InboxMode::Steer | InboxMode::Interrupt => Inbox::STEER,
    })
}
