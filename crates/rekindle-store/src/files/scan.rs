//! What stands in a segment: its lines in order, what is damaged and which records that
//! affects, and where the last finished commit ends.
//!
//! A commit of several frames is several lines that carry their part's number; it counts only
//! when all of them are there. Lines behind the last finished commit are an unfinished write if
//! they look like one, and damage otherwise: only the former may ever be cut off.

use std::io;

use rekindle_core::codec::{Frame, FrameError};
use rekindle_core::record::SessionDescribed;
use rekindle_core::{BootTime, BranchId, Damage, DamageKind, Epoch, Hash, Marks, Seq, Status, Timestamp};
use serde::{Deserialize, Serialize};

use super::disk::DiskFile;
use super::lines::{Lines, RawLine};

/// What an append changes besides adding frames. It stands in the line itself, so that a
/// commit is one write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Meta {
    /// When it was committed, by the store's clock.
    pub at: Timestamp,
    /// Which part of a commit of several frames this is, and of how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<(u32, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Renewal>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub describe: Option<Box<SessionDescribed>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<Box<str>>,
}

/// A lease that an append renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Renewal {
    pub epoch: Epoch,
    pub until: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootTime>,
}

impl Meta {
    fn part(&self) -> (u32, u32) {
        self.part.unwrap_or((1, 1))
    }
}

/// A line that is a frame.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub offset: u64,
    /// With its newline.
    pub len: usize,
    pub first: Seq,
    pub last: Seq,
    pub hash: Hash,
    pub marks: Marks,
    pub meta: Meta,
}

/// Records that cannot be read, or bytes that should not be there.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub kind: DamageKind,
    pub first: Seq,
    pub last: Seq,
    pub detail: String,
    /// The format version of a line that a newer version wrote.
    pub found_version: Option<u32>,
}

impl Finding {
    pub(super) fn new(kind: DamageKind, first: Seq, last: Seq, detail: impl Into<String>) -> Self {
        Self { kind, first, last, detail: detail.into(), found_version: None }
    }

    pub(super) fn missing(first: Seq, last: Seq) -> Self {
        Self::new(DamageKind::Missing, first, last, "the records are not there any more")
    }

    pub(super) fn on(&self, branch: &BranchId) -> Damage {
        let Self { kind, first, last, ref detail, found_version } = *self;
        Damage { found_version, ..Damage::new(kind, branch.clone(), first, last, detail) }
    }
}

/// One place of a segment.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Line(Line),
    Damaged(Finding),
}

impl Item {
    pub(super) fn span(&self) -> (Seq, Seq) {
        match self {
            Self::Line(line) => (line.first, line.last),
            Self::Damaged(finding) => (finding.first, finding.last),
        }
    }
}

/// A line not yet known to belong to a finished commit.
enum Pending {
    Line(Line),
    Bad(Bad),
}

#[derive(Debug)]
struct Bad {
    offset: u64,
    unfinished: bool,
    /// The first and the last record it seems to hold.
    claimed: Option<(u64, u64)>,
    error: FrameError,
}

/// The most records that a damaged line is believed to hold.
const BELIEVED: u64 = 1 << 20;

/// What a scan found.
#[derive(Debug)]
pub(super) struct Scan {
    /// What can and cannot be read, in order and without overlap.
    pub items: Vec<Item>,
    /// What is odd without taking anything away: a line twice, or out of order.
    pub notes: Vec<Finding>,
    /// Where the last finished commit ends.
    pub good: u64,
    /// Whether the bytes behind that are an unfinished write.
    pub torn: bool,
    /// Damage at the very end: what was there may have been the head.
    pub broken: Option<Finding>,
    /// Whether commits were made behind the whole of it: then nothing in it is unfinished.
    followed: bool,
    next: Seq,
    bad: Option<(Bad, usize)>,
}

impl Scan {
    /// A segment that begins with record `first`, before its lines were read.
    pub(super) fn new(first: Seq) -> Self {
        let (items, notes) = (Vec::new(), Vec::new());
        Self { items, notes, good: 0, torn: false, broken: None, followed: false, next: first, bad: None }
    }

    /// Reads the whole of a file; it is `followed` if commits were made behind it, in another.
    pub(super) fn of(file: &dyn DiskFile, first: Seq, followed: bool) -> io::Result<Self> {
        let mut scan = Self { followed, ..Self::new(first) };
        scan.extend(file, file.size()?)?;
        Ok(scan)
    }

