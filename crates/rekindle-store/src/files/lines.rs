//! Splits a file into lines without holding more than one of them in memory, and judges the
//! lines that are not frames: was this an unfinished write, or is it damage?

use std::io::{self, BufRead as _};

use super::disk::DiskFile;

/// How much is read at first, and at most, at once: whoever reads one line should not pay for
/// many, whoever reads many should not call often.
const CHUNKS: (usize, usize) = (8 << 10, 256 << 10);

/// Longer than any line the codec writes.
const LONGEST_LINE: usize = 100_000_100;

/// What is kept of a line that is too long to be one.
const KEPT: usize = 4 << 10;

/// Disks write whole sectors.
const SECTOR: u64 = 512;

const PREFIX: usize = r#"{"crc":"12345678","len":"12345678","#.len();
const LENGTH_AT: usize = r#"{"crc":"12345678","len":""#.len();

/// One line as it stands in the file.
#[derive(Debug)]
pub(super) struct RawLine<'a> {
    /// Where it begins.
    pub offset: u64,
    /// Where the next one begins, or the file ends.
    pub end: u64,
    /// Its bytes without the newline; only the start of a line that is far too long.
    pub bytes: &'a [u8],
    /// Whether a newline ends it.
    pub terminated: bool,
}

/// Reads the lines of a file from an offset to an end.
pub(super) struct Lines<'a> {
    file: &'a dyn DiskFile,
    /// The end of what was read into the buffer, in the file.
    position: u64,
    end: u64,
    chunk: usize,
    buffer: Vec<u8>,
    /// Where the current line begins in the buffer and in the file.
    start: usize,
    offset: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn new(file: &'a dyn DiskFile, from: u64, end: u64) -> Self {
        Self { file, position: from, end, chunk: CHUNKS.0, buffer: Vec::new(), start: 0, offset: from }
    }

    /// The next line, if there is one.
    pub(super) fn next_line(&mut self) -> io::Result<Option<RawLine<'_>>> {
        let mut searched = self.start;
        loop {
            // The search of the standard library is many times faster than one byte after the other.
            let passed = (&self.buffer[searched..]).skip_until(b'\n')?;
            if passed > 0 && self.buffer[searched + passed - 1] == b'\n' {
                let newline = searched + passed - 1;
                let end = self.position - (self.buffer.len() - newline - 1) as u64;
                return Ok(Some(self.take(newline, newline + 1, end, true)));
            }
            if self.position >= self.end {
                let (len, end) = (self.buffer.len(), self.position);
                return Ok((len > self.start).then(|| self.take(len, len, end, false)));
            }
            self.buffer.drain(..self.start);
            self.start = 0;
            if self.buffer.len() > LONGEST_LINE {
                self.buffer.truncate(KEPT);
            }
            searched = self.buffer.len();
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let wanted = usize::try_from(self.end - self.position).unwrap_or(self.chunk).min(self.chunk);
        self.chunk = (2 * self.chunk).min(CHUNKS.1);
        let len = self.buffer.len();
        self.buffer.resize(len + wanted, 0);
        let count = self.file.read_at(self.position, &mut self.buffer[len..])?;
        self.buffer.truncate(len + count);
        self.position += count as u64;
        if count == 0 {
            self.end = self.position;
        }
        Ok(())
    }

    fn take(&mut self, to: usize, next: usize, end: u64, terminated: bool) -> RawLine<'_> {
        let (start, offset) = (self.start, self.offset);
        (self.start, self.offset) = (next, end);
        RawLine { offset, end, bytes: &self.buffer[start..to], terminated }
    }
}

