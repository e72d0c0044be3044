//! Encrypted connections, and whom they trust.

use std::path::Path;
use std::process::Command;

use rekindle_core::{ErrorKind, Namespace, SessionQuery, Store as _};
use rekindle_fixtures::Postgres;
use rekindle_store::{PostgresStore, StoreOptions};

fn openssl(directory: &Path, arguments: &str) -> bool {
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let made = Command::new("openssl").args(arguments).current_dir(directory).output();
    made.is_ok_and(|made| made.status.success())
}

/// An authority, and certificates it signed for 127.0.0.1 and for another host; nothing without openssl.
fn certificates(directory: &Path) -> Option<()> {
    let authority = "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=authority -keyout ca.key -out ca.pem";
    let signed = |name: &str, host: &str| {
        format!(
            "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=server -keyout {name}.key -out {name}.pem -CA ca.pem \
             -CAkey ca.key -addext subjectAltName={host} -addext basicConstraints=critical,CA:FALSE"
        )
    };
    let made = openssl(directory, authority)
        && openssl(directory, &signed("server", "IP:127.0.0.1"))
        && openssl(directory, &signed("other", "DNS:other.example"));
    made.then_some(())
}

/// A server with that certificate.
fn server(directory: &Path, name: &str) -> Postgres {
    let path = |ending: &str| directory.join(format!("{name}.{ending}")).display().to_string();
    let settings = [format!("ssl_cert_file={}", path("pem")), format!("ssl_key_file={}", path("key"))];
    Postgres::start(&["fsync=off", "ssl=on", &settings[0], &settings[1]])
}

async fn attempt(server: &Postgres, query: &str) -> rekindle_core::Result<()> {
    let store = PostgresStore::open(&format!("{}?{query}", server.url()), StoreOptions::new())?;
    store.list(&SessionQuery::new(Namespace::new("default").unwrap())).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_checked_as_told() {
    let directory = tempfile::tempdir().unwrap();
    if certificates(directory.path()).is_none() {
        // Without openssl there is no certificate to check.
        return;
    }
    // The server reads its key as another user, if this is root, and demands that nobody else can.
    let changed = Command::new("sh")
        .args(["-c", "chmod 755 .; chmod 600 *.key; [ $(id -u) != 0 ] || chown postgres *.key *.pem"])
        .current_dir(directory.path())
        .status();
    assert!(changed.unwrap().success());
    let root = directory.path().join("ca.pem").display().to_string().replace('/', "%2F");
    let encrypted = server(directory.path(), "server");
    for (query, works) in [
        ("sslmode=disable".to_owned(), true),
        ("sslmode=prefer".to_owned(), true),
        ("sslmode=require&sslverify=none".to_owned(), true),
        (format!("sslmode=require&sslrootcert={root}"), true),
        (format!("sslmode=verify-full&sslrootcert={root}"), true),
        ("sslmode=verify-full&sslrootcert=system".to_owned(), false),
    ] {
        match (attempt(&encrypted, &query).await, works) {
            (Ok(()), true) => {}
            (Err(error), false) => {
                assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{query}: {error:?}");
                assert!(error.message().contains("no encrypted connection"), "{query}: {error:?}");
            }
            (outcome, _) => panic!("{query}: {outcome:?}"),
        }
    }
    let count = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
        WHERE s.ssl AND a.application_name = 'rekindle'";
    let url = format!("{}?sslmode=verify-full&sslrootcert={root}", encrypted.url());
    let store = PostgresStore::open(&url, StoreOptions::new()).unwrap();
    store.list(&SessionQuery::new(Namespace::new("default").unwrap())).await.unwrap();
    assert_ne!(encrypted.sql(count), "0", "the connection is encrypted");

    let other = server(directory.path(), "other");
    let error = attempt(&other, &format!("sslmode=verify-full&sslrootcert={root}")).await.unwrap_err();
    assert!(error.message().contains("no encrypted connection"), "{error:?}");
    attempt(&other, "sslmode=require&sslverify=none").await.unwrap();

    let plain = Postgres::shared();
    let error = attempt(plain, "sslmode=require&sslverify=none").await.unwrap_err();
    assert!(error.message().contains("no encrypted connection"), "{error:?}");
}

#[tokio::test]
async fn certificates_that_cannot_be_read_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty.pem");
    std::fs::write(&empty, "nothing").unwrap();
    for path in [Path::new("/no/such/file.pem"), &empty] {
        let query = format!("sslmode=verify-full&sslrootcert={}", path.display());
        let url = format!("postgres://u@h/d?{query}");
        let error = PostgresStore::open(&url, StoreOptions::new()).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Invalid, "{error:?}");
        assert!(error.message().contains(path.to_str().unwrap()), "{error:?}");
    }
}
