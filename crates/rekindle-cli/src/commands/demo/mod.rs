//! `rekindle demo`: an agent books a trip, its process is killed with SIGKILL again and again, and a
//! ledger that the tools write themselves proves that nothing was lost and nothing happened twice.

mod agent;
mod ledger;
mod worker;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use rekindle::{Error, ErrorKind, Result};
use rekindle_store::private::Modes;
use serde_json::json;

use crate::app::App;
use crate::cli::Colour;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::ui::{style, time};
use ledger::Ledger;

/// A process is killed as soon as the ledger has so many lines: the booking is made, and whether
/// that is on record yet is a matter of microseconds.
const KILL_AT: [usize; 4] = [2, 5, 6, 10];

/// How long a process may take before something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// The file that says that a folder may be replaced.
const MARKER: &str = ".rekindle-demo";

/// Where it happens.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rekindle demo && cd rekindle-demo && rekindle sessions show @")]
pub struct Arguments {
    /// The folder for the store and the ledger; an earlier demo in it is replaced
    #[arg(long, value_name = "DIR", default_value = "rekindle-demo")]
    dir: PathBuf,
    /// Does the work itself: what the demo starts and kills
    #[arg(long, hide = true)]
    work: bool,
    /// On this branch
    #[arg(long, hide = true, requires = "work")]
    branch: Option<String>,
}

impl Arguments {
    /// Shows it.
    pub async fn run(self, app: &App) -> Outcome {
        if self.work {
            return worker::run(app, &self.dir, self.branch.as_deref()).await;
        }
        let demo = Demo { app, dir: self.dir, began: Instant::now() };
        demo.prepare()?;
        demo.introduce();
        let killed = demo.run_and_kill()?;
        let proven = demo.prove(&killed)?;
        if proven && !app.ui.is_json() {
            demo.look_around()?;
        }
        Ok(if proven { Exit::Ok } else { Exit::Failed })
    }
}

struct Demo<'a> {
    app: &'a App,
    dir: PathBuf,
    began: Instant,
}

/// A process that was killed.
struct Killed {
    pid: u32,
    ledger: usize,
}

