//! Pages of frames out of a branch's segments.

use std::io;
use std::ops::RangeInclusive;

use rekindle_core::codec::Frame;
use rekindle_core::{DamageKind, FramePage, PAGE_BYTES, ReadFrames, Result, Section, Seq, Slot};

use super::branch::Branch;
use super::disk::{DiskFile, OpenMode};
use super::layout::{Layout, absent, base_name, reading, segment_name};
use super::scan::{Finding, Item, Line, Meta, Scan};
use super::seek;

/// Lines that were found without reading their whole segment.
#[derive(Debug)]
pub(super) struct Found {
    file: Box<dyn DiskFile>,
    pub lines: Vec<Line>,
}

/// A page being filled.
struct Filling<'a> {
    read: &'a ReadFrames,
    page: FramePage,
    bytes: usize,
}

impl Branch {
    /// Reads a page. The branch was refreshed.
    pub(super) fn page(&mut self, layout: &Layout, read: &ReadFrames) -> Result<FramePage> {
        let mut filling = Filling { read, page: FramePage { slots: Vec::new(), more: false }, bytes: 0 };
        let directory = self.directory.clone();
        if read.section == Section::Base {
            let (file, scan) = self.base(layout)?;
            filling.fill(file, &scan.items, Seq::ZERO).map_err(reading(&directory))?;
            return Ok(filling.page);
        }
        let segments = self.tail.as_ref().map(|tail| tail.segments.as_slice()).unwrap_or_default();
        let start = segments.partition_point(|first| *first <= read.from).saturating_sub(1);
        let end = segments.partition_point(|first| *first <= read.through).max(1);
        let mut indices: Vec<_> = (start..end).collect();
        if read.newest_first {
            indices.reverse();
        }
        let floor = self.floor();
        for index in indices {
            let filled = match self.find(layout, index, read.from..=read.through)? {
                Some(found) => {
                    let items: Vec<_> = found.lines.into_iter().map(Item::Line).collect();
                    filling.fill(Some(&*found.file), &items, floor)
                }
                None => {
                    let (file, scan) = self.segment(layout, index)?;
                    filling.fill(file, &scan.items, floor)
                }
            };
            filled.map_err(reading(&directory))?;
            if filling.page.more {
                break;
            }
        }
        Ok(filling.page)
    }

    /// The lines of a segment that hold the records `wanted`, if there are few and they can be
    /// found without reading all of it.
    pub(super) fn find(&self, layout: &Layout, index: usize, wanted: RangeInclusive<Seq>) -> Result<Option<Found>> {
        let Some(tail) = &self.tail else { return Ok(None) };
        let Some(&[first, next]) = tail.segments.get(index..index + 2) else { return Ok(None) };
        let is_read = tail.older.as_ref().is_some_and(|(older, ..)| *older == first);
        // Before the first segment something may be missing, which is for the scan to say.
        let is_before = index == 0 && *wanted.start() < first;
        if is_read || is_before || !seek::is_worthwhile(&wanted) {
            return Ok(None);
        }
        let wanted = first.max(*wanted.start())..=next.previous().min(*wanted.end());
        let path = self.directory.join(segment_name(first));
        let Ok(file) = layout.disk.open(&path, OpenMode::Read) else { return Ok(None) };
        let found = seek::find(&*file, first..next, &wanted).map_err(reading(&path))?;
        Ok(found.map(|lines| Found { file, lines }))
    }

    /// A segment, read if need be.
    pub(super) fn segment(&mut self, layout: &Layout, index: usize) -> Result<(Option<&dyn DiskFile>, &Scan)> {
        let segments = self.tail.as_ref().map(|tail| tail.segments.clone()).unwrap_or_default();
        let wanted = segments.get(index).copied().filter(|_| index + 1 < segments.len());
        if let Some(first) = wanted
            && self.tail.as_ref().and_then(|tail| tail.older.as_ref()).is_none_or(|(older, ..)| *older != first)
        {
            let (file, scan) = self.scan_segment(layout, &segments, index)?;
            if let Some(tail) = &mut self.tail {
                tail.older = Some((first, file, scan));
            }
        }
        let tail = self.tail.as_ref().expect("a branch is read from only after it was refreshed");
        Ok(match (&tail.older, wanted) {
            (Some((_, file, scan)), Some(_)) => (Some(&**file), scan),
            _ => (tail.file.as_deref(), &tail.scan),
        })
    }

