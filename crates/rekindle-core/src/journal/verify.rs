//! Verification: every byte of a session is read and checked, and all damage is listed.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use serde::Serialize;

use super::Journal;
use super::load::{Entry, downgraded};
use crate::codec::{Described, Place};
use crate::error::{ErrorKind, Result};
use crate::id::{BranchId, SessionKey};
use crate::position::{Hash, Head, Position, Seq};
use crate::record::{Marks, Record};
use crate::session::{BranchInfo, Damage, DamageKind, SessionInfo};
use crate::status::Status;
use crate::store::{ReadFrames, Slot, StoreExt as _};

/// So many of the newest frames are looked at where not all of them are read.
const NEWEST: usize = 64;

/// What is said of records that are not there.
const GONE: &str = "the records are gone";

/// What verification found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifyReport {
    /// The session.
    pub session: SessionKey,
    /// Frames read.
    pub frames: u64,
    /// Records read.
    pub records: u64,
    /// Bytes read.
    pub bytes: u64,
    /// The heads found. Kept elsewhere and given to the next verification, they reveal a store
    /// that was set back to an older copy.
    pub heads: BTreeMap<BranchId, Head>,
    /// Everything that is wrong.
    pub damage: Vec<Damage>,
}

impl VerifyReport {
    /// Whether nothing is wrong. A torn tail is not: nothing acknowledged was in it.
    pub fn is_sound(&self) -> bool {
        self.damage.iter().all(|damage| damage.kind == DamageKind::Torn)
    }
}

/// The walk along one branch.
struct Walk<'a> {
    journal: &'a Journal,
    session: &'a SessionKey,
    branch: &'a BranchId,
    /// Where the walk is; no hash after damage, when the next link cannot be checked.
    before: (Seq, Option<Hash>),
    keyed: bool,
    /// A head that was there before.
    seen: Option<Head>,
    /// The last record so far that describes the session.
    described: Seq,
    /// Frames that cannot be read because their data key is gone.
    erased: Option<(Seq, Seq, u64, String)>,
    /// Heads that high-water marks name.
    marked: Vec<Head>,
    /// The status as the records read so far say; nothing if that is not known.
    status: Option<Status>,
    /// Everything so far was read and is as it should be.
    whole: bool,
    report: &'a mut VerifyReport,
}

/// The frames of a page, to be compared with what is found by their marks.
struct Listed {
    /// From the first record of all to the last; nothing if there are no frames.
    span: Option<(Seq, Seq)>,
    /// First record, last record and marks of those that are whole and have marks.
    marked: Vec<(Seq, Seq, Marks)>,
}

impl Listed {
    fn of(slots: &[Slot]) -> Self {
        let spans = slots.iter().map(Slot::span);
        let span = spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        let marked = slots.iter().filter_map(|slot| match slot {
            Slot::Whole(frame) => Some((frame.first, frame.last, frame.marks)),
            Slot::Damaged(_) => None,
        });
        Self { span, marked: marked.filter(|(.., marks)| *marks != Marks::NONE).collect() }
    }
}

