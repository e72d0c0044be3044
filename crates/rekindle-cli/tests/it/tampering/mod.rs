//! Every kind of damage to what is stored, on every store, with every protection: see `table.rs`.

mod expected;
mod files;
mod objects;
mod postgres;
mod prepared;
mod redis;
mod sqlite;
mod status;
mod table;

use expected::{Expected, NOTHING, Told, compare};
use prepared::{Copied, Prepared};
use table::{How, Marks, Protection, Store, TABLE};

use crate::processes::lines;

/// Damages a copy of a store.
fn damage(store: Store, copied: &Copied, how: How) {
    match store {
        Store::Sqlite => sqlite::damage(copied, how),
        Store::Files => files::damage(copied, how),
        Store::Objects => objects::damage(copied, how),
        Store::Postgres => postgres::damage(copied, how),
        Store::Redis => redis::damage(copied, how),
    }
}

/// All cells of one store with one protection.
fn check(store: Store, protection: Protection) {
    let prepared = Prepared::new(store, protection);
    let untouched = prepared.copy("untouched", false, Marks::Kept);
    let mut wrong = outcome(&prepared, &untouched, &untouched, How::Older, NOTHING.unwrap(), "untouched");
    for (number, row) in TABLE.iter().enumerate() {
        let Some(expected) = row.expected(store, protection) else { continue };
        // A run changes the store, and reading may mend an index: each has a copy of its own.
        let [read, run] = ["read", "run"].map(|purpose| {
            let copied = prepared.copy(&format!("{purpose}{number}"), row.how == How::Older, row.marks);
            damage(store, &copied, row.how);
            copied
        });
        let name = format!("{:?}, marks {:?}", row.how, row.marks);
        wrong.extend(outcome(&prepared, &read, &run, row.how, expected, &name));
    }
    assert!(wrong.is_empty(), "{} {}: {} cells\n{}", store.name(), protection.name(), wrong.len(), wrong.join("\n"));
}

/// Runs every command on a copy, the run on another; what is not as expected.
fn outcome(prepared: &Prepared, read: &Copied, run: &Copied, how: How, expected: Expected, name: &str) -> Vec<String> {
    let mut resume = vec!["resume", "s", "--file", "cashier.yaml"];
    if how == How::Branch {
        resume.extend(["--branch", "forged"]);
    }
    let columns: [(&str, &Copied, &[&str], Told); 6] = [
        ("verify", read, &["verify", "s"], expected.verify),
        ("verify --all", read, &["verify", "--all"], expected.verify_all),
        ("export", read, &["export", "s", "-o", "s.jsonl"], expected.export),
        ("export --all", read, &["export", "--all", "-o", "all"], expected.export_all),
        ("copy", read, &["copy", "--to", "sqlite:./copy.db"], expected.copy),
        ("resume", run, &resume, expected.resume),
    ];
    let mut wrong = Vec::new();
    for (column, copied, words, told) in columns {
        let said = copied.run(words);
        wrong.extend(compare(column, told, &said, copied, prepared).map(|wrong| format!("{name}: {wrong}")));
    }
    let ledger = lines(&run.place.path("ledger.txt"));
    let calls = |call: &str| ledger.iter().filter(|line| *line == call).count();
    if (calls("one"), calls("two") > 1) != (if expected.repeats { 2 } else { 1 }, false) {
        wrong.push(format!("{name}: the ledger says {ledger:?}"));
    }
    wrong
}

#[test]
fn sqlite_plain() {
    check(Store::Sqlite, Protection::Plain);
}

#[test]
fn sqlite_signed() {
    check(Store::Sqlite, Protection::Signed);
}

#[test]
fn sqlite_encrypted() {
    check(Store::Sqlite, Protection::Encrypted);
}

#[test]
fn files_plain() {
    check(Store::Files, Protection::Plain);
}

#[test]
fn files_signed() {
    check(Store::Files, Protection::Signed);
}

#[test]
fn files_encrypted() {
    check(Store::Files, Protection::Encrypted);
}

#[test]
fn objects_plain() {
    check(Store::Objects, Protection::Plain);
}

#[test]
fn objects_signed() {
    check(Store::Objects, Protection::Signed);
}

#[test]
fn objects_encrypted() {
    check(Store::Objects, Protection::Encrypted);
}

#[test]
fn postgres_plain() {
    check(Store::Postgres, Protection::Plain);
}

#[test]
fn postgres_signed() {
    check(Store::Postgres, Protection::Signed);
}

#[test]
fn postgres_encrypted() {
    check(Store::Postgres, Protection::Encrypted);
}

#[test]
fn redis_plain() {
    check(Store::Redis, Protection::Plain);
}

#[test]
fn redis_signed() {
    check(Store::Redis, Protection::Signed);
}

#[test]
fn redis_encrypted() {
    check(Store::Redis, Protection::Encrypted);
}