    /// The base, read if need be.
    pub(super) fn base(&mut self, layout: &Layout) -> Result<(Option<&dyn DiskFile>, &Scan)> {
        let path = self.info.base.map(|head| self.directory.join(base_name(head)));
        let parts = Seq(self.stored.parts);
        let tail = self.tail.as_mut().expect("a branch is read from only after it was refreshed");
        let read = || -> Result<_> {
            let Some(path) = &path else { return Ok((None, Scan::new(Seq(1)))) };
            let (file, mut scan) = match layout.disk.open(path, OpenMode::Read) {
                Err(error) if absent(&error) => (None, Scan::new(Seq(1))),
                Err(error) => return Err(reading(path)(error)),
                Ok(file) => {
                    let scan = Scan::of(&*file, Seq(1), false).map_err(reading(path))?;
                    (Some(file), scan)
                }
            };
            scan.close(parts);
            Ok((file, scan))
        };
        if tail.base.is_none() {
            tail.base = Some(read()?);
        }
        let (file, scan) = tail.base.as_ref().expect("it was just read");
        Ok((file.as_deref(), scan))
    }

    /// How many frames there are, and how many bytes their lines have.
    pub(super) fn count(&mut self, layout: &Layout) -> Result<(u64, u64)> {
        let floor = self.floor();
        let sum = |scan: &Scan, floor: Seq| {
            scan.lines_after(floor).fold((0, 0), |(count, bytes), line| (count + 1, bytes + line.len as u64))
        };
        let mut total = sum(self.base(layout)?.1, Seq::ZERO);
        let segments = self.tail.as_ref().map_or(0, |tail| tail.segments.len());
        for index in 0..segments {
            let (count, bytes) = sum(self.segment(layout, index)?.1, floor);
            total = (total.0 + count, total.1 + bytes);
        }
        Ok(total)
    }
}

impl Filling<'_> {
    fn fill(&mut self, file: Option<&dyn DiskFile>, items: &[Item], floor: Seq) -> io::Result<()> {
        let start = items.partition_point(|item| item.span().1 < self.read.from || item.span().1 <= floor);
        let end = items.partition_point(|item| item.span().0 <= self.read.through);
        let range = items.get(start..end).unwrap_or_default();
        let ordered: Box<dyn Iterator<Item = &Item>> =
            if self.read.newest_first { Box::new(range.iter().rev()) } else { Box::new(range.iter()) };
        for item in ordered {
            if let Item::Line(line) = item
                && !self.read.wants(line.first, line.last, line.marks)
            {
                continue;
            }
            if self.page.slots.len() == self.read.limit || self.bytes >= PAGE_BYTES {
                self.page.more = true;
                return Ok(());
            }
            let slot = match (item, file) {
                (Item::Line(line), Some(file)) => self.frame(file, line)?,
                (Item::Line(line), None) => {
                    Slot::Damaged(Finding::missing(line.first, line.last).on(&self.read.branch))
                }
                // What it was marked with is not known: it is shown whatever marks are asked for.
                (Item::Damaged(finding), _) => Slot::Damaged(finding.on(&self.read.branch)),
            };
            self.page.slots.push(slot);
        }
        Ok(())
    }

    fn frame(&mut self, file: &dyn DiskFile, line: &Line) -> io::Result<Slot> {
        let damaged = |kind, detail: String| {
            let finding = Finding::new(kind, line.first, line.last, detail);
            Slot::Damaged(finding.on(&self.read.branch))
        };
        let bytes = match file.read_exact_at(line.offset, line.len) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(damaged(DamageKind::Missing, "the segment became shorter".into()));
            }
            other => other?,
        };
        let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        Ok(match Frame::from_line::<Meta>(text) {
            Ok((frame, _)) if (frame.first, frame.last) == (line.first, line.last) => {
                self.bytes += frame.stored_len();
                Slot::Whole(frame)
            }
            Ok(_) => damaged(DamageKind::Format, format!("the line at byte {} was replaced", line.offset)),
            Err(error) => damaged(error.kind, format!("the line at byte {} {error}", line.offset)),
        })
    }
}
