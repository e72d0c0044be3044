//! Appends with a condition on another branch: how an answer and the expiry of its wait exclude each
//! other.

use rekindle_core::record::{InboxMessage, WaitExpired, WaitKind, WaitOpened};
use rekindle_core::{
    Append, BranchId, Condition, ErrorKind, Head, Journal, Json, MessageId, Record, Seq, SessionKey, Target, WaitId,
};

use crate::fixture::{Harness, key};
use crate::history::message;

fn opened() -> Record {
    WaitOpened::new(WaitId::new("wait_1").unwrap(), WaitKind::Approval).into()
}

fn expired() -> Record {
    WaitExpired { wait: WaitId::new("wait_1").unwrap(), extra: Default::default() }.into()
}

fn sent() -> Record {
    InboxMessage::new(MessageId::new("m").unwrap(), Json::from("hi")).into()
}

async fn head(journal: &Journal, session: &SessionKey, branch: &BranchId) -> (Head, Seq) {
    let info = journal.open(session).await.unwrap();
    let branch = info.branch(branch).unwrap();
    (branch.head, branch.last_wait)
}

/// An append to `branch` as it is, with a condition.
async fn prepared(journal: &Journal, branch: BranchId, record: Record, condition: Condition) -> Append {
    let session = key("a");
    let (expected, _) = head(journal, &session, &branch).await;
    let append = journal.prepare(&Target::new(session, branch, expected), &[record]).unwrap();
    Append { condition: Some(condition), ..append }
}

/// A condition is judged with the append, on the other branch as it is then; what was carried out is
/// recognised although its condition holds no more.
pub async fn an_append_can_depend_on_another_branch(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let (main, inbox) = (BranchId::main(), BranchId::inbox());
    let (begin, none) = head(&journal, &key("a"), &main).await;
    assert_eq!(none, Seq::ZERO);
    let target = Target::new(key("a"), main.clone(), begin);
    journal.append(&target, &[message("1"), opened()]).await.unwrap();
    let (expected, last_wait) = head(&journal, &key("a"), &main).await;
    assert_eq!(last_wait, Seq(2), "the record that opened a wait");
    journal.append(&Target::new(key("a"), main.clone(), expected), &[message("2")]).await.unwrap();
    assert_eq!(head(&journal, &key("a"), &main).await.1, last_wait, "nothing about a wait was appended");
    let (inbox_head, _) = head(&journal, &key("a"), &inbox).await;

    let answer = prepared(&journal, inbox.clone(), sent(), Condition::last_wait(main.clone(), last_wait)).await;
    journal.store().append(&answer).await.expect("nothing happened to the wait");
    let late = prepared(&journal, main.clone(), expired(), Condition::head(inbox.clone(), inbox_head)).await;
    let refused = journal.store().append(&late).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Overtaken { branch: inbox.clone() }, "{refused:?}");
    let (inbox_head, _) = head(&journal, &key("a"), &inbox).await;
    let expiry = prepared(&journal, main.clone(), expired(), Condition::head(inbox.clone(), inbox_head)).await;
    journal.store().append(&expiry).await.unwrap();
    let late = prepared(&journal, inbox.clone(), sent(), Condition::last_wait(main.clone(), last_wait)).await;
    let refused = journal.store().append(&late).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Overtaken { branch: main.clone() }, "{refused:?}");
    assert_eq!(refused.session(), Some(&key("a")));
    journal.store().append(&answer).await.expect("it was carried out before");
    assert_eq!(head(&journal, &key("a"), &inbox).await.0, inbox_head, "and is not carried out again");

    let nowhere = BranchId::new("nowhere").unwrap();
    let lost = prepared(&journal, inbox.clone(), sent(), Condition::last_wait(nowhere, Seq::ZERO)).await;
    assert_eq!(*journal.store().append(&lost).await.unwrap_err().kind(), ErrorKind::NotFound);
    let itself = prepared(&journal, inbox.clone(), sent(), Condition::last_wait(inbox, Seq::ZERO)).await;
    assert_eq!(*journal.store().append(&itself).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(journal.verify(&key("a"), &Default::default()).await.unwrap().is_sound());
}

/// Of two appends that exclude each other, sent at the same time, exactly one succeeds.
pub async fn a_condition_on_another_branch_is_atomic(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let (main, inbox) = (BranchId::main(), BranchId::inbox());
    for round in 0..20 {
        let (expected, last_wait) = head(&journal, &key("a"), &main).await;
        let (inbox_head, _) = head(&journal, &key("a"), &inbox).await;
        let answer = prepared(&journal, inbox.clone(), sent(), Condition::last_wait(main.clone(), last_wait)).await;
        let expiry = prepared(&journal, main.clone(), expired(), Condition::head(inbox.clone(), inbox_head)).await;
        let send = |append: Append| {
            let store = journal.store().clone();
            tokio::spawn(async move { store.append(&append).await })
        };
        let (first, second) = if round % 2 == 0 { (answer, expiry) } else { (expiry, answer) };
        let (first, second) = (send(first), send(second));
        let ended = [first.await.unwrap(), second.await.unwrap()];
        assert_eq!(ended.iter().filter(|ended| ended.is_ok()).count(), 1, "{ended:?}");
        let refused = ended.into_iter().find_map(Result::err).unwrap();
        assert!(matches!(refused.kind(), ErrorKind::Overtaken { .. }), "{refused:?}");
        let moved = (head(&journal, &key("a"), &main).await.0 != expected)
            != (head(&journal, &key("a"), &inbox).await.0 != inbox_head);
        assert!(moved, "one branch moved, and only one");
    }
}
