//! Stops at every write, to the store or to the marks, as a killed process would: whatever is left,
//! nothing is reported as missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rekindle_core::{
    Append, Appended, BranchInfo, Capabilities, Fork, FramePage, Lease, LeaseRequest, NewSession, ReadFrames, Removal,
    Removed, Result, Seq, SessionPage, SessionQuery,
};

use super::values::unreachable;
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
        let writes = Arc::new(AtomicUsize::new(0));
        let gate = {
            let writes = writes.clone();
            move || match writes.fetch_add(1, Ordering::SeqCst) < stop {
                true => Ok(()),
                false => Err(unreachable()),
            }
        };
        let dying = Gated { store: store.clone(), gate: Arc::new(gate.clone()) };
        let journal = journal(Arc::new(marked(Arc::new(dying), &values.guarded(gate))));
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
        if writes.load(Ordering::SeqCst) <= stop {
            stopped = stop;
            break;
        }
    }
    assert!(stopped > 30, "only {stopped} writes");
}

/// A store whose writes pass a gate.
struct Gated {
    store: Arc<MemoryStore>,
    gate: Arc<dyn Fn() -> Result<()> + Send + Sync>,
}

impl std::fmt::Debug for Gated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gated")
    }
}

#[async_trait::async_trait]
impl Store for Gated {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        (self.gate)()?;
        self.store.create(new).await
    }

    async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        self.store.open(session).await
    }

    async fn append(&self, append: &Append) -> Result<Appended> {
        (self.gate)()?;
        self.store.append(append).await
    }

    async fn read(&self, read: &ReadFrames) -> Result<FramePage> {
        self.store.read(read).await
    }

    async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        self.store.list(query).await
    }

    async fn fork(&self, fork: &Fork) -> Result<BranchInfo> {
        (self.gate)()?;
        self.store.fork(fork).await
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Lease> {
        (self.gate)()?;
        self.store.lease(request).await
    }

    async fn remove(&self, removal: &Removal) -> Result<Removed> {
        (self.gate)()?;
        self.store.remove(removal).await
    }
}
