//! Cancellation: a call that is dropped at any of its awaits happened whole or not at all, and costs nobody else
//! anything.

use std::time::Duration;

use rekindle_core::retention::{Policy, Rule};
use rekindle_core::{
    BranchId, Error, ErrorKind, Journal, LeaseAction, LeaseRequest, Namespace, OwnerId, Position, Removal, Result,
    SessionHeader, SessionQuery, Store, StoreExt as _,
};

use crate::dropped::{answer, at_every_await, cut};
use crate::fixture::{Harness, key};
use crate::history::{History, message};

const TTL: Duration = Duration::from_secs(30);

fn owner() -> OwnerId {
    OwnerId::new("owner").unwrap()
}

/// Two handles of one store. Calls are dropped on the first; the second shows what is stored.
struct Two {
    first: Journal,
    second: Journal,
}

impl Two {
    async fn over(harness: &Harness) -> Self {
        Self { first: harness.journal().await, second: harness.journal().await }
    }

    fn store(&self) -> &dyn Store {
        self.first.store()
    }

    /// A session with some history, written through the first handle.
    async fn history(&self, harness: &Harness, id: &str) -> History {
        harness.session(&self.first, id).await;
        let mut history = History::begin(&self.first, &key(id)).await;
        history.append_steps(3).await.unwrap();
        history
    }

    /// Both handles answer, nothing acknowledged is missing, and work goes on.
    async fn goes_on(&self, mut history: History) {
        let session = history.session.clone();
        answer("append", history.append_steps(2)).await.unwrap();
        let position = Position::new(history.branch.clone(), history.head.seq);
        for journal in [&self.first, &self.second] {
            let restored = answer("load", journal.load(&session, Some(&position))).await.unwrap();
            assert_eq!(restored.head, history.head);
            assert_eq!(restored.state, history.state_after(usize::MAX));
        }
    }
}

/// A session that is created by a call that is dropped is there whole or not at all.
pub async fn a_dropped_create_can_be_repeated(harness: &Harness) {
    let two = Two::over(harness).await;
    at_every_await(async |polls| {
        let session = key(&format!("create-{polls}"));
        let done = cut(polls, two.first.create(SessionHeader::new(session.clone()))).await;
        let again = answer("create", two.first.create(SessionHeader::new(session.clone()))).await;
        assert!(is_one_of(&again, &[ErrorKind::AlreadyExists]), "{polls}: {again:?}");
        let seen = answer("open", two.second.open(&session)).await.unwrap();
        assert_eq!(seen, answer("open", two.first.open(&session)).await.unwrap());
        two.goes_on(History::begin(&two.first, &session).await).await;
        done.is_some()
    })
    .await;
}

/// Frames of an append that is dropped stand there all or not at all, and once however often it is repeated.
pub async fn a_dropped_append_can_be_repeated(harness: &Harness) {
    let two = Two::over(harness).await;
    for leased in [false, true] {
        at_every_await(async |polls| {
            let mut history = two.history(harness, &format!("append-{leased}-{polls}")).await;
            if leased {
                let lease = two.store().acquire(&history.session, &history.branch, &owner(), TTL).await.unwrap();
                history.fence = Some(lease.info.epoch);
            }
            let records = vec![message("dropped"), message("and repeated")];
            let mut append = two.first.prepare(&history.target(), &records).unwrap();
            append.renew = history.fence.map(|_| TTL);
            let done = cut(polls, two.store().append(&append)).await;
            let seen = answer("open", two.second.open(&history.session)).await.unwrap();
            let head = seen.branch(&history.branch).unwrap().head;
            assert!(head == history.head || head == append.head(), "{polls}: half of it is there: {head:?}");
            history.head = answer("append", two.store().append(&append)).await.unwrap().head;
            assert_eq!(history.head, append.head());
            history.batches.push(records);
            two.goes_on(history).await;
            done.is_some()
        })
        .await;
    }
}

/// A fork that is dropped can be repeated, and the branch it is made from is as it was.
pub async fn a_dropped_fork_can_be_repeated(harness: &Harness) {
    let two = Two::over(harness).await;
    at_every_await(async |polls| {
        let history = two.history(harness, &format!("fork-{polls}")).await;
        let at = Position::new(history.branch.clone(), history.head.seq);
        let side = BranchId::new("side").unwrap();
        let done = cut(polls, two.first.fork(&history.session, &at, side)).await;
        let fork = answer("fork", history.fork("side", history.head.seq.0)).await.unwrap();
        two.goes_on(fork).await;
        two.goes_on(history).await;
        done.is_some()
    })
    .await;
}

/// A lease that is asked for, renewed or released by a call that is dropped is the owner's or nobody's.
pub async fn a_dropped_lease_can_be_repeated(harness: &Harness) {
    let two = Two::over(harness).await;
    for which in ["acquire", "renew", "release"] {
        at_every_await(async |polls| {
            let mut history = two.history(harness, &format!("{which}-{polls}")).await;
            let acquire = LeaseAction::Acquire { owner: owner(), ttl: TTL, whole_session: true };
            let request = |action| {
                let (session, branch) = (history.session.clone(), history.branch.clone());
                LeaseRequest { session, branch, action }
            };
            let epoch = match which {
                "acquire" => Default::default(),
                _ => two.store().lease(&request(acquire.clone())).await.unwrap().info.epoch,
            };
            let action = match which {
                "acquire" => acquire,
                "renew" => LeaseAction::Renew { epoch, ttl: TTL * 2 },
                _ => LeaseAction::Release { owner: owner(), epoch },
            };
            let done = cut(polls, two.store().lease(&request(action.clone()))).await;
            let lease = answer(which, two.store().lease(&request(action))).await.unwrap();
            let seen = answer("open", two.second.open(&history.session)).await.unwrap();
            let held = seen.branch(&history.branch).unwrap().lease.clone();
            assert_eq!(held.map(|held| held.epoch), (which != "release").then_some(lease.info.epoch));
            history.fence = (which != "release").then_some(lease.info.epoch);
            two.goes_on(history).await;
            done.is_some()
        })
        .await;
    }
}

