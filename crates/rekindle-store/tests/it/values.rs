//! Small values changed by several processes at once.

use std::process::{Child, Command, Stdio};

use rekindle_core::values::{Change, Changed, ValueKey, ValueKind, Values};
use rekindle_core::{Namespace, Store as _};
use rekindle_store::{StoreOptions, open};

const PROCESSES: usize = 4;
const ROUNDS: usize = 25;

/// Tells the test below that it is the child: `<store URL> <number of the process>`.
const CHILD: &str = "REKINDLE_VALUES_CHILD";

fn counter() -> ValueKey {
    ValueKey::new(Namespace::default(), ValueKind::new("test"), "counter").unwrap()
}

/// Counts one further; the number reached.
async fn count(values: &dyn Values, name: &str) -> usize {
    let mut current = values.get(&counter()).await.unwrap();
    loop {
        let text = current.as_deref().map(|bytes| std::str::from_utf8(bytes).unwrap());
        let next = text.map_or(0, |text| text.split_once(' ').unwrap().0.parse::<usize>().unwrap()) + 1;
        // With the name, so that no two want the same value.
        let change = Change::set(counter(), format!("{next} {name}")).if_is(current);
        match values.change(&change).await.unwrap() {
            Changed::Done => return next,
            Changed::Differs(found) => current = found,
        }
    }
}

/// Not a test of its own: what the processes run.
#[tokio::test]
async fn child_process() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let (url, number) = order.rsplit_once(' ').unwrap();
    let store = open(url, StoreOptions::new()).unwrap();
    for _ in 0..ROUNDS {
        count(store.values().unwrap(), number).await;
    }
}

fn spawn(url: &str, number: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "values::child_process", "--test-threads=1"])
        .env(CHILD, format!("{url} {number}"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

async fn no_change_is_lost_between_processes(url: &str) {
    let children: Vec<Child> = (0..PROCESSES).map(|number| spawn(url, number)).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let store = open(url, StoreOptions::new()).unwrap();
    assert_eq!(count(store.values().unwrap(), "last").await, PROCESSES * ROUNDS + 1, "{url}");
}

#[tokio::test]
async fn no_change_is_lost_between_processes_that_share_files() {
    let directory = tempfile::tempdir().unwrap();
    no_change_is_lost_between_processes(&format!("file:{}/store", directory.path().display())).await;
}

#[tokio::test]
async fn no_change_is_lost_between_processes_that_share_a_database() {
    let directory = tempfile::tempdir().unwrap();
    no_change_is_lost_between_processes(&format!("sqlite:{}/rekindle.db", directory.path().display())).await;
}

#[cfg(feature = "objects")]
#[tokio::test]
async fn no_change_is_lost_between_processes_that_share_a_bucket() {
    let directory = tempfile::tempdir().unwrap();
    no_change_is_lost_between_processes(&format!("objects:{}/bucket", directory.path().display())).await;
}
