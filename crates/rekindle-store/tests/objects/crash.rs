//! Processes that die, and requests that fail, at every single request.

use bytes::Bytes;
use rekindle_core::values::{Change, Changed, Expected, ValueKey, ValueKind};
use rekindle_core::{Epoch, Error, ErrorKind, Namespace, SessionInfo, SessionQuery, Store as _};
use rekindle_store::ObjectsStore;

use crate::script::{Script, User};
use crate::simulated::{Effect, Fault, Simulated};

/// Small, so that the script makes many snapshots.
const COMPACT_EVERY: u64 = 3;

fn open(script: &Script, objects: &Simulated) -> User {
    User::new(ObjectsStore::with_compaction(objects.bucket(), script.options(), COMPACT_EVERY).unwrap())
}

/// Takes the steps; the first that fails, with its error.
async fn run(script: &Script, user: &mut User) -> Option<(usize, Error)> {
    for (index, step) in script.steps.iter().enumerate() {
        script.clock.set(index as u64);
        if let Err(error) = user.take(step).await {
            return Some((index, error));
        }
    }
    None
}

/// Everything works, and how many requests that takes.
async fn requests_of(script: &Script) -> usize {
    let objects = Simulated::default();
    let mut user = open(script, &objects);
    for (index, step) in script.steps.iter().enumerate() {
        script.clock.set(index as u64);
        user.take(step).await.unwrap();
        let other = open(script, &objects);
        assert_eq!(other.see(&script.session).await, script.seen[index + 1], "after step {index}");
    }
    let objects = Simulated::default();
    assert!(run(script, &mut open(script, &objects)).await.is_none());
    let left: Vec<String> = objects.names().into_iter().filter(|name| !name.starts_with("index/")).collect();
    assert_eq!(left.len(), 1, "what a removed session leaves: {left:?}");
    objects.requests()
}

/// Checks the session against what was acknowledged, takes the rest of the steps and checks the end.
async fn go_on(script: &Script, mut user: User, epoch: Option<Epoch>, failed: usize, context: &str) {
    user.epoch = epoch;
    let found = user.see(&script.session).await;
    let allowed = found == script.seen[failed] || found == script.seen[failed + 1];
    assert!(
        allowed,
        "{context}, step {failed}: {found:#?}\nis neither {:#?}\nnor {:#?}",
        script.seen[failed],
        script.seen[failed + 1]
    );
    script.clock.set(failed as u64);
    user.retry(&script.steps[failed]).await;
    let last = script.steps.len() - 1;
    for index in failed + 1..last {
        script.clock.set(index as u64);
        user.take(&script.steps[index]).await.unwrap_or_else(|error| panic!("{context}, step {index}: {error:?}"));
    }
    if failed < last {
        let found = user.see(&script.session).await.map(|seen| seen.without_epochs());
        assert_eq!(found, script.seen[last].clone().map(|seen| seen.without_epochs()), "{context}");
    }
    user.take(&script.steps[last]).await.unwrap();
    assert_eq!(user.see(&script.session).await, None, "{context}");
}

/// A list shows the session exactly as it is, whatever the dead process had not told the index.
async fn assert_listed_as_it_is(script: &Script, objects: &Simulated, context: &str) {
    let store = ObjectsStore::with_compaction(objects.bucket(), script.options(), COMPACT_EVERY).unwrap();
    let listed = store.list(&SessionQuery::new(script.session.namespace.clone())).await.unwrap().sessions;
    let found: Vec<SessionInfo> = store.open(&script.session).await.into_iter().collect();
    assert_eq!(listed, found, "{context}");
}

#[tokio::test]
async fn a_process_may_die_at_every_request() {
    let script = Script::everything().await;
    let requests = requests_of(&script).await;
    assert!(requests > 150, "the script became too short: {requests} requests");
    let mut noticed = 0;
    for at in 1..=requests {
        for effect in [Effect::Nothing, Effect::Done] {
            let context = format!("died at request {at}, {effect:?}");
            let objects = Simulated::default();
            let mut user = open(&script, &objects);
            objects.set_fault(Fault::From(at, effect));
            let Some((failed, error)) = run(&script, &mut user).await else {
                // What fails behind the last acknowledgement is nobody's business.
                continue;
            };
            noticed += 1;
            assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{context}: {error:?}");
            assert_eq!(error.session(), Some(&script.session), "{context}");
            objects.set_fault(Fault::None);
            assert_listed_as_it_is(&script, &objects, &context).await;
            go_on(&script, open(&script, &objects), user.epoch, failed, &context).await;
            assert_listed_as_it_is(&script, &objects, &context).await;
            // Whatever the dead process left over is gone with the session.
            let left: Vec<_> = objects.names().into_iter().filter(|name| name.starts_with("sessions/")).collect();
            assert_eq!(left.len(), 1, "{context}: {left:?}");
        }
    }
    assert!(noticed > requests, "{noticed} of {requests}");
}

