//! Workers over PostgreSQL: how fast they wake, how soon they take over, and what an idle one asks.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rekindle::core::Target;
use rekindle::core::record::InboxMessage;
use rekindle::operations::{self, Enqueue, JobInput};
use rekindle::wait::WaitSpec;
use rekindle::worker::Worker;
use rekindle::{BranchId, Engine, Flow, Json, MessageId, SessionHeader, SessionKey, Status};
use rekindle_core::queue::Notice;
use rekindle_fixtures::Postgres;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, NoTls};
use tokio_util::sync::CancellationToken;

use super::connect;
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::measure::{median, microseconds};

/// How long leases and claims last where somebody is killed.
const LEASE: Duration = Duration::from_secs(3);
/// What a takeover may take beyond that.
const GRACE: Duration = Duration::from_secs(1);
/// The flag of the worker that is killed.
const DOOMED: &str = "--doomed-worker";

/// Measures workers.
pub async fn measure(bench: &Bench, postgres: &Postgres) -> Result<()> {
    wake_up(bench, postgres).await?;
    takeover(bench, postgres).await?;
    idle(bench, postgres).await
}

/// Works until it is killed, if this process is the one to be.
pub fn as_child(flag: &str, directory: &Path) -> Option<Result<()>> {
    (flag == DOOMED).then(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let url = std::fs::read_to_string(directory.join("url"))?;
        let engine = Engine::open(&url)?.with_lease(LEASE);
        let started = directory.join("started");
        let flow = Flow::new("long", move |flow, (): ()| {
            let started = started.clone();
            async move {
                flow.step("sleep", &(), async |_| {
                    let _ = std::fs::write(&started, "");
                    std::future::pending::<()>().await;
                    Ok(())
                })
                .await
            }
        });
        runtime.block_on(Worker::builder(engine).work(flow).build()?.run(CancellationToken::new()))?;
        Ok(())
    })
}

/// A connection, and what it is notified of.
async fn listening(postgres: &Postgres, channel: &str) -> Result<(Client, mpsc::UnboundedReceiver<()>)> {
    let (client, mut connection) = tokio_postgres::connect(&postgres.url(), NoTls).await?;
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                let _ = sender.send(());
            }
        }
    });
    client.batch_execute(&format!("LISTEN {channel}")).await?;
    Ok((client, receiver))
}

/// From one connection to another and back, with nothing else.
async fn bare_round_trip(postgres: &Postgres, count: usize) -> Result<f64> {
    let (one, mut to_one) = listening(postgres, "one").await?;
    let (other, mut to_other) = listening(postgres, "other").await?;
    let answering = tokio::spawn(async move {
        while to_other.recv().await.is_some() {
            if other.batch_execute("NOTIFY one").await.is_err() {
                return;
            }
        }
    });
    let mut times = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        one.batch_execute("NOTIFY other").await?;
        to_one.recv().await.ok_or("the connection ended")?;
        times.push(microseconds(start.elapsed()));
    }
    answering.abort();
    Ok(median(&times))
}

/// A flow that waits for a signal, and says when it goes on.
fn waiting_flow(woken: mpsc::UnboundedSender<Instant>) -> Flow {
    Flow::new("waiting", move |flow, rounds: u32| {
        let woken = woken.clone();
        async move {
            for round in 0..rounds {
                flow.wait(&format!("wait-{round}"), &WaitSpec::signal("go")).await?;
                let woken = woken.clone();
                flow.step(&format!("step-{round}"), &(), async |_| {
                    let _ = woken.send(Instant::now());
                    Ok(())
                })
                .await?;
            }
            Ok(())
        }
    })
}

async fn enqueue(engine: &Engine, name: &str, agent: &str, input: Json) -> Result<SessionKey> {
    let mut header = SessionHeader::new(engine.key(name)?);
    header.agent = Some(agent.to_owned());
    let key = header.key.clone();
    operations::enqueue(engine, &Enqueue::new(header, "bench").input(JobInput::Input(input))).await?;
    Ok(key)
}

