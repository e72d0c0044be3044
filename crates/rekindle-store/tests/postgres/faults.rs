//! What can go wrong with a server: killed, cut off, silent, read-only, replaced by another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rekindle_core::codec::Codec;
use rekindle_core::queue::{ClaimRequest, NewJob, Queue, SettleJob, Settlement};
use rekindle_core::{
    Append, BranchId, ErrorKind, IdSource, Journal, OwnerId, ReadFrames, Retry, SessionHeader, SessionId, SessionKey,
    SessionQuery, Store, StoreExt as _, Target,
};
use rekindle_fixtures::{Postgres, Signal};
use rekindle_store::{PostgresStore, StoreOptions, SystemClock};
use rekindle_testkit::{History, message};

use crate::fixture::{Shared, new_schema};
use crate::proxy::{Mode, Proxy};

/// Longer than any call may take that should end by its own limit.
const DEADLINE: Duration = Duration::from_secs(60);

fn store(url: &str) -> PostgresStore {
    PostgresStore::open(url, StoreOptions::new()).unwrap()
}

pub fn journal(store: impl Store) -> Journal {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&std::process::id().to_le_bytes().repeat(2));
    Journal::new(Arc::new(store), Codec::new(), Arc::new(SystemClock), IdSource::seeded(seed))
}

fn key(id: &str) -> SessionKey {
    SessionId::new(id).unwrap().into()
}

pub async fn session(journal: &Journal, id: &str) -> History {
    journal.create(SessionHeader::new(key(id))).await.unwrap();
    History::begin(journal, &key(id)).await
}

