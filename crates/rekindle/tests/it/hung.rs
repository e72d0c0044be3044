//! A store of which single calls are never answered, as over a connection that nobody has noticed is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rekindle::core::LeaseAction;
use rekindle::{Engine, Flow, Result};
use rekindle_store::{MemoryStore, StoreOptions};
use rekindle_testkit::{Call, Hook, Hooked};
use tokio::sync::Semaphore;

const LEASE: Duration = Duration::from_millis(900);
/// As many renewals as a lease without any would not live to see.
const RENEWALS: u32 = 6;

/// Once a run has begun, looks at the session are never answered, and every other renewal is not either.
#[derive(Debug)]
struct Hangs {
    asked: AtomicU64,
    renewed: Semaphore,
}

#[async_trait]
impl Hook for Hangs {
    async fn before(&self, call: Call<'_>) -> Result<()> {
        let hangs = match call {
            Call::Lease(request) if matches!(request.action, LeaseAction::Renew { .. }) => {
                self.asked.fetch_add(1, Ordering::SeqCst).is_multiple_of(2)
            }
            Call::Open(_) => self.asked.load(Ordering::SeqCst) > 0,
            _ => false,
        };
        if hangs { std::future::pending().await } else { Ok(()) }
    }

    async fn after(&self, call: Call<'_>) -> Result<()> {
        if matches!(call, Call::Lease(request) if matches!(request.action, LeaseAction::Renew { .. })) {
            self.renewed.add_permits(1);
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_hang_do_not_cost_a_run_its_lease() {
    let hangs = Arc::new(Hangs { asked: AtomicU64::new(0), renewed: Semaphore::new(0) });
    let store = Hooked::new(Arc::new(MemoryStore::new(StoreOptions::new())), hangs.clone());
    let engine = Engine::over(Arc::new(store)).unwrap().with_lease(LEASE).with_poll(Duration::from_millis(20));
    let session = engine.create("s").await.unwrap();
    let flow = Flow::new("long", move |ctx, (): ()| {
        let hangs = hangs.clone();
        async move {
            ctx.step("wait", &(), async |_| {
                let renewed = hangs.renewed.acquire_many(RENEWALS).await;
                Ok(renewed.is_ok())
            })
            .await
        }
    });
    let run = tokio::time::timeout(Duration::from_secs(60), flow.run_once(&(), &session)).await;
    let report = run.expect("the lease is renewed").unwrap();
    assert_eq!(report.value.unwrap().as_str(), "true");
}
