//! How deeply values and conditions may nest. Most of what is done with them recurses, so what is
//! too deep is found, and taken apart, without recursion before anything else looks at it.

use serde_json::Value;

use super::faults::Faults;

/// How deeply: as deeply as values on record.
const DEEPEST: usize = 100;

/// Something that has others of its kind in it.
pub(crate) trait Nested: Sized {
    /// What is directly in it.
    fn inner(&self) -> Vec<&Self>;
    /// The same, taken out of it.
    fn take_inner(&mut self) -> Vec<Self>;
}

impl Nested for Value {
    fn inner(&self) -> Vec<&Self> {
        match self {
            Self::Array(items) => items.iter().collect(),
            Self::Object(fields) => fields.values().collect(),
            _ => Vec::new(),
        }
    }

    fn take_inner(&mut self) -> Vec<Self> {
        match self.take() {
            Self::Array(items) => items,
            Self::Object(fields) => fields.into_iter().map(|(_, value)| value).collect(),
            _ => Vec::new(),
        }
    }
}

/// Finds a fault if `whole` nests too deeply; it is taken apart then, as dropping it would recurse
/// too.
pub(crate) fn check<T: Nested>(whole: &mut T, place: impl FnOnce() -> String, faults: &mut Faults) {
    if is_too_deep(whole) {
        take_apart(whole);
        faults.add(place(), format!("nests more than {DEEPEST} levels deep"));
    }
}

fn take_apart<T: Nested>(whole: &mut T) {
    let mut open = whole.take_inner();
    while let Some(mut one) = open.pop() {
        open.extend(one.take_inner());
    }
}

fn is_too_deep<T: Nested>(whole: &T) -> bool {
    let mut open = vec![(whole, 0)];
    while let Some((one, depth)) = open.pop() {
        let inner = one.inner();
        if depth == DEEPEST && !inner.is_empty() {
            return true;
        }
        open.extend(inner.into_iter().map(|inner| (inner, depth + 1)));
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deep(levels: usize) -> Value {
        (0..levels).fold(json!(1), |value, _| json!({ "a": [], "b": value }))
    }

    #[test]
    fn what_nests_too_deeply_is_refused_and_taken_apart() {
        let refused = |value: &mut Value| {
            let mut faults = Faults::default();
            check(value, || "here".into(), &mut faults);
            faults.settle("the plan", "p").is_err()
        };
        let mut fits = deep(DEEPEST);
        assert!(!refused(&mut fits));
        assert_eq!(fits, deep(DEEPEST));
        for levels in [DEEPEST + 1, 100_000] {
            let mut value = (0..levels).fold(json!(1), |value, _| Value::Array(vec![value]));
            assert!(refused(&mut value), "{levels}");
            assert_eq!(value, Value::Null);
        }
    }
}
