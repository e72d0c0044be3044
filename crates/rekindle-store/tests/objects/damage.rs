//! Objects that were lost or altered.

use std::sync::Arc;

use rekindle_core::values::{Change, ValueKey, ValueKind};
use rekindle_core::{
    Append, BranchId, DamageKind, ErrorKind, Hash, Head, Namespace, NewSession, ReadFrames, Removal, SessionQuery,
    Slot, Store, StoreExt,
};
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

/// The length of an object without the changes it carries along, as `carry.rs` says.
fn without_copies(bytes: &[u8]) -> usize {
    let number =
        |at: usize, len: usize| bytes[at..at + len].iter().rev().fold(0, |sum, byte| sum << 8 | *byte as usize);
    if !bytes.ends_with(b"rkcarry1") {
        return bytes.len();
    }
    let footer = bytes.len() - 28;
    let lines = footer - 16 * number(footer, 4);
    lines - (lines..footer).step_by(16).map(|line| number(line + 8, 8)).sum::<usize>()
}

/// Returns true if a later change of the same group carries this one along.
fn has_copy(objects: &Simulated, name: &str) -> bool {
    let number = |name: &str| name.rsplit_once("/log/").map(|(_, number)| number.parse::<u64>().unwrap());
    let group = |number: u64| (number - 1) / 32;
    number(name).is_some_and(|own| {
        objects.names().iter().filter_map(|name| number(name)).any(|other| other > own && group(other) == group(own))
    })
}

