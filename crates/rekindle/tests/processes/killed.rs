//! A process that is killed with SIGKILL at every line of its ledger and at random moments, and
//! started again until it is done: the end is that of an unbroken run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use rekindle::Durability;
use rekindle::core::Record;
use rekindle::core::record::{OutcomeStatus, RunOutcome};
use rekindle::{BranchId, Engine, Message, Status};
use rekindle_models::{Call, Script, Turn};
use serde_json::json;
use tempfile::TempDir;

use crate::child::{End, LONG, LOST, Order, SESSION, engine, ledger};
use crate::support::{messages, records, state};

/// Runs of one scenario that are killed before the one that is let through.
const MOST_KILLS: usize = 12;
/// The lease of a process whose end nobody is told of.
const SHORT: Duration = Duration::from_millis(500);

/// Eight iterations: parallel and sequential calls of every policy, and answers told in pieces.
pub fn script() -> Script {
    let of = |what: &str| json!({ "what": what });
    let pause = Duration::from_millis(2);
    let told = |turn: Turn| turn.with_text("told in a few small pieces").streamed(7).with_chunk_delay(pause);
    Script::new("m")
        .calls([Call::new("read", of("a")), Call::new("read", of("b")), Call::new("charge", of("five"))])
        .turn(told(Turn::calls([Call::new("slow", of("z")), Call::new("email", of("bob"))])))
        .calls([Call::new("charge", of("seven")), Call::new("charge", of("nine"))])
        .turn(told(Turn::call("read", of("c"))).delayed(pause))
        .calls([Call::new("email", of("carol")), Call::new("slow", of("y"))])
        .calls([Call::new("append", of("1")), Call::new("append", of("2"))])
        .turn(Turn::calls([Call::new("slow", of("x")), Call::new("charge", of("ten")), Call::new("email", of("dan"))]))
        .turn(Turn::text("all of it is done, and told in many small pieces").streamed(5).with_chunk_delay(pause))
}

/// What an unbroken run comes to, and how many lines it says.
pub struct Unbroken {
    pub messages: Vec<Message>,
    pub lines: usize,
}

impl Unbroken {
    pub async fn new(durability: Durability) -> Self {
        let directory = TempDir::new().unwrap();
        let (said, end) = Order { durability, ..Order::new(directory.path(), "unbroken", script()) }.start().end();
        assert_eq!(end.outcome, Some(RunOutcome::Succeeded), "{end:?}");
        check_ledger(directory.path(), "unbroken");
        let engine = engine(directory.path());
        let messages = messages(&engine, &engine.key(SESSION).unwrap()).await;
        assert_eq!(messages.len(), 24, "{messages:#?}");
        Self { messages, lines: said.len() }
    }

    /// The session is at the same end, whatever happened on the way.
    pub async fn check(&self, directory: &Path, context: &str) {
        let engine = engine(directory);
        let key = engine.key(SESSION).unwrap();
        assert_eq!(messages(&engine, &key).await, self.messages, "{context}");
        let state = state(&engine, &key).await;
        assert_eq!((state.open_effects().count(), state.waits().count()), (0, 0), "{context}");
        let report = engine.journal().verify(&key, &BTreeMap::new()).await.unwrap();
        assert!(report.is_sound(), "{context}: {report:?}");
        check_ledger(directory, context);
    }
}

fn check_ledger(directory: &Path, context: &str) {
    let lines = ledger(directory).lines();
    let keys = |what: &str| -> Vec<String> {
        lines.iter().filter_map(|line| line.strip_prefix(what)).map(str::to_owned).collect()
    };
    for what in ["email bob ", "email carol ", "email dan "] {
        assert_eq!(keys(what).len(), 1, "{context}: {what}exactly once: {lines:#?}");
    }
    for what in ["charge five ", "charge seven ", "charge nine ", "charge ten ", "append 1 ", "append 2 "] {
        let keys: BTreeSet<String> = keys(what).into_iter().collect();
        assert_eq!(keys.len(), 1, "{context}: {what}with one key: {lines:#?}");
    }
}

/// The keys of model answers that are on record.
async fn recorded_answers(engine: &Engine) -> BTreeSet<String> {
    let key = engine.key(SESSION).unwrap();
    if engine.open_session(SESSION).await.is_err() {
        return BTreeSet::new();
    }
    let (mut keys, mut answered) = (BTreeMap::new(), BTreeSet::new());
    for (_, record) in records(engine, &key, &BranchId::main()).await {
        match record {
            Record::EffectIntent(intent) if intent.effect.as_str().starts_with('m') => {
                keys.insert(intent.effect, intent.idempotency_key);
            }
            Record::EffectOutcome(outcome) if outcome.status == OutcomeStatus::Ok => {
                answered.extend(keys.get(&outcome.effect).cloned());
            }
            _ => {}
        }
    }
    answered
}

