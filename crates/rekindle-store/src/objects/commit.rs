//! Carrying out a change: decide on the session as it is, write the next change of its log, make
//! sure that it counts.

use std::sync::Arc;

use rekindle_core::{BranchId, Error, Hash, Result, Seq, SessionKey, Timestamp, file_name};

use super::change::Draft;
use super::clock::Now;
use super::index::LineKey;
use super::layout::Folder;
use super::load::overtaken;
use super::state::State;
use super::store::{Inner, Turn};

/// How often other writers may be faster. Each time, one of them has made progress.
const TRIES: usize = 200;

/// The line that a change makes old.
fn line_key(session: &SessionKey, state: &State, draft: &Draft) -> LineKey {
    let info = draft.change.created.as_deref().or(state.info.as_ref());
    let created_at = info.map_or(Timestamp(0), |info| info.created_at);
    LineKey { created_at, name: file_name(session.id.as_str()) }
}

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

    /// The frame whose hash `decide` needs to know.
    fn wants_hash(&self, _state: &State) -> Option<(BranchId, Seq)> {
        None
    }

    fn decide(&self, state: &State, now: &Now, hash: Option<Hash>) -> Result<Verdict<Self::Output>>;
}

impl Inner {
    /// Carries out `operation`, to its end also if the caller goes away; the outcome.
    pub(super) async fn commit<O>(&self, operation: &O) -> Result<O::Output>
    where
        O: Operation<Output: 'static> + Clone + Send + 'static,
    {
        let error = |error: Error| error.during(O::NAME).on(operation.key());
        self.check_writable().map_err(error)?;
        let owned = operation.clone();
        let work = |mut turn: Turn| async move { turn.store.commit_in(&owned, &turn.folder, &mut turn.slot).await };
        self.in_turn(&Folder::of(operation.key()), work).await.map_err(error)
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
                    let key = line_key(operation.key(), state, &draft);
                    self.mark(folder, &operation.key().namespace, &key).await?;
                    if self.write(folder, state, &draft).await? {
                        self.mark(folder, &operation.key().namespace, &key).await?;
                        self.note_change(folder, state);
                        self.compact_if_due(folder, state).await;
                        // What was acknowledged is there; whether its line is, does not matter to it.
                        if draft.change.created.is_none()
                            && let Ok(now) = self.now().await
                        {
                            self.settle(folder, &now).await;
                        }
                        return Ok(outcome);
                    }
                    fresh = true;
                }
                // Of a change whose answer was lost, this is what is known now.
                Ok(Verdict::Settled(outcome)) if fresh => {
                    self.note_change(folder, state);
                    return Ok(outcome);
                }
                Err(refused) if fresh => {
                    self.note_change(folder, state);
                    return Err(refused);
                }
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
        let now = self.now().await?;
        operation.decide(state, &now, hash)
    }

    /// Writes the next change; whether it counts. If not, `state` is as fresh as it can be.
    async fn write(&self, folder: &Folder, state: &mut Arc<State>, draft: &Draft) -> Result<bool> {
        let (number, nonce) = (state.number + 1, self.ids.nonce());
        let bytes = draft.to_bytes(&nonce)?;
        let start = bytes.len() - draft.frames.iter().map(|frame| frame.stored_len()).sum::<usize>();
        let object = state.group.carried_by(number, bytes.clone());
        if !self.bucket.put_new(&folder.log(number), object).await? {
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
