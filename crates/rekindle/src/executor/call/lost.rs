//! Calls that may have been begun in records that are lost: the branch was forked before them.

use rekindle_core::record::{EffectOutcome, Extra, HistoryLost, InDoubtPolicy, OutcomeStatus};
use rekindle_core::{EffectId, EffectState, Record, Result, State};

use super::{Caller, Next, Ready};
use crate::driver::{Driver, Effect};
use crate::executor::Descriptor;

/// Marks the outcome of a call that may have been begun in records that are lost.
const LOST: &str = "history_lost";

/// Why such a call is in doubt.
pub(crate) const WHY: &str = "records behind the fork are lost, and it may have been begun in them";

/// Who decided on a call: what it may have been begun by depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecidedBy {
    /// An answer of a model. A later answer decides anew.
    Model,
    /// A plan, graph or flow, which makes its calls in every run that goes on with it.
    Definition,
}

/// Returns true if a call may have been begun in records that are lost, and that was not settled since. `before` is the
/// try it is made in place of.
pub(crate) fn is_lost(
    descriptor: &dyn Descriptor,
    state: &State,
    effect: &Effect,
    by: DecidedBy,
    before: Option<&EffectId>,
) -> bool {
    if effect.policy == InDoubtPolicy::ReplaySafe {
        return false;
    }
    let known = state.effect(&effect.id).or_else(|| state.effect(before?));
    let unsettled = known.is_none_or(|known| known.before_loss);
    known.is_some_and(is_marked) || (unsettled && covering(descriptor, state, &effect.id, by).next().is_some())
}

/// The losses that may hold the beginning of a call.
fn covering<'a>(
    descriptor: &dyn Descriptor,
    state: &'a State,
    effect: &'a EffectId,
    by: DecidedBy,
) -> impl Iterator<Item = &'a HistoryLost> + use<'a> {
    let turn = descriptor.open_turn(state).filter(|_| by == DecidedBy::Definition);
    let lost = state.lost().iter().filter(|lost| !lost.branch.is_inbox());
    lost.filter(move |lost| lost.calls.contains(effect) || (turn.is_some() && lost.turn == turn))
}

fn is_marked(known: &EffectState) -> bool {
    known.outcome.as_ref().is_some_and(|outcome| outcome.extra.contains_key(LOST))
}

/// The records that put a call in doubt of which nothing is on record: it can be settled by hand from then on.
pub(crate) fn in_doubt(driver: &Driver, effect: &Effect, lost: bool, why: &str) -> Vec<Record> {
    let mut extra = Extra::new();
    if lost {
        extra.insert(LOST.into(), true.into());
    }
    let outcome = EffectOutcome::new(effect.id.clone(), OutcomeStatus::InDoubt, None);
    let outcome = EffectOutcome { error: Some(why.to_owned()), extra, ..outcome };
    vec![driver.intent(effect, 1).into(), outcome.into()]
}

impl Caller<'_> {
    /// Returns true if a call may have been begun in records that are lost.
    pub(super) async fn is_lost(&self, effect: &Effect, before: Option<&EffectId>) -> bool {
        let by = self.shape.decided_by();
        self.driver.read(|state| is_lost(self.driver.descriptor(), state, effect, by, before)).await
    }

    /// Makes a call of which nothing is on record, unless it may have been begun in records that are lost.
    pub(super) async fn make_first(&mut self, mut ready: Ready) -> Result<Next> {
        if !self.is_lost(&ready.effect, None).await {
            return self.make(ready).await;
        }
        let mut records = std::mem::take(&mut ready.effect.alongside);
        records.extend(in_doubt(self.driver, &ready.effect, true, WHY));
        self.driver.commit(records).await?;
        self.doubt(&ready, WHY).await
    }

    /// The idempotency key under which a lost try was made, if there is only one it can have been: keys differ from
    /// branch to branch.
    pub(super) async fn lost_key(&self, effect: &Effect) -> Option<String> {
        let (driver, by) = (self.driver, self.shape.decided_by());
        let find = |state: &State| {
            let tried = state.effect(&effect.id).filter(|known| known.before_loss);
            if let Some(known) = tried {
                return Some(known.intent.idempotency_key.clone());
            }
            let mut branches = covering(driver.descriptor(), state, &effect.id, by).map(|lost| &lost.branch);
            let first = branches.next()?;
            let only = branches.all(|branch| branch == first);
            only.then(|| driver.key_on(first, effect))
        };
        self.driver.read(find).await
    }
}
