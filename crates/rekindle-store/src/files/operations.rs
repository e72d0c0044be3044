//! The operations of the contract on one session, blocking and under its lock.

use rekindle_core::{
    Append, Appended, Base, BranchId, BranchInfo, Decided, Error, ErrorKind, Fork, FramePage, Lease, LeaseAction,
    LeaseRequest, Moment, NewSession, ReadFrames, Removal, Removed, Result, SessionInfo, Timestamp,
};

use super::branch::{Branch, StoredBranch};
use super::layout::{branch_directory, replaced};
use super::manifest::Manifest;
use super::scan::{Line, Meta, Renewal};
use super::session::{Session, broken, missing};

impl Session {
    pub(super) fn create(&mut self, new: &NewSession, now: Moment) -> Result<SessionInfo> {
        let directory = self.directory.clone();
        for parent in directory.ancestors().take(3).collect::<Vec<_>>().into_iter().rev() {
            self.layout.create_dir(parent)?;
        }
        self.locked_unread(|session| {
            if session.read_manifest()?.is_some() {
                // Whoever made it may have died before it was durable.
                session.layout.sync_dir(&session.directory)?;
                return Err(Error::new(ErrorKind::AlreadyExists, "the session exists already"));
            }
            if let Some(base) = &new.base {
                Branch::write_base(&session.layout, &branch_directory(&session.directory, &BranchId::main()), base)?;
            }
            let manifest = Manifest::first(new, session.layout.unique(), now);
            session.state = None;
            session.write_manifest(&manifest, false)?;
            session.load()?.unsynced = false;
            session.refresh_all()?;
            session.info(now)
        })
    }

    pub(super) fn open(&mut self, now: Moment) -> Result<SessionInfo> {
        self.locked(false, |session| {
            session.refresh_all()?;
            session.info(now)
        })
    }

    pub(super) fn read(&mut self, read: &ReadFrames) -> Result<FramePage> {
        self.locked(false, |session| {
            let layout = session.layout.clone();
            let state = session.state.as_mut().ok_or_else(missing)?;
            let known = state.branches.iter().position(|branch| branch.info.branch == read.branch);
            let Some(index) = known else {
                session.refresh_all()?;
                return Err(no_branch(&session.info(Timestamp::default().into())?, &read.branch));
            };
            state.branches[index].refresh(&layout, &mut state.described)?;
            state.branches[index].page(&layout, read)
        })
    }

    pub(super) fn append(&mut self, append: &Append, now: Moment) -> Result<Appended> {
        self.locked(true, |session| session.try_append(append, now))
    }

    fn try_append(&mut self, append: &Append, now: Moment) -> Result<Appended> {
        let changes_header = append.describe.is_some() || append.sealed.is_some();
        if changes_header && self.refresh_all()?.described.pending {
            // Two changes that only lines know of could not be told apart by age.
            self.record()?;
        }
        let layout = self.layout.clone();
        let other = self.refreshed_other(append)?;
        self.refreshed(&append.branch)?;
        self.ensure_segment_in_place(&append.branch)?;
        self.settle(Some(&append.branch))?;
        let branch = self.branch(&append.branch)?;
        let mut info = branch.info.clone();
        info.lease.iter_mut().for_each(|lease| lease.seen_at(now));
        let decided = append.decide(&info, other.as_ref(), now.wall, |seq| branch.hash_at(&layout, seq));
        let damage = branch.broken();
        if let Ok(Decided::Repeated(appended)) = decided {
            return Ok(appended);
        }
        if let Some(damage) = damage {
            return Err(broken(&damage, &self.key));
        }
        decided?;
        let (bytes, lines) = encode(append, &info, now)?;
        let branch = self.branch(&append.branch)?;
        branch.cut_torn(&layout)?;
        if branch.rolls(&layout, bytes.len()) {
            // So that whoever opens the session need only read its last segment.
            self.refresh_all()?;
            self.record()?;
            self.branch(&append.branch)?.roll();
        }
        self.commit(&append.branch, &bytes, lines)?;
        Ok(Appended { head: append.head() })
    }

    /// An error if the segment of a branch was deleted or replaced: what is written to it would be lost.
    fn ensure_segment_in_place(&mut self, branch: &BranchId) -> Result<()> {
        let found = self.branch(branch)?;
        if found.is_in_place()? {
            return Ok(());
        }
        let error = replaced(&found.directory);
        found.lose_last_segment();
        // If that fails too, nothing tells later what is missing now, but this run ends all the same.
        let _ = self.record();
        (self.state, self.replaced) = (None, true);
        Err(error)
    }

    fn commit(&mut self, branch: &BranchId, bytes: &[u8], lines: Vec<Line>) -> Result<()> {
        let state = self.state.as_mut().ok_or_else(missing)?;
        let described = &mut state.described;
        let found = state.branches.iter_mut().find(|found| found.info.branch == *branch).ok_or_else(missing)?;
        found.commit(&self.layout, bytes, lines, described)
    }

