//! High-water marks: what was set back is noticed, and what was not is never reported.

mod anchor;
mod killed;
mod late;
mod rolled_back;
mod stopped;
pub mod values;

use std::sync::Arc;

use rekindle_core::codec::Codec;
use rekindle_core::{
    BranchId, DamageKind, Journal, Position, SessionHeader, SessionId, SessionInfo, SessionKey, Store, Target,
};
use rekindle_store::{Anchored, MarksIn, MemoryStore, StoreOptions, SystemClock, open, system_ids};
use rekindle_testkit::message;

use self::values::MemoryValues;

fn key(id: &str) -> SessionKey {
    SessionId::new(id).unwrap().into()
}

fn branch(name: &str) -> BranchId {
    name.parse().unwrap()
}

fn journal(store: Arc<dyn Store>) -> Journal {
    Journal::new(store, Codec::new(), Arc::new(SystemClock), system_ids().unwrap())
}

fn journal_at(url: &str) -> Journal {
    journal(open(url, StoreOptions::new()).unwrap())
}

fn marked(store: Arc<dyn Store>, values: &MemoryValues) -> Anchored {
    Anchored::new(store, &[MarksIn::beside("memory", Arc::new(values.clone()))])
}

async fn create(journal: &Journal, id: &str) {
    journal.create(SessionHeader::new(key(id))).await.unwrap();
}

/// Appends as many batches of two records to a branch.
async fn append(journal: &Journal, id: &str, to: &BranchId, batches: usize) -> rekindle_core::Result<()> {
    for number in 0..batches {
        let head = journal.open(&key(id)).await?.branch(to)?.head;
        let target = Target::new(key(id), to.clone(), head);
        journal.append(&target, &[message(&format!("{number}")), message("more")]).await?;
    }
    Ok(())
}

/// What marks say is missing, as `branch first…last`.
fn missing(info: &SessionInfo) -> Vec<String> {
    let rolled_back = info.damage.iter().filter(|damage| damage.kind == DamageKind::RolledBack);
    rolled_back.map(|damage| format!("{} {}…{}", damage.branch, damage.first, damage.last)).collect()
}

async fn gone(journal: &Journal) -> Vec<String> {
    let marks = journal.store().high_water().unwrap();
    let gone = marks.gone(&rekindle_core::Namespace::default()).await.unwrap();
    gone.into_iter().map(|gone| gone.session.id.to_string()).collect()
}

/// Nothing is missing from any session, and none is gone.
async fn assert_sound(journal: &Journal, context: &str) {
    for info in journal.list(&rekindle_core::SessionQuery::new(Default::default())).await.unwrap().sessions {
        assert_eq!(missing(&info), [""; 0], "{context}: listing {}", info.header.key);
        let opened = journal.open(&info.header.key).await.unwrap();
        assert_eq!(missing(&opened), [""; 0], "{context}: opening {}", info.header.key);
        let report = journal.verify(&info.header.key, &Default::default()).await.unwrap();
        // Not about other damage: a fork that is overtaken by a session made anew has a wrong hash.
        let alarm = report.damage.iter().any(|damage| damage.kind == DamageKind::RolledBack);
        assert!(!alarm, "{context}: {report:?}");
    }
    assert_eq!(gone(journal).await, [""; 0], "{context}");
}

/// Every legal way to lose something, one after the other.
async fn lose_on_purpose(journal: &Journal) {
    let (main, fork) = (BranchId::main(), branch("fork"));
    create(journal, "a").await;
    append(journal, "a", &main, 3).await.unwrap();
    journal.fork(&key("a"), &Position::new(main.clone(), rekindle_core::Seq(4)), fork.clone()).await.unwrap();
    append(journal, "a", &fork, 3).await.unwrap();
    let removal = rekindle_core::Removal::Branch { session: key("a"), branch: fork.clone() };
    journal.store().remove(&removal).await.unwrap();
    // A shorter branch of the same name.
    journal.fork(&key("a"), &Position::new(main.clone(), rekindle_core::Seq(2)), fork.clone()).await.unwrap();
    append(journal, "a", &fork, 1).await.unwrap();
    create(journal, "b").await;
    append(journal, "b", &main, 5).await.unwrap();
    journal.clear_session(&key("b")).await.unwrap();
    // A shorter session of the same name.
    create(journal, "b").await;
    append(journal, "b", &main, 1).await.unwrap();
    create(journal, "c").await;
    let heads = journal.open(&key("c")).await.unwrap().heads();
    journal.clear_session_at(&key("c"), heads).await.unwrap();
}

#[tokio::test]
async fn what_is_lost_on_purpose_is_not_missed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display();
    for url in [format!("sqlite:{path}/rekindle.db"), format!("file:{path}/files")] {
        let first = journal_at(&url);
        lose_on_purpose(&first).await;
        assert_sound(&first, &url).await;
        first.store().high_water().unwrap().flush().await;
        assert_sound(&first, &url).await;
        drop(first);
        assert_sound(&journal_at(&url), &url).await;
    }
}

#[tokio::test]
async fn a_removal_that_is_refused_keeps_the_mark() {
    let (store, values) = (Arc::new(MemoryStore::new(StoreOptions::new())), MemoryValues::default());
    let anchored = Arc::new(marked(store.clone(), &values));
    let journal = journal(anchored.clone());
    create(&journal, "a").await;
    append(&journal, "a", &BranchId::main(), 2).await.unwrap();
    let seen = std::collections::BTreeMap::new();
    assert!(journal.clear_session_at(&key("a"), seen).await.is_err());
    append(&journal, "a", &BranchId::main(), 1).await.unwrap();
    drop((journal, anchored));
    store.remove(&rekindle_core::Removal::Session { session: key("a") }).await.unwrap();
    let later = self::journal(Arc::new(marked(store, &values)));
    assert_eq!(gone(&later).await, ["a"]);
    let error = later.open(&key("a")).await.unwrap_err();
    assert_eq!(error.code(), "RK0003");
    assert!(error.message().contains("was there, up to record 6"), "{error:?}");
    assert!(error.next_step().contains("rekindle verify a --accept --reason"), "{error:?}");
    // What is made under that name is another session, and nothing is missed any more.
    create(&later, "a").await;
    later.store().high_water().unwrap().flush().await;
    assert_sound(&later, "made anew").await;
}

#[tokio::test]
async fn marks_are_kept_unless_they_are_not_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display();
    for url in [format!("sqlite:{path}/rekindle.db"), format!("file:{path}/files")] {
        let without = open(&url, StoreOptions::new().with_setting("marks", "false")).unwrap();
        assert!(without.high_water().is_none());
        create(&journal(without), "a").await;
        let marks = directory.path().join(url.rsplit('/').next().unwrap().to_owned() + "-marks");
        assert!(!marks.exists());
        let with = journal_at(&url);
        append(&with, "a", &BranchId::main(), 1).await.unwrap();
        drop(with);
        assert!(marks.exists(), "{url}");
        let reading = open(&url, StoreOptions::new().with_read_only(true)).unwrap();
        let heads = reading.high_water().unwrap().marked(&key("a")).await.unwrap();
        assert_eq!(heads[0][&BranchId::main()].seq.0, 2);
    }
    assert!(open("memory:", StoreOptions::new()).unwrap().high_water().is_none());
    let wrong = open("memory:", StoreOptions::new().with_setting("marks", "maybe")).unwrap_err();
    assert_eq!(wrong.code(), "RK0001");
}