    /// Reads on, from the last finished commit to `end`.
    pub(super) fn extend(&mut self, file: &dyn DiskFile, end: u64) -> io::Result<()> {
        let mut lines = Lines::new(file, self.good, end);
        let mut pending = Vec::new();
        while let Some(raw) = lines.next_line()? {
            let end = raw.end;
            match read_line(&raw) {
                Ok(line) => {
                    let (part, of) = line.meta.part();
                    if part == 1 {
                        // A commit was made behind them, so they were all acknowledged once.
                        self.flush(&mut pending);
                        self.good = raw.offset;
                    }
                    pending.push(Pending::Line(line));
                    if part == of && is_whole(&pending, of) {
                        self.flush(&mut pending);
                        self.good = end;
                    }
                }
                Err(error) => {
                    let (unfinished, claimed) = (raw.looks_unfinished(), raw.claimed());
                    pending.push(Pending::Bad(Bad { offset: raw.offset, unfinished, claimed, error }));
                }
            }
        }
        self.finish(pending, end);
        Ok(())
    }

    fn finish(&mut self, mut pending: Vec<Pending>, end: u64) {
        if pending.is_empty() {
            self.close_run();
            return;
        }
        let all_unfinished =
            pending.iter().all(|entry| matches!(entry, Pending::Line(_) | Pending::Bad(Bad { unfinished: true, .. })));
        if all_unfinished && self.bad.is_none() && !self.followed {
            self.torn = true;
            return;
        }
        let ends_whole =
            matches!(pending.last(), Some(Pending::Line(line)) if line.meta.part().0 == line.meta.part().1);
        self.flush(&mut pending);
        self.good = end;
        if !ends_whole {
            let finding = match self.bad.take() {
                Some((bad, lines)) => {
                    let last = bad.last_after(self.next);
                    bad.finding(self.next, last, lines)
                }
                None => Finding::missing(self.next, self.next),
            };
            self.items.push(Item::Damaged(finding.clone()));
            self.broken = Some(finding);
        }
        self.close_run();
    }

    fn close_run(&mut self) {
        if let Some((bad, lines)) = self.bad.take() {
            self.notes.push(bad.finding(self.next.previous(), self.next.previous(), lines));
        }
    }

    fn flush(&mut self, pending: &mut Vec<Pending>) {
        for entry in pending.drain(..) {
            match entry {
                Pending::Line(line) => self.place(line),
                Pending::Bad(bad) => match &mut self.bad {
                    Some((first, lines)) => {
                        *lines += 1;
                        first.claimed = bad.claimed.or(first.claimed);
                    }
                    None => self.bad = Some((bad, 1)),
                },
            }
        }
    }

    /// Adds a line where its numbers say it belongs.
    fn place(&mut self, line: Line) {
        if line.first < self.next {
            self.place_late(line);
            return;
        }
        if line.first > self.next {
            let (first, last) = (self.next, line.first.previous());
            let finding = match self.bad.take() {
                Some((bad, lines)) => bad.finding(first, last, lines),
                None => Finding::missing(first, last),
            };
            self.items.push(Item::Damaged(finding));
        }
        self.close_run();
        self.next = line.last.next();
        self.items.push(Item::Line(line));
    }

    // Out of order: it fills the gap it left, or it is there twice.
    fn place_late(&mut self, line: Line) {
        let detail = format!("the line at byte {} stands out of order or twice", line.offset);
        self.notes.push(Finding::new(DamageKind::Format, line.first, line.last, detail));
        let index = self.items.partition_point(|item| item.span().1 < line.first);
        let Some(Item::Damaged(gap)) = self.items.get(index) else { return };
        if gap.kind != DamageKind::Missing || gap.first > line.first || gap.last < line.last {
            return;
        }
        let (gap_first, gap_last) = (gap.first, gap.last);
        let mut filled = Vec::new();
        if gap_first < line.first {
            filled.push(Item::Damaged(Finding::missing(gap_first, line.first.previous())));
        }
        let after = line.last.next();
        filled.push(Item::Line(line));
        if after <= gap_last {
            filled.push(Item::Damaged(Finding::missing(after, gap_last)));
        }
        self.items.splice(index..=index, filled);
    }

