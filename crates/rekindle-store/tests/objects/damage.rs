//! Objects that were lost or altered.

use std::sync::Arc;

use rekindle_core::{Append, BranchId, DamageKind, ErrorKind, Head, NewSession, ReadFrames, Slot, Store, StoreExt};
use rekindle_store::{ObjectsStore, StoreOptions};

use crate::script::{StillClock, frame, head_of, header, key};
use crate::simulated::Simulated;

fn open(objects: &Simulated) -> ObjectsStore {
    let options = StoreOptions::new().with_clock(Arc::new(StillClock::default()));
    ObjectsStore::with_compaction(objects.bucket(), options, 8).unwrap()
}

/// A session of 21 frames: some merged, some not.
async fn written() -> Simulated {
    let objects = Simulated::default();
    let store = open(&objects);
    let info = store.create(&NewSession::new(header("a"))).await.unwrap();
    let mut head: Head = info.branch(&BranchId::main()).unwrap().head;
    for n in 0..21 {
        let frame = frame(&key("a"), &BranchId::main(), head, &format!("text {n} {}", "x".repeat(20_000)));
        let append = Append::new(key("a"), BranchId::main(), head, vec![frame.clone()]);
        store.append(&append).await.unwrap();
        head = head_of(&frame);
    }
    objects
}

async fn slots(objects: &Simulated) -> Vec<Slot> {
    open(objects).read_all(&ReadFrames::all(key("a"), BranchId::main())).await.unwrap()
}

fn named(objects: &Simulated, part: &str) -> Vec<String> {
    objects.names().into_iter().filter(|name| name.contains(part)).collect()
}

#[tokio::test]
async fn a_lost_segment_is_reported_and_the_rest_is_read() {
    let objects = written().await;
    assert_eq!(slots(&objects).await.iter().filter(|slot| matches!(slot, Slot::Whole(_))).count(), 21);
    let segment = named(&objects, "/segments/").swap_remove(0);
    objects.remove(&segment);
    let found = slots(&objects).await;
    let lost = found.iter().filter_map(|slot| match slot {
        Slot::Damaged(damage) => Some(damage),
        Slot::Whole(_) => None,
    });
    let lost: Vec<_> = lost.collect();
    assert!(!lost.is_empty() && lost.iter().all(|damage| damage.kind == DamageKind::Missing), "{lost:?}");
    let whole = found.len() - lost.len();
    let records: u64 = lost.iter().map(|damage| damage.last.0 - damage.first.0 + 1).sum();
    assert_eq!(whole as u64 + records, 21);
    assert!(whole > 0);
}

#[tokio::test]
async fn every_altered_byte_of_a_segment_or_change_is_noticed() {
    let objects = written().await;
    let intact = slots(&objects).await;
    for name in named(&objects, "/segments/").into_iter().chain(named(&objects, "/log/")) {
        let mut len = 0;
        objects.alter(&name, |bytes| len = bytes.len());
        for at in (0..len).step_by(997).chain([len - 1]) {
            objects.alter(&name, |bytes| bytes[at] ^= 0x10);
            match open(&objects).read_all(&ReadFrames::all(key("a"), BranchId::main())).await {
                Ok(found) => {
                    assert_ne!(found, intact, "{name} byte {at}");
                    assert!(found.iter().any(|slot| matches!(slot, Slot::Damaged(_))), "{name} byte {at}");
                }
                Err(error) => assert!(
                    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::VersionTooNew { .. }),
                    "{name} byte {at}: {error:?}"
                ),
            }
            objects.alter(&name, |bytes| bytes[at] ^= 0x10);
        }
    }
    assert_eq!(slots(&objects).await, intact);
}

#[tokio::test]
async fn a_lost_change_and_an_altered_snapshot_say_which_object() {
    let objects = written().await;
    let log = named(&objects, "/log/");
    objects.remove(&log[1]);
    let error = open(&objects).open(&key("a")).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains(&log[1]), "{error:?}");

    let objects = written().await;
    let head = named(&objects, "/heads/").pop().unwrap();
    objects.alter(&head, |bytes| bytes[100] ^= 1);
    let error = open(&objects).open(&key("a")).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains(&head), "{error:?}");
}
