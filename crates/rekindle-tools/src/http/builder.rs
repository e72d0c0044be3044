//! Building an [`HttpTool`].

use rekindle::core::record::InDoubtPolicy;
use rekindle::tool::{ToolOptions, ToolSpec};
use rekindle::{Error, Json, Result};
use reqwest::Method;
use reqwest::header::HeaderName;
use serde_json::Value;

use super::body::Body;
use super::url::UrlTemplate;
use super::{HttpBody, HttpTool, client};
use crate::checks::{self, Faults};
use crate::template::Template;

/// The header that carries the idempotency key unless another is named.
const KEY_HEADER: &str = "Idempotency-Key";

/// An [`HttpTool`] that is not finished.
#[derive(Clone, Debug)]
#[must_use]
pub struct HttpToolBuilder {
    spec: ToolSpec,
    options: Option<ToolOptions>,
    method: String,
    url: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    body: HttpBody,
    key: Key,
    keep: Vec<String>,
    limit: usize,
}

/// Whether the idempotency key is sent.
#[derive(Clone, Debug)]
enum Key {
    /// With methods that are not idempotent; nobody says that the server honours it.
    Maybe,
    /// The server honours it.
    Honoured(String),
    Never,
}

impl HttpToolBuilder {
    pub(super) fn new(name: String, description: String) -> Self {
        let parameters = Json::from(serde_json::json!({"type": "object", "properties": {}}));
        Self {
            spec: ToolSpec { name, description, parameters, version: None },
            options: None,
            method: "GET".into(),
            url: String::new(),
            query: Vec::new(),
            headers: Vec::new(),
            body: HttpBody::Nothing,
            key: Key::Maybe,
            keep: Vec::new(),
            limit: 1 << 20,
        }
    }

    /// JSON Schema of its arguments; without it there are none.
    pub fn parameters(mut self, schema: Json) -> Self {
        self.spec.parameters = schema;
        self
    }

    /// The method; GET unless another is named.
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.method = method.into();
        self
    }

    /// The URL. References are allowed in its path and its query; whatever a value holds, it stays
    /// in its segment or its query value.
    pub fn url(mut self, template: impl Into<String>) -> Self {
        self.url = template.into();
        self
    }

    /// A query parameter, after those of the URL. Left out if it is one reference without a value,
    /// and repeated if the value is a list.
    pub fn query(mut self, name: impl Into<String>, template: impl Into<String>) -> Self {
        self.query.push((name.into(), template.into()));
        self
    }

    /// A header. Left out if it is one reference without a value. The place for secrets:
    /// `Bearer ${secrets.token}`.
    pub fn header(mut self, name: impl Into<String>, template: impl Into<String>) -> Self {
        self.headers.push((name.into(), template.into()));
        self
    }

    /// What the request carries.
    pub fn body(mut self, body: HttpBody) -> Self {
        self.body = body;
        self
    }

    /// The header that carries the idempotency key. Declaring it says that the server honours it:
    /// failures are tried again, and so is a call in doubt unless the options say otherwise.
    pub fn idempotency_header(mut self, name: impl Into<String>) -> Self {
        self.key = Key::Honoured(name.into());
        self
    }

    /// Sends no idempotency key. Otherwise POST and PATCH send one as `Idempotency-Key`, though
    /// nobody relies on it.
    pub fn without_idempotency_header(mut self) -> Self {
        self.key = Key::Never;
        self
    }

    /// Headers of the answer that are part of the result.
    pub fn response_headers(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.keep.extend(names.into_iter().map(Into::into));
        self
    }

    /// How many bytes of the answer are kept; 1 MiB unless more is said.
    pub fn response_limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Its version; a change is drift.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.spec.version = Some(version.into());
        self
    }

    /// What the engine must know. Without it: GET, HEAD and OPTIONS read; PUT and DELETE write and
    /// may be repeated; others write.
    pub fn options(mut self, options: ToolOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// The tool. An error names everything that is wrong with it.
    pub fn build(self) -> Result<HttpTool> {
        let mut faults = Faults::default();
        let schema = checks::spec(&mut faults, &self.spec);
        let method = self.read_method(&mut faults);
        let url = UrlTemplate::build(&mut faults, &self.url, &self.query, &schema);
        let headers = self.read_headers(&mut faults, &schema);
        let body = Body::build(&mut faults, &self.body, &schema);
        let key = self.read_key(&mut faults, &method);
        let keep = self.keep.iter().filter_map(|name| header_name(&mut faults, name)).collect();
        let by_method = ToolOptions { writes: !method.is_safe(), ..ToolOptions::default() };
        let mut options = self.options.unwrap_or(by_method);
        let repeatable = method.is_idempotent() || matches!(self.key, Key::Honoured(_));
        if options.writes && options.in_doubt.is_none() && repeatable {
            options.in_doubt = Some(InDoubtPolicy::Idempotent);
        }
        checks::options(&mut faults, &options, false, "something that checks, which a request has not");
        faults.check(self.limit > 0, || "the limit of the answer is 0".to_owned());
        faults.into_result("tool", &self.spec.name)?;
        let url = url.ok_or_else(|| Error::invalid("there is no URL"))?;
        let secrets = Template::secrets(headers.iter().map(|(_, template)| template));
        let (spec, limit) = (self.spec, self.limit);
        let client = client()?;
        Ok(HttpTool { spec, options, client, method, url, headers, secrets, body, key, keep, limit })
    }

    fn read_method(&self, faults: &mut Faults) -> Method {
        const KNOWN: [&str; 7] = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"];
        let name = self.method.to_ascii_uppercase();
        faults.check(KNOWN.contains(&name.as_str()), || {
            format!("`{}` is no method; there are {}", self.method, KNOWN.join(", "))
        });
        name.parse().unwrap_or_default()
    }

    fn read_headers(&self, faults: &mut Faults, schema: &Value) -> Vec<(HeaderName, Template)> {
        let mut headers = Vec::new();
        for (name, text) in &self.headers {
            let template = faults.template(&format!("header `{name}`"), text, true, schema);
            let Some(name) = header_name(faults, name) else { continue };
            // These say where a request ends and whom it is for.
            const OURS: [&str; 5] = ["host", "content-length", "transfer-encoding", "connection", "te"];
            faults.check(!OURS.contains(&name.as_str()), || format!("the header `{name}` cannot be set"));
            headers.push((name, template));
        }
        headers
    }

    fn read_key(&self, faults: &mut Faults, method: &Method) -> Option<HeaderName> {
        match &self.key {
            Key::Never => None,
            Key::Honoured(name) => header_name(faults, name),
            Key::Maybe => (!method.is_idempotent()).then(|| KEY_HEADER.parse().ok()).flatten(),
        }
    }
}

fn header_name(faults: &mut Faults, name: &str) -> Option<HeaderName> {
    let read = name.parse().ok();
    faults.check(read.is_some(), || format!("`{name}` is no name of a header"));
    read
}
