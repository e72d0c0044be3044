//! Where two JSON values differ, place by place.

use serde_json::{Map, Value};

/// A place that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Where, from the outermost name on.
    pub path: String,
    /// What happened there.
    pub change: Change,
}

/// What happened at a place.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Only the second has it.
    Added(Value),
    /// Only the first has it.
    Removed(Value),
    /// Both have it, with other values.
    Changed(Value, Value),
}

/// The places that differ below `path`.
pub fn places(path: &str, from: &Value, to: &Value) -> Vec<Place> {
    let mut places = Vec::new();
    walk(path, from, to, &mut places);
    places
}

fn walk(path: &str, from: &Value, to: &Value, places: &mut Vec<Place>) {
    match (from, to) {
        _ if from == to => {}
        (Value::Object(from), Value::Object(to)) => objects(path, from, to, places),
        (Value::Array(from), Value::Array(to)) => arrays(path, from, to, places),
        _ => places.push(Place { path: path.to_owned(), change: Change::Changed(from.clone(), to.clone()) }),
    }
}

fn objects(path: &str, from: &Map<String, Value>, to: &Map<String, Value>, places: &mut Vec<Place>) {
    for (name, old) in from {
        let inner = format!("{path}/{name}");
        match to.get(name) {
            Some(new) => walk(&inner, old, new, places),
            None => places.push(Place { path: inner, change: Change::Removed(old.clone()) }),
        }
    }
    for (name, new) in to.iter().filter(|(name, _)| !from.contains_key(*name)) {
        places.push(Place { path: format!("{path}/{name}"), change: Change::Added(new.clone()) });
    }
}

/// Elements that both have at the beginning or the end are the same ones.
fn arrays(path: &str, from: &[Value], to: &[Value], places: &mut Vec<Place>) {
    let begin = from.iter().zip(to).take_while(|(old, new)| old == new).count();
    let rest = from.len().min(to.len()) - begin;
    let end = from.iter().rev().zip(to.iter().rev()).take(rest).take_while(|(old, new)| old == new).count();
    let (old, new) = (&from[begin..from.len() - end], &to[begin..to.len() - end]);
    for index in 0..old.len().max(new.len()) {
        let inner = format!("{path}/{}", begin + index);
        match (old.get(index), new.get(index)) {
            (Some(old), Some(new)) => walk(&inner, old, new, places),
            (Some(old), None) => places.push(Place { path: inner, change: Change::Removed(old.clone()) }),
            (None, Some(new)) => places.push(Place { path: inner, change: Change::Added(new.clone()) }),
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_found_where_they_are() {
        let check = |from: Value, to: Value, expected: &[(&str, Change)]| {
            let found: Vec<_> = places("r", &from, &to).into_iter().map(|place| (place.path, place.change)).collect();
            let expected: Vec<_> = expected.iter().map(|(path, change)| ((*path).to_owned(), change.clone())).collect();
            assert_eq!(found, expected);
        };
        check(json!(3), json!(5), &[("r", Change::Changed(json!(3), json!(5)))]);
        check(
            json!({"a": 1, "b": {"c": 1}}),
            json!({"b": {"c": 2}, "d": null}),
            &[
                ("r/a", Change::Removed(json!(1))),
                ("r/b/c", Change::Changed(json!(1), json!(2))),
                ("r/d", Change::Added(json!(null))),
            ],
        );
        check(json!([1, 2, 3]), json!([1, 9, 2, 3]), &[("r/1", Change::Added(json!(9)))]);
        check(json!([1, 2, 3]), json!([1, 3]), &[("r/1", Change::Removed(json!(2)))]);
        check(json!([1, 1]), json!([1]), &[("r/1", Change::Removed(json!(1)))]);
        check(json!({"a": 1}), json!([1]), &[("r", Change::Changed(json!({"a": 1}), json!([1])))]);
    }
}
