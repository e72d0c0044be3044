//! What two lines of history did, side by side: where they first differ.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use rekindle_core::codec::Batch;
use rekindle_core::record::{EffectIntent, EffectKind, EffectOutcome, OutcomeStatus};
use rekindle_core::{BranchId, EffectId, Hash, Json, LogName, Position, Record, Result, SessionKey, State};
use serde::Serialize;
use serde_json::Value;

use super::at::At;
use super::replay::checked_line;
use crate::engine::Engine;

/// Something a session did, without ids and times.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// Something was said, or put into another log.
    Said {
        /// The log.
        log: LogName,
        /// What.
        item: Value,
    },
    /// A call was made, and what came of it.
    Called {
        /// What kind of call.
        kind: EffectKind,
        /// The tool, model or step.
        name: String,
        /// The digest of its arguments; a model's are what was said before.
        arguments: Option<Hash>,
        /// How it ended, if it did.
        status: Option<OutcomeStatus>,
        /// Its result.
        value: Value,
        /// What went wrong.
        error: Option<String>,
    },
    /// Somebody changed a log by hand.
    Edited {
        /// The log.
        log: LogName,
        /// From this index on.
        index: u64,
        /// How many items went.
        removed: u64,
        /// What came in their place.
        items: Vec<Value>,
    },
}

/// The first difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// How many deeds both have in common before it.
    pub index: usize,
    /// What the first did there; nothing if it had come to its end.
    pub a: Option<Deed>,
    /// What the second did there.
    pub b: Option<Deed>,
}

/// Two lines of history side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Where the first ends.
    pub a: Position,
    /// Where the second ends.
    pub b: Position,
    /// Whether both did the same.
    pub same: bool,
    /// How many deeds of each were compared.
    pub deeds: (usize, usize),
    /// Whether only what was said could be compared, as the calls of one were compacted away.
    pub messages_only: bool,
    /// The first difference.
    pub difference: Option<Difference>,
}

/// Compares what two lines of history did: what was said, which calls were made and what came of
/// them, in order. Ids and times do not count, nor does the order in which parallel calls ended or
/// how often a call was tried.
pub async fn compare(engine: &Engine, a: (&SessionKey, &At), b: (&SessionKey, &At)) -> Result<Comparison> {
    let mut first = past(engine, a.0, a.1).await.map_err(|error| error.during("compare").on(a.0))?;
    let mut second = past(engine, b.0, b.1).await.map_err(|error| error.during("compare").on(b.0))?;
    let messages_only = first.compacted || second.compacted;
    if messages_only {
        first.deeds = said(&first.state)?;
        second.deeds = said(&second.state)?;
    }
    let (one, two) = (&first.deeds, &second.deeds);
    let index = one.iter().zip(two).take_while(|(a, b)| a == b).count();
    let (in_a, in_b) = (one.get(index).cloned(), two.get(index).cloned());
    let difference = (in_a.is_some() || in_b.is_some()).then_some(Difference { index, a: in_a, b: in_b });
    Ok(Comparison {
        same: difference.is_none(),
        deeds: (one.len(), two.len()),
        messages_only,
        difference,
        a: first.position,
        b: second.position,
    })
}

struct Past {
    position: Position,
    state: State,
    deeds: Vec<Deed>,
    compacted: bool,
}

async fn past(engine: &Engine, session: &SessionKey, at: &At) -> Result<Past> {
    let (info, position) = at.locate(engine, session).await?;
    let line = checked_line(engine, &info, &position).await?;
    let mut chronicle = Chronicle { state: line.first_state(engine, session).await?, ..Chronicle::default() };
    let mut visit = |_: &BranchId, batch: &Batch| {
        batch.records.iter().try_for_each(|record| chronicle.take(record))?;
        Ok(ControlFlow::Continue(()))
    };
    let _ = line.walk(engine, session, &mut visit).await?;
    let Chronicle { state, deeds, .. } = chronicle;
    Ok(Past { position, state, deeds, compacted: line.base.is_some() })
}

/// What is said in the logs of a state, in the order of their names.
fn said(state: &State) -> Result<Vec<Deed>> {
    let mut names = Names::default();
    let mut deeds = Vec::new();
    for (log, items) in state.logs().filter(|(log, _)| counts(log)) {
        for item in items {
            deeds.push(Deed::Said { log: log.clone(), item: names.plain(item)? });
        }
    }
    Ok(deeds)
}

/// Collects deeds, record by record.
#[derive(Default)]
struct Chronicle {
    state: State,
    names: Names,
    deeds: Vec<Deed>,
    /// Where the deed of a call stands.
    calls: BTreeMap<EffectId, usize>,
}

