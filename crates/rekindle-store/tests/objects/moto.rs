//! The same against an S3 that others wrote.

use rekindle_servers::Moto;
use rekindle_store::{Bucket, ObjectsStore, StoreOptions};

use crate::buckets::behaves;
use crate::script::{Script, User};

#[tokio::test]
async fn moto_agrees() {
    let Some(moto) = Moto::start() else { return };
    let bucket = |prefix: &str| {
        let url = moto.url().replace("bucket?", &format!("bucket/{prefix}?"));
        Bucket::open(&url, &StoreOptions::new()).unwrap()
    };
    behaves(&bucket("plain")).await;
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