impl Demo<'_> {
    /// An empty folder. Nothing but an earlier demo is ever replaced.
    fn prepare(&self) -> Result<()> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::PersistFailed, format!("the folder {} cannot be made", self.dir.display()))
                .because(error)
                .hint("choose another with --dir")
        };
        if self.dir.exists() {
            if !self.dir.join(MARKER).is_file() {
                let message = format!("{} is there already and is no earlier demo", self.dir.display());
                return Err(Error::new(ErrorKind::AlreadyExists, message).hint("choose another folder with --dir"));
            }
            std::fs::remove_dir_all(&self.dir).map_err(failed)?;
        }
        Modes::PRIVATE.create_dir_all(&self.dir).map_err(failed)?;
        Modes::PRIVATE.write_new(&self.dir.join(MARKER), b"an earlier demo; may be replaced\n").map_err(failed)?;
        let (settings, text) = (self.dir.join("rekindle.toml"), b"store = \"sqlite:./rekindle.db\"\n");
        Modes::PRIVATE.write_new(&settings, text).map_err(failed)?;
        // For folders that others may write to.
        let _ = self.app.settings.trust().add(&settings, rekindle::core::Hash::of(text));
        Ok(())
    }

    fn introduce(&self) {
        let (bold, dim, reset) = (style::BOLD, style::DIM, style::RESET);
        let ui = &self.app.ui;
        ui.remark(format!(
            "{bold}An agent books a trip for four people: {} bookings, several at a time.{reset}",
            agent::BOOKINGS
        ));
        ui.remark(format!(
            "{dim}The model is scripted; the processes, the store, SIGKILL and the ledger are real.{reset}"
        ));
        ui.remark(format!(
            "{dim}Each booking is written by its tool to {}.{reset}\n",
            self.dir.join(ledger::FILE).display()
        ));
    }

    /// Starts the work, kills it, starts it again, until it ends by itself.
    fn run_and_kill(&self) -> Result<Vec<Killed>, Failure> {
        let ledger = Ledger::in_folder(&self.dir);
        let mut killed = Vec::new();
        loop {
            let mut child = self.start(None)?;
            let verb = if killed.is_empty() { "starts" } else { "goes on" };
            self.app.ui.remark(format!("{}process {} {verb}{}", style::NAME, child.id(), style::RESET));
            let limit = KILL_AT.get(killed.len()).copied();
            if self.ended(&mut child, &ledger, limit)? {
                return Ok(killed);
            }
            // SIGKILL: it can neither be caught nor prepared for.
            let _ = child.kill();
            let _ = child.wait();
            let lines = ledger.lines().len();
            let (bad, reset) = (style::ERROR, style::RESET);
            self.app.ui.remark(format!(
                "{bad}SIGKILL{reset} process {} dies with {lines} bookings in the ledger\n",
                child.id()
            ));
            killed.push(Killed { pid: child.id(), ledger: lines });
        }
    }

    /// Whether the process ended by itself before the ledger had `limit` lines.
    fn ended(&self, child: &mut Child, ledger: &Ledger, limit: Option<usize>) -> Result<bool, Failure> {
        let began = Instant::now();
        loop {
            let status = child
                .try_wait()
                .map_err(|error| Error::new(ErrorKind::StepFailed, "a process is lost").because(error))?;
            match status {
                Some(status) if status.success() => return Ok(true),
                Some(status) => {
                    return Err(Error::new(ErrorKind::StepFailed, format!("a process ended with {status}")).into());
                }
                None => {}
            }
            if limit.is_some_and(|limit| ledger.count() >= limit) {
                return Ok(false);
            }
            if began.elapsed() > PATIENCE {
                let _ = child.kill();
                return Err(Error::new(ErrorKind::StepFailed, "a process of the demo does not end").into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// This program, doing the work.
    fn start(&self, branch: Option<&str>) -> Result<Child, Failure> {
        let mut arguments = vec!["demo", "--work", "--no-input"];
        if let Some(branch) = branch {
            arguments.extend(["--branch", branch]);
        }
        let json = self.app.ui.is_json();
        let mut command = self.command(&arguments)?;
        command.arg("--dir").arg(".").stdout(if json || branch.is_none() { Stdio::null() } else { Stdio::inherit() });
        if json {
            command.stderr(Stdio::null());
        }
        Ok(command
            .spawn()
            .map_err(|error| Error::new(ErrorKind::StepFailed, "this program cannot start itself").because(error))?)
    }

    /// This program in the demo's folder, whatever the configuration around it says.
    fn command(&self, arguments: &[&str]) -> Result<Command, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Error::new(ErrorKind::Unsupported, "this program cannot find itself").because(error))?;
        let mut command = Command::new(program);
        let config = self.dir.join("rekindle.toml");
        command.args(arguments).current_dir(&self.dir);
        match self.app.global.color {
            Colour::Auto => {}
            Colour::Always => drop(command.args(["--color", "always"])),
            Colour::Never => drop(command.args(["--color", "never"])),
        }
        for key in crate::settings::KEYS {
            command.env_remove(key.variable());
        }
        command.env("REKINDLE_CONFIG", std::path::absolute(&config).unwrap_or(config));
        Ok(command)
    }

    /// What the ledger says.
    fn prove(&self, killed: &[Killed]) -> Result<bool, Failure> {
        let ledger = Ledger::in_folder(&self.dir);
        let count = ledger.audit(&agent::orders());
        let proven = count.twice == 0 && count.lost == 0 && count.strange == 0 && killed.len() == KILL_AT.len();
        let seconds = self.began.elapsed();
        if self.app.ui.is_json() {
            let killed: Vec<_> = killed.iter().map(|kill| json!({"pid": kill.pid, "bookings": kill.ledger})).collect();
            self.app.ui.json(&json!({
                "proven": proven, "kills": killed, "ordered": agent::BOOKINGS, "booked": count.booked,
                "twice": count.twice, "lost": count.lost, "strange": count.strange,
                "seconds": seconds.as_secs_f64(), "directory": self.dir.display().to_string(),
            }))?;
            return Ok(proven);
        }
        let (good, bad, bold, reset) = (style::GOOD, style::ERROR, style::BOLD, style::RESET);
        self.app.ui.line(format!("\n{bold}What the ledger says after {} SIGKILLs:{reset}", killed.len()))?;
        self.app.ui.line(format!(
            "  {} bookings ordered · {} in the ledger · {} twice · {} lost",
            agent::BOOKINGS,
            count.booked,
            count.twice,
            count.lost
        ))?;
        let verdict = match proven {
            true => format!("  {good}✓ nothing was lost and nothing happened twice{reset} ({})", time::span(seconds)),
            false => format!("  {bad}✗ that is not how it should be{reset}"),
        };
        self.app.ui.line(verdict)?;
        Ok(proven)
    }

    /// The timeline, a fork and what it changed.
    fn look_around(&self) -> Result<(), Failure> {
        self.show("The timeline", &["log", "@"])?;
        let wish = "One of us is vegetarian: say so in the summary.";
        self.show(
            "Another end, from the checkpoint before the last, on a branch of its own",
            &["fork", "@~1", "--name", "what-if", "--message", wish],
        )?;
        let status = self.start(Some("what-if"))?.wait();
        if !status.is_ok_and(|status| status.success()) {
            return Err(Error::new(ErrorKind::StepFailed, "the fork did not come to its end").into());
        }
        self.show("What differs", &["diff", "@main", "@what-if"])?;
        let (bold, reset) = (style::BOLD, style::RESET);
        let folder = self.dir.display();
        self.app.ui.line(format!("\n{bold}Look around:{reset}"))?;
        for (line, what) in [
            ("rekindle sessions show @", "all about the session"),
            ("rekindle log @", "its history with both branches"),
            ("cat ledger.txt", "what really happened"),
            ("rekindle init ../my-agent", "an agent of your own"),
        ] {
            self.app.ui.line(format!("  cd {folder} && {line:<28} {}# {what}{}", style::DIM, style::RESET))?;
        }
        Ok(())
    }

    /// Runs a command of this program and shows it as a person would have typed it.
    fn show(&self, title: &str, arguments: &[&str]) -> Result<(), Failure> {
        let (bold, dim, reset) = (style::BOLD, style::DIM, style::RESET);
        let words: Vec<_> = arguments.iter().map(|word| crate::words::next::quoted(word)).collect();
        self.app.ui.line(format!("\n{bold}{title}{reset}\n{dim}$ rekindle {}{reset}", words.join(" ")))?;
        let status = self.command(arguments)?.status();
        match status {
            Ok(status) if status.success() => Ok(()),
            _ => Err(Error::new(ErrorKind::StepFailed, format!("`rekindle {}` failed", words.join(" "))).into()),
        }
    }
}

/// The folder of the demo, for its parts.
fn inside(dir: &Path, name: &str) -> PathBuf {
    dir.join(name)
}
