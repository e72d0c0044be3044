//! Tools that make HTTP requests. Which host is asked, and by which path, is for whoever declares the
//! tool to say; values of a call fill in segments, query values, headers and bodies.

mod body;
mod builder;
mod client;
mod response;
mod url;

use std::collections::BTreeSet;

use async_trait::async_trait;
use rekindle::Json;
use rekindle::tool::{Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Request};
use serde_json::Value;

use crate::outcome::{lost, may_repeat, stopped};
use crate::template::{Template, Values};
use body::Body;
use url::UrlTemplate;

pub use builder::HttpToolBuilder;
pub(crate) use client::client;

/// A tool that makes an HTTP request.
///
/// The result is `{"status": 200, "body": …}`: JSON if the server says that it is, text otherwise;
/// with `"headers"` if some [are asked for](HttpToolBuilder::response_headers), and
/// `"truncated": true` if the body was longer than [the limit](HttpToolBuilder::response_limit).
///
/// ```
/// use rekindle::Json;
/// use rekindle_tools::HttpTool;
///
/// let issue = HttpTool::builder("issue", "Reads an issue.")
///     .parameters(Json::parse(
///         r#"{"type": "object", "properties": {"number": {"type": "integer"}, "page": {"type": "integer"}}}"#,
///     )?)
///     .url("https://tracker.example/issues/${arguments.number}")
///     .query("page", "${arguments.page}")
///     .header("Authorization", "Bearer ${secrets.tracker}")
///     .build()?;
/// # let _ = issue;
/// # Ok::<(), rekindle::Error>(())
/// ```
///
/// # What is tried again
/// A request that never reached the server. An answer 408, 429 or 5xx, or a lost answer, if a call
/// in doubt may be repeated: unless the options say otherwise, that is so for GET, HEAD, OPTIONS, PUT
/// and DELETE, and for all methods if the server is said to honour the
/// [idempotency header](HttpToolBuilder::idempotency_header). Anything else fails, and the model is
/// told. What a failed POST did nobody knows unless the server honours such a header: declare one if
/// you can.
///
/// # What stays where it is
/// A redirect is followed to the same scheme, host and port only, at most five times; where else it
/// leads is told, not asked. Nothing goes through a proxy.
#[derive(Clone, Debug)]
pub struct HttpTool {
    spec: ToolSpec,
    options: ToolOptions,
    client: Client,
    method: Method,
    url: UrlTemplate,
    headers: Vec<(HeaderName, Template)>,
    secrets: BTreeSet<String>,
    body: Body,
    /// The header with the idempotency key.
    key: Option<HeaderName>,
    keep: Vec<HeaderName>,
    limit: usize,
}

/// What a request carries.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum HttpBody {
    /// Nothing.
    #[default]
    Nothing,
    /// The arguments of the call, as JSON.
    Arguments,
    /// JSON. A text in it that is one reference becomes the value, or disappears with its field if
    /// there is none; in longer texts values are written out.
    Json(Value),
    /// A text with references in it.
    Text(String),
}

impl HttpTool {
    /// A tool that is not finished.
    pub fn builder(name: impl Into<String>, description: impl Into<String>) -> HttpToolBuilder {
        HttpToolBuilder::new(name.into(), description.into())
    }

    fn request(&self, values: &Values<'_>) -> Result<Request, ToolError> {
        let mut request = Request::new(self.method.clone(), self.url.fill(values)?);
        *request.headers_mut() = self.headers(values)?;
        if let Some((kind, bytes)) = self.body.fill(values)? {
            request.headers_mut().entry(reqwest::header::CONTENT_TYPE).or_insert(kind);
            *request.body_mut() = Some(bytes.into());
        }
        Ok(request)
    }

    fn headers(&self, values: &Values<'_>) -> Result<HeaderMap, ToolError> {
        let mut headers = HeaderMap::new();
        for (name, template) in &self.headers {
            let Some(text) = template.fill(values)? else { continue };
            headers.append(name, header_value(name, &text)?);
        }
        if let Some(name) = &self.key {
            headers.insert(name, header_value(name, values.idempotency_key)?);
        }
        Ok(headers)
    }

    async fn send(&self, request: Request) -> Result<ToolOutput, ToolError> {
        let host = request.url().host_str().unwrap_or_default().to_owned();
        let response = match self.client.execute(request).await {
            Ok(response) => response,
            // Nothing was sent, so nothing happened.
            Err(error) if error.is_connect() => {
                return Err(ToolError::retry(format!("`{host}` cannot be reached: {}", client::causes(error))));
            }
            Err(error) => {
                return Err(lost(format!("`{host}` gave no answer: {}", client::causes(error))));
            }
        };
        let status = response.status();
        let answer = response::read(response, &self.keep, self.limit).await;
        let answer = answer.map_err(|why| lost(format!("the answer of `{host}` broke off: {why}")))?;
        if status.is_success() {
            return Ok(ToolOutput::json(answer.to_json(status)));
        }
        let fault = answer.fault(&host, status);
        match response::is_passing(status) && may_repeat(&self.options) {
            true => Err(ToolError::retry(fault)),
            false => Err(ToolError::failed(fault)),
        }
    }
}

#[async_trait]
impl Tool for HttpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn options(&self) -> &ToolOptions {
        &self.options
    }

    async fn call(&self, context: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        let arguments = arguments.to_value()?;
        let values = Values::of(context, &arguments, &self.secrets).await?;
        let request = self.request(&values)?;
        tokio::select! {
            biased;
            output = self.send(request) => output,
            () = context.cancelled() => Err(stopped()),
        }
    }
}

/// A value of a header. It is never repeated in an error, nor shown: it may be a secret.
fn header_value(name: &HeaderName, text: &str) -> Result<HeaderValue, ToolError> {
    let value = HeaderValue::from_str(text);
    let mut value = value.map_err(|_| ToolError::failed(format!("the value of `{name}` is none for a header")))?;
    value.set_sensitive(true);
    Ok(value)
}
