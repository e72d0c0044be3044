//! One branch: its segments, its end, and how a commit is written behind it.
//!
//! What is known of a branch is what `session.json` recorded plus what the lines behind the
//! recorded head say. Only the last segment is read to know the end; older ones are read when
//! somebody asks for them, one at a time.

use std::path::{Path, PathBuf};

use rekindle_core::{BranchInfo, Damage, DamageKind, Error, Hash, Head, Marks, Result, Seq, SessionHeader};
use serde::{Deserialize, Serialize};

use super::disk::{DiskFile, OpenMode};
use super::layout::{Layout, absent, reading, refused, segment_first, segment_name, writing};
use super::scan::{Finding, Item, Line, Scan};

/// What `session.json` says of a branch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredBranch {
    /// As it was when the file was written; the head was durable then.
    pub info: BranchInfo,
    /// What its first line continues: where it was forked from, or its base.
    pub start: Head,
    /// How many parts its base has.
    #[serde(default)]
    pub parts: u64,
}

/// The session's header as it is now.
#[derive(Debug)]
pub(super) struct Described {
    pub header: SessionHeader,
    /// Whether a line changed it that `session.json` does not know.
    pub pending: bool,
}

/// A branch.
#[derive(Debug)]
pub(super) struct Branch {
    pub stored: StoredBranch,
    /// As it is now.
    pub info: BranchInfo,
    pub(super) directory: PathBuf,
    pub(super) tail: Option<Tail>,
}

/// What was read of a branch's files.
#[derive(Debug)]
pub(super) struct Tail {
    /// The first record of each segment, in order.
    pub segments: Vec<Seq>,
    /// The last segment, if there is one.
    pub file: Option<Box<dyn DiskFile>>,
    pub scan: Scan,
    /// The length the last segment had when it was read.
    file_len: u64,
    /// Why nothing may be appended.
    pub broken: Option<Finding>,
    /// What was set aside or does not fit, beyond what the scan found.
    extra: Vec<Finding>,
    /// Whether there are lines that another process wrote and perhaps did not sync.
    pub unsynced: bool,
    /// The older segment that was read last.
    pub older: Option<(Seq, Box<dyn DiskFile>, Scan)>,
    /// The base, if it was read.
    pub base: Option<(Option<Box<dyn DiskFile>>, Scan)>,
}

impl Branch {
    /// A branch whose files were not looked at yet.
    pub(super) fn new(stored: StoredBranch, directory: PathBuf) -> Self {
        Self { info: stored.info.clone(), stored, directory, tail: None }
    }

    /// The record before the first one that is kept.
    pub(super) fn floor(&self) -> Seq {
        self.stored.start.seq
    }

    /// Whether it had no segment when it was last looked at.
    pub(super) fn is_known_empty(&self) -> bool {
        self.tail.as_ref().is_some_and(|tail| tail.file.is_none())
    }

    /// Takes over what was written since it was last looked at.
    pub(super) fn refresh(&mut self, layout: &Layout, described: &mut Described) -> Result<()> {
        let next = self.directory.join(segment_name(self.info.head.seq.next()));
        let Some(tail) = &mut self.tail else { return self.load(layout, described) };
        let Some(file) = &tail.file else {
            return match layout.disk.size(&next) {
                Err(error) if absent(&error) => Ok(()),
                _ => self.load(layout, described),
            };
        };
        let len = file.size().map_err(reading(&self.directory))?;
        // An unfinished write may have been replaced by a finished one of the same length.
        if len < tail.file_len || !tail.scan.can_extend() {
            return self.load(layout, described);
        }
        if len == tail.file_len {
            return Ok(());
        }
        tail.scan.extend(&**file, len).map_err(reading(&self.directory))?;
        (tail.file_len, tail.unsynced) = (len, true);
        tail.broken = tail.scan.broken.clone().or(tail.broken.take());
        let known = self.info.head.seq;
        for line in tail.scan.lines_after(known) {
            apply(&mut self.info, described, line);
        }
        Ok(())
    }