    /// Says that the records up to `through` should be here.
    pub(super) fn close(&mut self, through: Seq) {
        if self.next > through {
            return;
        }
        match self.items.last_mut() {
            Some(Item::Damaged(finding)) if self.broken.is_some() => finding.last = finding.last.max(through),
            _ => self.items.push(Item::Damaged(Finding::missing(self.next, through))),
        }
        self.next = through.next();
    }

    /// The record that comes next.
    pub(super) fn next(&self) -> Seq {
        self.next
    }

    /// Where the last commit begins, if a line ends the segment.
    pub(super) fn last_commit(&self) -> Option<u64> {
        let Item::Line(last) = self.items.last()? else { return None };
        let parts = last.meta.part().0 as usize;
        match self.items.get(self.items.len().checked_sub(parts)?)? {
            Item::Line(line) => Some(line.offset),
            Item::Damaged(_) => Some(last.offset),
        }
    }

    /// Where the first commit with records behind `seq` begins. Its parts belong together, even
    /// if the first of them hold nothing behind `seq`.
    pub(super) fn commit_with_records_after(&self, seq: Seq) -> Option<&Item> {
        let index = self.items.partition_point(|item| item.span().1 <= seq);
        match self.items.get(index)? {
            Item::Line(line) => self.items.get((index + 1).saturating_sub(line.meta.part().0 as usize)),
            damaged => Some(damaged),
        }
    }

    /// What holds or held record `seq`.
    pub(super) fn at(&self, seq: Seq) -> Option<&Item> {
        let index = self.items.partition_point(|item| item.span().1 < seq);
        self.items.get(index).filter(|item| item.span().0 <= seq)
    }

    /// The lines behind record `seq`.
    pub(super) fn lines_after(&self, seq: Seq) -> impl Iterator<Item = &Line> {
        let index = self.items.partition_point(|item| item.span().1 <= seq);
        self.items[index..].iter().filter_map(|item| match item {
            Item::Line(line) => Some(line),
            Item::Damaged(_) => None,
        })
    }

    /// Adds lines that were just written behind the last finished commit.
    pub(super) fn push(&mut self, lines: Vec<Line>, end: u64) {
        for line in lines {
            self.next = line.last.next();
            self.items.push(Item::Line(line));
        }
        self.good = end;
    }

    /// Whether reading may go on where it ended.
    pub(super) fn can_extend(&self) -> bool {
        !self.torn && self.broken.is_none()
    }
}

impl Bad {
    /// The last record of damaged lines that begin with record `next`, as far as they tell.
    fn last_after(&self, next: Seq) -> Seq {
        let fits = |(first, last): &(u64, u64)| next.0 <= *first && first <= last && last - next.0 < BELIEVED;
        self.claimed.filter(fits).map_or(next, |(_, last)| Seq(last))
    }

    fn finding(self, first: Seq, last: Seq, lines: usize) -> Finding {
        let more = if lines > 1 { format!(", and {} more lines", lines - 1) } else { String::new() };
        let detail = format!("the line at byte {} {}{more}", self.offset, self.error);
        Finding { found_version: self.error.found_version, ..Finding::new(self.error.kind, first, last, detail) }
    }
}

fn is_whole(pending: &[Pending], of: u32) -> bool {
    pending.len() == of as usize
        && pending
            .iter()
            .zip(1..)
            .all(|(entry, part)| matches!(entry, Pending::Line(line) if line.meta.part() == (part, of)))
}

/// The frame that a line is.
pub(super) fn read_line(raw: &RawLine<'_>) -> Result<Line, FrameError> {
    let (frame, meta) = Frame::from_line::<Meta>(raw.bytes)?;
    if !raw.terminated {
        return Err(FrameError::new(DamageKind::Format, "does not end"));
    }
    let meta = meta.unwrap_or_default();
    Ok(Line::new(&frame, raw.offset, (raw.end - raw.offset) as usize, meta))
}

impl Line {
    /// The line of `frame` at `offset`.
    pub(super) fn new(frame: &Frame, offset: u64, len: usize, meta: Meta) -> Self {
        let Frame { first, last, hash, marks, .. } = *frame;
        Self { offset, len, first, last, hash, marks, meta }
    }
}
