//! The books of the world outside: one file for each session, which only grows. Rekindle knows nothing
//! of it.
//!
//! Whoever writes locks the file. What is booked under a fence is refused once a newer owner has asked:
//! that is what a system outside must do if an owner that was frozen may wake up at any time.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

/// A line of the books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booked {
    /// What was done: the name of the tool or the step.
    pub what: String,
    /// Under which key.
    pub key: String,
    /// By an owner of which generation.
    pub fence: u64,
}

/// The books of one session.
#[derive(Clone, Debug)]
pub struct Ledger {
    path: PathBuf,
}

impl Ledger {
    /// The books of a session in `directory`.
    pub fn of(directory: &Path, session: &str) -> Self {
        Self { path: directory.join(session) }
    }

    /// Books something, whatever stands there.
    pub fn book(&self, what: &str, key: &str, fence: u64) -> std::io::Result<()> {
        let (mut file, _) = self.locked()?;
        file.write_all(line(what, key, fence).as_bytes())
    }

    /// Books something unless a newer owner has asked about it; whether it was booked.
    pub fn book_fenced(&self, what: &str, key: &str, fence: u64) -> std::io::Result<bool> {
        let (mut file, lines) = self.locked()?;
        if lines.iter().any(|line| line.what == "asked" && line.key == key && line.fence > fence) {
            return Ok(false);
        }
        file.write_all(line(what, key, fence).as_bytes())?;
        Ok(true)
    }

    /// Whether something was booked under a key. From now on no older owner can book it.
    pub fn ask(&self, key: &str, fence: u64) -> std::io::Result<bool> {
        let (mut file, lines) = self.locked()?;
        file.write_all(line("asked", key, fence).as_bytes())?;
        Ok(lines.iter().any(|line| line.what != "asked" && line.key == key))
    }

    /// Everything that was booked.
    pub fn read(&self) -> std::io::Result<Vec<Booked>> {
        match std::fs::read_to_string(&self.path) {
            Ok(text) => Ok(lines(&text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn locked(&self) -> std::io::Result<(File, Vec<Booked>)> {
        let mut file = OpenOptions::new().create(true).append(true).read(true).open(&self.path)?;
        // Given back when the file is closed, also by a process that is killed.
        file.lock()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok((file, lines(&text)))
    }
}

fn line(what: &str, key: &str, fence: u64) -> String {
    format!("{what} {fence} {key}\n")
}

fn lines(text: &str) -> Vec<Booked> {
    let parsed = text.lines().filter_map(|line| {
        let mut words = line.splitn(3, ' ');
        let (what, fence, key) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        Some(Booked { what: what.to_owned(), key: key.to_owned(), fence })
    });
    parsed.collect()
}
