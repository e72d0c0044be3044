//! A tool that asks a person: the answer is its result.

use rekindle::tool::{Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};
use rekindle::wait::WaitSpec;
use rekindle::{Json, async_trait};
use serde_json::Value;

use crate::form::QuestionSpec;

/// A tool that asks a person.
#[derive(Debug)]
pub(super) struct Question {
    spec: ToolSpec,
    options: ToolOptions,
    question: QuestionSpec,
}

impl Question {
    pub(super) fn new(spec: ToolSpec, question: QuestionSpec) -> Self {
        Self { spec, options: ToolOptions { timeout: None, ..ToolOptions::default() }, question }
    }
}

#[async_trait]
impl Tool for Question {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn options(&self) -> &ToolOptions {
        &self.options
    }

    async fn call(&self, _context: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        let mut wait = WaitSpec::question(filled(&self.question.prompt, &arguments.to_value()?)?);
        wait.schema = self.question.schema.clone().map(|schema| Json::from(Value::Object(schema)));
        wait.remind_after = self.question.remind_after.map(|period| period.0);
        wait.expires_after = self.question.expires_after.map(|period| period.0);
        wait.default = self.question.default.clone().map(Json::from);
        Ok(ToolOutput::wait(wait))
    }
}

/// The prompt with `${arguments.…}` written out; `$${` stands for `${`.
pub(super) fn filled(prompt: &str, arguments: &Value) -> Result<String, ToolError> {
    let (mut text, mut rest) = (String::new(), prompt);
    while let Some(at) = rest.find("${") {
        let (before, reference) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            text.push_str(before);
            text.push_str("${");
            rest = &reference[2..];
            continue;
        }
        text.push_str(before);
        let end = reference.find('}').ok_or_else(|| ToolError::failed("the question has a `${` without its `}`"))?;
        text.push_str(&value_of(reference[2..end].trim(), arguments)?);
        rest = &reference[end + 1..];
    }
    text.push_str(rest);
    Ok(text)
}

fn value_of(reference: &str, arguments: &Value) -> Result<String, ToolError> {
    let Some(path) = reference.strip_prefix("arguments.") else {
        return Err(ToolError::failed(format!("`${{{reference}}}` must begin with `arguments.`")));
    };
    let found = path.split('.').try_fold(arguments, |value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => value.get(part),
    });
    Ok(match found {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prompts_are_filled_in() {
        let arguments = json!({ "city": "Oslo", "days": [1, { "n": 2 }] });
        let check = |prompt: &str, expected: &str| assert_eq!(filled(prompt, &arguments).unwrap(), expected);
        check("Go to ${arguments.city}?", "Go to Oslo?");
        check("${arguments.days.1.n} ${arguments.days} ${arguments.none}", "2 [1,{\"n\":2}] ");
        check("costs $5, $${x}", "costs $5, ${x}");
        assert!(filled("${arguments.city", &arguments).is_err());
        assert!(filled("${memory.city}", &arguments).is_err());
    }
}
