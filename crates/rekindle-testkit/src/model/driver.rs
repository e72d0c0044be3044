//! Carries out commands on the store and on the model, and compares what both say.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::time::Duration;

use rekindle_core::record::{InboxMessage, RunEnded, RunOutcome, RunStarted, RunState, RunStateKind, SessionDescribed};
use rekindle_core::retention::{Policy, Rule};
use rekindle_core::{
    Append, BranchId, Clock as _, Epoch, Hash, Head, ImportOptions, Journal, Json, Lease, LeaseAction, LeaseRequest,
    MessageId, OwnerId, Position, Record, Removal, RunId, Seq, SessionHeader, Status, StoreExt as _, Target,
};

use super::reference::{Model, Request, TTL};
use super::session::{Batch, End, INBOX, Item, MAIN};
use super::{ABSENT_INDEX, Command, Content, INBOX_INDEX, Keep, Outcome, agree, outcome};
use crate::fixture::{Harness, key};
use crate::history::{checkpoint, message};

/// What an owner knows of the branch it got the lease of last. It may be long out of date.
struct Holding {
    session: String,
    branch: String,
    lease: Lease,
    head: Head,
    end: End,
}

pub(super) struct Driver<'a> {
    pub(super) harness: &'a Harness,
    handles: Vec<Journal>,
    pub(super) model: Model,
    owners: BTreeMap<u8, Holding>,
    /// Every append that was tried, as it was sent and as the model sees it.
    tried: Vec<(Append, Request)>,
    texts: u64,
}

fn session_name(index: u8) -> String {
    format!("session-{index}")
}

pub(super) fn branch_id(name: &str) -> BranchId {
    BranchId::new(name).unwrap()
}

fn name(index: u8) -> String {
    ["one", "two", "three", MAIN, INBOX][usize::from(index)].to_owned()
}

fn owner_id(index: u8) -> OwnerId {
    OwnerId::new(format!("owner-{index}")).unwrap()
}

fn run_id() -> RunId {
    RunId::new("run").unwrap()
}

impl<'a> Driver<'a> {
    pub(super) async fn new(harness: &'a Harness) -> Self {
        let model = Model::new(harness.clock.now());
        let handles = vec![harness.journal().await, harness.journal().await];
        Self { harness, handles, model, owners: BTreeMap::new(), tried: Vec::new(), texts: 0 }
    }

    /// The handle in use.
    pub(super) fn journal(&self) -> &Journal {
        &self.handles[0]
    }

    /// The branch an index stands for.
    fn branch(&self, session: &str, index: u8) -> String {
        let known = self.model.sessions.get(session).map(|found| found.branches.keys().collect::<Vec<_>>());
        let forks: Vec<_> = known.into_iter().flatten().filter(|name| *name != MAIN && *name != INBOX).collect();
        match index {
            INBOX_INDEX => INBOX.to_owned(),
            ABSENT_INDEX => name(0),
            1.. if !forks.is_empty() => forks[usize::from(index) % forks.len()].clone(),
            _ => MAIN.to_owned(),
        }
    }

    /// One of the owners that ever got a lease.
    fn holder(&self, index: u8) -> Option<u8> {
        self.owners.keys().copied().cycle().nth(usize::from(index))
    }

    pub(super) async fn execute(&mut self, command: &Command) {
        match command {
            Command::Create(index) => self.create(&session_name(*index)).await,
            Command::Acquire { .. } | Command::Renew(_) | Command::Release(_) => self.lease(command).await,
            Command::Advance(seconds) => self.advance(Duration::from_secs(*seconds)),
            Command::Append { .. } | Command::AppendUnleased(..) | Command::AppendWrongHead(..) => {
                self.append(command).await;
            }
            Command::AppendRival(back, content) => self.append_rival(command, *back, content).await,
            Command::Repeat(back) => self.repeat(command, *back).await,
            Command::Fork(..) => self.fork(command).await,
            Command::Send(index) => self.send(&session_name(*index)).await,
            Command::Describe(index) => self.describe(&session_name(*index)).await,
            Command::Prune(session, keep) => self.prune(&session_name(*session), *keep).await,
            Command::RemoveBranch(session, branch) => self.remove_branch(&session_name(*session), *branch).await,
            Command::DeleteSession(index) => self.delete_session(command, &session_name(*index)).await,
            Command::Look(session, branch, at) => self.look(&session_name(*session), *branch, *at).await,
            Command::Reopen => self.reopen().await,
            Command::SwitchHandle => self.handles.reverse(),
            Command::Transfer(from, to) => self.transfer(&session_name(*from), &session_name(*to)).await,
        }
    }

