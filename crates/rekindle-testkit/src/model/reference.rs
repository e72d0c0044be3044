//! The model: the rules of the contract, written once more as plainly as possible, over records
//! that are small texts. Nothing here calls the code under test.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rekindle_core::{Status, Timestamp};

use super::Outcome;

/// How long every lease lives.
pub(super) const TTL: Duration = Duration::from_secs(30);

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
    /// The name it was first written under.
    pub origin: String,
    pub title: Option<String>,
    pub current: String,
    pub branches: BTreeMap<String, Branch>,
    /// Checkpoints that retention unmarked.
    pub removed: BTreeSet<String>,
}

/// An append, as the model sees it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub session: String,
    pub branch: String,
    pub expected: End,
    pub batch: u64,
    pub items: Vec<Item>,
    pub fence: Option<u64>,
    pub renew: bool,
}

#[derive(Debug)]
pub(super) struct Model {
    pub sessions: BTreeMap<String, Session>,
    pub now: Timestamp,
    batches: u64,
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

    /// Whether the last record of a batch of its own, still stored, is that of `batch`.
    fn holds(&self, batch: u64) -> bool {
        let last = self.records.iter().rposition(|(_, of)| *of == batch);
        last.is_some_and(|index| self.base.is_none_or(|base| self.start() + index as u64 + 1 > base))
    }

    /// Whether the record that led to its status was pruned.
    pub(super) fn status_is_pruned(&self) -> bool {
        let last = self.records.iter().rposition(|(item, _)| matches!(item, Item::Run(_)));
        last.is_some_and(|index| self.base.is_some_and(|base| self.start() + index as u64 + 1 <= base))
    }

    /// Whether a batch of its own ends at `seq`.
    pub(super) fn batch_ends_at(&self, seq: u64) -> bool {
        let Some(index) = seq.checked_sub(self.start() + 1).map(|index| index as usize) else { return false };
        let batch = |index: usize| self.records.get(index).map(|(_, batch)| *batch);
        batch(index).is_some() && batch(index) != batch(index + 1)
    }
}