/// A removal that is dropped removed everything it was to remove or nothing, and can be repeated.
pub async fn a_dropped_removal_can_be_repeated(harness: &Harness) {
    let two = Two::over(harness).await;
    at_every_await(async |polls| {
        let history = two.history(harness, &format!("session-{polls}")).await;
        let removal = Removal::Session { session: history.session.clone() };
        let done = cut(polls, two.store().remove(&removal)).await;
        whole_or_gone(&two.second, &history).await;
        answer("remove", two.store().remove(&removal)).await.unwrap();
        for journal in [&two.first, &two.second] {
            let gone = answer("open", journal.open(&history.session)).await.unwrap_err();
            assert_eq!(*gone.kind(), ErrorKind::NotFound, "{polls}");
        }
        let again = two.history(harness, history.session.id.as_str()).await;
        two.goes_on(again).await;
        done.is_some()
    })
    .await;
    at_every_await(async |polls| {
        let history = two.history(harness, &format!("branch-{polls}")).await;
        let fork = history.fork("side", 2).await.unwrap();
        let removal = Removal::Branch { session: fork.session.clone(), branch: fork.branch.clone() };
        let done = cut(polls, two.store().remove(&removal)).await;
        answer("remove", two.store().remove(&removal)).await.unwrap();
        let seen = answer("open", two.second.open(&fork.session)).await.unwrap();
        assert!(seen.branch(&fork.branch).is_err(), "{polls}");
        two.goes_on(history).await;
        done.is_some()
    })
    .await;
}

/// Pruning that is dropped can be repeated, and loses nothing that it keeps.
pub async fn dropped_pruning_can_be_repeated(harness: &Harness) {
    let two = Two::over(harness).await;
    let policy = Policy::new([Rule::LastN(1)]);
    at_every_await(async |polls| {
        let mut history = two.history(harness, &format!("prune-{polls}")).await;
        history.append_steps(9).await.unwrap();
        let done = cut(polls, two.first.prune(&history.session, &policy)).await;
        let restored = answer("load", two.second.load(&history.session, None)).await.unwrap();
        assert_eq!(restored.state, history.state_after(usize::MAX), "{polls}");
        answer("prune", two.first.prune(&history.session, &policy)).await.unwrap();
        two.goes_on(history).await;
        done.is_some()
    })
    .await;
}

/// A look that is dropped changes nothing, and the next one sees everything.
pub async fn a_dropped_look_costs_nothing(harness: &Harness) {
    let two = Two::over(harness).await;
    let history = two.history(harness, "looked-at").await;
    let session = history.session.clone();
    let query = SessionQuery::new(Namespace::default());
    // A handle that has read nothing yet each time: what it keeps must not suffer either.
    at_every_await(async |polls| {
        let fresh = harness.journal().await;
        let done = cut(polls, fresh.open(&session)).await.is_some();
        assert_eq!(answer("open", fresh.open(&session)).await.unwrap(), two.first.open(&session).await.unwrap());
        done
    })
    .await;
    at_every_await(async |polls| {
        let fresh = harness.journal().await;
        let done = cut(polls, fresh.load(&session, None)).await.is_some();
        let restored = answer("load", fresh.load(&session, None)).await.unwrap();
        assert_eq!(restored.state, history.state_after(usize::MAX), "{polls}");
        done
    })
    .await;
    at_every_await(async |polls| {
        let fresh = harness.journal().await;
        let done = cut(polls, fresh.store().list(&query)).await.is_some();
        let listed = answer("list", fresh.store().list(&query)).await.unwrap();
        assert_eq!(listed.sessions.len(), 1, "{polls}");
        done
    })
    .await;
    at_every_await(async |polls| {
        let done = cut(polls, two.store().unlisted(&Namespace::default())).await.is_some();
        assert!(answer("unlisted", two.store().unlisted(&Namespace::default())).await.unwrap().is_empty());
        done
    })
    .await;
    at_every_await(async |polls| {
        let done = cut(polls, two.store().check()).await.is_some();
        assert!(answer("check", two.store().check()).await.unwrap().is_empty(), "{polls}");
        done
    })
    .await;
    two.goes_on(history).await;
}

/// A reader that gives up again and again, each time at the same await, neither stops a writer nor is in the way
/// of other readers.
pub async fn readers_that_give_up_stop_nobody(harness: &Harness) {
    let two = Two::over(harness).await;
    let mut history = two.history(harness, "a").await;
    for polls in 1..=8 {
        for _ in 0..4 {
            let _ = cut(polls, two.first.load(&history.session, None)).await;
            let _ = cut(polls, two.first.open(&history.session)).await;
        }
        answer("append", history.append_steps(1)).await.unwrap();
    }
    two.goes_on(history).await;
}

/// Either everything of the session can be read, or there is none.
async fn whole_or_gone(journal: &Journal, history: &History) {
    match answer("load", journal.load(&history.session, None)).await {
        Ok(restored) => assert_eq!(restored.state, history.state_after(usize::MAX)),
        // It may go between two looks of a load.
        Err(error) => assert_eq!(*error.kind(), ErrorKind::NotFound, "{error:?}"),
    }
}

fn is_one_of<T>(result: &Result<T>, kinds: &[ErrorKind]) -> bool {
    result.as_ref().err().map(Error::kind).is_none_or(|kind| kinds.contains(kind))
}