    async fn create(&mut self, name: &str) {
        let created = self.journal().create(SessionHeader::new(key(name))).await;
        agree(&("create", name), outcome(created).map(drop), self.model.create(name));
    }

    fn advance(&mut self, by: Duration) {
        self.harness.clock.advance(by);
        self.model.now = self.model.now.plus(by);
    }

    async fn reopen(&mut self) {
        self.handles.clear();
        for _ in 0..2 {
            self.handles.push(self.harness.journal().await);
        }
    }

    async fn lease(&mut self, command: &Command) {
        match command {
            Command::Acquire { owner, session, branch, whole_session } => {
                let session = session_name(*session);
                let branch = self.branch(&session, *branch);
                let expected = self.model.acquire(*owner, &session, &branch, *whole_session);
                let action = LeaseAction::Acquire { owner: owner_id(*owner), ttl: TTL, whole_session: *whole_session };
                let request = LeaseRequest { session: key(&session), branch: branch_id(&branch), action };
                let lease = outcome(self.journal().store().lease(&request).await);
                agree(command, lease.as_ref().map(drop).map_err(|kind| *kind), expected.map(drop));
                if let (Ok(lease), Ok(epoch)) = (lease, expected) {
                    self.hold(*owner, session, branch, lease, epoch);
                }
            }
            Command::Renew(owner) => {
                let Some(holding) = self.holder(*owner).and_then(|owner| self.owners.get(&owner)) else { return };
                let renewed = self.journal().store().renew(&holding.lease, TTL).await;
                let expected = self.model.renew(&holding.session, &holding.branch, holding.lease.info.epoch.0);
                agree(command, outcome(renewed).map(drop), expected);
            }
            Command::Release(owner) => {
                let Some(owner) = self.holder(*owner) else { return };
                let Some(holding) = self.owners.get(&owner) else { return };
                let released = self.journal().store().release(&holding.lease).await;
                let epoch = holding.lease.info.epoch.0;
                let expected = self.model.release(owner, &holding.session, &holding.branch, epoch);
                agree(command, outcome(released).map(drop), expected);
            }
            other => unreachable!("{other:?} is not about leases"),
        }
    }

    fn hold(&mut self, owner: u8, session: String, branch: String, lease: Lease, epoch: u64) {
        let found = &self.model.sessions[&session];
        let end = found.end(&branch, found.branches[&branch].head());
        assert_eq!((lease.info.epoch, lease.head.seq), (Epoch(epoch), Seq(end.seq)), "{lease:?}");
        assert_eq!((&lease.info.owner, lease.info.expires_at), (&owner_id(owner), self.model.now.plus(TTL)));
        self.owners.insert(owner, Holding { session, branch, head: lease.head, end, lease });
    }

    /// Where a branch ends, in the store and in the model; anything if there is none.
    async fn head(&self, session: &str, branch: &str) -> (Head, End) {
        let info = self.journal().open(&key(session)).await;
        let head = info.ok().and_then(|info| info.branch(&branch_id(branch)).ok().map(|found| found.head));
        let known = self.model.sessions.get(session).filter(|found| found.branches.contains_key(branch));
        let end = known.map(|found| found.end(branch, found.branches[branch].head()));
        let nowhere = (Head { seq: Seq::ZERO, hash: Hash::default() }, End { batch: Batch::Unheard, seq: 0 });
        (head.unwrap_or(nowhere.0), end.unwrap_or(nowhere.1))
    }

    async fn append(&mut self, command: &Command) {
        match command {
            Command::Append { owner, content, renew } => {
                let Some(owner) = self.holder(*owner) else { return };
                let holding = &self.owners[&owner];
                let mut target = Target::new(key(&holding.session), branch_id(&holding.branch), holding.head)
                    .with_fence(holding.lease.info.epoch);
                target.renew = renew.then_some(TTL);
                let end = holding.end.clone();
                if let Some((head, end)) = self.try_append(command, target, end, content).await {
                    let holding = self.owners.get_mut(&owner).unwrap();
                    (holding.head, holding.end) = (head, end);
                }
            }
            Command::AppendUnleased(session, branch, content) => {
                let session = session_name(*session);
                let branch = self.branch(&session, *branch);
                let (head, end) = self.head(&session, &branch).await;
                let target = Target::new(key(&session), branch_id(&branch), head);
                self.try_append(command, target, end, content).await;
            }
            Command::AppendWrongHead(session, branch, back) => {
                let session = session_name(*session);
                let branch = self.branch(&session, *branch);
                let (head, _) = self.head(&session, &branch).await;
                let head = Head { seq: Seq(head.seq.0.saturating_sub(*back)), hash: Hash::of(b"never there") };
                let target = Target::new(key(&session), branch_id(&branch), head);
                let end = End { batch: Batch::Unheard, seq: head.seq.0 };
                self.try_append(command, target, end, &[Content::Message]).await;
            }
            other => unreachable!("{other:?} is not an append"),
        }
    }

