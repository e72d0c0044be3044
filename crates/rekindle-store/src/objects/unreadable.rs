//! Removing a session whose log or snapshots cannot be read, on request.
//!
//! What such a session is cannot be folded, so the change that removes it cannot be written behind its last one. In its
//! place comes a snapshot above every other: of nothing, and of a number that no change of the session has reached.
//! From then on it is a removed session like any other, whose objects are cleared away.

use std::sync::Arc;

use rekindle_core::{Result, SessionKey};

use super::layout::{Folder, Kind, LARGEST_NUMBER, catalog, parse_entry};
use super::list::parse_listed;
use super::load::overtaken;
use super::state::State;
use super::store::Inner;

/// How far the numbers are from those that are listed: writers that know lost ones are still below.
const AHEAD: u64 = 1 << 32;
/// How often other writers may be faster.
const TRIES: usize = 8;

/// The highest numbers of a session's objects.
#[derive(Default)]
struct Highest {
    head: Option<u64>,
    segment: u64,
    log: u64,
}

impl Inner {
    /// Puts it on record that a session is removed that cannot be read. Returns its state behind that.
    pub(super) async fn remove_unreadable(&self, session: &SessionKey, folder: &Folder) -> Result<Arc<State>> {
        // Before the removal: an entry that is made behind it is of a session that comes later.
        let entries = self.list_all(&catalog(&session.namespace)).await?.into_iter().map(|listed| listed.name);
        let is_of_it = |name: &String| parse_entry(name).is_some_and(|(_, id)| folder.is_named(id));
        let entries: Vec<String> = entries.filter(is_of_it).collect();
        for key in entries.iter().filter_map(|name| parse_listed(name)) {
            self.mark(folder, &session.namespace, &key).await?;
        }
        for _ in 0..TRIES {
            if !self.write_removed(folder).await? {
                continue;
            }
            let state = self.load(folder).await?;
            self.note_change(folder, &state);
            if let Ok(now) = self.now().await {
                self.settle(folder, &now).await;
            }
            self.bucket.delete_all(&entries).await?;
            return Ok(state);
        }
        Err(overtaken(folder))
    }

    /// Writes the snapshot that says that the session is gone; whether it counts.
    async fn write_removed(&self, folder: &Folder) -> Result<bool> {
        let highest = self.highest(folder).await?;
        // A snapshot that is lost may still be known to somebody, who writes the one behind it.
        let head = highest.head.unwrap_or_else(|| highest.segment.saturating_add(AHEAD)).saturating_add(1);
        let number = highest.log.saturating_add(AHEAD);
        let gone = State::gone(number.min(LARGEST_NUMBER));
        let name = folder.head(head.min(LARGEST_NUMBER));
        if !self.bucket.put_new(&name, gone.to_snapshot(&self.ids.nonce())?).await? {
            return Ok(false);
        }
        // One that is the newest of all was never cleared away while this process stood still.
        let counts = self.newest_head(folder).await? == Some(head);
        if !counts {
            self.bucket.delete(&name).await?;
        }
        Ok(counts)
    }

    async fn highest(&self, folder: &Folder) -> Result<Highest> {
        let mut highest = Highest::default();
        for listed in self.list_all(folder.path()).await? {
            match folder.kind_of(&listed.name) {
                Some(Kind::Head(number)) => highest.head = highest.head.max(Some(number)),
                Some(Kind::Segment(number, _)) => highest.segment = highest.segment.max(number),
                Some(Kind::Log(number)) => highest.log = highest.log.max(number),
                None => {}
            }
        }
        Ok(highest)
    }
}
