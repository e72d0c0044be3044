//! Encrypted connections. The certificates in `tls/` are for these tests alone.

use std::net::TcpListener;

use rekindle_core::{ErrorKind, Store as _};
use rekindle_fixtures::Redis;
use rekindle_store::{StoreOptions, open};

use crate::fixtures::{created, frames, key, step};

const CA: &str = include_str!("tls/ca.pem");
const CERTIFICATE: &str = include_str!("tls/server.pem");
const KEY: &str = include_str!("tls/server.key");

fn server(clients: &str) -> (Redis, String) {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let file = |name: &str| format!("{}/tests/redis/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let (ca, certificate, private) = (file("ca.pem"), file("server.pem"), file("server.key"));
    let server = Redis::start(&[
        "--tls-port",
        &port.to_string(),
        "--tls-ca-cert-file",
        &ca,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &private,
        "--tls-auth-clients",
        clients,
    ]);
    (server, format!("rediss://127.0.0.1:{port}?timeout=5000"))
}

#[tokio::test]
async fn a_server_somebody_vouches_for_is_used() {
    let (_server, url) = server("no");
    let handle = open(&url, StoreOptions::new().with_setting("ca_certificate", CA)).unwrap();
    let head = created(&*handle, "a").await;
    handle.append(&step("a", head, 10)).await.unwrap();
    assert_eq!(frames(&*handle, "a").await.len(), 1);
    handle.queue().unwrap().listen().await.unwrap();

    let stranger = open(&url, StoreOptions::new()).unwrap();
    assert_eq!(*stranger.open(&key("a")).await.unwrap_err().kind(), ErrorKind::StoreUnavailable);
}

#[tokio::test]
async fn a_server_that_asks_who_we_are_is_told() {
    let (_server, url) = server("yes");
    let options = StoreOptions::new().with_setting("ca_certificate", CA);
    let anonymous = open(&url, options.clone()).unwrap();
    assert_eq!(*anonymous.open(&key("a")).await.unwrap_err().kind(), ErrorKind::StoreUnavailable);
    let options = options.with_setting("client_certificate", CERTIFICATE).with_setting("client_key", KEY);
    created(&*open(&url, options).unwrap(), "a").await;
}

#[tokio::test]
async fn nonsense_is_refused_and_not_shown() {
    let url = format!("rediss://127.0.0.1:{}?timeout=1000", Redis::shared().port());
    let plain = open(&url, StoreOptions::new()).unwrap();
    let error = plain.open(&key("a")).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "it does not encrypt: {error:?}");
    let half = open(&url, StoreOptions::new().with_setting("client_key", KEY)).unwrap_err();
    assert_eq!(*half.kind(), ErrorKind::Invalid);
    for name in ["ca_certificate", "client_certificate", "client_key"] {
        let options = StoreOptions::new().with_setting("client_certificate", CERTIFICATE);
        let options = options.with_setting("client_key", KEY).with_setting(name, "secret nonsense");
        let error = open(&url, options).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Invalid);
        assert!(error.message().contains(name) && !format!("{error:?}").contains("nonsense"), "{error:?}");
    }
    let bad = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
    let options = StoreOptions::new().with_setting("client_certificate", CERTIFICATE).with_setting("client_key", bad);
    let error = open(&url, options).unwrap().open(&key("a")).await.unwrap_err();
    assert!(!format!("{error:?}").contains("c2VjcmV0"), "{error:?}");
}
