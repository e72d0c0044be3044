//! Acknowledged appends survive reopening, a cut log and neighbours that fail, and other handles see them.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_reopening() {
    let place = Site::new();
    let session = key("a/🦀'; DROP TABLE frames; --");
    let store = place.open();
    let created = store.create(&NewSession::new(SessionHeader::new(session.clone()))).await.unwrap();
    let mut append = appending(&session, genesis(), "one");
    append.status = Some(Status::Waiting);
    append.describe = Some(SessionDescribed { title: Some("A title".into()), ..SessionDescribed::default() });
    append.sealed = Some("sealed".into());
    place.clock.advance(5);
    let head = store.append(&append).await.unwrap().head;
    let before = store.open(&session).await.unwrap();
    drop(store);
    let store = place.open();
    let after = store.open(&session).await.unwrap();
    assert_eq!(after, before);
    assert_eq!((after.status(), after.updated_at()), (Status::Waiting, Timestamp(1_000_005)));
    assert_eq!(after.header.title.as_deref(), Some("A title"));
    assert_eq!(after.header.sealed.as_deref(), Some("sealed"));
    assert_eq!(after.branch(&BranchId::main()).unwrap().head, head);
    assert_eq!(created.created_at, Timestamp(1_000_000));
    assert_eq!(read_main(&store, &session).await, vec![Slot::Whole(append.frames[0].clone())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_last_handle_finishes_and_closes() {
    let place = Site::new();
    let store = place.open();
    let second = store.clone();
    store.create(&new_session("a")).await.unwrap();
    drop(store);
    second.open(&key("a")).await.unwrap();
    drop(second);
    let files: Vec<_> =
        std::fs::read_dir(place.directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["rekindle.db"], "the log went into the database");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_handles_on_one_file_see_each_other_and_conflict() {
    let place = Site::new();
    let (one, two) = (place.open(), place.open());
    one.create(&new_session("a")).await.unwrap();
    let error = two.create(&new_session("a")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.operation(), error.session()),
        (&ErrorKind::AlreadyExists, Some("create"), Some(&key("a")))
    );
    let append = appending(&key("a"), genesis(), "one");
    let head = one.append(&append).await.unwrap().head;
    assert_eq!(two.append(&append).await.unwrap().head, head, "a repeated append is recognised");
    let error = two.append(&appending(&key("a"), genesis(), "two")).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Conflict { expected: Seq(0), actual: Seq(1) });
    assert_eq!(read_main(&two, &key("a")).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_removed_and_created_elsewhere_is_another_session() {
    let place = Site::new();
    let (one, two) = (place.open(), place.open());
    one.create(&new_session("a")).await.unwrap();
    append_many(&one, &key("a"), genesis(), 2, 10).await;
    two.remove(&Removal::Session { session: key("a") }).await.unwrap();
    let error = one.append(&appending(&key("a"), genesis(), "gone")).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (&ErrorKind::NotFound, Some("append")));
    two.create(&new_session("a")).await.unwrap();
    append_many(&one, &key("a"), genesis(), 3, 10).await;
    assert_eq!(read_main(&two, &key("a")).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_cut_anywhere_gives_a_prefix_of_what_was_acknowledged() {
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    drop(store);
    let store = place.open();
    append_many(&store, &key("a"), genesis(), 8, 3_000).await;
    let whole = read_main(&store, &key("a")).await;
    let log_path = place.directory.path().join("rekindle.db-wal");
    let (database, log) = (std::fs::read(place.path()).unwrap(), std::fs::read(&log_path).unwrap());
    let mut seen = Vec::new();
    for cut in (0..=log.len()).step_by(1_999).chain([log.len()]) {
        let copy = Site::new();
        std::fs::write(copy.path(), &database).unwrap();
        std::fs::write(copy.directory.path().join("rekindle.db-wal"), &log[..cut]).unwrap();
        let store = copy.open();
        let read = read_main(&store, &key("a")).await;
        assert_eq!(read, whole[..read.len()], "cut at {cut}");
        let info = store.open(&key("a")).await.unwrap();
        assert_eq!(info.branch(&BranchId::main()).unwrap().head.seq, Seq(read.len() as u64));
        seen.push(read.len());
    }
    assert!(seen.is_sorted());
    seen.dedup();
    assert_eq!(seen, (0..=8).collect::<Vec<_>>(), "every acknowledged append is a prefix of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_in_a_group_does_not_disturb_the_others() {
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("contested")).await.unwrap();
    for index in 0..50 {
        store.create(&new_session(&format!("s{index}"))).await.unwrap();
    }
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..100 {
        let store = store.clone();
        tasks.spawn(async move {
            let contested = index % 2 == 0;
            let session = if contested { key("contested") } else { key(&format!("s{}", index / 2)) };
            let outcome = store.append(&appending(&session, genesis(), &format!("{index}"))).await;
            (contested, outcome)
        });
    }
    let outcomes = tasks.join_all().await;
    let won = outcomes.iter().filter(|(contested, outcome)| *contested && outcome.is_ok()).count();
    assert_eq!(won, 1);
    for (contested, outcome) in outcomes {
        match outcome {
            Ok(_) => {}
            Err(error) => {
                assert!(contested, "{error:?}");
                assert_eq!(*error.kind(), ErrorKind::Conflict { expected: Seq(0), actual: Seq(1) });
            }
        }
    }
    for index in 0..50 {
        assert_eq!(read_main(&store, &key(&format!("s{index}"))).await.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_over_the_limits_are_refused_before_they_are_written() {
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    let error = store.append(&Append::new(key("a"), BranchId::main(), genesis(), Vec::new())).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Invalid);
    let expected = Head { seq: Seq::MAX, hash: Hash::default() };
    let mut frame = frame_of(&key("a"), &BranchId::main(), genesis(), 1, "x");
    (frame.first, frame.last) = (Seq::MAX.next(), Seq::MAX.next());
    let error = store.append(&Append::new(key("a"), BranchId::main(), expected, vec![frame])).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error:?}");
}
