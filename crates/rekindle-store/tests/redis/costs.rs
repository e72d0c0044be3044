//! What calls cost, in commands sent to the server.

use std::time::Duration;

use rekindle_core::{BranchId, Namespace, OwnerId, SessionQuery, Store as _, StoreExt as _};
use rekindle_fixtures::Redis;

use crate::fixtures::{created, key, step, store};

/// How often clients sent a command since the last look.
fn sent(server: &Redis, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test]
async fn an_append_is_one_command_however_long_the_history() {
    let server = Redis::start(&[]);
    let handle = store(&server.url());
    created(&*handle, "a").await;
    let owner = OwnerId::new("o").unwrap();
    let lease = handle.acquire(&key("a"), &BranchId::main(), &owner, Duration::from_secs(600)).await.unwrap();
    let mut head = lease.head;
    for round in 0..3 {
        server.command(&["CONFIG", "RESETSTAT"]);
        for _ in 0..100 {
            let mut append = step("a", head, 200);
            (append.fence, append.renew) = (Some(lease.info.epoch), Some(Duration::from_secs(600)));
            head = handle.append(&append).await.unwrap().head;
        }
        // The server learns the script with the first one.
        let learned = u64::from(round == 0);
        assert_eq!((sent(&server, "evalsha"), sent(&server, "eval")), (100, learned));
        assert_eq!((sent(&server, "xadd"), sent(&server, "hset"), sent(&server, "hmget")), (100, 100, 100));
        assert_eq!((sent(&server, "hgetall"), sent(&server, "xrange")), (0, 0));
    }
}

#[tokio::test]
async fn a_page_of_a_list_costs_what_it_holds() {
    let server = Redis::start(&[]);
    let handle = store(&server.url());
    for number in 0..600 {
        created(&*handle, &format!("s{number}")).await;
    }
    server.command(&["CONFIG", "RESETSTAT"]);
    let page = handle.list(&SessionQuery::new(Namespace::default()).with_limit(10)).await.unwrap();
    assert_eq!(page.sessions.len(), 10);
    assert!(sent(&server, "hgetall") <= 128, "{} sessions were fetched", sent(&server, "hgetall"));
}
