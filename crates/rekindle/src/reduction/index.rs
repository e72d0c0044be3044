//! What reduction has to know of a history, kept up to date message by message so that asking
//! costs the same at any length. It holds no message.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use rekindle_core::{Error, Hash, Json, Result};
use serde::Deserialize;

use crate::message::Role;

/// An index over a history: roles, sizes, which calls are open, where it may be cut.
///
/// It is told of new messages by [`update`](Self::update) and follows a history that grows, or
/// that is shorter or ends differently than before. A change further up does not show there:
/// whoever makes one calls [`clear`](Self::clear).
#[derive(Clone, Debug, Default)]
pub struct HistoryIndex {
    entries: Vec<Entry>,
    open: BTreeSet<Place>,
    /// The same as `open`, by the id of the call, in order of place.
    open_by_id: HashMap<Box<str>, Vec<Place>>,
    /// Results without a call, in order of place.
    orphans: Vec<Place>,
    /// `hashes[n]` is the hash of the first `n + 1` messages, as far as it was asked for.
    hashes: Vec<Hash>,
    /// The furthest message seen and where it stands.
    furthest: Option<(usize, Json)>,
}

/// Where a part stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The message, counted from the start of the history.
    pub message: usize,
    /// The part of it.
    pub part: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    /// The tokens of this message and all before it.
    tokens: u64,
    /// This position if the history may be cut before this message, else an earlier one, with
    /// no safe position between them.
    safe: u32,
    role: Role,
}

impl HistoryIndex {
    /// Indexes what is new. Starts over if this is not the history it knows.
    pub fn update(&mut self, history: &[Json]) -> Result<()> {
        self.forget_another(history);
        let mut new = history.iter().enumerate().skip(self.entries.len());
        let result = new.try_for_each(|(at, item)| self.push(at, item));
        self.saw(history, self.entries.len());
        result
    }

    /// Forgets everything; the next [`update`](Self::update) starts over.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// How many messages are indexed.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Who speaks in a message.
    pub fn role(&self, message: usize) -> Option<Role> {
        self.entries.get(message).map(|entry| entry.role)
    }

    /// About how many tokens a stretch has. An estimate: a quarter of the bytes of the stored
    /// form, and at least one for each message.
    pub fn tokens(&self, range: Range<usize>) -> u64 {
        self.tokens_before(range.end).saturating_sub(self.tokens_before(range.start))
    }

    /// The first position from which on the history has at most that many tokens.
    pub fn first_within(&self, tokens: u64) -> usize {
        match self.tokens_before(self.len()).saturating_sub(tokens) {
            0 => 0,
            over => 1 + self.entries.partition_point(|entry| entry.tokens < over),
        }
    }

    /// The calls in that stretch that have no result.
    pub fn open_calls(&self, range: Range<usize>) -> impl Iterator<Item = Place> {
        let start = Place { message: range.start.min(range.end), part: 0 };
        self.open.range(start..Place { message: range.end, part: 0 }).copied()
    }

    /// The results in that stretch that answer no call of the history.
    pub fn orphans(&self, range: Range<usize>) -> impl Iterator<Item = Place> {
        let start = self.orphans.partition_point(|place| place.message < range.start);
        self.orphans[start..].iter().copied().take_while(move |place| place.message < range.end)
    }

    /// Whether the history may be cut before that message: no call in front of the cut has its
    /// result behind it. What was safe becomes unsafe if a result comes late.
    pub fn is_safe(&self, position: usize) -> bool {
        self.safe_at_or_before(position) == position
    }

    /// The last safe position up to that one.
    pub fn safe_at_or_before(&self, position: usize) -> usize {
        let mut at = position.min(self.len());
        while let Some(entry) = self.entries.get(at)
            && entry.safe as usize != at
        {
            at = entry.safe as usize;
        }
        at
    }

    /// The first safe position from that one on.
    pub fn safe_at_or_after(&self, position: usize) -> usize {
        let unsafe_ones = self.entries.iter().enumerate().skip(position);
        unsafe_ones.take_while(|(at, entry)| entry.safe as usize != *at).last().map_or(position, |(at, _)| at + 1)
    }