impl RawLine<'_> {
    /// Whether a line that is no frame looks like a write that was cut off by a crash, rather
    /// than like one that was finished and altered later. A write is cut off by ending early,
    /// or by leaving sectors that never reached the disk: those read as zeros.
    pub(super) fn looks_unfinished(&self) -> bool {
        (!self.terminated && self.is_short()) || self.has_lost_sectors()
    }

    fn is_short(&self) -> bool {
        let declared = self.bytes.get(LENGTH_AT..LENGTH_AT + 8);
        let declared = declared.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
        declared.is_none_or(|declared| self.bytes.len() <= PREFIX + declared)
    }

    // A lost sector reads as zeros from its start, or from the start of the write that lies in it, to its end. A
    // flipped bit can also make a zero, but not a sector of them. What follows a write that ended early may be zeros too.
    fn has_lost_sectors(&self) -> bool {
        let mut zeros = 0;
        self.bytes.iter().enumerate().any(|(index, byte)| {
            zeros = if *byte == 0 { zeros + 1 } else { 0 };
            if zeros == 0 || self.bytes.get(index + 1) == Some(&0) {
                return false;
            }
            let end = self.offset + index as u64 + 1;
            let start = end - zeros;
            match self.terminated {
                true => end.is_multiple_of(SECTOR) && (start == self.offset || start.is_multiple_of(SECTOR)),
                false => end.is_multiple_of(SECTOR) || end == self.end,
            }
        })
    }

    /// The records a line that is no frame seems to hold, by the numbers near its start.
    pub(super) fn claimed(&self) -> Option<(u64, u64)> {
        let start = self.bytes.get(PREFIX..)?;
        let start = &start[..start.len().min(100)];
        let number = |name: &str| {
            let at = start.windows(name.len()).position(|window| window == name.as_bytes())? + name.len();
            let digits = start[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            std::str::from_utf8(&start[at..at + digits]).ok()?.parse().ok()
        };
        Some((number(r#""first":"#)?, number(r#""last":"#)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(offset: u64, bytes: &[u8], terminated: bool, unfinished: bool) {
        let end = offset + bytes.len() as u64 + u64::from(terminated);
        let line = RawLine { offset, end, bytes, terminated };
        assert_eq!(line.looks_unfinished(), unfinished, "{line:?}");
    }

    #[test]
    fn unfinished_writes_are_told_from_damage() {
        let whole = br#"{"crc":"12345678","len":"00000008","a":"b"}"#;
        check(0, b"{\"cr", false, true);
        check(0, &whole[..40], false, true);
        check(0, whole, false, true);
        check(0, &[&whole[..], b"X"].concat(), false, false);
        check(0, whole, true, false);
        check(500, b"{\"crc\":\"1234\0\0\0\0", false, true);
        check(500, &[b"{\"crc\":\"1234".as_slice(), b"rest"].concat(), true, false);
        check(508, b"{\"cr\"}", true, false);
        check(508, b"\0\0\0\0rest", true, true);
        check(507, b"\0\0\0\0rest", true, false);
        // A single zero where a sector ends is a flipped bit.
        check(508, b"{\"c\0rest", true, false);
        check(508, &[b"{\"cr".as_slice(), &[0; 512], b"rest"].concat(), true, true);
        check(508, &[b"{\"cr".as_slice(), &[0; 511], b"rest"].concat(), true, false);
        check(507, &[b"{\"cr".as_slice(), &[0; 513], b"rest"].concat(), true, false);
    }

    #[test]
    fn damaged_lines_still_tell_their_records() {
        let check = |text: &str, expected| {
            let bytes = format!(r#"{{"crc":"12345678","len":"12345678",{text}"#);
            let line = RawLine { offset: 0, end: bytes.len() as u64, bytes: bytes.as_bytes(), terminated: true };
            assert_eq!(line.claimed(), expected, "{text}");
        };
        check(r#""v":1,"first":6,"last":9,"at":1"#, Some((6, 9)));
        check(r#""v":1,"first":6,"laxt":9,"at":1"#, None);
        check(r#""v":1,"first":x,"last":9,"at":1"#, None);
        check(r#""v":1,"first":6,"last":99999999999999999999,"#, None);
        check("", None);
    }
}
