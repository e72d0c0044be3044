//! Real stores that are set back: copies of older databases, rows and files that are gone, tails that
//! were cut off.

use std::path::{Path, PathBuf};

use rekindle_core::{ErrorKind, OwnerId, Result, StoreExt as _};
use rusqlite::Connection;

use super::*;

/// A store with one session: `main` of 20 records, of which 10 were there when it was copied, and a
/// branch of 4 records, of which none were.
struct Case {
    directory: tempfile::TempDir,
    url: String,
}

impl Case {
    async fn sqlite() -> Self {
        Self::new("sqlite", "rekindle.db").await
    }

    async fn files() -> Self {
        Self::new("file", "store").await
    }

    async fn new(scheme: &str, name: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("{scheme}:{}/{name}", directory.path().display());
        let case = Self { directory, url };
        let main = BranchId::main();
        let first = journal_at(&case.url);
        create(&first, "a").await;
        append(&first, "a", &main, 5).await.unwrap();
        drop(first);
        copy(&case.path(name), &case.path("older"));
        let second = journal_at(&case.url);
        append(&second, "a", &main, 5).await.unwrap();
        second.fork(&key("a"), &Position::new(main, rekindle_core::Seq(6)), branch("fork")).await.unwrap();
        append(&second, "a", &branch("fork"), 2).await.unwrap();
        drop(second);
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn sql(&self, sql: &str) {
        Connection::open(self.path("rekindle.db")).unwrap().execute_batch(sql).unwrap();
    }

    /// Everything that would go on is refused, everything that reads is not, and it can be accepted.
    async fn expect(&self, expected: &[&str]) {
        let journal = journal_at(&self.url);
        let session = key("a");
        let info = journal.open(&session).await.unwrap();
        assert_eq!(missing(&info), expected);
        let listed = journal.list(&rekindle_core::SessionQuery::new(Default::default())).await.unwrap();
        assert_eq!(missing(&listed.sessions[0]), expected);
        let report = journal.verify(&session, &Default::default()).await.unwrap();
        assert!(!report.is_sound() && report.damage.iter().any(|damage| damage.kind == DamageKind::RolledBack));
        let mut exported = Vec::new();
        journal.export(&session, &mut exported).await.unwrap();

        let owner = OwnerId::new("me").unwrap();
        let store = journal.store();
        let check = |what: &str, result: Result<()>| {
            let error = result.expect_err(what);
            assert_eq!((error.kind(), error.code()), (&ErrorKind::RolledBack, "RK0027"), "{what}: {error:?}");
            assert!(error.next_step().contains("rekindle verify a --accept"), "{what}: {error:?}");
        };
        let main = BranchId::main();
        let lease = store.acquire(&session, &main, &owner, std::time::Duration::from_secs(9)).await;
        check("lease", lease.map(drop));
        check("append", append(&journal, "a", &main, 1).await);
        check("inbox", journal.send(&session, &[message("hello")]).await.map(drop));
        let from = Position::new(main.clone(), rekindle_core::Seq(2));
        check("fork", journal.fork(&session, &from, branch("x")).await.map(drop));

        let marks = store.high_water().unwrap();
        marks.accept(&session).await.unwrap();
        append(&journal, "a", &main, 1).await.unwrap();
        assert_sound(&journal, "accepted").await;
        drop(journal);
        assert_sound(&journal_at(&self.url), "accepted").await;
    }

    async fn expect_gone(&self) {
        let journal = journal_at(&self.url);
        assert_eq!(gone(&journal).await, ["a"]);
        let error = journal.open(&key("a")).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotFound);
        assert!(error.message().contains("was there, up to record 20"), "{error:?}");
        create(&journal, "b").await;
        append(&journal, "b", &BranchId::main(), 1).await.unwrap();
        // Twice: the first refusal changes nothing.
        for _ in 0..2 {
            let refused = journal.open_or_create(SessionHeader::new(key("a"))).await.unwrap_err();
            assert_eq!((refused.kind(), refused.code()), (&ErrorKind::RolledBack, "RK0027"), "{refused:?}");
            assert!(refused.message().contains("was there, up to record 20"), "{refused:?}");
            assert!(refused.next_step().contains("rekindle verify a --accept --reason"), "{refused:?}");
            assert_eq!(gone(&journal).await, ["a"]);
        }
        let other = journal.open_or_create(SessionHeader::new(key("c"))).await.unwrap();
        assert_eq!(other.header.key, key("c"));
        let marks = journal.store().high_water().unwrap();
        marks.accept(&key("a")).await.unwrap();
        assert_sound(&journal, "accepted").await;
        // Removed by us, it is created anew.
        for _ in 0..2 {
            journal.open_or_create(SessionHeader::new(key("a"))).await.unwrap();
            marks.flush().await;
            journal.clear_session(&key("a")).await.unwrap();
        }
        assert_sound(&journal, "removed by us").await;
    }
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().map(std::result::Result::unwrap) {
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        std::fs::copy(from, to).unwrap();
    }
}

