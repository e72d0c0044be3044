//! Garbage, traps and damage: what is bad is named, the rest is imported, and nothing panics.

use std::fs;
use std::path::Path;

use rekindle::{Engine, Result};
use rekindle_import::{ImportOptions, ImportReport};
use serde_json::{Value, json};

use crate::kit::{checkpoints, copy, database, fixture, says};

const SESSION: &str = "sessions/session_20260208_143022_abc12345";

async fn folders(path: &Path) -> Result<ImportReport> {
    rekindle_import::json_sessions(&Engine::memory()?, path, ImportOptions::new()).await
}

async fn directories(path: &Path) -> Result<ImportReport> {
    rekindle_import::session_directory(&Engine::memory()?, path, ImportOptions::new()).await
}

async fn table(more: &str) -> Result<ImportReport> {
    let (_directory, path) = database(more);
    rekindle_import::checkpoint_table(&Engine::memory()?, &path, ImportOptions::new()).await
}

/// Texts that are not what a file should be.
fn garbage() -> Vec<Vec<u8>> {
    let nested = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let texts = ["", "null", "[]", "{}", "{", "\"text\"", "1e999", "{\"a\":", "\u{feff}", &nested];
    let mut garbage: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    garbage.push(vec![0xff, 0xfe, 0x00]);
    garbage.push(vec![0; 4096]);
    garbage
}

fn total(report: &ImportReport) -> usize {
    report.sessions.iter().map(|session| session.checkpoints.len()).sum()
}

#[tokio::test]
async fn a_damaged_checkpoint_is_skipped_and_the_rest_imported() {
    for bytes in garbage() {
        let directory = copy("json_sessions");
        fs::write(directory.path().join("sessions/trip/checkpoints/ck-1.json"), &bytes).unwrap();
        let report = folders(directory.path()).await.unwrap();
        assert_eq!(total(&report), 4, "{:?}", report.skipped);
        assert!(says(&report.skipped, "ck-1.json", ""), "{:?}", report.skipped);

        let directory = copy("session_directory/deep_research_agent");
        let name = "checkpoint_20260208_143030_xyz123.json";
        fs::write(directory.path().join(SESSION).join("checkpoints").join(name), &bytes).unwrap();
        let report = directories(directory.path()).await.unwrap();
        assert_eq!(total(&report), 2);
        assert!(says(&report.skipped, name, ""), "{:?}", report.skipped);

        let text = String::from_utf8_lossy(&bytes).replace('\'', "''").replace('\0', "?");
        let report = table(&format!("UPDATE checkpoints SET state_json = '{text}' WHERE id = 'ckpt_3'")).await.unwrap();
        let whole = if text.trim() == "{}" { 8 } else { 7 };
        assert_eq!(total(&report), whole, "{text:.20}: {:?}", report.skipped);
    }
}

#[tokio::test]
async fn a_garbled_index_is_done_without() {
    for bytes in garbage() {
        let directory = copy("json_sessions");
        fs::write(directory.path().join("sessions/trip/manifest.json"), &bytes).unwrap();
        assert_eq!(total(&folders(directory.path()).await.unwrap()), 5);
        let directory = copy("session_directory/deep_research_agent");
        fs::write(directory.path().join(SESSION).join("checkpoints/index.json"), &bytes).unwrap();
        fs::write(directory.path().join(SESSION).join("state.json"), &bytes).unwrap();
        assert_eq!(total(&directories(directory.path()).await.unwrap()), 3);
    }
    let directory = copy("session_directory/deep_research_agent");
    fs::remove_file(directory.path().join(SESSION).join("checkpoints/index.json")).unwrap();
    let report = directories(directory.path()).await.unwrap();
    assert!(report.warnings.iter().any(|note| note.reason.contains("no index")), "{:?}", report.warnings);
}