impl Session {
    fn new(name: &str, now: Timestamp) -> Self {
        Self {
            created_at: now,
            origin: name.to_owned(),
            title: None,
            current: MAIN.to_owned(),
            branches: [MAIN, INBOX].map(|name| (name.to_owned(), Branch::default())).into(),
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

impl Model {
    /// An empty store at that time.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { sessions: BTreeMap::new(), now, batches: 0 }
    }

    /// The number of the next batch.
    pub(super) fn next_batch(&mut self) -> u64 {
        self.batches += 1;
        self.batches
    }

    fn session(&mut self, name: &str) -> Outcome<&mut Session> {
        self.sessions.get_mut(name).ok_or("NotFound")
    }

    pub(super) fn create(&mut self, name: &str) -> Outcome {
        if self.sessions.contains_key(name) {
            return Err("AlreadyExists");
        }
        self.sessions.insert(name.to_owned(), Session::new(name, self.now));
        Ok(())
    }

    pub(super) fn acquire(&mut self, owner: u8, session: &str, branch: &str, whole_session: bool) -> Outcome<u64> {
        let now = self.now;
        let session = self.session(session)?;
        if branch == INBOX {
            return Err("Invalid");
        }
        let mut asked = session.branches.iter().filter(|(name, _)| whole_session || *name == branch);
        if asked.any(|(_, info)| info.live(now).is_some_and(|lease| lease.owner != owner)) {
            return Err("AlreadyRunning");
        }
        let found = session.branches.get_mut(branch).ok_or("NotFound")?;
        found.epoch += 1;
        found.lease = Some(ModelLease { owner, epoch: found.epoch, until: now.plus(TTL) });
        session.current = branch.to_owned();
        Ok(session.branches[branch].epoch)
    }

    pub(super) fn renew(&mut self, session: &str, branch: &str, epoch: u64) -> Outcome {
        let now = self.now;
        let found = self.session(session)?.branches.get_mut(branch).ok_or("NotFound")?;
        if found.live(now).is_none_or(|lease| lease.epoch != epoch) {
            return Err("Fenced");
        }
        found.lease.as_mut().unwrap().until = now.plus(TTL);
        Ok(())
    }

    pub(super) fn release(&mut self, session: &str, branch: &str, epoch: u64) -> Outcome {
        let found = self.session(session)?.branches.get_mut(branch).ok_or("NotFound")?;
        // An expired lease may be given back, and a returned one again; a lost one not.
        if found.epoch != epoch {
            return Err("Fenced");
        }
        found.lease = None;
        Ok(())
    }

    pub(super) fn append(&mut self, request: &Request) -> Outcome {
        let now = self.now;
        let session = self.session(&request.session)?;
        let branch = session.branches.get(&request.branch).ok_or("NotFound")?;
        if branch.holds(request.batch) {
            return Ok(());
        }
        match (request.fence, branch.live(now)) {
            (Some(epoch), lease) if lease.is_none_or(|lease| lease.epoch != epoch) => return Err("Fenced"),
            (None, Some(_)) => return Err("AlreadyRunning"),
            _ => {}
        }
        if session.end(&request.branch, branch.head()) != request.expected {
            return Err("Conflict");
        }
        let branch = session.branches.get_mut(&request.branch).unwrap();
        for item in &request.items {
            branch.records.push((item.clone(), request.batch));
            if let (Item::Run(status), true) = (item, request.branch != INBOX) {
                branch.status = *status;
            }
        }
        if let (Some(lease), true, Some(_)) = (&mut branch.lease, request.renew, request.fence) {
            lease.until = now.plus(TTL);
        }
        Ok(())
    }

    pub(super) fn fork(&mut self, session: &str, from: &str, at: u64, branch: &str) -> Outcome {
        let session = self.session(session)?;
        if !session.branches.contains_key(from) {
            return Err("NotFound");
        }
        let owner = session.owner(from, at);
        let source = &session.branches[&owner];
        let pruned = source.base.is_some_and(|base| at < base);
        // The start of a chain is known even where the records behind it are gone, so there a
        // name that is taken is noticed first.
        if at > source.head() || (pruned && at > 0) {
            return Err("NotFound");
        }
        if branch == INBOX || from == INBOX {
            return Err("Invalid");
        }
        let parent = Some((owner, at));
        match session.branches.get(branch) {
            Some(existing) if existing.parent == parent => return Ok(()),
            Some(_) => return Err("AlreadyExists"),
            None if pruned => return Err("NotFound"),
            None => {}
        }
        session.branches.insert(branch.to_owned(), Branch { parent, ..Branch::default() });
        Ok(())
    }

    /// Something arrives in the inbox.
    pub(super) fn send(&mut self, session: &str, item: Item) -> Outcome {
        let batch = self.next_batch();
        self.session(session)?.branches.get_mut(INBOX).unwrap().records.push((item, batch));
        Ok(())
    }

    pub(super) fn describe(&mut self, session: &str, title: &str) -> Outcome {
        self.send(session, Item::Silent)?;
        self.session(session)?.title = Some(title.to_owned());
        Ok(())
    }

    pub(super) fn remove_branch(&mut self, session: &str, branch: &str) -> Outcome {
        let now = self.now;
        let Ok(session) = self.session(session) else { return Ok(()) };
        let first = branch == MAIN || branch == INBOX;
        let forked =
            session.branches.values().any(|other| other.parent.as_ref().is_some_and(|(from, _)| from == branch));
        let leased = session.branches.get(branch).is_some_and(|found| found.live(now).is_some());
        if first || session.current == branch || forked || leased {
            return Err("Protected");
        }
        session.branches.remove(branch);
        Ok(())
    }

    pub(super) fn delete_session(&mut self, name: &str) -> Outcome {
        let now = self.now;
        let Ok(session) = self.session(name) else { return Ok(()) };
        if session.branches.values().any(|branch| branch.live(now).is_some()) {
            return Err("Protected");
        }
        self.sessions.remove(name);
        Ok(())
    }

    /// What importing an export of `from` under the name `to` leads to; nothing where that
    /// depends on how far the two have gone apart.
    pub(super) fn transfer(&mut self, from: &str, to: &str) -> Option<Outcome> {
        let Some(source) = self.sessions.get(from).cloned() else { return Some(Err("NotFound")) };
        match self.sessions.get(to) {
            Some(_) if from == to => return Some(Ok(())),
            Some(existing) if existing.origin != source.origin => return Some(Err("AlreadyExists")),
            Some(_) => return None,
            None => {}
        }
        let mut copy = source;
        for branch in copy.branches.values_mut() {
            (branch.lease, branch.epoch) = (None, 0);
        }
        // Another branch than the first becomes the current one by being leased.
        if copy.current != MAIN {
            copy.branches.get_mut(&copy.current).unwrap().epoch = 1;
        }
        self.sessions.insert(to.to_owned(), copy);
        Some(Ok(()))
    }
}
