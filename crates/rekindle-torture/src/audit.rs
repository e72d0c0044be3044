//! The audit: the journals against the books.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rekindle::record::{EffectKind, InDoubtPolicy, OutcomeStatus, RunOutcome};
use rekindle::{BranchId, Engine, Entry, Record, RunId, Seq, SessionKey};

use crate::Result;
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

/// Compares every session with its books.
pub async fn audit(engine: &Engine, sessions: &[SessionKey], books: &Path) -> Result<Verdict> {
    let mut verdict = Verdict::default();
    for session in sessions {
        let booked = Ledger::of(books, session.id.as_str()).read()?;
        let history = history(engine, session, &mut verdict).await?;
        let report = engine.journal().verify(session, &BTreeMap::new()).await?;
        if !report.is_sound() {
            verdict.faults.push(format!("{session}: the journal is not sound: {report:?}"));
        }
        compare(session, &history, &booked, &mut verdict);
    }
    Ok(verdict)
}

/// The calls of a session by their key. Notes what no history may show.
async fn history(engine: &Engine, session: &SessionKey, verdict: &mut Verdict) -> Result<BTreeMap<String, Call>> {
    let (mut calls, mut keys) = (BTreeMap::new(), BTreeMap::new());
    let mut run: Option<RunId> = None;
    let mut ended = None;
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
                ended = Some(end.outcome);
                Some(&end.run)
            }
            Record::WaitOpened(opened) => opened.run.as_ref(),
            Record::EffectIntent(intent) => {
                if matches!(intent.kind, EffectKind::Tool | EffectKind::Step) && !WAITS.contains(&intent.name.as_str())
                {
                    let call = Call { name: intent.name.clone(), policy: intent.policy, status: None };
                    calls.entry(intent.idempotency_key.clone()).or_insert(call);
                    keys.insert(intent.effect.clone(), intent.idempotency_key.clone());
                }
                intent.run.as_ref()
            }
            Record::EffectOutcome(outcome) => {
                if let Some(call) = keys.get(&outcome.effect).and_then(|key| calls.get_mut(key)) {
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
    match ended {
        Some(RunOutcome::Succeeded | RunOutcome::Idle) => verdict.succeeded += 1,
        // A call that must never be made again fails its step.
        Some(RunOutcome::Failed) if gave_up(&calls) => verdict.failed += 1,
        other => verdict.faults.push(format!("{session}: ended with {other:?}")),
    }
    Ok(calls)
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

fn compare(session: &SessionKey, calls: &BTreeMap<String, Call>, booked: &[Booked], verdict: &mut Verdict) {
    let lines: Vec<&Booked> = booked.iter().filter(|line| line.what != "asked").collect();
    verdict.bookings += lines.len();
    let known: BTreeSet<&str> = calls.keys().map(String::as_str).collect();
    for line in &lines {
        if !known.contains(line.key.as_str()) {
            verdict.faults.push(format!("{session}: {} was booked, and its intent is not on record", line.what));
        }
    }
    let gave_up = gave_up(calls);
    for (key, call) in calls {
        let times = lines.iter().filter(|line| line.key == *key).count();
        let settled = call.status == Some(OutcomeStatus::Ok);
        let right = match call.policy {
            // What had not begun when the session failed was never made.
            InDoubtPolicy::Check => (times == 1 && settled) || (times <= 1 && gave_up),
            InDoubtPolicy::Idempotent | InDoubtPolicy::ReplaySafe => (times >= 1 && settled) || gave_up,
            InDoubtPolicy::Never => times <= 1 && (times == 1 || !settled),
            InDoubtPolicy::Ask => false,
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
