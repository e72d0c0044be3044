//! Pages of the index, and making it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::try_join_all;
use rekindle_core::{Cursor, ErrorKind, Namespace, Result, SessionInfo, SessionPage, SessionQuery, Timestamp};

use super::super::backend::{Listed, Tag};
use super::super::clock::Now;
use super::super::layout::{Folder, catalog, parse_entry};
use super::super::list::{named, parse_listed};
use super::super::store::Inner;
use super::root::Root;
use super::{Line, LineKey, chunk_name, marks_folder};
use crate::unreadable::{is_about_session, unreadable};

/// How many sessions are read at once.
const READS_AT_ONCE: usize = 16;
/// How often the root is read anew because its chunks were replaced.
const TRIES: usize = 4;
/// The age at which a mark is taken over: its process may not rely on it any more.
const ABANDONED: Duration = Duration::from_secs(15 * 60);
/// The most sessions whose marks one list takes over.
const TAKES_OVER: usize = 16;

/// A line of a page: as the index has it, or to be read because it may be old.
#[derive(Clone)]
enum Found {
    Line(Line),
    Marked,
}

/// A session as it was read.
struct Seen {
    key: LineKey,
    number: u64,
    info: Option<SessionInfo>,
}

impl Inner {
    /// A page of sessions. Brings the lines of abandoned marks up to date.
    pub(in super::super) async fn sessions(&self, query: &SessionQuery) -> Result<SessionPage> {
        // Marks before the root: whoever takes a mark back has written its line before.
        let marks = self.list_all(&marks_folder(&query.namespace)).await?;
        let now = self.now().await?;
        let page = self.page_with(query, &marks, &now).await?;
        // That marks stay costs the next list some reads, and nothing else.
        let _ = self.take_over_marks(&query.namespace, marks, &now).await;
        Ok(page)
    }

    /// The same page, and nothing else.
    pub(in super::super) async fn sessions_only(&self, query: &SessionQuery) -> Result<SessionPage> {
        let marks = self.list_all(&marks_folder(&query.namespace)).await?;
        self.page_with(query, &marks, &self.now().await?).await
    }

    async fn page_with(&self, query: &SessionQuery, marks: &[Listed], now: &Now) -> Result<SessionPage> {
        let mut root = self.root(&query.namespace).await?;
        let mut tries = 0;
        loop {
            match self.page_of(query, &root, marks, now).await {
                Err(error) if *error.kind() == ErrorKind::Corrupt && tries < TRIES => {
                    // Its chunks may have been replaced meanwhile; one that is the same as before is damaged.
                    let again = self.root(&query.namespace).await?;
                    root = if again == root { self.rebuild(&query.namespace).await? } else { again };
                    tries += 1;
                }
                page => return page,
            }
        }
    }

    /// The root, made anew if there is none that can be read.
    async fn root(&self, namespace: &Namespace) -> Result<Root> {
        match self.read_root(namespace).await?.0 {
            Some(root) => Ok(root),
            None => self.rebuild(namespace).await,
        }
    }

    async fn page_of(&self, query: &SessionQuery, root: &Root, marks: &[Listed], now: &Now) -> Result<SessionPage> {
        let mut over = laid_over(root, marks);
        let mut chunks: Vec<_> = root.chunks.iter().collect();
        if !query.oldest_first {
            chunks.reverse();
        }
        let mut found: Vec<SessionInfo> = Vec::new();
        let mut edge = None;
        for chunk in chunks.into_iter().map(Some).chain([None]) {
            // Sessions of one moment are ordered by id: they are looked at together.
            let next = [nearest(query, &over), chunk.map(|chunk| near_end(query, &chunk.first, &chunk.last))];
            if has_enough(query, &found) && next.iter().flatten().all(|next| edge != Some(*next)) {
                break;
            }
            edge = chunk.map(|chunk| near_end(query, &chunk.last, &chunk.first));
            // What lies before the end of the chunk in the order of the list, and all of it behind the last one.
            let mut some = take_up_to(&mut over, query, chunk.map(|chunk| (&chunk.first, &chunk.last)));
            if let Some(chunk) = chunk.filter(|chunk| may_match(query, &chunk.first, &chunk.last)) {
                for line in self.chunk(chunk).await?.iter() {
                    // A line that was held back may stand in the root before a newer one in a chunk.
                    match some.get(&line.key) {
                        Some(Found::Marked) => {}
                        Some(Found::Line(known)) if known.number >= line.number => {}
                        _ => drop(some.insert(line.key.clone(), Found::Line(line.clone()))),
                    }
                }
            }
            some.retain(|key, _| may_match(query, key, key));
            found.extend(self.infos(query, some, now).await?);
        }
        Ok(SessionPage::select(query, found.into_iter()))
    }

