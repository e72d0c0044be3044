//! What is known of a session besides its records: its header, its branches, their leases.
//! All of it is an index that can be rebuilt from the journal.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::codec::FrameError;
use crate::error::{Error, Result};
use crate::id::{BranchId, Namespace, OwnerId, SessionId, SessionKey};
use crate::json::Json;
use crate::position::{Epoch, Hash, Head, Position, Seq};
use crate::record::{SessionDescribed, is_default};
use crate::status::Status;
use crate::store::MAX_LEASE;
use crate::time::{BootTime, Moment, Timestamp};

/// The most sessions one page of a list may hold.
pub const MAX_PAGE: usize = 1_000;

/// Describes a session. What filters look at stands here in clear; title and metadata are
/// sealed when the journal is encrypted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionHeader {
    /// The session's full name.
    pub key: SessionKey,
    /// The agent it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The session that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionKey>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// For filters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// For filters, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Json>,
    /// Title and metadata, sealed, when the journal is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<String>,
    /// The name under which it was first written, if it was imported under another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_from: Option<SessionKey>,
    /// Tells it from an earlier session of the same name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub incarnation: String,
    /// The start of its hash chain.
    #[serde(default, skip_serializing_if = "is_default")]
    pub genesis: Hash,
}

impl SessionHeader {
    /// The header of a session of that name with nothing else said.
    pub fn new(key: impl Into<SessionKey>) -> Self {
        Self {
            key: key.into(),
            agent: None,
            parent: None,
            title: None,
            tags: Vec::new(),
            labels: BTreeMap::new(),
            metadata: BTreeMap::new(),
            sealed: None,
            imported_from: None,
            incarnation: String::new(),
            genesis: Hash::default(),
        }
    }

    /// Takes over what `change` says.
    pub fn apply(&mut self, change: &SessionDescribed) {
        if let Some(title) = &change.title {
            self.title = Some(title.clone());
        }
        if let Some(tags) = &change.tags {
            self.tags.clone_from(tags);
        }
        if let Some(labels) = &change.labels {
            self.labels.clone_from(labels);
        }
        if let Some(metadata) = &change.metadata {
            self.metadata.clone_from(metadata);
        }
    }
}

/// Who may append to a branch, and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseInfo {
    /// Who.
    pub owner: OwnerId,
    /// The generation that fences out earlier owners.
    pub epoch: Epoch,
    /// By the store's clock.
    pub expires_at: Timestamp,
    /// The end by the clock that the processes of one machine share, where the store has only those:
    /// it counts instead of `expires_at`, so that setting the wall clock ends no lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootTime>,
}

impl LeaseInfo {
    /// The lease as seen at `now`: with the time at which the wall clock, as it is set now, will show
    /// that it is over.
    pub fn seen_at(&mut self, now: Moment) {
        if let Some(expires_at) = self.boot.and_then(|boot| now.wall_at(boot)) {
            self.expires_at = expires_at;
        }
    }

    /// Binds the lease to the boot clock, when it is granted or renewed.
    pub fn bind(&mut self, now: Moment) {
        self.boot = now.boot_at(self.expires_at);
    }
}

/// One line of history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchInfo {
    /// Its name.
    pub branch: BranchId,
    /// Where it was forked from; none for the first branch and the inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Position>,
    /// Its end. A new fork's head is the position it was forked from.
    pub head: Head,
    /// The last record of the last frame appended to it that is about a wait; zero if there is none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_wait: Seq,
    /// Up to where its history was compacted; everything needed from before stands in its base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Head>,
    /// As stored; see [`SessionInfo::status`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: Status,
    /// When it began.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The last epoch given out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub epoch: Epoch,
    /// The last lease, if it was not released; it may have expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseInfo>,
}

impl BranchInfo {
    /// The lease, if it is live at `now`. One that ends later than any lease may is not.
    pub fn live_lease(&self, now: Timestamp) -> Option<&LeaseInfo> {
        self.lease.as_ref().filter(|lease| lease.expires_at > now && lease.expires_at <= now.plus(MAX_LEASE))
    }

    /// The status as seen at `now`.
    pub fn status_at(&self, now: Timestamp) -> Status {
        self.status.seen(self.live_lease(now).is_some())
    }