impl Journal {
    /// Reads and checks everything of a session. `seen` holds heads that were there before:
    /// the session must still contain them.
    pub async fn verify(&self, session: &SessionKey, seen: &BTreeMap<BranchId, Head>) -> Result<VerifyReport> {
        // Marks first: they are never ahead of the journal. Places that cannot be read say so themselves.
        let marked = match self.store().high_water() {
            Some(marks) => marks.marked(session).await.unwrap_or_default(),
            None => Vec::new(),
        };
        let info = self.open_stored(session).await?;
        let mut report = VerifyReport {
            session: session.clone(),
            frames: 0,
            records: 0,
            bytes: 0,
            heads: info.branches.iter().map(|branch| (branch.branch.clone(), branch.head)).collect(),
            damage: info.damage.clone(),
        };
        let described = self.verify_header(&info, &mut report);
        for branch in [BranchId::main(), BranchId::inbox()] {
            if !report.heads.contains_key(&branch) && !seen.contains_key(&branch) {
                report.add(DamageKind::Missing, &branch, Seq(1), Seq::MAX, "the branch is gone");
            }
        }
        for branch in &info.branches {
            let marked = marked.iter().filter_map(|heads| heads.get(&branch.branch).copied()).collect();
            let last =
                self.verify_branch(&info, branch, seen.get(&branch.branch).copied(), marked, &mut report).await?;
            // Of a session that nothing protects, the copy may have begun and the inbox not arrived.
            let arrived = |described: &&Described| info.header.is_protected() || described.at <= branch.head.seq;
            if let Some(described) = described.as_ref().filter(|_| branch.branch.is_inbox()).filter(arrived) {
                report.compare_described(described, last);
            }
        }
        let is_gone = |described: &Described| info.branch(&described.current).is_err() && info.header.is_protected();
        if let Some(described) = described.filter(is_gone) {
            report.add(DamageKind::Missing, &described.current, Seq(1), Seq(1), "the current branch is gone");
        }
        for branch in seen.keys().filter(|branch| info.branch(branch).is_err()) {
            report.add(DamageKind::Missing, branch, Seq(1), Seq::MAX, "the branch is gone");
        }
        // A store may have noticed while opening what was found again while reading.
        report.damage = each_once(report.damage);
        Ok(report)
    }

    /// Checks the header; what its seal says, if it has one that fits.
    fn verify_header(&self, info: &SessionInfo, report: &mut VerifyReport) -> Option<Described> {
        let (kind, detail) = match self.codec().open_described(info.header.clone()) {
            Err(error) => match error.kind() {
                ErrorKind::KeyMissing { .. } => (DamageKind::Key, error.message().to_owned()),
                _ => (DamageKind::Header, error.message().to_owned()),
            },
            Ok((header, _)) if !self.codec().check_genesis(&header) => {
                (DamageKind::Header, "the header does not fit the start of the chain".to_owned())
            }
            Ok((_, described)) => return described,
        };
        report.add(kind, &BranchId::main(), Seq(1), Seq(1), detail);
        None
    }

    async fn verify_branch(
        &self,
        info: &SessionInfo,
        branch: &BranchInfo,
        seen: Option<Head>,
        marked: Vec<Head>,
        report: &mut VerifyReport,
    ) -> Result<Seq> {
        let session = &info.header.key;
        let (before, status) = self.verify_start(info, branch, report).await?;
        let mut walk = Walk { seen, marked, status, ..Walk::new(self, session, &branch.branch, before, report) };
        walk.compare(before.0, before.1);
        let mut read = ReadFrames::all(session.clone(), branch.branch.clone());
        loop {
            let page = self.store().read(&read).await?;
            let Some((_, last)) = page.slots.last().map(Slot::span) else { break };
            let listed = Listed::of(&page.slots);
            page.slots.into_iter().for_each(|slot| walk.slot(slot));
            self.verify_marks(&read, &listed, walk.report).await?;
            // A page that leads no further ends the walk, so that no store can make it endless.
            if !page.more || last < read.from {
                break;
            }
            read.from = last.next();
        }
        // An append since the session was opened is no damage.
        let grown = walk.before.0 > branch.head.seq;
        let now =
            if grown { self.store().open(session).await?.branch(&branch.branch)?.clone() } else { branch.clone() };
        walk.finish(&now);
        walk.compare_status(&now);
        Ok(walk.described)
    }

