//! Stops at every write, to the store or to the marks, as a killed process would: whatever is left,
//! nothing is reported as missing.

use std::sync::Arc;

use rekindle_core::{Removal, Seq};
use rekindle_testkit::{Hooked, Stop, Stopping};

use super::*;

/// What a process does before it dies. Errors are those of its death.
async fn work(journal: &Journal) {
    let (main, fork) = (BranchId::main(), branch("fork"));
    for round in 0..2 {
        let _ = journal.create(SessionHeader::new(key("a"))).await;
        let _ = append(journal, "a", &main, 2).await;
        flush(journal).await;
        let _ = journal.fork(&key("a"), &Position::new(main.clone(), Seq(2)), fork.clone()).await;
        let _ = append(journal, "a", &fork, 2 - round).await;
        flush(journal).await;
        let _ = journal.store().remove(&Removal::Branch { session: key("a"), branch: fork.clone() }).await;
        let _ = journal.fork(&key("a"), &Position::new(main.clone(), Seq(1)), fork.clone()).await;
        flush(journal).await;
        let _ = journal.clear_session(&key("a")).await;
        flush(journal).await;
    }
    let _ = journal.create(SessionHeader::new(key("a"))).await;
    flush(journal).await;
}

/// Waits for the marks, so that writes come in one order.
async fn flush(journal: &Journal) {
    journal.store().high_water().unwrap().flush().await;
}

#[tokio::test]
async fn stopped_at_every_write_nothing_is_missed() {
    let mut stopped = 0;
    for stop in 0.. {
        let (store, values) = (Arc::new(MemoryStore::new(StoreOptions::new())), MemoryValues::default());
        let stopping = Arc::new(Stopping::at_write(stop, Stop::Before));
        let dying = Hooked::new(store.clone(), stopping.clone());
        let guarded = values.guarded({
            let stopping = stopping.clone();
            move || stopping.pass()
        });
        let journal = journal(Arc::new(marked(Arc::new(dying), &guarded)));
        work(&journal).await;
        drop(journal);
        let context = format!("stopped at write {stop}");
        let later = self::journal(Arc::new(marked(store.clone(), &values)));
        assert_sound(&later, &context).await;
        // And the next process goes on as ever.
        work(&later).await;
        assert_sound(&later, &context).await;
        drop(later);
        assert_sound(&self::journal(Arc::new(marked(store, &values))), &context).await;
        if !stopping.has_stopped() {
            stopped = stop;
            break;
        }
    }
    assert!(stopped > 30, "only {stopped} writes");
}

#[tokio::test]
async fn a_removal_killed_halfway_is_finished_by_a_repeat() {
    let fork = branch("fork");
    let removals =
        [Removal::Session { session: key("a") }, Removal::Branch { session: key("a"), branch: fork.clone() }];
    for removal in removals {
        let mut stopped = Vec::new();
        for (stop, how) in (0..).flat_map(|stop| [(stop, Stop::Before), (stop, Stop::After)]) {
            let (store, values) = (Arc::new(MemoryStore::new(StoreOptions::new())), MemoryValues::default());
            let first = journal(Arc::new(marked(store.clone(), &values)));
            create(&first, "a").await;
            append(&first, "a", &BranchId::main(), 2).await.unwrap();
            first.fork(&key("a"), &Position::new(BranchId::main(), Seq(2)), fork.clone()).await.unwrap();
            flush(&first).await;
            drop(first);
            let stopping = Arc::new(Stopping::at_write(stop, how));
            let dying = Hooked::new(store.clone(), stopping.clone());
            let guarded = values.guarded({
                let stopping = stopping.clone();
                move || stopping.pass()
            });
            let _ = marked(Arc::new(dying), &guarded).remove(&removal).await;
            let context = format!("{removal:?} stopped {how:?} write {stop}");
            let later = journal(Arc::new(marked(store.clone(), &values)));
            assert_sound(&later, &context).await;
            // What is still there can be gone on with, and the removal repeated.
            if later.open(&key("a")).await.is_ok() {
                append(&later, "a", &BranchId::main(), 1).await.unwrap();
            }
            later.store().remove(&removal).await.unwrap();
            assert_sound(&later, &context).await;
            // What is made under the same name is protected as ever.
            if let Removal::Session { .. } = removal {
                create(&later, "a").await;
                append(&later, "a", &BranchId::main(), 1).await.unwrap();
            } else {
                later.fork(&key("a"), &Position::new(BranchId::main(), Seq(1)), fork.clone()).await.unwrap();
            }
            flush(&later).await;
            drop(later);
            store.remove(&removal).await.unwrap();
            let last = journal(Arc::new(marked(store, &values)));
            match last.open(&key("a")).await {
                Ok(info) => assert_eq!(missing(&info), ["fork 1…1"], "{context}"),
                Err(_) => assert_eq!(gone(&last).await, ["a"], "{context}"),
            }
            if !stopping.has_stopped() {
                break;
            }
            stopped.push((stop, how));
        }
        assert!(stopped.len() >= 6, "{removal:?}: {stopped:?}");
    }
}
