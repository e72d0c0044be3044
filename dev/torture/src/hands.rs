//! What people do meanwhile: resume, answer and cancel with commands, at random, each a process whose
//! wall clock is off by some hours, some of them killed before they are done.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rekindle::SessionKey;

use crate::Result;
use crate::random::Random;
use crate::stage::{LEASE, Stage};

/// How long a command may take, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);
/// The exit status of a command whose store cannot be reached.
const UNREACHABLE: i32 = 8;
/// How many sessions people have in hand at a time.
const AT_ONCE: u64 = 6;
/// By how many seconds wall clocks are off.
const OFFSETS: [&str; 6] = ["0", "0", "0", "7200", "-7200", "86400"];

/// How commands are started.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    url: String,
    home: PathBuf,
}

impl Program {
    /// The command line over the store of `stage`.
    pub fn new(stage: &Stage, path: PathBuf) -> Self {
        Self { path, url: stage.url(), home: stage.logs().to_owned() }
    }

    /// A command with a wall clock of its own.
    pub fn command(&self, random: &mut Random, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments).args(["--store", &self.url]).current_dir(&self.home).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", &self.home);
        // Its agents are put in by others, whose files nobody named on a command line.
        command.env("REKINDLE_TRUST", "1");
        command.env("REKINDLE_LEASE", format!("{}s", LEASE.as_secs())).env("USER", "torture");
        let offset = OFFSETS[random.below(OFFSETS.len() as u64) as usize];
        command.env("REKINDLE_TEST_CLOCK_OFFSET", offset);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// What was done by hand, and what was acknowledged.
#[derive(Clone, Debug, Default)]
pub struct Deeds {
    /// Commands that were started.
    pub commands: u32,
    /// Those of them that were killed.
    pub killed: u32,
    /// Answers that were acknowledged: the session, and whether it was yes.
    pub answers: Vec<(SessionKey, bool)>,
    /// Sessions that somebody wanted to cancel.
    pub unwanted: BTreeSet<SessionKey>,
    /// Those of which it was said that they are cancelled.
    pub cancelled: BTreeSet<SessionKey>,
}

impl Deeds {
    /// Adds what another pair of hands did.
    pub fn add(&mut self, other: Self) {
        self.commands += other.commands;
        self.killed += other.killed;
        self.answers.extend(other.answers);
        self.unwanted.extend(other.unwanted);
        self.cancelled.extend(other.cancelled);
    }
}

/// What people have to do with: sessions that become ready one after the other.
#[derive(Clone, Debug)]
pub struct Desk {
    /// The sessions.
    pub sessions: Vec<SessionKey>,
    /// Since when, and over how long, they become ready.
    pub since: Instant,
    pub spread: Duration,
}

impl Desk {
    /// One of those that became ready lately, or will soon.
    fn pick(&self, random: &mut Random) -> Option<&SessionKey> {
        let ready = self.since.elapsed().div_duration_f64(self.spread) * self.sessions.len() as f64;
        let index = (ready as u64 + 1).saturating_sub(random.below(AT_ONCE));
        self.sessions.get(usize::try_from(index).ok()?.min(self.sessions.len().checked_sub(1)?))
    }
}

/// Does one thing after the other until it is told to stop. Blocks.
pub fn work(program: &Program, desk: &Desk, seed: u64, stop: &AtomicBool) -> Result<Deeds> {
    let (mut random, mut deeds) = (Random::new(seed), Deeds::default());
    while !stop.load(Ordering::SeqCst) {
        let Some(session) = desk.pick(&mut random) else { break };
        let id = session.id.as_str();
        match random.below(100) {
            0..45 => drop(carry_out(program, &mut random, &mut deeds, &["resume", id])?),
            45..94 => {
                let approves = random.below(2) == 0;
                let said = if approves { ["--approve", "--reason=fine"] } else { ["--reject", "no"] };
                if carry_out(program, &mut random, &mut deeds, &["answer", id, said[0], said[1]])? == Some(0) {
                    deeds.answers.push((session.clone(), approves));
                }
            }
            _ => {
                deeds.unwanted.insert(session.clone());
                if carry_out(program, &mut random, &mut deeds, &["cancel", id, "--yes", "--wait", "6s"])? == Some(0) {
                    deeds.cancelled.insert(session.clone());
                }
            }
        }
    }
    Ok(deeds)
}

/// The exit status of a command, unless it was killed.
fn carry_out(program: &Program, random: &mut Random, deeds: &mut Deeds, arguments: &[&str]) -> Result<Option<i32>> {
    let child = program.command(random, arguments).spawn()?;
    deeds.commands += 1;
    let killed = random.below(4) == 0;
    let patience = if killed { random.millis(5, 200) } else { PATIENCE };
    let code = ended(child, patience)?;
    deeds.killed += u32::from(code.is_none());
    if code == Some(UNREACHABLE) {
        std::thread::sleep(random.millis(100, 500));
    }
    match (killed, code) {
        (false, None) => Err(format!("{arguments:?} did not end in {PATIENCE:?}").into()),
        _ => Ok(code),
    }
}

/// The exit status of a process, which is killed when patience ends.
fn ended(mut child: Child, patience: Duration) -> Result<Option<i32>> {
    let until = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        if Instant::now() >= until {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Resumes every session once, in peace; what that says does not matter.
pub fn resume_all(program: &Program, sessions: &[SessionKey]) -> Result<()> {
    let mut random = Random::new(0);
    for session in sessions {
        ended(program.command(&mut random, &["resume", session.id.as_str()]).spawn()?, PATIENCE)?;
    }
    Ok(())
}
