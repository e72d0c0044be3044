//! Snapshots: the changes so far become one object and their frames larger ones, and then the
//! changes go.
//!
//! Order is everything: segments, then the snapshot (the moment that counts), then older snapshots
//! go, and only then changes and segments that nobody needs. A crash anywhere leaves objects that
//! the next snapshot clears away.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use rekindle_core::codec::Frame;
use rekindle_core::{Error, Result};

use super::change::Entry;
use super::layout::{Folder, Kind, segment_name};
use super::segment::{Builder, SEGMENT_BYTES, Segment};
use super::state::{Piece, State};
use super::store::Inner;

/// Segments up to this size are merged with new frames each time, so that a session of ordinary length lies in
/// one or two of them.
const SMALL_SEGMENT: u64 = 1 << 20;

/// Segments being written for a snapshot.
struct Output<'a> {
    folder: &'a Folder,
    head: u64,
    nonce: [u8; 16],
    parts: usize,
}

impl Inner {
    /// Makes a snapshot when it is time, behind the change that is about to be acknowledged. A failure costs
    /// nothing but time: what was acknowledged stands in the log, and a later change tries again.
    pub(super) async fn compact_if_due(&self, folder: &Folder, state: &mut Arc<State>) {
        let waiting = state.number - state.through;
        // After a failure not at every change.
        if waiting < self.compact_every || !waiting.is_multiple_of((self.compact_every / 4).max(1)) {
            return;
        }
        // Processes that live shortly may never come to the end of what they begin in the background.
        match self.shared().ok().filter(|_| self.in_background && waiting < 2 * self.compact_every) {
            Some(inner) => drop(tokio::spawn(inner.compact_behind(folder.clone()))),
            None => drop(self.compact(folder, state).await),
        }
    }

    /// Makes a snapshot while changes go on.
    async fn compact_behind(self: Arc<Self>, folder: Folder) {
        let Some(_turn) = CompactionTurn::take(&self, &folder) else { return };
        let slot = self.slot(&folder);
        let Some(state) = slot.lock().await.clone() else { return };
        let Ok(Some(next)) = self.snapshot(&folder, &state).await else { return };
        {
            // Before older snapshots go: a change under way rests on one of them.
            let mut slot = slot.lock().await;
            if let Some(current) = slot.take() {
                *slot = adopted(current, &next);
            }
        }
        let _ = self.clear_away(&folder, &next).await;
    }

    /// Makes a snapshot of `state` and clears away what it replaces.
    pub(super) async fn compact(&self, folder: &Folder, state: &mut Arc<State>) -> Result<()> {
        match self.snapshot(folder, state).await? {
            Some(next) => {
                *state = Arc::new(next);
                self.clear_away(folder, state).await
            }
            None => {
                *state = self.load(folder).await?;
                Ok(())
            }
        }
    }

    /// Writes a snapshot of `state`, and returns the state that rests on it; nothing if somebody else was faster.
    async fn snapshot(&self, folder: &Folder, state: &State) -> Result<Option<State>> {
        let mut output = Output { folder, head: state.head + 1, nonce: self.ids.nonce(), parts: 0 };
        let mut next = State::clone(state);
        for pieces in next.pieces.values_mut() {
            pieces.history = self.merged(&mut output, std::mem::take(&mut pieces.history)).await?;
            pieces.base = self.merged(&mut output, std::mem::take(&mut pieces.base)).await?;
        }
        if next.info.is_none()
            && let Some(entry) = next.catalog.take()
        {
            self.bucket.delete(&entry).await?;
        }
        let snapshot = next.to_snapshot(&output.nonce)?;
        if !self.bucket.put_new(&folder.head(output.head), snapshot).await? {
            return Ok(None);
        }
        // The number may have been used and cleared away while this writer stood still.
        // One that is the newest of all was never cleared away.
        if !self.head_stands(folder, state).await? && self.newest_head(folder).await? != Some(output.head) {
            self.bucket.delete(&folder.head(output.head)).await?;
            return Ok(None);
        }
        (next.head, next.head_nonce, next.through) = (output.head, output.nonce, next.number);
        Ok(Some(next))
    }

    /// Deletes what the snapshot of `state` replaces. What is older than it and not named in it can
    /// only be left over, of it or of writers that were too late.
    pub(super) async fn clear_away(&self, folder: &Folder, state: &State) -> Result<()> {
        let (mut heads, mut others) = (Vec::new(), Vec::new());
        let needed: HashSet<&str> = state.segments().map(|segment| segment.name.as_str()).collect();
        for listed in self.list_all(folder.path()).await? {
            match folder.kind_of(&listed.name) {
                Some(Kind::Head(number)) if number < state.head => heads.push(listed.name),
                Some(Kind::Log(number)) if number <= state.through => others.push(listed.name),
                Some(Kind::Segment(head, name)) if head <= state.head && !needed.contains(name.as_str()) => {
                    others.push(listed.name);
                }
                _ => {}
            }
        }
        // While an older snapshot stands, somebody may rely on the changes behind it. The oldest goes
        // first: one that stands shows that every number above it is free or rightly taken.
        for head in heads {
            self.bucket.delete(&head).await?;
        }
        self.bucket.delete_all(&others).await
    }

