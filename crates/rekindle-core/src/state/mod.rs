//! The state of a session at a position: a pure fold of its records. No user code runs.

mod check;
mod compact;
mod diff;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

pub(crate) use compact::compact;
pub use diff::{LogDiff, RegisterChange, RegisterDiff, StateDiff};

use crate::error::Result;
use crate::id::{CheckpointId, EffectId, LogName, RegisterKey, WaitId};
use crate::json::Json;
use crate::position::Seq;
use crate::record::{
    EffectIntent, EffectOutcome, HistoryLost, LogAppendOutcomes, LogSplice, Record, RunEnded, RunStarted, WaitDecision,
    WaitOpened,
};
use crate::status::Status;

/// What a session knows at a position.
///
/// ```
/// use rekindle_core::record::{LogAppend, RegisterSet};
/// use rekindle_core::{Json, LogName, RegisterKey, State};
///
/// let mut state = State::default();
/// let messages = LogName::new("messages")?;
/// state.apply(&LogAppend::new(messages.clone(), vec![Json::from("hello")]).into())?;
/// state.apply(&RegisterSet::new(RegisterKey::new("step")?, Json::parse("1")?).into())?;
/// assert_eq!(state.log(&messages).len(), 1);
/// assert_eq!(state.register("step").unwrap().as_str(), "1");
/// # Ok::<(), rekindle_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    logs: BTreeMap<LogName, Arc<Vec<Json>>>,
    registers: BTreeMap<RegisterKey, Json>,
    effects: BTreeMap<EffectId, EffectState>,
    waits: BTreeMap<WaitId, WaitState>,
    run: Option<RunInfo>,
    status: Status,
    inbox_taken: Seq,
    checkpoint: Option<CheckpointId>,
    unknown: BTreeMap<String, u64>,
    lost: Vec<HistoryLost>,
}

/// An effect as the journal knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectState {
    /// The latest intent.
    pub intent: EffectIntent,
    /// The latest outcome of the latest intent.
    pub outcome: Option<EffectOutcome>,
    /// What the latest attempt has streamed.
    pub partials: Vec<Json>,
    /// It was intended before records of its line were lost: what is on record for it may not be the last of it.
    pub before_loss: bool,
}

impl EffectState {
    /// Whether it ended for good. If not, it is open, and in doubt after a crash.
    pub fn is_settled(&self) -> bool {
        self.outcome.as_ref().is_some_and(EffectOutcome::settles)
    }
}

/// An open wait.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitState {
    /// What it is for.
    pub opened: WaitOpened,
    /// What was decided so far.
    pub decisions: Vec<WaitDecision>,
    /// Whether the reminder was sent.
    pub reminded: bool,
    /// Its time has come, and that is on record: no answer counts any more.
    pub expired: bool,
}

/// The last run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunInfo {
    /// How it began.
    pub started: RunStarted,
    /// How it ended, if it did.
    pub ended: Option<RunEnded>,
}

