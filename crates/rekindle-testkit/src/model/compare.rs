//! Compares everything the store says with the model.

use std::collections::BTreeMap;

use rekindle_core::{
    BranchInfo, Entry, LogName, Position, Record, Seq, SessionInfo, SessionQuery, State, Status, StoreExt as _,
};

use super::driver::{Driver, branch_id};
use super::session::{Branch, INBOX, Session, Snapshot};
use super::{Keep, Outcome, outcome};
use crate::fixture::key;

impl Driver<'_> {
    /// Compares all sessions with the model.
    pub(super) async fn compare(&self) {
        self.compare_list().await;
        for (name, session) in &self.model.sessions {
            let mut info = self.journal().open(&key(name)).await.unwrap();
            // Of the store, it is the branch that was leased last.
            info.current = self.journal().store().open(&key(name)).await.unwrap().current;
            self.compare_info(session, &info);
            self.compare_inbox(name, session).await;
            for (branch, found) in &session.branches {
                self.compare_position(name, branch, found.head()).await;
                self.compare_checkpoints(name, session, branch, found).await;
            }
            let report = self.journal().verify(&key(name), &BTreeMap::new()).await.unwrap();
            assert!(report.is_sound(), "{report:?}");
        }
    }

    /// Compares the states at all positions with the model.
    pub(super) async fn compare_every_position(&self) {
        for (name, session) in &self.model.sessions {
            for (branch, found) in &session.branches {
                for seq in 0..=found.head() {
                    self.compare_position(name, branch, seq).await;
                }
            }
        }
    }

    async fn compare_list(&self) {
        let now = self.model.now;
        let mut expected: Vec<_> =
            self.model.sessions.iter().map(|(name, session)| (session.created_at, name)).collect();
        expected.sort();
        expected.reverse();
        let query = SessionQuery::new(Default::default()).with_total();
        let page = self.journal().list(&query).await.unwrap();
        let listed: Vec<_> = page.sessions.iter().map(|info| info.header.key.id.to_string()).collect();
        assert_eq!(listed, expected.iter().map(|(_, name)| (*name).clone()).collect::<Vec<_>>());
        assert_eq!(page.total, Some(expected.len() as u64));
        for status in Status::ALL {
            let found = self.journal().store().list_all(&query.clone().with_status(status)).await.unwrap();
            let mut found: Vec<_> = found.iter().map(|info| info.header.key.id.to_string()).collect();
            found.sort();
            let with_status = self.model.sessions.iter().filter(|(_, session)| session.status(now) == status);
            assert_eq!(found, with_status.map(|(name, _)| name.clone()).collect::<Vec<_>>(), "{status}");
        }
    }

    fn compare_info(&self, session: &Session, info: &SessionInfo) {
        assert_eq!(info.header.title, session.title);
        assert_eq!(info.created_at, session.created_at);
        assert_eq!(info.current.as_str(), session.current, "the current branch of {}", info.header.key);
        assert_eq!(info.status(), session.status(self.model.now), "the status of {}", info.header.key);
        let names: Vec<_> = session.branches.keys().cloned().collect();
        let mut found: Vec<_> = info.branches.iter().map(|branch| branch.branch.to_string()).collect();
        found.sort();
        assert_eq!(found, names);
        for branch in &info.branches {
            self.compare_branch(&session.branches[branch.branch.as_str()], branch);
        }
    }

    fn compare_branch(&self, branch: &Branch, info: &BranchInfo) {
        assert_eq!(info.head.seq.0, branch.head(), "{info:?}");
        assert_eq!(info.base.map(|base| base.seq.0), branch.base, "{info:?}");
        assert_eq!((info.status, info.epoch.0), (branch.status, branch.epoch), "{info:?}");
        assert_eq!(info.status_at(self.model.now), branch.seen_status(self.model.now), "{info:?}");
        let parent = info.parent.as_ref().map(|parent| (parent.branch.to_string(), parent.seq.0));
        assert_eq!(parent, branch.parent);
        let lease = info.lease.as_ref().map(|lease| (lease.owner.to_string(), lease.epoch.0, lease.expires_at));
        let expected = branch.lease.as_ref().map(|lease| (format!("owner-{}", lease.owner), lease.epoch, lease.until));
        assert_eq!(lease, expected, "{info:?}");
    }

    async fn compare_inbox(&self, name: &str, session: &Session) {
        let entries = self.journal().read(&key(name), &branch_id(INBOX), Seq(1), 1_000).await.unwrap();
        let records = entries.into_iter().flat_map(|entry| match entry {
            Entry::Batch(batch) => batch.records,
            Entry::Damaged(damage) => panic!("{damage:?}"),
        });
        let sent: Vec<String> = records
            .filter_map(|record| match record {
                Record::InboxMessage(message) => Some(message.message.to_string()),
                _ => None,
            })
            .collect();
        assert_eq!(sent, session.messages());
    }

    pub(super) async fn compare_position(&self, session: &str, branch: &str, seq: u64) {
        let position = Position::new(branch_id(branch), Seq(seq));
        let loaded = outcome(self.journal().load(&key(session), Some(&position)).await);
        let found = loaded.map(|restored| {
            assert_eq!(restored.head.seq, position.seq);
            snapshot(&restored.state)
        });
        let expected = self.known(session).and_then(|()| self.model.sessions[session].look(branch, seq));
        assert_eq!(found, expected, "{session} at {position}");
        assert_eq!(self.recalled(session, &position).await, expected, "{session} at {position}, seen again");
    }

    /// What somebody sees at a position who may have seen the session before.
    async fn recalled(&self, session: &str, position: &Position) -> Outcome<Snapshot> {
        let info = outcome(self.journal().open(&key(session)).await)?;
        let recalled = outcome(self.journal().recall(info, Some(position)).await);
        recalled.map(|restored| snapshot(&restored.state))
    }

    /// What is listed is where it was made, with the state of that moment; and nothing of the
    /// branch's own is missing.
    async fn compare_checkpoints(&self, name: &str, session: &Session, branch: &str, found: &Branch) {
        let head = Position::new(branch_id(branch), Seq(found.head()));
        self.compare_position(name, branch, found.head()).await;
        let listed = self.journal().checkpoints(&key(name), Some(&head), None, 1_000).await.unwrap();
        let ids: Vec<_> = listed.iter().map(|found| found.checkpoint.id.to_string()).collect();
        for info in &listed {
            let id = info.checkpoint.id.to_string();
            let at = (info.position.branch.as_str(), info.position.seq.0);
            assert!(session.own_checkpoints(at.0).contains(&(id, at.1)), "{info:?} is not where it was made");
            self.compare_position(name, at.0, at.1).await;
        }
        let own = session.own_checkpoints(branch).into_iter().rev().map(|(id, _)| id);
        let own: Vec<_> = own.filter(|id| !session.removed.contains(id)).collect();
        assert_eq!(ids[..own.len().min(ids.len())], own, "{name} {branch}");
    }

    /// Checks what pruning unmarked: never the newest of a branch, nothing a rule keeps.
    pub(super) fn check_removed(&self, name: &str, keep: Keep, removed: &[String]) {
        let session = &self.model.sessions[name];
        for branch in session.branches.keys().filter(|branch| *branch != INBOX) {
            let own = session.own_checkpoints(branch).into_iter().rev().map(|(id, _)| id);
            let own = own.filter(|id| !session.removed.contains(id));
            let kept = match keep {
                Keep::Protected => 1,
                Keep::Last(count) => count,
                Keep::All => usize::MAX,
            };
            for id in own.take(kept) {
                assert!(!removed.contains(&id), "{id} of {branch} was removed under {keep:?}");
            }
        }
    }

    /// Takes over up to where pruning compacted each branch, if it was allowed to.
    pub(super) async fn take_over_bases(&mut self, name: &str) {
        let info = self.journal().open(&key(name)).await.unwrap();
        let before = self.model.sessions[name].clone();
        for branch in &info.branches {
            let branch_name = branch.branch.as_str();
            let found = &before.branches[branch_name];
            let base = branch.base.map(|base| base.seq.0);
            if base == found.base {
                continue;
            }
            let through = base.expect("a base does not go away");
            assert!(found.live(self.model.now).is_none(), "{branch_name} is leased");
            assert!(found.base.is_none_or(|base| through > base) && found.batch_ends_at(through), "{branch:?}");
            for fork in before.branches.values().filter(|fork| fork.base.is_none()) {
                let needs = fork.parent.as_ref().filter(|(parent, _)| parent == branch_name);
                assert!(needs.is_none_or(|(_, at)| *at >= through), "{fork:?} needs what stood before {through}");
            }
            self.model.sessions.get_mut(name).unwrap().branches.get_mut(branch_name).unwrap().base = base;
        }
        let session = &self.model.sessions[name];
        for (branch, found) in &session.branches {
            self.compare_position(name, branch, found.head()).await;
            self.compare_checkpoints(name, session, branch, found).await;
        }
    }
}

fn snapshot(state: &State) -> Snapshot {
    let messages = state.log(&LogName::new("messages").unwrap());
    Snapshot {
        messages: messages.iter().map(|item| item.decode().unwrap()).collect(),
        checkpoint: state.checkpoint().map(ToString::to_string),
        status: state.status(),
    }
}