    /// The first record of this branch's own history, whether or not it is still stored.
    pub fn first_own(&self) -> Seq {
        self.parent.as_ref().map_or(Seq(1), |parent| parent.seq.next())
    }
}

/// Damage to stored bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// What kind.
    pub kind: DamageKind,
    /// On which branch.
    pub branch: BranchId,
    /// The first record affected.
    pub first: Seq,
    /// The last record affected, as far as can be told.
    pub last: Seq,
    /// What was found, for people.
    pub detail: String,
    /// The format version of bytes that a newer version wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_version: Option<u32>,
    /// The id of the key that the bytes need and that was not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// What kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DamageKind {
    /// The checksum does not fit the bytes.
    Checksum,
    /// The bytes are not of the format.
    Format,
    /// A newer version wrote them.
    Version,
    /// They need a key that was not given.
    Key,
    /// They do not open under the key they name: altered, moved or replayed.
    Sealed,
    /// They do not continue what stands before them.
    Chain,
    /// They are gone.
    Missing,
    /// The recorded head is not where history ends.
    Head,
    /// They are not protected although the codec demands it.
    Unprotected,
    /// The header does not fit its genesis.
    Header,
    /// They lie elsewhere, and the store was opened without that place.
    Elsewhere,
    /// The index does not fit the records or frames it is about.
    Index,
    /// An unfinished write was cut off; nothing acknowledged is affected.
    Torn,
    /// They were there, as a high-water mark says, and are gone: the store was set back.
    RolledBack,
}

impl Damage {
    /// Damage to the records `first` to `last` of a branch.
    pub fn new(kind: DamageKind, branch: BranchId, first: Seq, last: Seq, detail: impl Into<String>) -> Self {
        Self { kind, branch, first, last, detail: detail.into(), found_version: None, key: None }
    }

    /// Damage to the records `first` to `last` of a branch, whose bytes are not a frame.
    pub fn of_frame(error: FrameError, branch: BranchId, first: Seq, last: Seq) -> Self {
        let FrameError { kind, detail, found_version, key } = error;
        Self { kind, branch, first, last, detail: detail.into_owned(), found_version, key }
    }

    /// Whether records are affected. They are not by an unfinished write that was cut off, nor by an index that was
    /// rebuilt, which names no record.
    pub fn affects_records(&self) -> bool {
        self.kind != DamageKind::Torn && self.last > Seq::ZERO
    }

    /// The position of the first record affected.
    pub fn position(&self) -> Position {
        Position::new(self.branch.clone(), self.first)
    }
}

/// A session as a store knows it at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Its description.
    pub header: SessionHeader,
    /// When it was created, by the store's clock.
    pub created_at: Timestamp,
    /// Its branches, `main` and `inbox` among them.
    pub branches: Vec<BranchInfo>,
    /// The branch that was leased last; `main` at first.
    pub current: BranchId,
    /// The store's time of this answer; leases are judged by it.
    pub observed_at: Timestamp,
    /// What the store noticed while opening: torn tails cut off, bytes set aside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<Damage>,
}

impl SessionInfo {
    /// A branch by name.
    pub fn branch(&self, branch: &BranchId) -> Result<&BranchInfo> {
        self.branches.iter().find(|info| info.branch == *branch).ok_or_else(|| {
            if *branch == BranchId::main() || branch.is_inbox() {
                return Error::corrupt(format!("branch `{branch}` is gone, which every session has"))
                    .on(&self.header.key)
                    .hint("restore it from a backup; `rekindle verify SESSION` lists all damage");
            }
            Error::not_found(format!("there is no branch `{branch}`")).on(&self.header.key).hint(format!(
                "the session has: {}",
                self.branches.iter().take(20).map(|info| info.branch.as_str()).collect::<Vec<_>>().join(", ")
            ))
        })
    }

    /// An error if the header does not fit the session: then it decides nothing, neither which agent runs nor on which
    /// branch.
    pub fn check_header(&self) -> Result<()> {
        match self.damage.iter().find(|damage| damage.kind == DamageKind::Header) {
            Some(damage) => {
                let session = &self.header.key;
                Err(damage.to_error(session).hint(format!("list all damage with `rekindle verify {}`", session.id)))
            }
            None => Ok(()),
        }
    }