impl State {
    /// Takes over one record. An error means the record cannot follow the ones before it; the
    /// state is then as it was.
    pub fn apply(&mut self, record: &Record) -> Result<()> {
        if let Some(status) = Status::after(std::slice::from_ref(record)) {
            self.status = status;
        }
        match record {
            Record::LogAppend(append) => self.log_mut(&append.log).extend(append.items.iter().cloned()),
            Record::LogAppendOutcomes(append) => self.append_outcomes(append)?,
            Record::LogSplice(splice) => self.splice(splice)?,
            Record::RegisterSet(set) => match self.registers.get_mut(&set.key) {
                Some(value) => *value = set.value.clone(),
                None => drop(self.registers.insert(set.key.clone(), set.value.clone())),
            },
            Record::RegisterUnset(unset) => drop(self.registers.remove(&unset.key)),
            Record::EffectIntent(intent) if self.counts(record) => {
                let effect =
                    EffectState { intent: intent.clone(), outcome: None, partials: Vec::new(), before_loss: false };
                self.effects.insert(intent.effect.clone(), effect);
            }
            Record::EffectOutcome(outcome) if self.counts(record) => {
                if let Some(effect) = self.effects.get_mut(&outcome.effect) {
                    effect.outcome = Some(outcome.clone());
                    if outcome.settles() {
                        effect.partials = Vec::new();
                    }
                }
            }
            Record::EffectPartial(partial) if self.counts(record) => {
                if let Some(effect) = self.effects.get_mut(&partial.effect) {
                    effect.partials.push(partial.value.clone());
                }
            }
            Record::EffectIntent(_) | Record::EffectOutcome(_) | Record::EffectPartial(_) => {}
            Record::Checkpoint(checkpoint) => self.checkpoint = Some(checkpoint.id.clone()),
            Record::RunStarted(started) => {
                // A new run never looks at the settled effects of an earlier one; a resume does.
                if started.continues.is_none() {
                    self.effects.retain(|_, effect| !effect.is_settled());
                }
                self.run = Some(RunInfo { started: started.clone(), ended: None });
            }
            Record::RunEnded(ended) => {
                if let Some(run) = self.run.as_mut().filter(|run| run.started.run == ended.run) {
                    run.ended = Some(ended.clone());
                }
            }
            Record::WaitOpened(opened) => {
                let wait = WaitState { opened: opened.clone(), decisions: Vec::new(), reminded: false, expired: false };
                self.waits.insert(opened.wait.clone(), wait);
            }
            Record::WaitDecision(decision) => {
                if let Some(wait) = self.waits.get_mut(&decision.wait) {
                    wait.decisions.push(decision.clone());
                }
            }
            Record::WaitReminded(reminded) => {
                if let Some(wait) = self.waits.get_mut(&reminded.wait) {
                    wait.reminded = true;
                }
            }
            Record::WaitExpired(expired) => {
                if let Some(wait) = self.waits.get_mut(&expired.wait) {
                    wait.expired = true;
                }
            }
            Record::WaitClosed(closed) => drop(self.waits.remove(&closed.wait)),
            Record::InboxTaken(taken) => self.inbox_taken = taken.through,
            Record::HistoryLost(lost) => {
                if !lost.branch.is_inbox() {
                    self.effects.values_mut().for_each(|effect| effect.before_loss = true);
                }
                self.lost.push(lost.clone());
            }
            Record::Unknown(unknown) => {
                unknown.check_version()?;
                *self.unknown.entry(unknown.tag.clone()).or_default() += 1;
            }
            Record::RunState(_)
            | Record::CheckpointRemoved(_)
            | Record::CheckpointMarked(_)
            | Record::CheckpointSubstituted(_)
            | Record::InboxMessage(_)
            | Record::InboxCommand(_)
            | Record::InboxAnswer(_)
            | Record::Edit(_)
            | Record::DriftAccepted(_)
            | Record::StaleAccepted(_)
            | Record::Accepted(_)
            | Record::BudgetRaised(_)
            | Record::SessionDescribed(_) => {}
        }
        Ok(())
    }

    /// The items of a log; empty if there is none.
    pub fn log(&self, log: &LogName) -> &[Json] {
        self.logs.get(log).map_or(&[], |items| items.as_slice())
    }

    /// The items of a log, shared: nothing is copied, and the log may grow while it is held (at
    /// the price of one copy then).
    pub fn shared_log(&self, log: &LogName) -> Arc<Vec<Json>> {
        self.logs.get(log).cloned().unwrap_or_default()
    }

    /// All logs.
    pub fn logs(&self) -> impl Iterator<Item = (&LogName, &[Json])> {
        self.logs.iter().map(|(name, items)| (name, items.as_slice()))
    }

    /// A register.
    pub fn register(&self, key: &str) -> Option<&Json> {
        // Ordered by text, so a borrowed look-up needs no new key.
        let key = RegisterKey::new(key).ok()?;
        self.registers.get(&key)
    }

    /// All registers.
    pub fn registers(&self) -> impl Iterator<Item = (&RegisterKey, &Json)> {
        self.registers.iter()
    }