#[tokio::test]
async fn entries_without_files_and_files_without_entries_are_named() {
    let directory = copy("json_sessions");
    let checkpoints = directory.path().join("sessions/trip/checkpoints");
    fs::rename(checkpoints.join("ck-2.json"), checkpoints.join("stray.json")).unwrap();
    let report = folders(directory.path()).await.unwrap();
    assert!(says(&report.skipped, "manifest.json", "`ck-2`"), "{:?}", report.skipped);
    assert!(says(&report.warnings, "stray.json", "does not name it"));
    assert_eq!(total(&report), 5);

    let directory = copy("session_directory/deep_research_agent");
    let index = directory.path().join(SESSION).join("checkpoints/index.json");
    fs::write(&index, r#"{"checkpoints": [{"checkpoint_id": "../../etc/passwd"}]}"#).unwrap();
    let report = directories(directory.path()).await.unwrap();
    assert!(says(&report.skipped, "index.json", "no such checkpoint"), "{:?}", report.skipped);
    assert_eq!(total(&report), 3);
}

#[tokio::test]
async fn ids_that_are_traps_are_only_names() {
    let engine = Engine::memory().unwrap();
    let directory = copy("session_directory/deep_research_agent");
    for name in ["checkpoint_20260208_143023_aaa111", "checkpoint_20260208_143030_xyz123"] {
        let path = directory.path().join(SESSION).join(format!("checkpoints/{name}.json"));
        let mut object: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        object["checkpoint_id"] = json!("../../../secret");
        fs::write(path, object.to_string()).unwrap();
    }
    let report = rekindle_import::session_directory(&engine, directory.path(), ImportOptions::new()).await.unwrap();
    let marks = checkpoints(&engine, &report.sessions[0].session).await;
    assert_eq!(marks[0].id.as_str(), "../../../secret", "an id is data");
    assert!(marks[1].id.as_str().starts_with("ckpt_"), "the second of that id got another");
    assert_eq!(marks[1].extra["imported_id"], "../../../secret");

    let rows = "UPDATE checkpoints SET session_id = '../up' WHERE session_id = 'twice'; \
                UPDATE checkpoints SET session_id = char(7) WHERE session_id = 'broken'";
    let report = table(rows).await.unwrap();
    assert!(report.sessions.iter().any(|session| session.session.id.as_str() == "../up"));
    assert!(report.skipped.iter().any(|note| note.reason.contains("unprintable")), "{:?}", report.skipped);
}

#[cfg(unix)]
#[tokio::test]
async fn links_are_not_followed() {
    use std::os::unix::fs::symlink;
    let directory = copy("json_sessions");
    let secret = directory.path().join("sessions/sums/checkpoints/k-1.json");
    symlink(&secret, directory.path().join("sessions/trip/checkpoints/link.json")).unwrap();
    symlink("/", directory.path().join("sessions/root")).unwrap();
    let report = folders(directory.path()).await.unwrap();
    assert!(says(&report.skipped, "link.json", "symbolic link"), "{:?}", report.skipped);
    assert!(says(&report.skipped, "root", "symbolic link"));
    assert_eq!(total(&report), 5);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn names_that_are_not_text_are_passed_over() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let directory = copy("json_sessions");
    let name = OsStr::from_bytes(b"bad\xff.json");
    fs::write(directory.path().join("sessions/trip/checkpoints").join(name), "{}").unwrap();
    let report = folders(directory.path()).await.unwrap();
    assert!(report.skipped.iter().any(|note| note.reason.contains("not UTF-8")));
    assert_eq!(total(&report), 5);
}

#[tokio::test]
async fn what_is_too_large_or_too_much_is_skipped() {
    let engine = Engine::memory().unwrap();
    let options = ImportOptions::new().with_max_file_bytes(1_500);
    let report = rekindle_import::json_sessions(&engine, &fixture("json_sessions"), options.clone()).await.unwrap();
    assert!(says(&report.skipped, "ck-2.json", "1500 are allowed"), "{:?}", report.skipped);
    let (_directory, path) = database("");
    let report = rekindle_import::checkpoint_table(&engine, &path, options.with_max_file_bytes(900)).await.unwrap();
    assert!(report.skipped.iter().any(|note| note.reason.contains("900 are allowed")), "{:?}", report.skipped);
    let engine = Engine::memory().unwrap();
    let few = ImportOptions::new().with_max_files(2);
    let report = rekindle_import::checkpoint_table(&engine, &path, few).await.unwrap();
    assert_eq!(total(&report), 2);
    assert!(report.skipped.iter().any(|note| note.reason.contains("more than 2 rows")));
}

#[tokio::test]
async fn a_state_the_journal_cannot_hold_is_skipped() {
    let deep = format!("{}1{}", "[".repeat(120), "]".repeat(120));
    let directory = copy("session_directory/deep_research_agent");
    let name = "checkpoint_20260208_143030_xyz123";
    let path = directory.path().join(SESSION).join(format!("checkpoints/{name}.json"));
    let mut object: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    object["shared_memory"]["deep"] = serde_json::from_str(&deep).unwrap();
    fs::write(&path, object.to_string()).unwrap();
    let report = directories(directory.path()).await.unwrap();
    assert_eq!(total(&report), 2);
    assert!(says(&report.skipped, "xyz123.json", "depth"), "{:?}", report.skipped);
    object["shared_memory"] = json!({ "": 1, "k".repeat(300): 2 });
    fs::write(&path, object.to_string()).unwrap();
    let report = directories(directory.path()).await.unwrap();
    assert!(says(&report.skipped, "xyz123.json", "register key"), "{:?}", report.skipped);
}

#[tokio::test]
async fn wrong_types_are_skipped_by_name() {
    for (field, value) in [
        ("execution_path", json!("start")),
        ("execution_path", json!([1])),
        ("shared_memory", json!([])),
        ("accumulated_outputs", json!("x")),
        ("metrics_snapshot", json!(1)),
        ("checkpoint_type", json!("lunch")),
        ("checkpoint_type", json!(3)),
        ("current_node", json!(7)),
    ] {
        let directory = copy("session_directory/deep_research_agent");
        let path = directory.path().join(SESSION).join("checkpoints/checkpoint_20260208_143023_aaa111.json");
        let mut object: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        object[field] = value.clone();
        fs::write(&path, object.to_string()).unwrap();
        let report = directories(directory.path()).await.unwrap();
        assert_eq!(total(&report), 2, "{field} {value}: {:?}", report.skipped);
    }
    let state = |state: Value| format!("UPDATE checkpoints SET state_json = '{state}' WHERE id = 'ckpt_3'");
    for bad in [
        json!({"plan": 1}),
        json!({"plan": [1]}),
        json!({"plan": [{"id": "a", "status": "asleep"}]}),
        json!({"plan": [{"action": "x"}]}),
        json!({"results": [{}]}),
        json!({"context": []}),
        json!({"lastError": "x"}),
        json!({"plan": [{"id": "a\u{7}"}]}),
    ] {
        let report = table(&state(bad.clone())).await.unwrap();
        assert_eq!(total(&report), 7, "{bad}: {:?}", report.skipped);
    }
}

#[tokio::test]
async fn messages_nobody_understands_spoil_their_checkpoint_alone() {
    for bad in [json!([1]), json!([{"role": "king"}]), json!("hi"), json!([{"role": "user", "contents": [[]]}])] {
        let directory = copy("json_sessions");
        let path = directory.path().join("sessions/trip/snapshots/snap-1.json");
        fs::write(&path, json!({ "Messages": bad }).to_string()).unwrap();
        assert_eq!(total(&folders(directory.path()).await.unwrap()), 4);
    }
    let directory = copy("json_sessions");
    let path = directory.path().join("sessions/trip/checkpoints/ck-2.json");
    fs::write(&path, r#"{"ExecutionState": {"Version": 9, "CurrentMessages": []}}"#).unwrap();
    let report = folders(directory.path()).await.unwrap();
    assert!(says(&report.skipped, "ck-2.json", "version 9"), "{:?}", report.skipped);
    fs::write(directory.path().join("pending/trip_ck-2.json"), "garbage").unwrap();
    folders(directory.path()).await.unwrap();
}

#[tokio::test]
async fn a_text_full_of_brackets_and_keys_is_only_a_text() {
    let trap = format!("{}\"api_key\": \"x\"", "[{\"a\":".repeat(50_000));
    let directory = copy("json_sessions");
    let path = directory.path().join("sessions/trip/snapshots/snap-1.json");
    let said =
        json!({"Messages": [{"role": "user", "content": trap}], "Metadata": {"api_key": "sk-secret", "import": 1}});
    fs::write(&path, said.to_string()).unwrap();
    let report = folders(directory.path()).await.unwrap();
    assert_eq!(total(&report), 5, "{:?}", report.skipped);
    assert!(report.redacted.iter().any(|gone| gone.key == "api_key"));
    assert!(report.warnings.iter().any(|note| note.reason.contains("source.import")));
}

#[tokio::test]
async fn what_is_not_a_source_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    assert_eq!(folders(&missing).await.unwrap_err().code(), "RK0003");
    assert_eq!(directories(&missing).await.unwrap_err().code(), "RK0003");
    assert_eq!(folders(directory.path()).await.unwrap_err().code(), "RK0001");
    assert_eq!(directories(directory.path()).await.unwrap_err().code(), "RK0001");
    let engine = Engine::memory().unwrap();
    let read = async |path: &Path| rekindle_import::checkpoint_table(&engine, path, ImportOptions::new()).await;
    assert_eq!(read(&missing).await.unwrap_err().code(), "RK0003");
    assert!(!missing.exists(), "no file is made");
    let text = directory.path().join("text.db");
    fs::write(&text, "this is not a database, whatever its name says").unwrap();
    assert_eq!(read(&text).await.unwrap_err().code(), "RK0001");
    let empty = directory.path().join("empty.db");
    fs::write(&empty, "").unwrap();
    assert!(read(&empty).await.unwrap_err().message().contains("no table `checkpoints`"));
}

#[tokio::test]
async fn a_database_is_only_read() {
    let (directory, path) =
        database("PRAGMA journal_mode = wal; INSERT INTO checkpoints SELECT * FROM checkpoints WHERE 0;");
    let before = fs::read(&path).unwrap();
    let engine = Engine::memory().unwrap();
    let report = rekindle_import::checkpoint_table(&engine, &path, ImportOptions::new()).await.unwrap();
    assert_eq!(total(&report), 8);
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing was made beside it");
}

#[tokio::test]
async fn a_table_that_is_none_is_refused() {
    let (_directory, path) = database(
        "ALTER TABLE checkpoints RENAME TO other; CREATE VIEW checkpoints AS \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS session_id, i AS state_json FROM n;",
    );
    let engine = Engine::memory().unwrap();
    let error = rekindle_import::checkpoint_table(&engine, &path, ImportOptions::new()).await.unwrap_err();
    assert!(error.message().contains("no table"), "{error}");
    let report =
        table("ALTER TABLE checkpoints DROP COLUMN token_usage; ALTER TABLE checkpoints ADD COLUMN later TEXT;").await;
    assert_eq!(total(&report.unwrap()), 8, "what is missing is done without, what is new is passed over");
}

/// Every file below a directory.
fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Ways to spoil a file: cut off, with a byte changed, with every value of one kind replaced.
fn spoilt(bytes: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(bytes);
    let mut spoilt: Vec<Vec<u8>> = (1..4).map(|part| bytes[..bytes.len() * part / 4].to_vec()).collect();
    for at in (0..bytes.len()).step_by(bytes.len() / 5 + 1) {
        let mut changed = bytes.to_vec();
        changed[at] ^= 0x15;
        spoilt.push(changed);
    }
    for (from, to) in [("\"", "1"), ("{", "["), (": ", ": [], \"x\": "), ("null", "{}"), ("true", "-1"), ("[", "{")] {
        spoilt.push(text.replace(from, to).into_bytes());
    }
    spoilt.push(text.replace("collector", "").replace("user", "\u{202e}").into_bytes());
    spoilt
}

#[tokio::test]
async fn no_damage_to_any_file_stops_an_import_of_the_others() {
    for name in ["json_sessions", "session_directory/deep_research_agent"] {
        let directory = copy(name);
        for path in files(directory.path()) {
            let bytes = fs::read(&path).unwrap();
            for spoilt in spoilt(&bytes) {
                fs::write(&path, &spoilt).unwrap();
                let report = match name {
                    "json_sessions" => folders(directory.path()).await,
                    _ => directories(directory.path()).await,
                };
                let report = report.unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
                assert!(total(&report) >= 2, "{}: {:?}", path.display(), report.skipped);
            }
            fs::write(&path, &bytes).unwrap();
        }
    }
    let (_directory, path) = database("");
    let bytes = fs::read(&path).unwrap();
    for at in (0..bytes.len()).step_by(211) {
        let mut changed = bytes.clone();
        changed[at] ^= 0xff;
        fs::write(&path, &changed).unwrap();
        let report = rekindle_import::checkpoint_table(&Engine::memory().unwrap(), &path, ImportOptions::new()).await;
        if let Err(error) = report {
            assert!(["RK0001", "RK0011", "RK0015"].contains(&error.code()), "byte {at}: {error:?}");
        }
    }
}
