//! A hook by which somebody else is quicker: between what an operation read and what it writes.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use rekindle::core::codec::Codec;
use rekindle::core::record::RegisterSet;
use rekindle::core::{Append, IdSource, OwnerId, RegisterKey, StoreExt as _, Target};
use rekindle::{Clock, Journal, Json, Result, Store as _};
use rekindle_store::MemoryStore;
use rekindle_testkit::{Call, Hook};
use tokio::sync::Notify;

#[derive(Debug)]
pub struct Interloper {
    store: Arc<MemoryStore>,
    journal: Journal,
    next: AtomicU8,
    /// How often it is quicker at the inbox yet, and how often it was asked to append there.
    quicker: AtomicU32,
    tried: AtomicU32,
    held: Mutex<Option<(bool, Arc<Held>)>>,
}

/// An append that is on its way to the store and stands still.
#[derive(Debug, Default)]
pub struct Held {
    reached: Notify,
    released: Notify,
}

impl Held {
    /// Waits until the append is on its way.
    pub async fn reached(&self) {
        self.reached.notified().await;
    }

    /// Lets it arrive.
    pub fn release(&self) {
        self.released.notify_one();
    }
}

const LEASE: u8 = 1;
const APPEND: u8 = 2;

impl Interloper {
    pub fn new(store: MemoryStore, clock: Arc<dyn Clock>) -> Self {
        let store = Arc::new(store);
        let journal = Journal::new(store.clone(), Codec::new(), clock, IdSource::seeded([9; 32]));
        Self {
            store,
            journal,
            next: AtomicU8::new(0),
            quicker: AtomicU32::new(0),
            tried: AtomicU32::new(0),
            held: Mutex::default(),
        }
    }

    /// Holds the next append with a condition: one to the inbox, or one to another branch.
    pub fn hold_next(&self, inbox: bool) -> Arc<Held> {
        let held = Arc::new(Held::default());
        *self.held.lock().unwrap() = Some((inbox, Arc::clone(&held)));
        held
    }

    fn is_held(&self, append: &Append) -> Option<Arc<Held>> {
        let mut held = self.held.lock().unwrap();
        let meant = |(inbox, _): &mut (bool, _)| append.condition.is_some() && *inbox == append.branch.is_inbox();
        held.take_if(meant).map(|(_, held)| held)
    }

    pub fn take_lease_before_next_append(&self) {
        self.next.store(LEASE, Ordering::SeqCst);
    }

    pub fn append_before_next_append(&self) {
        self.next.store(APPEND, Ordering::SeqCst);
    }

    /// It is quicker so often at the inbox.
    pub fn append_to_inbox_before(&self, times: u32) {
        self.quicker.store(times, Ordering::SeqCst);
        self.tried.store(0, Ordering::SeqCst);
    }

    /// How often somebody tried to append to the inbox since.
    pub fn tries(&self) -> u32 {
        self.tried.load(Ordering::SeqCst)
    }

    async fn step_in(&self, append: &Append) -> Result<()> {
        match self.next.swap(0, Ordering::SeqCst) {
            LEASE => {
                let owner = OwnerId::new("interloper")?;
                self.store.acquire(&append.session, &append.branch, &owner, Duration::from_secs(9)).await?;
            }
            APPEND => self.append_first(append).await?,
            _ => {}
        }
        Ok(())
    }

    async fn append_first(&self, append: &Append) -> Result<()> {
        let head = self.store.open(&append.session).await?.branch(&append.branch)?.head;
        let target = Target::new(append.session.clone(), append.branch.clone(), head);
        let set = RegisterSet::new(RegisterKey::new("interloper")?, Json::null());
        self.journal.append(&target, &[set.into()]).await.map(drop)
    }
}

#[async_trait]
impl Hook for Interloper {
    async fn before(&self, call: Call<'_>) -> Result<()> {
        let Call::Append(append) = call else { return Ok(()) };
        if let Some(held) = self.is_held(append) {
            held.reached.notify_one();
            held.released.notified().await;
        }
        if !append.branch.is_inbox() {
            return self.step_in(append).await;
        }
        self.tried.fetch_add(1, Ordering::SeqCst);
        let left = self.quicker.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_ok() {
            self.append_first(append).await?;
        }
        Ok(())
    }
}
