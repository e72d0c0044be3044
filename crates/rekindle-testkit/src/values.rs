//! The conformance suite of the [`Values`] contract, over any store that keeps small values. See
//! [`values_conformance!`](crate::values_conformance!).

// A conformance test is an assertion from its first line to its last.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bytes::Bytes;
use rekindle_core::values::{
    Change, Changed, MAX_VALUE_BYTES, MAX_VALUE_KEY_BYTES, MAX_VALUES, ValueKey, ValueKind, ValueQuery, Values,
    all_values,
};
use rekindle_core::{ErrorKind, Namespace, PAGE_BYTES, Removal, Store};

use crate::dropped::{answer, at_every_await, cut};
use crate::fixture::{Harness, key};

const KIND: ValueKind = ValueKind::new("test");
const OTHER_KIND: ValueKind = ValueKind::new("test-2");

/// Runs every test of the contract of small values over a store. The second argument makes a new,
/// empty [`Fixture`](crate::Fixture) each time it is called.
#[macro_export]
macro_rules! values_conformance {
    ($name:ident, $fixture:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            fn harness() -> $crate::Harness {
                $crate::Harness::new(($fixture)(), $crate::CodecKind::Default)
            }
            $crate::values_tests! {
                values_survive_reopening
                a_change_needs_what_it_expects
                of_many_changes_one_succeeds
                a_change_can_be_repeated
                names_do_not_mix
                values_outlive_sessions
                values_are_listed_in_order
                pages_are_limited_by_size
                many_values_are_got_at_once
                sizes_are_limited
                a_dropped_change_is_made_or_not
            }
        }
    };
}

/// One `#[tokio::test]` for each named test. For [`values_conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! values_tests {
    ($($test:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            $crate::values::$test(&harness()).await;
        })*
    };
}

fn values(store: &Arc<dyn Store>) -> &dyn Values {
    store.values().expect("the store keeps values")
}

fn named(name: &str) -> ValueKey {
    ValueKey::new(Namespace::default(), KIND, name).unwrap()
}

fn some(text: &'static str) -> Option<Bytes> {
    Some(Bytes::from_static(text.as_bytes()))
}

async fn change(store: &Arc<dyn Store>, wanted: Change) -> Changed {
    values(store).change(&wanted).await.unwrap()
}

async fn get(store: &Arc<dyn Store>, key: &ValueKey) -> Option<Bytes> {
    values(store).get(key).await.unwrap()
}

/// An acknowledged change is there when the store is opened again.
pub async fn values_survive_reopening(harness: &Harness) {
    let store = harness.store().await;
    let binary = Bytes::from_iter(0..=u8::MAX);
    assert_eq!(change(&store, Change::set(named("a"), "1")).await, Changed::Done);
    assert_eq!(change(&store, Change::set(named("b"), binary.clone())).await, Changed::Done);
    assert_eq!(change(&store, Change::set(named("c"), "gone")).await, Changed::Done);
    assert_eq!(change(&store, Change::delete(named("c"))).await, Changed::Done);
    drop(store);
    let again = harness.store().await;
    assert_eq!(get(&again, &named("a")).await, some("1"));
    assert_eq!(get(&again, &named("b")).await, Some(binary));
    assert_eq!(get(&again, &named("c")).await, None);
    assert_eq!(get(&again, &named("never")).await, None);
}

/// A value changes only if it is as expected; otherwise the caller learns what is there.
pub async fn a_change_needs_what_it_expects(harness: &Harness) {
    let store = harness.store().await;
    let set = |value: &'static str| Change::set(named("a"), value);
    let differs = |text| Changed::Differs(some(text));
    let cases = [
        (set("1").if_is(some("0")), Changed::Differs(None), None),
        (Change::delete(named("a")).if_is(some("0")), Changed::Done, None),
        (set("1").if_is(None), Changed::Done, some("1")),
        (set("2").if_is(None), differs("1"), some("1")),
        (set("2").if_is(some("0")), differs("1"), some("1")),
        (set("2").if_is(some("")), differs("1"), some("1")),
        (set("2").if_is(some("1")), Changed::Done, some("2")),
        (set("3"), Changed::Done, some("3")),
        (Change::delete(named("a")).if_is(None), differs("3"), some("3")),
        (Change::delete(named("a")).if_is(some("2")), differs("3"), some("3")),
        (Change::delete(named("a")).if_is(some("3")), Changed::Done, None),
        (set("4").if_is(some("3")), Changed::Differs(None), None),
        (set("").if_is(None), Changed::Done, some("")),
        (set("5").if_is(None), differs(""), some("")),
        (set("5").if_is(some("")), Changed::Done, some("5")),
        (Change::delete(named("a")), Changed::Done, None),
        (set("6"), Changed::Done, some("6")),
    ];
    for (number, (wanted, expected, left)) in cases.into_iter().enumerate() {
        assert_eq!(change(&store, wanted).await, expected, "case {number}");
        assert_eq!(get(&store, &named("a")).await, left, "case {number}");
    }
}

