//! References in parameters: `${steps.fetch.output.rows}`, `${memory.topic}`. A text that is one
//! reference becomes the value it names; inside a longer text, the value is written out. `$${`
//! stands for `${`.

use std::fmt;

use serde_json::{Map, Value};

/// A value with references in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Template {
    /// Nothing to fill in.
    Plain(Value),
    /// The value of a reference.
    Whole(Reference),
    /// Text with values in between.
    Text(Vec<Piece>),
    List(Vec<Template>),
    Object(Vec<(String, Template)>),
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    Value(Reference),
}

/// What a reference names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    segments: Vec<String>,
}

impl Reference {
    /// What it begins with: `steps`, `memory` and so on.
    pub(crate) fn root(&self) -> &str {
        &self.segments[0]
    }

    /// The part after the root, if there is one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.segments.get(1).map(String::as_str)
    }

    /// What follows after `skip` parts.
    pub(crate) fn rest(&self, skip: usize) -> &[String] {
        self.segments.get(skip..).unwrap_or_default()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let segments: Vec<String> = text.trim().split('.').map(|part| part.trim().to_owned()).collect();
        match segments.iter().any(String::is_empty) {
            true => Err(format!("`${{{text}}}` is no reference; write it like `${{steps.fetch.output.rows}}`")),
            false => Ok(Self { segments }),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${{{}}}", self.segments.join("."))
    }
}

impl Template {
    /// Finds the references in `value`; an error says which one is none.
    pub(crate) fn parse(value: &Value) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => Self::parse_text(text)?,
            Value::Array(items) => {
                let items: Vec<Self> = items.iter().map(Self::parse).collect::<Result<_, _>>()?;
                match items.iter().all(Self::is_plain) {
                    // Escaped text is plain but not the same.
                    true => Self::Plain(items.into_iter().map(Self::into_plain).collect()),
                    false => Self::List(items),
                }
            }
            Value::Object(entries) => {
                let entries: Vec<(String, Self)> = entries
                    .iter()
                    .map(|(key, value)| Ok((key.clone(), Self::parse(value)?)))
                    .collect::<Result<_, String>>()?;
                match entries.iter().all(|(_, entry)| entry.is_plain()) {
                    true => Self::Plain(entries.into_iter().map(|(key, entry)| (key, entry.into_plain())).collect()),
                    false => Self::Object(entries),
                }
            }
            other => Self::Plain(other.clone()),
        })
    }

    /// The same for a text.
    pub(crate) fn parse_text(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let (mut plain, mut rest) = (String::new(), text);
        while let Some(at) = rest.find("${") {
            if rest[..at].ends_with('$') {
                plain.push_str(&rest[..at - 1]);
                plain.push_str("${");
                rest = &rest[at + 2..];
                continue;
            }
            plain.push_str(&rest[..at]);
            let end = rest[at..].find('}').ok_or_else(|| format!("`{}` has no closing brace", short(&rest[at..])))?;
            let reference = Reference::parse(&rest[at + 2..at + end])?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Value(reference));
            rest = &rest[at + end + 1..];
        }
        plain.push_str(rest);
        if pieces.is_empty() {
            return Ok(Self::Plain(Value::String(plain)));
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(match <[Piece; 1]>::try_from(pieces) {
            Ok([Piece::Value(reference)]) => Self::Whole(reference),
            Ok(one) => Self::Text(one.into()),
            Err(pieces) => Self::Text(pieces),
        })
    }

    /// Every reference in it.
    pub(crate) fn references(&self) -> Vec<&Reference> {
        match self {
            Self::Plain(_) => Vec::new(),
            Self::Whole(reference) => vec![reference],
            Self::Text(pieces) => pieces
                .iter()
                .filter_map(|piece| match piece {
                    Piece::Value(reference) => Some(reference),
                    Piece::Text(_) => None,
                })
                .collect(),
            Self::List(items) => items.iter().flat_map(Self::references).collect(),
            Self::Object(entries) => entries.iter().flat_map(|(_, entry)| entry.references()).collect(),
        }
    }

    /// The value, with every reference looked up.
    pub(crate) fn fill<E>(&self, look_up: &mut dyn FnMut(&Reference) -> Result<Value, E>) -> Result<Value, E> {
        Ok(match self {
            Self::Plain(value) => value.clone(),
            Self::Whole(reference) => look_up(reference)?,
            Self::Text(pieces) => {
                let mut text = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Text(plain) => text.push_str(plain),
                        Piece::Value(reference) => match look_up(reference)? {
                            Value::String(value) => text.push_str(&value),
                            other => text.push_str(&other.to_string()),
                        },
                    }
                }
                Value::String(text)
            }
            Self::List(items) => Value::Array(items.iter().map(|item| item.fill(look_up)).collect::<Result<_, E>>()?),
            Self::Object(entries) => {
                let entries = entries.iter().map(|(key, entry)| Ok((key.clone(), entry.fill(look_up)?)));
                Value::Object(entries.collect::<Result<Map<_, _>, E>>()?)
            }
        })
    }

    fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    fn into_plain(self) -> Value {
        match self {
            Self::Plain(value) => value,
            _ => Value::Null,
        }
    }
}

