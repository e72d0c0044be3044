//! What a server's tool gives back, as JSON.

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::Value;

/// What is structured as it is; text as text; anything else as the list of its parts.
pub(super) fn value(result: CallToolResult) -> Value {
    if let Some(structured) = result.structured_content {
        return structured;
    }
    let texts: Option<Vec<&str>> = result.content.iter().map(text).collect();
    match texts {
        Some(texts) => texts.join("\n").into(),
        None => serde_json::to_value(&result.content).unwrap_or_default(),
    }
}

fn text(part: &ContentBlock) -> Option<&str> {
    match part {
        ContentBlock::Text(text) => Some(&text.text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_become_json() {
        let check = |result: Value, expected: Value| {
            assert_eq!(value(serde_json::from_value(result.clone()).unwrap()), expected, "{result}");
        };
        check(json!({"content": []}), json!(""));
        check(json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}), json!("a\nb"));
        check(json!({"content": [{"type": "text", "text": "a"}], "structuredContent": {"n": 1}}), json!({"n": 1}));
        let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
        check(json!({"content": [image.clone()]}), json!([image]));
        let link = json!({"type": "resource_link", "uri": "file:///a", "name": "a"});
        check(
            json!({"content": [{"type": "text", "text": "see"}, link.clone()]}),
            json!([{"type": "text", "text": "see"}, link]),
        );
    }
}
