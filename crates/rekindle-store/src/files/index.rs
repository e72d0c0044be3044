//! Lists sessions. What was learnt of a session is remembered, in memory and in a file per
//! namespace, together with the revision of its `session.json` and the lengths of its last
//! segments. It counts only while all of them are the same: the directories are what is
//! true, the index only spares reading them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use rekindle_core::codec::{object_from_line, object_to_line};
use rekindle_core::{
    Error, ErrorKind, Moment, Result, SessionId, SessionInfo, SessionKey, SessionPage, SessionQuery, Timestamp,
    file_name,
};
use serde::{Deserialize, Serialize};

use super::Core;
use super::branch::Tail;
use super::layout::{decoded, refused};
use super::manifest::{self, ORIGINAL};
use super::session::{Session, missing};

/// How many sessions must be read anew before the file is written again.
const WORTH_WRITING: usize = 16;

/// What is remembered, by directory of the session.
#[derive(Debug, Default)]
pub(super) struct Index {
    known: HashMap<PathBuf, Known>,
    /// The namespaces whose file was read.
    read: Vec<PathBuf>,
}

/// What is remembered of one session.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Known {
    /// The name of its directory.
    directory: String,
    revision: String,
    /// The files that grow when something is appended, below its directory, and their lengths.
    files: Vec<(PathBuf, Option<u64>)>,
    info: SessionInfo,
    /// Whether all of it is certainly durable. Only that may outlive this process: after a
    /// power cut other bytes could have the same length.
    #[serde(skip, default = "yes")]
    settled: bool,
    /// Whether any change would change the length of a file. Another write of the same length
    /// may take the place of an unfinished one.
    #[serde(skip, default = "yes")]
    stable: bool,
}

fn yes() -> bool {
    true
}

