//! Services that ignore conditions are refused before anything is written.

use bytes::Bytes;
use rekindle_core::{ErrorKind, NewSession, SessionQuery, Store};
use rekindle_fixtures::{S3, S3Fault};
use rekindle_store::{Bucket, ObjectsStore, StoreOptions};

use crate::script::{header, key};

fn open(server: &S3, bucket: &str) -> ObjectsStore {
    ObjectsStore::open(&server.url(bucket), StoreOptions::new()).unwrap()
}

#[tokio::test]
async fn a_service_that_ignores_conditions_is_refused_before_the_first_write() {
    let server = S3::start();
    let cases: [(&[&str], &[&str]); 3] = [
        (&["if-none-match"], &["If-None-Match"]),
        (&["if-match"], &["If-Match"]),
        (&["if-none-match", "if-match"], &["If-None-Match", "If-Match"]),
    ];
    for (number, (ignored, named)) in cases.into_iter().enumerate() {
        let ignored: Vec<&'static str> = ignored.to_vec();
        server.ignore_conditions(&ignored);
        let bucket = format!("b{number}");
        let store = open(&server, &bucket);
        // Looking needs no conditions.
        assert_eq!(store.list(&SessionQuery::new(Default::default())).await.unwrap().sessions.len(), 0);
        let refused = store.create(&NewSession::new(header("a"))).await.unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:?}");
        assert!(refused.message().contains("http://127.0.0.1:"), "{refused:?}");
        for header in ["If-None-Match", "If-Match"] {
            let told = refused.message().contains(&format!("`{header}"));
            assert_eq!(told, named.contains(&header), "{ignored:?}: {refused:?}");
        }
        assert_eq!(server.keys(&bucket), Vec::<String>::new(), "{ignored:?}");
        let archive = Bucket::open(&server.url(&bucket), &StoreOptions::new()).unwrap();
        let refused = archive.put_new("archives/x", Bytes::from_static(b"x")).await.unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:?}");
    }
}

#[tokio::test]
async fn it_is_tried_once_for_a_bucket_and_looked_up_once_in_a_process() {
    let server = S3::start();
    open(&server, "b").create(&NewSession::new(header("a"))).await.unwrap();
    let tried = |requests: &[rekindle_fixtures::S3Request]| {
        let about = |folder: &str| requests.iter().filter(|request| request.key.starts_with(folder)).count();
        (about("probe/"), about("conditions/"))
    };
    let (probes, markers) = tried(&server.take_requests());
    assert!(probes > 0 && markers == 2, "{probes} {markers}");
    let second = open(&server, "b");
    second.open(&key("a")).await.unwrap();
    assert_eq!(tried(&server.take_requests()), (0, 0), "reading needs no conditions");
    second.create(&NewSession::new(header("b"))).await.unwrap();
    second.create(&NewSession::new(header("c"))).await.unwrap();
    assert_eq!(tried(&server.take_requests()), (0, 1));
    let left: Vec<_> = server.keys("b").into_iter().filter(|key| key.starts_with("probe/")).collect();
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test]
async fn an_older_answer_does_not_outlive_a_new_one() {
    let server = S3::start();
    let bucket = Bucket::open(&server.url("b"), &StoreOptions::new()).unwrap();
    bucket.try_conditions().await.unwrap();
    assert_eq!(server.keys("b").len(), 1, "the marker: {:?}", server.keys("b"));
    server.ignore_conditions(&["if-match"]);
    bucket.try_conditions().await.unwrap_err();
    assert_eq!(server.keys("b"), Vec::<String>::new());
    let refused = open(&server, "b").create(&NewSession::new(header("a"))).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:?}");
}

#[tokio::test]
async fn lost_answers_are_no_ignored_conditions() {
    let server = S3::start();
    for fault in [S3Fault::ReplyLost, S3Fault::CutBehind, S3Fault::SlowDown, S3Fault::Cut] {
        for at in 0..11 {
            let bucket = format!("b{at}");
            let mut number = 0;
            server.set_faults(move |_| {
                number += 1;
                if number == at + 1 { fault } else { S3Fault::None }
            });
            let tried = Bucket::open(&server.url(&bucket), &StoreOptions::new()).unwrap().try_conditions().await;
            tried.unwrap_or_else(|error| panic!("{fault:?} at request {at}: {error:?}"));
            server.heal();
        }
    }
}

#[tokio::test]
async fn a_directory_needs_no_trial() {
    let directory = tempfile::tempdir().unwrap();
    let bucket = Bucket::open(&format!("objects:{}", directory.path().display()), &StoreOptions::new()).unwrap();
    bucket.try_conditions().await.unwrap();
    assert!(bucket.put_new("a", Bytes::new()).await.unwrap());
    assert_eq!(bucket.list("", None, 10).await.unwrap(), [("a".to_owned(), 0)]);
}
