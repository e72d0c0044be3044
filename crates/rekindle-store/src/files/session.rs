//! One session's directory: its lock, `session.json`, and what is remembered of both.
//!
//! Every call takes the session's lock file, shared to read and exclusive to write. The lock
//! file holds a marker that changes with `session.json`, so that a process notices at the cost
//! of one small read that another one changed it; appended lines are noticed by the segment's
//! length. The marker is never synced: it only matters to processes that run.

use std::path::PathBuf;
use std::sync::Arc;

use rekindle_core::{
    BranchId, BranchInfo, Damage, DamageKind, Epoch, Error, ErrorKind, Hash, Moment, Result, Seq, SessionInfo,
    SessionKey, Timestamp,
};

use super::branch::{Branch, Described};
use super::disk::{DiskFile, OpenMode};
use super::layout::{Layout, absent, branch_directory, decoded, reading, refused, replaced, writing};
use super::manifest::{self, Found, Manifest, ORIGINAL};
use super::scan::Finding;

/// Epochs that may have been given out since the copy of `session.json` was written; owners that hold one of them
/// stay fenced out.
const SKIPPED_EPOCHS: u64 = 1 << 20;

/// In the lock file of a directory that is being moved to the trash.
const REMOVED: &[u8] = b"removed-removed-removed-removed-";

/// How often a session may be replaced by another of the same name while one call waits.
const TRIES: usize = 100;

/// A session and what is remembered of it.
#[derive(Debug)]
pub(super) struct Session {
    pub layout: Arc<Layout>,
    pub key: SessionKey,
    pub directory: PathBuf,
    lock: Option<Box<dyn DiskFile>>,
    /// Whether the lock was opened where nothing may be written.
    only_read: bool,
    /// Whether the directory or a segment was found deleted or replaced. Whoever goes on from what was remembered
    /// before is refused; a new lease starts from what is there.
    pub replaced: bool,
    marker: Vec<u8>,
    pub state: Option<State>,
}

/// The session as it is.
#[derive(Debug)]
pub(super) struct State {
    pub described: Described,
    pub created_at: Timestamp,
    pub current: BranchId,
    pub branches: Vec<Branch>,
    pub revision: String,
    /// Whether another process made entries that it perhaps did not sync.
    pub unsynced: bool,
    /// Why `session.json` could not be used, if its copy was.
    index_damage: Option<String>,
    /// Directories of branches whose beginning is not known.
    pub lost: Vec<String>,
}

impl Session {
    pub(super) fn new(layout: Arc<Layout>, key: SessionKey) -> Self {
        let directory = layout.session(&key);
        let (only_read, replaced, marker) = (false, false, Vec::new());
        Self { layout, key, directory, lock: None, only_read, replaced, marker, state: None }
    }

    /// Does `work` on the session as it is, under its lock.
    pub(super) fn locked<T>(&mut self, exclusive: bool, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.acquire(exclusive)?;
        let ready = if exclusive { self.ensure_known() } else { Ok(()) };
        let result = ready.and_then(|()| self.load().map(drop)).and_then(|()| work(self));
        if result
            .as_ref()
            .is_err_and(|error| matches!(error.kind(), ErrorKind::PersistFailed | ErrorKind::StoreUnavailable))
        {
            // What the disk holds now may not be what is remembered.
            self.state = None;
        }
        self.release();
        result
    }

