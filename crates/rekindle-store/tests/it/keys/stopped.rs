//! Stops at every write, before it or after it, as a killed process would: a session is never unreadable, nothing
//! is lost, and a repeat finishes.

use std::collections::BTreeMap;

use rekindle_core::values::{ValueKind, all_values};
use rekindle_core::{CopyOptions, ErrorKind, KeyOwner, Namespace, SessionQuery};
use rekindle_store::{Fault, FaultPlan, FaultyStore, MemoryStore};
use rekindle_testkit::{Hooked, Stop, Stopping};

use super::*;

/// Stores that outlive the process.
#[derive(Clone, Default)]
struct World {
    store: Arc<MemoryStore>,
    other: Arc<MemoryStore>,
}

/// The stores as one process sees them.
struct Process {
    here: Journal,
    there: Journal,
}

impl World {
    fn process(&self, ring: fn() -> KeyRing) -> Process {
        let (here, there) = (encrypting_with(self.store.clone(), ring()), encrypting_with(self.other.clone(), ring()));
        Process { here, there }
    }

    fn dying(&self, ring: fn() -> KeyRing, stopping: &Arc<Stopping>) -> Process {
        let dying = |store: &Arc<MemoryStore>| Arc::new(Hooked::new(store.clone(), stopping.clone()));
        Process {
            here: encrypting_with(dying(&self.store), ring()),
            there: encrypting_with(dying(&self.other), ring()),
        }
    }

    async fn keys(&self) -> usize {
        all_values(&*self.store, &Namespace::default(), ValueKind::DATA_KEY).await.unwrap().len()
    }
}

fn first() -> KeyRing {
    KeyRing::new("first", [1; 32]).unwrap()
}

fn rotated() -> KeyRing {
    KeyRing::new("second", [2; 32]).unwrap().with_old("first", [1; 32]).unwrap()
}

fn second() -> KeyRing {
    KeyRing::new("second", [2; 32]).unwrap()
}

/// Every session can be read, by a process that knows nothing yet. Returns their ids.
async fn readable(journal: &Journal, context: &str) -> Vec<String> {
    let page = journal.list(&SessionQuery::new(Default::default())).await.unwrap();
    for info in &page.sessions {
        let key = &info.header.key;
        assert!(info.damage.is_empty(), "{context}: {info:?}");
        assert_eq!(info.header.title, Some(format!("title of {}", key.id)), "{context}");
        let report = journal.verify(key, &BTreeMap::new()).await.unwrap();
        assert!(report.is_sound(), "{context}: {report:?}");
        journal.load(key, None).await.unwrap();
    }
    let mut ids: Vec<String> = page.sessions.iter().map(|info| info.header.key.id.to_string()).collect();
    ids.sort();
    ids
}

async fn prune(journal: &Journal) -> Result<u64> {
    let namespace = Namespace::default();
    let mut orphans = journal.orphaned_keys(&namespace).await?.keys;
    orphans.retain(|orphan| orphan.archived.is_none());
    journal.destroy_orphaned_keys(&namespace, &orphans).await
}

/// A process does `work` and dies at every write in turn; `check` looks at what it left and repeats.
async fn at_every_write(
    ring: fn() -> KeyRing,
    prepare: impl AsyncFn(Process),
    work: impl AsyncFn(Process) -> Result<()>,
    check: impl AsyncFn(&World, &str),
) {
    for how in [Stop::Before, Stop::After] {
        let mut stops = 0;
        loop {
            let (world, context) = (World::default(), format!("{how:?} write {stops}"));
            prepare(world.process(first)).await;
            let stopping = Arc::new(Stopping::at_write(stops, how));
            let worked = work(world.dying(ring, &stopping)).await;
            check(&world, &context).await;
            if !stopping.has_stopped() {
                worked.unwrap();
                break;
            }
            stops += 1;
        }
        assert!(stops >= 2, "{how:?}: only {stops} writes");
    }
}

#[tokio::test]
async fn a_key_is_made_and_then_its_session() {
    at_every_write(
        first,
        async |_| {},
        async |process| written(&process.here, "a").await,
        async |world, context| {
            let journal = world.process(first).here;
            readable(&journal, context).await;
            match written(&journal, "a").await {
                Err(error) if *error.kind() == ErrorKind::AlreadyExists => {}
                other => other.unwrap(),
            }
            assert!(prune(&journal).await.unwrap() <= 1, "{context}");
            assert_eq!(readable(&world.process(first).here, context).await, ["a"], "{context}");
            assert_eq!(world.keys().await, 1, "{context}");
        },
    )
    .await;
}

