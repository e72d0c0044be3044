//! The index of a branch: chunks and their ends, trimming, and what happens when it is damaged.

use super::*;

/// As many entries as the store moves into one chunk of its index.
const CHUNK: usize = 32;

/// Frames of one to three records behind `head`, every fifth with a mark that the codec did not set.
fn frames_behind(session: &SessionKey, mut head: Head, count: usize) -> Vec<Frame> {
    let next = |index: usize| {
        let mut frame = frame_of(session, &BranchId::main(), head, 1 + index % 3, "x");
        head = Head { seq: frame.last, hash: frame.hash };
        if index.is_multiple_of(5) {
            frame.marks = Marks::RUN;
        }
        frame
    };
    (0..count).map(next).collect()
}

fn head_of(frames: &[Frame]) -> Head {
    frames.last().map_or(genesis(), |frame| Head { seq: frame.last, hash: frame.hash })
}

/// A store whose session `a` has `count` frames, appended by so many at once.
async fn filled(place: &Site, count: usize, at_once: usize) -> (SqliteStore, Vec<Frame>) {
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    let frames = frames_behind(&key("a"), genesis(), count);
    let mut head = genesis();
    for part in frames.chunks(at_once) {
        head = store.append(&Append::new(key("a"), BranchId::main(), head, part.to_vec())).await.unwrap().head;
    }
    (store, frames)
}

/// What `read` must give if the branch has exactly `frames`.
async fn check_read(store: &SqliteStore, frames: &[Frame], read: &ReadFrames) {
    let wanted = frames.iter().filter(|frame| read.wants(frame.first, frame.last, frame.marks));
    let mut expected: Vec<_> = wanted.cloned().map(Slot::Whole).collect();
    if read.newest_first {
        expected.reverse();
    }
    let page = store.read(read).await.unwrap();
    assert_eq!(page.more, expected.len() > read.limit, "{read:?}");
    expected.truncate(read.limit);
    assert!(page.slots == expected, "{read:?}: {} slots, expected {}", page.slots.len(), expected.len());
}

/// Reads around the ends of chunks, both ways, with and without marks.
async fn check_reads(store: &SqliteStore, frames: &[Frame]) {
    let end = head_of(frames).seq.0;
    let edges: Vec<u64> = [0, CHUNK - 1, CHUNK, 2 * CHUNK - 1, 2 * CHUNK, frames.len().saturating_sub(1)]
        .into_iter()
        .filter_map(|index| frames.get(index))
        .flat_map(|frame| [frame.first.0, frame.last.0])
        .chain([1, end + 1, Seq::MAX.0])
        .collect();
    for (from, through) in edges.iter().flat_map(|from| edges.iter().map(move |through| (*from, *through))) {
        for (newest_first, marks, limit) in [(false, 0, 1), (true, 0, 1), (false, 2, 5), (true, 2, 5), (true, 0, 900)] {
            let mut read =
                ReadFrames::all(key("a"), BranchId::main()).with_range(Seq(from), Seq(through)).with_limit(limit);
            (read.newest_first, read.marks) = (newest_first, Marks(marks));
            check_read(store, frames, &read).await;
        }
    }
    check_read(store, frames, &ReadFrames::all(key("a"), BranchId::main())).await;
}

fn count(place: &Site, sql: &str) -> i64 {
    place.raw().query_row(sql, [], |row| row.get(0)).unwrap()
}

const CHUNKS: &str = "SELECT count(*) FROM frame_index";
const RECENT: &str = "SELECT max(length(recent)) / 24 FROM branches";