/// Of many changes at once that expect the same value exactly one succeeds, whichever handle they
/// come from; none is lost and none counts twice.
pub async fn of_many_changes_one_succeeds(harness: &Harness) {
    const WRITERS: usize = 6;
    const ROUNDS: usize = 5;
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        let store = harness.store().await;
        writers.push(tokio::spawn(async move {
            let own = Change::set(named("first"), format!("writer {number}")).if_is(None);
            let first = usize::from(change(&store, own).await == Changed::Done);
            for _ in 0..ROUNDS {
                let mut current = get(&store, &named("count")).await;
                loop {
                    let text = current.as_deref().map(|bytes| std::str::from_utf8(bytes).unwrap());
                    let count = text.map_or(0, |text| text.split_once(' ').unwrap().0.parse::<usize>().unwrap());
                    // With the writer's name, so that no two want the same value.
                    let next = format!("{} by {number}", count + 1);
                    match change(&store, Change::set(named("count"), next).if_is(current)).await {
                        Changed::Done => break,
                        Changed::Differs(found) => current = found,
                    }
                }
            }
            first
        }));
    }
    let mut first = 0;
    for writer in writers {
        first += writer.await.unwrap();
    }
    assert_eq!(first, 1, "exactly one was first");
    let store = harness.store().await;
    let count = get(&store, &named("count")).await.unwrap();
    assert!(count.starts_with(format!("{} by ", WRITERS * ROUNDS).as_bytes()), "{count:?}");
}

/// A change whose result is there already is done, and changes nothing.
pub async fn a_change_can_be_repeated(harness: &Harness) {
    let store = harness.store().await;
    let begin = Change::set(named("a"), "1").if_is(None);
    let go_on = Change::set(named("a"), "2").if_is(some("1"));
    let end = Change::delete(named("a")).if_is(some("2"));
    for wanted in [&begin, &begin, &go_on, &go_on] {
        assert_eq!(change(&store, wanted.clone()).await, Changed::Done);
    }
    assert_eq!(change(&store, begin.clone()).await, Changed::Differs(some("2")));
    for _ in 0..2 {
        assert_eq!(change(&harness.store().await, end.clone()).await, Changed::Done);
        assert_eq!(get(&store, &named("a")).await, None);
    }
}

/// Namespaces, kinds and keys do not mix, for any legal text.
pub async fn names_do_not_mix(harness: &Harness) {
    let store = harness.store().await;
    let long = "x".repeat(MAX_VALUE_KEY_BYTES);
    let other = format!("{}y", &long[1..]);
    let keys = [
        "a",
        "A",
        "a ",
        " a",
        "a/b",
        "%61",
        "..",
        ".",
        "lock",
        "a.json",
        "a.json.tmp",
        "a%",
        "a_b",
        "a\\b",
        "*",
        "'; DROP TABLE small_values; --",
        "ä",
        "🦀",
        "a\u{301}",
        "á",
        "-",
        "+",
        "(",
        "[a",
        &long,
        &other,
    ];
    let namespaces = [Namespace::default(), Namespace::new("Default").unwrap(), Namespace::new("../x").unwrap()];
    let mut all = Vec::new();
    for (at, namespace) in namespaces.iter().enumerate() {
        for kind in [KIND, OTHER_KIND] {
            for key in &keys {
                all.push((ValueKey::new(namespace.clone(), kind, *key).unwrap(), format!("{at} {kind} {key}")));
            }
        }
    }
    for (key, value) in &all {
        assert_eq!(change(&store, Change::set(key.clone(), value.clone())).await, Changed::Done);
    }
    for (key, value) in &all {
        assert_eq!(get(&store, key).await.as_deref(), Some(value.as_bytes()), "{key:?}");
    }
    let (gone, _) = &all[0];
    change(&store, Change::delete(gone.clone())).await;
    for (key, value) in all.iter().filter(|(key, _)| key != gone) {
        assert_eq!(get(&store, key).await.as_deref(), Some(value.as_bytes()), "{key:?}");
    }
}

