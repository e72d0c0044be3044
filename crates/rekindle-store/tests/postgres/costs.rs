//! What calls cost: trips counted, tables not scanned, bytes stored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rekindle_core::codec::Codec;
use rekindle_core::queue::{ClaimRequest, NewJob};
use rekindle_core::{
    BranchId, Damage, DamageKind, Journal, OwnerId, ReadFrames, Seq, SessionHeader, SessionId, SessionKey, Slot,
    Status, Store as _, StoreExt as _, Target,
};
use rekindle_fixtures::Postgres;
use rekindle_store::{PostgresStore, StoreOptions, SystemClock, system_ids};
use rekindle_testkit::{History, checkpoint, message};

use crate::fixture::{Shared, new_schema};
use crate::proxy::Proxy;

fn key(id: &str) -> SessionKey {
    SessionId::new(id).unwrap().into()
}

fn journal(url: &str) -> Journal {
    let store = PostgresStore::open(url, StoreOptions::new()).unwrap();
    let codec = Codec::new().with_compression(store.capabilities().compress_from, 1);
    Journal::new(Arc::new(store), codec, Arc::new(SystemClock), system_ids().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_is_one_trip() {
    let proxy = Proxy::before(Postgres::shared().port());
    let journal = journal(&proxy.url(&format!("pool=1&schema={}", new_schema())));
    journal.create(SessionHeader::new(key("s"))).await.unwrap();
    let owner = OwnerId::new("owner").unwrap();
    let lease = journal.store().acquire(&key("s"), &BranchId::main(), &owner, Duration::from_secs(60)).await.unwrap();
    let mut target = Target::new(key("s"), BranchId::main(), lease.head)
        .with_fence(lease.info.epoch)
        .with_renew(Duration::from_secs(60));
    let mut inbox = Target::new(key("s"), BranchId::inbox(), journal.open(&key("s")).await.unwrap().branches[1].head);
    // The first ones prepare the statements, by name and by number.
    for round in 0..20u64 {
        let before = proxy.trips();
        let mut append = journal.prepare(&target, &[message("m"), message("n")]).unwrap();
        append.status = Some([Status::Running, Status::Waiting][(round % 2) as usize]);
        target.expected = journal.store().append(&append).await.unwrap().head;
        inbox.expected = journal.append(&inbox, &[message("m")]).await.unwrap().head;
        if round > 2 {
            assert_eq!(proxy.trips() - before, 2, "round {round}");
        }
    }
    let renewed = journal.store().renew(&lease, Duration::from_secs(90)).await.unwrap();
    let before = proxy.trips();
    journal.store().renew(&renewed, Duration::from_secs(90)).await.unwrap();
    assert_eq!(proxy.trips() - before, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_reads_whole_tables() {
    const FRAMES: u64 = 10_000;
    const JOBS: u64 = 5_000;
    let (server, shared) = (Postgres::shared(), Shared::default());
    let schema = shared.quoted_schema();
    let first = journal(&shared.url);
    first.create(SessionHeader::new(key("s"))).await.unwrap();
    let mut history = History::begin(&first, &key("s")).await;
    history.append_steps(1).await.unwrap();
    // Many more branches of many frames, and many sessions with jobs that wait for a later time.
    server.sql(&format!(
        "INSERT INTO {schema}.frames (branch, last, first, marks, body)
             SELECT 1000000 + n % 10, n, n, 0, 'x' FROM generate_series(1, {FRAMES}) n;
         INSERT INTO {schema}.sessions (namespace, session, current, search, tags, labels, header, created_at)
             SELECT 'default', 'many ' || n, 'main', '', '{{}}', '{{}}', '', n FROM generate_series(1, {JOBS}) n;
         INSERT INTO {schema}.jobs (session, namespace, name, queue, priority, enqueued_at, ready_at, claims, attempts,
                 wakes, note)
             SELECT id, namespace, session, 'default', 0, 1, 9000000000000000, 0, 0, 0, ''
             FROM {schema}.sessions WHERE session <> 's'; ANALYZE"
    ));
    let scans = |counter: &str| -> u64 {
        let sql = format!(
            "SELECT coalesce(sum({counter}), 0) FROM pg_stat_user_tables
             WHERE relid = ANY(ARRAY['{schema}.frames', '{schema}.jobs', '{schema}.sessions']::regclass[])"
        );
        server.sql(&sql).parse().unwrap()
    };
    drop((first, history));
    let before = settled(|| scans("seq_scan"));
    let looked_up = scans("idx_scan");
    let second = journal(&shared.url);
    let mut history = History::begin(&second, &key("s")).await;
    for _ in 0..10 {
        history.append(vec![message("m"), checkpoint(&format!("c{}", history.batches.len()))]).await.unwrap();
        let read = ReadFrames::all(key("s"), BranchId::main()).with_range(history.head.seq, Seq::MAX).with_limit(1);
        assert_eq!(second.store().read(&read).await.unwrap().slots.len(), 1);
        second.checkpoints(&key("s"), None, None, 2).await.unwrap();
        let queue = second.store().queue().unwrap();
        queue.enqueue(&NewJob::new(key("s"))).await.unwrap();
        let worker = OwnerId::new("worker").unwrap();
        let request = ClaimRequest::new(worker, key("s").namespace, 4, Duration::ZERO);
        assert_eq!(queue.claim(&request).await.unwrap().jobs.len(), 1);
    }
    drop((second, history));
    // Connections tell what they counted when they end.
    let deadline = Instant::now() + Duration::from_secs(30);
    while scans("idx_scan") < looked_up + 50 {
        assert!(Instant::now() < deadline, "the server counted nothing");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(settled(|| scans("seq_scan")), before);
}

/// A count that does not change any more.
fn settled(count: impl Fn() -> u64) -> u64 {
    let mut last = count();
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let next = count();
        if next == last {
            return next;
        }
        last = next;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_bytes_stay_near_the_bytes_of_messages() {
    const STEPS: usize = 1_500;
    let shared = Shared::default();
    let journal = journal(&shared.url);
    journal.create(SessionHeader::new(key("s"))).await.unwrap();
    let mut history = History::begin(&journal, &key("s")).await;
    let (mut bytes, mut random) = (0, 7u64);
    for step in 0..STEPS {
        // Text of 2 KB of which nothing repeats itself: it hardly gets smaller.
        let text: String = (0..2_048)
            .map(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                char::from(b' ' + (random >> 40) as u8 % 95)
            })
            .collect();
        bytes += text.len();
        history.append(vec![message(&text), checkpoint(&format!("c{step}"))]).await.unwrap();
    }
    let stored: usize = Postgres::shared()
        .sql(&format!(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class
             WHERE relnamespace = '{}'::regnamespace AND relkind = 'r'",
            shared.quoted_schema()
        ))
        .parse()
        .unwrap();
    assert!(stored * 10 < bytes * 16, "{stored} bytes for {bytes} bytes of messages");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_frames_come_in_pages_of_limited_size() {
    let shared = Shared::default();
    let journal = journal(&shared.url);
    journal.create(SessionHeader::new(key("s"))).await.unwrap();
    let store = journal.store().clone();
    let plain =
        Journal::new(store, Codec::new().with_compression(usize::MAX, 1), Arc::new(SystemClock), system_ids().unwrap());
    let mut history = History::begin(&plain, &key("s")).await;
    for _ in 0..8 {
        history.append(vec![message(&"y".repeat(1 << 20))]).await.unwrap();
    }
    for read in
        [ReadFrames::all(key("s"), BranchId::main()), ReadFrames::all(key("s"), BranchId::main()).with_newest_first()]
    {
        let page = plain.store().read(&read).await.unwrap();
        assert_eq!((page.slots.len(), page.more), (4, true));
        assert_eq!(plain.store().read_all(&read).await.unwrap().len(), 8);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_reported_where_it_is() {
    let (server, shared) = (Postgres::shared(), Shared::default());
    let (schema, journal) = (shared.quoted_schema(), journal(&shared.url));
    journal.create(SessionHeader::new(key("s"))).await.unwrap();
    let mut history = History::begin(&journal, &key("s")).await;
    for n in 0..4 {
        history.append(vec![message(&format!("m{n}"))]).await.unwrap();
    }
    server.sql(&format!(
        "UPDATE {schema}.frames SET body = set_byte(body, 130, get_byte(body, 130) # 1) WHERE last = 2;
         UPDATE {schema}.frames SET body = (SELECT body FROM {schema}.frames WHERE last = 1) WHERE last = 3;
         UPDATE {schema}.sessions SET header = 'nonsense'"
    ));
    let slots = journal.store().read_all(&ReadFrames::all(key("s"), BranchId::main())).await.unwrap();
    let found: Vec<Option<(DamageKind, Seq)>> = slots
        .iter()
        .map(|slot| match slot {
            Slot::Whole(_) => None,
            Slot::Damaged(Damage { kind, first, .. }) => Some((*kind, *first)),
        })
        .collect();
    let expected = [None, Some((DamageKind::Checksum, Seq(2))), Some((DamageKind::Index, Seq(3))), None];
    assert_eq!(found, expected);
    let info = journal.store().open(&key("s")).await.unwrap();
    assert_eq!(info.damage[0].kind, DamageKind::Header);
}
