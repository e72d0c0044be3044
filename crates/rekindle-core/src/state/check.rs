//! Checks a batch of records against a state before any of it is applied, so that a batch is
//! applied whole or not at all.

use std::collections::HashMap;

use super::{EffectState, State};
use crate::error::{Error, Result};
use crate::id::{EffectId, LogName};
use crate::record::{EffectIntent, EffectOutcome, LogAppendOutcomes, LogSplice, Record};

/// The logs and effects a batch depends on, as they are behind the records checked so far.
struct Trial<'a> {
    state: &'a State,
    lengths: HashMap<&'a LogName, usize>,
    effects: HashMap<&'a EffectId, Option<Progress>>,
    /// A new run began within the batch: settled effects of earlier runs are gone.
    forgot_settled: bool,
}

/// The progress of an effect.
#[derive(Clone, Copy)]
struct Progress {
    attempt: u32,
    settled: bool,
    has_value: bool,
}

impl From<&EffectState> for Progress {
    fn from(effect: &EffectState) -> Self {
        let outcome = effect.outcome.as_ref();
        Self {
            attempt: effect.intent.attempt,
            settled: effect.is_settled(),
            has_value: outcome.is_some_and(|outcome| outcome.value.is_some()),
        }
    }
}

impl State {
    /// Returns an error if one of the records cannot follow the ones before it. Costs what the
    /// batch has, however large the state is.
    pub fn check(&self, records: &[Record]) -> Result<()> {
        let mut trial = Trial { state: self, lengths: HashMap::new(), effects: HashMap::new(), forgot_settled: false };
        records.iter().try_for_each(|record| trial.check(record))
    }
}

impl<'a> Trial<'a> {
    fn check(&mut self, record: &'a Record) -> Result<()> {
        match record {
            Record::LogAppend(append) => *self.length(&append.log) += append.items.len(),
            Record::LogAppendOutcomes(append) => self.append_outcomes(append)?,
            Record::LogSplice(splice) => self.splice(splice)?,
            Record::EffectIntent(intent) => self.intend(intent),
            Record::EffectOutcome(outcome) => self.end(outcome),
            Record::RunStarted(started) if started.continues.is_none() => self.forget_settled(),
            Record::Unknown(unknown) => unknown.check_version()?,
            _ => {}
        }
        Ok(())
    }

    fn length(&mut self, log: &'a LogName) -> &mut usize {
        let state = self.state;
        self.lengths.entry(log).or_insert_with(|| state.log(log).len())
    }

    fn effect(&mut self, effect: &'a EffectId) -> &mut Option<Progress> {
        let (state, forgot) = (self.state, self.forgot_settled);
        self.effects.entry(effect).or_insert_with(|| {
            let known = state.effect(effect).map(Progress::from);
            known.filter(|known| !(forgot && known.settled))
        })
    }

    fn intend(&mut self, intent: &'a EffectIntent) {
        let known = self.effect(&intent.effect);
        if known.is_none_or(|known| !known.settled) {
            *known = Some(Progress { attempt: intent.attempt, settled: false, has_value: false });
        }
    }

    fn end(&mut self, outcome: &'a EffectOutcome) {
        if let Some(known) = self.effect(&outcome.effect)
            && !known.settled
            && outcome.attempt >= known.attempt
        {
            (known.settled, known.has_value) = (outcome.settles(), outcome.value.is_some());
        }
    }

    fn forget_settled(&mut self) {
        self.forgot_settled = true;
        self.effects.values_mut().for_each(|known| *known = known.filter(|known| !known.settled));
    }

    fn append_outcomes(&mut self, append: &'a LogAppendOutcomes) -> Result<()> {
        for effect in &append.effects {
            if !self.effect(effect).is_some_and(|known| known.has_value) {
                return Err(no_value(effect));
            }
        }
        append.effects.iter().for_each(|effect| *self.effect(effect) = None);
        *self.length(&append.log) += append.effects.len();
        Ok(())
    }

    fn splice(&mut self, splice: &'a LogSplice) -> Result<()> {
        let length = self.length(&splice.log);
        let removed = spliced(splice, *length)?.len();
        *length = *length - removed + splice.items.len();
        Ok(())
    }
}

/// The error of an outcome that is to be appended and is not there.
pub(super) fn no_value(effect: &EffectId) -> Error {
    Error::corrupt(format!("effect `{effect}` has no value to append"))
}

/// The items a splice replaces in a log of that length.
pub(super) fn spliced(splice: &LogSplice, length: usize) -> Result<std::ops::Range<usize>> {
    let range = usize::try_from(splice.at).ok().zip(usize::try_from(splice.remove).ok());
    let range = range.and_then(|(at, remove)| Some(at..at.checked_add(remove)?));
    range.filter(|range| range.end <= length).ok_or_else(|| {
        Error::corrupt(format!(
            "log `{}` has {} items, so {} cannot be replaced at {}",
            splice.log, length, splice.remove, splice.at
        ))
    })
}
