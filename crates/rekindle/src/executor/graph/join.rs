//! Where strands meet: what they wrote at the same time becomes one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rekindle_core::record::{RegisterSet, RegisterUnset};
use rekindle_core::{Error, ErrorKind, Json, Record, Result, State};
use serde_json::Value;

use super::node::{layer, layers};
use super::spec::Merge;
use super::visit::unharmed;
use crate::driver::{MEMORY, register};

/// A function that makes one value of several: what was there before, and what was written, in
/// the order of the edges.
#[derive(Clone)]
pub(super) struct Reducer(pub(super) Arc<Reduce>);

type Reduce = dyn Fn(Option<&Value>, &[Value]) -> Result<Value> + Send + Sync;

impl fmt::Debug for Reducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reducer")
    }
}

/// What is needed to merge.
pub(super) struct Join<'a> {
    pub(super) node: &'a str,
    pub(super) rules: &'a BTreeMap<String, Merge>,
    pub(super) reducers: &'a BTreeMap<String, Reducer>,
}

impl Join<'_> {
    /// The records that put what `strands` wrote into the layer of `parent`.
    pub(super) fn records(&self, state: &State, parent: &str, strands: &[String]) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        let mut written: BTreeMap<&str, Vec<(&str, &Json)>> = BTreeMap::new();
        let layers: Vec<String> = strands.iter().map(|strand| layer(strand)).collect();
        for (strand, layer) in strands.iter().zip(&layers) {
            for (key, value) in state.registers_under(layer) {
                records.push(RegisterUnset::new(key.clone()).into());
                let name = key.as_str().strip_prefix(layer.as_str()).unwrap_or_default();
                written.entry(name).or_default().push((strand, value));
            }
        }
        for (key, values) in written {
            let merged = self.merge(state, parent, key, &values)?;
            records.push(RegisterSet::new(register(&format!("{}{key}", layer(parent)))?, merged).into());
        }
        Ok(records)
    }

    fn merge(&self, state: &State, parent: &str, key: &str, values: &[(&str, &Json)]) -> Result<Json> {
        let rule = self.rules.get(key).unwrap_or(&Merge::Error);
        let (first, last) = (values[0].1.clone(), values[values.len() - 1].1.clone());
        match rule {
            Merge::Error if values.iter().any(|(_, value)| **value != first) => Err(self.conflict(key, values)),
            Merge::Error | Merge::First => Ok(first),
            Merge::Last => Ok(last),
            Merge::Append => {
                let mut list = list(before(state, parent, key)?);
                for (_, value) in values {
                    list.extend(self::list(Some(value.to_value()?)));
                }
                Json::of(&list)
            }
            Merge::Reducer(name) => {
                let Some(reducer) = self.reducers.get(name) else {
                    return Err(Error::invalid(format!("the reducer `{name}` is not registered")));
                };
                let values: Vec<Value> = values.iter().map(|(_, value)| value.to_value()).collect::<Result<_>>()?;
                let before = before(state, parent, key)?;
                let merged = unharmed(&format!("the reducer `{name}`"), || (reducer.0)(before.as_ref(), &values))?;
                merged.map(Json::from).map_err(|error| {
                    let message = format!("the reducer `{name}` failed on memory key `{key}` at node `{}`", self.node);
                    Error::new(ErrorKind::StepFailed, message).because(error)
                })
            }
        }
    }

    fn conflict(&self, key: &str, values: &[(&str, &Json)]) -> Error {
        let strands: Vec<_> = values.iter().map(|(strand, _)| format!("`{strand}`")).collect();
        let message = format!(
            "strands {} wrote different values into memory key `{key}`, and node `{}` does not say which counts",
            strands.join(" and "),
            self.node
        );
        Error::new(ErrorKind::StepFailed, message)
            .hint(format!("declare how `{key}` is merged at `{}`: first, last, append or a reducer", self.node))
    }
}

/// What was there before the strands were split.
fn before(state: &State, parent: &str, key: &str) -> Result<Option<Value>> {
    let mut all = layers(parent);
    all.push(MEMORY.to_owned());
    let found = all.iter().find_map(|layer| state.register(&format!("{layer}{key}")));
    found.map(Json::to_value).transpose()
}

/// A list as it is; anything else as a list of one.
fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(one) => vec![one],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(rule: Option<Merge>, before: Option<Value>, values: &[Value], expected: Result<Value, &str>) {
        let mut state = State::default();
        let mut set = |key: String, value: &Value| {
            let record = RegisterSet::new(register(&key).unwrap(), Json::from(value.clone())).into();
            state.apply(&record).unwrap();
        };
        if let Some(before) = &before {
            set("memory/k".into(), before);
        }
        let strands: Vec<String> = (1..=values.len()).map(|number| format!("0.{number}")).collect();
        values.iter().zip(&strands).for_each(|(value, strand)| set(format!("overlay/{strand}/k"), value));
        let rules = rule.into_iter().map(|rule| ("k".to_owned(), rule)).collect();
        let sum = |before: Option<&Value>, values: &[Value]| {
            Ok(json!(before.into_iter().chain(values).filter_map(Value::as_i64).sum::<i64>()))
        };
        let reducers = BTreeMap::from([("sum".to_owned(), Reducer(Arc::new(sum)))]);
        let join = Join { node: "j", rules: &rules, reducers: &reducers };
        let merged = join.records(&state, "0", &strands).map(|records| {
            records.iter().for_each(|record| state.apply(record).unwrap());
            assert_eq!(state.registers_under("overlay/").count(), 0);
            state.register("memory/k").unwrap().to_value().unwrap()
        });
        match (merged, expected) {
            (Ok(merged), Ok(expected)) => assert_eq!(merged, expected),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (merged, expected) => panic!("{merged:?} is not {expected:?}"),
        }
    }

    #[test]
    fn writes_become_one_as_declared() {
        check(None, None, &[json!(1)], Ok(json!(1)));
        check(None, None, &[json!(1), json!(1)], Ok(json!(1)));
        check(None, None, &[json!(1), json!(2)], Err("strands `0.1` and `0.2` wrote different values"));
        check(Some(Merge::First), None, &[json!(1), json!(2)], Ok(json!(1)));
        check(Some(Merge::Last), None, &[json!(1), json!(2)], Ok(json!(2)));
        check(Some(Merge::Append), None, &[json!(1), json!([2, 3])], Ok(json!([1, 2, 3])));
        check(Some(Merge::Append), Some(json!([0])), &[json!(1), json!("x")], Ok(json!([0, 1, "x"])));
        check(Some(Merge::Reducer("sum".into())), Some(json!(5)), &[json!(1), json!(2)], Ok(json!(8)));
        check(Some(Merge::Reducer("none".into())), None, &[json!(1)], Err("`none`"));
    }
}
