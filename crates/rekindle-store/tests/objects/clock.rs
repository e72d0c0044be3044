//! Leases go by the clock of the service.

use std::time::Duration;

use rekindle_core::{BranchId, Clock, ErrorKind, NewSession, OwnerId, Store, StoreExt};
use rekindle_servers::S3;
use rekindle_store::{ObjectsStore, StoreOptions, SystemClock};

use crate::script::{header, key};

#[tokio::test]
async fn a_service_whose_clock_is_wrong_is_still_the_one_that_counts() {
    let server = S3::start();
    for ahead in [0, 7 * 24 * 3600, -3 * 24 * 3600] {
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
        one.renew(&lease, Duration::from_secs(90)).await.unwrap();
        // The service's time goes on, and a process that looks at it now sees the lease expired.
        server.set_ahead(ahead + 600);
        open().acquire(&key("a"), &main, &owner("two"), Duration::from_secs(60)).await.unwrap();
        let refused = one.renew(&lease, Duration::from_secs(60)).await.unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Fenced { .. }), "{refused:?}");
    }
}
