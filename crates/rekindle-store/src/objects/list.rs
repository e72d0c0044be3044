//! The catalogue: which sessions exist, by creation.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use rekindle_core::{Defect, MAX_PAGE, Namespace, Result, SessionId, SessionKey, SessionQuery, Timestamp};

use super::backend::Listed;
use super::index::{LineKey, root_name};
use super::layout::{Folder, catalog, parse_entry, sessions};
use super::store::Inner;
use crate::names::from_file_name;
use crate::unreadable::is_about_session;

/// How many names one request asks for.
const NAMES: usize = 1_000;
/// The most sessions that are named as left out.
const MOST: usize = 100;
/// An entry without session that is older than this is left over from a creation that failed.
const LEFT_OVER: Duration = Duration::from_secs(24 * 3600);

impl Inner {
    /// Every object below a folder.
    pub(super) async fn list_all(&self, folder: &str) -> Result<Vec<Listed>> {
        let mut all: Vec<Listed> = Vec::new();
        loop {
            let after = all.last().map(|listed| listed.name.clone());
            // A directory is read whole each time, so one read is all.
            let limit = if self.bucket.is_local() { usize::MAX } else { NAMES };
            let page = self.bucket.entries(folder, after.as_deref(), limit).await?;
            let full = page.len() >= limit;
            all.extend(page);
            if !full {
                return Ok(all);
            }
        }
    }

    /// Sessions that have objects and no entry in the catalogue, or that the index lacks all the same. Reads all names
    /// below the namespace.
    pub(super) async fn not_listed(&self, namespace: &Namespace) -> Result<Vec<Defect>> {
        // Before the catalogue: a session gets its entry first.
        let folders = self.folders(namespace).await?;
        let names = self.list_all(&catalog(namespace)).await?;
        let catalogued: HashSet<&str> = names.iter().filter_map(|listed| Some(parse_entry(&listed.name)?.1)).collect();
        let shown = self.shown(namespace).await?;
        let shown_folders: HashSet<Folder> = shown.iter().map(Folder::of).collect();
        let mut found = Vec::new();
        for id in &folders {
            let (folder, is_catalogued) = (Folder::named(namespace, id), catalogued.contains(id.as_str()));
            if is_catalogued && shown_folders.contains(&folder) {
                continue;
            }
            let key = match self.current(&folder).await {
                // It was removed.
                Ok(state) if state.info.is_none() => continue,
                Ok(state) => state.info.as_ref().map(|info| info.header.key.clone()),
                Err(error) if is_about_session(&error) => named(namespace, id),
                Err(error) => return Err(error),
            };
            if is_catalogued && key.as_ref().is_some_and(|key| shown.contains(key)) {
                continue;
            }
            let (place, what) = match is_catalogued {
                true => (root_name(namespace), "index"),
                false => (catalog(namespace), "catalogue"),
            };
            found.push(Defect {
                session: key,
                place,
                detail: format!("the session is there, but the {what} lacks it"),
                hint: "copy it by its name to another store: rekindle copy SESSION --to URL".into(),
            });
            if found.len() == MOST {
                break;
            }
        }
        Ok(found)
    }

    /// The sessions of a namespace that lists show.
    async fn shown(&self, namespace: &Namespace) -> Result<HashSet<SessionKey>> {
        let mut query = SessionQuery::new(namespace.clone()).with_limit(MAX_PAGE);
        let mut shown = HashSet::new();
        loop {
            let page = self.sessions_only(&query).await?;
            shown.extend(page.sessions.into_iter().map(|info| info.header.key));
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(shown),
            }
        }
    }

    /// The encoded ids of all sessions of a namespace that have objects.
    async fn folders(&self, namespace: &Namespace) -> Result<BTreeSet<String>> {
        let below = sessions(namespace);
        let (mut ids, mut after) = (BTreeSet::new(), None::<String>);
        loop {
            // A directory is read whole each time, so one read is all.
            let limit = if self.bucket.is_local() { usize::MAX } else { NAMES };
            let page = self.bucket.entries(&below, after.as_deref(), limit).await?;
            let id = |listed: &Listed| {
                Some(listed.name.strip_prefix(&below)?.strip_prefix('/')?.split_once('/')?.0.to_owned())
            };
            ids.extend(page.iter().filter_map(id));
            if page.len() < limit {
                return Ok(ids);
            }
            after = page.last().map(|listed| listed.name.clone());
        }
    }

    /// Clears an entry of the catalogue away that has no session, once no creation can be about to make one.
    pub(super) async fn clear_left_over(&self, entry: &Listed, now: Timestamp) {
        if self.writable && now.since(entry.modified) > LEFT_OVER {
            let _ = self.bucket.delete(&entry.name).await;
        }
    }
}

/// The key of the line that a mark or an entry of the catalogue names.
pub(super) fn parse_listed(name: &str) -> Option<LineKey> {
    parse_entry(name).map(|(created_at, name)| LineKey { created_at, name: name.to_owned() })
}

/// The session whose id is encoded as `name`; one that is too long to be decoded is called by that name.
pub(super) fn named(namespace: &Namespace, name: &str) -> Option<SessionKey> {
    let id = SessionId::new(from_file_name(name).unwrap_or_else(|| name.to_owned())).ok()?;
    Some(SessionKey::new(namespace.clone(), id))
}