/// When a process is killed.
#[derive(Clone, Copy, Debug)]
enum When {
    /// After so many of its lines.
    Lines(usize),
    /// So long after it runs.
    After(Duration),
    /// Not at all.
    Never,
}

/// Starts a process and kills it then; how it ended, if it was quicker.
fn run_and_kill(order: &Order, when: When) -> Option<End> {
    let mut process = order.start();
    match when {
        When::Never => return Some(process.end().1),
        When::Lines(lines) => {
            for _ in 0..lines {
                if process.line().is_none() {
                    return Some(process.end().1);
                }
            }
        }
        When::After(time) => {
            if process.line().is_some() {
                std::thread::sleep(time);
            }
        }
    }
    process.kill()
}

/// Runs, is killed whenever `moments` says so, and goes on until it is done. Of every three that are
/// killed nobody knows of one that it is dead, so that its lease must pass; it has a short one. On a
/// busy machine it may lose that while it works, which is one more crash.
async fn survive(durability: Durability, unbroken: &Unbroken, context: &str, moments: impl IntoIterator<Item = When>) {
    let directory = TempDir::new().unwrap();
    let mut order = Order { durability, patience: LONG, ..Order::new(directory.path(), "p0", script()) };
    let mut asked_before: Vec<(usize, BTreeSet<String>)> = Vec::new();
    for (run, when) in moments.into_iter().take(MOST_KILLS).chain([When::Never]).enumerate() {
        order.name = format!("p{run}");
        let short = run % 3 == 2 && !matches!(when, When::Never);
        order.lease = if short { SHORT } else { LONG };
        match run_and_kill(&order, when) {
            Some(end) if end.outcome == Some(RunOutcome::Succeeded) => break,
            Some(end) if short && end.code.as_deref() == Some(LOST) => {}
            Some(end) => panic!("{context}: run {run} ended with {end:?}"),
            None => {}
        }
        let engine = engine(directory.path());
        asked_before.push((ledger(directory.path()).lines().len(), recorded_answers(&engine).await));
        let begun = engine.open_session(SESSION).await.is_ok();
        // It may be killed after its last record.
        if begun && state(&engine, &engine.key(SESSION).unwrap()).await.status() == Status::Succeeded {
            break;
        }
        order.take_over = !short;
    }
    unbroken.check(directory.path(), context).await;
    let lines = ledger(directory.path()).lines();
    for (from, recorded) in asked_before {
        for line in &lines[from..] {
            let again = line.strip_prefix("asked ").is_some_and(|key| recorded.contains(key));
            assert!(!again, "{context}: `{line}` although its answer was on record: {lines:#?}");
        }
    }
}

/// A small generator, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn seed() -> u64 {
    let given = std::env::var("REKINDLE_SEED").ok().map(|seed| seed.parse().unwrap());
    let nonce = rekindle_store::system_ids().unwrap().nonce();
    given.unwrap_or_else(|| u64::from_le_bytes(nonce[..8].try_into().unwrap()) | 1)
}

/// Every second line, from `first` on: the tests share the work.
async fn at_every_line(durability: Durability, first: usize) {
    let unbroken = Unbroken::new(durability).await;
    let seed = seed();
    let mut random = Random(seed);
    for line in (first..=unbroken.lines).step_by(2) {
        // Killed there, then once more a little later.
        let again = When::Lines(2 + random.below(7) as usize);
        let context = format!("{durability:?}, killed after line {line}, then {again:?}, seed {seed}");
        survive(durability, &unbroken, &context, [When::Lines(line), again]).await;
    }
}

async fn at_random(durability: Durability) {
    let unbroken = Unbroken::new(durability).await;
    let seed = seed();
    let mut random = Random(seed);
    for round in 0..6 {
        let moments = std::iter::from_fn(|| Some(When::After(Duration::from_micros(random.below(150_000)))));
        let context = format!("{durability:?}, killed at random, round {round}, seed {seed}");
        survive(durability, &unbroken, &context, moments).await;
    }
}

#[tokio::test]
async fn at_every_odd_line_sync() {
    at_every_line(Durability::Sync, 1).await;
}

#[tokio::test]
async fn at_every_even_line_sync() {
    at_every_line(Durability::Sync, 2).await;
}

#[tokio::test]
async fn at_every_odd_line_async() {
    at_every_line(Durability::Async, 1).await;
}

#[tokio::test]
async fn at_every_even_line_async() {
    at_every_line(Durability::Async, 2).await;
}

#[tokio::test]
async fn at_random_moments_sync() {
    at_random(Durability::Sync).await;
}

#[tokio::test]
async fn at_random_moments_async() {
    at_random(Durability::Async).await;
}
