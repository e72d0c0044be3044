//! The store before anything happens to it, prepared once, and copies of it, byte for byte.

use std::path::Path;
use std::process::Command;

use rekindle_fixtures::{Postgres, Redis};

use super::table::{Marks, Protection, Store};
use super::{postgres, redis};
use crate::support::{Place, Said, said};

const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Charges after each of two questions.
const CASHIER: &str = r#"
name: cashier
model:
  provider: scripted
  script:
    name: scripted
    turns:
      - calls: [{name: ask}]
      - calls: [{name: charge, arguments: {what: one}}]
      - calls: [{name: ask}]
      - calls: [{name: charge, arguments: {what: two}}]
      - text: done
tools:
  - {name: ask, description: Asks., question: {prompt: May I?, schema: {type: boolean}}}
  - name: charge
    description: Charges.
    parameters: {what: string}
    shell: echo "$REKINDLE_ARG_WHAT" >> ledger.txt
    in_doubt: never
"#;

/// The commands of the preparation: those before the older copy is taken, and those behind it.
const BEFORE: [(&[&str], i32); 2] =
    [(&["run", "cashier.yaml", "go", "--quiet", "--session"], 4), (&["answer", "SESSION", "true"], 0)];
const BEHIND: [(&[&str], i32); 4] = [
    (&["resume", "SESSION", "--quiet"], 4),
    (&["fork", "SESSION@~1", "--name", "other"], 0),
    (&["checkpoint", "pin", "SESSION@~1"], 0),
    (&["answer", "SESSION", "true"], 0),
];

/// A store with the sessions `s` and `t`, and the same store as it was earlier.
///
/// Each session was charged for once since then, has a second branch and a pinned checkpoint, and waits on a question
/// whose answer is in its inbox: a resume charges a second time and is done.
pub struct Prepared {
    pub store: Store,
    protection: Protection,
    place: Place,
    /// The sessions as they are exported before anything happens to them.
    pub exported: String,
}

/// A copy of the store to damage, in a place of its own.
pub struct Copied {
    pub place: Place,
    /// The schema or the prefix, for stores on servers.
    pub name: String,
}

impl Prepared {
    pub fn new(store: Store, protection: Protection) -> Self {
        let place = Place::new();
        let name = format!("tamper_{}_{}", store.name(), protection.name());
        furnish(&place, store, protection, &name, Marks::Kept);
        run_all(&place, "t", &BEFORE);
        run_all(&place, "t", &BEHIND);
        std::fs::remove_file(place.path("ledger.txt")).unwrap();
        run_all(&place, "s", &BEFORE);
        std::fs::create_dir(place.path("older")).unwrap();
        take(&place.path(""), &place.path("older"), &["data", "marks", "anchor"]);
        store.duplicate(&name, &format!("{name}_older"));
        run_all(&place, "s", &BEHIND);
        assert_eq!(std::fs::read_to_string(place.path("ledger.txt")).unwrap(), "one\n");
        let exported = place.ok(&["export", "s"]);
        Self { store, protection, place, exported }
    }

    /// A copy for one cell of the table. `older`: of the earlier state.
    pub fn copy(&self, cell: &str, older: bool, marks: Marks) -> Copied {
        let place = Place::new();
        let base = format!("tamper_{}_{}", self.store.name(), self.protection.name());
        let name = format!("{base}_{cell}");
        furnish(&place, self.store, self.protection, &name, marks);
        let now = self.place.path("");
        let then = self.place.path("older");
        take(if older { &then } else { &now }, &place.path(""), &["data"]);
        match marks {
            Marks::Kept => take(&now, &place.path(""), &["marks", "anchor"]),
            Marks::Along => take(&then, &place.path(""), &["marks", "anchor"]),
            Marks::Off => {}
        }
        std::fs::copy(now.join("ledger.txt"), place.path("ledger.txt")).unwrap();
        self.store.duplicate(&if older { format!("{base}_older") } else { base }, &name);
        Copied { place, name }
    }
}

impl Copied {
    /// Runs a command, which may not hang.
    pub fn run(&self, arguments: &[&str]) -> Said {
        let ordinary = self.place.command(arguments);
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "60"]).arg(ordinary.get_program()).args(ordinary.get_args());
        command.env_clear().stdin(std::process::Stdio::null()).current_dir(self.place.path(""));
        command.envs(ordinary.get_envs().filter_map(|(name, value)| Some((name, value?))));
        said(command)
    }
}

fn run_all(place: &Place, session: &str, commands: &[(&[&str], i32)]) {
    for (words, code) in commands {
        let mut words: Vec<String> = words.iter().map(|word| word.replace("SESSION", session)).collect();
        if words.last().is_some_and(|word| word == "--session") {
            words.push(session.to_owned());
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = place.run(&words);
        assert_eq!(said.code, *code, "{words:?}\n{}\n{}", said.out, said.err);
    }
}

/// Writes what a process needs to use the store: agent, key and configuration.
fn furnish(place: &Place, store: Store, protection: Protection, name: &str, marks: Marks) {
    place.write("cashier.yaml", CASHIER);
    place.write("key", KEY);
    let url = match store {
        Store::Sqlite => "sqlite:./data".to_owned(),
        Store::Files => "file:./data".to_owned(),
        Store::Objects => "objects:./data".to_owned(),
        Store::Postgres => format!("{}?schema={name}", Postgres::shared().url()),
        Store::Redis => format!("{}?prefix={name}", Redis::shared().url()),
    };
    let marks = match (marks, store) {
        (Marks::Off, _) => "marks = false\n",
        (_, Store::Sqlite | Store::Files) => "",
        _ => "anchor = \"file:./anchor\"\n",
    };
    let keys = match protection {
        Protection::Plain => "",
        Protection::Signed => "[signing]\nkey = \"@file:key\"\nid = \"k1\"\n",
        Protection::Encrypted => "[encryption]\nkey = \"@file:key\"\nid = \"k1\"\n",
    };
    place.configure(&format!("store = \"{url}\"\n{marks}{keys}"));
}

/// Copies what is there of the store's files: the data, the marks beside it, or the anchor.
fn take(from: &Path, to: &Path, what: &[&str]) {
    let is_wanted = |name: &str| match name {
        name if name.starts_with("data-marks") => what.contains(&"marks"),
        name if name.starts_with("data") => what.contains(&"data"),
        name => name == "anchor" && what.contains(&"anchor"),
    };
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        if is_wanted(entry.file_name().to_str().unwrap()) {
            let copied = Command::new("cp").arg("-a").arg(entry.path()).arg(to).status().unwrap();
            assert!(copied.success());
        }
    }
}

impl Store {
    /// Copies the rows or keys of a store on a server.
    fn duplicate(self, from: &str, to: &str) {
        match self {
            Self::Postgres => postgres::duplicate(from, to),
            Self::Redis => redis::duplicate(from, to),
            Self::Sqlite | Self::Files | Self::Objects => {}
        }
    }
}
