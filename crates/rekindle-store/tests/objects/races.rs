//! Many writers at once, and a service that loses replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rekindle_core::{Append, BranchId, ErrorKind, NewSession, ReadFrames, Retry, Slot, Store, StoreExt};
use rekindle_fixtures::{S3, S3Fault, S3Request};
use rekindle_store::{Bucket, ObjectsStore, StoreOptions};

use crate::script::{StillClock, frame, header, key};
use crate::simulated::Simulated;

const WRITERS: usize = 8;
const EACH: usize = 12;

/// Something goes wrong with about every fifth request, never with the same one twice in a row.
fn trouble() -> impl FnMut(&S3Request) -> S3Fault + Send + 'static {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    move |request| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match state % 25 {
            0 => S3Fault::SlowDown,
            1 | 2 if request.method == "PUT" => S3Fault::ReplyLost,
            3 => S3Fault::Cut,
            4 if request.method == "PUT" => S3Fault::CutBehind,
            5 => S3Fault::Slow(Duration::from_millis(10)),
            _ => S3Fault::None,
        }
    }
}

fn open(server: &S3, bucket: &str) -> ObjectsStore {
    let options = StoreOptions::new();
    ObjectsStore::with_compaction(Bucket::open(&server.url(bucket), &options).unwrap(), options, 5).unwrap()
}

/// Appends `EACH` frames of its own, however often others are faster.
async fn write(store: ObjectsStore, name: usize, tries: Arc<AtomicU64>) -> Vec<String> {
    let (session, main) = (key("raced"), BranchId::main());
    let mut written = Vec::new();
    while written.len() < EACH {
        let text = format!("writer {name} frame {}", written.len());
        let head = match store.open(&session).await {
            Ok(info) => info.branch(&main).unwrap().head,
            Err(error) if error.retry() == Retry::Later => continue,
            Err(error) => panic!("{error:?}"),
        };
        let append = Append::new(session.clone(), main.clone(), head, vec![frame(&session, &main, head, &text)]);
        loop {
            tries.fetch_add(1, Ordering::SeqCst);
            match store.append(&append).await {
                Ok(appended) => {
                    assert_eq!(appended.head, append.head());
                    written.push(text);
                    break;
                }
                // Repeating the very same append is safe, whatever became of it.
                Err(error) if error.retry() == Retry::Later => {}
                Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => break,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    written
}

/// The texts of a branch's frames, which must continue each other.
async fn texts(store: &ObjectsStore) -> Vec<String> {
    let slots = store.read_all(&ReadFrames::all(key("raced"), BranchId::main())).await.unwrap();
    let mut before = store.open(&key("raced")).await.unwrap().header.genesis;
    let mut texts = Vec::new();
    for slot in &slots {
        let Slot::Whole(frame) = slot else { panic!("{slot:?}") };
        assert_eq!(frame.prev, before, "a frame that does not continue the one before it");
        before = frame.hash;
        let text = String::from_utf8_lossy(frame.payload()).into_owned();
        let start = text.find("writer").unwrap();
        let end = start + text[start..].find('"').unwrap();
        texts.push(text[start..end].to_owned());
    }
    texts
}

/// Writers whose requests and answers are delayed by chance, so that each is overtaken by others and
/// their snapshots at every point.
#[test]
fn no_order_of_requests_loses_or_doubles_anything() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut overtaken = 0;
    for seed in (1..=60u64).chain([1_505]) {
        let objects = Simulated::default();
        // With snapshots made within changes, and behind them.
        let make = match seed % 2 {
            0 => ObjectsStore::with_background_compaction,
            _ => ObjectsStore::with_compaction,
        };
        let open = || make(objects.bucket(), StoreOptions::new().with_clock(clock()), 2).unwrap();
        runtime.block_on(async {
            open().create(&NewSession::new(header("raced"))).await.unwrap();
            objects.set_delays(seed);
            let tries = Arc::new(AtomicU64::new(0));
            let writers: Vec<_> = (0..4).map(|name| tokio::spawn(write(open(), name, tries.clone()))).collect();
            let mut acknowledged = Vec::new();
            for writer in writers {
                acknowledged.extend(writer.await.unwrap());
            }
            objects.set_delays(0);
            let mut found = texts(&open()).await;
            found.sort();
            acknowledged.sort();
            assert_eq!(found, acknowledged, "seed {seed}");
            let strays = objects.requests_since(0);
            overtaken += strays.iter().filter(|(kind, name)| *kind == "DELETE" && name.contains("/log/")).count();
        });
    }
    // Changes written into the past, each taken back by its writer.
    assert!(overtaken > 100, "{overtaken}");
}

fn clock() -> Arc<StillClock> {
    Arc::default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_writers_lose_nothing_and_win_one_at_a_time() {
    let server = S3::start();
    open(&server, "b").create(&NewSession::new(header("raced"))).await.unwrap();
    server.set_faults(trouble());
    let tries = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> =
        (0..WRITERS).map(|name| tokio::spawn(write(open(&server, "b"), name, tries.clone()))).collect();
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    server.heal();

    let store = open(&server, "b");
    let mut found = texts(&store).await;
    found.sort();
    acknowledged.sort();
    assert_eq!(found.len(), WRITERS * EACH);
    assert_eq!(found, acknowledged);
    assert!(tries.load(Ordering::SeqCst) > (WRITERS * EACH) as u64, "nobody was ever in another's way");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_creates_a_session() {
    let server = S3::start();
    server.set_faults(trouble());
    for round in 0..5 {
        let id = format!("s{round}");
        let creators: Vec<_> = (0..WRITERS)
            .map(|_| {
                let (store, new) = (open(&server, "b"), NewSession::new(header(&id)));
                tokio::spawn(async move {
                    match store.create(&new).await {
                        Ok(_) => 1,
                        Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists) => 0,
                        Err(error) => panic!("{error:?}"),
                    }
                })
            })
            .collect();
        let mut winners = 0;
        for creator in creators {
            winners += creator.await.unwrap();
        }
        assert_eq!(winners, 1, "{id}");
    }
    server.heal();
    let listed = open(&server, "b").list_all(&rekindle_core::SessionQuery::new(Default::default())).await.unwrap();
    assert_eq!(listed.len(), 5);
}