    fn load(&mut self, layout: &Layout, described: &mut Described) -> Result<()> {
        let segments = self.segments(layout)?;
        self.info = self.stored.info.clone();
        let recorded = self.stored.info.head;
        let from = segments.partition_point(|first| *first <= recorded.seq.next()).saturating_sub(1);
        for index in from..segments.len().saturating_sub(1) {
            let (_, scan) = self.scan_segment(layout, &segments, index)?;
            scan.lines_after(recorded.seq).for_each(|line| apply(&mut self.info, described, line));
        }
        let (file, scan) = match segments.len() {
            0 => (None, self.close_last(Scan::new(self.floor().next()))),
            count => {
                let (file, scan) = self.scan_segment(layout, &segments, count - 1)?;
                (Some(file), self.close_last(scan))
            }
        };
        let head = self.head_finding(&scan);
        scan.lines_after(recorded.seq).for_each(|line| apply(&mut self.info, described, line));
        let file_len = file.as_ref().map_or(Ok(0), |file| file.size()).map_err(reading(&self.directory))?;
        // What the recorded head is part of was durable when it was recorded; nothing else is known to be.
        let unsynced = scan.next() > recorded.seq.next() || segments.last().is_some_and(|first| *first > recorded.seq);
        self.tail = Some(Tail {
            segments,
            file,
            file_len,
            broken: scan.broken.clone().or(head.clone()),
            extra: self.set_aside(layout)?.into_iter().chain(head).collect(),
            unsynced,
            scan,
            older: None,
            base: None,
        });
        Ok(())
    }

    fn segments(&self, layout: &Layout) -> Result<Vec<Seq>> {
        let names = layout.names(&self.directory)?;
        let mut segments: Vec<_> = names.iter().filter_map(|name| segment_first(name)).collect();
        segments.sort_unstable();
        // Where the next segment begins no later than what is kept, a trim did not get to remove this one.
        let live = self.floor().next();
        let dead = segments.iter().skip(1).take_while(|first| **first <= live).count();
        segments.drain(..dead);
        Ok(segments)
    }

    // The recorded head was durable once: if it is not there now, it was lost, not unfinished.
    fn close_last(&self, mut scan: Scan) -> Scan {
        let recorded = self.stored.info.head.seq;
        let next = scan.next();
        if recorded >= next && recorded > self.floor() {
            scan.close(recorded);
            scan.broken.get_or_insert_with(|| Finding::missing(next, recorded));
        }
        scan
    }

    fn head_finding(&self, scan: &Scan) -> Option<Finding> {
        let recorded = self.stored.info.head;
        match scan.at(recorded.seq) {
            Some(Item::Line(line)) if recorded.seq > self.floor() => {
                let fits = line.last == recorded.seq && line.hash == recorded.hash;
                let detail = "the record is not the one the session knows as a head";
                let finding = Finding::new(DamageKind::Head, recorded.seq, recorded.seq, detail);
                (!fits).then_some(finding)
            }
            _ => None,
        }
    }

    fn set_aside(&self, layout: &Layout) -> Result<Vec<Finding>> {
        let names = layout.names(&self.directory.join("quarantine"))?;
        let found = names.iter().filter_map(|name| {
            let (seq, _) = name.strip_suffix(".torn")?.split_once('-')?;
            Some(torn(Seq(seq.parse().ok()?), format!("an unfinished write was set aside as quarantine/{name}")))
        });
        Ok(found.collect())
    }

    /// Opens and reads a segment that is not the last of the branch, or is not known to be.
    pub(super) fn scan_segment(
        &self,
        layout: &Layout,
        segments: &[Seq],
        index: usize,
    ) -> Result<(Box<dyn DiskFile>, Scan)> {
        let first = segments[index];
        let path = self.directory.join(segment_name(first));
        let file = open_segment(layout, &path).map_err(reading(&path))?;
        let next = segments.get(index + 1);
        let mut scan = Scan::of(&*file, first, next.is_some()).map_err(reading(&path))?;
        let live = self.floor().next();
        if index == 0 && first > live {
            scan.items.insert(0, Item::Damaged(Finding::missing(live, first.previous())));
        }
        if let Some(next) = next {
            scan.close(next.previous());
        }
        Ok((file, scan))
    }

