//! Real processes, killed at random while they write, fork, remove and make anew, several at a time:
//! no false alarm is ever raised.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use rekindle_core::{Removal, Seq};

use super::*;

/// Tells the test below that it is the child: `<store URL> <seed>`.
const CHILD: &str = "REKINDLE_MARKS_CHILD";
const KILLS: u64 = 12;

/// Not a test of its own: what the killed processes run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_process() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let (url, seed) = order.rsplit_once(' ').unwrap();
    let journal = journal_at(url);
    let mut random: u64 = seed.parse().unwrap();
    loop {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let id = ["a", "b", "c"][usize::try_from((random >> 33) % 3).unwrap()];
        let result = change(&journal, id, (random >> 40) % 8).await;
        // Others change the same sessions; what was rolled back by nobody must not be refused.
        if let Err(error) = result {
            assert_ne!(error.code(), "RK0027", "{error:?}");
            assert!(!error.message().contains("was there"), "{error:?}");
        }
        std::io::stdout().lock().write_all(b"did\n").unwrap();
    }
}

async fn change(journal: &Journal, id: &str, what: u64) -> rekindle_core::Result<()> {
    let (main, fork) = (BranchId::main(), branch("fork"));
    match what {
        0 => journal.clear_session(&key(id)).await.map(drop),
        1 => journal.fork(&key(id), &Position::new(main, Seq(2)), fork).await.map(drop),
        2 => journal.store().remove(&Removal::Branch { session: key(id), branch: fork }).await.map(drop),
        3 => append(journal, id, &fork, 1).await,
        4 => journal.send(&key(id), &[message("hello")]).await.map(drop),
        _ => {
            journal.open_or_create(SessionHeader::new(key(id))).await?;
            append(journal, id, &main, 2).await
        }
    }
}

fn child(url: &str, seed: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "anchored::killed::child_process", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{url} {seed}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

async fn killed_again_and_again(url: &str) {
    for kill in 0..KILLS {
        let mut children: Vec<_> = (0..2).map(|number| child(url, kill * 2 + number + 1)).collect();
        for (number, child) in children.iter_mut().enumerate() {
            let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
            let wanted = 3 + usize::try_from(kill).unwrap() * (7 + 4 * number);
            let did = lines.filter(|line| line.contains("did")).take(wanted).count();
            assert_eq!(did, wanted, "a process ended by itself");
            child.kill().unwrap();
        }
        for mut child in children {
            child.wait().unwrap();
        }
        assert_sound(&journal_at(url), &format!("kill {kill}")).await;
    }
}

#[tokio::test]
async fn no_kill_looks_like_a_rollback_on_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    killed_again_and_again(&format!("sqlite:{}/rekindle.db", directory.path().display())).await;
}

#[tokio::test]
async fn no_kill_looks_like_a_rollback_on_files() {
    let directory = tempfile::tempdir().unwrap();
    killed_again_and_again(&format!("file:{}/store", directory.path().display())).await;
}
