//! One session's directory: its lock, `session.json`, and what is remembered of both.
//!
//! Every call takes the session's lock file, shared to read and exclusive to write. The lock
//! file holds a marker that changes with `session.json`, so that a process notices at the cost
//! of one small read that another one changed it; appended lines are noticed by the segment's
//! length. The marker is never synced: it only matters to processes that run.

use std::path::PathBuf;
use std::sync::Arc;

use rekindle_core::codec::{object_from_line, object_to_line};
use rekindle_core::{
    BranchId, BranchInfo, DamageKind, Error, ErrorKind, Moment, NewSession, Result, SessionHeader, SessionInfo,
    SessionKey, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::branch::{Branch, Described, StoredBranch};
use super::disk::{DiskFile, OpenMode};
use super::layout::{Layout, absent, branch_directory, reading, segment_first, writing};

/// The version of `session.json` this build writes, and the newest it reads.
const VERSION: u32 = 1;

/// In the lock file of a directory that is being moved to the trash.
const REMOVED: &[u8] = b"removed-removed-removed-removed-";

/// How often a session may be replaced by another of the same name while one call waits.
const TRIES: usize = 100;

/// What `session.json` holds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// Unlike that of any other writing. First in the file: it tells versions of it apart.
    pub revision: String,
    pub version: u32,
    pub header: SessionHeader,
    pub created_at: Timestamp,
    pub current: BranchId,
    pub branches: Vec<StoredBranch>,
}

/// A session and what is remembered of it.
#[derive(Debug)]
pub(super) struct Session {
    pub layout: Arc<Layout>,
    pub key: SessionKey,
    pub directory: PathBuf,
    lock: Option<Box<dyn DiskFile>>,
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
}

impl Session {
    pub(super) fn new(layout: Arc<Layout>, key: SessionKey) -> Self {
        let directory = layout.session(&key);
        Self { layout, key, directory, lock: None, marker: Vec::new(), state: None }
    }

    /// Does `work` on the session as it is, under its lock.
    pub(super) fn locked<T>(&mut self, exclusive: bool, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.acquire(exclusive)?;
        let result = self.load().map(drop).and_then(|()| work(self));
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
            let fresh = self.lock.is_none();
            if fresh {
                (self.lock, self.state) = (self.open_lock(exclusive)?, None);
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
            if marker != self.marker {
                self.state = None;
            }
            self.marker = marker;
            return Ok(());
        }
        Err(Error::new(ErrorKind::StoreUnavailable, "the session is being removed and created again and again"))
    }

    fn open_lock(&self, exclusive: bool) -> Result<Option<Box<dyn DiskFile>>> {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        let path = self.directory.join("lock");
        let mode = if self.layout.writable { OpenMode::Create } else { OpenMode::Read };
        let mut opened = self.layout.disk.open(&path, mode);
        if let Err(error) = &opened
            && !exclusive
            && matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
        {
            opened = self.layout.disk.open(&path, OpenMode::Read);
        }
        match opened {
            Ok(file) => Ok(Some(file)),
            // A copy that nobody may write to needs no lock.
            Err(error) if absent(&error) && !self.layout.writable => Ok(None),
            Err(error) if absent(&error) => Err(missing()),
            Err(error) => Err(writing(&path)(error)),
        }
    }

    fn is_in_place(&mut self) -> Result<bool> {
        self.mark()?;
        match self.layout.disk.open(&self.directory.join("lock"), OpenMode::Read) {
            Ok(file) => Ok(file.read_start(REMOVED.len()).map_err(reading(&self.directory))? == self.marker),
            Err(error) if absent(&error) => Ok(false),
            Err(error) => Err(reading(&self.directory)(error)),
        }
    }

    fn mark(&mut self) -> Result<()> {
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
        let manifest = self.read_manifest()?.ok_or_else(missing)?;
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
        })
    }

    /// What `session.json` says; nothing if there is no session.
    pub(super) fn read_manifest(&self) -> Result<Option<Manifest>> {
        let path = self.directory.join("session.json");
        let Some(bytes) = self.layout.read_small(&path)? else {
            return if self.has_history()? {
                Err(self.damaged("session.json is missing, but the session's records are there"))
            } else {
                Ok(None)
            };
        };
        if let Some(error) = newer(&bytes) {
            return Err(error.on(&self.key));
        }
        let manifest: Manifest =
            object_from_line(&bytes).map_err(|error| self.damaged("session.json is damaged").because(error))?;
        if manifest.header.key != self.key {
            return Err(self.damaged(format!("session.json is that of session {}", manifest.header.key)));
        }
        Ok(Some(manifest))
    }

    fn has_history(&self) -> Result<bool> {
        let branches = self.directory.join("branches");
        for name in self.layout.names(&branches)? {
            if self.layout.names(&branches.join(name))?.iter().any(|name| segment_first(name).is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn damaged(&self, message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        let hint =
            format!("put session.json in {} back from a backup; nothing else was touched", self.directory.display());
        Error::corrupt(message).on(&self.key).hint(hint)
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
        let recorded = self.try_record();
        if recorded.is_err() {
            self.state = None;
        }
        recorded
    }

    fn try_record(&mut self) -> Result<()> {
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
            version: VERSION,
            header: state.described.header.clone(),
            created_at: state.created_at,
            current: state.current.clone(),
            branches: state.branches.iter().map(|branch| branch.stored.clone()).collect(),
        };
        self.write_manifest(&manifest)?;
        if let Some(state) = &mut self.state {
            (state.described.pending, state.revision) = (false, revision);
        }
        Ok(())
    }

    pub(super) fn write_manifest(&mut self, manifest: &Manifest) -> Result<()> {
        let line = object_to_line(manifest)
            .map_err(|error| Error::invalid("the session cannot be described").because(error))?;
        // The marker changes first: if this process dies in between, others look once in vain.
        self.mark()?;
        self.layout.replace(&self.directory.join("session.json"), &line)
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
            damage: state.branches.iter().flat_map(Branch::damage).collect(),
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
}

impl Manifest {
    /// What `session.json` says first.
    pub(super) fn first(new: &NewSession, revision: String, now: Moment) -> Self {
        let info = new.session_info(now.wall);
        let parts = new.base.as_ref().map_or(0, |base| base.frames.len() as u64);
        let branches = info.branches.into_iter().map(|info| {
            let parts = if info.base.is_some() { parts } else { 0 };
            StoredBranch { start: info.head, parts, info }
        });
        Self {
            revision,
            version: VERSION,
            created_at: info.created_at,
            current: info.current,
            branches: branches.collect(),
            header: info.header,
        }
    }
}

/// The error of a file that a newer version wrote.
fn newer(bytes: &[u8]) -> Option<Error> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let found = object_from_line::<Versioned>(bytes).ok()?.version;
    let kind = ErrorKind::VersionTooNew { what: "session.json".into(), found, supported: VERSION };
    let message = format!("session.json has version {found}; this build reads up to {VERSION}");
    (found > VERSION).then(|| Error::new(kind, message))
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
