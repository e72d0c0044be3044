//! The audit: the journals against the books.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rekindle::core::record::{EffectKind, InDoubtPolicy, OutcomeStatus, RunOutcome, WaitCloseReason, WaitClosed};
use rekindle::core::{Entry, Record, Seq};
use rekindle::{BranchId, Engine, RunId, SessionKey};

use crate::Result;
use crate::cashier::{PAY, is_cashier};
use crate::hands::Deeds;
use crate::ledger::{Booked, Ledger};

/// How many batches are read at once.
const PAGE: usize = 500;

/// Steps of the flow that book nothing.
const WAITS: [&str; 2] = ["wait", "rest"];

/// What the audit found.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Sessions that succeeded.
    pub succeeded: usize,
    /// Sessions that failed, as the policy of a call says.
    pub failed: usize,
    /// Sessions that were cancelled, as somebody wanted.
    pub cancelled: usize,
    /// Waits that were answered, and that expired.
    pub answered: usize,
    pub expired: usize,
    /// Runs in all: more than sessions, since runs were taken over.
    pub runs: usize,
    /// Records in all.
    pub records: usize,
    /// Lines in the books.
    pub bookings: usize,
    /// Lines under a key that had one, where the policy allows it.
    pub repeated: usize,
    /// Calls that ended in doubt, as their policy says.
    pub in_doubt: usize,
    /// What is not as it must be.
    pub faults: Vec<String>,
}

/// A call as the journal has it.
#[derive(Clone, Debug)]
struct Call {
    name: String,
    policy: InDoubtPolicy,
    status: Option<OutcomeStatus>,
}

/// What the journal has of a session.
#[derive(Clone, Debug, Default)]
struct History {
    /// Its calls, by their key.
    calls: BTreeMap<String, Call>,
    /// How its last run ended.
    ended: Option<RunOutcome>,
    /// The approvals that are over.
    closed: Vec<WaitClosed>,
}

impl History {
    /// Something ended the session before all its calls were made.
    fn was_cut_short(&self) -> bool {
        gave_up(&self.calls) || self.ended == Some(RunOutcome::Cancelled)
    }

    /// A call was not made because a person, or the lack of an answer, said no.
    fn was_refused(&self, call: &Call) -> bool {
        let no = |closed: &WaitClosed| closed.value.as_ref().is_some_and(|value| value.as_str() == "false");
        call.name == PAY && self.closed.iter().any(no)
    }
}

/// Compares every session with its books, and with what people were told.
pub async fn audit(engine: &Engine, sessions: &[SessionKey], books: &Path, deeds: &Deeds) -> Result<Verdict> {
    let mut verdict = Verdict::default();
    for session in sessions {
        let booked = Ledger::of(books, session.id.as_str()).read()?;
        let history = history(engine, session, &mut verdict).await?;
        judge_end(session, &history, deeds, &mut verdict);
        judge_answers(session, &history, deeds, &mut verdict);
        let report = engine.journal().verify(session, &BTreeMap::new()).await?;
        if !report.is_sound() {
            verdict.faults.push(format!("{session}: the journal is not sound: {report:?}"));
        }
        compare(session, &history, &booked, &mut verdict);
    }
    Ok(verdict)
}

/// The history of a session. Notes what none may show.
async fn history(engine: &Engine, session: &SessionKey, verdict: &mut Verdict) -> Result<History> {
    let (mut history, mut keys) = (History::default(), BTreeMap::new());
    let mut run: Option<RunId> = None;
    for record in records(engine, session).await? {
        verdict.records += 1;
        let by = match &record {
            Record::RunStarted(started) => {
                verdict.runs += 1;
                run = Some(started.run.clone());
                None
            }
            Record::RunState(state) => Some(&state.run),
            Record::RunEnded(end) => {
                history.ended = Some(end.outcome);
                Some(&end.run)
            }
            Record::WaitOpened(opened) => opened.run.as_ref(),
            Record::WaitClosed(closed) => {
                history.closed.push(closed.clone());
                None
            }
            Record::EffectIntent(intent) => {
                if matches!(intent.kind, EffectKind::Tool | EffectKind::Step) && !WAITS.contains(&intent.name.as_str())
                {
                    let call = Call { name: intent.name.clone(), policy: intent.policy, status: None };
                    history.calls.entry(intent.idempotency_key.clone()).or_insert(call);
                    keys.insert(intent.effect.clone(), intent.idempotency_key.clone());
                }
                intent.run.as_ref()
            }
            Record::EffectOutcome(outcome) => {
                if let Some(call) = keys.get(&outcome.effect).and_then(|key| history.calls.get_mut(key)) {
                    call.status = Some(outcome.status);
                }
                None
            }
            _ => None,
        };
        // Whoever is not the last to have begun must not write any more.
        if by.is_some() && by != run.as_ref() {
            verdict.faults.push(format!("{session}: {by:?} wrote after {run:?} had begun"));
        }
    }
    Ok(history)
}

