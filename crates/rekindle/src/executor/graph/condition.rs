//! Conditions of edges: on the memory and on the result of the node that has just run.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::executor::nesting::Nested;

/// When an edge is followed.
///
/// ```
/// use rekindle::graph::Condition;
/// let again = Condition::memory("score").less_than(0.8).and(Condition::memory("tries").at_most(3));
/// assert_eq!(serde_json::to_value(&again).unwrap(), serde_json::json!({"all": [
///     {"memory": "score", "less_than": 0.8},
///     {"memory": "tries", "at_most": 3},
/// ]}));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum Condition {
    /// All of them hold.
    All {
        /// Which.
        all: Vec<Condition>,
    },
    /// At least one of them holds.
    Any {
        /// Which.
        any: Vec<Condition>,
    },
    /// It does not hold.
    Not {
        /// Which.
        not: Box<Condition>,
    },
    /// The node has failed. An edge without this is followed only after a success.
    Failed {
        /// Whether it has.
        failed: bool,
    },
    /// Something about a value.
    Test(Box<Test>),
}

/// Something about a value: of the memory, or of the result of the node. All that is said must
/// hold; if nothing is, the value must be there and be neither `null` nor `false`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// The key of the memory; without it, the result of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Where in the value, e.g. `/items/0/score` (JSON Pointer).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// It is this.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub is: Option<Value>,
    /// It is anything else.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub is_not: Option<Value>,
    /// It is one of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<Value>>,
    /// It is less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub less_than: Option<Value>,
    /// It is less, or equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Value>,
    /// It is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_than: Option<Value>,
    /// It is more, or equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<Value>,
    /// The text or the list has this in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contains: Option<Value>,
    /// It is there, or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exists: Option<bool>,
}

/// `is: null` says something; leaving it out does not.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// What a condition is asked about.
pub(crate) trait Facts {
    /// A key of the memory.
    fn memory(&self, key: &str) -> Option<Value>;
    /// The result of the node.
    fn result(&self) -> Option<Value>;
    /// Whether the node failed.
    fn failed(&self) -> bool;
}

impl Condition {
    /// About a key of the memory.
    pub fn memory(key: impl Into<String>) -> Test {
        Test { memory: Some(key.into()), ..Test::default() }
    }

    /// About the result of the node.
    pub fn result() -> Test {
        Test::default()
    }

    /// The node has failed.
    pub fn failed() -> Self {
        Self::Failed { failed: true }
    }

    /// Both hold.
    #[must_use]
    pub fn and(self, other: impl Into<Self>) -> Self {
        match self {
            Self::All { mut all } => {
                all.push(other.into());
                Self::All { all }
            }
            one => Self::All { all: vec![one, other.into()] },
        }
    }

    /// One of both holds.
    #[must_use]
    pub fn or(self, other: impl Into<Self>) -> Self {
        match self {
            Self::Any { mut any } => {
                any.push(other.into());
                Self::Any { any }
            }
            one => Self::Any { any: vec![one, other.into()] },
        }
    }

    /// It does not hold.
    #[must_use]
    pub fn negate(self) -> Self {
        Self::Not { not: Box::new(self) }
    }

    /// Whether it holds.
    pub(crate) fn holds(&self, facts: &dyn Facts) -> bool {
        match self {
            Self::All { all } => all.iter().all(|condition| condition.holds(facts)),
            Self::Any { any } => any.iter().any(|condition| condition.holds(facts)),
            Self::Not { not } => !not.holds(facts),
            Self::Failed { failed } => *failed == facts.failed(),
            Self::Test(test) => test.holds(facts),
        }
    }

    /// Whether it says anything about failure; an edge that does not is for successes only.
    pub(crate) fn is_about_failure(&self) -> bool {
        match self {
            Self::All { all: parts } | Self::Any { any: parts } => parts.iter().any(Self::is_about_failure),
            Self::Not { not } => not.is_about_failure(),
            Self::Failed { .. } => true,
            Self::Test(_) => false,
        }
    }

    /// Every test in it.
    pub(crate) fn tests(&self) -> Vec<&Test> {
        match self {
            Self::All { all: parts } | Self::Any { any: parts } => parts.iter().flat_map(Self::tests).collect(),
            Self::Not { not } => not.tests(),
            Self::Failed { .. } => Vec::new(),
            Self::Test(test) => vec![test],
        }
    }

    /// Every value that something is compared with.
    pub(super) fn values_mut(&mut self) -> Vec<&mut Value> {
        match self {
            Self::All { all: parts } | Self::Any { any: parts } => {
                parts.iter_mut().flat_map(Self::values_mut).collect()
            }
            Self::Not { not } => not.values_mut(),
            Self::Failed { .. } => Vec::new(),
            Self::Test(test) => test.values_mut(),
        }
    }

