//! From objects to a session's state.
//!
//! The rule behind everything here: a change is deleted only after every snapshot older than the
//! one that holds it is. So as long as the snapshot a state rests on still stands, a change that
//! is absent was never written, and one that is there counts.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use rekindle_core::{Error, ErrorKind, Result};

use super::change::Change;
use super::envelope;
use super::layout::{Folder, Kind};
use super::state::State;
use super::store::Inner;

/// How much of a change is read at first: mostly all of it.
const FIRST_READ: u64 = 64 << 10;
/// How many changes are asked for at once, at most.
const MOST_AT_ONCE: usize = 16;
/// How often a session may be overtaken by snapshots while it is being read.
const TRIES: usize = 20;

impl Inner {
    /// The state of a session, read from nothing.
    pub(super) async fn load(&self, folder: &Folder) -> Result<Arc<State>> {
        for _ in 0..TRIES {
            let Some(head) = self.newest_head(folder).await? else { return Ok(Arc::default()) };
            let name = folder.head(head);
            let Some(bytes) = self.bucket.get(&name).await? else { continue };
            let mut state = Arc::new(State::from_snapshot(head, &name, &bytes)?);
            let whole = self.follow(folder, &mut state, 4).await?;
            // Listed again rather than looked at: between the list and the read the number may have
            // been cleared away and written once more by a writer that is about to take it back.
            if whole && self.newest_head(folder).await? == Some(head) {
                return Ok(state);
            }
        }
        Err(overtaken(folder))
    }

    /// The same state as it is now.
    pub(super) async fn refresh(&self, folder: &Folder, state: &mut Arc<State>) -> Result<()> {
        if state.head != 0 && self.follow(folder, state, 1).await? && self.head_stands(folder, state).await? {
            return Ok(());
        }
        *state = self.load(folder).await?;
        Ok(())
    }

    /// Whether the snapshot that `state` rests on still stands. Until then nothing that was seen
    /// of the log may be relied on.
    pub(super) async fn head_stands(&self, folder: &Folder, state: &State) -> Result<bool> {
        let found = self.bucket.get_range(&folder.head(state.head), 0..envelope::IDENTITY).await?;
        // Compared by nonce: a writer that stood still for long may have written the number again.
        Ok(found.is_some_and(|found| found[..] == envelope::identity(&state.head_nonce)))
    }

    async fn newest_head(&self, folder: &Folder) -> Result<Option<u64>> {
        let mut newest = None;
        // A directory is not listed at one instant: while it is read, the newest may go and a newer
        // one come behind what was read already. The second look sees that one.
        for _ in 0..if self.bucket.is_local() { 2 } else { 1 } {
            let listed = self.list_all(&folder.heads()).await?;
            let numbers = listed.iter().filter_map(|listed| match folder.kind_of(&listed.name) {
                Some(Kind::Head(number)) => Some(number),
                _ => None,
            });
            newest = newest.max(numbers.max());
        }
        Ok(newest)
    }

    /// Takes over all changes behind `state`, asking for `width` at once at first. Not all were there
    /// if a newer snapshot came in between: then the session is to be read anew.
    async fn follow(&self, folder: &Folder, state: &mut Arc<State>, mut width: usize) -> Result<bool> {
        let mut seen_beyond = 0;
        loop {
            let first = state.number + 1;
            let names: Vec<String> = (first..first + width as u64).map(|number| folder.log(number)).collect();
            let reads: Vec<_> = names.iter().map(|name| self.read_change(name)).collect();
            let found = try_join_all(reads).await?;
            let present = found.iter().rposition(Option::is_some).map_or(0, |at| first + at as u64);
            let found: Vec<_> = names.iter().zip(found).map_while(|(name, found)| Some((name, found?))).collect();
            if found.is_empty() {
                // Two requests at once may find the second of two changes but not the first; a
                // second look decides.
                if present.max(seen_beyond) <= first {
                    return Ok(true);
                }
                if seen_beyond > first {
                    return self.hole(folder, state, first).await;
                }
                seen_beyond = present;
                width = 1;
                continue;
            }
            let state = Arc::make_mut(state);
            for (name, bytes) in found {
                let (nonce, change, start) = envelope::decode::<Change>(name, &bytes)?;
                state.fold(nonce, change, &bytes, start);
            }
            if state.number + 1 < first + width as u64 && present <= state.number {
                return Ok(true);
            }
            width = (width * 2).min(MOST_AT_ONCE);
        }
    }

    /// A change is missing although later ones are there: the older went with a newer snapshot, or
    /// it is lost.
    async fn hole(&self, folder: &Folder, state: &State, number: u64) -> Result<bool> {
        if self.newest_head(folder).await? != Some(state.head) {
            return Ok(false);
        }
        let message = format!("the object `{}` is missing, and later ones are there", folder.log(number));
        Err(Error::corrupt(message).hint("restore the object from a version or a copy of the bucket"))
    }

    /// A change's object, or the part of it that holds the header.
    async fn read_change(&self, name: &str) -> Result<Option<Bytes>> {
        let Some(bytes) = self.bucket.get_range(name, 0..FIRST_READ).await? else { return Ok(None) };
        match envelope::header_end(name, &bytes)? > bytes.len() && bytes.len() as u64 == FIRST_READ {
            true => self.bucket.get(name).await,
            false => Ok(Some(bytes)),
        }
    }
}

pub(super) fn overtaken(folder: &Folder) -> Error {
    let message = format!("other writers were faster every time below `{}`", folder.path());
    Error::new(ErrorKind::StoreUnavailable, message)
}
