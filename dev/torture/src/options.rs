//! What to torture, and for how long.

use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;

use crate::Result;

/// Over which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// A PostgreSQL server, killed and started again now and then.
    Postgres,
    /// A Redis server whose every write is on disk, killed and started again now and then.
    Redis,
    /// One database file.
    Sqlite,
}

/// What to torture, and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// Over which store.
    pub engine: Engine,
    /// How many sessions.
    pub sessions: usize,
    /// How many worker processes.
    pub workers: usize,
    /// How long processes are killed; then everything may come to its end in peace.
    pub seconds: u64,
    /// What chance is made of.
    pub seed: u64,
    /// The command line that is tortured beside the workers.
    pub rekindle: PathBuf,
}

const USAGE: &str = "usage: rekindle-torture [postgres|redis|sqlite] [--sessions N] [--workers N] [--seconds N] [--seed N] [--rekindle PROGRAM]";

/// Reads the arguments.
pub fn parse(arguments: &[String]) -> Result<Options> {
    let seed = RandomState::new().hash_one("seed") % 1_000_000;
    let rekindle = std::env::current_exe()?.with_file_name("rekindle");
    let mut options = Options { engine: Engine::Postgres, sessions: 2_000, workers: 4, seconds: 120, seed, rekindle };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--rekindle" {
            options.rekindle = std::path::absolute(rest.next().ok_or(USAGE)?)?;
            continue;
        }
        let mut number = || rest.next().and_then(|text| text.parse::<u64>().ok()).ok_or(USAGE);
        match argument.as_str() {
            "postgres" => options.engine = Engine::Postgres,
            "redis" => options.engine = Engine::Redis,
            "sqlite" => options.engine = Engine::Sqlite,
            "--sessions" => options.sessions = usize::try_from(number()?)?,
            "--workers" => options.workers = usize::try_from(number()?)?.max(1),
            "--seconds" => options.seconds = number()?,
            "--seed" => options.seed = number()?,
            _ => return Err(USAGE.into()),
        }
    }
    if !options.rekindle.is_file() {
        let program = options.rekindle.display();
        return Err(format!("there is no {program}: build it with `cargo build -p rekindle-cli`").into());
    }
    Ok(options)
}