    /// The sessions of lines, those that are marked or too large as they are now.
    async fn infos(
        &self,
        query: &SessionQuery,
        lines: BTreeMap<LineKey, Found>,
        now: &Now,
    ) -> Result<Vec<SessionInfo>> {
        let (mut infos, mut to_read) = (Vec::new(), Vec::new());
        for (key, found) in lines {
            match found {
                Found::Line(Line { removed_at: Some(_), .. }) => {}
                Found::Line(Line { info: Some(info), .. }) => infos.push(now.seen(&info)),
                Found::Line(_) | Found::Marked => to_read.push(key),
            }
        }
        // In the order of the page, and no more than it takes.
        if !query.oldest_first {
            to_read.reverse();
        }
        for some in to_read.chunks(READS_AT_ONCE) {
            let reads: Vec<_> = some.iter().map(|key| self.read_session(&query.namespace, key, now)).collect();
            infos.extend(try_join_all(reads).await?.into_iter().filter_map(|seen| seen.info));
        }
        Ok(infos.into_iter().filter(|info| query.matches(info)).collect())
    }

    /// A session as it is now.
    async fn read_session(&self, namespace: &Namespace, key: &LineKey, now: &Now) -> Result<Seen> {
        let state = match self.look(&Folder::named(namespace, &key.name)).await {
            Err(error) if is_about_session(&error) => {
                let session = named(namespace, &key.name);
                let info = session.map(|session| unreadable(session, key.created_at, &error, now.early));
                return Ok(Seen { key: key.clone(), number: 0, info });
            }
            other => other?,
        };
        let info = state.info.as_ref().filter(|info| info.created_at == key.created_at);
        Ok(Seen { key: key.clone(), number: state.number, info: info.map(|info| now.seen(info)) })
    }

    /// Makes the index anew, from the catalogue and all sessions in it.
    async fn rebuild(&self, namespace: &Namespace) -> Result<Root> {
        // Before anything is read: what is written over in the end is what was there at the beginning.
        let (before, over) = self.read_root(namespace).await?;
        let now = self.now().await?;
        let entries = self.list_all(&catalog(namespace)).await?;
        let mut lines: BTreeMap<LineKey, Line> = BTreeMap::new();
        for some in entries.chunks(READS_AT_ONCE) {
            let reads = some.iter().map(|entry| self.catalogued(namespace, entry, &now));
            for seen in try_join_all(reads).await?.into_iter().flatten() {
                let line = match &seen.info {
                    // One that cannot be read is read by each list, so that each reports it.
                    Some(_) if seen.number == 0 => Line { key: seen.key, number: 0, info: None, removed_at: None },
                    Some(info) => Line::new(seen.key, seen.number, info),
                    None => continue,
                };
                lines.insert(line.key.clone(), line);
            }
        }
        // That a session is gone is still to be remembered: its line may be held back somewhere.
        let gone = before.unwrap_or_default().recent.into_iter().filter(|line| line.removed_at.is_some());
        for line in gone {
            if lines.get(&line.key).is_none_or(|known| known.number <= line.number) {
                lines.insert(line.key.clone(), line);
            }
        }
        let root = Root { recent: lines.into_values().collect(), chunks: Vec::new() };
        if self.writable {
            // Whoever lists may not be allowed to write, and has what was asked for all the same.
            let _ = self.replace_root(namespace, &root, over.as_ref()).await;
        }
        Ok(root)
    }

    /// Writes an index that was made anew over the version that was there.
    async fn replace_root(&self, namespace: &Namespace, made: &Root, over: Option<&Tag>) -> Result<()> {
        let before = self.list_all(&chunk_folder(namespace)).await?;
        let (gone, lines): (Vec<Line>, Vec<Line>) =
            made.recent.iter().cloned().partition(|line| line.removed_at.is_some());
        let root = Root { recent: gone, chunks: self.write_chunks(namespace, lines).await? };
        if self.write_root(namespace, &root, over).await? {
            let names: Vec<String> = before.into_iter().map(|listed| listed.name).collect();
            self.bucket.delete_all(&names).await?;
        }
        Ok(())
    }

    /// The session of an entry of the catalogue; nothing if there is none. An entry that a creation left over is
    /// cleared away.
    async fn catalogued(&self, namespace: &Namespace, entry: &Listed, now: &Now) -> Result<Option<Seen>> {
        let Some((created_at, name)) = parse_entry(&entry.name) else { return Ok(None) };
        let key = LineKey { created_at, name: name.to_owned() };
        let seen = self.read_session(namespace, &key, now).await?;
        if seen.info.is_none() {
            self.clear_left_over(entry, now.early).await;
        }
        Ok(seen.info.is_some().then_some(seen))
    }

