//! Marks: sessions whose lines may be old, and how lines are brought up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rekindle_core::{Namespace, Result, SessionInfo, Timestamp};

use super::super::cache::Cache;
use super::super::clock::{Now, Side, Started};
use super::super::layout::Folder;
use super::super::state::State;
use super::super::store::Inner;
use super::{Line, LineKey, mark_name};

/// How long a process may rely on a mark. Others take over marks that are much older.
const LASTS: Duration = Duration::from_secs(5 * 60);
/// How often the line of one session is written at its own changes, at most.
const WRITE_EVERY: Duration = Duration::from_secs(5);
/// The number of sessions of which that is remembered.
const WRITTEN: usize = 1_024;
/// How long after its last change the line of a session is written in the background.
const SETTLES_IN: Duration = Duration::from_secs(1);
/// A session is read again if nothing was heard of its last change for longer than any request takes.
const UNHEARD_OF: Duration = Duration::from_secs(60);
/// A session is read again if what is known of it is older: the index forgets sessions that are gone after twice that.
const OLD: Duration = Duration::from_secs(30 * 60);
/// The most lines that are written, and sessions that are read, at once.
const AT_ONCE: usize = 64;

/// A creation of a session that is marked.
type MarkedKey = (Folder, LineKey);

/// The marks of this process.
#[derive(Debug)]
pub(in super::super) struct Marks {
    marked: Mutex<BTreeMap<MarkedKey, Marked>>,
    /// When lines were last written, each at its own change.
    written: Cache<Folder, Instant>,
    is_settling: AtomicBool,
}

impl Default for Marks {
    fn default() -> Self {
        Self { marked: Mutex::default(), written: Cache::new(WRITTEN), is_settling: AtomicBool::new(false) }
    }
}

/// A session that this process has marked.
#[derive(Clone, Debug)]
struct Marked {
    namespace: Namespace,
    /// The marks, the last of which counts since `at`.
    objects: Vec<String>,
    at: Started,
    /// Counts changes of this entry: it goes only as it was seen.
    version: u64,
    changed: Started,
    /// The session after the last change of this process: its number, and what it is unless it was removed. Nothing
    /// while a change is under way, or if it is not known what became of it.
    now: Option<(u64, Option<SessionInfo>)>,
}

impl Marked {
    /// What the index is to say of the session, if that is known and nobody runs it.
    fn settled_line(&self, key: &LineKey, now: &Now) -> Option<Line> {
        let (number, info) = self.now.as_ref().filter(|_| self.changed.age() < OLD)?;
        let mut leases = info.iter().flat_map(|info| &info.branches).filter_map(|branch| branch.lease.as_ref());
        if leases.any(|lease| now.seen_lease(lease).expires_at > now.on(Side::Other)) {
            return None;
        }
        Some(match info.as_ref().filter(|info| info.created_at == key.created_at) {
            Some(info) => Line::new(key.clone(), *number, info),
            None => Line::removed(key.clone(), *number, now.early),
        })
    }
}

impl Marks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<MarkedKey, Marked>> {
        self.marked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entries of one session: one for each creation of it.
    fn of(&self, folder: &Folder) -> Vec<(MarkedKey, Marked)> {
        let first = (folder.clone(), LineKey { created_at: Timestamp(0), name: String::new() });
        let marked = self.lock();
        let of_folder = marked.range(first..).take_while(|((of, _), _)| of == folder);
        of_folder.map(|(key, marked)| (key.clone(), marked.clone())).collect()
    }

    /// Lets go of entries as far as they are as they were seen; their marks. Whoever changes a session makes its entry
    /// another one first, and marks it anew if there is none.
    fn let_go(&self, seen: &[(MarkedKey, Marked)]) -> Vec<String> {
        let mut marked = self.lock();
        let mut objects = Vec::new();
        for (key, seen) in seen {
            if marked.get(key).is_some_and(|marked| marked.version == seen.version) {
                objects.extend(marked.remove(key).map(|marked| marked.objects).unwrap_or_default());
            }
        }
        objects
    }
}

impl Inner {
    /// Marks a session, unless that was done lately. To be called before a change is written, and again before it is
    /// acknowledged: a process that stood still in between may have lost its mark.
    pub(in super::super) async fn mark(&self, folder: &Folder, namespace: &Namespace, key: &LineKey) -> Result<()> {
        let entry = (folder.clone(), key.clone());
        if let Some(marked) = self.marks.lock().get_mut(&entry).filter(|marked| marked.at.age() < LASTS) {
            marked.version += 1;
            (marked.changed, marked.now) = (Started::now(), None);
            return Ok(());
        }
        let object = mark_name(namespace, key, &self.ids.nonce());
        let at = Started::now();
        self.bucket.put(&object, Bytes::from_static(b"{}")).await?;
        let replaced: Vec<String> = {
            let mut marks = self.marks.lock();
            let marked = marks.entry(entry).or_insert_with(|| Marked {
                namespace: namespace.clone(),
                objects: Vec::new(),
                at,
                version: 0,
                changed: at,
                now: None,
            });
            marked.version += 1;
            (marked.at, marked.changed, marked.now) = (at, Started::now(), None);
            marked.objects.push(object);
            // The one before stays: a list under way may be past the name of the new one.
            let replaced = marked.objects.len().saturating_sub(2);
            marked.objects.drain(..replaced).collect()
        };
        if !replaced.is_empty() {
            // One that stays is taken over by a list.
            let _ = self.bucket.delete_all(&replaced).await;
        }
        self.settle_in_background();
        Ok(())
    }