/// What `path` leads to inside `value`: names of fields, and numbers of items.
pub(crate) fn walk(value: Value, path: &[String]) -> Option<Value> {
    path.iter().try_fold(value, |value, part| match value {
        Value::Object(mut fields) => fields.remove(part),
        Value::Array(mut items) => {
            let index: usize = part.parse().ok()?;
            (index < items.len()).then(|| items.swap_remove(index))
        }
        _ => None,
    })
}

fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(template: Value, expected: Result<Value, &str>) {
        let filled = Template::parse(&template).and_then(|template| {
            template.fill(&mut |reference| match reference.to_string().as_str() {
                "${query}" => Ok(json!("why?")),
                "${steps.fetch.output.rows}" => Ok(json!([1, 2])),
                other => Err(format!("no {other}")),
            })
        });
        assert_eq!(filled, expected.map_err(str::to_owned), "{template}");
    }

    #[test]
    fn references_are_filled_in() {
        check(json!({"a": [1, {"b": "x"}]}), Ok(json!({"a": [1, {"b": "x"}]})));
        check(json!("${steps.fetch.output.rows}"), Ok(json!([1, 2])));
        check(
            json!({"q": ["${query}", "so: ${ query } ${steps.fetch.output.rows}."]}),
            Ok(json!({"q": ["why?", "so: why? [1,2]."]})),
        );
        check(json!("a $${query} b"), Ok(json!("a ${query} b")));
        check(json!({"k": ["$${query}"]}), Ok(json!({"k": ["${query}"]})));
        check(json!("${steps.other}"), Err("no ${steps.other}"));
        check(json!("${steps..x}"), Err("`${steps..x}` is no reference; write it like `${steps.fetch.output.rows}`"));
        check(json!("${query"), Err("`${query` has no closing brace"));
    }

    #[test]
    fn paths_lead_into_objects_and_lists() {
        let value = json!({"rows": [{"n": 1}, {"n": 2}]});
        let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(walk(value.clone(), &path("rows.1.n")), Some(json!(2)));
        assert_eq!(walk(value.clone(), &path("rows.2.n")), None);
        assert_eq!(walk(value, &path("rows.x")), None);
    }

    #[test]
    fn fuzzed_templates() {
        let seeds = [
            r#"{"a":"${query}","b":["$${x}","x ${steps.fetch.output.rows} y"],"c":1}"#,
            r#""${memory.k}""#,
            "\"plain\"",
        ];
        rekindle_fuzz::fuzz!("template").seeds(seeds).words(["$${", "${a.b}", "${ a . 0 }", "}"]).text(|text| {
            let value: Value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
            let template = Template::parse(&value).ok()?;
            for reference in template.references() {
                let _ = (reference.root(), reference.name(), reference.rest(2), reference.to_string());
                let _ = walk(value.clone(), reference.rest(0));
            }
            let filled = template.fill(&mut |_| Ok::<_, ()>(json!({"b": [1, "x"]}))).unwrap();
            assert_eq!(filled.is_object(), value.is_object() || matches!(template, Template::Whole(_)));
            Some(())
        });
    }
}
