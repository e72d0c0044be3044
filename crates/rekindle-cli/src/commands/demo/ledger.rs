//! The ledger of the demo: a file the tools append to. It knows nothing of journals.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rekindle_store::private::Modes;

/// The name of the file.
pub const FILE: &str = "ledger.txt";

/// A file with one line for each booking that really happened: key, tool, what.
#[derive(Clone, Debug)]
pub struct Ledger(PathBuf);

/// How the ledger compares with what was ordered.
#[derive(Debug, PartialEq, Eq)]
pub struct Audit {
    /// Lines in the ledger.
    pub booked: usize,
    /// Bookings made more than once.
    pub twice: usize,
    /// Orders without a booking.
    pub lost: usize,
    /// Bookings nobody ordered.
    pub strange: usize,
}

impl Ledger {
    /// The ledger in `folder`.
    pub fn in_folder(folder: &Path) -> Self {
        Self(super::inside(folder, FILE))
    }

    /// Books. On disk when this returns.
    pub fn append(&self, key: &str, tool: &str, what: &str) -> io::Result<()> {
        let mut file = Modes::PRIVATE.append(&self.0)?;
        file.write_all(format!("{key}\t{tool}\t{what}\n").as_bytes())?;
        file.sync_data()
    }

    /// Whether something was booked under `key`.
    pub fn has(&self, key: &str) -> bool {
        self.lines().iter().any(|line| line.split('\t').next() == Some(key))
    }

    /// Its lines.
    pub fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// How many whole lines it has.
    pub fn count(&self) -> usize {
        std::fs::read(&self.0).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
    }

    /// Compares it with what was ordered.
    pub fn audit(&self, orders: &[(String, String)]) -> Audit {
        let lines = self.lines();
        let mut made: HashMap<(String, String), usize> = HashMap::new();
        for line in &lines {
            let mut fields = line.split('\t').skip(1).map(str::to_owned);
            *made.entry((fields.next().unwrap_or_default(), fields.next().unwrap_or_default())).or_default() += 1;
        }
        Audit {
            booked: lines.len(),
            twice: made.values().filter(|times| **times > 1).count(),
            lost: orders.iter().filter(|order| !made.contains_key(*order)).count(),
            strange: made.keys().filter(|booked| !orders.contains(booked)).count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_finds_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::in_folder(folder.path());
        let order = |tool: &str, what: &str| (tool.to_owned(), what.to_owned());
        let orders = [order("room", "a"), order("room", "b")];
        assert_eq!(ledger.audit(&orders), Audit { booked: 0, twice: 0, lost: 2, strange: 0 });
        for (key, what) in [("k1", "a"), ("k2", "a"), ("k3", "c")] {
            ledger.append(key, "room", what).unwrap();
        }
        assert_eq!(ledger.audit(&orders), Audit { booked: 3, twice: 1, lost: 1, strange: 1 });
        assert!(ledger.has("k2") && !ledger.has("k"));
    }
}
