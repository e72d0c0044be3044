//! What dead processes left over in a bucket of sessions.
//!
//! The change that removes a session is the record of its removal: whatever of it is still there can go at any time. A
//! catalogue entry whose session never came, and objects written to learn the time or to try a service out, go when
//! they are older than any operation takes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use rekindle_core::orphans::{Finished, Orphan, OrphanKind, Orphans};
use rekindle_core::{ErrorKind, Namespace, Result, SessionKey, Timestamp};

use super::backend::Listed;
use super::index::{Line, namespace_of_chunk};
use super::layout::{CLOCK, Folder, Kind, PROBE, catalog, parse_entry, sessions};
use super::list::{named, parse_listed};
use super::load::overtaken;
use super::state::State;
use super::store::{Inner, ObjectsStore, Turn};
use crate::unreadable::is_about_session;

/// How many sessions are looked at at once.
const AT_ONCE: usize = 16;
/// How often other processes may be faster at clearing up.
const TRIES: usize = 8;

impl Inner {
    /// Clears what is left of a session that was removed. Does nothing if the session is there, or never was.
    pub(super) async fn finish_removed(&self, folder: &Folder) -> Result<Finished> {
        let work = |mut turn: Turn| async move { turn.store.finish_removed_in(&turn.folder, &mut turn.slot).await };
        self.in_turn(folder, work).await
    }

    /// The same, in the turn of the session.
    pub(super) async fn finish_removed_in(&self, folder: &Folder, slot: &mut Option<Arc<State>>) -> Result<Finished> {
        let state = self.remembered(folder, slot).await?;
        let mut finished = Finished::default();
        for _ in 0..TRIES {
            self.refresh(folder, state).await?;
            let left = self.left_of(folder, state).await?;
            if left.is_empty() {
                return Ok(finished);
            }
            if finished.is_nothing() {
                let bytes = left.iter().map(|listed| listed.size).sum();
                finished = Finished { objects: left.len() as u64, bytes, ..Finished::default() };
            }
            self.forget_line(folder, state).await?;
            // The snapshot forgets the catalogue's entry and takes the place of the changes; then it can all go. Always one
            // of our own: whoever wrote the newest may still be about to take it back, and heads are deleted only by
            // whoever wrote a later one.
            self.compact(folder, state).await?;
        }
        Err(overtaken(folder))
    }

    /// Makes sure that lists say nothing of a session that was removed, as long as its creation is known. An index that
    /// cannot be written does not stop a removal: lists make it anew, and until then read the session itself.
    async fn forget_line(&self, folder: &Folder, state: &State) -> Result<()> {
        let key = state.catalog.as_deref().and_then(parse_listed);
        let (Some(key), Some(namespace)) = (key, folder.namespace()) else { return Ok(()) };
        let line = Line::removed(key, state.number, self.now().await?.early);
        match self.write_lines(&namespace, std::slice::from_ref(&line)).await {
            Ok(true) => return self.remove_marks(&namespace, &line.key).await,
            Ok(false) => {}
            Err(error) if *error.kind() == ErrorKind::Corrupt => {}
            Err(error) => return Err(error),
        }
        match self.has_index(&namespace).await? {
            true => self.mark(folder, &namespace, &line.key).await,
            false => Ok(()),
        }
    }

    /// The objects that are left of a session that was removed: all but the newest snapshot, which stays so that a
    /// process that slept cannot bring the session back.
    async fn left_of(&self, folder: &Folder, state: &State) -> Result<Vec<Listed>> {
        if state.info.is_some() || state.head == 0 {
            return Ok(Vec::new());
        }
        let mut left = self.list_all(folder.path()).await?;
        // What is newer than the state belongs to whoever creates the session anew.
        left.retain(|listed| match folder.kind_of(&listed.name) {
            Some(Kind::Head(number)) => number < state.head,
            Some(Kind::Log(number)) => number <= state.number,
            Some(Kind::Segment(head, _)) => head <= state.head,
            None => false,
        });
        if let Some(entry) = &state.catalog
            && let Some(stat) = self.bucket.stat(entry).await?
        {
            left.push(Listed { name: entry.clone(), size: stat.size, modified: stat.modified, tag: None });
        }
        Ok(left)
    }

    async fn orphans_of_namespace(&self, namespace: &Namespace, older_than: Duration) -> Result<Vec<Orphan>> {
        // Before the catalogue: a session gets its entry first.
        let folders = self.by_folder(namespace).await?;
        let entries = self.list_all(&catalog(namespace)).await?;
        let now = self.now().await?.early;
        let ids: BTreeSet<String> = entries
            .iter()
            .filter_map(|entry| Some(parse_entry(&entry.name)?.1.to_owned()))
            // What a removed session leaves for good is one object.
            .chain(folders.into_iter().filter(|(_, objects)| *objects > 1).map(|(id, _)| id))
            .collect();
        let states = self.states_of(namespace, ids).await?;
        let mut found = Vec::new();
        for (id, state) in &states {
            let folder = Folder::named(namespace, id);
            let left = self.left_of(&folder, state).await?;
            if !left.is_empty() {
                found.push(self.orphan(OrphanKind::RemovedSession, named(namespace, id), left, true));
            }
        }
        for entry in entries {
            let Some((_, id)) = parse_entry(&entry.name) else { continue };
            let Some(state) = states.get(id) else { continue };
            if state.catalog.as_deref() != Some(entry.name.as_str()) && is_old(&entry, now, older_than) {
                let session = named(namespace, id);
                found.push(self.orphan(OrphanKind::CatalogEntry, session, vec![entry], false));
            }
        }
        found.extend(self.temporary(namespace, now, older_than).await?);
        Ok(found)
    }