    /// A branch as it was when it was last looked at.
    fn branch(&mut self, branch: &BranchId) -> Result<&mut Branch> {
        let state = self.state.as_mut().ok_or_else(missing)?;
        state.branch(branch).ok_or_else(|| no_such(branch))
    }

    fn refreshed(&mut self, branch: &BranchId) -> Result<&mut Branch> {
        let state = self.state.as_mut().ok_or_else(missing)?;
        let found = state.branches.iter_mut().find(|found| found.info.branch == *branch);
        let found = found.ok_or_else(|| no_such(branch))?;
        found.refresh(&self.layout, &mut state.described)?;
        Ok(found)
    }

    /// The branch of an append's condition as it is now, if it is there; the session is locked.
    fn refreshed_other(&mut self, append: &Append) -> Result<Option<BranchInfo>> {
        let Some(condition) = &append.condition else { return Ok(None) };
        // One that is gone says nothing against an append that was carried out before.
        if self.branch(&condition.branch).is_err() {
            return Ok(None);
        }
        self.refreshed(&condition.branch)?;
        self.settle(Some(&condition.branch))?;
        let other = self.branch(&condition.branch)?;
        match other.broken() {
            Some(damage) => Err(broken(&damage, &self.key)),
            None => Ok(Some(other.info.clone())),
        }
    }

    pub(super) fn fork(&mut self, fork: &Fork, now: Moment) -> Result<BranchInfo> {
        self.locked(true, |session| {
            session.refresh_all()?;
            session.settle(None)?;
            if let Some(existing) = fork.decide(&session.info(now)?)? {
                return Ok(existing);
            }
            let directory = branch_directory(&session.directory, &fork.branch);
            if session.state.as_ref().is_some_and(|state| state.lost.iter().any(|name| directory.ends_with(name))) {
                let message =
                    format!("records of an earlier branch `{}` are there, whose beginning was lost", fork.branch);
                return Err(Error::corrupt(message).hint("choose another name, or remove that branch first"));
            }
            // A branch of that name may have been removed and its directory left by a crash.
            if !session.layout.names(&directory)?.is_empty() {
                session.layout.discard(&directory)?;
            }
            if let Some(base) = &fork.base {
                Branch::write_base(&session.layout, &directory, base)?;
            }
            let info = fork.branch_info(now.wall);
            let parts = fork.base.as_ref().map_or(0, |base| base.frames.len() as u64);
            let mut branch = Branch::new(StoredBranch { start: info.head, info: info.clone(), parts }, directory);
            let layout = session.layout.clone();
            let state = session.state.as_mut().ok_or_else(missing)?;
            branch.refresh(&layout, &mut state.described)?;
            state.branches.push(branch);
            session.record()?;
            Ok(info)
        })
    }

    pub(super) fn lease(&mut self, request: &LeaseRequest, now: Moment) -> Result<Lease> {
        if matches!(request.action, LeaseAction::Acquire { .. }) {
            self.start_anew();
        }
        self.locked(true, |session| {
            session.refresh_all()?;
            if session.branch(&request.branch).is_ok() {
                session.ensure_segment_in_place(&request.branch)?;
            }
            session.settle(None)?;
            let mut info = session.info(now)?;
            let lease = request.decide(&mut info, now.wall)?;
            let held = info.branches.iter_mut().find(|info| info.branch == request.branch);
            held.and_then(|info| info.lease.as_mut()).into_iter().for_each(|lease| lease.bind(now));
            let state = session.state.as_mut().ok_or_else(missing)?;
            for (branch, info) in state.branches.iter_mut().zip(info.branches) {
                branch.info = info;
            }
            state.current = info.current;
            session.record()?;
            Ok(lease)
        })
    }

    pub(super) fn remove(&mut self, removal: &Removal, now: Moment) -> Result<Removed> {
        self.start_anew();
        let removed = self.locked(true, |session| match removal {
            Removal::Session { .. } | Removal::SessionAt { .. } => session.remove_session(removal, now),
            Removal::Branch { branch, .. } => session.remove_branch(removal, branch, now),
            Removal::History { branch, base, .. } => session.remove_history(removal, branch, base, now),
        });
        match removed {
            Err(error) if *error.kind() == ErrorKind::NotFound && !matches!(removal, Removal::History { .. }) => {
                self.sync_absence()?;
                Ok(Removed::default())
            }
            // Its lease cannot be read, but neither could anybody renew or use it.
            Err(error) if *error.kind() == ErrorKind::Corrupt && matches!(removal, Removal::Session { .. }) => {
                self.locked_unread(Session::discard)?;
                Ok(Removed::default())
            }
            other => other,
        }
    }