async fn until_status(engine: &Engine, session: &SessionKey, wanted: Status) -> Result<()> {
    while engine.journal().open(session).await?.status() != wanted {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// How long after a message was written to an inbox a worker hears of it; and how long after somebody
/// began to give a signal, all the checks of that included, the session that gave its process up goes
/// on with its next step.
async fn wake_up(bench: &Bench, postgres: &Postgres) -> Result<()> {
    bench.progress("wake-up after a signal, postgres");
    let rounds = bench.size(60, 300);
    let floor = bare_round_trip(postgres, 500).await?;
    let engine = Engine::open(&format!("{}?schema=wake", postgres.url()))?;
    let (sender, mut woken) = mpsc::unbounded_channel();
    let session = enqueue(&engine, "waiting", "waiting", Json::of(&rounds)?).await?;
    let hearing = hear(bench, &engine).await?;
    let drain = CancellationToken::new();
    let worker = Worker::builder(engine.clone()).work(waiting_flow(sender)).build()?;
    let working = tokio::spawn(worker.run(drain.clone()));
    let mut going_on = Vec::new();
    for _ in 0..rounds {
        until_status(&engine, &session, Status::Waiting).await?;
        // What the worker still has to say about the job is none of this figure's business.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let start = Instant::now();
        operations::signal(&engine, &session, "go", Json::from("now"), "bench").await?;
        let at = woken.recv().await.ok_or("the worker ended")?;
        going_on.push(microseconds(at.duration_since(start)));
    }
    drain.cancel();
    working.await??;
    let bar = Bar::AtMost(5.0);
    bench.record("a worker hears of what is in an inbox, postgres, p50", (hearing, floor), "us", bar)?;
    bench.record("a session that gave its process up goes on, postgres, p50", (median(&going_on), floor), "us", bar)
}

/// From writing to an inbox to whoever listens, with a job to wake.
async fn hear(bench: &Bench, engine: &Engine) -> Result<f64> {
    let session = enqueue(engine, "heard", "nobody", Json::null()).await?;
    let journal = engine.journal();
    let mut notices = journal.store().queue().ok_or("PostgreSQL keeps a queue")?.listen().await?;
    let mut head = journal.open(&session).await?.branch(&BranchId::inbox())?.head;
    let mut times = Vec::new();
    for round in 0..bench.size(200, 1_000) {
        let message = InboxMessage::new(MessageId::new(format!("m{round}"))?, Json::from("now"));
        let target = Target::new(session.clone(), BranchId::inbox(), head);
        let start = Instant::now();
        head = journal.append(&target, &[message.into()]).await?.head;
        while notices.next().await != Notice::Inbox(session.clone()) {}
        times.push(microseconds(start.elapsed()));
    }
    Ok(median(&times))
}

/// How long after a worker was killed another one goes on with its session.
async fn takeover(bench: &Bench, postgres: &Postgres) -> Result<()> {
    bench.progress("takeover after SIGKILL, postgres");
    let mut times = Vec::new();
    for round in 0..bench.size(2, 5) {
        let url = format!("{}?schema=takeover{round}", postgres.url());
        times.push(microseconds(one_takeover(bench, &url).await?));
    }
    let most = microseconds(LEASE + GRACE);
    let longest = times.into_iter().fold(0.0, f64::max);
    bench.record("takeover after SIGKILL, against lease + 1 s, longest", (longest, most), "us", Bar::AtMost(1.0))
}

async fn one_takeover(bench: &Bench, url: &str) -> Result<Duration> {
    let directory = bench.directory()?;
    std::fs::write(directory.path().join("url"), url)?;
    let engine = Engine::open(url)?.with_lease(LEASE);
    enqueue(&engine, "long", "long", Json::null()).await?;
    let mut doomed = doomed(directory.path())?;
    while !directory.path().join("started").exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (sender, mut begun) = mpsc::unbounded_channel();
    let flow = Flow::new("long", move |flow, (): ()| {
        let sender = sender.clone();
        async move {
            flow.step("sleep", &(), async |_| {
                let _ = sender.send(Instant::now());
                Ok(())
            })
            .await
        }
    });
    let drain = CancellationToken::new();
    let working = tokio::spawn(Worker::builder(engine).work(flow).build()?.run(drain.clone()));
    // Long enough for both to have given signs of life.
    tokio::time::sleep(LEASE).await;
    doomed.kill()?;
    let killed = Instant::now();
    doomed.wait()?;
    let at = tokio::time::timeout(LEASE * 10, begun.recv()).await?.ok_or("the worker ended")?;
    drain.cancel();
    working.await??;
    Ok(at.duration_since(killed))
}

fn doomed(directory: &Path) -> Result<Child> {
    Ok(Command::new(std::env::current_exe()?).arg(DOOMED).arg(directory).spawn()?)
}

/// How many transactions a worker with nothing to do asks of the server.
async fn idle(bench: &Bench, postgres: &Postgres) -> Result<()> {
    let name = "queries of an idle worker, against one per second, postgres";
    bench.progress(name);
    let client = connect(postgres).await?;
    client.batch_execute("CREATE DATABASE idle").await?;
    let url = format!("{}idle", postgres.url().trim_end_matches("rekindle"));
    let engine = Engine::open(&url)?;
    let drain = CancellationToken::new();
    let flow = Flow::new("nothing", async |_, (): ()| Ok(()));
    let working = tokio::spawn(Worker::builder(engine).work(flow).build()?.run(drain.clone()));
    // Statistics are written with a delay; what counts is what was written in between.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let (before, start) = (transactions(&client).await?, Instant::now());
    tokio::time::sleep(Duration::from_secs(bench.size(30, 90))).await;
    let rate = (transactions(&client).await? - before) as f64 / start.elapsed().as_secs_f64();
    drain.cancel();
    working.await??;
    bench.record(name, (rate, 1.0), "queries/s", Bar::AtMost(1.0))
}

async fn transactions(client: &Client) -> Result<i64> {
    let sql = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'idle'";
    Ok(client.query_one(sql, &[]).await?.get(0))
}