    /// Appends something at `target`, which is `expected` in the model; the new head if it worked.
    async fn try_append(
        &mut self,
        about: &Command,
        target: Target,
        expected: End,
        content: &[Content],
    ) -> Option<(Head, End)> {
        let (records, items): (Vec<_>, Vec<_>) = content.iter().map(|content| self.record(*content)).unzip();
        // Whoever has not opened a session does not know its key.
        let is_there = self.journal().open(&target.session).await.is_ok();
        let append = match self.journal().prepare(&target, &records) {
            Err(_) if !is_there => return None,
            prepared => prepared.unwrap(),
        };
        let request = Request {
            session: target.session.id.to_string(),
            branch: target.branch.to_string(),
            expected,
            batch: self.model.next_batch(),
            items,
            fence: target.fence.map(|epoch| epoch.0),
            renew: target.renew.is_some(),
        };
        let end = End { batch: Batch::Numbered(request.batch), seq: append.head().seq.0 };
        let worked = self.send_append(about, &append, &request).await;
        let head = append.head();
        self.tried.push((append, request));
        worked.then_some((head, end))
    }

    async fn send_append(&mut self, about: &Command, append: &Append, request: &Request) -> bool {
        let appended = outcome(self.journal().store().append(append).await);
        if let Ok(appended) = appended {
            assert_eq!(appended.head, append.head(), "{about:?}");
        }
        let expected = self.model.append(request);
        agree(&(about, request), appended.map(drop), expected);
        expected.is_ok()
    }

    fn earlier(&self, back: usize) -> Option<(Append, Request)> {
        let index = self.tried.len().checked_sub(back + 1)?;
        self.tried.get(index).cloned()
    }

    async fn append_rival(&mut self, command: &Command, back: usize, content: &[Content]) {
        let Some((append, request)) = self.earlier(back) else { return };
        let mut target = Target::new(append.session, append.branch, append.expected);
        (target.fence, target.renew) = (append.fence, append.renew);
        self.try_append(command, target, request.expected, content).await;
    }

    async fn repeat(&mut self, command: &Command, back: usize) {
        let Some((append, request)) = self.earlier(back) else { return };
        self.send_append(command, &append, &request).await;
    }

    fn text(&mut self, what: &str) -> String {
        self.texts += 1;
        format!("{what} {}", self.texts)
    }

    /// A record, and what the model makes of it.
    fn record(&mut self, content: Content) -> (Record, Item) {
        match content {
            Content::Message => {
                let text = self.text("message");
                (message(&text), Item::Message(text))
            }
            Content::Checkpoint => {
                let id = self.text("checkpoint");
                (checkpoint(&id), Item::Checkpoint(id))
            }
            Content::Started => (RunStarted::new(run_id(), "agent").into(), Item::Run(Status::Running)),
            Content::Waits => (RunState::new(run_id(), RunStateKind::Waiting).into(), Item::Run(Status::Waiting)),
            Content::Ended(outcome) => (RunEnded::new(run_id(), outcome).into(), Item::Run(status_after(outcome))),
        }
    }

    async fn fork(&mut self, command: &Command) {
        let Command::Fork(session, from, percent, branch) = command else { unreachable!("{command:?} is not a fork") };
        let (session, branch) = (session_name(*session), name(*branch));
        let from = self.branch(&session, *from);
        let at = self.place(&session, &from, *percent);
        let position = Position::new(branch_id(&from), Seq(at));
        let forked = outcome(self.journal().fork(&key(&session), &position, branch_id(&branch)).await);
        let expected = self.model.fork(&session, &from, at, &branch);
        agree(&(command, at), forked.as_ref().map(drop).map_err(|kind| *kind), expected);
        if let Ok(info) = forked {
            let found = &self.model.sessions[&session].branches[&branch];
            assert_eq!(info.head.seq.0, found.head(), "{command:?}");
        }
    }

