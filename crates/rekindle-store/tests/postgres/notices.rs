//! Notices of a server, and what happens to them when it goes.

use std::sync::Arc;
use std::time::Duration;

use rekindle_core::codec::Codec;
use rekindle_core::queue::{NewJob, Notice, Notices};
use rekindle_core::{BranchId, Journal, SessionHeader, SessionId, SessionKey, Store as _, Target};
use rekindle_fixtures::Postgres;
use rekindle_store::{PostgresStore, StoreOptions, SystemClock, system_ids};
use rekindle_testkit::message;

use crate::fixture::Shared;

const DEADLINE: Duration = Duration::from_secs(60);

fn key(id: &str) -> SessionKey {
    SessionId::new(id).unwrap().into()
}

fn journal(url: &str) -> Journal {
    let store = PostgresStore::open(url, StoreOptions::new()).unwrap();
    Journal::new(Arc::new(store), Codec::new(), Arc::new(SystemClock), system_ids().unwrap())
}

async fn next(notices: &mut Box<dyn Notices>) -> Notice {
    tokio::time::timeout(DEADLINE, notices.next()).await.expect("a notice arrives")
}

async fn send(journal: &Journal, id: &str) {
    let head = journal.open(&key(id)).await.unwrap().branch(&BranchId::inbox()).unwrap().head;
    journal.append(&Target::new(key(id), BranchId::inbox(), head), &[message("m")]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_inbox_and_jobs_are_told_and_nothing_else_is() {
    let shared = Shared::default();
    let (writer, listener) = (journal(&shared.url), journal(&shared.url));
    // Any name there may be goes through a notice.
    let odd = format!("it's \"{}", "🦀".repeat(60));
    writer.create(SessionHeader::new(key(&odd))).await.unwrap();
    let mut notices = listener.store().queue().unwrap().listen().await.unwrap();
    let main = writer.open(&key(&odd)).await.unwrap().branch(&BranchId::main()).unwrap().head;
    writer.append(&Target::new(key(&odd), BranchId::main(), main), &[message("m")]).await.unwrap();
    send(&writer, &odd).await;
    assert_eq!(next(&mut notices).await, Notice::Inbox(key(&odd)), "ordinary appends tell nobody");
    writer.store().queue().unwrap().enqueue(&NewJob::new(key(&odd))).await.unwrap();
    assert_eq!(next(&mut notices).await, Notice::Ready);
    send(&writer, &odd).await;
    assert_eq!(next(&mut notices).await, Notice::Inbox(key(&odd)));
    assert_eq!(next(&mut notices).await, Notice::Ready);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_comes_back_after_its_server() {
    let server = Arc::new(Postgres::start(&["fsync=off"]));
    let journal = journal(&server.url());
    journal.create(SessionHeader::new(key("s"))).await.unwrap();
    let mut notices = journal.store().queue().unwrap().listen().await.unwrap();
    let restarted = server.clone();
    tokio::task::spawn_blocking(move || {
        restarted.kill();
        restarted.restart();
    })
    .await
    .unwrap();
    // One when the connection was lost, one when there is another: then it hears again.
    assert_eq!(next(&mut notices).await, Notice::Anything);
    assert_eq!(next(&mut notices).await, Notice::Anything);
    send(&journal, "s").await;
    assert_eq!(next(&mut notices).await, Notice::Inbox(key("s")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nobody_can_listen_time_is_the_notice() {
    let server = Postgres::start(&["fsync=off"]);
    let journal = journal(&server.url());
    journal.create(SessionHeader::new(key("s"))).await.unwrap();
    // Deaf as behind a pooler: what is sent does not come back.
    server.sql("REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC; CREATE ROLE deaf LOGIN PASSWORD 'deaf'");
    server.sql(
        "GRANT USAGE ON SCHEMA rekindle TO deaf;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rekindle TO deaf",
    );
    let url = server.url().replace("rekindle:secret@", "deaf:deaf@");
    let store = PostgresStore::open(&url, StoreOptions::new()).unwrap();
    let mut notices = store.queue().unwrap().listen().await.unwrap();
    for _ in 0..2 {
        assert_eq!(next(&mut notices).await, Notice::Anything);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_cannot_be_listened_to() {
    let url = "postgres://rekindle:secret@127.0.0.1:1/rekindle";
    let store = PostgresStore::open(url, StoreOptions::new()).unwrap();
    let error = store.queue().unwrap().listen().await.err().unwrap();
    assert_eq!(*error.kind(), rekindle_core::ErrorKind::StoreUnavailable, "{error:?}");
}