    /// In short, for drawings.
    pub fn describe(&self) -> String {
        let join = |parts: &[Self], word: &str| parts.iter().map(Self::describe).collect::<Vec<_>>().join(word);
        match self {
            Self::All { all } => join(all, " and "),
            Self::Any { any } => format!("({})", join(any, " or ")),
            Self::Not { not } => format!("not {}", not.describe()),
            Self::Failed { failed: true } => "failed".to_owned(),
            Self::Failed { failed: false } => "succeeded".to_owned(),
            Self::Test(test) => test.describe(),
        }
    }
}

impl Test {
    /// The same about a place in the value (JSON Pointer).
    #[must_use]
    pub fn at(mut self, pointer: impl Into<String>) -> Self {
        self.at = Some(pointer.into());
        self
    }

    /// It is `value`.
    pub fn is(mut self, value: impl Into<Value>) -> Condition {
        self.is = Some(value.into());
        self.into()
    }

    /// It is anything but `value`.
    pub fn is_not(mut self, value: impl Into<Value>) -> Condition {
        self.is_not = Some(value.into());
        self.into()
    }

    /// It is one of `values`.
    pub fn one_of<I>(mut self, values: I) -> Condition
    where
        I: IntoIterator,
        I::Item: Into<Value>,
    {
        self.one_of = Some(values.into_iter().map(Into::into).collect());
        self.into()
    }

    /// It is less than `value`.
    pub fn less_than(mut self, value: impl Into<Value>) -> Condition {
        self.less_than = Some(value.into());
        self.into()
    }

    /// It is at most `value`.
    pub fn at_most(mut self, value: impl Into<Value>) -> Condition {
        self.at_most = Some(value.into());
        self.into()
    }

    /// It is more than `value`.
    pub fn more_than(mut self, value: impl Into<Value>) -> Condition {
        self.more_than = Some(value.into());
        self.into()
    }

    /// It is at least `value`.
    pub fn at_least(mut self, value: impl Into<Value>) -> Condition {
        self.at_least = Some(value.into());
        self.into()
    }

    /// The text or the list has `value` in it.
    pub fn contains(mut self, value: impl Into<Value>) -> Condition {
        self.contains = Some(value.into());
        self.into()
    }

    /// It is there.
    pub fn exists(mut self) -> Condition {
        self.exists = Some(true);
        self.into()
    }

    /// It is not there.
    pub fn is_missing(mut self) -> Condition {
        self.exists = Some(false);
        self.into()
    }

    fn values_mut(&mut self) -> Vec<&mut Value> {
        let Self { is, is_not, less_than, at_most, more_than, at_least, contains, one_of, .. } = self;
        let single = [is, is_not, less_than, at_most, more_than, at_least, contains];
        single.into_iter().flatten().chain(one_of.iter_mut().flatten()).collect()
    }

    fn holds(&self, facts: &dyn Facts) -> bool {
        let value = match &self.memory {
            Some(key) => facts.memory(key),
            None => facts.result(),
        };
        let value = match &self.at {
            Some(pointer) => value.and_then(|value| value.pointer(pointer).cloned()),
            None => value,
        };
        let found = value.as_ref();
        let compares = |limit: &Option<Value>, wanted: &[Ordering]| match limit {
            None => true,
            Some(limit) => found.and_then(|found| compare(found, limit)).is_some_and(|order| wanted.contains(&order)),
        };
        if *self == (Self { memory: self.memory.clone(), at: self.at.clone(), ..Self::default() }) {
            return found.is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)));
        }
        self.is.as_ref().is_none_or(|wanted| found.is_some_and(|found| same(found, wanted)))
            && self.is_not.as_ref().is_none_or(|unwanted| !found.is_some_and(|found| same(found, unwanted)))
            && self
                .one_of
                .as_ref()
                .is_none_or(|list| found.is_some_and(|found| list.iter().any(|one| same(found, one))))
            && compares(&self.less_than, &[Ordering::Less])
            && compares(&self.at_most, &[Ordering::Less, Ordering::Equal])
            && compares(&self.more_than, &[Ordering::Greater])
            && compares(&self.at_least, &[Ordering::Greater, Ordering::Equal])
            && self.contains.as_ref().is_none_or(|part| found.is_some_and(|found| contains(found, part)))
            && self.exists.is_none_or(|exists| found.is_some() == exists)
    }

    fn describe(&self) -> String {
        let mut subject = self.memory.clone().unwrap_or_else(|| "result".to_owned());
        subject.push_str(self.at.as_deref().unwrap_or_default());
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let tests = [
            (&self.is, "="),
            (&self.is_not, "≠"),
            (&self.less_than, "<"),
            (&self.at_most, "≤"),
            (&self.more_than, ">"),
            (&self.at_least, "≥"),
            (&self.contains, "has"),
        ];
        let mut parts: Vec<String> = tests
            .iter()
            .filter_map(|(value, sign)| value.as_ref().map(|value| format!("{subject} {sign} {}", text(value))))
            .collect();
        if let Some(list) = &self.one_of {
            parts.push(format!("{subject} in {}", list.iter().map(text).collect::<Vec<_>>().join(", ")));
        }
        match self.exists {
            Some(true) => parts.push(format!("{subject} exists")),
            Some(false) => parts.push(format!("no {subject}")),
            None => {}
        }
        if parts.is_empty() { subject } else { parts.join(" and ") }
    }
}