    /// Compares frames with the result of a search by their marks. A frame that is not found that way
    /// is lost to every search for checkpoints or waits.
    async fn verify_marks(&self, read: &ReadFrames, listed: &Listed, report: &mut VerifyReport) -> Result<()> {
        let Some((from, through)) = listed.span else { return Ok(()) };
        for mark in Marks::EACH {
            let filtered = read.clone().with_range(from, through).with_marks(mark);
            let (mut found, mut damaged) = (HashSet::new(), Vec::new());
            for slot in self.store().read_all(&filtered).await? {
                match slot {
                    Slot::Whole(frame) => drop(found.insert((frame.first, frame.last))),
                    Slot::Damaged(damage) => damaged.push(damage),
                }
            }
            for (first, last, _) in listed.marked.iter().copied().filter(|(.., marks)| marks.intersects(mark)) {
                let known = damaged.iter().any(|damage| damage.first <= last && first <= damage.last);
                if !known && !found.contains(&(first, last)) && self.still_stands(read, first, last).await? {
                    let detail = "the index does not fit the frame: it is not found by its marks";
                    report.add(DamageKind::Index, &read.branch, first, last, detail);
                }
            }
            report.damage.extend(damaged);
        }
        Ok(())
    }

    /// Returns whether a frame is still there; it may have been pruned since it was read.
    async fn still_stands(&self, read: &ReadFrames, first: Seq, last: Seq) -> Result<bool> {
        let page = self.store().read(&read.clone().with_range(first, last).with_limit(1)).await?;
        Ok(page.slots.first().is_some_and(|slot| slot.span() == (first, last)))
    }

    /// The damage to records of a branch behind a position, up to the end of the branch: what a line of history
    /// that goes on from that position does not know. Reads all of them.
    pub async fn damage_behind(&self, info: &SessionInfo, position: &Position) -> Result<Vec<Damage>> {
        let (session, branch) = (&info.header.key, info.branch(&position.branch)?);
        let mut report = VerifyReport {
            session: session.clone(),
            frames: 0,
            records: 0,
            bytes: 0,
            heads: info.heads(),
            damage: Vec::new(),
        };
        report.damage.extend(told_behind(info, position).cloned());
        if position.seq < branch.head.seq {
            let before = (position.seq, self.hash_at(info, position).await.ok());
            let mut walk = Walk::new(self, session, &branch.branch, before, &mut report);
            let from = position.seq.next();
            let read = ReadFrames::all(session.clone(), branch.branch.clone()).with_range(from, branch.head.seq);
            let visit = &mut |slots: Vec<Slot>| {
                for slot in slots {
                    // A fork may begin within a batch.
                    if let Slot::Whole(frame) = &slot
                        && frame.first <= position.seq
                    {
                        walk.before = (frame.first.previous(), Some(frame.prev));
                    }
                    walk.slot(slot);
                }
                Ok(ControlFlow::Continue(()))
            };
            self.store().read_pages(&read, visit).await?;
            walk.finish(branch);
        }
        Ok(each_once(report.damage))
    }

    /// The same, of the newest records alone: costs the same in any history, and misses what is older.
    pub async fn damage_at_end(&self, info: &SessionInfo, position: &Position) -> Result<Vec<Damage>> {
        let (session, branch) = (&info.header.key, info.branch(&position.branch)?);
        let mut found: Vec<Damage> = told_behind(info, position).cloned().collect();
        let (from, through) = (position.seq.next(), branch.head.seq);
        if from <= through {
            let newest = ReadFrames::all(session.clone(), branch.branch.clone()).with_newest_first();
            let page = self.store().read(&newest.with_range(from, through).with_limit(NEWEST)).await?;
            let last = page.slots.first().map_or(position.seq, |slot| slot.span().1);
            if last < through {
                let gone = Damage::new(DamageKind::Missing, branch.branch.clone(), last.next(), through, GONE);
                found.push(gone);
            }
            let place = Place { session, branch: &branch.branch };
            found.extend(page.slots.into_iter().filter_map(|slot| match self.entry(place, slot) {
                Entry::Batch(_) => None,
                Entry::Damaged(damage) => Some(damage),
            }));
        }
        Ok(each_once(found))
    }

