//! Time and races as they are: the server's clock, callers that go, workers that meet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rekindle_core::codec::Codec;
use rekindle_core::queue::{ClaimRequest, KeyLimit, NewJob, SettleJob, Settled, Settlement};
use rekindle_core::{
    BranchId, ErrorKind, Journal, OwnerId, ReadFrames, SessionHeader, SessionId, SessionKey, StoreExt as _, Target,
};
use rekindle_fixtures::Postgres;
use rekindle_store::{StoreOptions, SystemClock, open, system_ids};
use rekindle_testkit::{History, message};

use crate::fixture::Shared;

const DEADLINE: Duration = Duration::from_secs(60);

fn key(id: &str) -> SessionKey {
    SessionId::new(id).unwrap().into()
}

fn journal(url: &str) -> Journal {
    let store = open(url, StoreOptions::new()).unwrap();
    Journal::new(store, Codec::new(), Arc::new(SystemClock), system_ids().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_end_by_the_clock_of_the_server() {
    let shared = Shared::default();
    let journal = journal(&shared.url);
    let info = journal.create(SessionHeader::new(key("s"))).await.unwrap();
    let server: u64 =
        Postgres::shared().sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8").parse().unwrap();
    assert!(server.abs_diff(info.created_at.0) < 60_000_000, "{server} {}", info.created_at.0);
    let (store, main) = (journal.store(), BranchId::main());
    let [first, second] = ["first", "second"].map(|name| OwnerId::new(name).unwrap());
    let old = store.acquire(&key("s"), &main, &first, Duration::from_secs(3)).await.unwrap();
    let error = store.acquire(&key("s"), &main, &second, DEADLINE).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::AlreadyRunning { .. }), "{error:?}");
    let taken_over = async {
        loop {
            match store.acquire(&key("s"), &main, &second, DEADLINE).await {
                Ok(lease) => return lease,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let new = tokio::time::timeout(DEADLINE, taken_over).await.unwrap();
    assert!(new.info.epoch > old.info.epoch);
    let target = |lease: &rekindle_core::Lease| {
        Target::new(key("s"), main.clone(), lease.head).with_fence(lease.info.epoch).with_renew(DEADLINE)
    };
    let error = journal.append(&target(&old), &[message("late")]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Fenced { .. }), "{error:?}");
    journal.append(&target(&new), &[message("m")]).await.unwrap();
    let live = journal.open(&key("s")).await.unwrap();
    let left = live.live_lease().unwrap().1.expires_at.since(live.observed_at);
    assert!(left > DEADLINE / 2 && left <= DEADLINE, "{left:?}");
}

/// Looks at a call a few times, then lets go of it; whether it had ended.
async fn begun<T>(call: impl Future<Output = T>, looks: u64) -> bool {
    let mut call = Box::pin(call);
    for _ in 0..=looks {
        if std::future::poll_fn(|context| std::task::Poll::Ready(call.as_mut().poll(context).is_ready())).await {
            return true;
        }
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_go_leave_nothing_half_done() {
    const ROUNDS: u64 = 60;
    let shared = Shared::default();
    let journal = journal(&format!("{}&pool=2", shared.url));
    journal.create(SessionHeader::new(key("s"))).await.unwrap();
    let mut history = History::begin(&journal, &key("s")).await;
    let mut given_up = 0;
    for round in 0..ROUNDS {
        let append = journal.prepare(&history.target(), &[message(&round.to_string()), message("and more")]).unwrap();
        given_up += u64::from(!begun(journal.store().append(&append), round % 4).await);
        assert_eq!(journal.store().append(&append).await.unwrap().head, append.head());
        history.head = append.head();
    }
    assert!(given_up > 0, "nobody went");
    let frames = journal.store().read_all(&ReadFrames::all(key("s"), BranchId::main())).await.unwrap();
    assert_eq!(frames.len() as u64, ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_however_many_claim_at_once() {
    const JOBS: usize = 48;
    const WORKERS: usize = 6;
    let shared = Shared::default();
    let first = journal(&shared.url);
    for number in 0..JOBS {
        let id = key(&format!("s{number:02}"));
        first.create(SessionHeader::new(id.clone())).await.unwrap();
        let mut new = NewJob::new(id);
        // A third with a key, a third of an agent, a third with both.
        new.key = (number % 3 != 1).then(|| KeyLimit { key: format!("k{}", number % 2), most: 2 });
        new.agent = (number % 3 != 0).then(|| "agent".to_owned());
        first.store().queue().unwrap().enqueue(&new).await.unwrap();
    }
    let running: Arc<BTreeMap<String, AtomicUsize>> =
        Arc::new(["k0", "k1", "agent"].map(|name| (name.to_owned(), AtomicUsize::new(0))).into());
    let done = Arc::new(AtomicUsize::new(0));
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let (url, running, done) = (shared.url.clone(), running.clone(), done.clone());
        workers.push(tokio::spawn(async move {
            let journal = journal(&url);
            let queue = journal.store().queue().unwrap();
            let worker = OwnerId::new(format!("worker {number}")).unwrap();
            let mut request = ClaimRequest::new(worker.clone(), key("s").namespace, 3, DEADLINE);
            request.agent_limits.insert("agent".into(), 3);
            while done.load(Ordering::SeqCst) < JOBS {
                let jobs = queue.claim(&request).await.unwrap().jobs;
                for job in &jobs {
                    for (name, most) in
                        job.key.iter().map(|key| (&key.key, 2)).chain(job.agent.iter().map(|agent| (agent, 3)))
                    {
                        let before = running[name].fetch_add(1, Ordering::SeqCst);
                        assert!(before < most, "{name}: {} at once", before + 1);
                    }
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
                for job in jobs {
                    // Before the server knows: whoever is told that there is room finds it here too.
                    for name in job.key.iter().map(|key| &key.key).chain(&job.agent) {
                        running[name].fetch_sub(1, Ordering::SeqCst);
                    }
                    let number = job.claim.as_ref().unwrap().number;
                    let (session, worker) = (job.session.clone(), worker.clone());
                    let settle = SettleJob { session, worker, number, wakes: job.wakes, settlement: Settlement::Done };
                    assert_eq!(queue.settle(&settle).await.unwrap(), Settled::Done);
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }
        }));
    }
    for worker in workers {
        tokio::time::timeout(DEADLINE, worker).await.expect("all jobs are done").unwrap();
    }
}