#[tokio::test]
async fn every_altered_byte_of_a_segment_or_change_is_noticed() {
    let objects = written().await;
    let intact = slots(&objects).await;
    for name in named(&objects, "/segments/").into_iter().chain(named(&objects, "/log/")) {
        let (mut len, mut own) = (0, 0);
        objects.alter(&name, |bytes| (len, own) = (bytes.len(), without_copies(bytes)));
        for at in (0..len).step_by(997).chain([len - 1]) {
            objects.alter(&name, |bytes| bytes[at] ^= 0x10);
            match open(&objects).read_all(&ReadFrames::all(key("a"), BranchId::main())).await {
                // Without a copy the change itself is read, and a copy stands in for a change.
                Ok(found) if found == intact => assert!(at >= own || has_copy(&objects, &name), "{name} byte {at}"),
                Ok(found) => {
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

#[tokio::test]
async fn an_altered_value_is_never_taken_for_another() {
    let objects = Simulated::default();
    let store = open(&objects);
    let values = store.values().unwrap();
    let name = |key: &str| ValueKey::new(Namespace::default(), ValueKind::DATA_KEY, key).unwrap();
    for key in ["one", "two"] {
        values.change(&Change::set(name(key), format!("the value of {key}"))).await.unwrap();
    }
    let (one, two) = ("values/default/data-key/one", "values/default/data-key/two");
    let (mut intact, mut other) = (Vec::new(), Vec::new());
    objects.alter(one, |bytes| intact = bytes.clone());
    objects.alter(two, |bytes| other = bytes.clone());
    let flipped = (0..intact.len()).map(|at| {
        let mut altered = intact.clone();
        altered[at] ^= 0x10;
        altered
    });
    let cut = (0..intact.len()).map(|at| intact[..at].to_vec());
    for altered in flipped.chain(cut).chain([other]) {
        objects.alter(one, |bytes| *bytes = altered.clone());
        let error = values.get(&name("one")).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::VersionTooNew { .. }), "{error:?}");
        assert!(error.message().contains(one), "{error:?}");
        assert!(values.change(&Change::set(name("one"), "new").if_is(None)).await.is_err());
    }
    objects.alter(one, |bytes| *bytes = intact.clone());
    assert_eq!(values.get(&name("one")).await.unwrap().as_deref(), Some(&b"the value of one"[..]));
}

#[tokio::test]
async fn an_index_that_does_not_fit_its_frames_is_damage() {
    /// The bytes of one line of a segment's index, and of the hash behind it; marks are behind four numbers.
    const LINE: usize = 65;
    const SUM: usize = 32;
    let objects = written().await;
    let segment = named(&objects, "/segments/").swap_remove(0);
    objects.alter(&segment, |bytes| {
        let end = bytes.len() - SUM;
        bytes[end - LINE + 32] = 4;
        // The hash covers all lines; an attacker computes it anew.
        let lines = (1..).map(|count| end - count * LINE).find(|start| bytes[*start..*start + 8] == 1u64.to_le_bytes());
        let sum = Hash::of(&bytes[lines.unwrap()..end]);
        bytes[end..].copy_from_slice(&sum.0);
    });
    let log = named(&objects, "/log/").pop().unwrap();
    objects.alter(&log, |bytes| {
        let len = u32::from_le_bytes(bytes[20..24].try_into().unwrap()) as usize;
        let header = String::from_utf8(bytes[56..56 + len].to_vec()).unwrap().replace("\"marks\":0", "\"marks\":4");
        bytes[56..56 + len].copy_from_slice(header.as_bytes());
        let sum = Hash::of(&[&bytes[4..20], header.as_bytes()].concat());
        bytes[24..56].copy_from_slice(&sum.0);
    });
    let damaged = |slots: Vec<Slot>| -> Vec<DamageKind> {
        let damaged = slots.into_iter().filter_map(|slot| match slot {
            Slot::Damaged(damage) => Some(damage.kind),
            Slot::Whole(_) => None,
        });
        damaged.collect()
    };
    assert_eq!(damaged(slots(&objects).await), [DamageKind::Index, DamageKind::Index]);
}

#[tokio::test]
async fn a_session_whose_objects_are_those_of_another_is_damaged_and_stays_listed() {
    let objects = Simulated::default();
    let store = open(&objects);
    for id in ["a", "b"] {
        let info = store.create(&NewSession::new(header(id))).await.unwrap();
        let mut head: Head = info.branch(&BranchId::main()).unwrap().head;
        for n in 0..3 {
            let frame = frame(&key(id), &BranchId::main(), head, &format!("text {n}"));
            store.append(&Append::new(key(id), BranchId::main(), head, vec![frame.clone()])).await.unwrap();
            head = head_of(&frame);
        }
    }
    // The last change carries those before it along, so it stands for all of them.
    let last = |id: &str| named(&objects, &format!("/{id}/log/")).pop().unwrap();
    let mut foreign = Vec::new();
    objects.alter(&last("b"), |bytes| foreign = bytes.clone());
    objects.alter(&last("a"), |bytes| *bytes = foreign);

    let store = open(&objects);
    // From nothing, and from what was read before.
    for _ in 0..2 {
        let error = store.open(&key("a")).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains("hold the session"), "{error:?}");
        let mut query = SessionQuery::new(Namespace::default());
        query.oldest_first = true;
        let listed = store.list(&query).await.unwrap().sessions;
        let seen = listed.iter().map(|info| (info.header.key.id.as_str(), info.damage.len()));
        assert_eq!(seen.collect::<Vec<_>>(), [("a", 1), ("b", 0)]);
    }
}

#[tokio::test]
async fn an_unreadable_session_can_be_removed_and_its_name_used_again() {
    let flip = |objects: &Simulated, part: &str| {
        let name = named(objects, part).pop().unwrap();
        objects.alter(&name, |bytes| bytes[40] ^= 1);
    };
    let lose = |objects: &Simulated, part: &str| named(objects, part).iter().for_each(|name| objects.remove(name));
    type Damages<'a> = &'a dyn Fn(&Simulated);
    let ways: [(&str, Damages<'_>); 5] = [
        ("an altered snapshot", &|objects| flip(objects, "sessions/default/a/heads/")),
        ("an altered change", &|objects| flip(objects, "sessions/default/a/log/")),
        ("lost snapshots", &|objects| lose(objects, "sessions/default/a/heads/")),
        ("a lost change", &|objects| objects.remove(&named(objects, "sessions/default/a/log/")[0])),
        ("the objects of another session", &|objects| {
            let mut bytes = Vec::new();
            objects.alter(&named(objects, "sessions/default/b/heads/")[0], |found| bytes = found.clone());
            lose(objects, "sessions/default/a/");
            let name = "sessions/default/a/heads/00000000000000000009";
            objects.insert(name, bytes);
        }),
    ];
    for (how, damage) in ways {
        let objects = written().await;
        let b = ObjectsStore::with_compaction(objects.bucket(), StoreOptions::new(), 1).unwrap();
        b.create(&NewSession::new(header("b"))).await.unwrap();
        // A process that knows the session from before.
        let knowing = open(&objects);
        let info = knowing.open(&key("a")).await.unwrap();
        damage(&objects);
        let store = open(&objects);
        assert_eq!(*store.open(&key("a")).await.unwrap_err().kind(), ErrorKind::Corrupt, "{how}");
        let at = Removal::SessionAt { session: key("a"), heads: info.heads() };
        assert_eq!(*store.remove(&at).await.unwrap_err().kind(), ErrorKind::Corrupt, "{how}");
        store.remove(&Removal::Session { session: key("a") }).await.unwrap();
        assert_eq!(*store.open(&key("a")).await.unwrap_err().kind(), ErrorKind::NotFound, "{how}");
        let left = named(&objects, "sessions/default/a/");
        assert!(left.len() == 1 && left[0].contains("/heads/"), "{how}: {left:?}");
        assert_eq!(named(&objects, "catalog/").len(), 1, "{how}");
        let listed = || async {
            let page = open(&objects).list(&SessionQuery::new(Namespace::default())).await.unwrap();
            page.sessions.iter().map(|info| info.header.key.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(listed().await, ["b"], "{how}");
        // Whoever knew it cannot bring it back.
        let head = info.branch(&BranchId::main()).unwrap().head;
        let late = frame(&key("a"), &BranchId::main(), head, "late");
        let append = Append::new(key("a"), BranchId::main(), head, vec![late]);
        assert_eq!(*knowing.append(&append).await.unwrap_err().kind(), ErrorKind::NotFound, "{how}");
        assert_eq!(*open(&objects).open(&key("a")).await.unwrap_err().kind(), ErrorKind::NotFound, "{how}");
        open(&objects).create(&NewSession::new(header("a"))).await.unwrap();
        let refused = knowing.append(&append).await.unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Conflict { .. }), "{how}: {refused:?}");
        let mut both = listed().await;
        both.sort();
        assert_eq!(both, ["a", "b"], "{how}");
        open(&objects).remove(&Removal::Session { session: key("a") }).await.unwrap();
        assert_eq!(named(&objects, "sessions/default/a/").len(), 1, "{how}");
    }
}