#[tokio::test]
async fn a_database_replaced_by_an_older_one() {
    let case = Case::sqlite().await;
    std::fs::copy(case.path("older"), case.path("rekindle.db")).unwrap();
    case.expect(&["fork 1…10", "main 11…20"]).await;
}

#[tokio::test]
async fn a_branch_cut_back_in_a_database() {
    let case = Case::sqlite().await;
    let head: String = {
        let database = Connection::open(case.path("older")).unwrap();
        let hash = "SELECT hex(head_hash) FROM branches WHERE name = 'main'";
        database.query_row(hash, [], |row| row.get(0)).unwrap()
    };
    case.sql(&format!(
        "DELETE FROM frames WHERE branch = (SELECT id FROM branches WHERE name = 'main') AND last > 10;
         DELETE FROM frame_index;
         UPDATE branches SET head = 10, head_hash = x'{head}', recent = x'' WHERE name = 'main';"
    ));
    case.expect(&["main 11…20"]).await;
}

#[tokio::test]
async fn a_branch_deleted_from_a_database() {
    let case = Case::sqlite().await;
    case.sql("DELETE FROM branches WHERE name = 'fork'");
    case.expect(&["fork 1…10"]).await;
}

#[tokio::test]
async fn a_session_deleted_from_a_database() {
    let case = Case::sqlite().await;
    case.sql("DELETE FROM sessions; DELETE FROM branches; DELETE FROM frames; DELETE FROM frame_index");
    case.expect_gone().await;
}

#[tokio::test]
async fn a_database_truncated_to_nothing() {
    let case = Case::sqlite().await;
    std::fs::write(case.path("rekindle.db"), "").unwrap();
    case.expect_gone().await;
}

#[tokio::test]
async fn a_database_deleted_and_made_anew() {
    let case = Case::sqlite().await;
    std::fs::remove_file(case.path("rekindle.db")).unwrap();
    case.expect_gone().await;
}

#[tokio::test]
async fn a_log_removed_from_a_database() {
    let case = Case::sqlite().await;
    // A process that dies leaves its log; here it is kept open while the files are copied.
    let journal = journal_at(&case.url);
    append(&journal, "a", &BranchId::main(), 5).await.unwrap();
    journal.store().high_water().unwrap().flush().await;
    let crashed = tempfile::tempdir().unwrap();
    copy(case.directory.path(), crashed.path());
    drop(journal);
    let crashed = Case { url: format!("sqlite:{}/rekindle.db", crashed.path().display()), directory: crashed };
    std::fs::remove_file(crashed.path("rekindle.db-wal")).unwrap();
    let _ = std::fs::remove_file(crashed.path("rekindle.db-shm"));
    crashed.expect(&["main 21…30"]).await;
}

#[tokio::test]
async fn files_replaced_by_older_ones() {
    let case = Case::files().await;
    std::fs::remove_dir_all(case.path("store")).unwrap();
    copy(&case.path("older"), &case.path("store"));
    case.expect(&["fork 1…10", "main 11…20"]).await;
}