    /// Writes the lines of sessions whose marks no process relies on any more, and removes the marks.
    async fn take_over_marks(&self, namespace: &Namespace, mut marks: Vec<Listed>, now: &Now) -> Result<()> {
        marks.retain(|mark| now.early.since(mark.modified) > ABANDONED);
        if marks.is_empty() || !self.writable {
            return Ok(());
        }
        let keys: BTreeSet<LineKey> = marks.iter().filter_map(|mark| parse_listed(&mark.name)).collect();
        let keys: BTreeSet<LineKey> = keys.into_iter().take(TAKES_OVER).collect();
        marks.retain(|mark| parse_listed(&mark.name).is_none_or(|key| keys.contains(&key)));
        let reads = keys.iter().map(|key| self.read_session(namespace, key, now));
        let mut lines = Vec::new();
        for seen in try_join_all(reads).await? {
            lines.push(match &seen.info {
                // One that cannot be read stays marked, so that each list reports it.
                Some(_) if seen.number == 0 => {
                    marks.retain(|mark| parse_listed(&mark.name).as_ref() != Some(&seen.key));
                    continue;
                }
                Some(info) => Line::new(seen.key, seen.number, info),
                None => Line::removed(seen.key, seen.number, now.early),
            });
        }
        if self.write_lines(namespace, &lines).await? {
            let names: Vec<String> = marks.into_iter().map(|mark| mark.name).collect();
            self.bucket.delete_all(&names).await?;
        }
        Ok(())
    }

    /// Removes the marks of a session that is gone, as far as no process relies on them: a session that is restored has
    /// the same key, and may be marked by now. Lists take over the others later.
    pub(in super::super) async fn remove_marks(&self, namespace: &Namespace, key: &LineKey) -> Result<()> {
        let (marks, now) = (self.list_all(&marks_folder(namespace)).await?, self.now().await?);
        let is_abandoned = |mark: &Listed| now.early.since(mark.modified) > ABANDONED;
        let of_session = marks.into_iter().filter(|mark| parse_listed(&mark.name).as_ref() == Some(key));
        let of_session = of_session.filter(is_abandoned);
        self.bucket.delete_all(&of_session.map(|mark| mark.name).collect::<Vec<_>>()).await
    }

    /// Chunks that the root does not name: of a writer that was too late or died, or about to be named.
    pub(in super::super) async fn unnamed_chunks(&self, namespace: &Namespace) -> Result<Vec<Listed>> {
        let mut chunks = self.list_all(&chunk_folder(namespace)).await?;
        let root = self.read_root(namespace).await?.0.unwrap_or_default();
        chunks.retain(|listed| root.chunks.iter().all(|chunk| chunk.object != listed.name));
        Ok(chunks)
    }
}

fn chunk_folder(namespace: &Namespace) -> String {
    let any = chunk_name(namespace, &[0; 16]);
    any.rsplit_once('/').map_or_else(String::new, |(folder, _)| folder.to_owned())
}

/// The lines that are not in chunks, and the sessions that are marked.
fn laid_over(root: &Root, marks: &[Listed]) -> BTreeMap<LineKey, Found> {
    let recent = root.recent.iter().map(|line| (line.key.clone(), Found::Line(line.clone())));
    let marked = marks.iter().filter_map(|mark| parse_listed(&mark.name)).map(|key| (key, Found::Marked));
    recent.chain(marked).collect()
}

/// Takes what comes no later in the order of the list than a chunk does; all of it if there is no chunk left.
fn take_up_to(
    over: &mut BTreeMap<LineKey, Found>,
    query: &SessionQuery,
    chunk: Option<(&LineKey, &LineKey)>,
) -> BTreeMap<LineKey, Found> {
    let Some((first, last)) = chunk else { return std::mem::take(over) };
    if !query.oldest_first {
        return over.split_off(first);
    }
    let behind = LineKey { created_at: last.created_at, name: format!("{}\0", last.name) };
    let rest = over.split_off(&behind);
    std::mem::replace(over, rest)
}

/// The creation of whichever of the two ends of a chunk a list comes to first.
fn near_end(query: &SessionQuery, first: &LineKey, last: &LineKey) -> Timestamp {
    if query.oldest_first { first.created_at } else { last.created_at }
}

/// The creation of the next session that is laid over chunks.
fn nearest(query: &SessionQuery, over: &BTreeMap<LineKey, Found>) -> Option<Timestamp> {
    let next = if query.oldest_first { over.first_key_value() } else { over.last_key_value() };
    next.map(|(key, _)| key.created_at)
}

/// Returns true if more sessions were found behind the page before than the page takes.
fn has_enough(query: &SessionQuery, found: &[SessionInfo]) -> bool {
    !query.total && found.iter().filter(|info| is_ahead(query, info)).count() > query.limit
}

/// Returns true if a session comes behind the page before.
fn is_ahead(query: &SessionQuery, info: &SessionInfo) -> bool {
    query.after.as_ref().is_none_or(|after| match query.oldest_first {
        true => Cursor::behind(info) > *after,
        false => Cursor::behind(info) < *after,
    })
}

/// Returns true if a session that was created between the two can be on the page, whatever else is asked.
fn may_match(query: &SessionQuery, first: &LineKey, last: &LineKey) -> bool {
    let (first, last): (Timestamp, Timestamp) = (first.created_at, last.created_at);
    query.created_from.is_none_or(|from| last >= from)
        && query.created_before.is_none_or(|before| first < before)
        && (query.total
            || query.after.as_ref().is_none_or(|after| match query.oldest_first {
                true => last >= after.created_at,
                false => first <= after.created_at,
            }))
}
