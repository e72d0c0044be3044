//! A session that survives `kill -9`.
//!
//! This program starts itself as a child that works through twelve steps. Every step has a side
//! effect outside the journal: a line in a ledger file. The child is killed with SIGKILL at the
//! worst moments (before the side effect, right after it, after the commit), and started again
//! each time. In the end the ledger is counted: every step is in it exactly once.
//!
//! ```text
//! cargo run -p rekindle-store --example kill_and_recover
//! ```
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rekindle_core::codec::Codec;
use rekindle_core::record::{
    Checkpoint, CheckpointType, EffectIntent, EffectKind, EffectOutcome, InDoubtPolicy, LogAppendOutcomes,
    OutcomeStatus, RegisterSet, RunEnded, RunOutcome, RunStarted,
};
use rekindle_core::{
    BranchId, CheckpointId, EffectId, ErrorKind, Hash, Head, Journal, Json, Lease, LogName, OwnerId, Position, Record,
    RegisterKey, RunId, SessionHeader, SessionId, SessionKey, State, StateDiff, StoreExt, Target,
};
use rekindle_store::{StoreOptions, SystemClock, open, system_ids};

type Outcome<T> = Result<T, Box<dyn Error>>;

const STEPS: u64 = 12;
/// Short, so that the demonstration does not wait long for a dead owner.
const LEASE: Duration = Duration::from_millis(400);
/// When to kill the child: the step, and what it has just done.
const KILLS: [(u64, &str); 5] = [(2, "effect"), (3, "intent"), (6, "effect"), (9, "commit"), (10, "effect")];

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["worker", directory] => runtime.block_on(work(Path::new(directory))),
        [] => runtime.block_on(demonstrate()),
        _ => Err("usage: kill_and_recover (without arguments)".into()),
    }
}

fn journal(directory: &Path) -> Outcome<Journal> {
    let url = format!("sqlite:{}", directory.join("rekindle.db").display());
    let store = open(&url, StoreOptions::new())?;
    Ok(Journal::new(store, Codec::new(), Arc::new(SystemClock), system_ids()?))
}

fn session() -> Outcome<SessionKey> {
    Ok(SessionId::new("twelve-steps")?.into())
}

// ------------------------------------------------------------------------------ the parent

