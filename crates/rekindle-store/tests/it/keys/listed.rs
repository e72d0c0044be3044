//! Listing encrypted sessions looks their keys up page by page, not one by one.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use rekindle_core::SessionQuery;
use rekindle_store::{FileStore, MemoryStore, StoreOptions};
use rekindle_testkit::{Call, Hook, Hooked};

use super::*;

/// Counts lookups of values and pages of sessions.
#[derive(Default)]
struct Lookups {
    one: AtomicUsize,
    many: AtomicUsize,
    pages: AtomicUsize,
}

#[async_trait]
impl Hook for Lookups {
    async fn before(&self, call: Call<'_>) -> Result<()> {
        let count = match call {
            Call::GetValue(_) => &self.one,
            Call::GetValues(_) => &self.many,
            Call::List(_) => &self.pages,
            _ => return Ok(()),
        };
        count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn a_page_costs_one_lookup_of_keys() {
    const SESSIONS: usize = 12;
    let store = Arc::new(MemoryStore::default());
    let writer = encrypting(store.clone());
    for number in 0..SESSIONS {
        written(&writer, &format!("s{number}")).await.unwrap();
    }
    // (text, limit, pages, sessions found).
    let check = async |text: Option<&str>, limit, pages, found| {
        let lookups = Arc::new(Lookups::default());
        let journal = encrypting(Arc::new(Hooked::new(store.clone(), lookups.clone())));
        let mut query = SessionQuery::new(Default::default()).with_limit(limit);
        query.text = text.map(str::to_owned);
        let mut sessions = Vec::new();
        loop {
            let page = journal.list(&query).await.unwrap();
            sessions.extend(page.sessions);
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        assert_eq!(sessions.len(), found, "{text:?}");

        for info in &sessions {
            assert_eq!(info.header.title, Some(format!("title of {}", info.header.key.id)), "{info:?}");
        }
        let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
        assert_eq!((count(&lookups.pages), count(&lookups.many), count(&lookups.one)), (pages, pages, 0), "{text:?}");
        // Known by now.
        query.after = None;
        journal.list(&query).await.unwrap();
        assert_eq!((count(&lookups.many), count(&lookups.one)), (pages, 0), "{text:?}");
    };
    check(None, 100, 1, SESSIONS).await;
    check(None, 5, 3, SESSIONS).await;
    check(Some("title of s1"), 100, 1, 3).await;
}

#[tokio::test]
async fn a_damaged_key_hides_no_other_session() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Arc::new(FileStore::open(directory.path(), StoreOptions::new()).unwrap());
    let writer = encrypting(open());
    for id in ["a", "b", "c"] {
        written(&writer, id).await.unwrap();
    }
    drop(writer);
    let folder = directory.path().join("values/default/data-key");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let victim = files.filter(|path| path.extension().is_some_and(|end| end == "json")).min().unwrap();
    std::fs::write(&victim, "nonsense").unwrap();
    let page = encrypting(open()).list(&SessionQuery::new(Default::default())).await.unwrap();
    let titles = page.sessions.iter().filter(|info| info.header.title.is_some()).count();
    let damaged = page.sessions.iter().filter(|info| !info.damage.is_empty()).count();
    assert_eq!((page.sessions.len(), titles, damaged), (3, 2, 1), "{page:?}");
}