#[tokio::test]
async fn a_session_whose_creation_lost_its_reply_keeps_its_key() {
    let (store, plan) = (Arc::new(MemoryStore::default()), Arc::<FaultPlan>::default());
    let journal = encrypting(Arc::new(FaultyStore::new(store.clone(), plan.clone())));
    plan.fail_once_at(0, Fault::ReplyLost);
    written(&journal, "a").await.unwrap_err();
    assert_eq!(readable(&encrypting(store), "the reply was lost").await, ["a"]);
}

#[tokio::test]
async fn a_session_is_removed_and_then_its_key() {
    let prepare = async |process: Process| {
        written(&process.here, "a").await.unwrap();
        written(&process.here, "kept").await.unwrap();
    };
    let check = async |world: &World, context: &str| {
        let journal = world.process(first).here;
        let left = readable(&journal, context).await;
        assert!(left == ["a", "kept"] || left == ["kept"], "{context}: {left:?}");
        journal.clear_session(&key("a")).await.unwrap();
        prune(&journal).await.unwrap();
        assert_eq!(readable(&world.process(first).here, context).await, ["kept"], "{context}");
        assert_eq!(world.keys().await, 1, "{context}");
    };
    let clear = async |process: Process| process.here.clear_session(&key("a")).await.map(drop);
    at_every_write(first, prepare, clear, check).await;
    let erase = async |process: Process| process.here.erase(&key("a"), None).await.map(drop);
    at_every_write(first, prepare, erase, check).await;
}

#[tokio::test]
async fn a_copy_of_a_key_is_noted_and_then_made() {
    let options = || CopyOptions { place: Some("there".to_owned()), ..CopyOptions::default() };
    at_every_write(
        first,
        async |process| written(&process.here, "a").await.unwrap(),
        async |process| process.here.copy(&process.there, &key("a"), &options(), &|_| ()).await.map(drop),
        async |world, context| {
            let process = world.process(first);
            assert_eq!(readable(&process.here, context).await, ["a"], "{context}");
            readable(&process.there, context).await;
            let copied = all_values(&*world.other, &Namespace::default(), ValueKind::DATA_KEY).await.unwrap();
            // Whatever becomes of the place that the copy was left in, it is known of.
            if !copied.is_empty() {
                let stored = all_values(&*world.store, &Namespace::default(), ValueKind::DATA_KEY).await.unwrap();
                let text = String::from_utf8_lossy(&stored[0].1).into_owned();
                assert!(text.contains("there"), "{context}: {text}");
            }
            // An orphan's end in between does no harm.
            prune(&process.there).await.unwrap();
            process.here.copy(&process.there, &key("a"), &options(), &|_| ()).await.unwrap();
            assert_eq!(readable(&world.process(first).there, context).await, ["a"], "{context}");
            let (receipt, _) = process.here.erase(&key("a"), None).await.unwrap();
            assert_eq!(receipt.data_key.unwrap().copies, ["there"], "{context}");
        },
    )
    .await;
}

/// Two sessions, one that was archived, and an orphan.
async fn tended(process: Process) {
    for id in ["a", "b", "archived", "orphan"] {
        written(&process.here, id).await.unwrap();
    }
    let info = process.here.open(&key("archived")).await.unwrap();
    process.here.note_archive(&KeyOwner::of(&info.header), "shelf").await.unwrap();
    for id in ["archived", "orphan"] {
        let heads = process.here.open(&key(id)).await.unwrap().heads();
        process.here.put_away(&key(id), heads).await.unwrap();
    }
}

#[tokio::test]
async fn keys_are_wrapped_anew_one_after_the_other() {
    let namespace = Namespace::default();
    at_every_write(
        rotated,
        tended,
        async |process| process.here.rewrap(&namespace, &[]).await.map(drop),
        async |world, context| {
            let journal = world.process(rotated).here;
            assert_eq!(readable(&journal, context).await, ["a", "b"], "{context}");
            let done = journal.rewrap(&namespace, &[]).await.unwrap();
            assert_eq!((done.changed + done.current, done.unknown), (3, 1), "{context}");
            // The old key can go.
            assert_eq!(readable(&world.process(second).here, context).await, ["a", "b"], "{context}");
            let again = journal.rewrap(&namespace, &[]).await.unwrap();
            assert_eq!((again.changed, again.current), (0, 3), "{context}");
        },
    )
    .await;
}

#[tokio::test]
async fn orphaned_keys_are_marked_and_then_destroyed() {
    at_every_write(
        first,
        tended,
        async |process| prune(&process.here).await.map(drop),
        async |world, context| {
            let journal = world.process(first).here;
            assert_eq!(readable(&journal, context).await, ["a", "b"], "{context}");
            prune(&journal).await.unwrap();
            assert_eq!(world.keys().await, 3, "{context}");
            assert_eq!(readable(&world.process(first).here, context).await, ["a", "b"], "{context}");
        },
    )
    .await;
}
