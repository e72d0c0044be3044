//! Damage to what surrounds the records, stores that are deleted or replaced under a run, and stores that may only be
//! read: with real files, real mounts and real processes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::processes::{end, lines, start, until};
use crate::support::{Place, Said, said};

/// An agent that pays when the file `go` is there.
const PAYER: &str = r#"
name: payer
model:
  provider: scripted
  script:
    name: scripted
    turns:
      - calls: [{name: pay, arguments: {what: rent}}]
      - text: the rent is paid
tools:
  - name: pay
    description: Pays.
    parameters: {what: string}
    shell: |
      echo "$REKINDLE_IDEMPOTENCY_KEY" >> started.txt
      while [ ! -e go ]; do sleep 0.02; done
      echo paid
    output: text
    in_doubt: never
    timeout: 120s
"#;

const GUIDE: &str = r#"
name: guide
model: {provider: scripted, script: {name: scripted, turns: [{text: hello}]}}
"#;

const FILES: &str = "file:store/files";
const SQLITE: &str = "sqlite:store/rekindle.db";

/// Two sessions, `one` and `two`, in a store.
fn with_sessions(store: &str) -> Place {
    let place = Place::new();
    place.write("guide.yaml", GUIDE);
    fs::create_dir(place.path("store")).unwrap();
    for session in ["one", "two"] {
        place.ok(&["run", "guide.yaml", "hello", "--session", session, "--store", store]);
    }
    place
}

/// Everything that works through all sessions, with what it ends with.
fn check_bulk(place: &Place, store: &str, expected: [(&str, i32); 3]) {
    for (number, (command, code)) in expected.into_iter().enumerate() {
        let folder = format!("bulk-{number}");
        let words = match command {
            "export" => vec!["export", "--all", "--output", &folder],
            "copy" => vec!["copy", "--to", "file:bulk-copy"],
            _ => vec!["verify", "--all"],
        };
        let words: Vec<&str> = words.into_iter().chain(["--store", store]).collect();
        let told = place.run(&words);
        assert_eq!(told.code, code, "{words:?}\n{}\n{}", told.out, told.err);
        if code != 0 {
            assert!(format!("{}{}", told.out, told.err).contains("one"), "{words:?}\n{}\n{}", told.out, told.err);
        }
        if command == "export" {
            let exported = fs::read_dir(place.path(&folder)).unwrap().count();
            assert_eq!(exported, if code == 0 { 2 } else { 1 }, "{}", told.err);
        }
        for folder in ["bulk-copy", &folder] {
            let _ = fs::remove_dir_all(place.path(folder));
        }
    }
}

#[test]
fn a_damaged_index_of_a_session_is_reported_and_nothing_is_left_out() {
    let place = with_sessions(FILES);
    let index = place.path("store/files/sessions/default/one/session.json");
    let mut bytes = fs::read(&index).unwrap();
    bytes[150] ^= 1;
    fs::write(&index, bytes).unwrap();
    let listed = place.run(&["sessions", "list", "--store", FILES]);
    assert!(listed.code == 0 && listed.out.contains("one") && listed.out.contains("two"), "{listed:?}");
    assert!(listed.err.contains("damaged: one: session.json is damaged"), "{}", listed.err);
    check_bulk(&place, FILES, [("verify", 7), ("export", 0), ("copy", 0)]);
    assert_eq!(place.run(&["doctor", "--store", FILES]).code, 1);

    // Nothing is left to rebuild it from.
    fs::write(index.with_file_name("session.copy"), "garbage").unwrap();
    let listed = place.run(&["sessions", "list", "--store", FILES]);
    assert!(listed.code == 0 && listed.out.contains("one") && listed.out.contains("two"), "{listed:?}");
    check_bulk(&place, FILES, [("verify", 7), ("export", 7), ("copy", 7)]);
    assert_eq!(place.run(&["doctor", "--store", FILES]).code, 1);
}

#[test]
fn a_session_that_a_damaged_index_of_the_database_lacks_is_named() {
    let place = with_sessions(SQLITE);
    let path = place.path("store/rekindle.db");
    let (page, size): (u32, u32) = {
        let raw = rusqlite::Connection::open(&path).unwrap();
        let root = "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_sessions_1'";
        let root: u32 = raw.query_row(root, [], |row| row.get(0)).unwrap();
        (root - 1, raw.pragma_query_value(None, "page_size", |row| row.get(0)).unwrap())
    };
    let (page, size) = (page as usize, size as usize);
    let mut bytes = fs::read(&path).unwrap();
    let entries = &mut bytes[page * size..(page + 1) * size];
    let found = entries.windows(10).position(|window| window == b"defaultone").unwrap();
    entries[found + 9] += 1;
    fs::write(&path, bytes).unwrap();
    check_bulk(&place, SQLITE, [("verify", 7), ("export", 7), ("copy", 7)]);
    let verified = place.run(&["verify", "--all", "--store", SQLITE]);
    assert!(verified.out.contains("sqlite_autoindex_sessions_1") && verified.err.contains("REINDEX"), "{verified:?}");
    let doctor = place.run(&["doctor", "--store", SQLITE]);
    assert!(doctor.code == 1 && doctor.out.contains("sqlite_autoindex_sessions_1"), "{}", doctor.out);
}

