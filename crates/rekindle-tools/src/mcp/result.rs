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

    #[test]
    fn fuzzed_messages() {
        let seeds = [
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"a"}],"structuredContent":{"n":1},"isError":false}}"#,
            r#"{"jsonrpc":"2.0","id":"x","result":{"tools":[{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}}"#,
            r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no","data":[]}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#,
        ];
        let words = ["\"type\":\"image\"", "\"resource\":{", "\"isError\":true", "\"nextCursor\":", "\"_meta\":{"];
        rekindle_fuzz::fuzz!("mcp-server-message").seeds(seeds).words(words).memory(4 << 20, 1_000).bytes(|bytes| {
            let message: Value = serde_json::from_slice(bytes).ok()?;
            if let Ok(result) = serde_json::from_value::<CallToolResult>(message["result"].clone()) {
                let _ = value(result);
            }
            serde_json::from_slice::<rmcp::model::ServerJsonRpcMessage>(bytes).ok()
        });
    }
}
