//! The course of a torture: work is put in while workers die, then everything comes to its end, then
//! the books are audited.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rekindle::operations::{self, Enqueue, JobInput};
use rekindle::{Engine, ErrorKind, Json, MessageId, SessionHeader, SessionKey, Status};

use crate::Result;
use crate::audit::{self, Verdict};
use crate::chaos::{self, Workers};
use crate::options::Options;
use crate::stage::{LEASE, Stage};
use crate::subject::{CLERK, COURIER, SIGNAL};

/// How long everything may take to come to its end in peace, at least.
const PEACE: Duration = Duration::from_secs(120);
/// Every so many sessions one is a flow.
const COURIER_EVERY: usize = 3;

/// Tortures, and tells what came of it; an error if anything is not as it must be.
pub async fn torture(options: &Options) -> Result<()> {
    println!(
        "{:?}: {} sessions, {} workers, {} s, seed {}",
        options.engine, options.sessions, options.workers, options.seconds, options.seed
    );
    let stage = Arc::new(Stage::new(options.engine)?);
    let engine = Engine::open(&stage.url())?.with_lease(LEASE);
    let sessions = names(&engine, options.sessions)?;
    let put = Arc::new(AtomicUsize::new(0));
    let feeding = tokio::spawn(feed(engine.clone(), sessions.clone(), Arc::clone(&put)));
    let signalling = tokio::spawn(signal_all(engine.clone(), sessions.clone()));
    let started = Instant::now();
    let mut workers = Workers::start(&stage, options.workers)?;
    let (raging, chosen) = (Arc::clone(&stage), options.clone());
    let (done, mut workers) = tokio::task::spawn_blocking(move || {
        let done = chaos::rage(&raging, &mut workers, &chosen);
        (done, workers)
    })
    .await?;
    let done = done?;
    println!(
        "{:.0} s: {} workers killed, {} frozen past their leases, {} restarts of the server; {} sessions put in",
        started.elapsed().as_secs_f64(),
        done.killed,
        done.frozen,
        done.restarts,
        put.load(Ordering::SeqCst)
    );
    feeding.await??;
    let patience = PEACE + Duration::from_millis(60 * options.sessions as u64);
    let left = settle(&engine, &sessions, &mut workers, patience).await?;
    signalling.abort();
    if !left.is_empty() {
        let log = Workers::log(stage.logs());
        return Err(format!(
            "seed {}: {} sessions did not end: {:?}\n{}",
            options.seed,
            left.len(),
            &left[..left.len().min(5)],
            tail(&log)
        )
        .into());
    }
    drop(workers);
    let verdict = audit::audit(&engine, &sessions, &stage.books()).await?;
    tell(options, &verdict, started.elapsed())
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

fn tell(options: &Options, verdict: &Verdict, took: Duration) -> Result<()> {
    println!(
        "{:.0} s: {} sessions succeeded, {} failed as a policy says, {} runs, {} records, {} bookings ({} repeated as their policy allows, {} in doubt)",
        took.as_secs_f64(),
        verdict.succeeded,
        verdict.failed,
        verdict.runs,
        verdict.records,
        verdict.bookings,
        verdict.repeated,
        verdict.in_doubt
    );
    match verdict.faults.as_slice() {
        [] => {
            println!("the books agree with the journals");
            Ok(())
        }
        faults => {
            let shown: Vec<&str> = faults.iter().take(20).map(String::as_str).collect();
            Err(format!("seed {}: {} faults:\n  {}", options.seed, faults.len(), shown.join("\n  ")).into())
        }
    }
}

fn names(engine: &Engine, count: usize) -> Result<Vec<SessionKey>> {
    let name = |number| {
        let kind = if number % COURIER_EVERY == 0 { COURIER } else { CLERK };
        format!("{kind}-{number:05}")
    };
    Ok((0..count).map(|number| engine.key(&name(number))).collect::<rekindle::Result<_>>()?)
}

fn is_courier(session: &SessionKey) -> bool {
    session.id.as_str().starts_with(COURIER)
}

/// Repeats a call while the server is away.
async fn patiently<T>(call: impl AsyncFn() -> rekindle::Result<T>) -> rekindle::Result<T> {
    loop {
        match call().await {
            Err(error) if error.retry() == rekindle::Retry::Later => {
                tokio::time::sleep(Duration::from_millis(100)).await
            }
            done => return done,
        }
    }
}

/// Puts every session in, one after the other; what fails is repeated until it is acknowledged.
async fn feed(engine: Engine, sessions: Vec<SessionKey>, put: Arc<AtomicUsize>) -> Result<()> {
    for session in sessions {
        let agent = if is_courier(&session) { COURIER } else { CLERK };
        let mut header = SessionHeader::new(session.clone());
        header.agent = Some(agent.to_owned());
        let input = match agent {
            COURIER => JobInput::Input(Json::from(session.id.as_str())),
            _ => JobInput::Message("book it".into()),
        };
        let mut enqueue = Enqueue::new(header, "torture").input(input);
        enqueue.message = Some(MessageId::new("first")?);
        while let Err(error) = operations::enqueue(&engine, &enqueue).await {
            if error.retry() != rekindle::Retry::Later {
                return Err(format!("{session} cannot be put in: {error}").into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        put.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

/// Signals every flow once it waits; what fails is repeated until it is acknowledged.
async fn signal_all(engine: Engine, sessions: Vec<SessionKey>) -> Result<()> {
    let mut left: Vec<SessionKey> = sessions.into_iter().filter(is_courier).collect();
    while !left.is_empty() {
        let mut next = Vec::new();
        for session in left {
            match operations::signal(&engine, &session, SIGNAL, Json::from("now"), "torture").await {
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WaitClosed) => {}
                // It does not wait yet, is over, or cannot be reached now.
                Err(_) => {
                    let info = engine.journal().open(&session).await;
                    if info.is_ok_and(|info| is_over(info.status())) {
                        continue;
                    }
                    next.push(session);
                }
            }
        }
        left = next;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn is_over(status: Status) -> bool {
    matches!(status, Status::Succeeded | Status::Failed | Status::Cancelled)
}

/// Waits until every session has ended; those that have not when patience does.
async fn settle(
    engine: &Engine,
    sessions: &[SessionKey],
    workers: &mut Workers,
    patience: Duration,
) -> Result<Vec<(SessionKey, Status)>> {
    let end = Instant::now() + patience;
    let mut left: Vec<SessionKey> = sessions.to_vec();
    loop {
        let mut open = Vec::new();
        for session in left {
            let status = patiently(|| engine.journal().open(&session)).await?.status();
            // An agent is idle between turns, and so is one that was never begun.
            let over = is_over(status) || (status == Status::Idle && has_answered(engine, &session).await?);
            if !over {
                open.push((session, status));
            }
        }
        if open.is_empty() || Instant::now() > end {
            return Ok(open);
        }
        left = open.into_iter().map(|(session, _)| session).collect();
        workers.look_after(true)?;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

async fn has_answered(engine: &Engine, session: &SessionKey) -> Result<bool> {
    let state = patiently(|| engine.journal().load(session, None)).await?.state;
    Ok(state.run().is_some_and(|run| run.ended.is_some()))
}