    /// Takes note of what a session is, as far as that is news.
    pub(in super::super) fn note_change(&self, folder: &Folder, state: &State) {
        let entries: Vec<MarkedKey> = self.marks.of(folder).into_iter().map(|(key, _)| key).collect();
        let mut marks = self.marks.lock();
        for entry in entries {
            let Some(marked) = marks.get_mut(&entry) else { continue };
            if marked.now.as_ref().is_none_or(|(number, _)| *number <= state.number) {
                marked.version += 1;
                (marked.changed, marked.now) = (Started::now(), Some((state.number, state.info.clone())));
            }
        }
    }

    /// Writes the line of a session that is at rest after a change, and takes its marks back. Whatever fails, the marks
    /// stay.
    pub(in super::super) async fn settle(&self, folder: &Folder, now: &Now) {
        let seen = self.marks.of(folder);
        let is_removed = seen.iter().any(|(_, marked)| matches!(marked.now, Some((_, None))));
        if !is_removed && self.marks.written.get(folder).is_some_and(|at| at.elapsed() < WRITE_EVERY) {
            return;
        }
        if self.settle_seen(seen, now).await {
            self.marks.written.put(folder, Instant::now());
        }
    }

    /// Writes the lines of sessions that are at rest, and takes their marks back; whether any was written.
    async fn settle_seen(&self, seen: Vec<(MarkedKey, Marked)>, now: &Now) -> bool {
        let with_line = |(key, marked): (MarkedKey, Marked)| {
            let line = marked.settled_line(&key.1, now)?;
            Some(((key, marked), line))
        };
        let (seen, lines): (Vec<_>, Vec<Line>) = seen.into_iter().filter_map(with_line).unzip();
        let Some(namespace) = seen.first().map(|(_, marked)| marked.namespace.clone()) else { return false };
        if !matches!(self.write_lines(&namespace, &lines).await, Ok(true)) {
            return false;
        }
        let _ = self.bucket.delete_all(&self.marks.let_go(&seen)).await;
        true
    }

    /// Brings lines up to date as long as there are marks, while the store is open.
    fn settle_in_background(&self) {
        let (Ok(store), true) = (self.shared(), self.in_background) else { return };
        if self.marks.is_settling.swap(true, Ordering::SeqCst) {
            return;
        }
        // Marks of a store that is closed are taken over by lists.
        let settling = Settling(Arc::downgrade(&store));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SETTLES_IN).await;
                let Some(store) = settling.0.upgrade() else { return };
                store.settle_some().await;
                if store.marks.lock().is_empty() {
                    return;
                }
            }
        });
    }

    /// Writes the lines of sessions that are at rest, some of each namespace at once.
    async fn settle_some(&self) {
        let Ok(now) = self.now().await else { return };
        let all: Vec<_> = self.marks.lock().iter().map(|(key, marked)| (key.clone(), marked.clone())).collect();
        let unheard = all.iter().filter(|(_, marked)| {
            let age = marked.changed.age();
            age >= OLD || age >= UNHEARD_OF && marked.now.is_none()
        });
        for folder in unheard.map(|((folder, _), _)| folder).collect::<BTreeSet<_>>().into_iter().take(AT_ONCE) {
            if let Ok(state) = self.look(folder).await {
                self.note_change(folder, &state);
            }
        }
        let mut due: BTreeMap<Namespace, Vec<(MarkedKey, Marked)>> = BTreeMap::new();
        for (key, marked) in all.into_iter().filter(|(_, marked)| marked.changed.age() >= SETTLES_IN) {
            due.entry(marked.namespace.clone()).or_default().push((key, marked));
        }
        for seen in due.into_values() {
            for some in seen.chunks(AT_ONCE) {
                self.settle_seen(some.to_vec(), &now).await;
            }
        }
    }
}

/// The one task that brings lines up to date; another may begin when it has ended, however that was.
struct Settling(Weak<Inner>);

impl Drop for Settling {
    fn drop(&mut self) {
        if let Some(store) = self.0.upgrade() {
            store.marks.is_settling.store(false, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::marks_folder;
    use super::*;
    use crate::options::StoreOptions;
    use rekindle_core::{SessionId, SessionKey};

    #[tokio::test]
    async fn a_session_that_runs_for_long_has_two_marks() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("objects:{}", directory.path().display());
        let store = super::super::super::store::ObjectsStore::open(&url, StoreOptions::new()).unwrap();
        let session: SessionKey = SessionId::new("a").unwrap().into();
        let (folder, key) = (Folder::of(&session), LineKey { created_at: Timestamp(5), name: "a".into() });
        for number in 1..=5 {
            store.0.mark(&folder, &session.namespace, &key).await.unwrap();
            let there = store.0.list_all(&marks_folder(&session.namespace)).await.unwrap();
            let known = store.0.marks.of(&folder)[0].1.objects.clone();
            assert_eq!(there.len(), number.min(2));
            assert!(there.iter().all(|mark| known.contains(&mark.name)));
            store.0.marks.lock().values_mut().for_each(|marked| marked.at = Started::ago(LASTS));
        }
    }
}