/// Copies a file, or a directory with everything in it.
fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::copy(from, to).unwrap();
        return;
    }
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

#[test]
fn a_store_that_is_deleted_or_replaced_ends_the_run() {
    let deleted: fn(&Place) = |place| fs::remove_dir_all(place.path("store")).unwrap();
    let replaced: fn(&Place) = |place| {
        fs::rename(place.path("store"), place.path("aside")).unwrap();
        copy(&place.path("aside"), &place.path("store"));
    };
    // Either the call ends and its outcome is written, or nothing happens but the renewal of the lease.
    for (store, what, ends) in [
        (FILES, deleted, true),
        (SQLITE, deleted, true),
        (FILES, replaced, true),
        (SQLITE, replaced, true),
        (FILES, deleted, false),
        (SQLITE, replaced, false),
    ] {
        let place = Place::new();
        place.write("payer.yaml", PAYER);
        fs::create_dir(place.path("store")).unwrap();
        let words = ["run", "payer.yaml", "pay", "--session", "rent", "--store", store, "-c", "lease=2s"];
        let run = start(&place, &words);
        until("it pays", || lines(&place.path("started.txt")).len() == 1);
        what(&place);
        if ends {
            place.write("go", "");
        }
        let told = end(run);
        assert_eq!(told.code, 7, "{store}: {}", told.err);
        assert!(told.err.contains("deleted, moved or replaced while it was in use"), "{store}: {}", told.err);
        assert!(!told.out.contains("the rent is paid"), "{store}: {}", told.out);
    }
}

/// A command with `folder` mounted read-only; nothing where that cannot be done.
fn on_read_only_disk(place: &Place, folder: &str, arguments: &[&str]) -> Option<Said> {
    let mount = r#"mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" || exit 99; exec "$@""#;
    let ordinary = place.command(arguments);
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", mount]).arg(place.path(folder));
    command.arg(ordinary.get_program()).args(ordinary.get_args());
    let told = said(surrounded(command, &ordinary));
    match told.code {
        99 | 127 => None,
        _ if told.err.contains("unshare:") => None,
        _ => Some(told),
    }
}

/// A command as a user who owns nothing; nothing where that cannot be done.
fn as_nobody(place: &Place, arguments: &[&str]) -> Option<Said> {
    let nobody = |ordinary: &Command| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(ordinary.get_program()).args(ordinary.get_args());
        surrounded(command, ordinary)
    };
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let version = nobody(&place.command(&["--version"])).output().ok()?;
    version.status.success().then(|| said(nobody(&place.command(arguments))))
}

