//! Object storage behind a proxy that delays every request: how long a durable step takes beside its conditional
//! writes, and how many requests things take. The service is an S3 in this process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rekindle::Durability;
use rekindle::core::NewSession;
use rekindle::core::record::InDoubtPolicy;
use rekindle::tool::tool;
use rekindle::{Agent, Engine, SessionHeader, SessionQuery};
use rekindle_core::Store;
use rekindle_fixtures::{Proxy, S3, S3Request};
use rekindle_store::{Bucket, StoreOptions};
use tokio::task::JoinSet;

use super::engine::subject::{LoopModel, agent};
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::groups::Group;
use crate::measure::{median, microseconds};

/// This group.
pub const GROUP: Group = Group { name: "objects", about: "object storage at 20 ms for each request", run };

/// The delay of each request.
const LATENCY: Duration = Duration::from_millis(20);
/// The time until a run that waits for a tool is idle.
const BEGINS_IN: Duration = Duration::from_secs(5);
/// Sessions that are made at once.
const MADE_AT_ONCE: usize = 16;

fn run(bench: &Bench) -> Result<()> {
    let s3 = S3::start();
    let proxy = Proxy::start(s3.port());
    proxy.set_latency(LATENCY);
    bench.block_on(async {
        steps(bench, &proxy).await?;
        idle(bench, &proxy).await?;
        for sessions in bench.size([100, 500], [500, 5_000]) {
            list(bench, &proxy, sessions).await?;
        }
        Ok(())
    })
}

fn open(proxy: &Proxy, bucket: &str) -> Result<Arc<dyn Store>> {
    Ok(rekindle_store::open(&proxy.url(bucket), StoreOptions::new())?)
}

/// The time of a conditional write, in microseconds.
async fn conditional_write(proxy: &Proxy) -> Result<f64> {
    let bucket = Bucket::open(&proxy.url("floor"), &StoreOptions::new())?;
    let mut times = Vec::new();
    for n in 0..20 {
        let start = Instant::now();
        bucket.put_new(&format!("object-{n}"), Bytes::from(vec![7; 2_000])).await?;
        times.push(microseconds(start.elapsed()));
    }
    Ok(median(&times))
}

/// A long run, its requests, and its resumption in a process that knows nothing of it.
async fn steps(bench: &Bench, proxy: &Proxy) -> Result<()> {
    bench.progress("durable steps");
    let turns = bench.size(100, 500);
    let write = conditional_write(proxy).await?;
    let engine = Engine::over(open(proxy, "steps")?)?;
    let session = engine.create("long").await?;
    let model = LoopModel::new(turns, Duration::ZERO);
    proxy.take_requests();
    agent(&model, Durability::Async, InDoubtPolicy::Idempotent)?.run_once("go", &session).await?;
    let requests = proxy.take_requests();
    let times: Vec<f64> = model.iterations().into_iter().map(microseconds).collect();
    let tenth = times.len() / 10;
    let (first, last) = (median(&times[..tenth]), median(&times[times.len() - tenth..]));
    let commits = requests.iter().filter(|request| is_change(request)).count();
    bench.record("durable step", (median(&times), 2.0 * write), "us", Bar::AtMost(2.5))?;
    bench.record(format!("last tenth of {turns} turns against the first"), (last, first), "us", Bar::AtMost(1.2))?;
    let figure = (requests.len() as f64, commits as f64);
    bench.record("requests for each commit", figure, "requests", Bar::AtMost(2.2))?;
    let cold = Engine::over(open(proxy, "steps")?)?;
    cold.journal().load(session.key(), None).await?;
    let reads = proxy.take_requests().len() as f64;
    bench.record(format!("reading {turns} steps from nothing"), (reads, 1.0), "requests", Bar::AtMost(10.0))
}

fn is_change(request: &S3Request) -> bool {
    request.method == "PUT" && request.key.contains("/log/")
}

/// A tool that takes long: nothing happens but renewals and looks for messages.
async fn idle(bench: &Bench, proxy: &Proxy) -> Result<()> {
    bench.progress("an idle session");
    let seconds = bench.size(20, 60);
    let wait = tool("fetch", "Waits.", move |_, _: serde_json::Value| async move {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok("done".to_owned())
    });
    let agent = Agent::builder("idle", LoopModel::new(1, Duration::ZERO)).tool(wait.writes().idempotent()).build()?;
    let engine = Engine::over(open(proxy, "idle")?)?;
    let session = engine.create("idle").await?;
    let run = tokio::spawn(async move { agent.run_once("go", &session).await.map(drop) });
    // It begins with commits, and with looks that become seldom.
    tokio::time::sleep(BEGINS_IN).await;
    proxy.take_requests();
    tokio::time::sleep(Duration::from_secs(seconds) - BEGINS_IN).await;
    let requests = proxy.take_requests().len() as f64;
    run.await??;
    let figure = (requests, seconds as f64 - BEGINS_IN.as_secs_f64());
    bench.record("requests of an idle session in a second", figure, "requests", Bar::AtMost(1.0))
}

/// A page of many sessions, for a process that knows none of them.
async fn list(bench: &Bench, proxy: &Proxy, sessions: usize) -> Result<()> {
    bench.progress(&format!("{sessions} sessions"));
    proxy.set_latency(Duration::ZERO);
    let bucket = format!("list-{sessions}");
    let store = open(proxy, &bucket)?;
    let engine = Engine::over(store.clone())?;
    let mut making = JoinSet::new();
    for n in 0..sessions {
        if making.len() == MADE_AT_ONCE {
            making.join_next().await.ok_or("nothing is made")???;
        }
        let (store, header) = (store.clone(), SessionHeader::new(engine.key(&format!("s{n}"))?));
        making.spawn(async move {
            store.create(&NewSession::new(header)).await.map(drop).map_err(|error| error.to_string())
        });
    }
    while let Some(made) = making.join_next().await {
        made??;
    }
    // What lists read is written behind the sessions.
    let marks = Bucket::open(&proxy.url(&bucket), &StoreOptions::new())?;
    while !marks.list("marks", None, 1).await?.is_empty() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    proxy.set_latency(LATENCY);
    let cold = open(proxy, &bucket)?;
    proxy.take_requests();
    let page = cold.list(&SessionQuery::new(Default::default()).with_limit(20)).await?;
    let requests = proxy.take_requests().len() as f64;
    if page.sessions.len() != 20 {
        return Err(format!("{} sessions are on the page", page.sessions.len()).into());
    }
    bench.record(format!("a page of {sessions} sessions"), (requests, 1.0), "requests", Bar::AtMost(5.0))
}
