//! A cold release build, as somebody who clones the project sees it. Only in a full run.

use std::process::Stdio;
use std::time::Instant;

use super::binary::cargo;
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;

/// The most minutes it may take on two cores.
const MOST_MINUTES: f64 = 12.0;

/// Measures it.
pub fn measure(bench: &Bench) -> Result<()> {
    if bench.size(true, false) {
        return Ok(());
    }
    bench.progress("a cold release build on two cores");
    let directory = bench.directory()?;
    let start = Instant::now();
    let status = cargo()
        .args(["build", "--release", "--locked", "-p", "rekindle-cli", "--jobs", "2", "--target-dir"])
        .arg(directory.path())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if !status.success() {
        return Err("the release build failed".into());
    }
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    bench.record("cold release build against 12 minutes", (minutes, MOST_MINUTES), "min", Bar::AtMost(1.0))
}
