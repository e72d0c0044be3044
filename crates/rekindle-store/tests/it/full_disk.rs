//! A real process that runs out of space: the error reaches the caller, nothing acknowledged is
//! lost, nothing unacknowledged is half there, and with space again the work goes on.
//!
//! The limit is the shell's `ulimit -f`: writes beyond it fail as they do on a full disk.

use std::process::Command;
use std::sync::Arc;

use rekindle_core::codec::Codec;
use rekindle_core::{BranchId, ErrorKind, Journal, SessionHeader, SessionId, SessionKey};
use rekindle_store::{StoreOptions, SystemClock, open, system_ids};
use rekindle_testkit::{History, message};

/// Tells the test below that it is the child: the store's URL.
const CHILD: &str = "REKINDLE_FULL_DISK_CHILD";

fn journal(url: &str) -> Journal {
    let store = open(url, StoreOptions::new()).unwrap();
    Journal::new(store, Codec::new(), Arc::new(SystemClock), system_ids().unwrap())
}

fn session() -> SessionKey {
    SessionId::new("full").unwrap().into()
}

fn text(number: usize) -> String {
    format!("{number} {}", "incompressible? no, but never compressed below the threshold ".repeat(40))
}

/// Not a test of its own: what the limited process runs. Prints how many were acknowledged.
#[tokio::test]
async fn child_process() {
    let Ok(url) = std::env::var(CHILD) else { return };
    let journal = journal(&url);
    let mut history = History::begin(&journal, &session()).await;
    let mut acknowledged = 0;
    let error = loop {
        match history.append(vec![message(&text(acknowledged)), message("second half")]).await {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 100_000, "the limit was never reached");
    };
    assert_eq!(*error.kind(), ErrorKind::PersistFailed, "{error:?}");
    assert_eq!(error.session(), Some(&session()));
    // It fails again rather than pretend.
    assert!(history.append(vec![message(&text(acknowledged)), message("second half")]).await.is_err());
    // What is there can still be read by the process that failed.
    let restored = journal.load(&session(), None).await.unwrap();
    assert_eq!(restored.state, history.state_after(usize::MAX));
    std::fs::write(std::env::var("REKINDLE_FULL_DISK_COUNT").unwrap(), acknowledged.to_string()).unwrap();
}

async fn survives_a_full_disk(url: String, directory: &std::path::Path) {
    journal(&url).create(SessionHeader::new(session())).await.unwrap();
    let count = directory.join("count");
    let script = r#"trap "" XFSZ; ulimit -f 4000; exec "$@""#;
    let output = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "full_disk::child_process", "--nocapture"])
        .env(CHILD, &url)
        .env("REKINDLE_FULL_DISK_COUNT", &count)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let acknowledged: usize = std::fs::read_to_string(&count).unwrap().parse().unwrap();
    assert!(acknowledged > 20, "only {acknowledged} were acknowledged");

    let journal = journal(&url);
    let info = journal.open(&session()).await.unwrap();
    let head = info.branch(&BranchId::main()).unwrap().head;
    // The one whose write failed may be there, whole; it was never acknowledged.
    assert!([2 * acknowledged as u64, 2 * acknowledged as u64 + 2].contains(&head.seq.0), "{acknowledged} {head:?}");
    let report = journal.verify(&session(), &Default::default()).await.unwrap();
    assert!(report.is_sound(), "{report:?}");
    let mut history = History::begin(&journal, &session()).await;
    history.append(vec![message("there is space again")]).await.unwrap();
    let restored = journal.load(&session(), None).await.unwrap();
    let (_, items) = restored.state.logs().next().unwrap();
    for number in 0..acknowledged {
        assert_eq!(items[2 * number].decode::<String>().unwrap(), text(number));
    }
}

#[tokio::test]
async fn sqlite_survives_a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    survives_a_full_disk(format!("sqlite:{}/rekindle.db", directory.path().display()), directory.path()).await;
}

#[tokio::test]
async fn files_survive_a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    survives_a_full_disk(format!("file:{}/store", directory.path().display()), directory.path()).await;
}
