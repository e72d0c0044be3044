//! The release binary itself: made, weighed, and its demo watched.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;

const MEGABYTE: f64 = 1e6;

/// The most the binary may weigh, and the demo may hold.
const MOST_BYTES: f64 = 40.0 * MEGABYTE;
const MOST_MEMORY: f64 = 100.0 * MEGABYTE;

/// Cargo, as it runs this program or as the path has it.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The release binary, built if it must be.
pub fn built(bench: &Bench) -> Result<PathBuf> {
    bench.progress("building the release binary");
    let status = cargo()
        .args(["build", "--release", "--locked", "-p", "rekindle-cli"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdout(Stdio::null())
        .status()?;
    if !status.success() {
        return Err("the release binary cannot be built".into());
    }
    // It stands beside this program, which is a release build itself when figures count.
    let here = std::env::current_exe()?;
    let target = here.parent().and_then(Path::parent).ok_or("this program stands in no target directory")?;
    let binary = target.join("release").join("rekindle");
    if binary.is_file() { Ok(binary) } else { Err(format!("{} is not there", binary.display()).into()) }
}

/// Weighs the binary.
pub fn measure_size(bench: &Bench, rekindle: &Path) -> Result<()> {
    let bytes = std::fs::metadata(rekindle)?.len() as f64;
    bench.record("size of the release binary against 40 MB", (bytes, MOST_BYTES), "bytes", Bar::AtMost(1.0))
}

/// Watches what the demo holds, all of its processes together.
pub fn measure_demo(bench: &Bench, rekindle: &Path) -> Result<()> {
    bench.progress("the demo, its memory and its time");
    let directory = bench.directory()?;
    let start = std::time::Instant::now();
    let mut demo = Command::new(rekindle)
        .arg("demo")
        .current_dir(directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut most = 0;
    let status = loop {
        most = most.max(resident_below(demo.id())?);
        if let Some(status) = demo.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    if !status.success() {
        return Err("the demo failed".into());
    }
    bench.record("seconds of the demo against 20", (start.elapsed().as_secs_f64(), 20.0), "s", Bar::AtMost(1.0))?;
    bench.record("peak memory of the demo against 100 MB", (most as f64, MOST_MEMORY), "bytes", Bar::AtMost(1.0))
}

/// What a process and its children hold now.
fn resident_below(root: u32) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // A process may end between two looks at it.
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else { continue };
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        };
        if pid == root || field("PPid:") == Some(u64::from(root)) {
            sum += field("VmRSS:").unwrap_or(0) * 1024;
        }
    }
    Ok(sum)
}