    /// The registers whose names begin with `prefix`.
    pub fn registers_under<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a RegisterKey, &'a Json)> {
        let from = RegisterKey::new(prefix).map_or(Bound::Unbounded, Bound::Included);
        let range = self.registers.range((from, Bound::Unbounded));
        range
            .skip_while(move |(key, _)| key.as_str() < prefix)
            .take_while(move |(key, _)| key.as_str().starts_with(prefix))
    }

    /// An effect of the current line of runs whose outcome was not yet taken into a log.
    pub fn effect(&self, effect: &EffectId) -> Option<&EffectState> {
        self.effects.get(effect)
    }

    /// Effects of the current line of runs, and open ones of earlier runs, whose outcome was not
    /// yet taken into a log.
    pub fn effects(&self) -> impl Iterator<Item = &EffectState> {
        self.effects.values()
    }

    /// Effects that were intended and never settled.
    pub fn open_effects(&self) -> impl Iterator<Item = &EffectState> {
        self.effects.values().filter(|effect| !effect.is_settled())
    }

    /// Open waits.
    pub fn waits(&self) -> impl Iterator<Item = &WaitState> {
        self.waits.values()
    }

    /// An open wait.
    pub fn wait(&self, wait: &WaitId) -> Option<&WaitState> {
        self.waits.get(wait)
    }

    /// The last run.
    pub fn run(&self) -> Option<&RunInfo> {
        self.run.as_ref()
    }

    /// The status as the records say; see [`Status::seen`] for what it means without a lease.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Up to where the inbox was taken over.
    pub fn inbox_taken(&self) -> Seq {
        self.inbox_taken
    }

    /// The last checkpoint.
    pub fn checkpoint(&self) -> Option<&CheckpointId> {
        self.checkpoint.as_ref()
    }

    /// Kinds of records that this build does not know and passed over, with how many.
    pub fn unknown(&self) -> &BTreeMap<String, u64> {
        &self.unknown
    }

    /// Records that could not be read any more and that were passed over.
    pub fn lost(&self) -> &[HistoryLost] {
        &self.lost
    }

    /// Logs and registers as one JSON document: `{"logs":{…},"registers":{…}}`.
    pub fn to_value(&self) -> Result<Value> {
        let list = |items: &[Json]| items.iter().map(Json::to_value).collect::<Result<Vec<_>>>();
        let logs = self.logs.iter().map(|(name, items)| Ok((name.to_string(), Value::Array(list(items)?))));
        let registers = self.registers.iter().map(|(key, value)| Ok((key.to_string(), value.to_value()?)));
        let mut document = Map::new();
        document.insert("logs".into(), Value::Object(logs.collect::<Result<_>>()?));
        document.insert("registers".into(), Value::Object(registers.collect::<Result<_>>()?));
        Ok(Value::Object(document))
    }

    fn log_mut(&mut self, log: &LogName) -> &mut Vec<Json> {
        if !self.logs.contains_key(log) {
            self.logs.insert(log.clone(), Arc::default());
        }
        Arc::make_mut(self.logs.get_mut(log).expect("the log was put in above"))
    }

    /// Whether a record of an effect changes anything. What settled first counts for ever, and a
    /// straggler (of an earlier attempt, or of an effect nobody knows any more) changes nothing.
    fn counts(&self, record: &Record) -> bool {
        let open = |effect: &EffectId, attempt: u32| {
            let state = self.effects.get(effect);
            state.is_some_and(|state| !state.is_settled() && attempt >= state.intent.attempt)
        };
        match record {
            Record::EffectIntent(intent) => !self.effects.get(&intent.effect).is_some_and(EffectState::is_settled),
            Record::EffectOutcome(outcome) => open(&outcome.effect, outcome.attempt),
            Record::EffectPartial(partial) => open(&partial.effect, partial.attempt),
            _ => true,
        }
    }

    fn append_outcomes(&mut self, append: &LogAppendOutcomes) -> Result<()> {
        let values = append.effects.iter().map(|effect| {
            let outcome = self.effects.get(effect).and_then(|state| state.outcome.as_ref());
            let value = outcome.and_then(|outcome| outcome.value.clone());
            value.ok_or_else(|| check::no_value(effect))
        });
        let values: Vec<Json> = values.collect::<Result<_>>()?;
        self.log_mut(&append.log).extend(values);
        // Taken: the log holds the values from here on, and nobody asks for the effect again.
        append.effects.iter().for_each(|effect| drop(self.effects.remove(effect)));
        Ok(())
    }

    fn splice(&mut self, splice: &LogSplice) -> Result<()> {
        let range = check::spliced(splice, self.log(&splice.log).len())?;
        self.log_mut(&splice.log).splice(range, splice.items.iter().cloned());
        Ok(())
    }
}

impl Serialize for State {
    /// Logs and registers, verbatim.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut document = serializer.serialize_struct("State", 2)?;
        document.serialize_field("logs", &self.logs)?;
        document.serialize_field("registers", &self.registers)?;
        document.end()
    }
}

#[cfg(test)]
pub(crate) mod tests;
