//! What is there to be listed, read and called, as data.

use rmcp::ErrorData;
use rmcp::model::{ClientCapabilities, JsonObject, Prompt, Resource, ResourceTemplate, Tool};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::texts::{PIXEL, SILENCE};

/// A value of the protocol, from what it looks like on the wire.
pub fn made<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// A result that says that it is complete; clients of earlier revisions are not told.
pub fn complete(mut result: Value) -> Value {
    result["resultType"] = "complete".into();
    result
}

/// The names of the tools without arguments.
const PLAIN: &[&str] = &[
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_tool_with_logging",
    "test_error_handling",
    "test_tool_with_progress",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_reconnection",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_logging_tool",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
    "test_tool_with_task",
    "failing_job",
    "protocol_error_job",
];

/// Every tool.
pub fn tools() -> Vec<Tool> {
    let plain = PLAIN.iter().map(|name| tool(name, json!({ "type": "object", "properties": {} })));
    let text =
        |name: &str| json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name] });
    let file = json!({ "type": "object", "properties": { "filename": { "type": "string" } } });
    let seconds =
        json!({ "type": "object", "properties": { "seconds": { "type": "number" }, "label": { "type": "string" } } });
    let others = [
        tool("test_sampling", text("prompt")),
        tool("test_elicitation", text("message")),
        tool("json_schema_2020_12_tool", schema_2020_12()),
        tool("test_custom_headers", custom_headers()),
        tool("greet", text("name")),
        tool("slow_compute", seconds),
        tool("confirm_delete", file),
        tool("multi_input", json!({ "type": "object", "properties": {} })),
    ];
    plain.chain(others).collect()
}

fn tool(name: &str, schema: Value) -> Tool {
    let schema: JsonObject = schema.as_object().cloned().unwrap_or_default();
    Tool::new(name.to_owned(), format!("A fixture of the conformance suite: {name}"), schema)
}

fn schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
        } },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

/// Arguments that are repeated in headers.
fn custom_headers() -> Value {
    json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" },
        "query": { "type": "string" },
    }, "required": ["region", "query"] })
}

/// What a tool that needs nothing answers.
pub fn answer(name: &str) -> Option<Value> {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let image = json!({ "type": "image", "data": PIXEL, "mimeType": "image/png" });
    let resource = |uri: &str, kind: &str, text: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "text": text } });
    let content = match name {
        "test_simple_text" => json!([text("This is a simple text response for testing.")]),
        "test_image_content" => json!([image]),
        "test_audio_content" => json!([{ "type": "audio", "data": SILENCE, "mimeType": "audio/wav" }]),
        "test_embedded_resource" => {
            json!([resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")])
        }
        "test_multiple_content_types" => {
            let mixed = r#"{"test":"data","value":123}"#;
            let mixed = resource("test://mixed-content-resource", "application/json", mixed);
            json!([text("Multiple content types test:"), image, mixed])
        }
        "test_error_handling" => {
            let content = text("This tool intentionally returns an error for testing");
            return Some(json!({ "content": [content], "isError": true }));
        }
        "json_schema_2020_12_tool" | "test_reconnection" | "test_custom_headers" => json!([text("done")]),
        _ => return None,
    };
    Some(json!({ "content": content }))
}

/// Every resource.
pub fn resources() -> Result<Vec<Resource>, ErrorData> {
    made(json!([
        { "uri": "test://static-text", "name": "text", "description": "A text", "mimeType": "text/plain" },
        { "uri": "test://static-binary", "name": "binary", "description": "A picture", "mimeType": "image/png" },
        { "uri": "test://watched-resource", "name": "watched", "description": "Watched", "mimeType": "text/plain" },
    ]))
}

/// Every form of resources.
pub fn templates() -> Result<Vec<ResourceTemplate>, ErrorData> {
    made(json!([{
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "description": "Data by its id",
        "mimeType": "application/json",
    }]))
}

/// What stands in a resource.
pub fn contents(uri: &str) -> Option<Value> {
    let text = |kind: &str, text: &str| json!({ "uri": uri, "mimeType": kind, "text": text });
    match uri {
        "test://static-text" => Some(text("text/plain", "This is the content of the static text resource.")),
        "test://watched-resource" => Some(text("text/plain", "Watched resource content.")),
        "test://static-binary" => Some(json!({ "uri": uri, "mimeType": "image/png", "blob": PIXEL })),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            Some(text("application/json", &data.to_string()))
        }
    }
}