    /// Returns false if its header could not be read: then it is not known which of the sessions of its name it is, and
    /// nothing may be judged by its incarnation.
    pub fn is_identified(&self) -> bool {
        !self.header.incarnation.is_empty() || self.damage.is_empty()
    }

    /// Where each branch ends.
    pub fn heads(&self) -> BTreeMap<BranchId, Head> {
        self.branches.iter().map(|info| (info.branch.clone(), info.head)).collect()
    }

    /// The current branch.
    pub fn current_branch(&self) -> Result<&BranchInfo> {
        self.branch(&self.current)
    }

    /// The status of the current branch as seen at the time of this answer.
    pub fn status(&self) -> Status {
        self.current_branch().map_or(Status::Idle, |branch| branch.status_at(self.observed_at))
    }

    /// When anything in it last changed.
    pub fn updated_at(&self) -> Timestamp {
        self.branches.iter().map(|branch| branch.updated_at).fold(self.created_at, Timestamp::max)
    }

    /// The branches forked from `branch`, with the record they were forked at.
    pub fn forks_of<'a>(&'a self, branch: &'a BranchId) -> impl Iterator<Item = (&'a BranchInfo, Seq)> {
        self.branches.iter().filter_map(move |info| {
            info.parent.as_ref().filter(|parent| parent.branch == *branch).map(|parent| (info, parent.seq))
        })
    }

    /// Any live lease of the session.
    pub fn live_lease(&self) -> Option<(&BranchInfo, &LeaseInfo)> {
        self.branches.iter().find_map(|branch| branch.live_lease(self.observed_at).map(|lease| (branch, lease)))
    }
}

/// Which sessions to list. Everything said must hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionQuery {
    /// In this namespace.
    pub namespace: Namespace,
    /// With one of these statuses; empty means any.
    pub statuses: Vec<Status>,
    /// Of this agent.
    pub agent: Option<String>,
    /// With all of these tags.
    pub tags: Vec<String>,
    /// With all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Started by this session.
    pub parent: Option<SessionKey>,
    /// Started by no other session.
    pub top_level: bool,
    /// Created at this time or later.
    pub created_from: Option<Timestamp>,
    /// Created before this time.
    pub created_before: Option<Timestamp>,
    /// Changed at this time or later.
    pub updated_from: Option<Timestamp>,
    /// Last changed before this time.
    pub updated_before: Option<Timestamp>,
    /// With this text in id, title or agent, whatever its case.
    pub text: Option<String>,
    /// Oldest first; otherwise newest first.
    pub oldest_first: bool,
    /// Where the previous page ended.
    pub after: Option<Cursor>,
    /// How many at most, up to [`MAX_PAGE`]. Zero is allowed, for the total alone.
    pub limit: usize,
    /// Whether to count all that match.
    pub total: bool,
}

impl SessionQuery {
    /// The newest hundred sessions of `namespace`.
    pub fn new(namespace: Namespace) -> Self {
        Self {
            namespace,
            statuses: Vec::new(),
            agent: None,
            tags: Vec::new(),
            labels: BTreeMap::new(),
            parent: None,
            top_level: false,
            created_from: None,
            created_before: None,
            updated_from: None,
            updated_before: None,
            text: None,
            oldest_first: false,
            after: None,
            limit: 100,
            total: false,
        }
    }

    /// At most `limit` sessions.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// After the page that ended with `cursor`.
    #[must_use]
    pub fn with_after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// Only sessions of that status; may be said more than once.
    #[must_use]
    pub fn with_status(mut self, status: Status) -> Self {
        self.statuses.push(status);
        self
    }

    /// Also count all that match.
    #[must_use]
    pub fn with_total(mut self) -> Self {
        self.total = true;
        self
    }

    /// An error if the page is larger than allowed.
    pub fn check(&self) -> Result<()> {
        if self.limit > MAX_PAGE {
            return Err(Error::limit("page size", self.limit as u64, MAX_PAGE as u64).during("list"));
        }
        Ok(())
    }

