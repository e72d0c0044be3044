//! From objects to a session's state.
//!
//! The rule behind everything here: a change is deleted only after every snapshot older than the
//! one that holds it is. So as long as the snapshot a state rests on still stands, a change that
//! is absent was never written, and one that is there counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use rekindle_core::{Error, ErrorKind, Result};

use super::backend::Tag;
use super::carry::{carried, group_start};
use super::change::Change;
use super::envelope;
use super::layout::{Folder, Kind};
use super::state::State;
use super::store::Inner;

/// How much of a change is read at first: mostly all of it.
const FIRST_READ: u64 = 64 << 10;
/// How much of a change is read that carries others along.
const GROUP_READ: u64 = 320 << 10;
/// How many changes are asked for at once, at most.
const MOST_AT_ONCE: usize = 16;
/// How often a session may be overtaken by snapshots while it is being read.
const TRIES: usize = 20;

/// How often a session is listed before it counts as one that has lost its snapshots.
const HEADLESS_LOOKS: usize = 3;

/// What a listing shows of a session.
#[derive(Default)]
struct Survey {
    /// The number of the newest snapshot.
    head: Option<u64>,
    /// The version of it that was listed.
    tag: Option<Tag>,
    /// The changes that were listed.
    changes: BTreeSet<u64>,
    /// The name of an object that is no snapshot. The first one of a session is written behind its first snapshot.
    other: Option<String>,
}

/// A change as it was read: its own object, or a copy that another one carried along.
struct Found {
    bytes: Bytes,
    is_copy: bool,
}

impl Inner {
    /// The state of a session, read from nothing: one listing, the last change of each group, and last the
    /// snapshot. That the very version that was listed still stands then shows that no change behind it was
    /// deleted in between.
    pub(super) async fn load(&self, folder: &Folder) -> Result<Arc<State>> {
        for attempt in 1..=TRIES {
            let survey = self.survey(folder).await?;
            let head = match (survey.head, survey.other) {
                (Some(head), _) => head,
                (None, None) => return Ok(Arc::default()),
                // A directory is not listed at one instant.
                (None, Some(_)) if attempt < HEADLESS_LOOKS => continue,
                (None, Some(other)) => return Err(headless(folder, &other)),
            };
            let found = self.read_groups(folder, &survey.changes).await?;
            let name = folder.head(head);
            let Some((bytes, tag)) = self.bucket.get_tagged(&name).await? else { continue };
            let mut state = State::from_snapshot(head, &name, &bytes)?;
            if !self.take_over(folder, &mut state, found, &survey.changes).await? {
                continue;
            }
            // A number may be cleared away and written once more, by a writer that is about to take it
            // back. Where listings do not tell versions, being the newest to the end tells as much.
            let same = survey.tag.is_some_and(|listed| listed.is_same(&tag));
            if same || self.newest_head(folder).await? == Some(head) {
                return Ok(Arc::new(state));
            }
        }
        Err(overtaken(folder))
    }

    async fn survey(&self, folder: &Folder) -> Result<Survey> {
        let mut survey = Survey::default();
        // A directory is not listed at one instant: while it is read, the newest may go and a newer
        // one come behind what was read already. The second look sees that one.
        for _ in 0..if self.bucket.is_local() { 2 } else { 1 } {
            for listed in self.list_all(folder.path()).await? {
                match folder.kind_of(&listed.name) {
                    Some(Kind::Head(number)) if survey.head.is_none_or(|newest| newest < number) => {
                        (survey.head, survey.tag) = (Some(number), listed.tag);
                    }
                    Some(Kind::Log(number)) => {
                        survey.changes.insert(number);
                        survey.other = Some(listed.name);
                    }
                    Some(Kind::Segment(..)) => survey.other = Some(listed.name),
                    _ => {}
                }
            }
        }
        Ok(survey)
    }

