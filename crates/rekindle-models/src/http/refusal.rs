//! What a provider refuses, as an error: whether asking again may help, and what a person can mend.

use rekindle::model::ModelError;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, LOCATION};
use serde_json::Value;

use super::retry_after::retry_after;
use crate::ApiKey;

/// The most characters of an explanation that are passed on.
const MAX_EXPLANATION: usize = 500;

/// A response that is no success.
pub(super) struct Refusal<'a> {
    pub(super) base: &'a str,
    pub(super) key: Option<&'a ApiKey>,
    pub(super) status: StatusCode,
    pub(super) headers: &'a HeaderMap,
}

impl Refusal<'_> {
    /// The error; `body` explains it and holds no secret any more.
    pub(super) fn error(&self, body: &str) -> ModelError {
        let error = serde_json::from_str::<Value>(body).ok().map(|error| match error {
            // Some wrap it in a list.
            Value::Array(mut errors) if !errors.is_empty() => errors.swap_remove(0),
            error => error,
        });
        let why = explanation(error.as_ref(), body);
        let message = format!("{} {}", self.base, self.what());
        let message = if why.is_empty() { message } else { format!("{message}: {why}") };
        if !is_passing(self.status.as_u16()) || error.as_ref().is_some_and(is_used_up) {
            return ModelError::fatal(message);
        }
        let passing = ModelError::passing(message);
        match retry_after(self.headers) {
            Some(after) => passing.with_retry_after(after),
            None => passing,
        }
    }

    fn what(&self) -> String {
        let status = self.status;
        match (status.as_u16(), self.key) {
            (401 | 403, Some(key)) => format!("refused the key {} ({status})", key.label()),
            (401 | 403, None) => format!("refused a request without a key ({status})"),
            (404, _) => format!("does not know the model or the URL ({status})"),
            (413, _) => format!("finds the request too large ({status})"),
            (300..=399, _) => format!("points elsewhere, to {}: change the base URL ({status})", self.location()),
            _ => format!("answered {status}"),
        }
    }

    fn location(&self) -> String {
        let place = self.headers.get(LOCATION).and_then(|place| place.to_str().ok());
        shortened(place.unwrap_or("an unnamed place"))
    }
}

/// An error inside a stream, which began well.
pub(crate) fn in_stream(error: &Value) -> ModelError {
    let why = explanation(Some(error), "");
    let message = format!("the stream ended with an error: {}", if why.is_empty() { "it is not named" } else { &why });
    if is_lasting(error) { ModelError::fatal(message) } else { ModelError::passing(message) }
}

/// Whether a status passes.
fn is_passing(status: u16) -> bool {
    matches!(status, 408 | 409 | 425 | 429 | 500 | 502 | 503 | 504 | 520..=524 | 529)
}

/// Whether money, not time, is needed.
fn is_used_up(error: &Value) -> bool {
    kinds(error).any(|kind| matches!(kind, "insufficient_quota" | "billing_not_active" | "billing_error"))
}

fn is_lasting(error: &Value) -> bool {
    const LASTING: [&str; 6] =
        ["invalid_request", "authentication", "permission", "not_found", "request_too_large", "context_length"];
    let code = inner(error).get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let by_code = code.is_some_and(|code| (400..500).contains(&code) && !is_passing(code));
    by_code || is_used_up(error) || kinds(error).any(|kind| LASTING.iter().any(|lasting| kind.starts_with(lasting)))
}

/// The object that explains: most wrap it.
fn inner(error: &Value) -> &Value {
    error.get("error").filter(|inner| !inner.is_null()).unwrap_or(error)
}

fn kinds(error: &Value) -> impl Iterator<Item = &str> {
    let inner = inner(error);
    ["type", "code", "status"].into_iter().filter_map(|field| inner.get(field).and_then(Value::as_str))
}

/// The provider's own words, short and on one line.
fn explanation(error: Option<&Value>, body: &str) -> String {
    let body = body.trim();
    let Some(error) = error else {
        let is_page = body.starts_with('<');
        return if is_page { "a web page, not an answer of the API".to_owned() } else { shortened(body) };
    };
    let inner = inner(error);
    let fields = ["message", "detail", "error", "type"].into_iter().map(|field| &inner[field]);
    let said = fields.chain([inner]).find_map(|value| value.as_str().filter(|text| !text.trim().is_empty()));
    said.map_or_else(|| shortened(&inner.to_string()), shortened)
}

