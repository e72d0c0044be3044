//! What decides something is believed only from whoever has the key: rows that somebody else wrote, files that
//! nobody signed, processes without the key. And sessions that were erased stay so.

use rusqlite::Connection;

use crate::cashier::{cashier, ledger};
use crate::support::{Place, Said};

const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const OTHER: &str = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100";

/// Charges, asks, and charges again.
const CALLS: [&str; 3] = ["charge", "ask", "charge"];

/// A place whose store is protected by `[signing]` or `[encryption]`.
fn protected(how: &str) -> Place {
    let place = Place::new();
    place.write("cashier.yaml", &cashier(&CALLS));
    place.write("key", KEY);
    place.write("other", OTHER);
    configure(&place, &format!("[{how}]\nkey = \"@file:key\"\nid = \"k1\"\n"));
    place
}

/// Marks would notice some of it too; here they must not be needed.
fn configure(place: &Place, keys: &str) {
    place.configure(&format!("store = \"sqlite:./data.db\"\nmarks = false\n{keys}"));
}

fn charged(place: &Place, session: &str) {
    let said = place.run(&["run", "cashier.yaml", "go", "--session", session, "--quiet"]);
    assert_eq!(said.code, 4, "{}{}", said.out, said.err);
}

fn database(place: &Place) -> Connection {
    Connection::open(place.path("data.db")).unwrap()
}

fn says(said: &Said, code: i32, text: &str) {
    let all = format!("{}{}", said.out, said.err);
    assert!(said.code == code && all.contains(text), "{code}, {text}: {} {all}", said.code);
}

#[test]
fn a_branch_that_somebody_made_up_is_found_and_not_run() {
    for how in ["signing", "encryption"] {
        let place = protected(how);
        charged(&place, "s");
        // Forked before the call, with the hash that plain sessions begin a fork with.
        let database = database(&place);
        let sql = "INSERT INTO branches (session, name, parent_branch, fork_seq, head, head_hash, status, created_at, updated_at, epoch)
            SELECT b.session, 'forged', 'main', f.first - 1, f.first - 1, substr(f.body, 49, 32), 'idle', b.created_at, b.updated_at, 1
            FROM branches b JOIN frames f ON f.branch = b.id WHERE b.name = 'main' AND f.first > 1 ORDER BY f.first LIMIT 1";
        assert_eq!(database.execute(sql, []).unwrap(), 1);
        says(&place.run(&["verify", "s"]), 7, "forged");
        says(&place.run(&["resume", "s", "--branch", "forged"]), 7, "RK0011");
        // To make it the current one changes nothing either.
        let sql = "UPDATE sessions SET current_branch = (SELECT id FROM branches WHERE name = 'forged')";
        assert_eq!(database.execute(sql, []).unwrap(), 1);
        assert_eq!(place.json(&["sessions", "show", "s"])["current"], "main", "{how}");
        assert_eq!(place.run(&["resume", "s"]).code, 4, "{how}: it waits on main");
        assert_eq!(ledger(&place), 1, "{how}");
    }
}