    /// Reads changes that were listed: the last one of each group, then the last of those that it does not carry along,
    /// and so on.
    async fn read_groups(&self, folder: &Folder, listed: &BTreeSet<u64>) -> Result<BTreeMap<u64, Found>> {
        let mut found = BTreeMap::new();
        let mut missing = listed.clone();
        while !missing.is_empty() {
            let last_of_groups: BTreeMap<u64, u64> =
                missing.iter().map(|number| (group_start(*number), *number)).collect();
            let asked: Vec<u64> = last_of_groups.into_values().collect();
            for (number, bytes) in self.read_changes(folder, &asked, GROUP_READ).await? {
                let own_end =
                    envelope::decode::<Change>("", &bytes).ok().and_then(|(_, change, start)| change.end(start));
                let copies = own_end.map(|end| carried(number, &bytes, end)).unwrap_or_default();
                found.extend(copies.into_iter().map(|(number, bytes)| (number, Found { bytes, is_copy: true })));
                found.insert(number, Found { bytes, is_copy: false });
            }
            // One that is gone meanwhile is not asked for again.
            missing.retain(|number| !found.contains_key(number) && !asked.contains(number));
        }
        Ok(found)
    }

    /// Reads changes, some at once; those that are there.
    async fn read_changes(&self, folder: &Folder, numbers: &[u64], first_read: u64) -> Result<Vec<(u64, Bytes)>> {
        let mut found = Vec::new();
        for some in numbers.chunks(MOST_AT_ONCE) {
            let names: Vec<String> = some.iter().map(|number| folder.log(*number)).collect();
            let reads: Vec<_> = names.iter().map(|name| self.read_change(name, first_read)).collect();
            let read = try_join_all(reads).await?;
            found.extend(some.iter().zip(read).filter_map(|(number, bytes)| Some((*number, bytes?))));
        }
        Ok(found)
    }

    /// Takes over the changes that were listed behind a snapshot. Not all were there if a newer snapshot came in
    /// between: then the session is to be read anew.
    async fn take_over(
        &self,
        folder: &Folder,
        state: &mut State,
        mut found: BTreeMap<u64, Found>,
        listed: &BTreeSet<u64>,
    ) -> Result<bool> {
        let highest = listed.last().copied().unwrap_or(0);
        while state.number < highest {
            let number = state.number + 1;
            let name = folder.log(number);
            // A change that was not listed is missing, even if a later one carries a copy of it.
            let (mut bytes, is_copy) = match found.remove(&number).filter(|_| listed.contains(&number)) {
                Some(found) => (found.bytes, found.is_copy),
                None => match self.read_change(&name, FIRST_READ).await? {
                    Some(bytes) => (bytes, false),
                    None => return self.hole(folder, state, number).await,
                },
            };
            let mut decoded = envelope::decode::<Change>(&name, &bytes);
            if decoded.is_err() && is_copy {
                let Some(own) = self.read_change(&name, FIRST_READ).await? else {
                    return self.hole(folder, state, number).await;
                };
                (decoded, bytes) = (envelope::decode(&name, &own), own);
            }
            let (nonce, change, start) = decoded?;
            state.fold(nonce, change, &bytes, start);
        }
        Ok(true)
    }

    /// The same state as it is now.
    pub(super) async fn refresh(&self, folder: &Folder, state: &mut Arc<State>) -> Result<()> {
        if state.head != 0 {
            // On a copy: until the head is seen to stand, what was read may be a change written into the past.
            let mut next = Arc::clone(state);
            if self.follow(folder, &mut next, 1).await? && self.head_stands(folder, &next).await? {
                *state = next;
                return Ok(());
            }
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

    pub(super) async fn newest_head(&self, folder: &Folder) -> Result<Option<u64>> {
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
            let reads: Vec<_> = names.iter().map(|name| self.read_change(name, FIRST_READ)).collect();
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
    async fn read_change(&self, name: &str, first_read: u64) -> Result<Option<Bytes>> {
        let Some(bytes) = self.bucket.get_range(name, 0..first_read).await? else { return Ok(None) };
        match envelope::header_end(name, &bytes) {
            Ok(end) if end > bytes.len() && bytes.len() as u64 == first_read => self.bucket.get(name).await,
            // Damage is reported by who needs the change.
            _ => Ok(Some(bytes)),
        }
    }
}

/// The error about a session whose snapshots are lost. Taken for a name that was never used, its data key and its entry
/// in the catalogue would be cleared away.
fn headless(folder: &Folder, other: &str) -> Error {
    let message = format!("every object in `{}` is missing, and `{other}` is there", folder.heads());
    Error::corrupt(message).hint("restore the newest of them from a version or a copy of the bucket")
}

pub(super) fn overtaken(folder: &Folder) -> Error {
    let message = format!("other writers were faster every time below `{}`", folder.path());
    Error::new(ErrorKind::StoreUnavailable, message)
}
