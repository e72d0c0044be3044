//! What a request carries.

use rekindle::tool::ToolError;
use reqwest::header::HeaderValue;
use serde_json::Value;

use super::HttpBody;
use crate::checks::Faults;
use crate::template::{Template, Values};

/// [`HttpBody`] with its templates read.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Nothing,
    Arguments,
    Json(Tree),
    Text(Template),
}

/// JSON with references in it.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    Plain(Value),
    Text(Template),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl Body {
    pub(super) fn build(faults: &mut Faults, body: &HttpBody, schema: &Value) -> Self {
        match body {
            HttpBody::Nothing => Self::Nothing,
            HttpBody::Arguments => Self::Arguments,
            HttpBody::Json(value) => Self::Json(Tree::build(faults, value, schema)),
            HttpBody::Text(text) => Self::Text(faults.template("body", text, false, schema)),
        }
    }

    /// Its kind and its bytes, if there is any.
    pub(super) fn fill(&self, values: &Values<'_>) -> Result<Option<(HeaderValue, Vec<u8>)>, ToolError> {
        const JSON: HeaderValue = HeaderValue::from_static("application/json");
        const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
        Ok(match self {
            Self::Nothing => None,
            Self::Arguments => Some((JSON, values.arguments.to_string().into_bytes())),
            Self::Json(tree) => Some((JSON, tree.fill(values)?.unwrap_or_default().to_string().into_bytes())),
            Self::Text(template) => template.fill(values)?.map(|text| (TEXT, text.into_bytes())),
        })
    }
}

impl Tree {
    fn build(faults: &mut Faults, value: &Value, schema: &Value) -> Self {
        match value {
            Value::String(text) => Self::Text(faults.template("body", text, false, schema)),
            Value::Array(items) => Self::List(items.iter().map(|item| Self::build(faults, item, schema)).collect()),
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, field)| (name.clone(), Self::build(faults, field, schema)));
                Self::Object(fields.collect())
            }
            plain => Self::Plain(plain.clone()),
        }
    }

    fn fill(&self, values: &Values<'_>) -> Result<Option<Value>, ToolError> {
        Ok(match self {
            Self::Plain(value) => Some(value.clone()),
            Self::Text(template) => match template.whole() {
                Some(reference) => reference.find(values),
                None => template.fill(values)?.map(Value::String),
            },
            Self::List(items) => {
                let items = items.iter().filter_map(|item| item.fill(values).transpose());
                Some(items.collect::<Result<Vec<_>, _>>()?.into())
            }
            Self::Object(fields) => {
                let fields = fields.iter().filter_map(|(name, field)| {
                    let filled = field.fill(values).transpose()?;
                    Some(filled.map(|value| (name.clone(), value)))
                });
                Some(Value::Object(fields.collect::<Result<_, _>>()?))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_become_values() {
        let arguments = json!({"n": 1, "tags": ["a\"b", "c"], "name": "\", \"admin\": true"});
        let values = Values {
            arguments: &arguments,
            idempotency_key: "k",
            fence: Default::default(),
            session: "s".into(),
            secrets: Default::default(),
        };
        let check = |template: Value, expected: Value| {
            let body = Body::build(&mut Faults::default(), &HttpBody::Json(template), &Value::Null);
            let (_, bytes) = body.fill(&values).unwrap().unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), expected);
        };
        check(json!({"a": "${arguments.n}", "b": null}), json!({"a": 1, "b": null}));
        check(json!({"a": ["${arguments.tags}", "${arguments.none}"]}), json!({"a": [["a\"b", "c"]]}));
        check(json!({"a": "${arguments.none}", "b": "n=${arguments.n}"}), json!({"b": "n=1"}));
        check(json!({"name": "${arguments.name}"}), json!({"name": "\", \"admin\": true"}));
        check(json!("${arguments}"), arguments.clone());
    }
}
