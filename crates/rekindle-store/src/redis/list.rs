//! Listing sessions: a sorted set per namespace gives their order, the sessions themselves what
//! filters look at.

use futures_util::future::try_join_all;
use rekindle_core::{
    Cursor, Defect, Error, Namespace, Result, SessionHeader, SessionId, SessionInfo, SessionKey, SessionPage,
    SessionQuery, Timestamp,
};

use super::keys::list_entry;
use super::{RedisStore, rows, value};
use crate::unreadable::{is_about_session, unreadable};

/// How many sessions are fetched at once.
const CHUNK: usize = 128;

/// Number of names of keys one request goes through.
const NAMES: usize = 1_000;
/// The most sessions that are named as left out.
const MOST: usize = 100;

/// The part of the list that may hold what a query asks for, as the server takes it.
struct Range {
    from: String,
    to: String,
    newest_first: bool,
}

impl Range {
    fn new(query: &SessionQuery) -> Self {
        let from = query.created_from.map_or_else(|| "-".to_owned(), |time| format!("[{}", list_entry(time, "")));
        let to = query.created_before.map_or_else(|| "+".to_owned(), |time| format!("({}", list_entry(time, "")));
        Self { from, to, newest_first: !query.oldest_first }
    }

    /// Only what comes after an entry.
    fn after(&mut self, entry: &str) {
        let edge = if self.newest_first { &mut self.to } else { &mut self.from };
        *edge = format!("({entry}");
    }

    fn command(&self, list: &str) -> redis::Cmd {
        let mut command = redis::cmd("ZRANGE");
        command.arg(list);
        match self.newest_first {
            true => command.arg(&self.to).arg(&self.from).arg("BYLEX").arg("REV"),
            false => command.arg(&self.from).arg(&self.to).arg("BYLEX"),
        };
        command.arg("LIMIT").arg(0).arg(CHUNK);
        command
    }
}

impl RedisStore {
    pub(super) async fn list_page(&self, query: &SessionQuery) -> Result<SessionPage> {
        query.check()?;
        let now = self.link.now().await?;
        let mut range = Range::new(query);
        // A total counts what earlier pages held too.
        if let Some(after) = query.after.as_ref().filter(|_| !query.total) {
            range.after_cursor(after);
        }
        let (mut page, mut more, mut total) = (Vec::new(), false, 0u64);
        loop {
            let entries = self.entries(query, &range).await?;
            let Some(last) = entries.last() else { break };
            range.after(last);
            let full = entries.len() == CHUNK;
            for info in self.sessions(query, &entries, now).await? {
                total += 1;
                match is_after(query, &info) {
                    true if page.len() < query.limit => page.push(info),
                    true => more = true,
                    false => {}
                }
            }
            if !full || (more && !query.total) {
                break;
            }
        }
        let next = page.last().filter(|_| more).map(Cursor::behind);
        Ok(SessionPage { sessions: page, next, total: query.total.then_some(total) })
    }

    /// Sessions whose keys are there and that the list of their namespace lacks. Reads the names of all keys of the
    /// server, page by page; of a cluster, which has no such order, nothing.
    pub(super) async fn not_in_list(&self, namespace: &Namespace) -> Result<Vec<Defect>> {
        let (mut found, mut cursor) = (Vec::new(), "0".to_owned());
        if self.link.config.cluster {
            return Ok(found);
        }
        loop {
            let mut command = redis::cmd("SCAN");
            command.arg(&cursor).arg("MATCH").arg(self.link.keys.any_session()).arg("COUNT").arg(NAMES);
            let mut answer = value::list(self.link.query(&command).await?)?.into_iter();
            let (Some(next), Some(names)) = (answer.next(), answer.next()) else {
                return Err(Error::corrupt("the server does not say how a scan goes on"));
            };
            for name in value::texts(names)? {
                if found.len() < MOST
                    && let Some(defect) = self.missing_entry(namespace, &name).await?
                {
                    found.push(defect);
                }
            }
            cursor = value::text(next)?;
            if cursor == "0" {
                return Ok(found);
            }
        }
    }

