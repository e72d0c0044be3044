//! Compaction: the records that are still needed to fold to the state at a position. What
//! nothing can see any more goes; audit records, unknown kinds and every log item stay.

use std::collections::HashMap;

use super::State;
use crate::error::Result;
use crate::id::{EffectId, RegisterKey};
use crate::json::Json;
use crate::record::{LogAppend, Record};

/// The part of `records`, in order, that folds to the same state. Of the checkpoints only the
/// last stays.
pub(crate) fn compact(records: Vec<Record>) -> Result<Vec<Record>> {
    let mut state = State::default();
    // What each record appended to a log by reference, as it was then: an effect may be run
    // again under the same id later.
    let mut appended: Vec<Option<Vec<Json>>> = Vec::with_capacity(records.len());
    let mut last = LastPlaces::default();
    for (index, record) in records.iter().enumerate() {
        if state.counts(record) {
            last.note(index, record);
        }
        state.apply(record)?;
        appended.push(match record {
            Record::LogAppendOutcomes(append) => {
                let log = state.log(&append.log);
                Some(log[log.len() - append.effects.len()..].to_vec())
            }
            _ => None,
        });
    }
    let kept = records.into_iter().zip(appended).enumerate().flat_map(|(index, (record, appended))| {
        match (&record, appended) {
            (Record::LogAppendOutcomes(append), Some(items))
                if !append.effects.iter().zip(&items).all(|(effect, item)| state.holds(effect, item)) =>
            {
                // Not all of the outcomes stay, so the values move into the log, each in a record
                // of its own: together they might be larger than a record may be.
                let items = items.into_iter();
                items.map(|item| LogAppend::new(append.log.clone(), vec![item]).into()).collect()
            }
            _ => Vec::from_iter(last.needs(index, &record, &state).then_some(record)),
        }
    });
    Ok(kept.collect())
}

impl State {
    /// Whether the outcome that stays on record for `effect` is the very one `item` came from.
    fn holds(&self, effect: &EffectId, item: &Json) -> bool {
        let outcome = self.effects.get(effect).and_then(|effect| effect.outcome.as_ref());
        outcome.and_then(|outcome| outcome.value.as_ref()).is_some_and(|value| value.is_shared_with(item))
    }
}

/// Where each thing of which only the last counts was last said.
#[derive(Default)]
struct LastPlaces {
    registers: HashMap<RegisterKey, usize>,
    intents: HashMap<EffectId, usize>,
    outcomes: HashMap<EffectId, usize>,
    partials: HashMap<EffectId, Vec<usize>>,
    checkpoint: Option<usize>,
    inbox: Option<usize>,
    run: Option<usize>,
}

impl LastPlaces {
    /// Notes a record that counts.
    fn note(&mut self, index: usize, record: &Record) {
        match record {
            Record::RegisterSet(set) => drop(self.registers.insert(set.key.clone(), index)),
            Record::RegisterUnset(unset) => drop(self.registers.insert(unset.key.clone(), index)),
            Record::EffectIntent(intent) => {
                self.intents.insert(intent.effect.clone(), index);
                self.outcomes.remove(&intent.effect);
                self.partials.remove(&intent.effect);
            }
            Record::EffectOutcome(outcome) => drop(self.outcomes.insert(outcome.effect.clone(), index)),
            Record::EffectPartial(partial) => self.partials.entry(partial.effect.clone()).or_default().push(index),
            Record::Checkpoint(_) => self.checkpoint = Some(index),
            Record::InboxTaken(_) => self.inbox = Some(index),
            Record::RunStarted(_) | Record::RunState(_) | Record::RunEnded(_) => self.run = Some(index),
            _ => {}
        }
    }

    fn needs(&self, index: usize, record: &Record, state: &State) -> bool {
        let known = |effect: &EffectId| state.effects.contains_key(effect);
        match record {
            Record::RegisterSet(set) => self.registers.get(&set.key) == Some(&index),
            Record::RegisterUnset(_) => false,
            Record::EffectIntent(intent) => known(&intent.effect) && self.intents.get(&intent.effect) == Some(&index),
            Record::EffectOutcome(outcome) => {
                known(&outcome.effect) && self.outcomes.get(&outcome.effect) == Some(&index)
            }
            Record::EffectPartial(partial) => {
                let open = state.effects.get(&partial.effect).is_some_and(|effect| !effect.is_settled());
                open && self.partials.get(&partial.effect).is_some_and(|places| places.contains(&index))
            }
            Record::Checkpoint(_) => self.checkpoint == Some(index),
            Record::WaitOpened(opened) => state.waits.contains_key(&opened.wait),
            Record::WaitReminded(reminded) => state.waits.contains_key(&reminded.wait),
            Record::WaitExpired(expired) => state.waits.contains_key(&expired.wait),
            Record::WaitClosed(_) => false,
            Record::InboxTaken(_) => self.inbox == Some(index),
            Record::RunState(_) => self.run == Some(index),
            _ => true,
        }
    }
}
