//! Texts with references in them: `${arguments.city}`, `${idempotency_key}`. Filling one in yields
//! values; what they may do where they are put is for the caller to see to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rekindle::Secret;
use rekindle::core::Epoch;
use rekindle::tool::{ToolContext, ToolError};
use serde_json::Value;

/// A text with references in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template {
    pub(crate) pieces: Vec<Piece>,
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    Value(Reference),
}

/// What a reference names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    /// All arguments, or what a path in them leads to.
    Arguments(Vec<String>),
    IdempotencyKey,
    Session,
    Secret(String),
}

/// What references are looked up in.
pub(crate) struct Values<'a> {
    pub(crate) arguments: &'a Value,
    pub(crate) idempotency_key: &'a str,
    pub(crate) fence: Epoch,
    pub(crate) session: String,
    pub(crate) secrets: BTreeMap<String, Secret>,
}

impl<'a> Values<'a> {
    /// What a call gives. `secrets` are looked up now, since that may fail and takes time.
    pub(crate) async fn of(
        context: &'a ToolContext,
        arguments: &'a Value,
        secrets: &BTreeSet<String>,
    ) -> Result<Self, ToolError> {
        let mut found = BTreeMap::new();
        for name in secrets {
            found.insert(name.clone(), context.secret(name).await?);
        }
        let (idempotency_key, session) = (context.idempotency_key(), context.session().to_string());
        Ok(Self { arguments, idempotency_key, fence: context.fence(), session, secrets: found })
    }
}

impl Template {
    /// Finds the references in `text`; an error says which one is none.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
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
        if !plain.is_empty() || pieces.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self { pieces })
    }

    /// The value of the only reference, if that is all there is.
    pub(crate) fn whole(&self) -> Option<&Reference> {
        match self.pieces.as_slice() {
            [Piece::Value(reference)] => Some(reference),
            _ => None,
        }
    }

    /// The text, if there is nothing to fill in.
    pub(crate) fn plain(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Every reference in it.
    pub(crate) fn references(&self) -> impl Iterator<Item = &Reference> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Value(reference) => Some(reference),
            Piece::Text(_) => None,
        })
    }

    /// The names of the secrets in some of them.
    pub(crate) fn secrets<'a>(templates: impl IntoIterator<Item = &'a Self>) -> BTreeSet<String> {
        let references = templates.into_iter().flat_map(Self::references);
        let secret = |reference: &Reference| match reference {
            Reference::Secret(name) => Some(name.clone()),
            _ => None,
        };
        references.filter_map(secret).collect()
    }

    /// The text with its values. Nothing if it is one reference to what is not there; an error if a
    /// longer text lacks a value.
    pub(crate) fn fill(&self, values: &Values<'_>) -> Result<Option<String>, ToolError> {
        if let Some(reference) = self.whole() {
            return Ok(reference.find(values).map(|value| written(&value)));
        }
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Value(reference) => text.push_str(&written(&reference.need(values)?)),
            }
        }
        Ok(Some(text))
    }
}

impl Reference {
    fn parse(text: &str) -> Result<Self, String> {
        let segments: Vec<String> = text.trim().split('.').map(|part| part.trim().to_owned()).collect();
        let path = segments[1..].to_vec();
        match segments[0].as_str() {
            _ if segments.iter().any(String::is_empty) => Err(no_reference(text)),
            "arguments" => Ok(Self::Arguments(path)),
            "idempotency_key" if path.is_empty() => Ok(Self::IdempotencyKey),
            "session" if path.is_empty() => Ok(Self::Session),
            "secrets" if !path.is_empty() => Ok(Self::Secret(path.join("."))),
            _ => Err(no_reference(text)),
        }
    }

    /// The value, unless it is not there or null.
    pub(crate) fn find(&self, values: &Values<'_>) -> Option<Value> {
        match self {
            Self::Arguments(path) => walk(values.arguments, path).filter(|value| !value.is_null()).cloned(),
            Self::IdempotencyKey => Some(values.idempotency_key.into()),
            Self::Session => Some(values.session.clone().into()),
            Self::Secret(name) => values.secrets.get(name).map(|secret| secret.expose().into()),
        }
    }

