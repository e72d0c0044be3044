//! Compaction: the records that are still needed to fold to the state at a position. What
//! nothing can see any more goes; audit records, unknown kinds and every log item stay.

use std::collections::{HashMap, HashSet};

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
    for record in &records {
        state.apply(record)?;
        appended.push(match record {
            Record::LogAppendOutcomes(append) => {
                let log = state.log(&append.log);
                Some(log[log.len() - append.effects.len()..].to_vec())
            }
            _ => None,
        });
    }
    let last = LastPlaces::of(&records);
    let kept = records.into_iter().zip(appended).enumerate().filter_map(|(index, (record, appended))| {
        match (&record, appended) {
            (Record::LogAppendOutcomes(append), Some(items))
                if !append.effects.iter().zip(&items).all(|(effect, item)| state.holds(effect, item)) =>
            {
                // Not all of the outcomes stay, so the values move into the log.
                Some(LogAppend { log: append.log.clone(), items, extra: append.extra.clone() }.into())
            }
            _ => last.needs(index, &record, &state).then_some(record),
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
    checkpoint: Option<usize>,
    inbox: Option<usize>,
    run: Option<usize>,
}

impl LastPlaces {
    fn of(records: &[Record]) -> Self {
        let mut last = Self::default();
        let mut settled: HashSet<&EffectId> = HashSet::new();
        for (index, record) in records.iter().enumerate() {
            match record {
                Record::RegisterSet(set) => drop(last.registers.insert(set.key.clone(), index)),
                Record::RegisterUnset(unset) => drop(last.registers.insert(unset.key.clone(), index)),
                Record::EffectIntent(intent) => {
                    settled.remove(&intent.effect);
                    last.intents.insert(intent.effect.clone(), index);
                }
                Record::EffectOutcome(outcome) if !settled.contains(&outcome.effect) => {
                    if outcome.settles() {
                        settled.insert(&outcome.effect);
                    }
                    last.outcomes.insert(outcome.effect.clone(), index);
                }
                Record::Checkpoint(_) => last.checkpoint = Some(index),
                Record::InboxTaken(_) => last.inbox = Some(index),
                Record::RunStarted(_) | Record::RunState(_) | Record::RunEnded(_) => last.run = Some(index),
                _ => {}
            }
        }
        last
    }

    fn needs(&self, index: usize, record: &Record, state: &State) -> bool {
        let after_intent = |effect: &EffectId| self.intents.get(effect).is_none_or(|intent| index > *intent);
        match record {
            Record::RegisterSet(set) => self.registers.get(&set.key) == Some(&index),
            Record::RegisterUnset(_) => false,
            Record::EffectIntent(intent) => {
                state.effects.contains_key(&intent.effect) && self.intents.get(&intent.effect) == Some(&index)
            }
            Record::EffectOutcome(outcome) => {
                state.effects.contains_key(&outcome.effect)
                    && after_intent(&outcome.effect)
                    && self.outcomes.get(&outcome.effect) == Some(&index)
            }
            Record::EffectPartial(partial) => {
                let open = state.effects.get(&partial.effect).is_some_and(|effect| !effect.is_settled());
                open && after_intent(&partial.effect)
            }
            Record::Checkpoint(_) => self.checkpoint == Some(index),
            Record::WaitOpened(opened) => state.waits.contains_key(&opened.wait),
            Record::WaitReminded(reminded) => state.waits.contains_key(&reminded.wait),
            Record::WaitClosed(_) => false,
            Record::InboxTaken(_) => self.inbox == Some(index),
            Record::RunState(_) => self.run == Some(index),
            _ => true,
        }
    }
}
