//! What many calls leave behind in the memory of the process.

use std::path::Path;

use rekindle_server::CancellationToken;

use super::http::{asked, prepare, serve};
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::groups::child;

/// Makes this program a server that is called many times.
pub const FLAG: &str = "--mcp-memory-child";

/// The calls, and those after which memory is looked at for the first time.
const CALLS: usize = 100_000;
const FIRST: usize = 10_000;

/// Measures it in a process of its own.
pub fn measure(bench: &Bench) -> Result<()> {
    bench.progress(&format!("memory over {CALLS} calls"));
    let directory = bench.directory()?;
    let [first, last] = child(FLAG, directory.path())?[..] else { return Err("the child says two numbers".into()) };
    let name = format!("memory after {CALLS} calls against {FIRST}");
    bench.record(name, (last, first), "bytes", Bar::AtMost(1.1))
}

/// Serves and calls, and prints what it held then and at the end.
pub fn serve_and_call(directory: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let address = serve(directory, CancellationToken::new()).await?;
        let request = prepare(address).await?;
        asked(address, &request, FIRST).await?;
        let first = resident()?;
        asked(address, &request, CALLS - FIRST).await?;
        println!("{first} {}", resident()?);
        Ok(())
    })
}

fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("the system does not say")?;
    let kilobytes: u64 = line.split_whitespace().nth(1).ok_or("the system does not say")?.parse()?;
    Ok(kilobytes * 1024)
}