    /// Whether `info` is among those asked for; the cursor and the limit do not count.
    pub fn matches(&self, info: &SessionInfo) -> bool {
        let header = &info.header;
        let updated_at = info.updated_at();
        header.key.namespace == self.namespace
            && (self.statuses.is_empty() || self.statuses.contains(&info.status()))
            && (self.agent.is_none() || self.agent == header.agent)
            && self.tags.iter().all(|tag| header.tags.contains(tag))
            && self.labels.iter().all(|(name, value)| header.labels.get(name) == Some(value))
            && (self.parent.is_none() || self.parent == header.parent)
            && (!self.top_level || header.parent.is_none())
            && self.created_from.is_none_or(|from| info.created_at >= from)
            && self.created_before.is_none_or(|before| info.created_at < before)
            && self.updated_from.is_none_or(|from| updated_at >= from)
            && self.updated_before.is_none_or(|before| updated_at < before)
            && self.text.as_ref().is_none_or(|text| header.matches_text(text))
    }
}

impl SessionHeader {
    /// Whether id, title or agent contain `text`, whatever its case.
    pub fn matches_text(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.search_text().contains(&text)
    }

    /// What a text filter looks at, in lower case.
    pub fn search_text(&self) -> String {
        let mut all = self.key.id.as_str().to_lowercase();
        for part in [&self.title, &self.agent].into_iter().flatten() {
            all.push('\n');
            all.push_str(&part.to_lowercase());
        }
        all
    }
}

/// Where a page ended. Sessions are ordered by creation time, then id: both never change, so
/// a page continues exactly where the last one ended, whatever is written meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cursor {
    /// When the last session of the page was created.
    pub created_at: Timestamp,
    /// Its id.
    pub id: SessionId,
}

impl Cursor {
    /// The cursor behind `info`.
    pub fn behind(info: &SessionInfo) -> Self {
        Self { created_at: info.created_at, id: info.header.key.id.clone() }
    }
}

impl From<Cursor> for String {
    fn from(cursor: Cursor) -> Self {
        URL_SAFE_NO_PAD.encode(format!("{:016x}{}", cursor.created_at.0, cursor.id))
    }
}

impl TryFrom<String> for Cursor {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        let wrong = || Error::invalid("the page cursor is not one this program gave out");
        let bytes = URL_SAFE_NO_PAD.decode(&text).map_err(|_| wrong())?;
        let text = String::from_utf8(bytes).map_err(|_| wrong())?;
        let (time, id) = text.split_at_checked(16).ok_or_else(wrong)?;
        let micros = u64::from_str_radix(time, 16).map_err(|_| wrong())?;
        Ok(Self { created_at: Timestamp(micros), id: SessionId::new(id)? })
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionPage {
    /// The sessions.
    pub sessions: Vec<SessionInfo>,
    /// How to go on, if there are more.
    pub next: Option<Cursor>,
    /// How many match in all, if that was asked for.
    pub total: Option<u64>,
}

impl SessionPage {
    /// The page that `query` asks for out of `all` sessions of a store that has no index.
    pub fn select(query: &SessionQuery, all: impl Iterator<Item = SessionInfo>) -> Self {
        let mut matching: Vec<_> = all.filter(|info| query.matches(info)).collect();
        matching.sort_by_cached_key(Cursor::behind);
        if !query.oldest_first {
            matching.reverse();
        }
        let total = query.total.then_some(matching.len() as u64);
        if let Some(after) = &query.after {
            matching.retain(|info| match query.oldest_first {
                true => Cursor::behind(info) > *after,
                false => Cursor::behind(info) < *after,
            });
        }
        let more = matching.len() > query.limit;
        matching.truncate(query.limit);
        let next = matching.last().filter(|_| more).map(Cursor::behind);
        Self { sessions: matching, next, total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_and_reject_nonsense() {
        let cursor = Cursor { created_at: Timestamp(42), id: SessionId::new("a/🦀").unwrap() };
        let text = String::from(cursor.clone());
        assert_eq!(Cursor::try_from(text).unwrap(), cursor);
        for text in ["", "!!!", "AAAA", "w7zDvMO8w7zDvMO8w7zDvA"] {
            assert!(Cursor::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
