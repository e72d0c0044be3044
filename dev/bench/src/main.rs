//! The benchmarks of Rekindle: every figure beside the floor of the machine it was measured on,
//! taken in the same run. What the figures mean is written down in `docs/performance.md`.
//!
//! ```text
//! cargo run --release -p rekindle-bench -- [GROUP…] [--quick] [--json] [--check] [--dir PATH]
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod cli;
mod directory;
mod figure;
mod floor;
mod groups;
mod measure;
mod workload;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::bench::Bench;
use crate::cli::{Command, Options};
use crate::directory::DataDirectory;
use crate::figure::Figure;
use crate::groups::{GROUPS, Group};

/// The one of the binary `rekindle`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Whatever went wrong: nobody handles it, it is only told.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The call was wrong, or a measurement could not be made.
const FAILED: u8 = 2;
/// With `--check`: a bar was missed.
const MISSED: u8 = 1;

fn main() -> ExitCode {
    if let Some(done) = as_child() {
        return match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {}", chain(&*error));
                ExitCode::from(FAILED)
            }
        };
    }
    let names: Vec<_> = GROUPS.iter().map(|group| group.name).collect();
    let options = match cli::parse(std::env::args().skip(1), &names) {
        Ok(Command::Help) => {
            print!("{}", cli::help(GROUPS));
            return ExitCode::SUCCESS;
        }
        Ok(Command::Run(options)) => options,
        Err(message) => {
            eprintln!("error: {message}\n\nTry --help.");
            return ExitCode::from(FAILED);
        }
    };
    match run(&options) {
        Ok(figures) => verdict(&figures, options.check),
        Err(error) => {
            eprintln!("error: {}", chain(&*error));
            ExitCode::from(FAILED)
        }
    }
}

/// What this process did, if it is a child that measures itself for another.
fn as_child() -> Option<Result<()>> {
    let mut arguments = std::env::args().skip(1);
    groups::as_child(&arguments.next()?, &PathBuf::from(arguments.next()?))
}

fn run(options: &Options) -> Result<Vec<Figure>> {
    if cfg!(debug_assertions) {
        eprintln!("warning: this is a debug build; its figures mean nothing. Use cargo run --release.");
    }
    let data = DataDirectory::create(options.directory.as_deref())?;
    let mut figures = Vec::new();
    for group in GROUPS.iter().filter(|group| options.wants(group.name)) {
        figures.extend(run_group(group, options, &data)?);
    }
    if !options.json {
        print!("{}", figure::table(&figures));
    }
    Ok(figures)
}

fn run_group(group: &Group, options: &Options, data: &DataDirectory) -> Result<Vec<Figure>> {
    let bench = Bench::new(group.name, options, data.path())?;
    (group.run)(&bench)?;
    Ok(bench.finish())
}

fn verdict(figures: &[Figure], check: bool) -> ExitCode {
    let missed: Vec<_> = figures.iter().filter(|figure| !figure.is_ok()).collect();
    for figure in &missed {
        eprintln!("missed: {} / {}: {:.2}, the bar is {}", figure.group, figure.name, figure.ratio(), figure.bar);
    }
    if check && !missed.is_empty() { ExitCode::from(MISSED) } else { ExitCode::SUCCESS }
}

/// An error with everything that caused it.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