#[tokio::test]
async fn any_single_request_may_fail() {
    let script = Script::everything().await;
    let requests = requests_of(&script).await;
    let (mut noticed, mut absorbed) = (0, 0);
    for at in 1..=requests {
        for effect in [Effect::Nothing, Effect::Done] {
            let context = format!("request {at} failed, {effect:?}");
            let objects = Simulated::default();
            let mut user = open(&script, &objects);
            objects.set_fault(Fault::Once(at, effect));
            match run(&script, &mut user).await {
                Some((failed, error)) => {
                    noticed += 1;
                    assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{context}: {error:?}");
                    let epoch = user.epoch;
                    go_on(&script, user, epoch, failed, &context).await;
                }
                // A snapshot that failed: the next one does its work.
                None => {
                    absorbed += 1;
                    assert_eq!(open(&script, &objects).see(&script.session).await, None, "{context}");
                }
            }
        }
    }
    assert!(noticed > 50 && absorbed > 50, "{noticed} and {absorbed}");
}

/// Changes of one value, each of which expects the one before; and what is there after each.
fn changes() -> (Vec<Change>, Vec<Option<Bytes>>) {
    let key = ValueKey::new(Namespace::default(), ValueKind::DATA_KEY, "k".repeat(600)).unwrap();
    let values = [Some("1".into()), Some(vec![0xfe; 5_000].into()), None, Some("2".into()), None];
    let seen: Vec<Option<Bytes>> = [None].into_iter().chain(values).collect();
    let change = |pair: &[Option<Bytes>]| Change {
        key: key.clone(),
        expected: Expected::Is(pair[0].clone()),
        value: pair[1].clone(),
    };
    (seen.windows(2).map(change).collect(), seen)
}

/// Makes changes; the first that fails, with its error.
async fn run_changes(user: &User, changes: &[Change]) -> Option<(usize, Error)> {
    let values = user.store.values().unwrap();
    for (index, change) in changes.iter().enumerate() {
        match values.change(change).await {
            Ok(changed) => assert_eq!(changed, Changed::Done, "change {index}"),
            Err(error) => return Some((index, error)),
        }
    }
    None
}

#[tokio::test]
async fn a_value_is_old_or_new_whichever_request_fails() {
    let script = Script::everything().await;
    let (changes, seen) = changes();
    let objects = Simulated::default();
    assert!(run_changes(&open(&script, &objects), &changes).await.is_none());
    let requests = objects.requests();
    assert_eq!(requests, 2 * changes.len(), "a change is one read and one write");
    for at in 1..=requests {
        for effect in [Effect::Nothing, Effect::Done] {
            for fault in [Fault::From(at, effect), Fault::Once(at, effect)] {
                let context = format!("{fault:?}");
                let objects = Simulated::default();
                let mut user = open(&script, &objects);
                objects.set_fault(fault);
                let (failed, error) = run_changes(&user, &changes).await.unwrap_or_else(|| panic!("{context}"));
                assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{context}: {error:?}");
                objects.set_fault(Fault::None);
                if matches!(fault, Fault::From(..)) {
                    user = open(&script, &objects);
                }
                let values = user.store.values().unwrap();
                let found = values.get(&changes[failed].key).await.unwrap();
                assert!(found == seen[failed] || found == seen[failed + 1], "{context}, change {failed}: {found:?}");
                assert!(run_changes(&user, &changes[failed..]).await.is_none(), "{context}");
                assert_eq!(values.get(&changes[failed].key).await.unwrap(), None, "{context}");
            }
        }
    }
}

#[tokio::test]
async fn a_process_that_slept_through_everything_harms_nothing() {
    let script = Script::everything().await;
    let last = script.steps.len() - 1;
    for asleep_from in 0..last - 1 {
        let objects = Simulated::default();
        let mut awake = open(&script, &objects);
        let sleeper = open(&script, &objects);
        for (index, step) in script.steps.iter().enumerate().take(last) {
            script.clock.set(index as u64);
            awake.take(step).await.unwrap();
            if index <= asleep_from {
                // It knows the session up to here, and nothing from here on.
                let _ = sleeper.store.open(&script.session).await.unwrap();
            }
        }
        // What it repeats now was either done long ago or is refused; nothing it remembers is true any more.
        let mut sleeper = User { epoch: awake.epoch, ..sleeper };
        let _ = sleeper.take(&script.steps[asleep_from + 1]).await;
        let seen = open(&script, &objects).see(&script.session).await.unwrap();
        assert_eq!(seen, awake.see(&script.session).await.unwrap(), "asleep from {asleep_from}");
        assert_eq!(seen, sleeper.see(&script.session).await.unwrap(), "asleep from {asleep_from}");
    }
}
