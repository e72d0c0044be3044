//! The bucket by itself.

use bytes::Bytes;
use rekindle_core::{ErrorKind, file_name};
use rekindle_fixtures::{S3, S3Fault};
use rekindle_store::{Bucket, StoreOptions};

pub async fn behaves(bucket: &Bucket) {
    let name = format!("folder/{}", file_name("../ÄÖ~ %2F'"));
    assert_eq!(bucket.get(&name).await.unwrap(), None);
    assert_eq!(bucket.size(&name).await.unwrap(), None);
    assert!(bucket.put_new(&name, Bytes::from_static(b"0123456789")).await.unwrap());
    assert!(bucket.put_new(&name, Bytes::from_static(b"0123456789")).await.unwrap(), "the same bytes are one's own");
    assert!(!bucket.put_new(&name, Bytes::from_static(b"other")).await.unwrap());
    assert_eq!(bucket.get_range(&name, 2..5).await.unwrap().unwrap(), &b"234"[..]);
    assert_eq!(bucket.get_range(&name, 8..50).await.unwrap().unwrap(), &b"89"[..]);
    assert_eq!(bucket.size(&name).await.unwrap(), Some(10));
    bucket.put(&name, Bytes::from_static(b"new")).await.unwrap();
    assert_eq!(bucket.get(&name).await.unwrap().unwrap(), &b"new"[..]);
    for n in 0..25 {
        bucket.put(&format!("many/{n:02}/x"), Bytes::from_static(b"x")).await.unwrap();
    }
    bucket.put("manyother/x", Bytes::new()).await.unwrap();
    let mut found = Vec::new();
    loop {
        let page = bucket.list("many", found.last().map(String::as_str), 10).await.unwrap();
        if page.is_empty() {
            break;
        }
        found.extend(page.into_iter().map(|(name, _)| name));
    }
    assert_eq!(found, (0..25).map(|n| format!("many/{n:02}/x")).collect::<Vec<_>>());
    let mut all = bucket.list("", None, 100).await.unwrap();
    all.retain(|(name, _)| !name.starts_with("conditions/"));
    assert_eq!(all.len(), 27);
    assert!(all.contains(&(name.clone(), 3)), "{all:?}");
    bucket.delete(&name).await.unwrap();
    bucket.delete(&name).await.unwrap();
    assert_eq!(bucket.get(&name).await.unwrap(), None);
    for wrong in ["../x", "/x", "x/../y", "X", ""] {
        assert_eq!(*bucket.put(wrong, Bytes::new()).await.unwrap_err().kind(), ErrorKind::Invalid, "{wrong}");
    }
}

#[tokio::test]
async fn a_directory_and_s3_behave_alike() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("objects:{}", directory.path().join("a b").display());
    behaves(&Bucket::open(&url, &StoreOptions::new()).unwrap()).await;
    let server = S3::start();
    behaves(&Bucket::open(&server.url("plain"), &StoreOptions::new()).unwrap()).await;
    let prefixed = server.url("plain").replace("plain?", "plain/deep/er?");
    behaves(&Bucket::open(&prefixed, &StoreOptions::new()).unwrap()).await;
    assert!(server.keys("plain").iter().any(|key| key.starts_with("deep/er/many/")));
}

#[tokio::test]
async fn a_write_whose_reply_is_lost_is_ones_own() {
    let server = S3::start();
    let bucket = Bucket::open(&server.url("b"), &StoreOptions::new()).unwrap();
    for fault in [S3Fault::ReplyLost, S3Fault::CutBehind, S3Fault::SlowDown, S3Fault::Cut] {
        let mut first = true;
        server.set_faults(move |request| {
            let hit = request.method == "PUT" && std::mem::take(&mut first);
            if hit { fault } else { S3Fault::None }
        });
        let name = format!("x-{}", format!("{fault:?}").to_lowercase());
        server.take_requests();
        assert!(bucket.put_new(&name, Bytes::from_static(b"mine")).await.unwrap(), "{fault:?}");
        assert!(server.take_requests().len() > 1, "{fault:?}: nothing was tried again");
        assert!(!bucket.put_new(&name, Bytes::from_static(b"theirs")).await.unwrap(), "{fault:?}");
    }
}

#[tokio::test]
async fn errors_say_what_helps_and_tell_no_secret() {
    let server = S3::start();
    let bucket = Bucket::open(&server.url("missing"), &StoreOptions::new()).unwrap();
    for error in [
        bucket.get("a").await.unwrap_err(),
        bucket.put("a", Bytes::new()).await.unwrap_err(),
        bucket.list("a", None, 5).await.unwrap_err(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::NotFound, "{error:?}");
        assert!(error.next_step().contains("create the bucket"), "{error:?}");
        assert!(!format!("{error:#}").contains("secret_access_key=secret"), "{error:#}");
    }
    server.set_faults(|_| S3Fault::SlowDown);
    let bucket = Bucket::open(&(server.url("b") + "&retry_for=200ms"), &StoreOptions::new()).unwrap();
    let error = bucket.get("a").await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{error:?}");
    assert!(!format!("{bucket:?} {error:#}").contains("=secret"));
}

#[test]
fn wrong_urls_and_settings_are_refused() {
    let options = StoreOptions::new;
    for url in [
        "s3:bucket",
        "s3://",
        "s3:///x",
        "s3://b/../x",
        "s3://b?x",
        "objects:",
        "ftp://x",
        "nothing",
        "s3://b?endpoint=%zz",
    ] {
        let error = Bucket::open(url, &options()).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Invalid, "{url}: {error:?}");
    }
    let error = Bucket::open("s3://b?colour=red", &options()).unwrap_err();
    assert!(format!("{error:#}").contains("colour"), "{error:#}");
    let error = Bucket::open("s3://b", &options().with_setting("aws_access_key_id", "me")).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Invalid, "{error:?}");
    for url in ["gs://b/p?skip_signature=true", "az://c/p?account_name=a&account_key=YWJj", "s3://b?region=eu"] {
        Bucket::open(url, &options()).unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let url = format!("objects:{}", directory.path().join("none").display());
    let error = Bucket::open(&url, &options().with_create(false)).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound);
}