    /// The record at a per cent of a branch's length.
    fn place(&self, session: &str, branch: &str, percent: u64) -> u64 {
        let found = self.model.sessions.get(session).and_then(|found| found.branches.get(branch));
        let head = found.map_or(0, |branch| branch.head());
        if percent > 100 { head + 1 } else { (head * percent).div_ceil(100) }
    }

    async fn send(&mut self, session: &str) {
        let id = self.text("sent");
        let record = InboxMessage::new(MessageId::new(&id).unwrap(), Json::from("hello"));
        let sent = self.journal().send(&key(session), &[record.into()]).await;
        agree(&("send", session), outcome(sent).map(drop), self.model.send(session, Item::Sent(id)));
    }

    async fn describe(&mut self, session: &str) {
        let title = self.text("title");
        let change = SessionDescribed { title: Some(title.clone()), ..SessionDescribed::default() };
        let described = self.journal().describe(&key(session), change).await;
        agree(&("describe", session), outcome(described).map(drop), self.model.describe(session, &title));
    }

    /// What is kept cannot be foretold here, but must be sound; then the model takes it over.
    async fn prune(&mut self, session: &str, keep: Keep) {
        let policy = match keep {
            Keep::Protected => Policy::default(),
            Keep::Last(count) => Policy::new([Rule::LastN(count)]),
            Keep::All => Policy::new([Rule::FullHistory]),
        };
        let pruned = outcome(self.journal().prune(&key(session), &policy).await);
        let expected = self.model.sessions.get(session).map(drop).ok_or("NotFound");
        agree(&("prune", session), pruned.as_ref().map(drop).map_err(|kind| *kind), expected);
        let Ok(result) = pruned else { return };
        let removed = result.plan.remove.iter().map(|planned| planned.checkpoint.to_string()).collect::<Vec<_>>();
        if !removed.is_empty() {
            self.model.send(session, Item::Silent).unwrap();
        }
        self.check_removed(session, keep, &removed);
        self.model.sessions.get_mut(session).unwrap().removed.extend(removed);
        self.take_over_bases(session).await;
    }

    async fn remove_branch(&mut self, session: &str, branch: u8) {
        let branch = self.branch(session, branch);
        let removal = Removal::Branch { session: key(session), branch: branch_id(&branch) };
        let removed = self.journal().store().remove(&removal).await;
        agree(&("remove", session, &branch), outcome(removed).map(drop), self.model.remove_branch(session, &branch));
    }

    async fn delete_session(&mut self, command: &Command, session: &str) {
        let removed = self.journal().clear_session(&key(session)).await;
        agree(command, outcome(removed).map(drop), self.model.delete_session(session));
    }

    async fn look(&mut self, session: &str, branch: u8, percent: u64) {
        let branch = self.branch(session, branch);
        let at = self.place(session, &branch, percent);
        self.compare_position(session, &branch, at).await;
    }

    async fn transfer(&mut self, from: &str, to: &str) {
        let mut file = Vec::new();
        let exported = outcome(self.journal().export(&key(from), &mut file).await);
        let known = self.model.sessions.get(from).map(drop).ok_or("NotFound");
        agree(&("export", from), exported.map(drop), known);
        let Some(expected) = self.model.transfer(from, to) else { return };
        if known.is_err() {
            return;
        }
        let rename = ImportOptions { rename: Some(key(to)), ..Default::default() };
        let imported = outcome(self.journal().import(&mut Cursor::new(file), &rename).await);
        agree(&("import", from, to), imported.as_ref().map(drop).map_err(|kind| *kind), expected);
        if imported.is_ok_and(|moved| !moved.same_hashes) {
            // What was known of an earlier session of that name may or may not fit this one.
            self.tried.retain(|(append, _)| append.session != key(to));
            self.owners.retain(|_, holding| holding.session != to);
        }
    }

    pub(super) fn known(&self, session: &str) -> Outcome {
        self.model.sessions.get(session).map(drop).ok_or("NotFound")
    }
}

fn status_after(outcome: RunOutcome) -> Status {
    match outcome {
        RunOutcome::Idle => Status::Idle,
        RunOutcome::Succeeded => Status::Succeeded,
        RunOutcome::Failed => Status::Failed,
        RunOutcome::Cancelled => Status::Cancelled,
        RunOutcome::Paused => Status::Paused,
        RunOutcome::Waiting => Status::Waiting,
    }
}