    /// The hash of the first `through` messages of `history`, each chained to those before it.
    /// Costs only what was not asked for before.
    pub fn prefix_hash(&mut self, history: &[Json], through: usize) -> Hash {
        self.forget_another(history);
        let through = through.min(history.len());
        for item in &history[self.hashes.len().min(through)..through] {
            let mut hasher = blake3::Hasher::new();
            hasher.update(&self.hashes.last().copied().unwrap_or_default().0);
            hasher.update(item.as_str().as_bytes());
            self.hashes.push(Hash(*hasher.finalize().as_bytes()));
        }
        self.saw(history, self.hashes.len());
        through.checked_sub(1).map_or_else(Hash::default, |last| self.hashes[last])
    }

    fn tokens_before(&self, position: usize) -> u64 {
        let last = position.min(self.len()).checked_sub(1);
        last.map_or(0, |last| self.entries[last].tokens)
    }

    fn forget_another(&mut self, history: &[Json]) {
        if let Some((at, item)) = &self.furthest
            && history.get(*at) != Some(item)
        {
            self.clear();
        }
    }

    fn saw(&mut self, history: &[Json], count: usize) {
        let known = self.furthest.as_ref().map_or(0, |(at, _)| at + 1);
        if count > known {
            self.furthest = Some((count - 1, history[count - 1].clone()));
        }
    }

    fn push(&mut self, at: usize, item: &Json) -> Result<()> {
        let outline = Outline::of(item)?;
        let safe = u32::try_from(at).map_err(|_| Error::limit("messages", at as u64, u32::MAX.into()))?;
        let tokens = self.tokens_before(at) + (item.as_str().len() as u64 / 4).max(1);
        self.entries.push(Entry { tokens, safe, role: outline.role });
        for (part, outline) in outline.parts.iter().enumerate() {
            let place = Place { message: at, part };
            if let Some(call) = &outline.tool_call {
                self.open(&call.id, place);
            }
            if let Some(result) = &outline.tool_result {
                match self.close(&result.call) {
                    Some(call) => self.join(call.message, at),
                    None => self.orphans.push(place),
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, id: &str, place: Place) {
        self.open.insert(place);
        match self.open_by_id.get_mut(id) {
            Some(places) => places.push(place),
            None => drop(self.open_by_id.insert(id.into(), vec![place])),
        }
    }

    /// Closes the first call with that id in the last message that has one open.
    fn close(&mut self, id: &str) -> Option<Place> {
        let places = self.open_by_id.get_mut(id)?;
        let message = places.last()?.message;
        let call = places.remove(places.partition_point(|place| place.message < message));
        if places.is_empty() {
            self.open_by_id.remove(id);
        }
        self.open.remove(&call);
        Some(call)
    }

    /// No position behind the call, up to the result, is safe. Steps over stretches that are
    /// joined already, so that each position is marked once, however far apart the two are.
    fn join(&mut self, call: usize, result: usize) {
        let mut at = result;
        while at > call {
            let safe = self.entries[at].safe as usize;
            // Fits: every position was checked when its message came.
            self.entries[at].safe = safe.min(call) as u32;
            at = if safe == at { at - 1 } else { safe };
        }
    }
}

/// As much of a message as is indexed; the rest is passed over without being kept.
#[derive(Deserialize)]
struct Outline<'a> {
    role: Role,
    #[serde(borrow)]
    parts: Vec<PartOutline<'a>>,
}

/// A part has one entry, so of these at most one is there.
#[derive(Deserialize)]
struct PartOutline<'a> {
    #[serde(borrow)]
    tool_call: Option<CallOutline<'a>>,
    #[serde(borrow)]
    tool_result: Option<ResultOutline<'a>>,
}

#[derive(Deserialize)]
struct CallOutline<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
}

#[derive(Deserialize)]
struct ResultOutline<'a> {
    #[serde(borrow)]
    call: Cow<'a, str>,
}

impl<'a> Outline<'a> {
    fn of(item: &'a Json) -> Result<Self> {
        serde_json::from_str(item.as_str())
            .map_err(|error| Error::invalid("a stored message does not have the expected shape").because(error))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Kind, Shape, histories, history};
    use super::*;

    /// For each result its call, by the definition: the nearest earlier message that has it open.
    fn pairs(shape: &Shape) -> Vec<(Place, Option<Place>)> {
        let parts = shape.parts();
        let mut open: Vec<(Place, &str)> = Vec::new();
        let mut pairs = Vec::new();
        for (place, kind) in &parts {
            match kind {
                Kind::Call(id) => open.push((*place, id)),
                Kind::Result(id) => {
                    let nearest = open.iter().filter(|(_, other)| other == id).map(|(call, _)| call.message).max();
                    let found = open.iter().position(|(call, other)| other == id && Some(call.message) == nearest);
                    pairs.push((*place, found.map(|found| open.remove(found).0)));
                }
                Kind::Text => {}
            }
        }
        pairs
    }

