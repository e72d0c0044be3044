//! What happens to the workers: at random, for a while.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Result;
use crate::cashier::QUEUE;
use crate::hands::Program;
use crate::options::Options;
use crate::random::Random;
use crate::stage::{LEASE, Stage};

/// How many sessions one worker runs at once.
const CONCURRENCY: &str = "8";

/// How long a server runs at least: on a busy machine it takes some seconds to come back.
const QUIET: Duration = Duration::from_secs(6);

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Workers killed.
    pub killed: u32,
    /// Workers frozen for longer than a lease, and let go on.
    pub frozen: u32,
    /// Times the server was killed and started again.
    pub restarts: u32,
}

/// What a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// This program, with agents in code.
    Library,
    /// The command line, with an agent in a file.
    Command,
}

#[derive(Debug)]
struct Worker {
    kind: Kind,
    process: Child,
}

/// The worker processes. They end with this.
#[derive(Debug)]
pub struct Workers {
    url: String,
    stage: (std::path::PathBuf, std::path::PathBuf),
    program: Program,
    clocks: Random,
    running: Vec<Worker>,
    frozen: Vec<(Pid, Instant)>,
}

impl Workers {
    /// Starts so many of each kind.
    pub fn start(stage: &Stage, program: &Program, options: &Options) -> Result<Self> {
        let (url, stage) = (stage.url(), (stage.books(), stage.logs().to_owned()));
        let (program, clocks) = (program.clone(), Random::new(options.seed));
        let mut workers = Self { url, stage, program, clocks, running: Vec::new(), frozen: Vec::new() };
        for _ in 0..options.workers {
            workers.add(Kind::Library)?;
            workers.add(Kind::Command)?;
        }
        Ok(workers)
    }

    fn add(&mut self, kind: Kind) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.stage.1.join("workers.log"))?;
        let mut command = match kind {
            Kind::Library => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["--as-worker", &self.url]).arg(&self.stage.0).arg(CONCURRENCY);
                command
            }
            Kind::Command => {
                let arguments = ["worker", "--queue", QUEUE, "--attempts", "1000", "--concurrency", CONCURRENCY];
                self.program.command(&mut self.clocks, &arguments)
            }
        };
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        self.running.push(Worker { kind, process });
        Ok(())
    }

    /// Kills one and starts another.
    fn kill(&mut self, random: &mut Random) -> Result<()> {
        let index = random.below(self.running.len() as u64) as usize;
        let mut worker = self.running.swap_remove(index);
        // One that has ended by itself needs no killing.
        let _ = worker.process.kill();
        worker.process.wait()?;
        self.add(worker.kind)
    }

    /// Freezes one for longer than its leases last.
    fn freeze(&mut self, random: &mut Random) -> Result<bool> {
        let index = random.below(self.running.len() as u64) as usize;
        let pid = pid(&self.running[index].process)?;
        if self.frozen.iter().any(|(frozen, _)| *frozen == pid) {
            return Ok(false);
        }
        kill_process(pid, Signal::STOP)?;
        let for_long = LEASE.mul_f64(1.2) + random.millis(0, 2_000);
        self.frozen.push((pid, Instant::now() + for_long));
        Ok(true)
    }

    /// Lets those go on that were frozen long enough, and starts what ended by itself anew.
    pub fn look_after(&mut self, all: bool) -> Result<()> {
        let now = Instant::now();
        self.frozen.retain(|(pid, until)| {
            let goes_on = all || *until <= now;
            if goes_on {
                // One that was killed meanwhile needs nothing.
                let _ = kill_process(*pid, Signal::CONT);
            }
            !goes_on
        });
        let is_over = |worker: &mut Worker| !matches!(worker.process.try_wait(), Ok(None));
        let ended: Vec<Worker> = self.running.extract_if(.., is_over).collect();
        ended.iter().try_for_each(|worker| self.add(worker.kind))
    }

    /// What they had to say.
    pub fn log(directory: &Path) -> String {
        std::fs::read_to_string(directory.join("workers.log")).unwrap_or_default()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.running {
            let _ = worker.process.kill();
            let _ = worker.process.wait();
        }
    }
}

fn pid(child: &Child) -> Result<Pid> {
    let id = i32::try_from(child.id())?;
    Ok(Pid::from_raw(id).ok_or("a process without a number")?)
}

/// Does it for as long as the options say. Blocks.
pub fn rage(stage: &Stage, workers: &mut Workers, options: &Options) -> Result<Done> {
    let (mut random, mut done) = (Random::new(options.seed), Done::default());
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut restart_at = Instant::now();
    while Instant::now() < end {
        std::thread::sleep(random.millis(100, 900));
        match random.below(100) {
            0..60 => {
                workers.kill(&mut random)?;
                done.killed += 1;
            }
            60..92 => done.frozen += u32::from(workers.freeze(&mut random)?),
            _ if restart_at <= Instant::now() => {
                done.restarts += u32::from(stage.restart_server(random.millis(50, 1_500)));
                restart_at = Instant::now() + QUIET;
            }
            _ => {}
        }
        workers.look_after(false)?;
    }
    workers.look_after(true)?;
    Ok(done)
}