    /// Where the walk along a branch starts: behind its base, its fork point or the genesis; and the status there, as
    /// far as it is known.
    async fn verify_start(
        &self,
        info: &SessionInfo,
        branch: &BranchInfo,
        report: &mut VerifyReport,
    ) -> Result<((Seq, Option<Hash>), Option<Status>)> {
        let session = &info.header.key;
        if let Some(base) = branch.base {
            let place = Place { session, branch: &branch.branch };
            let (mut frames, mut status) = (Vec::new(), None);
            let read = ReadFrames::all(session.clone(), branch.branch.clone()).with_base();
            let slots = self.store().read_all(&read).await?;
            let listed = Listed::of(&slots);
            for slot in slots {
                match slot {
                    Slot::Whole(frame) => {
                        report.bytes += frame.stored_len() as u64;
                        match self.codec().decode(place, &frame) {
                            Ok(batch) => status = Status::after(&batch.records).or(status),
                            Err(damage) => report.damage.push(damage),
                        }
                        frames.push(frame);
                    }
                    Slot::Damaged(damage) => report.damage.push(damage),
                }
            }
            self.verify_marks(&read, &listed, report).await?;
            report.frames += frames.len() as u64;
            if let Err(damage) = self.codec().check_base(place, base, &frames, true) {
                report.damage.push(damage);
            }
            // The base of a fork holds the runs of its parents too, which do not count.
            let status = status.filter(|_| branch.parent.is_none());
            return Ok(((base.seq, Some(base.hash)), status));
        }
        let start = branch.parent.as_ref().map_or(Seq::ZERO, |parent| parent.seq);
        // Damage at the fork point is the parent's, and listed with it.
        let hash = self.start_hash(info, branch).await.ok().flatten();
        Ok(((start, hash), Some(Status::Idle)))
    }
}

/// What a store noticed when it opened the session, behind a position of its branch.
fn told_behind<'a>(info: &'a SessionInfo, position: &'a Position) -> impl Iterator<Item = &'a Damage> {
    let is_behind = |damage: &&Damage| damage.branch == position.branch && damage.last > position.seq;
    let is_lost = |damage: &&Damage| !matches!(damage.kind, DamageKind::Torn | DamageKind::Header | DamageKind::Index);
    info.damage.iter().filter(is_behind).filter(is_lost)
}

fn each_once(mut damage: Vec<Damage>) -> Vec<Damage> {
    let mut seen = HashSet::new();
    damage.retain(|damage| seen.insert((damage.kind, damage.branch.clone(), damage.first, damage.last)));
    damage
}

impl VerifyReport {
    /// Compares the seal of the header with the last record that describes the session.
    fn compare_described(&mut self, described: &Described, last: Seq) {
        if described.at != last {
            let detail =
                format!("the header is as of record {} of the inbox, and the last change is {last}", described.at);
            let (first, last) = (described.at.min(last).next(), described.at.max(last));
            self.add(DamageKind::Header, &BranchId::inbox(), first, last, detail);
        }
    }

    fn add(&mut self, kind: DamageKind, branch: &BranchId, first: Seq, last: Seq, detail: impl Into<String>) {
        self.damage.push(Damage::new(kind, branch.clone(), first, last, detail));
    }
}

impl<'a> Walk<'a> {
    fn new(
        journal: &'a Journal,
        session: &'a SessionKey,
        branch: &'a BranchId,
        before: (Seq, Option<Hash>),
        report: &'a mut VerifyReport,
    ) -> Self {
        Self {
            journal,
            session,
            branch,
            before,
            keyed: false,
            seen: None,
            marked: Vec::new(),
            described: Seq::ZERO,
            erased: None,
            status: None,
            whole: true,
            report,
        }
    }

    fn slot(&mut self, slot: Slot) {
        let (first, last) = slot.span();
        if first > self.before.0.next() {
            self.whole = false;
            let (from, to) = (self.before.0.next(), first.previous());
            self.report.add(DamageKind::Missing, self.branch, from, to, GONE);
            self.before = (to, None);
        }
        match slot {
            Slot::Damaged(damage) => {
                self.whole = false;
                self.report.damage.push(damage);
                self.before = (last.max(self.before.0), None);
            }
            Slot::Whole(frame) => {
                self.frame(&frame);
                self.compare(frame.last, Some(frame.hash));
                self.before = (frame.last, Some(frame.hash));
            }
        }
    }