#[tokio::test]
async fn the_tail_of_a_segment_cut_at_a_frame() {
    let case = Case::files().await;
    let session = case.path("store/sessions/default/a");
    let segment = session.join("branches/main/00000000000000000001.jsonl");
    let text = std::fs::read_to_string(&segment).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    assert_eq!(lines.len(), 10);
    std::fs::write(&segment, lines[..9].concat()).unwrap();
    // As after a crash, in which `session.json` knows an earlier head.
    std::fs::copy(case.path("older/sessions/default/a/session.json"), session.join("session.json")).unwrap();
    std::fs::remove_dir_all(session.join("branches/fork")).unwrap();
    let _ = std::fs::remove_file(case.path("store/sessions/default/index.jsonl"));
    case.expect(&["fork 1…10", "main 19…20"]).await;
}

#[tokio::test]
async fn a_session_deleted_from_files() {
    let case = Case::files().await;
    std::fs::remove_dir_all(case.path("store/sessions/default/a")).unwrap();
    case.expect_gone().await;
}

#[tokio::test]
async fn a_session_made_anew_by_somebody_without_marks() {
    let case = Case::sqlite().await;
    let without = journal(open(&case.url, StoreOptions::new().with_setting("marks", "false")).unwrap());
    without.clear_session(&key("a")).await.unwrap();
    create(&without, "a").await;
    append(&without, "a", &BranchId::main(), 30).await.unwrap();
    drop(without);
    case.expect(&["main 1…20"]).await;
}

#[tokio::test]
async fn an_older_state_that_grew_beyond_what_was_there() {
    let case = Case::sqlite().await;
    std::fs::copy(case.path("older"), case.path("rekindle.db")).unwrap();
    let without = journal(open(&case.url, StoreOptions::new().with_setting("marks", "false")).unwrap());
    without.fork(&key("a"), &Position::new(BranchId::main(), rekindle_core::Seq(6)), branch("fork")).await.unwrap();
    append(&without, "a", &branch("fork"), 2).await.unwrap();
    append(&without, "a", &BranchId::main(), 6).await.unwrap();
    drop(without);
    // The fork ends where it did, with another hash; `main` ends behind what was there.
    case.expect(&["fork 10…10", "main 20…20"]).await;
}

#[tokio::test]
async fn nonsense_in_the_marks_is_no_damage() {
    let case = Case::sqlite().await;
    let nonsense = "SQLite format 3, or so it says".repeat(100);
    for end in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(case.path(&format!("rekindle.db-marks{end}")));
    }
    std::fs::write(case.path("rekindle.db-marks"), &nonsense).unwrap();
    let journal = journal_at(&case.url);
    let info = journal.open(&key("a")).await.unwrap();
    assert_eq!(missing(&info), [""; 0]);
    let places = journal.store().high_water().unwrap().places();
    assert!(places[0].trouble.as_ref().unwrap().contains("cannot be used"), "{places:?}");
    append(&journal, "a", &BranchId::main(), 1).await.unwrap();
    drop(journal);
    // Set aside, and begun anew.
    assert_eq!(std::fs::read_to_string(case.path("rekindle.db-marks.damaged")).unwrap(), nonsense);
    let later = journal_at(&case.url);
    assert_sound(&later, "anew").await;
    let heads = later.store().high_water().unwrap().marked(&key("a")).await.unwrap();
    assert_eq!(heads[0][&BranchId::main()].seq.0, 22);
}

#[tokio::test]
async fn a_torn_mark_is_no_damage() {
    let case = Case::files().await;
    let mark = case.path("store-marks/default/high-water/a.value");
    let bytes = std::fs::read(&mark).unwrap();
    let mut records = 20;
    for torn in [&b""[..], &bytes[..bytes.len() / 2], &vec![0; bytes.len()]] {
        std::fs::write(&mark, torn).unwrap();
        let journal = journal_at(&case.url);
        append(&journal, "a", &BranchId::main(), 1).await.unwrap();
        drop(journal);
        assert_sound(&journal_at(&case.url), "torn").await;
        let store = open(&case.url, StoreOptions::new()).unwrap();
        let heads = store.high_water().unwrap().marked(&key("a")).await.unwrap();
        records += 2;
        assert_eq!(heads[0][&BranchId::main()].seq.0, records);
    }
}
