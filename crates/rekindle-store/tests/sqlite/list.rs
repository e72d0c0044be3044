//! Lists: filters, and pages whose branches come with one query.

use super::*;

#[tokio::test]
async fn each_session_is_listed_with_its_own_branches_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("a.db"), StoreOptions::new()).unwrap();
    for number in 0..7 {
        let key = SessionKey::new(Namespace::default(), SessionId::new(format!("s{number}")).unwrap());
        store.create(&NewSession::new(SessionHeader::new(key.clone()))).await.unwrap();
        for fork in (0..number).rev() {
            let branch = BranchId::new(format!("fork{fork}")).unwrap();
            let from = Position::new(BranchId::main(), Seq::ZERO);
            let (session, genesis) = (key.clone(), Hash::default());
            let fork = Fork { session, genesis, branch, from, hash: genesis, base: None };
            store.fork(&fork).await.unwrap();
        }
    }
    let query = SessionQuery::new(Namespace::default()).with_limit(5);
    let page = store.list(&query).await.unwrap();
    let rest = store.list(&query.with_after(page.next.clone().unwrap())).await.unwrap();
    let listed: Vec<_> = page.sessions.into_iter().chain(rest.sessions).collect();
    assert_eq!(listed.len(), 7);
    for info in listed {
        let opened = store.open(&info.header.key).await.unwrap();
        assert_eq!((info.branches, info.current, info.header), (opened.branches, opened.current, opened.header));
    }
}

/// Sessions that differ in everything a query can ask for.
async fn varied_sessions(place: &Site, store: &SqliteStore) {
    for index in 0..24_u64 {
        let namespace = Namespace::new(if index == 23 { "other" } else { "default" }).unwrap();
        let mut header =
            SessionHeader::new(SessionKey::new(namespace, SessionId::new(format!("s{:02}", index * 7 % 24)).unwrap()));
        header.agent = (index % 3 == 0).then(|| format!("Agent{}", index % 2));
        header.parent = (index % 4 == 0).then(|| key(&format!("p{}", index % 8)));
        header.title = (index % 5 == 0).then(|| format!("Größe \"{index}\""));
        header.tags =
            ["red", "a\"b\\c\n", "grün"].iter().take(index as usize % 4).map(|tag| (*tag).to_owned()).collect();
        header.labels = [("env", "prod"), ("a.b\"c", "1\u{1F980}")]
            .into_iter()
            .take(index as usize % 3)
            .map(|(k, v)| (k.into(), v.into()))
            .collect();
        let session = header.key.clone();
        store
            .create(&NewSession { created_at: Some(Timestamp(100 + index / 3)), ..NewSession::new(header) })
            .await
            .unwrap();
        let mut append = appending(&session, genesis(), "x");
        append.status = Some(Status::ALL[index as usize % 8]).filter(|status| *status != Status::Interrupted);
        if index % 2 == 0 {
            let ttl = Duration::from_micros(if index % 3 == 0 { 10 } else { 1_000 });
            let lease = store.acquire(&session, &BranchId::main(), &OwnerId::new("o").unwrap(), ttl).await.unwrap();
            append.fence = Some(lease.info.epoch);
        } else {
            append.status = append.status.filter(|_| index % 3 == 0).or(Some(Status::Running));
        }
        if index % 7 != 0 {
            store.append(&append).await.unwrap();
        }
        place.clock.advance(1);
    }
    place.clock.advance(40);
}

fn queries() -> Vec<SessionQuery> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut SessionQuery)| {
        let mut query = SessionQuery::new(Namespace::default()).with_total();
        change(&mut query);
        all.push(query);
    };
    add(&|_| {});
    add(&|query| query.namespace = Namespace::new("other").unwrap());
    for status in Status::ALL {
        add(&move |query| query.statuses = vec![status, Status::Failed]);
    }
    add(&|query| query.agent = Some("Agent1".into()));
    add(&|query| query.tags = vec!["red".into(), "a\"b\\c\n".into()]);
    add(&|query| query.tags = vec!["grün".into()]);
    add(&|query| query.tags = (0..2_000).map(|index| format!("t{index}")).collect());
    add(&|query| query.labels = [("env".to_owned(), "prod".to_owned())].into());
    add(&|query| query.labels = [("env", "prod"), ("a.b\"c", "1\u{1F980}")].map(|(k, v)| (k.into(), v.into())).into());
    add(&|query| query.labels = [("env".to_owned(), "1\u{1F980}".to_owned())].into());
    add(&|query| query.parent = Some(key("p4")));
    for text in ["GRÖSSE", "größe \"1", "s1", "agent0", "", "%", "nothing"] {
        add(&move |query| query.text = Some(text.into()));
    }
    add(&|query| (query.created_from, query.created_before) = (Some(Timestamp(102)), Some(Timestamp(105))));
    add(&|query| (query.updated_from, query.updated_before) = (Some(Timestamp(1_000_004)), Some(Timestamp(1_000_012))));
    add(&|query| (query.text, query.statuses) = (Some("s".into()), vec![Status::Running, Status::Interrupted]));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_what_filtering_everything_gives() {
    let place = Site::new();
    let store = place.open();
    varied_sessions(&place, &store).await;
    let mut everything = Vec::new();
    for namespace in ["default", "other"] {
        everything.extend(store.list_all(&SessionQuery::new(Namespace::new(namespace).unwrap())).await.unwrap());
    }
    assert_eq!(everything.len(), 24);
    let mut found_some = 0;
    for query in queries() {
        for (limit, oldest_first) in [(0, false), (100, true), (3, false), (3, true), (1, false)] {
            let mut query = query.clone();
            (query.limit, query.oldest_first) = (limit, oldest_first);
            loop {
                let expected = SessionPage::select(&query, everything.iter().cloned());
                let page = store.list(&query).await.unwrap();
                assert_eq!(page, expected, "{query:?}");
                found_some += usize::from(!page.sessions.is_empty());
                let Some(next) = page.next else { break };
                query.after = Some(next);
            }
        }
    }
    assert!(found_some > 200, "{found_some} pages had something in them");
}
