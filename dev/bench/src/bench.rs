//! What every measurement has at hand: the size of the run, a place on the disk, a runtime, and
//! where figures go.

use std::cell::RefCell;
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::Result;
use crate::cli::Options;
use crate::figure::{Bar, Figure};

/// Threads of the runtime, the same on every machine.
const WORKERS: usize = 2;

/// The run of one group.
#[derive(Debug)]
pub struct Bench {
    group: &'static str,
    quick: bool,
    json: bool,
    directory: PathBuf,
    runtime: Runtime,
    started: Instant,
    figures: RefCell<Vec<Figure>>,
}

impl Bench {
    /// A run of `group` with its data under `directory`.
    pub fn new(group: &'static str, options: &Options, directory: &Path) -> Result<Self> {
        Ok(Self {
            group,
            quick: options.quick,
            json: options.json,
            directory: directory.to_owned(),
            runtime: Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?,
            started: Instant::now(),
            figures: RefCell::default(),
        })
    }

    /// Runs `work` on the runtime.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// The size of something in a quick run, or in a full one.
    pub fn size<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// An empty directory for one figure, gone when it is dropped.
    pub fn directory(&self) -> Result<TempDir> {
        Ok(tempfile::tempdir_in(&self.directory)?)
    }

    /// Says what is being done now.
    pub fn progress(&self, what: &str) {
        eprintln!("[{:>6.1} s] {}: {what}", self.started.elapsed().as_secs_f64(), self.group);
    }

    /// Takes a figure in, and shows it at once if it is to be read by a program.
    pub fn record(
        &self,
        name: impl Into<String>,
        (value, floor): (f64, f64),
        unit: &'static str,
        bar: Bar,
    ) -> Result<()> {
        let figure = Figure { group: self.group, name: name.into(), value, unit, floor, bar };
        if self.json {
            println!("{}", figure.json()?);
            std::io::stdout().flush()?;
        }
        self.figures.borrow_mut().push(figure);
        Ok(())
    }

    /// Everything that was measured.
    pub fn finish(self) -> Vec<Figure> {
        self.progress("done");
        self.figures.into_inner()
    }
}