    fn frame(&mut self, frame: &crate::codec::Frame) {
        let place = Place { session: self.session, branch: self.branch };
        self.report.frames += 1;
        self.report.records += frame.last.0 - frame.first.0 + 1;
        self.report.bytes += frame.stored_len() as u64;
        if self.keyed && !frame.is_protected() {
            self.report.damage.push(downgraded(self.branch, frame));
        }
        self.keyed |= frame.is_protected();
        // Behind damage the frame's own word for what it continues has to do.
        let before = Head { seq: self.before.0, hash: self.before.1.unwrap_or(frame.prev) };
        let codec = self.journal.codec();
        match codec.check_link(place, frame, before, true).and_then(|()| codec.decode(place, frame)) {
            Ok(batch) => {
                let describes = |record: &Record| matches!(record, Record::SessionDescribed(_));
                let last = batch.numbered().filter(|(_, record)| describes(record)).last();
                self.described = last.map_or(self.described, |(seq, _)| seq);
                self.status = Status::after(&batch.records).or(self.status);
            }
            // It continues what stands before it: only its content is beyond reach.
            Err(damage) if damage.kind == DamageKind::Key && frame.has_data_key() => {
                self.whole = false;
                let (first, _, frames, key) =
                    self.erased.take().unwrap_or((frame.first, frame.last, 0, frame.key_id().to_owned()));
                self.erased = Some((first, frame.last, frames + 1, key));
            }
            Err(damage) => {
                self.whole = false;
                self.report.damage.push(damage);
            }
        }
    }

    /// Compares the stored status with the one that the records come to, unless some of them cannot be read.
    fn compare_status(&mut self, branch: &BranchInfo) {
        let ends_there = self.before == (branch.head.seq, Some(branch.head.hash));
        let Some(status) = self.status.filter(|_| self.whole && ends_there && !branch.branch.is_inbox()) else {
            return;
        };
        if status != branch.status {
            let detail = format!("the index says that the branch is {}, its records say {status}", branch.status);
            self.report.add(DamageKind::Index, self.branch, branch.head.seq, branch.head.seq, detail);
        }
    }

    /// Compares what stands at a record with what was seen there before.
    fn compare(&mut self, seq: Seq, hash: Option<Hash>) {
        let differs = |seen: &Head| seen.seq == seq && hash.is_some_and(|hash| hash != seen.hash);
        if self.seen.as_ref().is_some_and(differs) {
            self.report.add(DamageKind::Chain, self.branch, seq, seq, "is not what was seen there before");
        }
        if self.marked.iter().any(differs) {
            self.report.damage.push(crate::high_water::replaced(self.branch, seq));
        }
    }

    fn finish(&mut self, branch: &BranchInfo) {
        if let Some((first, last, frames, key)) = self.erased.take() {
            let detail = format!(
                "{frames} batches are sealed with the data key `{key}`, which is gone; their order and completeness hold"
            );
            self.report.add(DamageKind::Key, self.branch, first, last, detail);
        }
        let (seq, hash) = self.before;
        let opened_at = self.report.heads.get(self.branch).map_or(Seq::ZERO, |head| head.seq);
        if seq < branch.head.seq.min(opened_at) {
            self.report.add(DamageKind::Missing, self.branch, seq.next(), branch.head.seq, GONE);
        } else if seq > branch.head.seq || (seq == branch.head.seq && hash.is_some_and(|hash| hash != branch.head.hash))
        {
            let detail = format!("history ends at record {seq}, the recorded head is {}", branch.head.seq);
            self.report.add(DamageKind::Head, self.branch, branch.head.seq, seq, detail);
        }
        if let Some(seen) = self.seen.filter(|seen| seen.seq > branch.head.seq) {
            let detail = format!("record {} was seen before, but history ends at {}", seen.seq, branch.head.seq);
            self.report.add(DamageKind::Missing, self.branch, branch.head.seq.next(), seen.seq, detail);
        }
    }
}
