//! Carrying out a change: decide on the session as it is, write the next change of its log, make
//! sure that it counts.

use std::sync::Arc;

use rekindle_core::{BranchId, Error, Hash, Result, Seq, SessionKey, Timestamp};

use super::change::Draft;
use super::clock::Side;
use super::layout::Folder;
use super::load::overtaken;
use super::state::State;
use super::store::Inner;

/// How often other writers may be faster. Each time, one of them has made progress.
const TRIES: usize = 200;

/// What the rules say about an operation.
pub(super) enum Verdict<T> {
    /// There is nothing to write.
    Settled(T),
    /// This is to be written.
    Write(Box<Draft>, T),
}

/// An operation that changes a session.
pub(super) trait Operation: Sync {
    type Output: Send;

    /// For errors.
    const NAME: &'static str;

    fn key(&self) -> &SessionKey;

    /// Who asks, for the clock.
    fn side(&self) -> Side {
        Side::Other
    }

    /// The frame whose hash `decide` needs to know.
    fn wants_hash(&self, _state: &State) -> Option<(BranchId, Seq)> {
        None
    }

    fn decide(&self, state: &State, now: Timestamp, hash: Option<Hash>) -> Result<Verdict<Self::Output>>;
}

impl Inner {
    /// Carries out `operation`; the outcome, and the state in which it counts.
    pub(super) async fn commit<O: Operation>(&self, operation: &O) -> Result<O::Output> {
        let error = |error: Error| error.during(O::NAME).on(operation.key());
        self.check_writable().map_err(error)?;
        let folder = Folder::of(operation.key());
        let slot = self.slot(&folder);
        let mut slot = slot.lock().await;
        self.commit_in(operation, &folder, &mut slot).await.map_err(error)
    }

    /// The same, in the slot of the session: nobody else of this process changes it meanwhile.
    pub(super) async fn commit_in<O: Operation>(
        &self,
        operation: &O,
        folder: &Folder,
        slot: &mut Option<Arc<State>>,
    ) -> Result<O::Output> {
        // What this process remembers may be old: good enough to write by, because the write
        // itself finds out, but not to refuse or to answer by.
        let mut fresh = slot.is_none();
        for _ in 0..TRIES {
            let state = self.remembered(folder, slot).await?;
            match self.verdict(operation, folder, state).await {
                Ok(Verdict::Write(draft, outcome)) => {
                    if self.write(folder, state, &draft).await? {
                        self.compact_if_due(folder, state).await;
                        return Ok(outcome);
                    }
                    fresh = true;
                }
                Ok(Verdict::Settled(outcome)) if fresh => return Ok(outcome),
                Err(refused) if fresh => return Err(refused),
                _ => {
                    self.refresh(folder, state).await?;
                    fresh = true;
                }
            }
        }
        Err(overtaken(folder))
    }

    pub(super) async fn remembered<'a>(
        &self,
        folder: &Folder,
        slot: &'a mut Option<Arc<State>>,
    ) -> Result<&'a mut Arc<State>> {
        let state = match slot.take() {
            Some(state) => state,
            None => self.load(folder).await?,
        };
        Ok(slot.insert(state))
    }

    async fn verdict<O: Operation>(&self, operation: &O, folder: &Folder, state: &State) -> Result<Verdict<O::Output>> {
        let hash = match operation.wants_hash(state) {
            Some((branch, seq)) => self.hash_at(folder, state, &branch, seq).await?,
            None => None,
        };
        let now = self.now(operation.side()).await?;
        operation.decide(state, now, hash)
    }

    /// Writes the next change; whether it counts. If not, `state` is as fresh as it can be.
    async fn write(&self, folder: &Folder, state: &mut Arc<State>, draft: &Draft) -> Result<bool> {
        let (number, nonce) = (state.number + 1, self.ids.nonce());
        let bytes = draft.to_bytes(&nonce)?;
        let start = bytes.len() - draft.frames.iter().map(|frame| frame.stored_len()).sum::<usize>();
        if !self.bucket.put_new(&folder.log(number), bytes.clone()).await? {
            self.refresh(folder, state).await?;
            return Ok(state.remembers(&nonce));
        }
        if self.head_stands(folder, state).await? {
            Arc::make_mut(state).fold(nonce, draft.change.clone(), &bytes, start);
            return Ok(true);
        }
        // A snapshot came: before this change, behind it, or with it inside.
        *state = self.load(folder).await?;
        if state.remembers(&nonce) {
            return Ok(true);
        }
        if state.through >= number {
            // The number was used before: what was written is read by nobody.
            let _ = self.bucket.delete(&folder.log(number)).await;
        }
        Ok(false)
    }
}