    /// Does `work` under the lock, whether or not there is a session.
    pub(super) fn locked_unread<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.start_anew();
        self.acquire(true)?;
        let result = work(self);
        self.release();
        result
    }

    fn release(&mut self) {
        if self.lock.as_ref().is_some_and(|lock| lock.unlock().is_err()) {
            self.lock = None;
        }
    }

    fn acquire(&mut self, exclusive: bool) -> Result<()> {
        for _ in 0..TRIES {
            if exclusive && self.only_read {
                self.lock = None;
            }
            let fresh = self.lock.is_none();
            if fresh {
                self.open_lock(exclusive)?;
            }
            let Some(lock) = &self.lock else { return Ok(()) };
            lock.lock(exclusive).map_err(reading(&self.directory))?;
            let marker = lock.read_start(REMOVED.len()).map_err(reading(&self.directory))?;
            // Either the directory is in the trash and the lock guards nothing, or whoever
            // wanted to move it there died first.
            if marker == REMOVED && (!fresh || (exclusive && !self.is_in_place()?)) {
                self.lock = None;
                continue;
            }
            if !fresh && !self.is_lock_in_place()? {
                (self.lock, self.replaced) = (None, true);
                continue;
            }
            if marker != self.marker {
                self.state = None;
            }
            self.marker = marker;
            return Ok(());
        }
        Err(Error::new(ErrorKind::StoreUnavailable, "the session is being removed and created again and again"))
    }

    /// Whether the lock, and so the directory, is still the one under its path: what is written through open files
    /// would be lost otherwise. Removing a session in the ordinary way marks its lock.
    fn is_lock_in_place(&self) -> Result<bool> {
        let Some(lock) = &self.lock else { return Ok(true) };
        lock.is_at(&self.directory.join("lock")).map_err(reading(&self.directory))
    }

    /// An error for callers that go on from what was remembered of a directory that is gone.
    fn ensure_known(&self) -> Result<()> {
        match self.replaced {
            true => Err(replaced(&self.directory)),
            false => Ok(()),
        }
    }

    /// Forgets a directory that was deleted or replaced, for calls that do not go on from what is remembered.
    pub(super) fn start_anew(&mut self) {
        if !self.is_lock_in_place().unwrap_or(true) {
            (self.lock, self.state) = (None, None);
        }
        self.replaced = false;
    }

    fn open_lock(&mut self, exclusive: bool) -> Result<()> {
        let path = self.directory.join("lock");
        let mode = if self.layout.writable { OpenMode::Create } else { OpenMode::Read };
        let mut opened = self.layout.disk.open(&path, mode);
        self.only_read = !exclusive && opened.as_ref().is_err_and(refused);
        if self.only_read {
            opened = self.layout.disk.open(&path, OpenMode::Read);
        }
        self.state = None;
        self.lock = match opened {
            Ok(file) => Some(file),
            // A copy that nobody may write to needs no lock.
            Err(error) if absent(&error) && (self.only_read || !self.layout.writable) => None,
            Err(error) if absent(&error) => return Err(self.not_found()),
            Err(error) if self.only_read => return Err(reading(&path)(error)),
            Err(error) => return Err(writing(&path)(error)),
        };
        Ok(())
    }

    /// The error of a session that is not there. A list names a session by its directory if its id is not known.
    fn not_found(&self) -> Error {
        if self.replaced {
            return replaced(&self.directory);
        }
        let id = self.key.id.as_str();
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_%~".contains(&byte);
        let directory = self.layout.namespace(self.key.namespace.as_str()).join(id);
        if decoded(id).is_none() && id.bytes().all(plain) && self.layout.disk.list(&directory).is_ok() {
            let message = format!("the session in {} cannot be read, and its id is not known", directory.display());
            return Error::corrupt(message).hint(format!("put {ORIGINAL} there back from a backup"));
        }
        missing()
    }

    fn is_in_place(&mut self) -> Result<bool> {
        self.mark()?;
        match self.layout.disk.open(&self.directory.join("lock"), OpenMode::Read) {
            Ok(file) => Ok(file.read_start(REMOVED.len()).map_err(reading(&self.directory))? == self.marker),
            Err(error) if absent(&error) => Ok(false),
            Err(error) => Err(reading(&self.directory)(error)),
        }
    }

    /// Tells other processes to read `session.json` and the segments anew.
    pub(super) fn mark(&mut self) -> Result<()> {
        let marker = self.layout.unique().into_bytes();
        self.write_marker(&marker)?;
        self.marker = marker;
        Ok(())
    }

    fn write_marker(&self, marker: &[u8]) -> Result<()> {
        match &self.lock {
            Some(lock) => lock.write_at(0, marker).map_err(writing(&self.directory)),
            None => Ok(()),
        }
    }

    /// Reads `session.json` unless what is remembered still holds.
    pub(super) fn load(&mut self) -> Result<&mut State> {
        let state = match self.state.take() {
            Some(state) => state,
            None => self.read_state()?,
        };
        Ok(self.state.insert(state))
    }

    fn read_state(&self) -> Result<State> {
        let Found { mut manifest, damage } = self.read_manifest()?.ok_or_else(|| self.not_found())?;
        if damage.is_some() {
            for name in manifest::unknown(&self.layout, &self.directory, &manifest.branches)? {
                if !manifest.lost.contains(&name) {
                    manifest.lost.push(name);
                }
            }
            for branch in &mut manifest.branches {
                branch.info.epoch = Epoch(branch.info.epoch.0.saturating_add(SKIPPED_EPOCHS));
            }
        }
        let described = Described { header: manifest.header, pending: false };
        let branches = manifest.branches.into_iter().map(|stored| {
            let directory = branch_directory(&self.directory, &stored.info.branch);
            Branch::new(stored, directory)
        });
        Ok(State {
            described,
            created_at: manifest.created_at,
            current: manifest.current,
            branches: branches.collect(),
            revision: manifest.revision,
            unsynced: true,
            index_damage: damage,
            lost: manifest.lost,
        })
    }

    /// What `session.json` or its copy says; nothing if there is no session.
    pub(super) fn read_manifest(&self) -> Result<Option<Found>> {
        Manifest::read(&self.layout, &self.directory, &self.key)
    }

    /// Looks at what was appended to every branch.
    pub(super) fn refresh_all(&mut self) -> Result<&mut State> {
        let state = self.state.as_mut().ok_or_else(missing)?;
        // A fork has no directory before it is written to: one list spares a look at each.
        let made = self.layout.names(&self.directory.join("branches"))?;
        for branch in &mut state.branches {
            if !branch.is_known_empty() || made.iter().any(|name| branch.directory.ends_with(name)) {
                branch.refresh(&self.layout, &mut state.described)?;
            }
        }
        Ok(state)
    }

    /// Makes durable whatever was left unsynced: what is acknowledged from now on
    /// stands on it. The branches in question were refreshed.
    pub(super) fn settle(&mut self, only: Option<&BranchId>) -> Result<()> {
        let state = self.state.as_mut().ok_or_else(missing)?;
        if state.unsynced {
            self.layout.sync_dir(&self.directory)?;
            for parent in self.directory.ancestors().skip(1).take(2) {
                self.layout.sync_dir(parent)?;
            }
            if state.index_damage.is_none() {
                manifest::renew_copy(&self.layout, &self.directory, &state.revision);
            }
            state.unsynced = false;
        }
        for branch in &mut state.branches {
            if only.is_none_or(|only| *only == branch.info.branch) {
                branch.settle(&self.layout)?;
            }
        }
        Ok(())
    }

    /// Writes `session.json` as the state is now. After an error the state is read anew.
    pub(super) fn record(&mut self) -> Result<()> {
        self.record_in(false)
    }

    /// As [`Session::record`]; its copy is durable too. For changes after which an older one is of no use.
    pub(super) fn record_in_both(&mut self) -> Result<()> {
        self.record_in(true)
    }

    fn record_in(&mut self, both: bool) -> Result<()> {
        let recorded = self.try_record(both);
        if recorded.is_err() {
            self.state = None;
        }
        recorded
    }

    fn try_record(&mut self, both: bool) -> Result<()> {
        self.settle(None)?;
        let revision = self.layout.unique();
        let state = self.state.as_mut().ok_or_else(missing)?;
        for branch in &mut state.branches {
            // On a broken branch the recorded head is the evidence of what is missing.
            let head = if branch.broken().is_some() { branch.stored.info.head } else { branch.info.head };
            branch.stored.info = BranchInfo { head, ..branch.info.clone() };
        }
        let manifest = Manifest {
            revision: revision.clone(),
            version: manifest::VERSION,
            header: state.described.header.clone(),
            created_at: state.created_at,
            current: state.current.clone(),
            branches: state.branches.iter().map(|branch| branch.stored.clone()).collect(),
            lost: state.lost.clone(),
        };
        if state.index_damage.is_some() {
            self.set_index_aside()?;
        }
        self.write_manifest(&manifest, both)?;
        if let Some(state) = &mut self.state {
            (state.described.pending, state.revision, state.index_damage) = (false, revision, None);
        }
        Ok(())
    }

    /// Keeps a damaged `session.json` before it is replaced.
    fn set_index_aside(&self) -> Result<()> {
        let Some(bytes) = self.layout.read_small(&self.directory.join(ORIGINAL))? else { return Ok(()) };
        let quarantine = self.directory.join("quarantine");
        self.layout.create_dir(&quarantine)?;
        self.layout.replace(&quarantine.join(format!("session-{}.damaged", Hash::of(&bytes).short())), &bytes)
    }

    pub(super) fn write_manifest(&mut self, manifest: &Manifest, both: bool) -> Result<()> {
        // The marker changes first: if this process dies in between, others look once in vain.
        self.mark()?;
        manifest.write(&self.layout, &self.directory, both)
    }

    /// The session as seen at `now`. Every branch was refreshed.
    pub(super) fn info(&self, now: Moment) -> Result<SessionInfo> {
        let state = self.state.as_ref().ok_or_else(missing)?;
        let mut branches: Vec<_> = state.branches.iter().map(|branch| branch.info.clone()).collect();
        branches.iter_mut().filter_map(|branch| branch.lease.as_mut()).for_each(|lease| lease.seen_at(now));
        Ok(SessionInfo {
            header: state.described.header.clone(),
            created_at: state.created_at,
            branches,
            current: state.current.clone(),
            observed_at: now.wall,
            damage: state.damage().chain(state.branches.iter().flat_map(Branch::damage)).collect(),
        })
    }

    /// Moves the directory to the trash. Others that wait for the lock learn that it guards nothing.
    pub(super) fn discard(&mut self) -> Result<()> {
        self.write_marker(REMOVED)?;
        self.state = None;
        let discarded = self.layout.discard(&self.directory);
        // Still there or not, the next call looks for itself.
        self.lock = None;
        discarded
    }
}

