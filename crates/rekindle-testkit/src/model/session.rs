//! What the model remembers: sessions, branches and leases over records that are small texts,
//! and what follows from them.

use std::collections::{BTreeMap, BTreeSet};

use rekindle_core::{Status, Timestamp};

use super::Outcome;

pub(super) const MAIN: &str = "main";
pub(super) const INBOX: &str = "inbox";

/// What tells the end of a history from any other: the batch that ends or is cut there, and the
/// record. A stand-in for the hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub batch: Batch,
    pub seq: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Batch {
    /// The start of the chain of a session first written under that name.
    Genesis(String),
    /// The batch of that number.
    Numbered(u64),
    /// One that never was.
    Unheard,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Message(String),
    Checkpoint(String),
    /// A record of a run, and the status it leads to.
    Run(Status),
    /// A message in the inbox.
    Sent(String),
    /// What no state shows.
    Silent,
}

/// What a state looks like from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub messages: Vec<String>,
    pub checkpoint: Option<String>,
    pub status: Status,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModelLease {
    pub owner: u8,
    pub epoch: u64,
    pub until: Timestamp,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Branch {
    pub parent: Option<(String, u64)>,
    /// Its own records, each with the batch it came in.
    pub records: Vec<(Item, u64)>,
    /// Up to where it was pruned.
    pub base: Option<u64>,
    pub status: Status,
    pub epoch: u64,
    pub lease: Option<ModelLease>,
}

#[derive(Clone, Debug)]
pub(super) struct Session {
    pub created_at: Timestamp,
    /// Which session of which name it was when it was created.
    pub origin: String,
    pub title: Option<String>,
    pub current: String,
    pub branches: BTreeMap<String, Branch>,
    /// Checkpoints that retention unmarked.
    pub removed: BTreeSet<String>,
}

impl Branch {
    /// The record it was forked at; 0 for the first branch.
    pub(super) fn start(&self) -> u64 {
        self.parent.as_ref().map_or(0, |(_, seq)| *seq)
    }

    pub(super) fn head(&self) -> u64 {
        self.start() + self.records.len() as u64
    }

    pub(super) fn live(&self, now: Timestamp) -> Option<&ModelLease> {
        self.lease.as_ref().filter(|lease| now < lease.until)
    }

    /// A run that nobody has the lease for was interrupted.
    pub(super) fn seen_status(&self, now: Timestamp) -> Status {
        match (self.status, self.live(now)) {
            (Status::Running, None) => Status::Interrupted,
            (status, _) => status,
        }
    }

    /// Whether `batch` is one of its own and either still stored or the last that was compacted.
    pub(super) fn holds(&self, batch: u64) -> bool {
        let last = self.records.iter().rposition(|(_, of)| *of == batch);
        last.is_some_and(|index| self.base.is_none_or(|base| self.start() + index as u64 + 1 >= base))
    }

    /// Whether a batch of its own ends at `seq`.
    pub(super) fn batch_ends_at(&self, seq: u64) -> bool {
        let Some(index) = seq.checked_sub(self.start() + 1).map(|index| index as usize) else { return false };
        let batch = |index: usize| self.records.get(index).map(|(_, batch)| *batch);
        batch(index).is_some() && batch(index) != batch(index + 1)
    }
}

impl Session {
    pub(super) fn new(origin: String, now: Timestamp) -> Self {
        Self {
            created_at: now,
            origin,
            title: None,
            current: MAIN.to_owned(),
            branches: [MAIN, INBOX].map(|name| (name.to_owned(), Branch { epoch: now.0, ..Branch::default() })).into(),
            removed: BTreeSet::new(),
        }
    }

    /// The records that lead to `seq` of `branch`, oldest first, each with its batch.
    fn line(&self, branch: &str, seq: u64) -> Vec<(Item, u64)> {
        let branch = &self.branches[branch];
        let mut line = match &branch.parent {
            Some((parent, at)) => self.line(parent, seq.min(*at)),
            None => Vec::new(),
        };
        line.extend(branch.records.iter().take(seq.saturating_sub(branch.start()) as usize).cloned());
        line
    }

    pub(super) fn end(&self, branch: &str, seq: u64) -> End {
        let batch = self.line(branch, seq).last().map(|(_, batch)| Batch::Numbered(*batch));
        End { batch: batch.unwrap_or_else(|| Batch::Genesis(self.origin.clone())), seq }
    }

    pub(super) fn snapshot(&self, branch: &str, seq: u64) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (item, _) in self.line(branch, seq) {
            match item {
                Item::Message(text) => snapshot.messages.push(text),
                Item::Checkpoint(id) => snapshot.checkpoint = Some(id),
                Item::Run(status) => snapshot.status = status,
                Item::Sent(_) | Item::Silent => {}
            }
        }
        snapshot
    }

    /// The checkpoints a branch made itself, oldest first, with their records.
    pub(super) fn own_checkpoints(&self, branch: &str) -> Vec<(String, u64)> {
        let branch = &self.branches[branch];
        let numbered = branch.records.iter().zip(branch.start() + 1..);
        numbered
            .filter_map(|((item, _), seq)| match item {
                Item::Checkpoint(id) => Some((id.clone(), seq)),
                _ => None,
            })
            .collect()
    }

    /// Whether the state at a position can still be told: pruning replaced everything up to
    /// the base by the state there.
    pub(super) fn look(&self, branch: &str, seq: u64) -> Outcome<Snapshot> {
        let found = self.branches.get(branch).ok_or("NotFound")?;
        if seq > found.head() || !self.reaches(branch, seq) {
            return Err("NotFound");
        }
        Ok(self.snapshot(branch, seq))
    }

    fn reaches(&self, branch: &str, seq: u64) -> bool {
        let branch = &self.branches[branch];
        match (branch.base, &branch.parent) {
            (Some(base), _) if seq >= base => true,
            (Some(_), _) if seq > branch.start() => false,
            (_, None) => true,
            (_, Some((parent, at))) => self.reaches(parent, seq.min(*at)),
        }
    }

    /// The branch that a record of a line of history was written on.
    pub(super) fn owner(&self, branch: &str, seq: u64) -> String {
        match &self.branches[branch].parent {
            Some((parent, at)) if seq <= *at => self.owner(parent, seq),
            _ => branch.to_owned(),
        }
    }

    pub(super) fn status(&self, now: Timestamp) -> Status {
        self.branches[&self.current].seen_status(now)
    }

    /// The messages in the inbox, in order.
    pub(super) fn messages(&self) -> Vec<&str> {
        let sent = self.branches[INBOX].records.iter().filter_map(|(item, _)| match item {
            Item::Sent(message) => Some(message.as_str()),
            _ => None,
        });
        sent.collect()
    }
}