/// Repeats an append until it is acknowledged.
async fn insist(store: &dyn Store, append: &Append) {
    loop {
        match store.append(append).await {
            Ok(_) => return,
            Err(error) => assert_eq!(error.retry(), Retry::Later, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_again_and_again_loses_nothing() {
    const WRITERS: usize = 4;
    const KILLS: usize = 3;
    let server = Arc::new(Postgres::start(&[]));
    let journal = journal(store(&format!("{}?timeout=10", server.url())));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let counts: Arc<[AtomicUsize; WRITERS]> = Arc::default();
    // Whatever the machine does besides, every writer gets on before the next kill.
    let get_on = async || {
        let before = counts.each_ref().map(|count| count.load(Ordering::SeqCst));
        let on = async {
            while counts.iter().zip(before).any(|(count, before)| count.load(Ordering::SeqCst) < before + 2) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(DEADLINE, on).await.expect("the writers get on");
    };
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        let mut history = session(&journal, &format!("session {number}")).await;
        let (stop, counts) = (stop.clone(), counts.clone());
        writers.push(tokio::spawn(async move {
            let mut acknowledged = 0;
            while !stop.load(Ordering::SeqCst) {
                let records = vec![message(&format!("{number}.{acknowledged}"))];
                let append = history.journal.prepare(&history.target(), &records).unwrap();
                insist(&**history.journal.store(), &append).await;
                history.head = append.head();
                history.batches.push(records);
                acknowledged += 1;
                counts[number].store(acknowledged, Ordering::SeqCst);
            }
            history
        }));
    }
    for _ in 0..KILLS {
        get_on().await;
        let server = server.clone();
        tokio::task::spawn_blocking(move || {
            server.kill();
            server.restart();
        })
        .await
        .unwrap();
    }
    get_on().await;
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        let history = tokio::time::timeout(DEADLINE, writer).await.unwrap().unwrap();
        assert!(history.batches.len() > KILLS, "{} appends", history.batches.len());
        let restored = journal.load(&history.session, None).await.unwrap();
        assert_eq!(restored.state, history.state_after(history.batches.len()));
        let seen = [(BranchId::main(), history.head)].into();
        assert!(journal.verify(&history.session, &seen).await.unwrap().damage.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_is_lost_after_the_commit() {
    let server = Postgres::shared();
    let proxy = Proxy::before(server.port());
    let schema = new_schema();
    let store = store(&proxy.url(&format!("pool=1&schema={schema}")));
    let journal = journal(store.clone());
    let mut history = session(&journal, "s").await;
    history.append_steps(2).await.unwrap();
    let append = journal.prepare(&history.target(), &[message("once")]).unwrap();
    proxy.set(Mode::LoseReplies);
    let error = store.append(&append).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{error:?}");
    let direct = PostgresStore::open(&format!("{}?schema={schema}", server.url()), StoreOptions::new()).unwrap();
    let head = |info: rekindle_core::SessionInfo| info.branch(&BranchId::main()).unwrap().head;
    assert_eq!(head(direct.open(&key("s")).await.unwrap()), append.head(), "the server had committed");
    proxy.set(Mode::Pass);
    for _ in 0..2 {
        assert_eq!(store.append(&append).await.unwrap().head, append.head());
    }
    let frames = direct.read_all(&ReadFrames::all(key("s"), BranchId::main())).await.unwrap();
    assert_eq!(frames.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_is_made_again() {
    let proxy = Proxy::before(Postgres::shared().port());
    let journal = journal(store(&proxy.url(&format!("schema={}", new_schema()))));
    let mut history = session(&journal, "s").await;
    for _ in 0..5 {
        history.append_steps(1).await.unwrap();
        proxy.cut();
        let append = journal.prepare(&history.target(), &[message("again")]).unwrap();
        insist(&**journal.store(), &append).await;
        history.head = append.head();
        history.batches.push(vec![message("again")]);
    }
    assert_eq!(journal.load(&key("s"), None).await.unwrap().state, history.state_after(usize::MAX));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_does_not_hold_a_call_for_ever() {
    let proxy = Proxy::before(Postgres::shared().port());
    let store = store(&proxy.url(&format!("timeout=1&pool=2&schema={}", new_schema())));
    let journal = journal(store.clone());
    let mut history = session(&journal, "s").await;
    history.append_steps(1).await.unwrap();
    proxy.set(Mode::Silence);
    let append = journal.prepare(&history.target(), &[message("late")]).unwrap();
    // Connections that were there, and after those new ones.
    for _ in 0..3 {
        let ended = tokio::time::timeout(DEADLINE, store.append(&append)).await.expect("the call ends by itself");
        let error = ended.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{error:?}");
        assert!(error.next_step().contains("timeout="), "{error:?}");
    }
    proxy.set(Mode::Pass);
    insist(&store, &append).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_lets_nobody_wait_for_ever() {
    let server = Postgres::start(&["fsync=off"]);
    server.signal(Signal::Stop);
    let store = store(&format!("{}?timeout=1", server.url()));
    let ended = tokio::time::timeout(DEADLINE, store.list(&SessionQuery::new(key("s").namespace))).await;
    let error = ended.expect("the call ends by itself").unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{error:?}");
    server.signal(Signal::Continue);
    store.list(&SessionQuery::new(key("s").namespace)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_is_not_taken_for_the_store() {
    let (server, other) = (Postgres::shared(), Postgres::start(&["fsync=off"]));
    let proxy = Proxy::before(server.port());
    let store = store(&proxy.url("schema=moved"));
    let journal = journal(store.clone());
    let mut history = session(&journal, "s").await;
    history.append_steps(2).await.unwrap();
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'moved'";

    proxy.lead_to(other.port());
    let append = journal.prepare(&history.target(), &[message("m")]).unwrap();
    let not_it = || async {
        for _ in 0..3 {
            let errors = [
                store.append(&append).await.map(drop).unwrap_err(),
                store.open(&key("s")).await.map(drop).unwrap_err(),
                store
                    .create(&rekindle_core::NewSession::new(SessionHeader::new(key("t"))))
                    .await
                    .map(drop)
                    .unwrap_err(),
            ];
            for error in errors {
                assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{error:?}");
            }
        }
        store.open(&key("s")).await.unwrap_err()
    };
    let error = not_it().await;
    assert!(error.message().contains("not the store it was"), "{error:?}");
    assert_eq!(other.sql(schemas), "0", "nothing was created in its place");

    // A server that has a store of its own under the same name.
    let theirs = PostgresStore::open(&format!("{}?schema=moved", other.url()), StoreOptions::new()).unwrap();
    theirs.create(&rekindle_core::NewSession::new(SessionHeader::new(key("s")))).await.unwrap();
    proxy.cut();
    let error = not_it().await;
    assert!(error.message().contains("not the store it was"), "{error:?}");

    proxy.lead_to(server.port());
    insist(&store, &append).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_set_back_is_noticed() {
    let shared = Shared::default();
    let journal = journal(store(&shared.url));
    let mut history = session(&journal, "s").await;
    history.append_steps(2).await.unwrap();
    let old = journal.open(&key("s")).await.unwrap().branch(&BranchId::main()).unwrap().head;
    history.append_steps(2).await.unwrap();
    let schema = shared.quoted_schema();
    Postgres::shared().sql(&format!(
        "DELETE FROM {schema}.frames WHERE last > {0}; UPDATE {schema}.branches SET head = {0}, head_hash = '\\x{1}'
         WHERE name = 'main'",
        old.seq, old.hash
    ));
    let error = history.append_steps(1).await.unwrap_err();
    let (expected, actual) = (history.head.seq, old.seq);
    assert_eq!(*error.kind(), ErrorKind::Conflict { expected, actual }, "{error:?}");
    assert!(error.message().contains("the branch ends at record"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_server_says_so() {
    let server = Postgres::start(&["fsync=off"]);
    let url = server.url();
    let writer = journal(store(&url));
    session(&writer, "s").await.append_steps(2).await.unwrap();
    server.sql("ALTER DATABASE rekindle SET default_transaction_read_only = on");
    let reader = store(&url);
    reader.open(&key("s")).await.unwrap();
    let replica = journal(reader.clone());
    let error = History::begin(&replica, &key("s")).await.append_steps(1).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{error:?}");
    assert!(error.message().contains("read-only replica"), "{error:?}");
    // It cannot be created there either, and says why.
    let fresh = store(&format!("{url}?schema=fresh"));
    let error = fresh.open(&key("s")).await.unwrap_err();
    assert!(error.message().contains("read-only replica"), "{error:?}");
    // Whoever only reads is served.
    let options = StoreOptions::new().with_read_only(true);
    let reader = PostgresStore::open(&url, options).unwrap();
    assert_eq!(reader.list(&SessionQuery::new(key("s").namespace)).await.unwrap().sessions.len(), 1);
    let error = History::begin(&journal(reader), &key("s")).await.append_steps(1).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error:?}");
    // The same handle writes again once the server lets it.
    server.sql("BEGIN READ WRITE; ALTER DATABASE rekindle RESET default_transaction_read_only; COMMIT");
    History::begin(&replica, &key("s")).await.append(vec![message("m")]).await.unwrap();
}

/// Makes a job for a session, takes what is there, and gives it back.
async fn work(queue: &dyn Queue, session: SessionKey, worker: OwnerId) -> rekindle_core::Result<()> {
    queue.enqueue(&NewJob::new(session.clone())).await?;
    let request = ClaimRequest::new(worker.clone(), session.namespace, 2, DEADLINE);
    for job in queue.claim(&request).await?.jobs {
        let number = job.claims;
        let settlement = Settlement::Again { after: Duration::ZERO, counts: true, note: "a\0b".into() };
        let (session, worker) = (job.session, worker.clone());
        queue.settle(&SettleJob { session, worker, number, wakes: job.wakes, settlement }).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_at_once_ends_without_a_deadlock() {
    let shared = Shared::default();
    let journal = journal(store(&format!("{}&timeout=30", shared.url)));
    let mut tasks = Vec::new();
    for number in 0..8u64 {
        let journal = journal.clone();
        tasks.push(tokio::spawn(async move {
            for round in 0..60u64 {
                let outcome = disturb(&journal, number, round).await;
                if let Err(error) = outcome {
                    let kind = error.kind();
                    let expected = matches!(
                        kind,
                        ErrorKind::NotFound
                            | ErrorKind::AlreadyExists
                            | ErrorKind::AlreadyRunning { .. }
                            | ErrorKind::Conflict { .. }
                            | ErrorKind::Fenced { .. }
                            | ErrorKind::Protected
                    );
                    assert!(expected, "{error:?}");
                }
            }
        }));
    }
    for task in tasks {
        tokio::time::timeout(DEADLINE, task).await.expect("nobody waits for ever").unwrap();
    }
    let schema = shared.quoted_schema();
    let left_over = format!(
        "SELECT (SELECT count(*) FROM {schema}.branches WHERE session NOT IN (SELECT id FROM {schema}.sessions)),
             (SELECT count(*) FROM {schema}.jobs WHERE session NOT IN (SELECT id FROM {schema}.sessions)),
             (SELECT count(*) FROM {schema}.frames WHERE branch NOT IN (SELECT id FROM {schema}.branches))"
    );
    assert_eq!(Postgres::shared().sql(&left_over), "0|0|0", "what belongs to a session goes with it");
}

/// One of the things that happen to a session, all of them to the same two.
async fn disturb(journal: &Journal, number: u64, round: u64) -> rekindle_core::Result<()> {
    let (store, session) = (journal.store(), key(["a", "b"][(round % 2) as usize]));
    let owner = OwnerId::new(format!("owner {number}")).unwrap();
    match (number + round * 3) % 8 {
        0 => drop(journal.create(SessionHeader::new(session)).await?),
        1 | 2 => {
            let lease = store.acquire(&session, &BranchId::main(), &owner, Duration::from_millis(50)).await?;
            let target = Target::new(session, BranchId::main(), lease.head).with_fence(lease.info.epoch);
            journal.append(&target, &[message("leased")]).await?;
            store.release(&lease).await?;
        }
        3 => {
            let info = journal.open(&session).await?;
            let head = info.branch(&BranchId::main())?.head;
            journal.append(&Target::new(session, BranchId::main(), head), &[message("free")]).await?;
        }
        4 => {
            let info = journal.open(&session).await?;
            let head = info.branch(&BranchId::inbox())?.head;
            journal.append(&Target::new(session, BranchId::inbox(), head), &[message("inbox")]).await?;
        }
        5 => {
            let at = rekindle_core::Position::new(BranchId::main(), rekindle_core::Seq(0));
            journal.fork(&session, &at, BranchId::new(format!("fork {}", round % 3)).unwrap()).await?;
        }
        6 => work(store.queue().unwrap(), session, owner).await?,
        _ => {
            let session = session.clone();
            store.remove(&rekindle_core::Removal::Session { session }).await?;
        }
    }
    Ok(())
}