/// A value has nothing to do with the session whose name is its key.
pub async fn values_outlive_sessions(harness: &Harness) {
    let journal = harness.journal().await;
    let store = journal.store();
    harness.session(&journal, "a").await;
    change(store, Change::set(named("a"), "1")).await;
    store.remove(&Removal::Session { session: key("a") }).await.unwrap();
    assert_eq!(get(store, &named("a")).await, some("1"));
    harness.session(&journal, "a").await;
    assert_eq!(get(store, &named("a")).await, some("1"));
}

/// Lists go by the bytes of the key, page by page, and hold one kind of one namespace.
pub async fn values_are_listed_in_order(harness: &Harness) {
    let store = harness.store().await;
    let long = format!("b{}", "x".repeat(MAX_VALUE_KEY_BYTES - 1));
    let longer = format!("ba{}", "é".repeat(500));
    let mut keys = ["b", "B", "a", "a-", "a%", "a/b", "aa", "ab", "z", "é", "🦀", "~", "0", "_", &long, &longer];
    for (number, key) in keys.iter().enumerate() {
        change(&store, Change::set(named(key), number.to_string())).await;
    }
    let elsewhere = ValueKey::new(Namespace::default(), OTHER_KIND, "c").unwrap();
    change(&store, Change::set(elsewhere, "elsewhere")).await;
    let elsewhere = ValueKey::new(Namespace::new("n").unwrap(), KIND, "c").unwrap();
    change(&store, Change::set(elsewhere, "elsewhere")).await;
    change(&store, Change::set(named("deleted"), "soon")).await;
    change(&store, Change::delete(named("deleted"))).await;
    keys.sort_unstable();
    let names = |list: &[(String, Bytes)]| list.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    let all = all_values(values(&store), &Namespace::default(), KIND).await.unwrap();
    assert_eq!(names(&all), keys);
    for (key, value) in &all {
        assert_eq!(get(&store, &named(key)).await.as_ref(), Some(value), "{key}");
    }
    for limit in [1, 3, keys.len() - 1, keys.len(), keys.len() + 1] {
        let mut query = ValueQuery::new(Namespace::default(), KIND).with_limit(limit);
        let mut found = Vec::new();
        loop {
            let page = values(&store).list(&query).await.unwrap();
            assert!(page.values.len() <= limit);
            found.extend(names(&page.values));
            assert_eq!(page.more, found.len() < keys.len(), "limit {limit}");
            if !page.more {
                break;
            }
            query = query.with_after(found.last().unwrap().clone());
        }
        assert_eq!(found, keys, "limit {limit}");
    }
    // A page may begin behind a key that is not there.
    let query = ValueQuery::new(Namespace::default(), KIND).with_after("c");
    let behind: Vec<&str> = keys.into_iter().filter(|key| *key > "c").collect();
    assert_eq!(names(&values(&store).list(&query).await.unwrap().values), behind);
    let nothing = all_values(values(&store), &Namespace::new("empty").unwrap(), KIND).await.unwrap();
    assert!(nothing.is_empty());
}

/// However large the values are, a page stays of a size that fits into memory.
pub async fn pages_are_limited_by_size(harness: &Harness) {
    let store = harness.store().await;
    let count = PAGE_BYTES / MAX_VALUE_BYTES + 6;
    for number in 0..count {
        let value = vec![number as u8; MAX_VALUE_BYTES];
        change(&store, Change::set(named(&format!("{number:04}")), value)).await;
    }
    let page = values(&store).list(&ValueQuery::new(Namespace::default(), KIND)).await.unwrap();
    assert!(page.more && page.values.len() < count, "{} of {count}", page.values.len());
    let bytes: usize = page.values.iter().map(|(_, value)| value.len()).sum();
    assert!(bytes <= PAGE_BYTES + MAX_VALUE_BYTES, "{bytes}");
    let all = all_values(values(&store), &Namespace::default(), KIND).await.unwrap();
    assert_eq!(all.len(), count);
    assert!(all.iter().enumerate().all(|(number, (_, value))| value[..] == vec![number as u8; MAX_VALUE_BYTES]));
}