/// Every prompt.
pub fn prompts() -> Result<Vec<Prompt>, ErrorData> {
    let argument = |name: &str| json!({ "name": name, "description": "An argument", "required": true });
    let prompt = |name: &str, arguments: &[&str]| {
        let arguments: Vec<Value> = arguments.iter().map(|name| argument(name)).collect();
        json!({ "name": name, "description": format!("A fixture: {name}"), "arguments": arguments })
    };
    made(json!([
        prompt("test_simple_prompt", &[]),
        prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
        prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
        prompt("test_prompt_with_image", &[]),
        prompt("test_input_required_result_prompt", &[]),
    ]))
}

/// The messages of a prompt.
pub fn messages(name: &str, arguments: &Map<String, Value>) -> Option<Value> {
    let given = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let said = |content: Value| json!({ "role": "user", "content": content });
    let text = |text: &str| json!({ "type": "text", "text": text });
    Some(match name {
        "test_simple_prompt" => json!([said(text("This is a simple prompt for testing."))]),
        "test_prompt_with_arguments" => {
            let (first, second) = (given("arg1"), given("arg2"));
            json!([said(text(&format!("Prompt with arguments: arg1='{first}', arg2='{second}'")))])
        }
        "test_prompt_with_embedded_resource" => {
            let resource = json!({
                "uri": given("resourceUri"),
                "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            });
            let resource = json!({ "type": "resource", "resource": resource });
            json!([said(resource), said(text("Please process the embedded resource above."))])
        }
        "test_prompt_with_image" => {
            let image = json!({ "type": "image", "data": PIXEL, "mimeType": "image/png" });
            json!([said(image), said(text("Please analyze the image above."))])
        }
        _ => return None,
    })
}

/// What clients are asked for with a form.
pub fn form(name: &str) -> Value {
    let properties = match name {
        "test_elicitation_sep1034_defaults" => json!({
            "name": { "type": "string", "default": "John Doe" },
            "age": { "type": "integer", "default": 30 },
            "score": { "type": "number", "default": 95.5 },
            "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
            "verified": { "type": "boolean", "default": true },
        }),
        "test_elicitation_sep1330_enums" => enums(),
        _ => {
            let text = |about: &str| json!({ "type": "string", "description": about });
            let properties = json!({ "username": text("User's response"), "email": text("User's email address") });
            return json!({ "type": "object", "properties": properties, "required": ["username", "email"] });
        }
    };
    json!({ "type": "object", "properties": properties })
}

/// Every way to offer a choice.
fn enums() -> Value {
    let titled = |kind: &str| {
        let of =
            |number: u8, word: &str| json!({ "const": format!("value{number}"), "title": format!("{word} {kind}") });
        json!([of(1, "First"), of(2, "Second"), of(3, "Third")])
    };
    let plain = json!(["option1", "option2", "option3"]);
    let names = json!(["Option One", "Option Two", "Option Three"]);
    json!({
        "untitledSingle": { "type": "string", "enum": plain },
        "titledSingle": { "type": "string", "oneOf": titled("Option") },
        "legacyEnum": { "type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": plain } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } },
    })
}

/// The error of a client that does not declare what a request needs.
pub fn missing(capability: Value) -> ErrorData {
    match made::<ClientCapabilities>(capability) {
        Ok(capability) => ErrorData::missing_required_client_capability(capability),
        Err(error) => error,
    }
}