impl Core {
    /// A page of sessions.
    pub(super) fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        let now = Moment::of(&*self.clock);
        let namespace = self.layout.namespace(query.namespace.as_str());
        self.read_index(&namespace);
        let mut fresh = 0;
        let mut all = Vec::new();
        for name in self.layout.names(&namespace)? {
            if name.contains('.') {
                continue;
            }
            let directory = namespace.join(&name);
            if let Some(info) = self.remembered(&directory, now) {
                all.push(info);
                continue;
            }
            let Some(known) = self.look(&directory, &name, query, now)? else { continue };
            all.push(known.info.clone());
            fresh += 1;
            let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
            match known.stable {
                true => index.known.insert(directory, known),
                false => index.known.remove(&directory),
            };
        }
        if fresh >= WORTH_WRITING && self.layout.writable {
            // Without it the next process reads the sessions again, that is all.
            let _ = self.write_index(&namespace);
        }
        Ok(SessionPage::select(query, all.into_iter()))
    }

    fn remembered(&self, directory: &Path, now: Moment) -> Option<SessionInfo> {
        let known = self.index.lock().unwrap_or_else(PoisonError::into_inner).known.get(directory).cloned()?;
        let unchanged = manifest::has_revision(&self.layout, &directory.join(ORIGINAL), &known.revision)
            && known.files.iter().all(|(file, len)| self.layout.disk.size(&directory.join(file)).ok() == *len);
        unchanged.then(|| {
            let mut info = SessionInfo { observed_at: now.wall, ..known.info };
            info.branches.iter_mut().filter_map(|branch| branch.lease.as_mut()).for_each(|lease| lease.seen_at(now));
            info
        })
    }

    /// Reads a session; nothing if there is none. One that cannot be read is listed with what is wrong with
    /// it: neither may a list fail for it, nor may whatever works through a list leave it out.
    fn look(&self, directory: &Path, name: &str, query: &SessionQuery, now: Moment) -> Result<Option<Known>> {
        let is_session = manifest::is_session(&self.layout, directory);
        if is_session.as_ref().is_ok_and(|is_session| !is_session) {
            return Ok(None);
        }
        let id = decoded(name).or_else(|| {
            let key = manifest::key_in(&self.layout, directory)?;
            Some(key.id.as_str().to_owned()).filter(|id| file_name(id) == name)
        });
        let Ok(id) = SessionId::new(id.unwrap_or_else(|| name.to_owned())) else { return Ok(None) };
        let key = SessionKey::new(query.namespace.clone(), id);
        match is_session.and_then(|_| self.known(&key, name, now)) {
            Ok(known) => Ok(Some(known)),
            // It was removed since the directory was listed.
            Err(error) if *error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) if is_about_session(&error) => Ok(Some(unreadable(key, name, &error, now))),
            Err(error) => Err(error.on(&key)),
        }
    }

    fn known(&self, key: &SessionKey, name: &str, now: Moment) -> Result<Known> {
        let session = self.session_briefly(key);
        let mut session = session.lock().unwrap_or_else(|poisoned| {
            let mut session = poisoned.into_inner();
            *session = Session::new(self.layout.clone(), key.clone());
            session
        });
        session.locked(false, |session| {
            session.refresh_all()?;
            let info = session.info(now)?;
            let state = session.state.as_ref().ok_or_else(missing)?;
            let files = state.branches.iter().map(|branch| {
                let (path, len) = branch.watched();
                (path.strip_prefix(&session.directory).map(Path::to_owned).unwrap_or(path), len)
            });
            let all =
                |holds: fn(&Tail) -> bool| state.branches.iter().all(|branch| branch.tail.as_ref().is_some_and(holds));
            let settled = all(|tail| !tail.unsynced);
            let stable = all(|tail| tail.scan.can_extend()) && state.is_as_recorded();
            let (files, revision) = (files.collect(), state.revision.clone());
            Ok(Known { directory: name.to_owned(), revision, files, info, settled, stable })
        })
    }

    fn read_index(&self, namespace: &Path) {
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        if index.read.iter().any(|read| read == namespace) {
            return;
        }
        index.read.push(namespace.to_owned());
        let Ok(Some(bytes)) = self.layout.read_small(&namespace.join("index.jsonl")) else { return };
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if let Ok(known) = object_from_line::<Known>(line)
                && file_name(known.info.header.key.id.as_str()) == known.directory
            {
                index.known.insert(namespace.join(&known.directory), known);
            }
        }
    }

    fn write_index(&self, namespace: &Path) -> Result<()> {
        let mut bytes = Vec::new();
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        index.known.retain(|directory, _| self.layout.disk.size(&directory.join("session.json")).is_ok());
        for (directory, known) in &index.known {
            if directory.parent() == Some(namespace) && known.settled {
                bytes.extend(object_to_line(known).map_err(|error| Error::invalid("unwritable").because(error))?);
            }
        }
        drop(index);
        let temporary = namespace.join(format!("index.{}.tmp", self.layout.unique()));
        let written = self
            .layout
            .create(&temporary)
            .and_then(|file| file.write_at(0, &bytes).map_err(super::layout::writing(&temporary)));
        // Not synced: every line carries its checksum, so a torn file is only a smaller one.
        let renamed = written.and_then(|()| {
            let to = namespace.join("index.jsonl");
            self.layout.disk.rename(&temporary, &to).map_err(super::layout::writing(&to))
        });
        if renamed.is_err() {
            let _ = self.layout.disk.remove_file(&temporary);
        }
        renamed
    }
}

/// Returns whether an error concerns one session, while others can be read.
fn is_about_session(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    crate::unreadable::is_about_session(error) || source.is_some_and(refused)
}

/// A session of which nothing is known but its name.
fn unreadable(key: SessionKey, name: &str, error: &Error, now: Moment) -> Known {
    let info = crate::unreadable::unreadable(key, Timestamp::default(), error, now.wall);
    let (directory, revision) = (name.to_owned(), String::new());
    Known { directory, revision, files: Vec::new(), info, settled: false, stable: false }
}
