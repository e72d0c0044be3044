//! Calls with side effects whose records the store has not confirmed: the source of what a run
//! that lost its store can say about them.

use std::collections::{HashSet, VecDeque};

use rekindle_core::record::{EffectIntent, EffectKind, InDoubtPolicy};
use rekindle_core::{EffectId, Record, Seq, State};

/// The most calls that are named in a message.
const NAMED: usize = 5;

/// Records of calls with side effects that are not known to be on disk, oldest first.
#[derive(Debug, Default)]
pub(super) struct Unsaved(VecDeque<Entry>);

#[derive(Debug)]
struct Entry {
    effect: EffectId,
    name: String,
    /// An outcome; otherwise an intent.
    outcome: bool,
    /// The end of its batch; none while it is staged.
    batch: Option<Seq>,
}

impl Unsaved {
    /// Notes a record that is about to be applied to `state`.
    pub(super) fn note(&mut self, state: &State, record: &Record) {
        let (intent, outcome) = match record {
            Record::EffectIntent(intent) => (Some(intent), false),
            Record::EffectOutcome(outcome) => (state.effect(&outcome.effect).map(|known| &known.intent), true),
            _ => return,
        };
        if let Some(intent) = intent.filter(|intent| has_side_effects(intent)) {
            let (effect, name) = (intent.effect.clone(), intent.name.clone());
            self.0.push_back(Entry { effect, name, outcome, batch: None });
        }
    }

    /// Assigns what was staged so far to the batch that ends at `seq`.
    pub(super) fn enqueued(&mut self, seq: Seq) {
        self.0.iter_mut().rev().take_while(|entry| entry.batch.is_none()).for_each(|entry| entry.batch = Some(seq));
    }

    /// Forgets what is on disk: everything up to `seq`.
    pub(super) fn saved(&mut self, seq: Seq) {
        while self.0.front().is_some_and(|entry| entry.batch.is_some_and(|batch| batch <= seq)) {
            self.0.pop_front();
        }
    }

    /// The calls that began, and whose outcome is not on disk, with their names. `fresh` are those
    /// that were intended and not begun.
    pub(super) fn in_doubt(&self, state: &State, fresh: &HashSet<EffectId>) -> Vec<(String, EffectId)> {
        let intended = |wanted: &Entry| {
            let same = |entry: &&Entry| !entry.outcome && entry.effect == wanted.effect;
            self.0.iter().find(same).map(|entry| entry.batch)
        };
        // An outcome in one batch with its intent belongs to a call that was settled without being made.
        let ended = self.0.iter().filter(|entry| entry.outcome && intended(entry) != Some(entry.batch));
        let mut found: Vec<(String, EffectId)> =
            ended.map(|entry| (entry.name.clone(), entry.effect.clone())).collect();
        // A call begins only once its intent is on disk.
        let begun = |effect: &EffectId| !fresh.contains(effect) && !self.0.iter().any(|entry| entry.effect == *effect);
        let open = state.open_effects().filter(|known| has_side_effects(&known.intent));
        let open = open.filter(|known| known.outcome.is_none() && begun(&known.intent.effect));
        found.extend(open.map(|known| (known.intent.name.clone(), known.intent.effect.clone())));
        let mut seen = HashSet::new();
        found.retain(|(_, effect)| seen.insert(effect.clone()));
        found
    }
}

/// Calls in doubt, for a message.
pub(super) fn named(calls: &[(String, EffectId)]) -> String {
    let mut names: Vec<String> =
        calls.iter().take(NAMED).map(|(name, effect)| format!("`{name}` (effect `{effect}`)")).collect();
    if calls.len() > NAMED {
        names.push(format!("{} more", calls.len() - NAMED));
    }
    names.join(", ")
}

/// Returns true for a call that may do harm if it is made twice.
fn has_side_effects(intent: &EffectIntent) -> bool {
    intent.policy != InDoubtPolicy::ReplaySafe && intent.kind != EffectKind::Model
}
