//! The ledger: a file of what was asked and answered, shared by several processes.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use rekindle::model::ModelError;

/// Appends lines to a file.
#[derive(Debug)]
pub(crate) struct Ledger(PathBuf);

impl Ledger {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn asked(&self, key: &str) -> Result<(), ModelError> {
        self.append("asked", key)
    }

    pub(crate) fn answered(&self, key: &str) -> Result<(), ModelError> {
        self.append("answered", key)
    }

    fn append(&self, what: &str, key: &str) -> Result<(), ModelError> {
        let line = format!("{what} {}\n", key.replace(['\n', '\r'], " "));
        // One write of a whole line to a file open for appending: lines of several processes do
        // not mix, and none is lost when this process is killed.
        let written = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.0)
            .and_then(|mut file| file.write_all(line.as_bytes()).and_then(|()| file.flush()));
        written
            .map_err(|error| ModelError::fatal(format!("the ledger {} cannot be written: {error}", self.0.display())))
    }
}
