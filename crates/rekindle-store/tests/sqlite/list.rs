//! A page of the list, whose branches come with one query.

use rekindle_core::{
    BranchId, Fork, Hash, Namespace, NewSession, Position, Seq, SessionHeader, SessionId, SessionKey, SessionQuery,
    Store as _,
};
use rekindle_store::{SqliteStore, StoreOptions};

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
            let fork = Fork { session: key.clone(), branch, from, hash: Hash::default(), base: None };
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