    /// The value; an error if it is not there.
    pub(crate) fn need(&self, values: &Values<'_>) -> Result<Value, ToolError> {
        self.find(values).ok_or_else(|| ToolError::failed(format!("there is no value for `{self}`")))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arguments(path) => {
                write!(f, "${{arguments{}}}", path.iter().map(|p| format!(".{p}")).collect::<String>())
            }
            Self::IdempotencyKey => f.write_str("${idempotency_key}"),
            Self::Session => f.write_str("${session}"),
            Self::Secret(name) => write!(f, "${{secrets.{name}}}"),
        }
    }
}

/// A value as text: strings as they are, everything else as JSON.
pub(crate) fn written(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn walk<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, part| match value {
        Value::Object(fields) => fields.get(part),
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

fn no_reference(text: &str) -> String {
    format!("`${{{text}}}` is no reference; write it like `${{arguments.name}}`")
}

fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(text: &str, expected: Result<Option<&str>, &str>) {
        let arguments = json!({"name": "Ann", "rows": [{"n": 1}, {"n": 2}], "nothing": null});
        let values = Values {
            arguments: &arguments,
            idempotency_key: "k1",
            fence: Default::default(),
            session: "s1".into(),
            secrets: BTreeMap::from([("api.key".to_owned(), Secret::new("hush"))]),
        };
        let filled = Template::parse(text)
            .and_then(|template| template.fill(&values).map_err(|error| error.message().to_owned()));
        assert_eq!(filled, expected.map(|text| text.map(str::to_owned)).map_err(str::to_owned), "{text}");
    }

    #[test]
    fn references_are_filled_in() {
        check("", Ok(Some("")));
        check("plain", Ok(Some("plain")));
        check("a $${session} b", Ok(Some("a ${session} b")));
        check("${arguments.name}", Ok(Some("Ann")));
        check("--row=${ arguments.rows.1.n } ${session}/${idempotency_key}", Ok(Some("--row=2 s1/k1")));
        check("${arguments.rows}", Ok(Some(r#"[{"n":1},{"n":2}]"#)));
        check("Bearer ${secrets.api.key}", Ok(Some("Bearer hush")));
    }

    #[test]
    fn what_is_not_there_is_left_out_or_named() {
        check("${arguments.other}", Ok(None));
        check("${arguments.nothing}", Ok(None));
        check("x${arguments.rows.7}", Err("there is no value for `${arguments.rows.7}`"));
        check("${name}", Err("`${name}` is no reference; write it like `${arguments.name}`"));
        check("${arguments..x}", Err("`${arguments..x}` is no reference; write it like `${arguments.name}`"));
        check("${session", Err("`${session` has no closing brace"));
    }

    #[test]
    fn fuzzed_templates() {
        let seeds = ["${arguments.city}", "a ${idempotency_key} $${b} ${secrets.k.v}", "${arguments}", "plain"];
        rekindle_fuzz::fuzz!("tool-template").seeds(seeds).words(["$${", "${arguments.a.0}", "${session}", "}"]).text(
            |text| {
                let template = Template::parse(text)?;
                let arguments = serde_json::json!({"city": "Oslo", "a": [1, {"b": null}]});
                let values = Values {
                    arguments: &arguments,
                    idempotency_key: "k",
                    fence: Default::default(),
                    session: "s".into(),
                    secrets: BTreeMap::new(),
                };
                for reference in template.references() {
                    assert_eq!(
                        Reference::parse(reference.to_string().trim_start_matches("${").trim_end_matches('}')).as_ref(),
                        Ok(reference)
                    );
                }
                let _ = (template.fill(&values), template.plain(), Template::secrets([&template]));
                Ok::<(), String>(())
            },
        );
    }
}
