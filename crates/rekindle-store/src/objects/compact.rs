//! Snapshots: the changes so far become one object and their frames larger ones, and then the
//! changes go.
//!
//! Order is everything: segments, then the snapshot (the moment that counts), then older snapshots
//! go, and only then changes and segments that nobody needs. A crash anywhere leaves objects that
//! the next snapshot clears away.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use rekindle_core::codec::Frame;
use rekindle_core::{Error, Result};

use super::change::Entry;
use super::layout::{Folder, Kind, segment_name};
use super::segment::{Builder, SEGMENT_BYTES, Segment};
use super::state::{Piece, State};
use super::store::Inner;

/// How many objects are deleted at once.
const DELETES_AT_ONCE: usize = 16;

/// Segments being written for a snapshot.
struct Output<'a> {
    folder: &'a Folder,
    head: u64,
    nonce: [u8; 16],
    parts: usize,
}

impl Inner {
    /// Makes a snapshot when it is time. A failure costs nothing but time: what was acknowledged
    /// stands in the log, and a later change tries again.
    pub(super) async fn compact_if_due(&self, folder: &Folder, state: &mut Arc<State>) {
        let waiting = state.number - state.through;
        // After a failure not at every change.
        if waiting >= self.compact_every && waiting.is_multiple_of((self.compact_every / 4).max(1)) {
            let _ = self.compact(folder, state).await;
        }
    }

    /// Makes a snapshot of `state` and clears away what it replaces.
    pub(super) async fn compact(&self, folder: &Folder, state: &mut Arc<State>) -> Result<()> {
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
            return self.refresh_fully(folder, state).await;
        }
        // The number may have been used and cleared away while this writer stood still.
        if !self.head_stands(folder, state).await? {
            self.bucket.delete(&folder.head(output.head)).await?;
            return self.refresh_fully(folder, state).await;
        }
        (next.head, next.head_nonce, next.through) = (output.head, output.nonce, next.number);
        *state = Arc::new(next);
        self.clear_away(folder, state).await
    }

    async fn refresh_fully(&self, folder: &Folder, state: &mut Arc<State>) -> Result<()> {
        *state = self.load(folder).await?;
        Ok(())
    }

    /// Deletes what the snapshot of `state` replaces. What is older than it and not named in it can
    /// only be left over, of it or of writers that were too late.
    async fn clear_away(&self, folder: &Folder, state: &State) -> Result<()> {
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
        self.delete_all(&others).await
    }

    pub(super) async fn delete_all(&self, names: &[String]) -> Result<()> {
        for some in names.chunks(DELETES_AT_ONCE) {
            let deletes: Vec<_> = some.iter().map(|name| self.bucket.delete(name)).collect();
            try_join_all(deletes).await?;
        }
        Ok(())
    }

    /// The pieces of one section, all in segments: new frames are merged with the last segments as
    /// long as these are not larger, so that a frame is written a logarithmic number of times.
    async fn merged(&self, output: &mut Output<'_>, mut pieces: Vec<Piece>) -> Result<Vec<Piece>> {
        let logged = pieces.iter().position(|piece| matches!(piece, Piece::Logged { .. })).unwrap_or(pieces.len());
        let sizes = pieces[logged..].iter().map(|piece| match piece {
            Piece::Logged { entry, .. } => entry.len,
            Piece::Segment(segment) => segment.bytes,
        });
        let (mut from, mut bytes) = (logged, sizes.fold(0, u64::saturating_add));
        while let Some(Piece::Segment(segment)) = from.checked_sub(1).and_then(|at| pieces.get(at))
            && segment.bytes <= bytes
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

fn missing(name: &str) -> Error {
    Error::corrupt(format!("the object `{name}` is missing or cut off"))
}

fn sound(name: &str, entry: &Entry, bytes: Bytes) -> Result<Bytes> {
    match Frame::from_bytes(bytes.clone()) {
        Ok(frame) if frame.hash == entry.hash => Ok(bytes),
        _ => Err(Error::corrupt(format!("record {} in the object `{name}` is damaged", entry.first))),
    }
}