fn surrounded(mut command: Command, ordinary: &Command) -> Command {
    command.env_clear().stdin(std::process::Stdio::null());
    command.current_dir(ordinary.get_current_dir().unwrap());
    command.envs(ordinary.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

/// What may be done with a store that can only be read, and what may not.
fn check_reading(place: &Place, store: &str, run: impl Fn(&[&str]) -> Option<Said>) {
    fs::create_dir_all(place.path("out")).unwrap();
    fs::set_permissions(place.path("out"), fs::Permissions::from_mode(0o777)).unwrap();
    for words in [
        &["sessions", "list"][..],
        &["sessions", "show", "one"],
        &["sessions", "inspect", "one"],
        &["log", "one"],
        &["export", "one", "--output", "out/one", "--force"],
        &["export", "--all", "--output", "out/all", "--force"],
        &["verify", "--all"],
        &["copy", "--to", "file:out/copy"],
    ] {
        let words: Vec<&str> = words.iter().copied().chain(["--store", store]).collect();
        let Some(told) = run(&words) else {
            eprintln!("skipped: this machine allows neither mounts nor another user");
            return;
        };
        assert_eq!(told.code, 0, "{words:?}\n{}\n{}", told.out, told.err);
    }
    let _ = fs::remove_dir_all(place.path("out"));
    for words in [&["sessions", "rm", "one", "--yes"][..], &["send", "one", "more"], &["run", "guide.yaml", "hello"]] {
        let words: Vec<&str> = words.iter().copied().chain(["--store", store]).collect();
        let told = run(&words).unwrap();
        assert_ne!(told.code, 0, "{words:?}\n{}\n{}", told.out, told.err);
        let says = ["may not be written", "can only be read", "read-only"];
        assert!(says.iter().any(|text| told.err.contains(text)), "{words:?}\n{}", told.err);
        assert!(!told.err.contains("there is no"), "{words:?}\n{}", told.err);
    }
}

#[test]
fn a_store_on_a_read_only_disk_can_be_read() {
    for store in [FILES, SQLITE] {
        let place = with_sessions(store);
        check_reading(&place, store, |words| on_read_only_disk(&place, "store", words));
        // A copy without the files that only matter to processes that write.
        let _ = fs::remove_file(place.path("store/files/sessions/default/one/lock"));
        check_reading(&place, store, |words| on_read_only_disk(&place, "store", words));
    }
}

#[test]
fn a_store_of_another_user_can_be_read() {
    for store in [FILES, SQLITE] {
        let place = with_sessions(store);
        let_others_read(&place);
        check_reading(&place, store, |words| as_nobody(&place, words));
    }
}

/// Lets every user read the store, as people do with their home directories.
fn let_others_read(place: &Place) {
    for entry in walk(&place.path("store")) {
        let mode = if entry.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(entry, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// A path and everything below it.
fn walk(path: &Path) -> Vec<std::path::PathBuf> {
    let mut found = vec![path.to_owned()];
    if path.is_dir() {
        found.extend(fs::read_dir(path).unwrap().flat_map(|entry| walk(&entry.unwrap().path())));
    }
    found
}

#[test]
fn a_log_that_cannot_be_read_where_it_is_is_not_ignored() {
    let place = with_sessions(SQLITE);
    // As it is after a crash and a copy of the two files that hold the data.
    let raw = rusqlite::Connection::open(place.path("store/rekindle.db")).unwrap();
    raw.execute("UPDATE sessions SET search = search || ' '", []).unwrap();
    fs::create_dir(place.path("copied")).unwrap();
    for name in ["rekindle.db", "rekindle.db-wal"] {
        fs::copy(place.path("store").join(name), place.path("copied").join(name)).unwrap();
    }
    drop(raw);
    let words = ["sessions", "list", "--store", "sqlite:copied/rekindle.db"];
    let Some(told) = on_read_only_disk(&place, "copied", &words) else {
        eprintln!("skipped: this machine allows no mounts");
        return;
    };
    assert_eq!(told.code, 8, "{}\n{}", told.out, told.err);
    assert!(told.err.contains("rekindle.db-wal") && told.err.contains("copy"), "{}", told.err);
    place.ok(&words);
}

#[test]
fn what_may_not_be_looked_at_is_not_said_to_be_missing() {
    for (store, closed) in [
        (FILES, "store"),
        (SQLITE, "store"),
        (SQLITE, "store/rekindle.db"),
        (FILES, "store/files/sessions/default"),
        (FILES, "store/files/rekindle.json"),
    ] {
        let place = with_sessions(store);
        let_others_read(&place);
        fs::set_permissions(place.path(closed), fs::Permissions::from_mode(0o0)).unwrap();
        let Some(told) = as_nobody(&place, &["sessions", "list", "--store", store]) else {
            eprintln!("skipped: this machine does not allow another user");
            return;
        };
        assert_eq!(told.code, 8, "{store} {closed}: {}\n{}", told.out, told.err);
        assert!(told.err.contains("read") || told.err.contains("opened"), "{store} {closed}: {}", told.err);
        assert!(!told.err.contains("there is no"), "{store} {closed}: {}", told.err);
    }
}

#[test]
fn a_session_that_may_not_be_read_is_listed_and_stops_what_works_through_all() {
    let place = with_sessions(FILES);
    let_others_read(&place);
    let session = place.path("store/files/sessions/default/one");
    fs::set_permissions(&session, fs::Permissions::from_mode(0o0)).unwrap();
    let Some(listed) = as_nobody(&place, &["sessions", "list", "--store", FILES]) else {
        eprintln!("skipped: this machine does not allow another user");
        return;
    };
    assert!(listed.code == 0 && listed.out.contains("one") && listed.err.contains("damaged: one"), "{listed:?}");
    let verified = as_nobody(&place, &["verify", "--all", "--store", FILES]).unwrap();
    assert_ne!(verified.code, 0, "{verified:?}");
    fs::set_permissions(&session, fs::Permissions::from_mode(0o755)).unwrap();
}
