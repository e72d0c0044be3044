//! Lists of sessions: the catalogue gives their order, each session its own facts.

use std::time::Duration;

use futures_util::future::try_join_all;
use rekindle_core::{Cursor, Result, SessionInfo, SessionPage, SessionQuery, Timestamp};

use super::backend::Listed;
use super::clock::Side;
use super::layout::{Folder, catalog, parse_entry};
use super::store::Inner;

/// How many sessions are looked at at once.
const LOADS_AT_ONCE: usize = 16;
/// How many names one request asks for.
const NAMES: usize = 1_000;
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

    pub(super) async fn sessions(&self, query: &SessionQuery) -> Result<SessionPage> {
        let now = self.now(Side::Other).await?;
        let names = self.list_all(&catalog(&query.namespace)).await?;
        let entries = names.iter().filter_map(|listed| parse_entry(&listed.name).map(|(at, id)| (at, id, listed)));
        let mut entries: Vec<_> = entries.filter(|(created, ..)| may_match(query, *created)).collect();
        if !query.oldest_first {
            entries.reverse();
        }
        let mut found: Vec<SessionInfo> = Vec::new();
        let mut rest = entries.as_slice();
        while let Some(next) = rest.first() {
            // Sessions of one moment are ordered by id: they are looked at together.
            let ahead = found.iter().filter(|info| is_ahead(query, info)).count();
            let enough = ahead > query.limit && found.last().is_some_and(|last| last.created_at != next.0);
            if enough && !query.total {
                break;
            }
            let (chunk, behind) = rest.split_at(rest.len().min(LOADS_AT_ONCE));
            rest = behind;
            let loads: Vec<_> = chunk.iter().map(|entry| self.listed_session(query, *entry, now)).collect();
            let infos = try_join_all(loads).await?;
            found.extend(infos.into_iter().flatten().filter(|info| query.matches(info)));
        }
        Ok(SessionPage::select(query, found.into_iter()))
    }

    async fn listed_session(
        &self,
        query: &SessionQuery,
        (_, id, listed): (Timestamp, &str, &Listed),
        now: Timestamp,
    ) -> Result<Option<SessionInfo>> {
        let folder = Folder::named(&query.namespace, id);
        let state = self.current(&folder).await?;
        if state.catalog.as_deref() == Some(listed.name.as_str())
            && let Some(info) = &state.info
        {
            return Ok(Some(SessionInfo { observed_at: now, ..info.clone() }));
        }
        if self.writable && now.since(listed.modified) > LEFT_OVER {
            let _ = self.bucket.delete(&listed.name).await;
        }
        Ok(None)
    }
}

/// Whether a session comes behind the page before.
fn is_ahead(query: &SessionQuery, info: &SessionInfo) -> bool {
    query.after.as_ref().is_none_or(|after| match query.oldest_first {
        true => Cursor::behind(info) > *after,
        false => Cursor::behind(info) < *after,
    })
}

/// Whether a session of that time can be on the page, whatever else is asked.
fn may_match(query: &SessionQuery, created: Timestamp) -> bool {
    query.created_from.is_none_or(|from| created >= from)
        && query.created_before.is_none_or(|before| created < before)
        && (query.total
            || query.after.as_ref().is_none_or(|after| match query.oldest_first {
                true => created >= after.created_at,
                false => created <= after.created_at,
            }))
}