    fn check(index: &HistoryIndex, shape: &Shape) {
        let pairs = pairs(shape);
        let safe = |position: usize| {
            !pairs
                .iter()
                .any(|(result, call)| call.is_some_and(|call| call.message < position && result.message >= position))
        };
        let len = shape.len();
        assert_eq!(index.len(), len);
        for position in 0..=len {
            assert_eq!(index.is_safe(position), safe(position), "{position} in {shape:?}");
            assert_eq!(Some(index.safe_at_or_before(position)), (0..=position).rev().find(|at| safe(*at)));
            assert_eq!(Some(index.safe_at_or_after(position)), (position..=len).find(|at| safe(*at)));
        }
        let calls = shape.parts().into_iter().filter(|(_, kind)| matches!(kind, Kind::Call(_))).map(|(place, _)| place);
        let open: Vec<_> = calls.filter(|call| !pairs.iter().any(|(_, closed)| *closed == Some(*call))).collect();
        assert_eq!(index.open_calls(0..len).collect::<Vec<_>>(), open);
        let orphans: Vec<_> = pairs.iter().filter(|(_, call)| call.is_none()).map(|(result, _)| *result).collect();
        assert_eq!(index.orphans(0..len).collect::<Vec<_>>(), orphans);
        assert_eq!(index.open_by_id.values().map(Vec::len).sum::<usize>(), open.len());
    }

    #[test]
    fn the_index_says_what_the_definitions_say_at_every_length() {
        for shape in histories(300, 24) {
            let items = shape.items();
            let mut growing = HistoryIndex::default();
            for len in 0..=items.len() {
                growing.update(&items[..len]).unwrap();
                check(&growing, &shape.prefix(len));
            }
            let mut at_once = HistoryIndex::default();
            at_once.update(&items).unwrap();
            assert_eq!(growing.entries, at_once.entries);
            assert_eq!(growing.open, at_once.open);
            assert_eq!(growing.orphans, at_once.orphans);
        }
    }

    #[test]
    fn sizes_are_sums_over_any_stretch() {
        let items = histories(1, 40)[0].items();
        let mut index = HistoryIndex::default();
        index.update(&items).unwrap();
        let size = |item: &Json| (item.as_str().len() as u64 / 4).max(1);
        for start in 0..=items.len() {
            for end in start..=items.len() {
                assert_eq!(index.tokens(start..end), items[start..end].iter().map(size).sum::<u64>());
            }
            assert_eq!(index.first_within(index.tokens(start..items.len())), start);
        }
        assert_eq!(index.first_within(0), items.len());
        assert_eq!(index.first_within(u64::MAX), 0);
    }

    #[test]
    fn another_history_is_noticed_by_its_length_or_its_end() {
        let long = history("uauacr");
        let mut index = HistoryIndex::default();
        for items in [&long[..], &long[..2], &history("ccc"), &history("rrrr"), &[]] {
            index.update(items).unwrap();
            let mut fresh = HistoryIndex::default();
            fresh.update(items).unwrap();
            assert_eq!(index.entries, fresh.entries);
            assert_eq!(index.prefix_hash(items, 2), fresh.prefix_hash(items, 2));
        }
    }

    #[test]
    fn hashes_are_the_same_however_they_are_asked_for() {
        let items = history("uauacrua");
        let fresh = |through| HistoryIndex::default().prefix_hash(&items, through);
        let mut index = HistoryIndex::default();
        for through in [3, 3, 5, 1, 0, 8, 4, 99] {
            assert_eq!(index.prefix_hash(&items, through), fresh(through), "{through}");
        }
        let all: std::collections::HashSet<_> = (0..=items.len()).map(fresh).collect();
        assert_eq!(all.len(), items.len() + 1);
        assert_ne!(HistoryIndex::default().prefix_hash(&items[1..], 3), fresh(3));
    }

    #[test]
    fn an_entry_and_a_hash_stay_small() {
        assert!(size_of::<Entry>() + size_of::<Hash>() <= 48);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let mut index = HistoryIndex::default();
        let items = [history("u").remove(0), Json::null()];
        assert!(index.update(&items).is_err());
        assert!(index.update(&items).is_err());
        assert_eq!(index.len(), 1);
    }
}
