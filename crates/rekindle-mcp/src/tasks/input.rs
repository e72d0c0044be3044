//! Waits as requests for input, and the responses to them as answers.

use rekindle::core::Hash;
use rekindle::core::record::WaitKind;
use rekindle::operations::{Answer, RunProgress, WaitView};
use rekindle::{Identity, Json};
use rmcp::ErrorData;
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, InputRequest,
    InputRequests, JsonObject,
};
use serde::Deserialize as _;
use serde_json::{Value, json};

/// The property under which an answer is asked for that is no object itself.
const ANSWER: &str = "answer";
/// How much of the arguments of a call a message shows.
const SHOWN: usize = 8_192;

/// Whether somebody can answer what a run waits for.
pub(super) fn can_be_answered(progress: &RunProgress) -> bool {
    progress.waits.iter().any(is_input)
}

/// Everything a run asks for.
pub(super) fn requests(progress: &RunProgress) -> InputRequests {
    progress.waits.iter().filter(|wait| is_input(wait)).map(|wait| (key(wait), request(wait))).collect()
}

/// Times end by themselves.
fn is_input(wait: &WaitView) -> bool {
    wait.opened.kind != WaitKind::Timer
}

/// The key of a request: its wait and, once somebody has changed what is to be approved, what it has
/// become. So an answer is always to what was shown.
pub(super) fn key(wait: &WaitView) -> String {
    match wait.approve_digest {
        Some(digest) if wait.opened.digest != Some(digest) => format!("{}#{digest}", wait.opened.wait),
        _ => wait.opened.wait.to_string(),
    }
}

fn request(wait: &WaitView) -> InputRequest {
    let requested_schema = match wait.opened.kind {
        WaitKind::Approval => schema(approval()),
        _ => question(wait).0,
    };
    let params = ElicitRequestParams::FormElicitationParams { meta: None, message: message(wait), requested_schema };
    InputRequest::Elicitation(ElicitRequest::new(params))
}

/// What is asked, with the arguments that are to be approved.
fn message(wait: &WaitView) -> String {
    let prompt = match (wait.opened.kind, wait.opened.prompt.as_str()) {
        (WaitKind::Signal, name) => format!("The run waits for the signal `{name}`."),
        (WaitKind::Approval, "") => "May this call be made?".to_owned(),
        (_, prompt) => prompt.to_owned(),
    };
    let changed = wait.decisions.iter().rev().find_map(|decision| decision.arguments.as_ref());
    let Some(arguments) = changed.or(wait.opened.arguments.as_ref()) else { return prompt };
    let shown: String = arguments.as_str().chars().take(SHOWN).collect();
    let rest = if shown.len() < arguments.as_str().len() { " … (cut)" } else { "" };
    format!("{prompt}\n\n{shown}{rest}")
}

fn approval() -> Value {
    json!({
        "type": "object",
        "properties": {
            "decision": { "type": "string", "enum": ["approve", "reject"] },
            "reason": { "type": "string", "description": "Why" },
            "arguments": { "type": "string", "description": "JSON of other arguments to use instead; only with approve" },
        },
        "required": ["decision"],
    })
}

/// The schema of a question, and whether its answer is the object itself.
fn question(wait: &WaitView) -> (ElicitationSchema, bool) {
    let wanted = wait.opened.schema.as_ref().and_then(|schema| schema.to_value().ok());
    let wanted = wanted.unwrap_or_else(|| json!({ "type": "string" }));
    if let Value::Object(object) = &wanted
        && let Some(schema) = whole(object.clone())
    {
        return (schema, true);
    }
    let wrapped = json!({ "type": "object", "properties": { ANSWER: wanted }, "required": [ANSWER] });
    let text = json!({ "type": "string", "description": format!("JSON that fits the schema {wanted}") });
    let as_text = json!({ "type": "object", "properties": { ANSWER: text }, "required": [ANSWER] });
    match wrapped {
        Value::Object(object) => (whole(object).unwrap_or_else(|| schema(as_text)), false),
        _ => (schema(as_text), false),
    }
}

/// A schema, if forms can show it without losing any of it.
fn whole(object: JsonObject) -> Option<ElicitationSchema> {
    let known = ["type", "properties", "required", "title", "description", "$schema", "additionalProperties"];
    if object.get("type") != Some(&json!("object")) || object.keys().any(|key| !known.contains(&key.as_str())) {
        return None;
    }
    ElicitationSchema::from_json_schema(object).ok()
}

fn schema(value: Value) -> ElicitationSchema {
    let object = value.as_object().cloned().unwrap_or_default();
    ElicitationSchema::from_json_schema(object).unwrap_or_else(|_| ElicitationSchema::new(Default::default()))
}

/// A response as an answer; none if whoever was asked put it off.
pub(super) fn answer(wait: &WaitView, response: &Value, by: &Identity) -> Result<Option<Answer>, ErrorData> {
    let refused = |why: String| ErrorData::invalid_params(format!("the response to `{}`: {why}", key(wait)), None);
    let result = ElicitResult::deserialize(response).map_err(|error| refused(error.to_string()))?;
    let id = wait.opened.wait.clone();
    let content = match result.action {
        ElicitationAction::Cancel => return Ok(None),
        ElicitationAction::Decline => return Ok(Some(Answer::reject(id, by.clone(), "it was declined"))),
        _ => result.content.unwrap_or_default(),
    };
    let answer = match wait.opened.kind {
        WaitKind::Approval => decided(wait, &content, by).map_err(refused)?,
        _ => Answer::value(id, value(wait, content), by.clone()),
    };
    Ok(Some(answer))
}

/// A decision on exactly what was shown.
fn decided(wait: &WaitView, content: &Value, by: &Identity) -> Result<Answer, String> {
    let id = wait.opened.wait.clone();
    let reason = content.get("reason").and_then(Value::as_str).unwrap_or_default();
    let digest: Option<Hash> = wait.approve_digest;
    let answer = match content.get("decision").and_then(Value::as_str) {
        Some("approve") => Answer { reason: reason.to_owned(), ..Answer::approve(id, digest, by.clone()) },
        Some("reject") => Answer::reject(id, by.clone(), reason),
        _ => return Err("`decision` is neither `approve` nor `reject`".to_owned()),
    };
    match content.get("arguments") {
        None | Some(Value::Null) => Ok(answer),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(answer),
        Some(Value::String(text)) => {
            let arguments = Json::parse(text.as_str()).map_err(|error| format!("`arguments` is no JSON: {error}"))?;
            Ok(answer.with_arguments(arguments))
        }
        Some(other) => Ok(answer.with_arguments(Json::from(other.clone()))),
    }
}

/// What was answered to a question: the object itself, or what stands in it.
fn value(wait: &WaitView, content: Value) -> Json {
    if question(wait).1 {
        return Json::from(content);
    }
    let answer = match content {
        Value::Object(mut object) if object.contains_key(ANSWER) => object.remove(ANSWER).unwrap_or_default(),
        other => other,
    };
    match &answer {
        // A text that stands for something else than a text.
        Value::String(text) if !takes_text(wait) => Json::parse(text.as_str()).unwrap_or_else(|_| Json::from(answer)),
        _ => Json::from(answer),
    }
}

fn takes_text(wait: &WaitView) -> bool {
    let schema = wait.opened.schema.as_ref().and_then(|schema| schema.to_value().ok());
    schema.is_none_or(|schema| schema.get("type") == Some(&json!("string")))
}
