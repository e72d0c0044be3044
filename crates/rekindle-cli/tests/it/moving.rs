//! Exports and imports.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::{Place, at_terminal, on_narrow_terminal, without_sizes};

/// The frames of an export; what stands before and behind them has times in it.
pub fn frames(exported: &str) -> Vec<String> {
    exported.lines().filter(|line| line.contains("\"records\":")).map(str::to_owned).collect()
}

#[test]
fn an_export_is_imported_elsewhere() {
    let place = Place::new();
    place.turns("trip", 2);
    let said = place.ok(&["export", "@", "-o", "trip.jsonl"]);
    place.snapshot("export", &without_sizes(&said));
    let piped = place.ok(&["export", "trip"]);
    assert!(frames(&piped) == frames(&std::fs::read_to_string(place.path("trip.jsonl")).unwrap()));

    let elsewhere = Place::new();
    std::fs::copy(place.path("trip.jsonl"), elsewhere.path("trip.jsonl")).unwrap();
    elsewhere.snapshot("import", &elsewhere.ok(&["import", "trip.jsonl"]));
    assert!(frames(&elsewhere.ok(&["export", "trip"])) == frames(&piped) && frames(&piped).len() > 3);
    // Again changes nothing; another name is another session.
    let again = elsewhere.json(&["import", "trip.jsonl"]);
    assert_eq!((&again[0]["session"]["id"], &again[0]["same_hashes"]), (&"trip".into(), &true.into()));
    let renamed = elsewhere.json(&["import", "trip.jsonl", "--as", "trip-2"]);
    assert_eq!(renamed[0]["session"]["id"], "trip-2");
    let team = elsewhere.json(&["import", "trip.jsonl", "--namespace", "team"]);
    assert_eq!(team[0]["session"]["namespace"], "team");
    let kept = elsewhere.json(&["import", "trip.jsonl", "--namespace", "team", "--keep-namespace"]);
    assert_eq!(kept[0]["session"]["namespace"], "default");
    assert_eq!(elsewhere.run(&["verify", "--all"]).code, 0);
}

#[test]
fn an_import_reads_standard_input() {
    let place = Place::new();
    place.turns("trip", 1);
    let exported = place.ok(&["export", "trip"]);
    let mut command = place.command(&["import", "-", "--as", "piped", "--json"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(exported.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let imported: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(imported[0]["session"]["id"], "piped");
}

#[test]
fn nothing_is_overwritten_and_nothing_half_is_taken() {
    let place = Place::new();
    place.turns("trip", 1);
    place.write("there", "mine");
    let refused = place.run(&["export", "trip", "-o", "there"]);
    assert_eq!(refused.code, 6);
    place.snapshot("export_there", &refused.err);
    assert_eq!(std::fs::read_to_string(place.path("there")).unwrap(), "mine");
    assert_eq!(place.json(&["export", "trip", "-o", "there", "--force"])["file"], "there");
    let text = std::fs::read_to_string(place.path("there")).unwrap();
    place.write("cut", &text[..text.len() - 10]);
    let cut = place.run(&["import", "cut", "--as", "cut"]);
    assert_eq!(cut.code, 7, "{}", cut.err);
    place.snapshot("import_cut", &cut.err);
    place.write("strange", "hello\n");
    assert_eq!(place.fails(&["import", "strange"], 7)["error"]["code"], "RK0011");
    assert_eq!(place.fails(&["import", "missing"], 3)["error"]["code"], "RK0003");
    assert_eq!(place.fails(&["import", "there", "there", "--as", "x"], 2)["error"]["code"], "RK0001");
    assert_eq!(place.fails(&["export", "trip"], 2)["error"]["code"], "RK0001");
    assert_eq!(place.fails(&["export", "trip", "-o", "no/such/folder/x"], 8)["error"]["code"], "RK0017");
    place.turns("other", 1);
    assert_eq!(place.fails(&["import", "there", "--as", "other"], 6)["error"]["code"], "RK0004");
    // Of what failed, nothing is left lying around.
    let left = std::fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with(".rekindle")));
}

#[test]
fn a_terminal_is_spared() {
    let place = Place::new();
    place.turns("trip", 1);
    let spared = on_narrow_terminal(place.command(&["export", "trip"]));
    assert_eq!(spared.code, 2);
    place.snapshot("export_terminal", &spared.err);
    // Only standard output counts.
    assert!(at_terminal(place.command(&["export", "trip"]), "").out.starts_with('{'));
}

#[test]
fn all_sessions_are_exported() {
    let place = Place::new();
    place.turns("one", 1);
    place.turns("../two", 1);
    place.snapshot("export_all", &without_sizes(&place.ok(&["export", "--all", "-o", "out"])));
    let mut names: Vec<_> =
        std::fs::read_dir(place.path("out")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["%2e%2e%2ftwo.rekindle.jsonl", "one.rekindle.jsonl"]);
    assert_eq!(place.run(&["export", "--all", "-o", "out"]).code, 6);
    let again = place.json(&["export", "--all", "-o", "out", "--force"]);
    assert_eq!((again["exported"].as_u64(), again["sessions"].as_array().unwrap().len()), (Some(2), 2));
    assert_eq!(place.run(&["export", "--all"]).code, 2);
    assert_eq!(place.run(&["export"]).code, 2);
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../rekindle-import/tests/fixtures").join(name)
}

fn copy_into(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_into(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[test]
fn other_programs_sessions_are_imported() {
    let place = Place::new();
    let source = "old";
    copy_into(&fixture("json_sessions"), &place.path(source));
    let dry = place.run(&["import", "--from", "json-sessions", source, "--dry-run"]);
    assert_eq!(dry.code, 0, "{}", dry.err);
    assert!(!place.path("rekindle.db").exists());
    // How far columns are apart depends on where this place is.
    let columns = regex::Regex::new("  +").unwrap();
    place.snapshot("import_foreign", &columns.replace_all(&format!("{}{}", dry.out, dry.err), "  "));
    let done = place.json(&["import", "--from", "json-sessions", source]);
    assert_eq!((done["dry_run"].as_bool(), done["sessions"].as_array().unwrap().len()), (Some(false), 2));
    assert_eq!(place.json(&["sessions"])["sessions"].as_array().unwrap().len(), 2);
    let taken = place.fails(&["import", "--from", "json-sessions", source], 6);
    assert!(taken["error"]["hint"].as_str().unwrap().contains("--existing skip"), "{taken}");
    let skipped = place.json(&["import", "--from", "json-sessions", source, "--existing", "skip"]);
    assert_eq!(skipped["skipped"].as_array().unwrap().len(), 2);
}

#[test]
fn every_form_of_other_programs_is_known() {
    let place = Place::new();
    let connection = rusqlite::Connection::open(place.path("old.db")).unwrap();
    connection.execute_batch(&std::fs::read_to_string(fixture("checkpoint_table/checkpoints.sql")).unwrap()).unwrap();
    connection.close().unwrap();
    let table = place.json(&["import", "--from", "checkpoint-table", "old.db"]);
    assert!(!table["sessions"].as_array().unwrap().is_empty());
    copy_into(&fixture("session_directory/deep_research_agent"), &place.path("agent"));
    let graphs = place.json(&["import", "--from", "session-directory", "agent"]);
    assert!(!graphs["sessions"].as_array().unwrap().is_empty());
    assert_eq!(place.run(&["import", "--from", "spreadsheets", "x"]).code, 2);
    assert_eq!(place.run(&["import", "x", "--dry-run"]).code, 2);
    assert_ne!(place.run(&["import", "--from", "json-sessions", "nowhere"]).code, 0);
}