    /// Everything noticed so far.
    pub(super) fn damage(&self) -> Vec<Damage> {
        let Some(tail) = &self.tail else { return Vec::new() };
        let floor = self.floor();
        let items = tail.scan.items.iter().filter_map(|item| match item {
            Item::Damaged(finding) if finding.last > floor => Some(finding),
            _ => None,
        });
        let mut damage: Vec<_> =
            items.chain(&tail.scan.notes).chain(&tail.extra).map(|found| found.on(&self.info.branch)).collect();
        if tail.scan.torn {
            let next = self.info.head.seq.next();
            damage.push(torn(next, "the last write was not finished".into()).on(&self.info.branch));
        }
        damage
    }

    /// Why nothing may be appended, if so.
    pub(super) fn broken(&self) -> Option<Damage> {
        self.tail.as_ref()?.broken.as_ref().map(|finding| finding.on(&self.info.branch))
    }

    /// Returns whether the segment that is written to is still the file under its name.
    pub(super) fn is_in_place(&self) -> Result<bool> {
        let Some((tail, file)) = self.tail.as_ref().and_then(|tail| Some((tail, tail.file.as_ref()?))) else {
            return Ok(true);
        };
        let Some(first) = tail.segments.last() else { return Ok(true) };
        let path = self.directory.join(segment_name(*first));
        file.is_at(&path).map_err(reading(&path))
    }

    /// Takes note that the last segment is gone: the head that was durable is the evidence.
    pub(super) fn lose_last_segment(&mut self) {
        self.stored.info.head = self.info.head;
        if let Some(tail) = &mut self.tail {
            let first = tail.segments.last().copied().unwrap_or(self.info.head.seq);
            tail.broken = Some(Finding::missing(first, self.info.head.seq));
        }
    }

    /// The files whose length tells whether anything was appended since.
    pub(super) fn watched(&self) -> (PathBuf, Option<u64>) {
        let last = self.tail.as_ref().and_then(|tail| Some((*tail.segments.last()?, tail.file_len)));
        let (first, len) = last.map_or((self.info.head.seq.next(), None), |(first, len)| (first, Some(len)));
        (self.directory.join(segment_name(first)), len)
    }

    /// The hash of the frame that ends at `seq`, if there is one.
    pub(super) fn hash_at(&mut self, layout: &Layout, seq: Seq) -> Result<Option<Hash>> {
        if seq <= self.floor() {
            return Ok(None);
        }
        let Some(tail) = &self.tail else { return Ok(None) };
        let index = tail.segments.partition_point(|first| *first <= seq).saturating_sub(1);
        if let Some(found) = self.find(layout, index, seq..=seq)? {
            return Ok(found.lines.first().filter(|line| line.last == seq).map(|line| line.hash));
        }
        let (_, scan) = self.segment(layout, index)?;
        Ok(match scan.at(seq) {
            Some(Item::Line(line)) if line.last == seq => Some(line.hash),
            _ => None,
        })
    }

    /// Makes durable what a failed write or another process may have left in memory.
    pub(super) fn settle(&mut self, layout: &Layout) -> Result<()> {
        let Some(tail) = self.tail.as_mut().filter(|tail| tail.unsynced) else { return Ok(()) };
        if let Some(file) = &tail.file {
            // Only the last commit is in doubt: each is settled before the next. After a failed
            // sync the system may believe that its bytes are on the disk; written again, they
            // are synced again.
            if let Some(from) = tail.scan.last_commit() {
                let bytes =
                    file.read_exact_at(from, (tail.scan.good - from) as usize).map_err(reading(&self.directory))?;
                file.write_at(from, &bytes).map_err(writing(&self.directory))?;
            }
            file.sync_data().map_err(writing(&self.directory))?;
            layout.sync_dir(&self.directory)?;
        }
        tail.unsynced = false;
        Ok(())
    }

    /// Whether a commit of `bytes` begins a new segment behind an older one.
    pub(super) fn rolls(&self, layout: &Layout, bytes: usize) -> bool {
        let good = self.tail.as_ref().map_or(0, |tail| tail.scan.good);
        good > 0 && good + bytes as u64 > layout.segment_bytes
    }

    /// Begins a new segment with the next commit.
    pub(super) fn roll(&mut self) {
        let first = self.info.head.seq.next();
        if let Some(tail) = &mut self.tail {
            (tail.file, tail.file_len, tail.scan) = (None, 0, Scan::new(first));
        }
    }