    async fn missing_entry(&self, namespace: &Namespace, name: &str) -> Result<Option<Defect>> {
        let mut command = redis::cmd("HMGET");
        command.arg(name).arg("header").arg("created");
        let mut fields = value::list(self.link.query(&command).await?)?.into_iter();
        let (Some(header), Some(created)) = (fields.next(), fields.next()) else { return Ok(None) };
        let Ok(header) = serde_json::from_slice::<SessionHeader>(&value::bytes(header).unwrap_or_default()) else {
            return Ok(None);
        };
        let Ok(created) = value::text(created).and_then(|text| value::parsed(&text)) else { return Ok(None) };
        let key = header.key;
        // A header that was exchanged names another session.
        if key.namespace != *namespace || self.link.keys.session(&key).info() != name {
            return Ok(None);
        }
        let entry = list_entry(Timestamp(created), key.id.as_str());
        let mut command = redis::cmd("ZSCORE");
        command.arg(self.link.keys.list(namespace)).arg(&entry);
        let listed = self.link.query(&command).await? != redis::Value::Nil;
        let mut command = redis::cmd("EXISTS");
        command.arg(name);
        // Removed since.
        if listed || value::number(self.link.query(&command).await?)? == 0 {
            return Ok(None);
        }
        Ok(Some(Defect {
            place: format!("key {}", self.link.keys.list(namespace)),
            detail: "the session is there, but the list of its namespace lacks it".into(),
            hint: "copy it by its name to another store: rekindle copy SESSION --to URL".into(),
            session: Some(key),
        }))
    }

    async fn entries(&self, query: &SessionQuery, range: &Range) -> Result<Vec<String>> {
        let list = self.link.keys.list(&query.namespace);
        value::texts(self.link.query(&range.command(&list)).await?)
    }

    /// The sessions of some entries that the query asks for. An entry whose session is gone, or was
    /// made again, is none.
    async fn sessions(&self, query: &SessionQuery, entries: &[String], now: Timestamp) -> Result<Vec<SessionInfo>> {
        let found = try_join_all(entries.iter().map(|entry| async move {
            let id = entry.get(20..).ok_or_else(|| Error::corrupt("an entry of the list cannot be read"))?;
            let key = SessionKey::new(query.namespace.clone(), SessionId::new(id)?);
            let command = redis::cmd("HGETALL").arg(self.link.keys.session(&key).info()).clone();
            let found = match rows::session(&key, self.link.query(&command).await?, now) {
                Err(error) if is_about_session(&error) => {
                    let created = value::parsed(entry.get(..20).unwrap_or_default()).map(Timestamp)?;
                    return Ok(Some(unreadable(key, created, &error, now)));
                }
                other => other?,
            };
            Ok::<_, Error>(found.map(|found| found.info).filter(|info| list_entry(info.created_at, id) == *entry))
        }))
        .await?;
        Ok(found.into_iter().flatten().filter(|info| query.matches(info)).collect())
    }
}

impl Range {
    fn after_cursor(&mut self, cursor: &Cursor) {
        let entry = list_entry(cursor.created_at, cursor.id.as_str());
        // The cursor may stand outside of what the query asks for.
        let edge = if self.newest_first { &self.to } else { &self.from };
        let narrower = match (edge.get(1..), self.newest_first) {
            (None | Some(""), _) => true,
            (Some(edge), true) => entry.as_str() < edge,
            (Some(edge), false) => entry.as_str() > edge,
        };
        if narrower {
            self.after(&entry);
        }
    }
}

fn is_after(query: &SessionQuery, info: &SessionInfo) -> bool {
    query.after.as_ref().is_none_or(|after| match query.oldest_first {
        true => Cursor::behind(info) > *after,
        false => Cursor::behind(info) < *after,
    })
}
