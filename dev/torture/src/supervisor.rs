//! The course of a torture: work is put in while workers die, then everything comes to its end, then
//! the books are audited.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rekindle::core::QueueName;
use rekindle::operations::{self, Enqueue, JobInput};
use rekindle::{Engine, ErrorKind, Json, MessageId, SessionHeader, SessionKey, Status};

use crate::Result;
use crate::audit::{self, Verdict};
use crate::cashier::{CASHIER, Files, QUEUE, is_cashier};
use crate::chaos::{self, Workers};
use crate::hands::{self, Deeds, Desk, Program};
use crate::options::Options;
use crate::stage::{LEASE, Stage};
use crate::subject::{CLERK, COURIER, SIGNAL};

/// How long everything may take to come to its end in peace, at least.
const PEACE: Duration = Duration::from_secs(120);
/// How many people use commands at the same time.
const HANDS: u64 = 3;

/// Tortures, and tells what came of it; an error if anything is not as it must be.
pub async fn torture(options: &Options) -> Result<()> {
    println!(
        "{:?}: {} sessions, {} workers, {} s, seed {}",
        options.engine, options.sessions, options.workers, options.seconds, options.seed
    );
    let stage = Arc::new(Stage::new(options.engine)?);
    let engine = Engine::open(&stage.url())?.with_lease(LEASE);
    let sessions = names(&engine, options.sessions)?;
    let files = Files::write(stage.logs(), &stage.books())?;
    let put = Arc::new(AtomicUsize::new(0));
    let spread = Duration::from_secs(options.seconds);
    let feeding = tokio::spawn(feed(engine.clone(), sessions.clone(), files, spread, Arc::clone(&put)));
    let signalling = tokio::spawn(signal_all(engine.clone(), sessions.clone()));
    let started = Instant::now();
    let program = Program::new(&stage, options.rekindle.clone());
    let workers = Workers::start(&stage, &program, options)?;
    let (deeds, mut workers) = rage(&stage, &program, &sessions, workers, options).await?;
    println!("{:.0} s: {} sessions put in", started.elapsed().as_secs_f64(), put.load(Ordering::SeqCst));
    feeding.await??;
    let patience = PEACE + Duration::from_millis(60 * options.sessions as u64);
    let left = settle(&engine, &sessions, &mut workers, &program, patience).await?;
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
    let verdict = audit::audit(&engine, &sessions, &stage.books(), &deeds).await?;
    tell(options, &verdict, started.elapsed())
}

/// Lets chaos and people loose for as long as the options say: what people did, and the workers.
async fn rage(
    stage: &Arc<Stage>,
    program: &Program,
    sessions: &[SessionKey],
    mut workers: Workers,
    options: &Options,
) -> Result<(Deeds, Workers)> {
    let cashiers: Vec<SessionKey> = sessions.iter().filter(|key| is_cashier(key)).cloned().collect();
    let desk = Desk { sessions: cashiers, since: Instant::now(), spread: Duration::from_secs(options.seconds) };
    let stop = Arc::new(AtomicBool::new(false));
    let people = (0..HANDS).map(|hand| {
        let (program, desk, stop) = (program.clone(), desk.clone(), Arc::clone(&stop));
        let seed = options.seed.wrapping_mul(HANDS) + hand;
        tokio::task::spawn_blocking(move || hands::work(&program, &desk, seed, &stop))
    });
    let people: Vec<_> = people.collect();
    let (raging, chosen) = (Arc::clone(stage), options.clone());
    let (done, workers) = tokio::task::spawn_blocking(move || {
        let done = chaos::rage(&raging, &mut workers, &chosen);
        (done, workers)
    })
    .await?;
    stop.store(true, Ordering::SeqCst);
    let mut deeds = Deeds::default();
    for person in people {
        deeds.add(person.await??);
    }
    let done = done?;
    println!(
        "{} workers killed, {} frozen past their leases, {} restarts of the server; {} commands, {} of them killed, \
         {} answers and {} cancels acknowledged",
        done.killed,
        done.frozen,
        done.restarts,
        deeds.commands,
        deeds.killed,
        deeds.answers.len(),
        deeds.cancelled.len()
    );
    Ok((deeds, workers))
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

fn tell(options: &Options, verdict: &Verdict, took: Duration) -> Result<()> {
    println!(
        "{:.0} s: {} sessions succeeded, {} failed as a policy says, {} were cancelled, {} waits answered, {} expired, {} runs, {} records, {} bookings ({} repeated as their policy allows, {} in doubt)",
        took.as_secs_f64(),
        verdict.succeeded,
        verdict.failed,
        verdict.cancelled,
        verdict.answered,
        verdict.expired,
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
        let kind = [COURIER, CASHIER, CLERK][number % 3];
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
            Err(error) if error.retry() == rekindle::core::Retry::Later => {
                tokio::time::sleep(Duration::from_millis(100)).await
            }
            done => return done,
        }
    }
}

/// Puts every session in, one after the other; what fails is repeated until it is acknowledged. Those
/// that people have to do with become ready over `spread`.
async fn feed(
    engine: Engine,
    sessions: Vec<SessionKey>,
    files: Files,
    spread: Duration,
    put: Arc<AtomicUsize>,
) -> Result<()> {
    let count = sessions.len();
    for (number, session) in sessions.into_iter().enumerate() {
        let cashier = is_cashier(&session);
        let agent = if is_courier(&session) { COURIER } else { CLERK };
        let mut header = SessionHeader::new(session.clone());
        header.agent = Some(if cashier { CASHIER } else { agent }.to_owned());
        if cashier {
            header.metadata.insert("definition".to_owned(), files.definition(number)?);
        }
        let input = match agent {
            COURIER => JobInput::Input(Json::from(session.id.as_str())),
            _ => JobInput::Message("book it".into()),
        };
        let mut enqueue = Enqueue::new(header, "torture").input(input);
        enqueue.message = Some(MessageId::new("first")?);
        if cashier {
            enqueue.queue = QueueName::new(QUEUE)?;
            enqueue = enqueue.after(spread.mul_f64(number as f64 / count as f64));
        }
        while let Err(error) = operations::enqueue(&engine, &enqueue).await {
            if error.retry() != rekindle::core::Retry::Later {
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

/// Waits until every session has ended; those that have not when patience does. What waits for a
/// person after a command was killed is resumed by one.
async fn settle(
    engine: &Engine,
    sessions: &[SessionKey],
    workers: &mut Workers,
    program: &Program,
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
        let (program, cashiers) = (program.clone(), left.iter().filter(|key| is_cashier(key)).cloned().collect());
        tokio::task::spawn_blocking(move || hands::resume_all(&program, &Vec::<SessionKey>::clone(&cashiers)))
            .await??;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

async fn has_answered(engine: &Engine, session: &SessionKey) -> Result<bool> {
    let state = patiently(|| engine.journal().load(session, None)).await?.state;
    Ok(state.run().is_some_and(|run| run.ended.is_some()))
}
