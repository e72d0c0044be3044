//! Orphaned keys are destroyed while a session is created: at every call of either, the other one comes in between.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use rekindle_core::values::{ValueKind, all_values};
use rekindle_core::{CopyOptions, Namespace};
use rekindle_store::MemoryStore;
use rekindle_testkit::{Call, Hook, Hooked};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::*;

/// Holds calls with these numbers until they are let go.
struct Held {
    at: Vec<u64>,
    calls: AtomicU64,
    reached: Semaphore,
    go: Semaphore,
}

impl Held {
    fn at(at: &[u64]) -> Arc<Self> {
        Arc::new(Self { at: at.to_vec(), calls: AtomicU64::new(0), reached: Semaphore::new(0), go: Semaphore::new(0) })
    }

    /// Waits until the task is held, or has ended: then what came of it.
    async fn reached<T>(&self, task: &mut JoinHandle<T>) -> Option<T> {
        tokio::select! {
            biased;
            permit = self.reached.acquire() => {
                permit.unwrap().forget();
                None
            }
            ended = task => Some(ended.unwrap()),
        }
    }
}

#[async_trait]
impl Hook for Held {
    async fn before(&self, _: Call<'_>) -> Result<()> {
        if self.at.contains(&self.calls.fetch_add(1, Ordering::SeqCst)) {
            self.reached.add_permits(1);
            self.go.acquire().await.unwrap().forget();
        }
        Ok(())
    }
}

/// A way to make a session.
#[derive(Clone, Copy, Debug)]
enum Making {
    Create,
    Copy,
    Import,
}

async fn make(making: Making, here: Journal, source: Journal) -> Result<()> {
    match making {
        Making::Create => written(&here, "a").await,
        Making::Copy => source.copy(&here, &key("a"), &CopyOptions::default(), &|_| ()).await.map(drop),
        Making::Import => {
            let mut file = Vec::new();
            source.export(&key("a"), &mut file).await?;
            here.import(&mut &file[..], &Default::default()).await.map(drop)
        }
    }
}

async fn prune(journal: Journal) -> Result<u64> {
    let orphans = journal.orphaned_keys(&Namespace::default()).await?.keys;
    journal.destroy_orphaned_keys(&Namespace::default(), &orphans).await
}

#[tokio::test]
async fn a_session_that_was_made_can_be_read() {
    let origin = Arc::new(MemoryStore::default());
    written(&encrypting(origin.clone()), "a").await.unwrap();
    for making in [Making::Create, Making::Copy, Making::Import] {
        let mut pairs = 0;
        'maker: for maker_at in 0.. {
            for pruner_at in 0.. {
                for maker_first in [true, false] {
                    let store = Arc::new(MemoryStore::default());
                    let (maker, pruner) = (Held::at(&[maker_at]), Held::at(&[pruner_at]));
                    let over = |held: &Arc<Held>| encrypting(Arc::new(Hooked::new(store.clone(), held.clone())));
                    let mut made = tokio::spawn(make(making, over(&maker), encrypting(origin.clone())));
                    if let Some(made) = maker.reached(&mut made).await {
                        made.unwrap();
                        break 'maker;
                    }
                    let mut pruned = tokio::spawn(prune(over(&pruner)));
                    let ended = pruner.reached(&mut pruned).await;
                    if maker_first {
                        maker.go.add_permits(1);
                        made.await.unwrap().unwrap();
                        pruner.go.add_permits(1);
                        if ended.is_none() {
                            pruned.await.unwrap().unwrap();
                        }
                    } else {
                        pruner.go.add_permits(1);
                        if ended.is_none() {
                            pruned.await.unwrap().unwrap();
                        }
                        maker.go.add_permits(1);
                        made.await.unwrap().unwrap();
                    }
                    let context = format!("{making:?} held at {maker_at}, pruning at {pruner_at}, {maker_first}");
                    let reader = encrypting(store.clone());
                    let info = reader.open(&key("a")).await.unwrap();
                    assert_eq!(info.header.title.as_deref(), Some("title of a"), "{context}");
                    reader.load(&key("a"), None).await.unwrap_or_else(|error| panic!("{context}: {error:?}"));
                    let keys = all_values(&*store, &Namespace::default(), ValueKind::DATA_KEY).await.unwrap();
                    assert_eq!(keys.len(), 1, "{context}");
                    pairs += 1;
                    if ended.is_some() {
                        // Pruning has no call of that number.
                        continue 'maker;
                    }
                }
            }
        }
        assert!(pairs > 20, "{making:?}: only {pairs} pairs");
    }
}

/// The calls of pruning that mark keys, look at the sessions again, and delete.
const MARK: u64 = 2;
const LOOK: u64 = 3;
const DELETE: u64 = 4;

#[tokio::test]
async fn two_that_prune_at_once_do_not_go_by_each_others_marks() {
    let store = Arc::new(MemoryStore::default());
    let over = |held: &Arc<Held>| encrypting(Arc::new(Hooked::new(store.clone(), held.clone())));
    let (maker, early, late) = (Held::at(&[1]), Held::at(&[DELETE]), Held::at(&[MARK, LOOK]));
    let mut made = tokio::spawn(make(Making::Create, over(&maker), encrypting(store.clone())));
    assert!(maker.reached(&mut made).await.is_none());
    // One has seen the key without a mark; the other one has marked it and is about to delete it.
    let mut second = tokio::spawn(prune(over(&late)));
    assert!(late.reached(&mut second).await.is_none());
    let mut first = tokio::spawn(prune(over(&early)));
    assert!(early.reached(&mut first).await.is_none());
    // The session is there, and the mark is taken away.
    maker.go.add_permits(1);
    made.await.unwrap().unwrap();
    late.go.add_permits(1);
    assert!(late.reached(&mut second).await.is_none());
    early.go.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap(), 0);
    late.go.add_permits(1);
    assert_eq!(second.await.unwrap().unwrap(), 0);
    encrypting(store).load(&key("a"), None).await.unwrap();
}
