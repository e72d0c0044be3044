//! What becomes of an answer: JSON, text, or a word on what it is.

use futures_util::StreamExt as _;
use rekindle::Json;
use reqwest::header::{CONTENT_TYPE, HeaderName, LOCATION};
use reqwest::{Response, StatusCode};
use serde_json::{Map, Value, json};

/// An answer, as far as it was read.
pub(super) struct Answer {
    kind: String,
    headers: Option<Map<String, Value>>,
    location: Option<String>,
    bytes: Vec<u8>,
    truncated: bool,
}

/// Reads an answer up to a limit. The error says why it broke off.
pub(super) async fn read(response: Response, keep: &[HeaderName], limit: usize) -> Result<Answer, String> {
    let header =
        |name: &HeaderName| response.headers().get(name).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    let headers = keep.iter().filter_map(|name| Some((name.to_string(), header(name)?.into()))).collect();
    let mut answer = Answer {
        kind: header(&CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase(),
        headers: (!keep.is_empty()).then_some(headers),
        location: header(&LOCATION),
        bytes: Vec::new(),
        truncated: false,
    };
    let mut pieces = response.bytes_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(super::client::causes)?;
        let room = limit - answer.bytes.len();
        answer.bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() > room {
            answer.truncated = true;
            break;
        }
    }
    Ok(answer)
}

/// Whether trying again may help.
pub(super) fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status.as_u16(), 408 | 429)
}

impl Answer {
    pub(super) fn to_json(&self, status: StatusCode) -> Json {
        let mut value = json!({"status": status.as_u16(), "body": self.body()});
        if let Some(headers) = &self.headers {
            value["headers"] = headers.clone().into();
        }
        if self.truncated {
            value["truncated"] = true.into();
        }
        Json::from(value)
    }

    /// What is wrong, with the beginning of what the server says of it.
    pub(super) fn fault(&self, host: &str, status: StatusCode) -> String {
        if let (true, Some(location)) = (status.is_redirection(), &self.location) {
            let location: String = location.chars().take(200).collect();
            return format!("`{host}` answered {status}: it leads to {location}, which is not followed");
        }
        let text = String::from_utf8_lossy(&self.bytes);
        let start: String = text.trim().chars().take(1000).collect();
        match start.is_empty() {
            true => format!("`{host}` answered {status}"),
            false => format!("`{host}` answered {status}: {start}"),
        }
    }

    fn body(&self) -> Value {
        let kind = self.kind.split(';').next().unwrap_or_default().trim();
        let is_json = kind == "application/json" || kind.ends_with("+json");
        if let (true, false, Ok(value)) = (is_json, self.truncated, serde_json::from_slice(&self.bytes)) {
            return value;
        }
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => text.into(),
            // Cut in the middle of a character, or text in another encoding.
            Err(error) if self.truncated && error.error_len().is_none() => {
                String::from_utf8_lossy(&self.bytes[..error.valid_up_to()]).into()
            }
            Err(_) if kind.starts_with("text/") => String::from_utf8_lossy(&self.bytes).into(),
            Err(_) => {
                let kind = if kind.is_empty() { "unknown type" } else { kind };
                format!("{} bytes that are no text ({kind})", self.bytes.len()).into()
            }
        }
    }
}
