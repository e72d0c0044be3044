//! Listing sessions: filters, pages, descriptions.

use std::collections::BTreeSet;
use std::time::Duration;

use rekindle_core::record::{RunEnded, RunOutcome, SessionDescribed};
use rekindle_core::{Clock as _, ErrorKind, Json, Namespace, RunId, SessionHeader, SessionPage, SessionQuery, Status};

use crate::fixture::{Harness, key};
use crate::history::{History, message};

fn query() -> SessionQuery {
    SessionQuery::new(Namespace::default())
}

fn ids(page: &SessionPage) -> Vec<&str> {
    page.sessions.iter().map(|info| info.header.key.id.as_str()).collect()
}

/// Each filter, and all together, select what they say.
pub async fn list_filters(harness: &Harness) {
    let journal = harness.journal().await;
    for (n, id) in ["alpha", "beta", "gamma", "delta"].into_iter().enumerate() {
        let mut header = SessionHeader::new(key(id));
        header.agent = Some(if n < 2 { "researcher" } else { "writer" }.into());
        header.title = Some(format!("The {id} Case"));
        header.tags = vec!["all".into(), format!("tag{n}")];
        header.labels.insert("team".into(), if n % 2 == 0 { "even" } else { "odd" }.into());
        header.parent = (n == 3).then(|| key("alpha"));
        journal.create(header).await.unwrap();
        harness.clock.advance(Duration::from_secs(10));
    }
    let ended = RunEnded::new(RunId::new("r").unwrap(), RunOutcome::Failed);
    History::begin(&journal, &key("beta")).await.append(vec![ended.into()]).await.unwrap();
    let now = harness.clock.now();
    let list = |change: &dyn Fn(&mut SessionQuery)| {
        let mut query = query().with_total();
        change(&mut query);
        let journal = journal.clone();
        async move {
            let page = journal.list(&query).await.unwrap();
            assert_eq!(page.total, Some(page.sessions.len() as u64));
            ids(&page).join(" ")
        }
    };
    assert_eq!(list(&|_| ()).await, "delta gamma beta alpha");
    assert_eq!(list(&|q| q.oldest_first = true).await, "alpha beta gamma delta");
    assert_eq!(list(&|q| q.agent = Some("writer".into())).await, "delta gamma");
    assert_eq!(list(&|q| q.tags = vec!["all".into(), "tag1".into()]).await, "beta");
    assert_eq!(list(&|q| q.tags = vec!["tag1".into(), "tag2".into()]).await, "");
    assert_eq!(list(&|q| drop(q.labels.insert("team".into(), "even".into()))).await, "gamma alpha");
    assert_eq!(list(&|q| q.parent = Some(key("alpha"))).await, "delta");
    assert_eq!(list(&|q| q.statuses = vec![Status::Failed]).await, "beta");
    assert_eq!(list(&|q| q.statuses = vec![Status::Failed, Status::Idle]).await, "delta gamma beta alpha");
    assert_eq!(list(&|q| q.created_from = Some(now.minus(Duration::from_secs(20)))).await, "delta gamma");
    assert_eq!(list(&|q| q.created_before = Some(now.minus(Duration::from_secs(20)))).await, "beta alpha");
    assert_eq!(list(&|q| q.updated_from = Some(now)).await, "beta");
    assert_eq!(list(&|q| q.updated_before = Some(now.minus(Duration::from_secs(25)))).await, "alpha");
    assert_eq!(list(&|q| q.text = Some("GAMMA case".into())).await, "gamma");
    assert_eq!(list(&|q| q.text = Some("RESEARCH".into())).await, "beta alpha");
    assert_eq!(list(&|q| q.text = Some("%".into())).await, "");
    assert_eq!(
        list(&|q| {
            q.agent = Some("researcher".into());
            q.text = Some("alp".into());
            q.tags = vec!["all".into()];
        })
        .await,
        "alpha"
    );
    assert_eq!(list(&|q| q.namespace = Namespace::new("other").unwrap()).await, "");
    let none = journal.list(&query().with_limit(0).with_total()).await.unwrap();
    assert_eq!((none.sessions.len(), none.total), (0, Some(4)));
    let error = journal.list(&query().with_limit(1_001)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }));
}

