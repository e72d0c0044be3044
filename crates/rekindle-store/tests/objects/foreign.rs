//! The same against services that others wrote.

use bytes::Bytes;
use rekindle_core::values::{Change, Changed, Expected, ValueKey, ValueKind};
use rekindle_core::{Namespace, Store as _};
use rekindle_fixtures::{ForeignS3, Proxy};
use rekindle_store::{Bucket, ObjectsStore, StoreOptions};

use crate::buckets::behaves;
use crate::script::{Script, User};

#[tokio::test]
async fn moto_agrees() {
    if let Some(moto) = ForeignS3::moto() {
        agrees(&moto).await;
    }
}

#[tokio::test]
async fn seaweedfs_agrees() {
    if let Some(seaweedfs) = ForeignS3::seaweedfs() {
        agrees(&seaweedfs).await;
    }
}

async fn agrees(service: &ForeignS3) {
    let bucket = |prefix: &str| Bucket::open(&service.url_below(prefix), &StoreOptions::new()).unwrap();
    behaves(&bucket("plain")).await;
    let proxied = Proxy::start(service.port()).url("bucket").replace("bucket?", "bucket/proxied?");
    behaves(&Bucket::open(&proxied, &StoreOptions::new()).unwrap()).await;
    let store = ObjectsStore::over(bucket("values"), StoreOptions::new()).unwrap();
    let (values, key) =
        (store.values().unwrap(), ValueKey::new(Namespace::default(), ValueKind::DATA_KEY, "k").unwrap());
    for (expected, value, done) in [
        (None, Some("1"), true),
        (None, Some("2"), false),
        (Some("1"), Some("2"), true),
        (Some("1"), Some("3"), false),
        (Some("2"), None, true),
        (None, Some("4"), true),
    ] {
        let expected = Expected::Is(expected.map(Bytes::from));
        let change = Change { key: key.clone(), expected, value: value.map(Bytes::from) };
        assert_eq!(values.change(&change).await.unwrap() == Changed::Done, done, "{change:?}");
    }
    let script = Script::everything().await;
    let open = || User::new(ObjectsStore::with_compaction(bucket("store"), script.options(), 3).unwrap());
    let mut user = open();
    for (index, step) in script.steps.iter().enumerate() {
        script.clock.set(index as u64);
        user.take(step).await.unwrap();
        // It is slow: some looks are enough here, the other tests look at every step.
        if index % 7 == 6 || index + 1 == script.steps.len() {
            assert_eq!(open().see(&script.session).await, script.seen[index + 1], "after step {index}");
        }
    }
}
