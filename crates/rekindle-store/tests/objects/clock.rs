//! Leases go by the clock of the service.

use std::time::Duration;

use rekindle_core::{BranchId, Clock, ErrorKind, NewSession, OwnerId, Store, StoreExt};
use rekindle_fixtures::S3;
use rekindle_store::{ObjectsStore, StoreOptions, SystemClock};

use crate::script::{header, key};

#[tokio::test]
async fn a_service_whose_clock_is_wrong_is_still_the_one_that_counts() {
    let dated = S3::start();
    // One whose answers have no dates tells its time by what is written.
    let undated = S3::start();
    undated.set_undated();
    let cases = [(&dated, 0), (&dated, 7 * 24 * 3600), (&dated, -3 * 24 * 3600), (&undated, 24 * 3600)];
    for (server, ahead) in cases {
        server.set_ahead(ahead);
        let bucket = format!("b{}", ahead.unsigned_abs());
        let open = || ObjectsStore::open(&server.url(&bucket), StoreOptions::new()).unwrap();
        let (one, two) = (open(), open());
        let info = one.create(&NewSession::new(header("a"))).await.unwrap();
        let off = info.created_at.0 as i64 - SystemClock.now().0 as i64 - ahead * 1_000_000;
        assert!(off.abs() < 30_000_000, "the session was created {off} µs away from the service's time");

        let owner = |name: &str| OwnerId::new(name).unwrap();
        let main = BranchId::main();
        let lease = one.acquire(&key("a"), &main, &owner("one"), Duration::from_secs(60)).await.unwrap();
        let refused = two.acquire(&key("a"), &main, &owner("two"), Duration::from_secs(60)).await.unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::AlreadyRunning { .. }), "{refused:?}");
        let renewed = one.renew(&lease, Duration::from_secs(90)).await.unwrap();
        // What waits expire by is never ahead of the service, and not much behind.
        for lease in [&lease, &renewed] {
            let service = SystemClock.now().0 as i64 + ahead * 1_000_000;
            let behind = service - lease.observed_at.0 as i64;
            assert!((0..30_000_000).contains(&behind), "{behind} µs behind the service");
            assert!(lease.info.expires_at >= lease.observed_at.plus(Duration::from_secs(60)), "{lease:?}");
        }
        // The service's time goes on, and a process that looks at it now sees the lease expired.
        server.set_ahead(ahead + 600);
        open().acquire(&key("a"), &main, &owner("two"), Duration::from_secs(60)).await.unwrap();
        let refused = one.renew(&lease, Duration::from_secs(60)).await.unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Fenced { .. }), "{refused:?}");
    }
    let asked = |server: &S3| server.take_requests().iter().filter(|request| request.key.contains("clock/")).count();
    assert_eq!(asked(&dated), 0);
    assert!(asked(&undated) > 0);
}