fn shortened(text: &str) -> String {
    let words: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_EXPLANATION + 1).collect();
    match words.char_indices().nth(MAX_EXPLANATION) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use rekindle::Secret;
    use serde_json::json;

    use super::*;

    fn refused(status: u16, body: &str) -> ModelError {
        let key = ApiKey::new(Secret::new("sk-1")).labelled("@env:KEY");
        let status = StatusCode::from_u16(status).unwrap();
        Refusal { base: "https://api", key: Some(&key), status, headers: &HeaderMap::new() }.error(body)
    }

    fn check(status: u16, body: &str, retry: bool, expected: &str) {
        let error = refused(status, body);
        assert_eq!((error.message.as_str(), error.retry), (expected, retry), "{status} {body}");
    }

    #[test]
    fn a_refusal_says_what_to_mend() {
        let body = r#"{"error":{"message":"no\nway","type":"t"}}"#;
        check(400, body, false, "https://api answered 400 Bad Request: no way");
        check(401, body, false, "https://api refused the key @env:KEY (401 Unauthorized): no way");
        check(403, "", false, "https://api refused the key @env:KEY (403 Forbidden)");
        check(404, "", false, "https://api does not know the model or the URL (404 Not Found)");
        check(302, "", false, "https://api points elsewhere, to an unnamed place: change the base URL (302 Found)");
        check(
            500,
            "<html>",
            true,
            "https://api answered 500 Internal Server Error: a web page, not an answer of the API",
        );
    }

    #[test]
    fn explanations_come_in_many_shapes() {
        let says = |body: &str, expected: &str| {
            check(400, body, false, &format!("https://api answered 400 Bad Request: {expected}"))
        };
        says(r#"{"error":"flat"}"#, "flat");
        says(r#"[{"error":{"message":"listed","code":400}}]"#, "listed");
        says(r#"{"message":"top"}"#, "top");
        says(r#"{"detail":"fast"}"#, "fast");
        says(r#"{"detail":[{"loc":1}]}"#, r#"{"detail":[{"loc":1}]}"#);
        says(r#"{"error":{"type":"odd_error"}}"#, "odd_error");
        says(r#""text""#, "text");
        says("plain", "plain");
        says(&"x".repeat(600), &format!("{}…", "x".repeat(500)));
    }

    #[test]
    fn what_passes_is_asked_again() {
        for status in [408, 409, 429, 500, 502, 503, 504, 529] {
            assert!(refused(status, "").retry, "{status}");
        }
        for status in [301, 400, 401, 402, 403, 404, 405, 413, 422, 501] {
            assert!(!refused(status, "").retry, "{status}");
        }
        assert!(!refused(429, r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#).retry);
    }

    #[test]
    fn errors_in_streams_pass_unless_they_last() {
        let check = |error: Value, retry: bool| assert_eq!(in_stream(&error).retry, retry, "{error}");
        check(json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}), true);
        check(json!({"error": {"type": "rate_limit_error"}}), true);
        check(json!({"error": {"code": 502, "message": "upstream"}}), true);
        check(json!({"error": {"code": 429}}), true);
        check(json!({"error": {"code": 402}}), false);
        check(json!({"error": {"type": "invalid_request_error"}}), false);
        check(json!({"error": {"code": "context_length_exceeded"}}), false);
        check(json!({}), true);
    }

    #[test]
    fn fuzzed_refusals() {
        let seeds = [
            r#"{"error":{"message":"no","type":"invalid_request_error","code":"insufficient_quota"}}"#,
            r#"[{"error":{"message":"no","status":"RESOURCE_EXHAUSTED"}}]"#,
            "<html>no</html>",
        ];
        rekindle_fuzz::fuzz!("refusal").seeds(seeds).words(["\"error\":", "\"message\":", "\"code\":"]).text(|text| {
            for status in [302, 400, 429, 500] {
                let message = refused(status, text).message;
                assert!(message.chars().count() <= MAX_EXPLANATION + 100, "{message}");
            }
            if let Ok(value) = serde_json::from_str(text) {
                let _ = in_stream(&value);
            }
        });
    }
}
