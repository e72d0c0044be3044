//! Tools that answer with questions first: a round asks, the next one brings the answers back, and what
//! must be remembered between them travels with the client, sealed.

use rmcp::ErrorData;
use rmcp::model::{CallToolRequestParams, CallToolResponse, InputRequiredResult, InputResponses};
use serde_json::{Value, json};

use crate::fixtures::{complete, made};

const KEY: &[u8; 32] = b"a fixture keeps no real secrets.";

/// What may be asked of a client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Abilities {
    pub elicitation: bool,
    pub sampling: bool,
}

/// A question for a text.
pub fn question(message: &str, field: &str) -> Value {
    let schema = json!({ "type": "object", "properties": { field: { "type": "string" } }, "required": [field] });
    json!({ "method": "elicitation/create", "params": { "mode": "form", "message": message, "requestedSchema": schema } })
}

fn sampling(text: &str, most: u32) -> Value {
    let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
    json!({ "method": "sampling/createMessage", "params": { "messages": [message], "maxTokens": most } })
}

fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

/// A result that asks.
pub fn asks(requests: Value, state: Option<&str>) -> Result<InputRequiredResult, ErrorData> {
    let mut result = json!({ "resultType": "input_required", "inputRequests": requests });
    if let Some(state) = state {
        result["requestState"] = sealed(state).into();
    }
    made(result)
}

/// A result that tells.
fn tells(text: impl AsRef<str>) -> Result<CallToolResponse, ErrorData> {
    let result = json!({ "content": [{ "type": "text", "text": text.as_ref() }] });
    Ok(CallToolResponse::Complete(made(complete(result))?))
}

/// State that only this server can have made.
fn sealed(state: &str) -> String {
    format!("{state}.{}", blake3::keyed_hash(KEY, state.as_bytes()).to_hex())
}

/// The state a client brought back; an error if it is not what it was given.
fn opened(state: Option<&str>) -> Result<Option<&str>, ErrorData> {
    let Some(sealed) = state else { return Ok(None) };
    let refused = || ErrorData::invalid_params("the request state was changed", None);
    let (state, seal) = sealed.rsplit_once('.').ok_or_else(refused)?;
    let expected = blake3::keyed_hash(KEY, state.as_bytes());
    match blake3::Hash::from_hex(seal) {
        Ok(seal) if seal == expected => Ok(Some(state)),
        _ => Err(refused()),
    }
}

/// The field of an accepted form.
pub fn field<'a>(responses: &'a InputResponses, key: &str, field: &str) -> Option<&'a str> {
    let response = responses.get(key)?;
    (response.get("action")? == "accept").then_some(())?;
    response.get("content")?.get(field)?.as_str()
}

/// Answers a call of one of these tools; nothing if it is none.
pub fn call(request: &CallToolRequestParams, can: Abilities) -> Result<Option<CallToolResponse>, ErrorData> {
    let Some(name) = request.name.strip_prefix("test_input_required_result_") else { return Ok(None) };
    let none = InputResponses::new();
    let given = request.input_responses.as_ref().unwrap_or(&none);
    let state = opened(request.request_state.as_deref())?;
    let name_question = || json!({ "user_name": question("What is your name?", "name") });
    let response = match name {
        "elicitation" => match field(given, "user_name", "name") {
            Some(name) => tells(format!("Hello, {name}!"))?,
            None => asks(name_question(), None)?.into(),
        },
        "sampling" => match given.get("capital_question") {
            Some(answer) => tells(format!("The model says: {}", answer["content"]))?,
            None => asks(json!({ "capital_question": sampling("What is the capital of France?", 100) }), None)?.into(),
        },
        "list_roots" => match given.get("client_roots") {
            Some(answer) => tells(format!("The roots are {}", answer["roots"]))?,
            None => asks(json!({ "client_roots": roots() }), None)?.into(),
        },
        "request_state" | "tampered_state" => match (given.contains_key("confirm"), state) {
            (true, Some("confirming")) => tells("state-ok")?,
            _ => asks(json!({ "confirm": confirm() }), Some("confirming"))?.into(),
        },
        "multiple_inputs" => several(given, state)?,
        "multi_round" => rounds(given, state)?,
        "capabilities" => asks(possible(can), None)?.into(),
        _ => return Ok(None),
    };
    Ok(Some(response))
}

fn confirm() -> Value {
    let schema = json!({ "type": "object", "properties": { "ok": { "type": "boolean" } }, "required": ["ok"] });
    let params = json!({ "mode": "form", "message": "Please confirm", "requestedSchema": schema });
    json!({ "method": "elicitation/create", "params": params })
}

fn several(given: &InputResponses, state: Option<&str>) -> Result<CallToolResponse, ErrorData> {
    let all = ["user_name", "greeting", "client_roots"].iter().all(|key| given.contains_key(*key));
    if all && state == Some("several") {
        return tells("all answers arrived");
    }
    let requests = json!({
        "user_name": question("What is your name?", "name"),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": roots(),
    });
    Ok(asks(requests, Some("several"))?.into())
}

fn rounds(given: &InputResponses, state: Option<&str>) -> Result<CallToolResponse, ErrorData> {
    match state {
        Some("second") if given.contains_key("step2") => tells("both rounds are done"),
        Some("first") if given.contains_key("step1") => {
            let second = json!({ "step2": question("Step 2: What is your favorite color?", "color") });
            Ok(asks(second, Some("second"))?.into())
        }
        _ => Ok(asks(json!({ "step1": question("Step 1: What is your name?", "name") }), Some("first"))?.into()),
    }
}

/// Only what the client says it can be asked.
fn possible(can: Abilities) -> Value {
    let mut requests = json!({});
    if can.elicitation {
        requests["user_name"] = question("What is your name?", "name");
    }
    if can.sampling {
        requests["greeting"] = sampling("Generate a greeting", 50);
    }
    requests
}