#[tokio::test(flavor = "multi_thread")]
async fn the_ends_of_chunks_are_no_ends_for_readers() {
    for (frames, at_once) in [(31, 1), (32, 1), (33, 1), (63, 1), (64, 1), (65, 1), (70, 7), (97, 97), (100, 40)] {
        let place = Site::new();
        let (store, frames) = filled(&place, frames, at_once).await;
        check_reads(&store, &frames).await;
        let (chunks, recent) = (count(&place, CHUNKS) as usize, count(&place, RECENT) as usize);
        assert_eq!((chunks, recent), (frames.len() / CHUNK, frames.len() % CHUNK));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_trimmed_inside_chunks_and_at_their_ends() {
    for kept_from in [1, 31, 32, 33, 63, 64, 65, 70, 79, 80] {
        let place = Site::new();
        let (store, frames) = filled(&place, 80, 80).await;
        let head = head_of(&frames[..kept_from]);
        let base = base_at(&key("a"), head);
        let removal = Removal::History { session: key("a"), branch: BranchId::main(), base, fence: None };
        let removed = store.remove(&removal).await.unwrap();
        assert_eq!(removed.frames, (kept_from as u64).saturating_sub(2), "two came instead");
        assert_eq!(count(&place, "SELECT count(*) FROM frames"), 80 - kept_from as i64);
        check_reads(&store, &frames[kept_from..]).await;
        let more = frames_behind(&key("a"), head_of(&frames), 40);
        let append = Append::new(key("a"), BranchId::main(), head_of(&frames), more.clone());
        store.append(&append).await.unwrap();
        assert_eq!(store.append(&append).await.unwrap().head, head_of(&more), "it is recognised");
        check_reads(&store, &[&frames[kept_from..], &more].concat()).await;
        let bytes =
            count(&place, "SELECT sum(length(body)) FROM (SELECT body FROM frames UNION ALL SELECT body FROM bases)");
        let removed = store.remove(&Removal::Session { session: key("a") }).await.unwrap();
        assert_eq!((removed.frames, removed.bytes), (122 - kept_from as u64, bytes as u64));
        for table in ["frames", "frame_index", "bases", "branches", "sessions"] {
            assert_eq!(count(&place, &format!("SELECT count(*) FROM {table}")), 0, "{table}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trim_inside_a_frame_keeps_the_frame() {
    let place = Site::new();
    let (store, frames) = filled(&place, 80, 80).await;
    let head = Head { seq: frames[50].first, hash: Hash::default() };
    assert!(frames[50].last > head.seq);
    let base = base_at(&key("a"), head);
    let removal = Removal::History { session: key("a"), branch: BranchId::main(), base, fence: None };
    store.remove(&removal).await.unwrap();
    check_reads(&store, &frames[50..]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_have_an_index_of_their_own() {
    let place = Site::new();
    let (store, frames) = filled(&place, 40, 40).await;
    let (branch, start) = (BranchId::new("fork").unwrap(), head_of(&frames[..35]));
    let from = Position::new(BranchId::main(), start.seq);
    let (session, genesis) = (key("a"), genesis().hash);
    let fork = Fork { session, genesis, branch: branch.clone(), from, hash: start.hash, base: None };
    store.fork(&fork).await.unwrap();
    let read = ReadFrames::all(key("a"), branch.clone());
    assert_eq!(store.read(&read).await.unwrap().slots.len(), 0);
    let (mut head, mut own) = (start, Vec::new());
    for _ in 0..33 {
        let frame = frame_of(&key("a"), &branch, head, 1, "fork");
        head = store.append(&Append::new(key("a"), branch.clone(), head, vec![frame.clone()])).await.unwrap().head;
        own.push(Slot::Whole(frame));
    }
    assert_eq!(store.read(&read).await.unwrap().slots, own);
    own.reverse();
    assert_eq!(store.read(&read.with_newest_first()).await.unwrap().slots, own);
    check_reads(&store, &frames).await;
}

/// Does something to the index of 80 frames; everything must be read as if nothing had happened,
/// and the index must be whole again afterwards.
async fn check_index_damage(script: &str) {
    let place = Site::new();
    let (store, frames) = filled(&place, 80, 9).await;
    let index = "SELECT hex(group_concat(entries, '')) || (SELECT hex(group_concat(recent, '')) FROM branches)
                 FROM (SELECT entries FROM frame_index ORDER BY last)";
    let indexed = || place.raw().query_row(index, [], |row| row.get::<_, String>(0)).unwrap();
    let before = indexed();
    assert!(place.raw().execute(script, []).unwrap() > 0, "{script}");
    let read_only = SqliteStore::open(place.path(), place.options().with_read_only(true)).unwrap();
    check_reads(&read_only, &frames).await;
    let repeated = Append::new(key("a"), BranchId::main(), head_of(&frames[..35]), frames[35..40].to_vec());
    assert_eq!(store.append(&repeated).await.unwrap().head, head_of(&frames[..40]), "{script}");
    check_reads(&store, &frames).await;
    assert_eq!(indexed(), before, "{script}: reading repairs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_index_loses_nothing() {
    for script in [
        "UPDATE frame_index SET entries = x'' WHERE last < 70",
        "UPDATE frame_index SET entries = CAST(substr(entries, 1, 100) || x'99' || substr(entries, 102) AS BLOB)",
        "UPDATE frame_index SET entries = substr(entries, 1, 240)",
        "UPDATE frame_index SET entries = substr(entries, 25) WHERE last > 70",
        "UPDATE frame_index SET last = last + 1 WHERE last < 70",
        "UPDATE frame_index SET entries = (SELECT entries FROM frame_index LIMIT 1)",
        "DELETE FROM frame_index WHERE last < 70",
        "DELETE FROM frame_index WHERE last > 70",
        "DELETE FROM frame_index",
        "UPDATE branches SET recent = x'' WHERE name = 'main'",
        "UPDATE branches SET recent = x'0102' WHERE name = 'main'",
        "UPDATE branches SET recent = substr(recent, 25) WHERE name = 'main'",
        "UPDATE branches SET recent = substr(recent, 1, 48) WHERE name = 'main'",
        "UPDATE branches SET recent = zeroblob(length(recent)) WHERE name = 'main'",
        "UPDATE branches SET recent = (SELECT entries FROM frame_index LIMIT 1) WHERE name = 'main'",
    ] {
        check_index_damage(script).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_not_what_the_index_says_are_looked_for() {
    let place = Site::new();
    let (store, frames) = filled(&place, 80, 80).await;
    place.raw().execute_batch("UPDATE frames SET id = 1000 + id; UPDATE frames SET id = 1081 - id").unwrap();
    check_reads(&store, &frames).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_go_on_over_a_damaged_index() {
    for script in ["UPDATE branches SET recent = x'0102' WHERE name = 'main'", "DELETE FROM frame_index"] {
        let place = Site::new();
        let (store, frames) = filled(&place, 80, 80).await;
        place.raw().execute(script, []).unwrap();
        let more = frames_behind(&key("a"), head_of(&frames), 40);
        store.append(&Append::new(key("a"), BranchId::main(), head_of(&frames), more.clone())).await.unwrap();
        check_reads(&store, &[frames, more].concat()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_a_damaged_index_are_removed_too() {
    for script in ["DELETE FROM frame_index", "UPDATE branches SET recent = x'01'", "DELETE FROM frames WHERE id = 40"]
    {
        let place = Site::new();
        let (store, _) = filled(&place, 80, 80).await;
        place.raw().execute(script, []).unwrap();
        let left = count(&place, "SELECT count(*) FROM frames");
        let removed = store.remove(&Removal::Session { session: key("a") }).await.unwrap();
        assert_eq!(removed.frames, left as u64, "{script}");
        assert_eq!(count(&place, "SELECT (SELECT count(*) FROM frames) + (SELECT count(*) FROM frame_index)"), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_is_gone_is_named() {
    let place = Site::new();
    let (store, frames) = filled(&place, 80, 80).await;
    for id in [1, 32, 33, 70] {
        assert_eq!(place.raw().execute("DELETE FROM frames WHERE id = ?1", [id]).unwrap(), 1);
    }
    let mut slots = read_main(&store, &key("a")).await;
    let newest = ReadFrames::all(key("a"), BranchId::main()).with_newest_first();
    let mut reversed = store.read_all(&newest).await.unwrap();
    reversed.reverse();
    assert_eq!(slots, reversed);
    for (slot, frame) in slots.drain(..).zip(&frames) {
        match slot {
            Slot::Whole(whole) => assert_eq!(whole, *frame),
            Slot::Damaged(damage) => {
                let gone = (DamageKind::Missing, frame.first, frame.last);
                assert_eq!((damage.kind, damage.first, damage.last), gone);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_writes_the_row_of_its_branch_and_its_frame_and_nothing_else() {
    let place = Site::new();
    let store = place.open();
    for index in 0..20 {
        store.create(&new_session(&format!("s{index}"))).await.unwrap();
        append_many(&store, &key(&format!("s{index}")), genesis(), 30, 100).await;
    }
    let log = place.directory.path().join("rekindle.db-wal");
    let raw = place.raw();
    raw.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let head = store.open(&key("s3")).await.unwrap().branch(&BranchId::main()).unwrap().head;
    append_many(&store, &key("s3"), head, 1, 100).await;
    let pages = (std::fs::metadata(log).unwrap().len() - 32) / (8192 + 24);
    assert!(pages <= 3, "{pages} pages for a branch, a frame and, when it fills a page, the page above");
}