    // Whoever removed it may have died before that was durable.
    fn sync_absence(&self) -> Result<()> {
        let namespace = self.directory.parent().unwrap_or(&self.directory);
        match self.layout.names(&self.layout.sessions())?.is_empty() || self.layout.disk.list(namespace).is_err() {
            true => Ok(()),
            false => self.layout.sync_dir(namespace),
        }
    }

    fn count(&mut self) -> Result<(u64, u64)> {
        let layout = self.layout.clone();
        let state = self.refresh_all()?;
        let mut total = (0, 0);
        for branch in &mut state.branches {
            let (frames, bytes) = branch.count(&layout)?;
            total = (total.0 + frames, total.1 + bytes);
        }
        Ok(total)
    }

    fn remove_session(&mut self, removal: &Removal, now: Moment) -> Result<Removed> {
        self.refresh_all()?;
        removal.decide(&self.info(now)?, now.wall)?;
        let (frames, bytes) = self.count()?;
        self.discard()?;
        Ok(Removed { frames, bytes })
    }

    fn remove_branch(&mut self, removal: &Removal, branch: &BranchId, now: Moment) -> Result<Removed> {
        self.refresh_all()?;
        self.settle(None)?;
        let mut removed = Removed::default();
        if removal.decide(&self.info(now)?, now.wall)? {
            let layout = self.layout.clone();
            let state = self.state.as_mut().ok_or_else(missing)?;
            let (frames, bytes) = state.branch(branch).ok_or_else(missing)?.count(&layout)?;
            removed = Removed { frames, bytes };
            state.branches.retain(|found| found.info.branch != *branch);
            self.record()?;
        }
        let directory = branch_directory(&self.directory, branch);
        self.layout.discard(&directory)?;
        let state = self.state.as_mut().ok_or_else(missing)?;
        if state.lost.iter().any(|name| directory.ends_with(name)) {
            state.lost.retain(|name| !directory.ends_with(name));
            self.record()?;
        }
        Ok(removed)
    }

    fn remove_history(&mut self, removal: &Removal, branch: &BranchId, base: &Base, now: Moment) -> Result<Removed> {
        let layout = self.layout.clone();
        self.refresh_all()?;
        self.settle(None)?;
        if !removal.decide(&self.info(now)?, now.wall)? {
            // Other processes may have the segments open that are cut now.
            self.mark()?;
            self.refreshed(branch)?.remove_dead(&layout)?;
            return Ok(Removed::default());
        }
        let before = self.refreshed(branch)?.count(&layout)?;
        Branch::write_base(&layout, &branch_directory(&self.directory, branch), base)?;
        let found = self.refreshed(branch)?;
        found.info.base = Some(base.head);
        found.stored.start = base.head;
        found.stored.parts = base.frames.len() as u64;
        if let Some(tail) = &mut found.tail {
            tail.base = None;
        }
        // From here on the base counts, and what it replaces is only space to free. An older copy would
        // need what is removed now.
        self.record_in_both()?;
        let after = self.refreshed(branch)?.count(&layout)?;
        self.refreshed(branch)?.remove_dead(&layout)?;
        Ok(Removed { frames: before.0.saturating_sub(after.0), bytes: before.1.saturating_sub(after.1) })
    }
}

fn no_such(branch: &BranchId) -> Error {
    Error::not_found(format!("there is no branch `{branch}`"))
}

fn no_branch(info: &SessionInfo, branch: &BranchId) -> Error {
    match info.branch(branch) {
        Err(error) => error,
        Ok(_) => missing(),
    }
}

/// The lines of an append, and what is to be remembered of them once they are written.
fn encode(append: &Append, info: &BranchInfo, now: Moment) -> Result<(Vec<u8>, Vec<Line>)> {
    let count = append.frames.len() as u32;
    let (mut bytes, mut lines) = (Vec::new(), Vec::new());
    for (frame, part) in append.frames.iter().zip(1..) {
        let mut meta = Meta { at: now.wall, part: (count > 1).then_some((part, count)), ..Meta::default() };
        if part == count {
            meta.status = append.status;
            meta.describe = append.describe.clone().map(Box::new);
            meta.sealed = append.sealed.as_deref().map(Box::from);
            let renewed = append.renew.filter(|_| append.fence.is_some()).zip(info.lease.as_ref());
            meta.lease = renewed.map(|(ttl, lease)| {
                let until = now.wall.plus(ttl);
                Renewal { epoch: lease.epoch, until, boot: now.boot_at(until) }
            });
        }
        let line =
            frame.to_line(Some(&meta)).map_err(|error| append.error(too_large(frame.stored_len()).because(error)))?;
        lines.push(Line::new(frame, bytes.len() as u64, line.len(), meta));
        bytes.extend(line);
    }
    Ok((bytes, lines))
}

fn too_large(len: usize) -> Error {
    if len > super::LARGEST_FRAME {
        Error::limit("bytes per frame", len as u64, super::LARGEST_FRAME as u64)
    } else {
        Error::invalid("the frame cannot be written as a line")
    }
}
