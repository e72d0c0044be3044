//! Trust. Files that were named are; files that were found (`rekindle.toml` here or above, paths in
//! sessions) only if nobody else can have written them, and their powers only once their content was trusted.

mod ledger;
mod place;
mod powers;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rekindle::core::Hash;
use rekindle::{Error, ErrorKind, Result};
use rekindle_definitions::{Definition, SourceFile};

pub use ledger::{Ledger, key};
pub use place::{Exposed, read};
pub use powers::of_configuration;

use crate::words::next::quoted;

/// The decisions that count in this process.
#[derive(Clone, Debug)]
pub struct Trust {
    everything: bool,
    ledger: Ledger,
    /// The files that were named in this process, whether or not that could be recorded.
    named: Arc<Mutex<HashSet<(PathBuf, Hash)>>>,
}

impl Trust {
    /// The user's decisions; with `everything`, whatever is found is trusted for this process.
    pub fn new(everything: bool) -> Self {
        Self { everything, ledger: Ledger::of_user(), named: Arc::default() }
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns whether this content of a file may be used, whoever wrote it.
    pub fn accepts(&self, path: &Path, content: Hash) -> bool {
        let named = || self.named.lock().unwrap_or_else(PoisonError::into_inner).contains(&(key(path), content));
        self.everything || named() || self.ledger.has(path, content)
    }

    /// Trusts this content of a file: here at once, and from now on if that can be recorded.
    pub fn add(&self, path: &Path, content: Hash) -> Result<()> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner).insert((key(path), content));
        self.ledger.add(path, content)
    }

    /// Trusts a definition that was named: its file and those it refers to.
    pub fn remember(&self, definition: &Definition) -> Result<()> {
        let added: Vec<_> = definition.sources().iter().map(|file| self.add(&file.path, file.hash)).collect();
        added.into_iter().collect()
    }

    /// The first file of a definition that is not trusted as it was read.
    pub fn refused<'a>(&self, definition: &'a Definition) -> Option<&'a SourceFile> {
        definition.sources().iter().find(|file| !self.accepts(&file.path, file.hash))
    }
}

/// The error of a file that others may have written.
pub fn exposed(path: &Path, exposed: &Exposed) -> Error {
    let named = quoted(&key(path).display().to_string());
    let trust = format!("look at it, then: rekindle trust {named}; or name it: --config {named}");
    let hint = exposed.remedy.as_ref().map_or(trust.clone(), |remedy| format!("{remedy}; or {trust}"));
    let message = format!("{} was found here and is not used: {}", key(path).display(), exposed.why);
    Error::new(ErrorKind::Untrusted, message).hint(hint)
}

/// The error of a configuration whose powers are not trusted.
pub fn untrusted(path: &Path, powers: &[String]) -> Error {
    let named = quoted(&key(path).display().to_string());
    let message = format!("{} was found here and is not trusted: it {}", key(path).display(), powers.join("; it "));
    Error::new(ErrorKind::Untrusted, message)
        .hint(format!("if that is as it should be: rekindle trust {named}; or name it: --config {named}"))
}

/// The endings of the name of a store for its high-water marks, and beside them.
const MARKS: [&str; 5] = ["-marks", "-marks-wal", "-marks-shm", "-marks-journal", "-marks.damaged"];

/// The paths that belong to a store, so that no tool writes them.
pub fn paths_of_store(url: &str) -> Vec<PathBuf> {
    let Some((scheme @ ("sqlite" | "file" | "objects"), path)) = url.split_once(':') else { return Vec::new() };
    let path = path.strip_prefix("//").unwrap_or(path);
    let path = path.split('?').next().unwrap_or_default();
    let beside: &[&str] = match scheme {
        "sqlite" => &["", "-wal", "-shm", "-journal", MARKS[0], MARKS[1], MARKS[2], MARKS[3], MARKS[4]],
        _ => &["", MARKS[0], MARKS[1], MARKS[2], MARKS[3], MARKS[4]],
    };
    beside.iter().map(|suffix| PathBuf::from(format!("{path}{suffix}"))).collect()
}