    /// The pieces of one section, all in segments: new frames are merged with the last segments as
    /// long as these are small or not larger, so that a frame is written a logarithmic number of times.
    async fn merged(&self, output: &mut Output<'_>, mut pieces: Vec<Piece>) -> Result<Vec<Piece>> {
        let logged = pieces.iter().position(|piece| matches!(piece, Piece::Logged { .. })).unwrap_or(pieces.len());
        let sizes = pieces[logged..].iter().map(|piece| match piece {
            Piece::Logged { entry, .. } => entry.len,
            Piece::Segment(segment) => segment.bytes,
        });
        let (mut from, mut bytes) = (logged, sizes.fold(0, u64::saturating_add));
        while let Some(Piece::Segment(segment)) = from.checked_sub(1).and_then(|at| pieces.get(at))
            && segment.bytes <= bytes.max(SMALL_SEGMENT)
            && segment.bytes.saturating_add(bytes) <= SEGMENT_BYTES
        {
            bytes += segment.bytes;
            from -= 1;
        }
        let tail = pieces.split_off(from);
        let mut whole = Vec::with_capacity(pieces.len() + 1);
        for piece in pieces {
            match piece {
                Piece::Segment(segment) if segment.cut >= segment.first => {
                    whole.extend(self.rewritten(output, &[Piece::Segment(segment)]).await?);
                }
                other => whole.push(other),
            }
        }
        whole.extend(self.rewritten(output, &tail).await?);
        Ok(whole)
    }

    /// The frames of `pieces` that still count, in new segments.
    async fn rewritten(&self, output: &mut Output<'_>, pieces: &[Piece]) -> Result<Vec<Piece>> {
        let (mut written, mut builder) = (Vec::new(), Builder::default());
        for piece in pieces {
            for (entry, bytes) in self.frames_of(output.folder, piece).await? {
                builder.push(&entry, &bytes);
                if builder.is_full() {
                    written.push(self.write_segment(output, std::mem::take(&mut builder)).await?);
                }
            }
        }
        if !builder.is_empty() {
            written.push(self.write_segment(output, builder).await?);
        }
        Ok(written)
    }

    async fn write_segment(&self, output: &mut Output<'_>, builder: Builder) -> Result<Piece> {
        let (segment, bytes) = builder.finish(segment_name(output.head, &output.nonce, output.parts));
        output.parts += 1;
        self.bucket.put(&output.folder.segment(&segment.name), bytes).await?;
        Ok(Piece::Segment(segment))
    }

    /// Every frame of a piece that still counts. Damage is an error: nothing is thrown away then.
    async fn frames_of(&self, folder: &Folder, piece: &Piece) -> Result<Vec<(Entry, Bytes)>> {
        match piece {
            Piece::Logged { entry, frame: Some(frame), .. } => Ok(vec![(*entry, frame.to_bytes())]),
            Piece::Logged { number, start, entry, .. } => {
                let name = folder.log(*number);
                let range = start.saturating_add(entry.offset)..start.saturating_add(entry.end());
                let bytes = self.bucket.get_range(&name, range).await?.ok_or_else(|| missing(&name))?;
                Ok(vec![(*entry, sound(&name, entry, bytes)?)])
            }
            Piece::Segment(segment) => self.frames_of_segment(folder, segment).await,
        }
    }

    async fn frames_of_segment(&self, folder: &Folder, segment: &Segment) -> Result<Vec<(Entry, Bytes)>> {
        let name = folder.segment(&segment.name);
        let bytes = self.bucket.get(&name).await?.ok_or_else(|| missing(&name))?;
        let index = segment.index();
        let (start, end) = (index.start as usize, index.end as usize);
        let index = bytes.get(start..end).map(|_| bytes.slice(start..end)).ok_or_else(|| missing(&name))?;
        let entries = segment.read_index(&index)?.into_iter().filter(|entry| entry.last > segment.cut);
        let frame = |entry: Entry| {
            let range = entry.offset as usize..entry.end() as usize;
            let frame = bytes.get(range.clone()).map(|_| bytes.slice(range)).ok_or_else(|| missing(&name))?;
            Ok((entry, sound(&name, &entry, frame)?))
        };
        entries.map(frame).collect()
    }
}

/// The right to make snapshots of a session in the background: one at a time.
struct CompactionTurn<'a> {
    inner: &'a Inner,
    folder: Folder,
}

impl<'a> CompactionTurn<'a> {
    fn take(inner: &'a Inner, folder: &Folder) -> Option<Self> {
        let is_first = inner.compacting().insert(folder.clone());
        is_first.then(|| Self { inner, folder: folder.clone() })
    }
}

impl Drop for CompactionTurn<'_> {
    fn drop(&mut self) {
        self.inner.compacting().remove(&self.folder);
    }
}

/// The current state, resting on a snapshot that was made of an earlier one; nothing if that is not easily told.
fn adopted(current: Arc<State>, next: &State) -> Option<Arc<State>> {
    if current.head + 1 != next.head {
        return Some(current);
    }
    if current.reshaped > next.number || current.number < next.number {
        return None;
    }
    let mut adopted = State::clone(&current);
    (adopted.head, adopted.head_nonce, adopted.through) = (next.head, next.head_nonce, next.through);
    for (branch, pieces) in &mut adopted.pieces {
        let Some(merged) = next.pieces.get(branch) else { continue };
        let later = pieces
            .history
            .iter()
            .filter(|piece| matches!(piece, Piece::Logged { number, .. } if *number > next.number));
        pieces.history = merged.history.iter().chain(later).cloned().collect();
        pieces.base.clone_from(&merged.base);
    }
    Some(Arc::new(adopted))
}

fn missing(name: &str) -> Error {
    Error::corrupt(format!("the object `{name}` is missing or cut off"))
}

fn sound(name: &str, entry: &Entry, bytes: Bytes) -> Result<Bytes> {
    match Frame::from_bytes(bytes.clone()) {
        Ok(frame) if frame.hash == entry.hash => Ok(bytes),
        _ => Err(Error::corrupt(format!("record {} in the object `{name}` is damaged", entry.first))),
    }
}
