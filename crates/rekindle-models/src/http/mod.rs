//! What all providers share: a connection to one server, its errors, and answers that come whole or
//! as a stream. Knows HTTP, but no provider.

mod body;
mod connection;
mod json;
mod refusal;
mod retry_after;
mod settings;
mod sse;

use rekindle::model::{Delta, Deltas, ModelError};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;

use body::Body;
pub(crate) use connection::Connection;
pub(crate) use json::parsed;
pub(crate) use refusal::in_stream;
pub(crate) use settings::{Settings, shared_setters};
use sse::{Event, SseParser};

/// Puts an answer together. Pure: the bytes come from elsewhere.
pub(crate) trait Assembly {
    /// Takes the data of one event of a stream and adds what is new to `pieces`.
    fn event(&mut self, data: &str, pieces: &mut Vec<Delta>) -> Result<(), ModelError>;

    /// Takes an answer that came whole.
    fn whole(&mut self, body: &Value) -> Result<(), ModelError>;

    /// Whether the stream said that nothing follows.
    fn is_over(&self) -> bool;

    /// Whether the answer is whole, so that the stream may end here.
    fn is_whole(&self) -> bool;
}

/// Reads an answer, whole or streaming, whichever the server chose.
pub(crate) async fn read_answer(
    connection: &Connection,
    response: Response,
    assembly: &mut impl Assembly,
    deltas: &Deltas,
) -> Result<(), ModelError> {
    let read = read(connection, response, assembly, deltas).await;
    // What a provider says in its own words may repeat the key.
    read.map_err(|error| ModelError { message: connection.redacted(&error.message), ..error })
}

async fn read(
    connection: &Connection,
    response: Response,
    assembly: &mut impl Assembly,
    deltas: &Deltas,
) -> Result<(), ModelError> {
    let (kind, base) = (content_type(&response), connection.base());
    let mut body = connection.body(response);
    if kind.contains("html") {
        return Err(ModelError::fatal(format!("{base} answered with a web page; is the base URL right?")));
    }
    if kind.contains("json") {
        let malformed = |error| ModelError::passing(format!("{base} answered with malformed JSON: {error}"));
        return assembly.whole(&serde_json::from_slice(&body.all().await?).map_err(malformed)?);
    }
    read_stream(body, assembly, deltas).await
}

async fn read_stream(mut body: Body, assembly: &mut impl Assembly, deltas: &Deltas) -> Result<(), ModelError> {
    let mut parser = SseParser::new(body.limit());
    let mut events = Vec::new();
    while let Some(bytes) = body.chunk().await? {
        parser.push(bytes.as_ref(), &mut events).map_err(|_| body.too_large())?;
        take(&mut events, assembly, deltas).await?;
        if assembly.is_over() {
            body.finish().await;
            return Ok(());
        }
    }
    end(parser, &body, assembly, deltas).await
}

/// The stream ended without saying so.
async fn end(parser: SseParser, body: &Body, assembly: &mut impl Assembly, deltas: &Deltas) -> Result<(), ModelError> {
    if let Some(event) = parser.finish() {
        // It was cut in the middle of this one, if it cannot be read.
        let is_cut = !assembly.is_whole() && serde_json::from_str::<Value>(&event.data).is_err();
        if !is_cut || event.data.starts_with("[DONE]") {
            take(&mut vec![event], assembly, deltas).await?;
        }
    }
    if assembly.is_over() || assembly.is_whole() { Ok(()) } else { Err(body.cut()) }
}

async fn take(events: &mut Vec<Event>, assembly: &mut impl Assembly, deltas: &Deltas) -> Result<(), ModelError> {
    let mut pieces = Vec::new();
    for event in events.drain(..) {
        // What follows the end is of no interest.
        if assembly.is_over() {
            break;
        }
        let taken = assembly.event(&event.data, &mut pieces);
        for piece in pieces.drain(..) {
            match piece {
                Delta::Text(text) => deltas.text(text).await,
                Delta::Reasoning(text) => deltas.reasoning(text).await,
                _ => {}
            }
        }
        taken?;
    }
    Ok(())
}

fn content_type(response: &Response) -> String {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_ascii_lowercase()
}