async fn demonstrate() -> Outcome<()> {
    let directory = std::env::temp_dir().join(format!("rekindle-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    println!("A session of {STEPS} steps on sqlite:{}\n", directory.join("rekindle.db").display());
    for (number, kill) in KILLS.iter().map(Some).chain([None]).enumerate() {
        run_child(&directory, number + 1, kill)?;
    }
    let journal = journal(&directory)?;
    let counted = count_ledger(&directory)?;
    show_timeline(&journal).await?;
    show_diff(&journal).await?;
    report(counted)?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

/// Runs the child and kills it when it says that it has just done what `kill` names.
fn run_child(directory: &Path, number: usize, kill: Option<&(u64, &str)>) -> Outcome<()> {
    let mut child =
        Command::new(std::env::current_exe()?).arg("worker").arg(directory).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or("the child has no output")?;
    let mut said = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        if kill.is_some_and(|(step, doing)| line == format!("{doing} {step}")) {
            child.kill()?;
            child.wait()?;
            let (step, doing) = kill.ok_or("there is a kill")?;
            println!("run {number}  {}; killed in step {step}, right after its {doing}", summary(&said));
            return Ok(());
        }
        said.push(line);
    }
    if !child.wait()?.success() {
        return Err(format!("run {number} failed").into());
    }
    println!("run {number}  {}; done", summary(&said));
    Ok(())
}

fn summary(said: &[String]) -> String {
    let found = |prefix: &str| said.iter().find_map(|line| line.strip_prefix(prefix).map(str::to_owned));
    let steps = said.iter().filter(|line| line.starts_with("commit ")).count();
    let mut text = found("open ").unwrap_or_default();
    if let Some(settled) = found("settled ") {
        text.push_str(&format!("; {settled}"));
    }
    text + &format!("; {steps} step{} committed", if steps == 1 { "" } else { "s" })
}

fn count_ledger(directory: &Path) -> Outcome<BTreeMap<String, usize>> {
    let mut counted = BTreeMap::new();
    for line in std::fs::read_to_string(ledger(directory))?.lines() {
        *counted.entry(line.to_owned()).or_default() += 1;
    }
    Ok(counted)
}

async fn show_timeline(journal: &Journal) -> Outcome<()> {
    println!("\nCheckpoints, newest first:");
    for found in journal.checkpoints(&session()?, None, None, 4).await? {
        let checkpoint = &found.checkpoint;
        println!(
            "  {:<8} {}  {}  {}",
            found.position.to_string(),
            found.created_at,
            checkpoint.id,
            checkpoint.description
        );
    }
    Ok(())
}

async fn show_diff(journal: &Journal) -> Outcome<()> {
    let checkpoints = journal.checkpoints(&session()?, None, None, 2).await?;
    let [newest, before] = checkpoints.as_slice() else { return Err("there are at least two checkpoints".into()) };
    let state = |position: Position| async move {
        journal.load(&session()?, Some(&position)).await.map_err(Box::<dyn Error>::from)
    };
    let diff =
        StateDiff::between(&state(before.position.clone()).await?.state, &state(newest.position.clone()).await?.state);
    println!("\nWhat the last step changed:\n{diff}");
    Ok(())
}

fn report(counted: BTreeMap<String, usize>) -> Outcome<()> {
    let repeated: Vec<_> = counted.iter().filter(|(_, count)| **count > 1).collect();
    let missing: Vec<_> = (1..=STEPS).filter(|step| !counted.contains_key(&effect_name(*step))).collect();
    println!(
        "Ledger: {} side effects after {} kills; repeated: {repeated:?}; missing: {missing:?}",
        counted.len(),
        KILLS.len()
    );
    if !repeated.is_empty() || !missing.is_empty() || counted.len() as u64 != STEPS {
        return Err("the ledger is wrong".into());
    }
    println!("Every step happened exactly once.");
    Ok(())
}

// ------------------------------------------------------------------------------- the child

/// A writer of the session's main branch under its lease.
struct Worker {
    journal: Journal,
    lease: Lease,
    head: Head,
    state: State,
    ledger: PathBuf,
    run: RunId,
}

async fn work(directory: &Path) -> Outcome<()> {
    let journal = journal(directory)?;
    let mut worker = Worker::take_over(journal, ledger(directory)).await?;
    worker.settle_what_is_in_doubt().await?;
    for step in worker.next_step()?..=STEPS {
        worker.step(step).await?;
    }
    let ended = RunEnded::new(worker.run.clone(), RunOutcome::Succeeded);
    worker.commit(vec![ended.into()]).await?;
    worker.journal.store().release(&worker.lease).await?;
    Ok(())
}

impl Worker {
    /// Opens the session and becomes its owner, once the lease of a dead one has expired.
    async fn take_over(journal: Journal, ledger: PathBuf) -> Outcome<Self> {
        let now = journal.clock().now();
        let owner = OwnerId::generate(journal.ids(), now);
        let run = RunId::generate(journal.ids(), now);
        journal.open_or_create(SessionHeader::new(session()?)).await?;
        let lease = loop {
            match journal.store().acquire(&session()?, &BranchId::main(), &owner, LEASE).await {
                Ok(lease) => break lease,
                Err(error) => match error.kind() {
                    ErrorKind::AlreadyRunning { until, .. } => {
                        tokio::time::sleep(until.since(journal.clock().now()) + Duration::from_millis(1)).await;
                    }
                    _ => return Err(error.into()),
                },
            }
        };
        let restored = journal.load(&session()?, None).await?;
        match restored.state.run() {
            None => say("open started"),
            Some(_) => say(&format!("open {} at {}", restored.state.status().seen(false), restored.position)),
        }
        let continues = restored.state.run().map(|run| run.started.run.clone());
        let mut worker = Self { journal, lease, head: restored.head, state: restored.state, ledger, run };
        let started = RunStarted::new(worker.run.clone(), "example").continuing(continues);
        worker.commit(vec![started.into()]).await?;
        Ok(worker)
    }

    /// An effect that was intended and never settled may have happened. The ledger knows.
    async fn settle_what_is_in_doubt(&mut self) -> Outcome<()> {
        let open: Vec<EffectIntent> = self.state.open_effects().map(|effect| effect.intent.clone()).collect();
        for intent in open {
            let happened =
                std::fs::read_to_string(&self.ledger).is_ok_and(|text| text.lines().any(|line| line == intent.name));
            if !happened {
                side_effect(&self.ledger, &intent.name)?;
            }
            let word = if happened { "it had happened" } else { "it had not happened" };
            say(&format!("settled {} was in doubt: {word}", intent.name));
            let step = intent.name.trim_start_matches("step ").parse()?;
            self.finish(step).await?;
        }
        Ok(())
    }

    async fn step(&mut self, step: u64) -> Outcome<()> {
        let name = effect_name(step);
        let intent = EffectIntent {
            policy: InDoubtPolicy::Check,
            run: Some(self.run.clone()),
            step: Some(step.to_string()),
            ..EffectIntent::new(EffectId::new(&name)?, EffectKind::Step, &name, Hash::of(name.as_bytes()))
        };
        self.commit(vec![intent.into()]).await?;
        say(&format!("intent {step}"));
        side_effect(&self.ledger, &effect_name(step))?;
        say(&format!("effect {step}"));
        self.finish(step).await
    }

    /// Commits the outcome, the log entry, the counter and a checkpoint as one atomic batch.
    async fn finish(&mut self, step: u64) -> Outcome<()> {
        let effect = EffectId::new(effect_name(step))?;
        let result = Json::from(format!("result of step {step}").as_str());
        let outcome = EffectOutcome::new(effect.clone(), OutcomeStatus::Ok, Some(result));
        let checkpoint = Checkpoint {
            kind: CheckpointType::Step,
            step,
            description: format!("after step {step}"),
            run: Some(self.run.clone()),
            ..Checkpoint::new(CheckpointId::generate(self.journal.ids(), self.journal.clock().now()))
        };
        self.commit(vec![
            outcome.into(),
            LogAppendOutcomes::new(LogName::new("results")?, vec![effect]).into(),
            RegisterSet::new(RegisterKey::new("steps_done")?, Json::of(&step)?).into(),
            checkpoint.into(),
        ])
        .await?;
        say(&format!("commit {step}"));
        Ok(())
    }

    async fn commit(&mut self, records: Vec<Record>) -> Outcome<()> {
        let target =
            Target::new(session()?, BranchId::main(), self.head).with_fence(self.lease.info.epoch).with_renew(LEASE);
        self.head = self.journal.append(&target, &records).await?.head;
        for record in &records {
            self.state.apply(record)?;
        }
        Ok(())
    }

    fn next_step(&self) -> Outcome<u64> {
        let done: Option<u64> = self.state.register("steps_done").map(|value| value.decode()).transpose()?;
        Ok(done.unwrap_or(0) + 1)
    }
}

fn ledger(directory: &Path) -> PathBuf {
    directory.join("ledger.txt")
}

fn effect_name(step: u64) -> String {
    format!("step {step}")
}

/// What the outside world sees: one line.
fn side_effect(ledger: &Path, name: &str) -> Outcome<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(ledger)?;
    file.write_all(format!("{name}\n").as_bytes())?;
    file.sync_data()?;
    Ok(())
}

/// Tells the parent, which may kill this process before the next line.
fn say(line: &str) {
    println!("{line}");
    // So that the parent sees the line before anything else happens.
    std::thread::sleep(Duration::from_millis(15));
}
