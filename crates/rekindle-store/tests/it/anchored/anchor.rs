//! A second place for marks that lies behind, and may be out of reach.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rekindle_core::Removal;

use super::values::unreachable;
use super::*;

/// A store whose marks are in an anchor alone, which can be cut off.
struct Away {
    journal: Journal,
    away: Arc<AtomicBool>,
}

impl Away {
    fn new(store: Arc<dyn Store>, values: &MemoryValues, lag: Duration) -> Self {
        let away = Arc::new(AtomicBool::new(false));
        let gate = away.clone();
        let guarded: Arc<MemoryValues> = Arc::new(values.guarded(move || match gate.load(Ordering::SeqCst) {
            true => Err(unreachable()),
            false => Ok(()),
        }));
        let marks = MarksIn::anchor("far away", lag, guarded.clone(), guarded);
        Self { journal: journal(Arc::new(Anchored::new(store, &[marks]))), away }
    }

    async fn flush(&self) {
        self.journal.store().high_water().unwrap().flush().await;
    }

    async fn marked(&self, id: &str) -> Option<u64> {
        let heads = self.journal.store().high_water().unwrap().marked(&key(id)).await.unwrap();
        heads[0].get(&BranchId::main()).map(|head| head.seq.0)
    }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(StoreOptions::new()))
}

#[tokio::test]
async fn an_anchor_out_of_reach_holds_up_removals_alone() {
    let (store, values) = (memory(), MemoryValues::default());
    let here = Away::new(store.clone(), &values, Duration::ZERO);
    create(&here.journal, "a").await;
    append(&here.journal, "a", &BranchId::main(), 1).await.unwrap();
    here.flush().await;
    assert_eq!(here.marked("a").await, Some(2));
    here.away.store(true, Ordering::SeqCst);
    append(&here.journal, "a", &BranchId::main(), 2).await.unwrap();
    create(&here.journal, "b").await;
    here.flush().await;
    let places = here.journal.store().high_water().unwrap().places();
    assert!(places[0].anchor && places[0].trouble.as_deref() == Some("out of reach"), "{places:?}");
    assert_eq!(here.marked("a").await, Some(2), "behind, and harmless");
    let refused = here.journal.clear_session(&key("a")).await.unwrap_err();
    assert_eq!(refused.code(), "RK0016");
    assert!(refused.message().contains("nothing was removed"), "{refused:?}");
    here.journal.open(&key("a")).await.unwrap();
    // It catches up by itself.
    here.away.store(false, Ordering::SeqCst);
    here.flush().await;
    assert_eq!((here.marked("a").await, here.marked("b").await), (Some(6), Some(0)));
    here.journal.clear_session(&key("a")).await.unwrap();
    assert_sound(&here.journal, "removed").await;
    drop(here);
    assert_sound(&Away::new(store, &values, Duration::ZERO).journal, "later").await;
}

#[tokio::test]
async fn an_anchor_shows_what_marks_beside_the_store_cannot() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rekindle.db");
    let values = MemoryValues::default();
    let marks = || MarksIn::anchor("far away", Duration::ZERO, Arc::new(values.clone()), Arc::new(values.clone()));
    let open = || {
        let store: Arc<dyn Store> = Arc::new(rekindle_store::SqliteStore::open(&path, StoreOptions::new()).unwrap());
        journal(Arc::new(Anchored::new(store, &[marks()])))
    };
    let first = open();
    create(&first, "a").await;
    append(&first, "a", &BranchId::main(), 2).await.unwrap();
    drop(first);
    let older = std::fs::read(&path).unwrap();
    let second = open();
    append(&second, "a", &BranchId::main(), 3).await.unwrap();
    drop(second);
    std::fs::write(&path, older).unwrap();
    let third = open();
    assert_eq!(missing(&third.open(&key("a")).await.unwrap()), ["main 5…10"]);
    assert_eq!(append(&third, "a", &BranchId::main(), 1).await.unwrap_err().code(), "RK0027");
    drop(third);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(gone(&open()).await, ["a"]);
}

#[tokio::test]
async fn closing_the_store_writes_what_an_anchor_lacks() {
    let (store, values) = (memory(), MemoryValues::default());
    let lagging = Away::new(store.clone(), &values, Duration::from_secs(3600));
    create(&lagging.journal, "a").await;
    lagging.flush().await;
    append(&lagging.journal, "a", &BranchId::main(), 4).await.unwrap();
    assert_eq!(lagging.marked("a").await, Some(0), "at most once in an hour");
    drop(lagging);
    let later = Away::new(store.clone(), &values, Duration::ZERO);
    assert_eq!(later.marked("a").await, Some(8));
    store.remove(&Removal::Session { session: key("a") }).await.unwrap();
    assert_eq!(gone(&later.journal).await, ["a"]);
}

#[tokio::test]
async fn any_store_that_keeps_values_can_be_an_anchor() {
    for anchor in ["sqlite:{}/anchor.db", "file:{}/anchor", "objects:{}/anchor"] {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().display().to_string();
        if !rekindle_store::schemes().contains(&anchor.split(':').next().unwrap()) {
            continue;
        }
        let options = || StoreOptions::new().with_setting("anchor", anchor.replace("{}", &place));
        let open = || journal(rekindle_store::open(&format!("sqlite:{place}/rekindle.db"), options()).unwrap());
        let first = open();
        create(&first, "a").await;
        append(&first, "a", &BranchId::main(), 3).await.unwrap();
        drop(first);
        let second = open();
        let places = second.store().high_water().unwrap().places();
        assert_eq!(places.iter().map(|place| place.anchor).collect::<Vec<_>>(), [false, true]);
        let marked = second.store().high_water().unwrap().marked(&key("a")).await.unwrap();
        assert_eq!(marked[1][&BranchId::main()].seq.0, 6, "{anchor}");
        assert_sound(&second, anchor).await;
        drop(second);
        // The data and the marks beside it, replaced together.
        for name in ["rekindle.db", "rekindle.db-marks"] {
            std::fs::remove_file(directory.path().join(name)).unwrap();
        }
        assert_eq!(gone(&open()).await, ["a"], "{anchor}");
    }
}
