//! From the start of the process to the answer of `tools/list` on standard output, against a program that only
//! says hello.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::groups::cli::{built, hello_world, timed};
use crate::measure::Rounds;

const ASKED: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n",
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#,
    "\n",
);

/// Measures it.
pub fn measure(bench: &Bench) -> Result<()> {
    let rekindle = built(bench)?;
    bench.progress("the first answer on stdio");
    let directory = bench.directory()?;
    let hello = hello_world(directory.path())?;
    let rounds = Rounds { rounds: bench.size(10, 40), each: 5 };
    let compared = bench.block_on(
        rounds.compare(async || timed(Command::new(&hello)), async || first_answer(&rekindle, directory.path())),
    )?;
    let name = "process start to the answer of tools/list, stdio";
    bench.record(name, (compared.figure, compared.floor), "us", Bar::AtMost(20.0))
}

/// How long it takes until the tools are listed. The store is there after the first time.
fn first_answer(rekindle: &Path, directory: &Path) -> Result<Duration> {
    let mut command = Command::new(rekindle);
    command.arg("mcp").current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let start = Instant::now();
    let mut child = command.spawn()?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let (mut input, output) = input.zip(output).ok_or("the child has no pipes")?;
    input.write_all(ASKED.as_bytes())?;
    let answered = BufReader::new(output).lines().map_while(|line| line.ok()).any(|line| line.contains("\"id\":2"));
    let took = start.elapsed();
    drop(input);
    let status = child.wait()?;
    if answered && status.success() { Ok(took) } else { Err(format!("rekindle mcp ended with {status}").into()) }
}