    /// Sets an unfinished write aside and cuts it off.
    pub(super) fn cut_torn(&mut self, layout: &Layout) -> Result<()> {
        let next = self.info.head.seq.next();
        let Some(tail) = self.tail.as_mut().filter(|tail| tail.scan.torn) else { return Ok(()) };
        let Some(file) = &tail.file else { return Ok(()) };
        let good = tail.scan.good;
        let bytes = file.read_exact_at(good, (tail.file_len - good) as usize).map_err(reading(&self.directory))?;
        let quarantine = self.directory.join("quarantine");
        layout.create_dir(&quarantine)?;
        let name = format!("{:020}-{}.torn", next.0, Hash::of(&bytes).short());
        layout.replace(&quarantine.join(&name), &bytes)?;
        file.truncate(good).and_then(|()| file.sync_data()).map_err(writing(&self.directory))?;
        tail.extra.push(torn(next, format!("an unfinished write was set aside as quarantine/{name}")));
        (tail.scan.torn, tail.file_len) = (false, good);
        Ok(())
    }

    /// Writes a commit: one write, one sync. `lines` stand where `bytes` will, counted from zero.
    pub(super) fn commit(
        &mut self,
        layout: &Layout,
        bytes: &[u8],
        mut lines: Vec<Line>,
        described: &mut Described,
    ) -> Result<()> {
        let first = self.info.head.seq.next();
        let Some(tail) = &mut self.tail else { return Err(Error::invalid("the branch was not read")) };
        let new = tail.file.is_none();
        let file = match tail.file.take() {
            Some(file) => file,
            None => create_segment(layout, &self.directory, first)?,
        };
        let good = tail.scan.good;
        let mut written = file.write_at(good, bytes).and_then(|()| file.sync_data());
        if new {
            written = written.and_then(|()| layout.disk.sync_dir(&self.directory));
        }
        if let Err(error) = written {
            // If this fails too, the bytes are found, judged and settled before the next commit.
            let _ = file.truncate(good).and_then(|()| file.sync_data());
            return Err(writing(&self.directory)(error));
        }
        if new {
            tail.segments.push(first);
        }
        tail.file = Some(file);
        tail.file_len = good + bytes.len() as u64;
        for line in &mut lines {
            line.offset += good;
            apply(&mut self.info, described, line);
        }
        tail.scan.push(lines, tail.file_len);
        Ok(())
    }
}

fn torn(next: Seq, detail: String) -> Finding {
    Finding::new(DamageKind::Torn, next, next, detail)
}

fn apply(info: &mut BranchInfo, described: &mut Described, line: &Line) {
    let meta = &line.meta;
    info.head = Head { seq: line.last, hash: line.hash };
    if line.marks.intersects(Marks::WAIT) {
        info.last_wait = line.last;
    }
    info.updated_at = meta.at;
    if let Some(status) = meta.status {
        info.status = status;
    }
    if let (Some(lease), Some(renewal)) = (&mut info.lease, meta.lease)
        && lease.epoch == renewal.epoch
    {
        (lease.expires_at, lease.boot) = (renewal.until, renewal.boot);
    }
    if let Some(change) = &meta.describe {
        described.header.apply(change);
        described.pending = true;
    }
    if let Some(sealed) = &meta.sealed {
        described.header.sealed = Some(sealed.to_string());
        described.pending = true;
    }
}

fn open_segment(layout: &Layout, path: &Path) -> std::io::Result<Box<dyn DiskFile>> {
    if !layout.writable {
        return layout.disk.open(path, OpenMode::Read);
    }
    // Where writing is forbidden, reading may not be.
    match layout.disk.open(path, OpenMode::Create) {
        Err(error) if refused(&error) => layout.disk.open(path, OpenMode::Read),
        other => other,
    }
}

pub(super) fn create_directory(layout: &Layout, directory: &Path) -> Result<()> {
    if let Some(branches) = directory.parent() {
        layout.create_dir(branches)?;
    }
    layout.create_dir(directory)
}

fn create_segment(layout: &Layout, directory: &Path, first: Seq) -> Result<Box<dyn DiskFile>> {
    create_directory(layout, directory)?;
    layout.create(&directory.join(segment_name(first)))
}