    /// Objects that were written to learn the time, to try the service out, or for an index that never named them.
    async fn temporary(&self, namespace: &Namespace, now: Timestamp, older_than: Duration) -> Result<Option<Orphan>> {
        let mut left = self.list_all(CLOCK).await?;
        left.extend(self.list_all(PROBE).await?);
        left.extend(self.unnamed_chunks(namespace).await?);
        left.retain(|listed| is_old(listed, now, older_than));
        Ok((!left.is_empty()).then(|| self.orphan(OrphanKind::Temporary, None, left, false)))
    }

    fn orphan(&self, kind: OrphanKind, session: Option<SessionKey>, objects: Vec<Listed>, recorded: bool) -> Orphan {
        let bytes = objects.iter().map(|listed| listed.size).sum();
        let names = objects.into_iter().map(|listed| listed.name).collect();
        Orphan { kind, session, place: self.bucket.shown().to_owned(), names, bytes, recorded, kept: None }
    }

    /// The encoded ids of all sessions of a namespace that have objects, and how many each has.
    async fn by_folder(&self, namespace: &Namespace) -> Result<BTreeMap<String, usize>> {
        let below = sessions(namespace);
        let mut folders = BTreeMap::new();
        for listed in self.list_all(&below).await? {
            let id = listed.name.strip_prefix(&below).and_then(|rest| rest.strip_prefix('/')?.split_once('/'));
            if let Some((id, _)) = id {
                *folders.entry(id.to_owned()).or_default() += 1;
            }
        }
        Ok(folders)
    }

    /// The sessions with these encoded ids, without those that cannot be read: nothing is cleared there.
    async fn states_of(&self, namespace: &Namespace, ids: BTreeSet<String>) -> Result<BTreeMap<String, Arc<State>>> {
        let ids: Vec<String> = ids.into_iter().collect();
        let mut states = BTreeMap::new();
        for some in ids.chunks(AT_ONCE) {
            let folders: Vec<Folder> = some.iter().map(|id| Folder::named(namespace, id)).collect();
            let loads = folders.iter().map(|folder| async move {
                match self.current(folder).await {
                    Err(error) if is_about_session(&error) => Ok(None),
                    other => other.map(Some),
                }
            });
            let loaded = try_join_all(loads).await?;
            states.extend(some.iter().cloned().zip(loaded).filter_map(|(id, state)| Some((id, state?))));
        }
        Ok(states)
    }

    async fn clear_orphan(&self, orphan: &Orphan, older_than: Duration) -> Result<Finished> {
        self.check_writable()?;
        let folder = orphan.names.first().and_then(|name| Folder::of_object(name));
        let names: Vec<String> = match (orphan.kind, folder) {
            (OrphanKind::RemovedSession, Some(folder)) => return self.finish_removed(&folder).await,
            (OrphanKind::CatalogEntry, Some(folder)) => {
                let state = self.current(&folder).await?;
                let of_session = |name: &&String| Folder::of_object(name).as_ref() == Some(&folder);
                let unknown = |name: &&String| name.starts_with("catalog/") && state.catalog.as_ref() != Some(name);
                orphan.names.iter().filter(of_session).filter(unknown).cloned().collect()
            }
            (OrphanKind::Temporary, _) => {
                let namespace = orphan.names.iter().find_map(|name| namespace_of_chunk(name)).unwrap_or_default();
                let still = self.temporary(&namespace, self.now().await?.early, older_than).await?;
                let still = still.map(|still| still.names).unwrap_or_default();
                orphan.names.iter().filter(|name| still.contains(name)).cloned().collect()
            }
            _ => return Ok(Finished::default()),
        };
        self.bucket.delete_all(&names).await?;
        let bytes = if names.len() == orphan.names.len() { orphan.bytes } else { 0 };
        Ok(Finished { objects: names.len() as u64, bytes, ..Finished::default() })
    }
}

fn is_old(listed: &Listed, now: Timestamp, older_than: Duration) -> bool {
    now.since(listed.modified) >= older_than
}

#[async_trait]
impl Orphans for ObjectsStore {
    async fn is_unfinished(&self, session: &SessionKey) -> Result<bool> {
        let folder = Folder::of(session);
        let state = self.0.current(&folder).await?;
        Ok(!self.0.left_of(&folder, &state).await?.is_empty())
    }

    async fn finish(&self, session: &SessionKey) -> Result<Finished> {
        self.0.check_writable()?;
        self.0.finish_removed(&Folder::of(session)).await.map_err(|error| error.during("remove").on(session))
    }

    async fn find(&self, namespace: &Namespace, older_than: Duration) -> Result<Vec<Orphan>> {
        let found = self.0.orphans_of_namespace(namespace, older_than).await;
        found.map_err(|error| error.during("find orphans"))
    }

    async fn clear(&self, orphan: &Orphan, older_than: Duration) -> Result<Finished> {
        self.0.clear_orphan(orphan, older_than).await.map_err(|error| error.during("clear orphans"))
    }
}
