//! Power cuts and failing disks at every single operation.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use rekindle_core::values::{Change, Changed, Expected, ValueKey, ValueKind, ValueQuery};
use rekindle_core::{DamageKind, Error, ErrorKind, Namespace, Removal};
use rekindle_store::FileStore;

use crate::script::{Script, Step, User};
use crate::simulated_disk::{Fault, IMAGES, Image, SimulatedDisk};

const SEGMENT: u64 = 2_000;

fn open(script: &Script, disk: &SimulatedDisk) -> Result<User, Error> {
    FileStore::open_on(Arc::new(disk.clone()), "/deep/store", script.options(), SEGMENT).map(User::new)
}

/// Takes the steps from `from` on; the first that fails, with its error.
async fn run(script: &Script, user: &mut User, from: usize) -> Option<(usize, Error)> {
    for (index, step) in script.steps.iter().enumerate().skip(from) {
        script.clock.set(index as u64);
        if let Err(error) = user.take(step).await {
            return Some((index, error));
        }
    }
    None
}

async fn operations_of(script: &Script) -> usize {
    let disk = SimulatedDisk::new();
    let mut user = open(script, &disk).unwrap();
    for (index, step) in script.steps.iter().enumerate() {
        script.clock.set(index as u64);
        user.take(step).await.unwrap();
        assert_eq!(user.see(&script.session).await, script.seen[index + 1], "after step {index}");
    }
    disk.operations()
}

/// Checks the session against what was acknowledged, takes the rest of the steps and checks the end.
async fn go_on(script: &Script, mut user: User, epoch: Option<rekindle_core::Epoch>, failed: usize, context: &str) {
    user.epoch = epoch;
    let found = user.see(&script.session).await;
    let allowed = found == script.seen[failed] || found == script.seen[failed + 1];
    assert!(
        allowed,
        "{context}, step {failed}: {found:#?}\nis neither {:#?}\nnor {:#?}",
        script.seen[failed],
        script.seen[failed + 1]
    );
    if let Ok(info) = user.store.open(&script.session).await {
        assert!(info.damage.iter().all(|damage| damage.kind == DamageKind::Torn), "{context}: {:?}", info.damage);
    }
    script.clock.set(failed as u64);
    user.retry(&script.steps[failed]).await;
    let last = script.steps.len() - 1;
    for index in failed + 1..last {
        script.clock.set(index as u64);
        user.take(&script.steps[index]).await.unwrap_or_else(|error| panic!("{context}, step {index}: {error:?}"));
    }
    if failed < last {
        let found = user.see(&script.session).await.map(|seen| seen.without_epochs());
        assert_eq!(found, script.seen[last].clone().map(|seen| seen.without_epochs()), "{context}");
    }
    user.take(&script.steps[last]).await.unwrap();
    assert_eq!(user.see(&script.session).await, None, "{context}");
}

#[tokio::test]
async fn power_may_fail_at_every_operation() {
    let script = Script::everything().await;
    let operations = operations_of(&script).await;
    assert!(operations > 150, "the script became too short: {operations} operations");
    for at in 1..=operations {
        let disk = SimulatedDisk::new();
        disk.set_fault(Fault::PowerCut(at));
        let (failed, epoch) = match open(&script, &disk) {
            Err(_) => (0, None),
            Ok(mut user) => match run(&script, &mut user, 0).await {
                Some((failed, _)) => (failed, user.epoch),
                // Only the trash was left to empty.
                None => (script.steps.len() - 1, user.epoch),
            },
        };
        for image in IMAGES {
            let context = format!("power cut at operation {at}, {image:?}");
            let found = disk.after_power_cut(image);
            let user = open(&script, &found).unwrap_or_else(|error| panic!("{context}: {error:?}"));
            go_on(&script, user, epoch, failed, &context).await;
        }
    }
}

