//! Opening: creating the schema, refusing what is not ours, and words for what is wrong.

use rekindle_core::values::{Change, Changed, ValueKey, ValueKind};
use rekindle_core::{ErrorKind, Namespace, NewSession, SessionHeader, SessionId, SessionKey, SessionQuery, Store as _};
use rekindle_fixtures::Postgres;
use rekindle_store::{PostgresStore, StoreOptions, open};

use crate::fixture::Shared;

fn key(id: &str) -> SessionKey {
    SessionId::new(id).unwrap().into()
}

fn everything() -> SessionQuery {
    SessionQuery::new(key("s").namespace)
}

/// The error of a first call to the store at `url`.
async fn refusal(url: &str, options: StoreOptions) -> rekindle_core::Error {
    PostgresStore::open(url, options).unwrap().list(&everything()).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_start_at_once_create_the_schema_once() {
    let shared = Shared::default();
    let mut tasks = Vec::new();
    for number in 0..20 {
        // Each is a handle with connections of its own, as a process would have.
        let store = open(&shared.url, StoreOptions::new()).unwrap();
        tasks.push(tokio::spawn(async move {
            store.create(&NewSession::new(SessionHeader::new(key(&format!("s{number}"))))).await.map(drop)
        }));
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let store = open(&shared.url, StoreOptions::new().with_create(false)).unwrap();
    assert_eq!(store.list(&everything()).await.unwrap().sessions.len(), 20);
    let meta = Postgres::shared().sql(&format!("SELECT count(*), max(version) FROM {}.meta", shared.quoted_schema()));
    assert_eq!(meta, "1|3");
}

#[tokio::test]
async fn nothing_is_created_unless_allowed() {
    let shared = Shared::default();
    for options in [StoreOptions::new().with_create(false), StoreOptions::new().with_read_only(true)] {
        let error = refusal(&shared.url, options).await;
        assert_eq!(*error.kind(), ErrorKind::NotFound, "{error:?}");
    }
    let sql = format!("SELECT to_regnamespace('{}') IS NULL", shared.quoted_schema());
    assert_eq!(Postgres::shared().sql(&sql), "t");
}

#[tokio::test]
async fn a_newer_schema_is_left_alone() {
    let shared = Shared::default();
    open(&shared.url, StoreOptions::new()).unwrap().list(&everything()).await.unwrap();
    Postgres::shared().sql(&format!("UPDATE {}.meta SET version = 99", shared.quoted_schema()));
    let error = refusal(&shared.url, StoreOptions::new()).await;
    let expected = ErrorKind::VersionTooNew { what: "schema".into(), found: 99, supported: 3 };
    assert_eq!(*error.kind(), expected, "{error:?}");
}

#[tokio::test]
async fn a_schema_of_an_earlier_version_is_brought_up_to_date() {
    const NOT_IN_2: &str = "DROP TABLE {s}.small_values; UPDATE {s}.meta SET version = 2;";
    const NOT_IN_1: &str = "ALTER TABLE {s}.branches DROP COLUMN last_wait; UPDATE {s}.meta SET version = 1;";
    for undone in [NOT_IN_2.to_owned(), format!("{NOT_IN_2}{NOT_IN_1}")] {
        let shared = Shared::default();
        open(&shared.url, StoreOptions::new()).unwrap().list(&everything()).await.unwrap();
        let schema = shared.quoted_schema();
        Postgres::shared().sql(&undone.replace("{s}", &schema));
        let store = open(&shared.url, StoreOptions::new()).unwrap();
        store.list(&everything()).await.unwrap();
        let columns = "SELECT count(*) FROM pg_attribute WHERE attname = 'last_wait' AND NOT attisdropped";
        let sql = format!("{columns} AND attrelid = '{schema}.branches'::regclass");
        assert_eq!(Postgres::shared().sql(&sql), "1");
        let value = ValueKey::new(Namespace::default(), ValueKind::DATA_KEY, "a").unwrap();
        let values = store.values().unwrap();
        assert_eq!(values.change(&Change::set(value.clone(), "1").if_is(None)).await.unwrap(), Changed::Done);
        assert_eq!(values.get(&value).await.unwrap().as_deref(), Some(&b"1"[..]));
    }
}

#[tokio::test]
async fn a_schema_of_another_program_is_left_alone() {
    for table in ["sessions", "meta"] {
        let shared = Shared::default();
        let schema = shared.quoted_schema();
        Postgres::shared().sql(&format!("CREATE SCHEMA {schema}; CREATE TABLE {schema}.{table} (id int)"));
        let error = refusal(&shared.url, StoreOptions::new()).await;
        assert_eq!(*error.kind(), ErrorKind::Invalid, "{error:?}");
        assert!(error.message().contains("another program"), "{error:?}");
        let sql = format!("SELECT count(*) FROM pg_class WHERE relnamespace = '{schema}'::regnamespace");
        assert_eq!(Postgres::shared().sql(&sql), "1");
    }
}

#[tokio::test]
async fn what_is_wrong_is_said_without_the_secret() {
    let server = Postgres::shared();
    server.sql(
        "CREATE ROLE stranger LOGIN PASSWORD 'hidden-word';
         CREATE ROLE limited LOGIN PASSWORD 'hidden-word' CONNECTION LIMIT 0",
    );
    let at = |user: &str, word: &str, rest: &str| format!("postgres://{user}:{word}@127.0.0.1:{rest}");
    let port = server.port();
    let database = format!("{port}/rekindle");
    for (url, kind, words, hint) in [
        (at("rekindle", "hidden-word", &database), ErrorKind::Invalid, "refuses the password", "password"),
        (at("nobody", "hidden-word", &database), ErrorKind::Invalid, "refuses the password", "user"),
        (
            at("stranger", "hidden-word", &format!("{port}/nowhere")),
            ErrorKind::NotFound,
            "no such database",
            "CREATE DATABASE",
        ),
        (at("stranger", "hidden-word", &database), ErrorKind::Invalid, "may not do this", "grant"),
        (at("limited", "hidden-word", &database), ErrorKind::StoreUnavailable, "no connection left", "pool="),
        (
            at("rekindle", "hidden-word", "1/rekindle"),
            ErrorKind::StoreUnavailable,
            "connection to the server failed",
            "host",
        ),
        (
            "postgres://rekindle:hidden-word@no-such-host.invalid/rekindle".to_owned(),
            ErrorKind::StoreUnavailable,
            "connection to the server failed",
            "host",
        ),
    ] {
        let store = PostgresStore::open(&url, StoreOptions::new()).unwrap();
        let error = store.list(&everything()).await.unwrap_err();
        assert_eq!(*error.kind(), kind, "{error:?}");
        assert!(error.message().contains(words), "{error:?}");
        assert!(error.next_step().contains(hint), "{error:?}");
        let everything_said = format!("{error:?} {error:#} {store:?}");
        assert!(!everything_said.contains("hidden-word"), "{everything_said}");
    }
}

#[tokio::test]
async fn a_password_may_come_from_elsewhere() {
    let shared = Shared::default();
    let url = shared.url.replace(":secret@", "@");
    assert_ne!(url, shared.url);
    let store = open(&url, StoreOptions::new().with_setting("password", Postgres::PASSWORD)).unwrap();
    store.list(&everything()).await.unwrap();
    assert_eq!(store.capabilities().name, "postgres");
}

#[tokio::test]
async fn a_user_with_few_rights_can_use_what_was_prepared() {
    let (server, shared) = (Postgres::shared(), Shared::default());
    let schema = shared.quoted_schema();
    open(&shared.url, StoreOptions::new()).unwrap().list(&everything()).await.unwrap();
    server.sql(&format!(
        "CREATE ROLE worker LOGIN PASSWORD 'worker';
         GRANT USAGE ON SCHEMA {schema} TO worker;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO worker"
    ));
    let url = shared.url.replace("rekindle:secret@", "worker:worker@");
    let store = open(&url, StoreOptions::new()).unwrap();
    store.create(&NewSession::new(SessionHeader::new(key("s")))).await.unwrap();
    store.open(&key("s")).await.unwrap();
}