fn judge_end(session: &SessionKey, history: &History, deeds: &Deeds, verdict: &mut Verdict) {
    match history.ended {
        Some(RunOutcome::Cancelled) if deeds.unwanted.contains(session) => verdict.cancelled += 1,
        _ if deeds.cancelled.contains(session) => {
            verdict.faults.push(format!("{session}: was said to be cancelled, and ended with {:?}", history.ended));
        }
        Some(RunOutcome::Succeeded | RunOutcome::Idle) => verdict.succeeded += 1,
        // A call that must never be made again fails its step.
        Some(RunOutcome::Failed) if gave_up(&history.calls) => verdict.failed += 1,
        other => verdict.faults.push(format!("{session}: ended with {other:?}")),
    }
}

/// A wait ends once, and as everybody was told who was told anything.
fn judge_answers(session: &SessionKey, history: &History, deeds: &Deeds, verdict: &mut Verdict) {
    if !is_cashier(session) {
        return;
    }
    verdict.answered += history.closed.iter().filter(|closed| closed.reason == WaitCloseReason::Answered).count();
    verdict.expired += history.closed.iter().filter(|closed| closed.reason == WaitCloseReason::Expired).count();
    if history.closed.len() > 1 {
        verdict.faults.push(format!("{session}: its wait ended more than once: {:?}", history.closed));
    }
    for (_, yes) in deeds.answers.iter().filter(|(answered, _)| answered == session) {
        let counts = history.closed.iter().any(|closed| match closed.reason {
            WaitCloseReason::Answered => closed.value.as_ref().is_some_and(|value| value.as_str() == yes.to_string()),
            WaitCloseReason::Cancelled => true,
            WaitCloseReason::Expired => false,
        });
        if !counts {
            let closed = &history.closed;
            verdict.faults.push(format!("{session}: the answer {yes} was acknowledged, and its wait is {closed:?}"));
        }
    }
}

/// Whether a call that must never be made again was under way when its process died.
fn gave_up(calls: &BTreeMap<String, Call>) -> bool {
    calls.values().any(|call| call.policy == InDoubtPolicy::Never && call.status != Some(OutcomeStatus::Ok))
}

async fn records(engine: &Engine, session: &SessionKey) -> Result<Vec<Record>> {
    let (mut records, mut from) = (Vec::new(), Seq(1));
    loop {
        let entries = engine.journal().read(session, &BranchId::main(), from, PAGE).await?;
        let full = entries.len() == PAGE;
        for entry in entries {
            match entry {
                Entry::Batch(batch) => {
                    from = batch.last.next();
                    records.extend(batch.records);
                }
                Entry::Damaged(damage) => return Err(format!("{session}: {damage:?}").into()),
            }
        }
        if !full {
            return Ok(records);
        }
    }
}

fn compare(session: &SessionKey, history: &History, booked: &[Booked], verdict: &mut Verdict) {
    let calls = &history.calls;
    let lines: Vec<&Booked> = booked.iter().filter(|line| line.what != "asked").collect();
    verdict.bookings += lines.len();
    let known: BTreeSet<&str> = calls.keys().map(String::as_str).collect();
    for line in &lines {
        if !known.contains(line.key.as_str()) {
            verdict.faults.push(format!("{session}: {} was booked, and its intent is not on record", line.what));
        }
    }
    let cut_short = history.was_cut_short();
    for (key, call) in calls {
        let times = lines.iter().filter(|line| line.key == *key).count();
        let settled = call.status == Some(OutcomeStatus::Ok);
        let right = match call.policy {
            _ if history.was_refused(call) => times == 0,
            // What had not begun when the session ended early was never made.
            InDoubtPolicy::Check => (times == 1 && settled) || (times <= 1 && cut_short),
            InDoubtPolicy::Idempotent | InDoubtPolicy::ReplaySafe => (times >= 1 && settled) || cut_short,
            InDoubtPolicy::Never => times <= 1 && (times == 1 || !settled),
            // Noted for a call that was cancelled before its policy was looked at.
            InDoubtPolicy::Ask => times == 0 && call.status == Some(OutcomeStatus::Cancelled) && cut_short,
        };
        verdict.repeated += times.saturating_sub(1);
        verdict.in_doubt += usize::from(call.policy == InDoubtPolicy::Never && !settled);
        if !right {
            let status = call.status;
            verdict.faults.push(format!(
                "{session}: {} ({:?}) was booked {times} times and is {status:?}",
                call.name, call.policy
            ));
        }
    }
}