#[tokio::test]
async fn the_disk_may_fail_at_every_operation() {
    let script = Script::everything().await;
    let operations = operations_of(&script).await;
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::Other] {
        for at in 1..=operations {
            for fault in [Fault::Once(at, kind), Fault::From(at, kind)] {
                let context = format!("{fault:?}");
                let disk = SimulatedDisk::new();
                disk.set_fault(fault);
                let opened = open(&script, &disk);
                let mut user = match opened {
                    Ok(user) => user,
                    Err(error) => {
                        assert_eq!(*error.kind(), ErrorKind::PersistFailed, "{context}: {error:?}");
                        disk.set_fault(Fault::None);
                        open(&script, &disk).unwrap()
                    }
                };
                let Some((failed, error)) = run(&script, &mut user, 0).await else { continue };
                assert_eq!(*error.kind(), ErrorKind::PersistFailed, "{context}, step {failed}: {error:?}");
                assert_eq!(error.session(), Some(&script.session), "{context}");
                disk.set_fault(Fault::None);
                let epoch = user.epoch;
                if matches!(fault, Fault::From(..)) {
                    // As if the process had died as well: what it left unsynced is still there.
                    user = open(&script, &disk).unwrap();
                    user.epoch = epoch;
                }
                survives(&script, &disk, &mut user, failed, &context).await;
                go_on(&script, user, epoch, failed, &context).await;
            }
        }
    }
}

/// Repeats the failed step; from then on it must survive a power cut.
async fn survives(script: &Script, disk: &SimulatedDisk, user: &mut User, failed: usize, context: &str) {
    let copy = disk.after_power_cut(Image::Everything);
    let mut other = open(script, &copy).unwrap();
    other.epoch = user.epoch;
    script.clock.set(failed as u64);
    user.retry(&script.steps[failed]).await;
    let found = open(script, &disk.after_power_cut(Image::Synced)).unwrap().see(&script.session).await;
    let expected = script.seen[failed + 1].clone().map(|seen| seen.without_epochs());
    assert_eq!(found.map(|seen| seen.without_epochs()), expected, "{context}: lost after a retry of step {failed}");
    *user = other;
}

/// Changes of one value, each of which expects the one before; and what is there after each.
fn changes() -> (Vec<Change>, Vec<Option<Bytes>>) {
    let key = ValueKey::new(Namespace::default(), ValueKind::DATA_KEY, "k".repeat(600)).unwrap();
    let large: Bytes = vec![0xfe; 5_000].into();
    let values = [Some("1".into()), Some(large), Some("2".into()), None, Some("3".into()), None];
    let seen: Vec<Option<Bytes>> = [None].into_iter().chain(values).collect();
    let change = |pair: &[Option<Bytes>]| Change {
        key: key.clone(),
        expected: Expected::Is(pair[0].clone()),
        value: pair[1].clone(),
    };
    (seen.windows(2).map(change).collect(), seen)
}

/// Makes changes; the first that fails, with its error.
async fn run_changes(user: &User, changes: &[Change]) -> Option<(usize, Error)> {
    let values = user.store.values().unwrap();
    for (index, change) in changes.iter().enumerate() {
        match values.change(change).await {
            Ok(changed) => assert_eq!(changed, Changed::Done, "change {index}"),
            Err(error) => return Some((index, error)),
        }
    }
    None
}

/// Finds the old value or the new one, repeats the change that failed, and finds the new one after a power cut.
async fn value_is_whole(script: &Script, disk: &SimulatedDisk, user: &User, failed: usize, context: &str) {
    let (changes, seen) = changes();
    let values = user.store.values().unwrap();
    let key = &changes[failed].key;
    let found = values.get(key).await.unwrap_or_else(|error| panic!("{context}: {error:?}"));
    assert!(found == seen[failed] || found == seen[failed + 1], "{context}, change {failed}: {found:?}");
    assert_eq!(values.change(&changes[failed]).await.unwrap(), Changed::Done, "{context}, change {failed}");
    let survivor = open(script, &disk.after_power_cut(Image::Synced)).unwrap();
    assert_eq!(survivor.store.values().unwrap().get(key).await.unwrap(), seen[failed + 1], "{context}");
    assert!(run_changes(user, &changes[failed + 1..]).await.is_none(), "{context}");
    assert_eq!(values.get(key).await.unwrap(), None, "{context}");
    let listed = values.list(&ValueQuery::new(Namespace::default(), ValueKind::DATA_KEY)).await.unwrap();
    assert!(listed.values.is_empty(), "{context}: {listed:?}");
}

