//! Finds a few lines of a segment without reading the rest of it, by halving.
//!
//! Whatever is not as it should be ends the search without an answer: to judge damage is the
//! business of the scan alone.

use std::io;
use std::ops::{Range, RangeInclusive};

use rekindle_core::Seq;

use super::disk::DiskFile;
use super::lines::Lines;
use super::scan::{Line, read_line};

/// The most records that are looked for like this.
const FEW: u64 = 16;

/// So many bytes are rather read through than halved again.
const NEAR: u64 = 16 << 10;

/// How far from the expected place a record often stands.
const SPREAD: u64 = NEAR / 2;

/// Where a line begins, and with which record.
#[derive(Clone, Copy, Debug)]
struct Start {
    offset: u64,
    seq: Seq,
}

/// Whether finding `wanted` costs less than reading the segment.
pub(super) fn is_worthwhile(wanted: &RangeInclusive<Seq>) -> bool {
    !wanted.is_empty() && wanted.end().0 - wanted.start().0 < FEW
}

/// The lines that hold the records `wanted`. The segment should hold the records `held`, and
/// these are among them.
pub(super) fn find(
    file: &dyn DiskFile,
    held: Range<Seq>,
    wanted: &RangeInclusive<Seq>,
) -> io::Result<Option<Vec<Line>>> {
    let end = Start { offset: file.size()?, seq: held.end };
    match approach(file, Start { offset: 0, seq: held.start }, end, *wanted.start())? {
        Some(start) => walk(file, start, end, wanted),
        None => Ok(None),
    }
}

/// The beginning of the line that holds `seq`, or of one shortly before it.
fn approach(file: &dyn DiskFile, mut low: Start, mut high: Start, seq: Seq) -> io::Result<Option<Start>> {
    // No line begins behind this and before `high`.
    let mut limit = high.offset;
    let expected = expected(low, high, seq);
    // Where lines are about equally long, the first two leave little to halve.
    let mut guesses = [expected.saturating_sub(SPREAD), expected + SPREAD].into_iter();
    while limit - low.offset > NEAR {
        let middle = low.offset + (limit - low.offset) / 2;
        let guess = guesses.next().filter(|guess| (low.offset..limit).contains(guess)).unwrap_or(middle);
        let mut lines = Lines::new(file, guess, high.offset);
        // It may be anywhere in a line: the next one is the first that can be read.
        lines.next_line()?;
        let Some(raw) = lines.next_line()? else {
            limit = guess;
            continue;
        };
        let Ok(line) = read_line(&raw) else { return Ok(None) };
        let after = line.last.next();
        if line.first <= low.seq || after > high.seq {
            return Ok(None);
        }
        if after <= seq {
            low = Start { offset: raw.end, seq: after };
        } else if line.first <= seq {
            return Ok(Some(Start { offset: raw.offset, seq: line.first }));
        } else {
            (high, limit) = (Start { offset: raw.offset, seq: line.first }, guess);
        }
        limit = limit.max(low.offset);
    }
    Ok(Some(low))
}

/// Where record `seq` stands if all records are equally long.
fn expected(low: Start, high: Start, seq: Seq) -> u64 {
    let bytes = u128::from(high.offset - low.offset) * u128::from(seq.0 - low.seq.0);
    low.offset + (bytes / u128::from(high.seq.0 - low.seq.0)) as u64
}

/// The lines from `start` on that hold the records `wanted`.
fn walk(file: &dyn DiskFile, start: Start, end: Start, wanted: &RangeInclusive<Seq>) -> io::Result<Option<Vec<Line>>> {
    let mut lines = Lines::new(file, start.offset, end.offset);
    let mut found = Vec::new();
    let mut next = start.seq;
    while next <= *wanted.end() {
        let Some(raw) = lines.next_line()? else { return Ok(None) };
        let Ok(line) = read_line(&raw) else { return Ok(None) };
        if line.first != next || line.last >= end.seq {
            return Ok(None);
        }
        next = line.last.next();
        if line.last >= *wanted.start() {
            found.push(line);
        }
    }
    Ok(Some(found))
}
