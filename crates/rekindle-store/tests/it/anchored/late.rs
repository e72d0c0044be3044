//! Several processes: marks that are written late, after somebody else removed what they are about.

use std::sync::atomic::{AtomicBool, Ordering};

use rekindle_core::{Removal, Seq};

use super::values::unreachable;
use super::*;

/// A process whose marks are held up until they are let go.
struct Slow {
    journal: Journal,
    held: Arc<AtomicBool>,
}

impl Slow {
    fn new(store: Arc<dyn Store>, values: &MemoryValues) -> Self {
        let held = Arc::new(AtomicBool::new(false));
        let gate = held.clone();
        let guarded = values.guarded(move || match gate.load(Ordering::SeqCst) {
            true => Err(unreachable()),
            false => Ok(()),
        });
        Self { journal: journal(Arc::new(marked(store, &guarded))), held }
    }

    fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }

    async fn flush(&self) {
        self.journal.store().high_water().unwrap().flush().await;
    }
}

#[tokio::test]
async fn marks_of_what_another_process_removed_do_not_come_back() {
    let main = BranchId::main();
    let fork = branch("fork");
    // Whether the slow process has written a mark of the session before it is held up, what the other
    // one removes, and whether that is made again, shorter.
    for known in [false, true] {
        for whole in [false, true] {
            for again in [false, true] {
                let context = format!("known {known}, whole {whole}, again {again}");
                let store: Arc<dyn Store> = Arc::new(MemoryStore::new(StoreOptions::new()));
                let values = MemoryValues::default();
                let other = journal(Arc::new(marked(store.clone(), &values)));
                create(&other, "a").await;
                append(&other, "a", &main, 3).await.unwrap();
                let start = Position::new(main.clone(), Seq(2));
                other.fork(&key("a"), &start, fork.clone()).await.unwrap();
                other.store().high_water().unwrap().flush().await;

                let slow = Slow::new(store.clone(), &values);
                if known {
                    append(&slow.journal, "a", &fork, 1).await.unwrap();
                    slow.flush().await;
                }
                slow.hold(true);
                append(&slow.journal, "a", &fork, 5).await.unwrap();
                append(&slow.journal, "a", &main, 5).await.unwrap();
                slow.flush().await;

                let removal = match whole {
                    true => Removal::Session { session: key("a") },
                    false => Removal::Branch { session: key("a"), branch: fork.clone() },
                };
                other.store().remove(&removal).await.unwrap();
                if again && whole {
                    create(&other, "a").await;
                }
                if again && !whole {
                    other.fork(&key("a"), &start, fork.clone()).await.unwrap();
                }
                other.store().high_water().unwrap().flush().await;
                slow.hold(false);
                slow.flush().await;
                assert_sound(&slow.journal, &context).await;
                assert_sound(&other, &context).await;
                drop((slow, other));
                assert_sound(&journal(Arc::new(marked(store, &values))), &context).await;
            }
        }
    }
}

#[tokio::test]
async fn several_processes_do_not_set_each_other_back() {
    let directory = tempfile::tempdir().unwrap();
    for url in [format!("sqlite:{}/r.db", directory.path().display()), format!("file:{}/f", directory.path().display())]
    {
        let journals: Vec<_> = (0..3).map(|_| journal_at(&url)).collect();
        create(&journals[0], "a").await;
        for round in 0..30 {
            append(&journals[round % 3], "a", &BranchId::main(), 1).await.unwrap();
        }
        drop(journals);
        let later = open(&url, StoreOptions::new()).unwrap();
        let heads = later.high_water().unwrap().marked(&key("a")).await.unwrap();
        assert_eq!(heads[0][&BranchId::main()].seq, Seq(60), "{url}");
    }
}
