//! Large values of other stores.

use std::sync::Arc;

use rekindle_core::codec::Codec;
use rekindle_core::record::LogAppend;
use rekindle_core::{
    BranchId, DamageKind, ErrorKind, Journal, Json, LogName, ReadFrames, Removal, SessionHeader, SessionId, SessionKey,
    Slot, Store, StoreExt,
};
use rekindle_store::{LargeValues, MemoryStore, StoreOptions, SystemClock, open, system_ids};
use rekindle_testkit::History;

use crate::simulated::{Effect, Fault, Simulated};

fn journal(store: impl Store) -> Journal {
    Journal::new(Arc::new(store), Codec::new().without_compression(), Arc::new(SystemClock), system_ids().unwrap())
}

fn key(id: &str) -> SessionKey {
    SessionId::new(id).unwrap().into()
}

fn message(bytes: usize) -> rekindle_core::Record {
    LogAppend::new(LogName::new("messages").unwrap(), vec![Json::from("x".repeat(bytes).as_str())]).into()
}

fn large(memory: &MemoryStore, objects: &Simulated) -> LargeValues<MemoryStore> {
    LargeValues::new(memory.clone(), objects.bucket()).with_threshold(1_000)
}

/// A small frame, a large one, a small one.
async fn written(memory: &MemoryStore, objects: &Simulated) -> Journal {
    let journal = journal(large(memory, objects));
    journal.create(SessionHeader::new(key("a"))).await.unwrap();
    let mut history = History::begin(&journal, &key("a")).await;
    for bytes in [10, 50_000, 10] {
        history.append(vec![message(bytes)]).await.unwrap();
    }
    journal
}

#[tokio::test]
async fn only_large_values_go_to_the_bucket_and_come_back() {
    let (memory, objects) = (MemoryStore::default(), Simulated::default());
    let journal = written(&memory, &objects).await;
    assert_eq!(objects.names().len(), 1, "{:?}", objects.names());
    assert!(memory.stored_bytes() < 3_000, "{}", memory.stored_bytes());
    let loaded = journal.load(&key("a"), None).await.unwrap();
    assert_eq!(loaded.state.log(&LogName::new("messages").unwrap()).len(), 3);
    assert!(journal.verify(&key("a"), &Default::default()).await.unwrap().is_sound());
    journal.store().remove(&Removal::Session { session: key("a") }).await.unwrap();
    assert_eq!(objects.names(), Vec::<String>::new());
}

#[tokio::test]
async fn without_the_bucket_the_error_names_it() {
    let (memory, objects) = (MemoryStore::default(), Simulated::default());
    written(&memory, &objects).await;
    let error = journal(memory).load(&key("a"), None).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error:?}");
    assert!(error.message().contains("simulated large/") && error.message().contains("/default/a/"), "{error:?}");
    assert!(error.next_step().contains("bucket"), "{error:?}");
}

#[tokio::test]
async fn a_lost_or_altered_value_is_damage_at_its_place() {
    let (memory, objects) = (MemoryStore::default(), Simulated::default());
    let journal = written(&memory, &objects).await;
    let name = objects.names().swap_remove(0);
    let read = ReadFrames::all(key("a"), BranchId::main());
    objects.alter(&name, |bytes| bytes[100] ^= 1);
    let slots = journal.store().read(&read).await.unwrap().slots;
    assert!(matches!(&slots[1], Slot::Damaged(damage) if damage.kind == DamageKind::Checksum), "{:?}", slots[1]);
    objects.remove(&name);
    let slots = journal.store().read(&read).await.unwrap().slots;
    assert!(matches!(&slots[1], Slot::Damaged(damage) if damage.kind == DamageKind::Missing), "{:?}", slots[1]);
    assert!(matches!((&slots[0], &slots[2]), (Slot::Whole(_), Slot::Whole(_))));
}

#[tokio::test]
async fn nothing_is_appended_before_its_value_is_there() {
    let (memory, objects) = (MemoryStore::default(), Simulated::default());
    let journal = written(&memory, &objects).await;
    let info = journal.store().open(&key("a")).await.unwrap();
    let before = info.branch(&BranchId::main()).unwrap().head;
    for effect in [Effect::Nothing, Effect::Done] {
        objects.set_fault(Fault::Once(objects.requests() + 1, effect));
        let mut history = History::begin(&journal, &key("a")).await;
        history.head = before;
        let error = history.append(vec![message(9_000)]).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{error:?}");
        let info = journal.store().open(&key("a")).await.unwrap();
        assert_eq!(info.branch(&BranchId::main()).unwrap().head, before, "{effect:?}");
    }
    objects.set_fault(Fault::None);
    assert_eq!(objects.names().len(), 2, "what the second failure left over");
    journal.store().remove(&Removal::Session { session: key("a") }).await.unwrap();
    assert_eq!(objects.names(), Vec::<String>::new());
}

#[tokio::test]
async fn pages_stay_small_with_their_values() {
    let (memory, objects) = (MemoryStore::default(), Simulated::default());
    let journal = written(&memory, &objects).await;
    let mut history = History::begin(&journal, &key("a")).await;
    history.head = journal.store().open(&key("a")).await.unwrap().branch(&BranchId::main()).unwrap().head;
    for _ in 0..7 {
        history.append(vec![message(1 << 20)]).await.unwrap();
    }
    let read = ReadFrames::all(key("a"), BranchId::main());
    let page = journal.store().read(&read).await.unwrap();
    assert!(page.more && page.slots.len() < 9, "{} slots", page.slots.len());
    assert_eq!(journal.store().read_all(&read).await.unwrap().len(), 10);
}

#[tokio::test]
async fn a_url_can_ask_for_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("values");
    let options = || {
        StoreOptions::new()
            .with_setting("large_values", format!("objects:{}", path.display()))
            .with_setting("large_values_from", "100")
    };
    let url = format!("objects:{}", directory.path().join("store").display());
    let store = open(&url, options()).unwrap();
    let journal = journal(store);
    journal.create(SessionHeader::new(key("a"))).await.unwrap();
    History::begin(&journal, &key("a")).await.append(vec![message(5_000)]).await.unwrap();
    assert!(crate::fixtures::bytes_below(&path) > 5_000);
    let error = open(&url, options().with_setting("large_values_from", "many")).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Invalid, "{error:?}");
}
