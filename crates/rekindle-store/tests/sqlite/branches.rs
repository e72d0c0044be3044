//! Forks, bases and removals.

use super::*;

fn size_of_files(directory: &Path) -> u64 {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_gives_the_space_back() {
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    store.create(&new_session("kept")).await.unwrap();
    let empty = size_of_files(place.directory.path());
    append_many(&store, &key("a"), genesis(), 60, 100_000).await;
    append_many(&store, &key("kept"), genesis(), 3, 100).await;
    assert!(size_of_files(place.directory.path()) > 6_000_000);
    let removed = store.remove(&Removal::Session { session: key("a") }).await.unwrap();
    assert!(removed.frames == 60 && removed.bytes > 6_000_000, "{removed:?}");
    let left = size_of_files(place.directory.path());
    assert!(left < empty + 100_000, "{left} bytes are left, {empty} were needed when empty");
    assert_eq!(read_main(&store, &key("kept")).await.len(), 3);
    assert_eq!(*store.open(&key("a")).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn history_gives_way_to_a_base() {
    let place = Site::new();
    let store = place.open();
    let session = key("a");
    store.create(&new_session("a")).await.unwrap();
    append_many(&store, &session, genesis(), 5, 1_000).await;
    let whole = read_main(&store, &session).await;
    let Slot::Whole(third) = &whole[2] else { panic!("it is whole") };
    let head = Head { seq: third.last, hash: third.hash };
    let base = base_at(&session, head);
    let removal =
        Removal::History { session: session.clone(), branch: BranchId::main(), base: base.clone(), fence: None };
    let removed = store.remove(&removal).await.unwrap();
    assert!(removed.frames == 1 && removed.bytes > 2_000, "three went, two came: {removed:?}");
    assert_eq!(store.remove(&removal).await.unwrap(), Removed::default(), "it is safe to repeat");
    assert_eq!(read_main(&store, &session).await, whole[3..]);
    let parts = store.read_all(&ReadFrames::all(session.clone(), BranchId::main()).with_base()).await.unwrap();
    assert_eq!(parts, base.frames.iter().cloned().map(Slot::Whole).collect::<Vec<_>>());
    assert_eq!(store.open(&session).await.unwrap().branch(&BranchId::main()).unwrap().base, Some(head));
    let mut imported = new_session("imported");
    imported.base = Some(base);
    let info = store.create(&imported).await.unwrap();
    assert_eq!(info.branch(&BranchId::main()).unwrap().head, head);
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_fork_run_and_go() {
    let place = Site::new();
    let store = place.open();
    let session = key("a");
    store.create(&new_session("a")).await.unwrap();
    append_many(&store, &session, genesis(), 3, 10).await;
    let Slot::Whole(second) = read_main(&store, &session).await.remove(1) else { panic!("it is whole") };
    let branch = BranchId::new("fork").unwrap();
    let from = Position::new(BranchId::main(), Seq(2));
    let genesis = genesis().hash;
    let fork = Fork { session: session.clone(), genesis, branch: branch.clone(), from, hash: second.hash, base: None };
    let info = store.fork(&fork).await.unwrap();
    assert_eq!(store.fork(&fork).await.unwrap(), info, "it is safe to repeat");
    let frame = frame_of(&session, &branch, info.head, 2, "x");
    store.append(&Append::new(session.clone(), branch.clone(), info.head, vec![frame])).await.unwrap();
    let action =
        LeaseAction::Acquire { owner: OwnerId::new("o").unwrap(), ttl: Duration::from_secs(1), whole_session: true };
    let lease = store.lease(&LeaseRequest { session: session.clone(), branch: branch.clone(), action }).await.unwrap();
    assert_eq!((lease.head.seq, store.open(&session).await.unwrap().current), (Seq(4), branch.clone()));
    store.release(&lease).await.unwrap();
    let lease = store.acquire(&session, &BranchId::main(), &OwnerId::new("o").unwrap(), Duration::ZERO).await.unwrap();
    assert_eq!(lease.head.seq, Seq(3));
    let removed = store.remove(&Removal::Branch { session: session.clone(), branch }).await.unwrap();
    assert_eq!(removed.frames, 1);
    let names: Vec<_> =
        store.open(&session).await.unwrap().branches.into_iter().map(|info| info.branch.to_string()).collect();
    assert_eq!(names, ["main", "inbox"]);
}