/// Many values are got in the order of their keys, whatever is there, is not there, or is asked for twice.
pub async fn many_values_are_got_at_once(harness: &Harness) {
    let store = harness.store().await;
    let long = "x".repeat(MAX_VALUE_KEY_BYTES);
    let elsewhere = |namespace: &str, kind| ValueKey::new(Namespace::new(namespace).unwrap(), kind, "a").unwrap();
    let set = [
        (named("a"), "1"),
        (named("'; --"), "2"),
        (named(&long), "3"),
        (named("empty"), ""),
        (elsewhere("n", KIND), "4"),
        (elsewhere("default", OTHER_KIND), "5"),
    ];
    for (key, value) in &set {
        change(&store, Change::set(key.clone(), *value)).await;
    }
    change(&store, Change::set(named("deleted"), "soon")).await;
    change(&store, Change::delete(named("deleted"))).await;
    let check = async |keys: &[ValueKey]| {
        let mut expected = Vec::new();
        for key in keys {
            expected.push(get(&store, key).await);
        }
        assert_eq!(values(&store).get_many(keys).await.unwrap(), expected, "{keys:?}");
    };
    let mut keys: Vec<ValueKey> = set.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(values(&store).get_many(&keys).await.unwrap()[3], some(""));
    check(&[]).await;
    check(&keys).await;
    keys.insert(2, named("never"));
    keys.insert(0, elsewhere("n", OTHER_KIND));
    keys.extend([named("deleted"), named("a"), named("a")]);
    check(&keys).await;
    keys.reverse();
    check(&keys).await;
    // As many as allowed, and no more.
    let mut most: Vec<ValueKey> = (0..MAX_VALUES).map(|number| named(&number.to_string())).collect();
    most[MAX_VALUES / 2] = named("a");
    let found = values(&store).get_many(&most).await.unwrap();
    assert_eq!(found.iter().position(Option::is_some), Some(MAX_VALUES / 2));
    assert_eq!(found.len(), MAX_VALUES);
    most.push(named("a"));
    let refused = values(&store).get_many(&most).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Limit { .. }), "{refused:?}");
}

/// A value may be empty or as large as allowed, and no larger; so may a page.
pub async fn sizes_are_limited(harness: &Harness) {
    let store = harness.store().await;
    // The worst that an encoding as text could meet.
    for byte in [0u8, b'"', 0xff] {
        let large = Bytes::from(vec![byte; MAX_VALUE_BYTES]);
        change(&store, Change::set(named("a"), large.clone())).await;
        assert_eq!(get(&store, &named("a")).await, Some(large));
    }
    let too_large = Change::set(named("a"), vec![b'x'; MAX_VALUE_BYTES + 1]);
    let refused = values(&store).change(&too_large).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Limit { .. }), "{refused:?}");
    change(&store, Change::set(named("a"), "")).await;
    assert_eq!(get(&harness.store().await, &named("a")).await, some(""));
    for limit in [0, MAX_VALUES + 1] {
        let query = ValueQuery::new(Namespace::default(), KIND).with_limit(limit);
        assert!(values(&store).list(&query).await.is_err(), "{limit}");
    }
    let query = ValueQuery::new(Namespace::default(), KIND).with_after("a\0b");
    assert!(values(&store).list(&query).await.is_err());
}

/// A change that is dropped at any await is made or not, and can be repeated; looks that are dropped change nothing.
pub async fn a_dropped_change_is_made_or_not(harness: &Harness) {
    let (store, other) = (harness.store().await, harness.store().await);
    for (which, before, after) in [("new", None, some("1")), ("over", some("0"), some("1")), ("gone", some("0"), None)]
    {
        at_every_await(async |polls| {
            let name = named(&format!("{which}-{polls}"));
            if let Some(before) = before.clone() {
                assert_eq!(change(&store, Change::set(name.clone(), before)).await, Changed::Done);
            }
            let wanted = Change { value: after.clone(), ..Change::delete(name.clone()) }.if_is(before.clone());
            let done = cut(polls, values(&store).change(&wanted)).await;
            let found = answer("get", get(&other, &name)).await;
            assert!(found == before || found == after, "{which} {polls}: {found:?}");
            // It may have been made before, so what is there counts and not the answer.
            answer("change", change(&store, wanted)).await;
            assert_eq!(answer("get", get(&store, &name)).await, after, "{which} {polls}");
            assert_eq!(answer("get", get(&other, &name)).await, after, "{which} {polls}");
            done.is_some()
        })
        .await;
    }
    assert_eq!(change(&store, Change::set(named("stays"), "1")).await, Changed::Done);
    let query = ValueQuery::new(Namespace::default(), KIND);
    let keys = [named("stays"), named("never")];
    at_every_await(async |polls| {
        let got = cut(polls, values(&store).get(&keys[0])).await.is_some();
        let many = cut(polls, values(&store).get_many(&keys)).await.is_some();
        let listed = cut(polls, values(&store).list(&query)).await.is_some();
        assert_eq!(answer("get", get(&store, &keys[0])).await, some("1"));
        got && many && listed
    })
    .await;
    let listed = answer("list", values(&store).list(&query)).await.unwrap();
    assert!(listed.values.iter().any(|(name, _)| name == "stays"), "{listed:?}");
}
