//! How fast the binary starts, against a program that only says hello.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::measure::Rounds;

/// Measures `rekindle --version`.
pub fn measure(bench: &Bench, rekindle: &Path) -> Result<()> {
    bench.progress("starting");
    let directory = bench.directory()?;
    let hello = hello_world(directory.path())?;
    let rounds = Rounds { rounds: bench.size(10, 40), each: 5 };
    let compared = bench.block_on(rounds.compare(
        async || timed(Command::new(&hello)),
        async || {
            let mut command = Command::new(rekindle);
            command.arg("--version");
            timed(command)
        },
    ))?;
    bench.record("rekindle --version", (compared.figure, compared.floor), "us", Bar::AtMost(5.0))
}

/// A program that says hello, built as its author would for speed.
pub fn hello_world(directory: &Path) -> Result<PathBuf> {
    let (source, program) = (directory.join("hello.rs"), directory.join("hello"));
    std::fs::write(&source, "fn main() { println!(\"hello, world\"); }\n")?;
    let status = Command::new("rustc").arg("-O").arg("-o").arg(&program).arg(&source).status()?;
    if status.success() { Ok(program) } else { Err("rustc cannot build a program that says hello".into()) }
}

/// How long a program takes from its start to its end.
pub fn timed(mut command: Command) -> Result<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status()?;
    let took = start.elapsed();
    if status.success() { Ok(took) } else { Err(format!("{command:?} ended with {status}").into()) }
}