/// Sessions that exist when paging begins are each seen once, whatever happens meanwhile.
pub async fn paging_is_stable_under_writes(harness: &Harness) {
    let journal = harness.journal().await;
    for n in 0..17 {
        harness.session(&journal, &format!("s{n:02}")).await;
        // Some share their creation time.
        if n % 3 == 0 {
            harness.clock.advance(Duration::from_secs(1));
        }
    }
    for oldest_first in [false, true] {
        let mut query = query().with_limit(4);
        query.oldest_first = oldest_first;
        let mut seen = Vec::new();
        loop {
            let page = journal.list(&query).await.unwrap();
            assert!(page.sessions.len() <= 4);
            seen.extend(ids(&page).into_iter().map(str::to_owned));
            // Between pages: an old session changes, a new one appears, and time goes on.
            harness.clock.advance(Duration::from_secs(1));
            let mut history = History::begin(&journal, &key("s03")).await;
            history.head = journal.open(&key("s03")).await.unwrap().branches[0].head;
            history.append(vec![message("busy")]).await.unwrap();
            if seen.len() < 12 {
                harness.session(&journal, &format!("new-{oldest_first}-{}", seen.len())).await;
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        let old: Vec<_> = seen.iter().filter(|id| id.starts_with('s')).collect();
        assert_eq!(old.len(), 17, "{seen:?}");
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len(), "{seen:?}");
    }
}

/// Title, tags, labels and metadata can be changed; the rest stays.
pub async fn describing_changes_the_header(harness: &Harness) {
    let journal = harness.journal().await;
    let mut header = SessionHeader::new(key("a"));
    header.title = Some("before".into());
    header.tags = vec!["keep".into()];
    journal.create(header).await.unwrap();
    let change = SessionDescribed {
        title: Some("After the Change".into()),
        metadata: Some([("n".to_owned(), Json::parse("[1]").unwrap())].into()),
        ..Default::default()
    };
    let info = journal.describe(&key("a"), change).await.unwrap();
    assert_eq!(info.header.title.as_deref(), Some("After the Change"));
    let change = SessionDescribed { labels: Some([("team".to_owned(), "x".to_owned())].into()), ..Default::default() };
    journal.describe(&key("a"), change).await.unwrap();
    let journal = harness.journal_over(journal.store().clone());
    let header = journal.open(&key("a")).await.unwrap().header;
    assert_eq!(header.title.as_deref(), Some("After the Change"));
    assert_eq!(header.tags, ["keep"]);
    assert_eq!(header.metadata["n"].as_str(), "[1]");
    assert_eq!(header.labels["team"], "x");
    // Two who describe at the same time do not undo each other.
    let tag = SessionDescribed { tags: Some(vec!["both".into()]), ..Default::default() };
    let title = SessionDescribed { title: Some("After the Race".into()), ..Default::default() };
    let session = key("a");
    let (first, second) = tokio::join!(journal.describe(&session, tag), journal.describe(&session, title));
    first.and(second).unwrap();
    let header = journal.open(&key("a")).await.unwrap().header;
    assert_eq!((header.tags, header.title), (vec!["both".to_owned()], Some("After the Race".to_owned())));
    assert_eq!(header.metadata["n"].as_str(), "[1]");
    let mut query = query();
    query.text = Some("after the".into());
    query.labels.insert("team".into(), "x".into());
    assert_eq!(ids(&journal.list(&query).await.unwrap()), ["a"]);
    assert!(journal.verify(&key("a"), &Default::default()).await.unwrap().is_sound());
}