#[tokio::test]
async fn a_value_is_old_or_new_wherever_power_fails() {
    let script = Script::everything().await;
    let (changes, _) = changes();
    let disk = SimulatedDisk::new();
    let user = open(&script, &disk).unwrap();
    assert!(run_changes(&user, &changes).await.is_none());
    let operations = disk.operations();
    assert!(operations > 30, "{operations}");
    for at in 1..=operations {
        let disk = SimulatedDisk::new();
        disk.set_fault(Fault::PowerCut(at));
        let failed = match open(&script, &disk) {
            Err(_) => 0,
            Ok(user) => run_changes(&user, &changes).await.map_or(changes.len() - 1, |(failed, _)| failed),
        };
        for image in IMAGES {
            let context = format!("power cut at operation {at}, {image:?}");
            let found = disk.after_power_cut(image);
            let user = open(&script, &found).unwrap_or_else(|error| panic!("{context}: {error:?}"));
            value_is_whole(&script, &found, &user, failed, &context).await;
        }
    }
}

#[tokio::test]
async fn a_value_is_old_or_new_wherever_the_disk_fails() {
    let script = Script::everything().await;
    let (changes, _) = changes();
    let disk = SimulatedDisk::new();
    assert!(run_changes(&open(&script, &disk).unwrap(), &changes).await.is_none());
    let mut noticed = 0;
    for at in 1..=disk.operations() {
        for fault in [Fault::Once(at, io::ErrorKind::StorageFull), Fault::From(at, io::ErrorKind::Other)] {
            let context = format!("{fault:?}");
            let disk = SimulatedDisk::new();
            disk.set_fault(fault);
            let Ok(user) = open(&script, &disk) else { continue };
            let Some((failed, error)) = run_changes(&user, &changes).await else { continue };
            assert_eq!(*error.kind(), ErrorKind::PersistFailed, "{context}, change {failed}: {error:?}");
            disk.set_fault(Fault::None);
            value_is_whole(&script, &disk, &user, failed, &context).await;
            noticed += 1;
        }
    }
    assert!(noticed > 30, "{noticed}");
}

#[tokio::test]
async fn a_branch_is_not_made_of_what_is_left_of_another() {
    let script = Script::everything().await;
    let is_removal = |step: &Step| matches!(step, Step::Remove(Removal::Branch { .. }));
    let removal = script.steps.iter().position(is_removal).unwrap();
    let fork = script.steps[..removal].iter().rev().find(|step| matches!(step, Step::Fork(_))).unwrap();
    let Step::Fork(fork) = fork else { panic!("just looked for") };
    let mut gone = 0;
    for at in 1..20 {
        let disk = SimulatedDisk::new();
        let mut user = open(&script, &disk).unwrap();
        for step in &script.steps[..removal] {
            user.take(step).await.unwrap();
        }
        disk.set_fault(Fault::PowerCut(disk.operations() + at));
        let _ = user.take(&script.steps[removal]).await;
        let store = open(&script, &disk.after_power_cut(Image::Everything)).unwrap().store;
        let exists = store.open(&script.session).await.unwrap().branch(&fork.branch).is_ok();
        let branch = store.fork(fork).await.unwrap();
        assert_eq!(branch.head.seq > fork.from.seq, exists, "operation {at}");
        assert_eq!(store.open(&script.session).await.unwrap().branch(&fork.branch).unwrap().head, branch.head);
        gone += usize::from(!exists);
    }
    assert!(gone > 3);
}

#[tokio::test]
async fn a_commit_is_one_write_and_one_sync() {
    let script = Script::everything().await;
    let disk = SimulatedDisk::new();
    let store = FileStore::open_on(Arc::new(disk.clone()), "/store", script.options(), 1 << 20).unwrap();
    let mut user = User::new(store);
    let mut counted = 0;
    for (index, step) in script.steps.iter().enumerate().take(9) {
        script.clock.set(index as u64);
        let before = disk.counts();
        user.take(step).await.unwrap();
        let after = disk.counts();
        if matches!(step, Step::Append(_)) && index != 7 {
            assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1), "step {index}");
            counted += 1;
        }
    }
    assert!(counted >= 4);
}

#[tokio::test]
async fn a_fork_syncs_only_one_file() {
    let script = Script::everything().await;
    let disk = SimulatedDisk::new();
    let mut user = open(&script, &disk).unwrap();
    let mut counted = 0;
    for step in &script.steps {
        let (before, operations) = (disk.counts(), disk.operations());
        user.take(step).await.unwrap();
        if matches!(step, Step::Fork(_)) {
            // The marker, the content and its copy are written, and only the content is synced; besides, the content is
            // made, emptied and renamed and its directory synced, and the copy is opened and cut to its length.
            let after = disk.counts();
            assert_eq!((after.0 - before.0, after.1 - before.1, disk.operations() - operations), (3, 1, 9));
            counted += 1;
        }
    }
    assert_eq!(counted, 2);
}