impl State {
    /// A branch by name.
    pub(super) fn branch(&mut self, branch: &BranchId) -> Option<&mut Branch> {
        self.branches.iter_mut().find(|found| found.info.branch == *branch)
    }

    /// Damage to `session.json`, and what could not be rebuilt.
    fn damage(&self) -> impl Iterator<Item = Damage> {
        let index = self.index_damage.as_ref().map(|why| {
            let detail = format!("{why}, and its next run writes {ORIGINAL} anew");
            Finding::new(DamageKind::Index, Seq::ZERO, Seq::ZERO, detail).on(&BranchId::main())
        });
        let lost = self.lost.iter().map(|name| {
            let detail = format!("where the records in branches/{name} begin was lost with an earlier {ORIGINAL}");
            let branch = decoded(name).and_then(|name| BranchId::new(name).ok()).unwrap_or_else(BranchId::main);
            Finding::new(DamageKind::Index, Seq(1), Seq::MAX, detail).on(&branch)
        });
        index.into_iter().chain(lost)
    }

    /// Returns whether everything known of it is as `session.json` and the segments say.
    pub(super) fn is_as_recorded(&self) -> bool {
        self.index_damage.is_none()
    }
}

/// The error of a session that is not there.
pub(super) fn missing() -> Error {
    Error::not_found("there is no such session")
}

/// The error of an append to a branch whose end is damaged.
pub(super) fn broken(damage: &rekindle_core::Damage, key: &SessionKey) -> Error {
    let hint = match damage.kind {
        DamageKind::Version => "upgrade Rekindle to the version that wrote it",
        _ => "read what is left and fork the branch at the last good record, or restore the segment from a backup",
    };
    Error::corrupt(format!("the end of the branch is damaged: {}", damage.detail))
        .on(key)
        .at(damage.position())
        .hint(hint)
}
