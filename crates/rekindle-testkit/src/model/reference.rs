//! The model: the rules of the contract, written once more as plainly as possible. Nothing here
//! calls the code under test.

use std::collections::BTreeMap;
use std::time::Duration;

use rekindle_core::Timestamp;

use super::Outcome;
use super::session::{Branch, End, INBOX, Item, MAIN, ModelLease, Session};

/// How long every lease lives.
pub(super) const TTL: Duration = Duration::from_secs(30);

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
        let origin = format!("{name} {}", self.next_batch());
        self.sessions.insert(name.to_owned(), Session::new(origin, self.now));
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

    pub(super) fn release(&mut self, owner: u8, session: &str, branch: &str, epoch: u64) -> Outcome {
        let found = self.session(session)?.branches.get_mut(branch).ok_or("NotFound")?;
        // An expired lease may be given back, and a returned one again; a lost one not.
        let another = found.lease.as_ref().is_some_and(|lease| lease.owner != owner);
        if found.epoch != epoch || another {
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
        let now = self.now;
        let session = self.session(session)?;
        if !session.branches.contains_key(from) {
            return Err("NotFound");
        }
        let owner = session.owner(from, at);
        let parent = Some((owner.clone(), at));
        if session.branches.get(branch).is_some_and(|existing| existing.parent == parent) {
            return Ok(());
        }
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
        if session.branches.contains_key(branch) {
            return Err("AlreadyExists");
        }
        if pruned {
            return Err("NotFound");
        }
        session.branches.insert(branch.to_owned(), Branch { parent, epoch: now.0, ..Branch::default() });
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

    /// Nobody chose another branch than the first, so an import leases that for a moment, unless somebody
    /// runs the session.
    fn lead_with_main(&mut self, name: &str) {
        let now = self.now;
        let Some(session) = self.sessions.get_mut(name) else { return };
        if session.current == MAIN || session.branches.values().any(|branch| branch.live(now).is_some()) {
            return;
        }
        session.current = MAIN.to_owned();
        if let Some(main) = session.branches.get_mut(MAIN) {
            (main.lease, main.epoch) = (None, main.epoch + 1);
        }
    }

    /// What importing an export of `from` under the name `to` leads to; nothing where that
    /// depends on how far the two have gone apart.
    pub(super) fn transfer(&mut self, from: &str, to: &str) -> Option<Outcome> {
        let Some(source) = self.sessions.get(from).cloned() else { return Some(Err("NotFound")) };
        match self.sessions.get(to) {
            Some(_) if from == to => {
                self.lead_with_main(to);
                return Some(Ok(()));
            }
            Some(existing) if existing.origin != source.origin => return Some(Err("AlreadyExists")),
            Some(_) => return None,
            None => {}
        }
        let mut copy = source;
        for branch in copy.branches.values_mut() {
            (branch.lease, branch.epoch) = (None, self.now.0);
        }
        // Nobody chose another branch; that one was leased is known to the index alone.
        copy.current = MAIN.to_owned();
        self.sessions.insert(to.to_owned(), copy);
        Some(Ok(()))
    }
}