#[test]
fn headers_that_were_exchanged_or_changed_decide_nothing() {
    for how in ["signing", "encryption"] {
        let place = protected(how);
        charged(&place, "one");
        charged(&place, "two");
        let database = database(&place);
        let header = |session: &str| -> String {
            database.query_row("SELECT header FROM sessions WHERE session = ?1", [session], |row| row.get(0)).unwrap()
        };
        let set = |session: &str, header: &str| {
            database.execute("UPDATE sessions SET header = ?2 WHERE session = ?1", [session, header]).unwrap();
        };
        let (one, two) = (header("one"), header("two"));
        let tagged = one.replacen('{', r#"{"tags":["forged"],"#, 1);
        let swapped = two.replace("\"two\"", "\"one\"");
        let check = |name: &str, forged: &str| {
            set("one", forged);
            assert_eq!(place.run(&["verify", "one"]).code, 7, "{how} {name}");
            assert_eq!(place.run(&["resume", "one"]).code, 7, "{how} {name}");
            set("one", &one);
            assert_eq!(place.run(&["verify", "one"]).code, 0, "{how} {name}");
        };
        check("of another session", &swapped);
        check("with a tag", &tagged);
        check("without its seal", &strip(&one));
    }
}

/// A stored header without its seal.
fn strip(header: &str) -> String {
    let mut value: serde_json::Value = serde_json::from_str(header).unwrap();
    assert!(value.as_object_mut().unwrap().remove("sealed").is_some());
    value.to_string()
}

#[test]
fn a_process_without_the_key_writes_nothing() {
    for how in ["signing", "encryption"] {
        let place = protected(how);
        charged(&place, "s");
        configure(&place, "");
        for command in
            [&["send", "s", "hello"][..], &["answer", "s", "true"], &["cancel", "s"], &["fork", "s"], &["resume", "s"]]
        {
            let said = place.run(command);
            assert!(said.code != 0 && said.err.contains("RK0013"), "{how} {command:?}: {} {}", said.code, said.err);
        }
        configure(&place, &format!("[{how}]\nkey = \"@file:key\"\nid = \"k1\"\n"));
        place.ok(&["verify", "s"]);
        place.ok(&["answer", "s", "true"]);
        says(&place.run(&["resume", "s"]), 0, "done");
    }
}

#[test]
fn what_nobody_signed_is_taken_only_if_that_is_said_and_on_record() {
    let plain = Place::new();
    plain.write("cashier.yaml", &cashier(&CALLS));
    configure(&plain, "");
    charged(&plain, "s");
    plain.ok(&["export", "s", "--output", "plain.jsonl"]);
    for how in ["signing", "encryption"] {
        let place = protected(how);
        let file = plain.path("plain.jsonl").display().to_string();
        says(&place.run(&["import", &file]), 7, "RK0028");
        says(&place.run(&["sessions", "show", "s"]), 3, "RK0003");
        place.ok(&["import", &file, "--accept-unverified", "--reason", "from the old machine"]);
        place.ok(&["verify", "s"]);
        let records = place.ok(&["log", "s", "--branch", "inbox", "--records"]);
        assert!(records.contains("unverified_import") && records.contains("from the old machine"), "{records}");
        // What it exports itself needs no word, and one that was changed is refused.
        place.ok(&["export", "s", "--output", "own.jsonl"]);
        place.ok(&["import", "own.jsonl", "--as", "again"]);
        let text = std::fs::read_to_string(place.path("own.jsonl")).unwrap();
        let forged: Vec<&str> = text.lines().filter(|line| !line.contains("effect_intent")).collect();
        place.write("forged.jsonl", &(forged.join("\n") + "\n"));
        assert_ne!(place.run(&["import", "forged.jsonl", "--as", "forged"]).code, 0);
        // A copy of what is plain is refused too.
        let from = format!("sqlite:{}", plain.path("data.db").display());
        says(&place.run(&["copy", "s", "--from", &from, "--to", "sqlite:./copy.db"]), 7, "RK0028");
    }
}

#[test]
fn an_erased_session_leaves_a_receipt_and_copies_that_nobody_can_read() {
    let place = protected("encryption");
    charged(&place, "s");
    // A backup of the records, without the keys.
    place.ok(&["copy", "s", "--to", "sqlite:./backup.db"]);
    Connection::open(place.path("backup.db")).unwrap().execute("DELETE FROM small_values", []).unwrap();
    place.ok(&["copy", "s", "--to", "file:./elsewhere"]);
    place.ok(&["sessions", "rm", "s", "--yes", "--receipt", "receipt.json"]);
    let receipt = std::fs::read_to_string(place.path("receipt.json")).unwrap();
    let told: serde_json::Value = serde_json::from_str(&receipt).unwrap();
    let copies = told["data_key"]["copies"].as_array().unwrap();
    assert!(copies.len() == 2 && copies[0].as_str().unwrap().contains("backup.db"), "{receipt}");
    assert!(told["notice"].as_str().unwrap().contains("backups of the key table"), "{receipt}");
    let keys: i64 = database(&place).query_row("SELECT count(*) FROM small_values", [], |row| row.get(0)).unwrap();
    assert_eq!(keys, 0);
    says(&place.run(&["verify", "--receipt", "receipt.json"]), 0, "nothing of it is in the store");
    // What is left can be put in order, and not read.
    let backup = ["--store", "sqlite:./backup.db"];
    let with = |arguments: &[&'static str]| place.run(&[&backup[..], arguments].concat());
    says(&with(&["verify", "--receipt", "receipt.json"]), 0, "whole and in order");
    says(&with(&["verify", "s"]), 7, "their order and completeness hold");
    says(&with(&["sessions", "inspect", "s"]), 7, "RK0013");
    let left = Connection::open(place.path("backup.db")).unwrap();
    let cut = "DELETE FROM frames WHERE id = (SELECT max(id) FROM frames)";
    assert_eq!(left.execute(cut, []).unwrap(), 1);
    says(&with(&["verify", "--receipt", "receipt.json"]), 7, "not what was erased");
    // A receipt that was changed proves nothing.
    place.write("forged.json", &receipt.replace("\"s\"", "\"t\""));
    says(&place.run(&["verify", "--receipt", "forged.json"]), 7, "the signature does not fit");
}

#[test]
fn a_rotation_wraps_keys_anew_and_rewrites_no_record() {
    let place = protected("encryption");
    charged(&place, "s");
    let frames = |place: &Place| -> Vec<Vec<u8>> {
        let database = database(place);
        let mut read = database.prepare("SELECT body FROM frames ORDER BY id").unwrap();
        read.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let before = frames(&place);
    configure(&place, "[encryption]\nkey = \"@file:other\"\nid = \"k2\"\nold = { k1 = \"@file:key\" }\n");
    says(&place.run(&["keys", "rewrap"]), 0, "1 data key wrapped");
    says(&place.run(&["keys", "rewrap"]), 0, "0 data keys wrapped with the active key, 1 already");
    assert_eq!(frames(&place), before);
    configure(&place, "[encryption]\nkey = \"@file:other\"\nid = \"k2\"\n");
    place.ok(&["verify", "s"]);
    place.ok(&["answer", "s", "true"]);
    says(&place.run(&["resume", "s"]), 0, "done");
}

#[test]
fn keys_of_archives_follow_a_rotation_and_are_no_orphans() {
    let place = protected("encryption");
    let keys = |place: &Place| -> i64 {
        database(place).query_row("SELECT count(*) FROM small_values", [], |row| row.get(0)).unwrap()
    };
    for session in ["archived", "live"] {
        charged(&place, session);
        place.ok(&["cancel", session]);
    }
    place.ok(&["archive", "archived", "--to", "objects:./archive"]);
    says(&place.run(&["keys", "prune", "--apply"]), 0, "no data key is without a session or an archive");
    configure(&place, "[encryption]\nkey = \"@file:other\"\nid = \"k2\"\nold = { k1 = \"@file:key\" }\n");
    says(&place.run(&["keys", "rewrap"]), 0, "2 data keys wrapped");
    configure(&place, "archive = \"objects:./archive\"\n[encryption]\nkey = \"@file:other\"\nid = \"k2\"\n");
    place.ok(&["archive", "restore", "archived"]);
    place.ok(&["verify", "--all"]);
    // A session that somebody deleted by hand leaves its key.
    let sql = "DELETE FROM sessions WHERE session = 'live'";
    assert_eq!(database(&place).execute(sql, []).unwrap(), 1);
    // Its records are there, and whose they are is not known: with the row back they could be read.
    for command in [["keys", "prune", "--apply"], ["gc", "--apply", "--older-than=0s"]] {
        says(&place.run(&command), 0, "no data key is destroyed while a session cannot be read");
    }
    assert_eq!(keys(&place), 2);
    let sql = "DELETE FROM branches WHERE session NOT IN (SELECT id FROM sessions)";
    database(&place).execute(sql, []).unwrap();
    says(&place.run(&["keys", "prune"]), 0, "would destroy 1 data key");
    assert_eq!((keys(&place), place.json(&["keys", "prune"])["orphaned"].as_i64()), (2, Some(1)));
    says(&place.run(&["keys", "prune", "--apply"]), 0, "destroyed 1 data key");
    assert_eq!(keys(&place), 1);
    // The archive is deleted, and its place named: nobody needs the key any more.
    place.ok(&["archive", "archived"]);
    std::fs::remove_dir_all(place.path("archive/archives")).unwrap();
    says(&place.run(&["keys", "prune", "--apply"]), 0, "destroyed 1 data key");
    assert_eq!(keys(&place), 0);
    configure(&place, "");
    says(&place.run(&["keys", "prune"]), 2, "no encryption key is configured");
}

#[test]
fn a_program_can_keep_the_main_key() {
    let place = Place::new();
    place.write("cashier.yaml", &cashier(&CALLS));
    // Not a cipher: what is tested is what is said to the program, and what becomes of its answers.
    let script = r#"
import sys, json, base64, hashlib
asked = json.loads(sys.stdin.readline())
context = base64.b64decode(asked["context"])
pad = hashlib.sha256(b"main key" + context).digest()
mix = lambda data: bytes(a ^ b for a, b in zip(data, pad))
tag = lambda data: hashlib.sha256(b"tag" + context + data).digest()
if "wrap" in asked:
    sealed = mix(base64.b64decode(asked["wrap"]))
    print(json.dumps({"wrapped": base64.b64encode(tag(sealed) + sealed).decode(), "key": "kms/1"}))
else:
    given = base64.b64decode(asked["unwrap"])
    if asked["key"] != "kms/1" or tag(given[32:]) != given[:32]:
        sys.exit("this was not wrapped here")
    print(json.dumps({"secret": base64.b64encode(mix(given[32:])).decode()}))
"#;
    place.write("kms.py", script);
    configure(&place, "[encryption]\nservice = [\"python3\", \"kms.py\"]\n");
    charged(&place, "s");
    place.ok(&["verify", "s"]);
    place.ok(&["answer", "s", "true"]);
    says(&place.run(&["resume", "s"]), 0, "done");
    place.ok(&["keys", "rewrap"]);
    place.ok(&["verify", "s"]);
    place.write("kms.py", "import sys; sys.exit('the vault is sealed')");
    says(&place.run(&["sessions", "inspect", "s"]), 8, "the vault is sealed");
    configure(&place, "");
    says(&place.run(&["sessions", "inspect", "s"]), 7, "RK0013");
}