impl Chronicle {
    fn take(&mut self, record: &Record) -> Result<()> {
        let before = grown(record).map_or(0, |log| self.state.log(log).len());
        self.state.apply(record)?;
        match record {
            Record::EffectIntent(intent) => self.called(intent),
            Record::EffectOutcome(outcome) if outcome.settles() => self.ended(outcome)?,
            Record::LogAppend(append) if counts(&append.log) => self.said(&append.log, before)?,
            Record::LogAppendOutcomes(append) => {
                self.said(&append.log, before)?;
                self.calls.retain(|effect, _| !append.effects.contains(effect));
            }
            Record::LogSplice(splice) => {
                let items = splice.items.iter().map(|item| self.names.plain(item)).collect::<Result<_>>()?;
                let log = splice.log.clone();
                self.deeds.push(Deed::Edited { log, index: splice.at, removed: splice.remove, items });
            }
            _ => {}
        }
        Ok(())
    }

    fn called(&mut self, intent: &EffectIntent) {
        // Only the first try is a deed; the others are the same call.
        if !self.calls.contains_key(&intent.effect) {
            self.calls.insert(intent.effect.clone(), self.deeds.len());
            self.deeds.push(Deed::Called {
                kind: intent.kind,
                name: intent.name.clone(),
                arguments: Some(intent.arguments_hash).filter(|_| intent.kind != EffectKind::Model),
                status: None,
                value: Value::Null,
                error: None,
            });
        }
    }

    fn ended(&mut self, outcome: &EffectOutcome) -> Result<()> {
        let Some(index) = self.calls.get(&outcome.effect) else { return Ok(()) };
        let result = outcome.value.as_ref().map(|value| self.names.plain(value)).transpose()?;
        if let Some(Deed::Called { status, value, error, .. }) = self.deeds.get_mut(*index)
            && status.is_none()
        {
            *status = Some(outcome.status);
            *value = result.unwrap_or(Value::Null);
            error.clone_from(&outcome.error);
        }
        Ok(())
    }

    /// What a log has more than before.
    fn said(&mut self, log: &LogName, before: usize) -> Result<()> {
        for item in &self.state.log(log)[before..] {
            let item = self.names.plain(item)?;
            self.deeds.push(Deed::Said { log: log.clone(), item });
        }
        Ok(())
    }
}

/// The log that a record makes longer.
fn grown(record: &Record) -> Option<&LogName> {
    match record {
        Record::LogAppend(append) => Some(&append.log),
        Record::LogAppendOutcomes(append) => Some(&append.log),
        _ => None,
    }
}

/// Whether a log says what was done. Those of the inbox say only how a message came in.
fn counts(log: &LogName) -> bool {
    !log.as_str().starts_with("inbox/")
}

/// Takes the times out of what a plan keeps of a step, and a graph of a visit.
fn drop_times(value: &mut Value) {
    const STEP: [&str; 4] = ["step_id", "output", "completed_at", "duration_ms"];
    const VISIT: [&str; 4] = ["step", "node", "visit", "duration_ms"];
    let Some(fields) = value.as_object_mut() else { return };
    let has = |names: [&str; 4]| names.iter().all(|name| fields.contains_key(*name));
    if has(STEP) || has(VISIT) {
        fields.remove("completed_at");
        fields.remove("duration_ms");
    }
}

/// Names the calls by the order in which they appear, whatever ids a provider gave them.
#[derive(Default)]
struct Names(HashMap<String, usize>);

impl Names {
    /// A message without ids, a step or a visit without times; anything else as it is.
    fn plain(&mut self, item: &Json) -> Result<Value> {
        let mut value = item.to_value()?;
        drop_times(&mut value);
        let is_message = value.get("role").is_some() && value.get("parts").is_some_and(Value::is_array);
        let Some(message) = value.as_object_mut().filter(|_| is_message) else { return Ok(value) };
        message.remove("id");
        message.remove("response");
        let parts = message.get_mut("parts").and_then(Value::as_array_mut);
        for part in parts.into_iter().flatten() {
            if let Some(id) = part.pointer_mut("/tool_call/id") {
                self.rename(id);
            }
            if let Some(id) = part.pointer_mut("/tool_result/call") {
                self.rename(id);
            }
        }
        Ok(value)
    }

    fn rename(&mut self, id: &mut Value) {
        if let Some(text) = id.as_str() {
            let next = self.0.len();
            *id = (*self.0.entry(text.to_owned()).or_insert(next)).into();
        }
    }
}