impl Nested for Condition {
    fn inner(&self) -> Vec<&Self> {
        match self {
            Self::All { all: parts } | Self::Any { any: parts } => parts.iter().collect(),
            Self::Not { not } => vec![not],
            Self::Failed { .. } | Self::Test(_) => Vec::new(),
        }
    }

    fn take_inner(&mut self) -> Vec<Self> {
        match std::mem::replace(self, Self::failed()) {
            Self::All { all: parts } | Self::Any { any: parts } => parts,
            Self::Not { not } => vec![*not],
            Self::Failed { .. } | Self::Test(_) => Vec::new(),
        }
    }
}

impl From<Test> for Condition {
    fn from(test: Test) -> Self {
        Self::Test(Box::new(test))
    }
}

/// Equal, where `1` and `1.0` are the same number.
fn same(a: &Value, b: &Value) -> bool {
    a == b || matches!((a, b), (Value::Number(_), Value::Number(_))) && compare(a, b) == Some(Ordering::Equal)
}

fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (whole(a), whole(b)) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
        },
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

/// A whole number, exactly.
fn whole(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn contains(value: &Value, part: &Value) -> bool {
    match (value, part) {
        (Value::String(text), Value::String(part)) => text.contains(part.as_str()),
        (Value::Array(items), part) => items.iter().any(|item| same(item, part)),
        (Value::Object(fields), Value::String(name)) => fields.contains_key(name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Fixed;

    impl Facts for Fixed {
        fn memory(&self, key: &str) -> Option<Value> {
            json!({"score": 0.7, "n": 3, "name": "ada", "list": [1, "two"], "no": null}).get(key).cloned()
        }

        fn result(&self) -> Option<Value> {
            Some(json!({"ok": true, "rows": [{"id": 7}]}))
        }

        fn failed(&self) -> bool {
            false
        }
    }

    fn check(condition: Value, expected: bool) {
        let parsed: Condition = serde_json::from_value(condition.clone()).expect("a condition");
        assert_eq!(parsed.holds(&Fixed), expected, "{condition}");
        assert_eq!(serde_json::to_value(&parsed).unwrap(), condition);
    }

    #[test]
    fn conditions_look_at_memory_and_result() {
        check(json!({"memory": "score", "less_than": 0.8}), true);
        check(json!({"memory": "score", "at_least": 0.7, "at_most": 0.7}), true);
        check(json!({"memory": "n", "is": 3.0}), true);
        check(json!({"memory": "n", "more_than": 3}), false);
        check(json!({"memory": "n", "less_than": "4"}), false);
        check(json!({"memory": "name", "one_of": ["bob", "ada"]}), true);
        check(json!({"memory": "name", "contains": "d"}), true);
        check(json!({"memory": "list", "contains": "two"}), true);
        check(json!({"memory": "no"}), false);
        check(json!({"memory": "no", "is": null}), true);
        check(json!({"memory": "none", "is": null}), false);
        check(json!({"memory": "none", "is_not": 1}), true);
        check(json!({"memory": "none", "exists": false}), true);
        check(json!({"at": "/ok"}), true);
        check(json!({"at": "/rows/0/id", "is": 7}), true);
        check(json!({"failed": true}), false);
        check(json!({"all": [{"memory": "n"}, {"not": {"memory": "none"}}]}), true);
        check(json!({"any": [{"memory": "none"}, {"failed": false}]}), true);
    }

    #[test]
    fn whole_numbers_are_compared_exactly() {
        let numbers = [json!(i64::MIN), json!(-1), json!(0), json!(i64::MAX), json!(u64::MAX - 1), json!(u64::MAX)];
        for (a, left) in numbers.iter().enumerate() {
            for (b, right) in numbers.iter().enumerate() {
                assert_eq!(compare(left, right), Some(a.cmp(&b)), "{left} {right}");
            }
        }
        assert_eq!(compare(&json!(2), &json!(1.5)), Some(Ordering::Greater));
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in [r#"{"memory":"x","lower_than":1}"#, r#"{"all":1}"#, "3", r#"{"failed":"yes"}"#] {
            assert!(serde_json::from_str::<Condition>(text).is_err(), "{text}");
        }
    }
}
