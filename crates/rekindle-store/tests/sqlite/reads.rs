//! Ranges, orders and pages of frames, and what is not there.

use super::*;

/// Frames of one to three records, every second with a mark that the codec did not set.
async fn varied_frames(store: &SqliteStore, session: &SessionKey) -> Vec<Frame> {
    let (mut head, mut frames) = (genesis(), Vec::new());
    for index in 0..12 {
        let frame = frame_of(session, &BranchId::main(), head, 1 + index % 3, "x");
        head = Head { seq: frame.last, hash: frame.hash };
        frames.push(frame);
    }
    for frame in frames.iter_mut().step_by(2) {
        frame.marks = Marks::RUN;
    }
    store.append(&Append::new(session.clone(), BranchId::main(), genesis(), frames.clone())).await.unwrap();
    frames
}

#[tokio::test(flavor = "multi_thread")]
async fn every_range_in_every_order_is_read_as_asked() {
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    let frames = varied_frames(&store, &key("a")).await;
    let end = frames.last().unwrap().last.0;
    for (from, through) in (0..=end + 2).flat_map(|from| (0..=end + 2).map(move |through| (from, through))) {
        for (newest_first, marks, limit) in
            [(false, 0, 2), (true, 0, 2), (false, 2, 3), (true, 2, 1), (true, 4, 5), (false, 0, 50)]
        {
            let mut read =
                ReadFrames::all(key("a"), BranchId::main()).with_range(Seq(from), Seq(through)).with_limit(limit);
            (read.newest_first, read.marks) = (newest_first, Marks(marks));
            let mut expected: Vec<_> = frames
                .iter()
                .filter(|frame| read.wants(frame.first, frame.last, frame.marks))
                .cloned()
                .map(Slot::Whole)
                .collect();
            if newest_first {
                expected.reverse();
            }
            let page = store.read(&read).await.unwrap();
            assert_eq!(page.more, expected.len() > limit, "{read:?}");
            expected.truncate(limit);
            assert_eq!(page.slots, expected, "{read:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_end_when_they_are_large() {
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    append_many(&store, &key("a"), genesis(), 10, 1 << 20).await;
    let page = store.read(&ReadFrames::all(key("a"), BranchId::main())).await.unwrap();
    assert_eq!((page.slots.len(), page.more), (4, true));
    assert_eq!(read_main(&store, &key("a")).await.len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named() {
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    let (gone, other) = (key("gone"), BranchId::new("other").unwrap());
    let check = |error: Error, operation: &'static str, session: &SessionKey| {
        assert_eq!(
            (error.kind(), error.operation(), error.session()),
            (&ErrorKind::NotFound, Some(operation), Some(session))
        );
    };
    check(store.open(&gone).await.unwrap_err(), "open", &gone);
    check(store.append(&appending(&gone, genesis(), "x")).await.unwrap_err(), "append", &gone);
    check(store.read(&ReadFrames::all(gone.clone(), other.clone())).await.unwrap_err(), "read", &gone);
    check(store.read(&ReadFrames::all(key("a"), other.clone())).await.unwrap_err(), "read", &key("a"));
    let frame = frame_of(&key("a"), &other, genesis(), 1, "x");
    check(
        store.append(&Append::new(key("a"), other.clone(), genesis(), vec![frame])).await.unwrap_err(),
        "append",
        &key("a"),
    );
    let action = LeaseAction::Release { owner: OwnerId::new("o").unwrap(), epoch: Epoch(1) };
    check(
        store.lease(&LeaseRequest { session: gone.clone(), branch: other, action }).await.unwrap_err(),
        "lease",
        &gone,
    );
    assert_eq!(store.remove(&Removal::Session { session: gone }).await.unwrap(), Removed::default());
}
