//! A connection to one server: sends requests and makes errors of what goes wrong.

use std::fmt;
use std::time::Duration;

use rekindle::model::{ModelError, ModelRequest};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, Url};
use serde_json::Value;

use super::body::Body;
use super::refusal::Refusal;
use super::settings::Settings;

/// The most bytes of the explanation of an error that are read.
const MAX_EXPLANATION: usize = 64 << 10;
/// How long a server may take to say which models it has.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an explanation may take.
const EXPLANATION_SILENCE: Duration = Duration::from_secs(10);

/// A connection to one server.
#[derive(Clone)]
pub(crate) struct Connection {
    client: Client,
    base: Url,
    headers: HeaderMap,
    settings: Settings,
}

impl Connection {
    pub(super) fn new(client: Client, base: Url, headers: HeaderMap, settings: Settings) -> Self {
        Self { client, base, headers, settings }
    }

    /// The base URL, for people.
    pub(crate) fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Posts `body`; returns the response if it is a good one.
    pub(crate) async fn post(&self, path: &str, request: &ModelRequest, body: &Value) -> Result<Response, ModelError> {
        let mut post = self.client.post(self.url(self.base(), path)?).header(CONTENT_TYPE, "application/json");
        // Providers that know the header answer a repeated try once; the others leave it alone.
        if let Ok(key) = HeaderValue::from_str(&request.idempotency_key) {
            post = post.header("idempotency-key", key);
        }
        self.send(post.body(body.to_string()), self.settings.silence).await
    }

    /// Asks for the list of models below `base` and says whether `model` is in it.
    pub(crate) async fn check(&self, base: &str, path: &str, model: &str) -> Result<String, ModelError> {
        let list = self.get(base, path).await?;
        let ids = ["data", "models"].into_iter().find_map(|field| list[field].as_array());
        let ids: Vec<&str> = ids.into_iter().flatten().filter_map(|model| model["id"].as_str()).collect();
        let found = if ids.contains(&model) { "is one of" } else { "is not one of" };
        Ok(format!("{} answers; `{model}` {found} the {} models it lists", self.base(), ids.len()))
    }

    async fn get(&self, base: &str, path: &str) -> Result<Value, ModelError> {
        let response = self.send(self.client.get(self.url(base, path)?), CHECK_TIMEOUT).await?;
        let bytes = Body::new(response, CHECK_TIMEOUT, self.settings.max_response_bytes).all().await?;
        let other = |_| ModelError::fatal(format!("{base}{path} answered, but not with JSON; is the base URL right?"));
        serde_json::from_slice(&bytes).map_err(other)
    }

    /// The body of a response.
    pub(super) fn body(&self, response: Response) -> Body {
        Body::new(response, self.settings.silence, self.settings.max_response_bytes)
    }

    fn url(&self, base: &str, path: &str) -> Result<Url, ModelError> {
        let text = format!("{base}{path}");
        let mut url = Url::parse(&text).map_err(|error| ModelError::fatal(format!("{text} is no URL: {error}")))?;
        if !self.settings.query.is_empty() {
            let pairs = self.settings.query.iter().map(|(name, value)| (name, value.expose()));
            url.query_pairs_mut().extend_pairs(pairs);
        }
        Ok(url)
    }

    async fn send(&self, request: RequestBuilder, timeout: Duration) -> Result<Response, ModelError> {
        let sending = request.headers(self.headers.clone()).send();
        let response = match tokio::time::timeout(timeout, sending).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.unreachable(error)),
            Err(_) => return Err(ModelError::passing(format!("{} was silent for {timeout:?}", self.base()))),
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let body = Body::new(response, EXPLANATION_SILENCE, MAX_EXPLANATION).beginning().await;
        let refusal = Refusal { base: self.base(), key: self.settings.key.as_ref(), status, headers: &headers };
        Err(refusal.error(&self.redacted(&String::from_utf8_lossy(&body))))
    }

    /// The request found no answer.
    fn unreachable(&self, error: reqwest::Error) -> ModelError {
        let what = if error.is_connect() { "cannot be reached" } else { "broke off before it answered" };
        // The outer errors say the same in general words; the last one knows.
        let mut cause: &dyn std::error::Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        ModelError::passing(self.redacted(&format!("{} {what}: {cause}", self.base())))
    }

    /// The key, labelled with where it came from.
    pub(crate) fn secrets(&self) -> Vec<(String, rekindle::Secret)> {
        self.settings.key.iter().map(|key| (key.label().to_owned(), key.secret().clone())).collect()
    }

    /// `text` without the key and without the values of headers.
    pub(super) fn redacted(&self, text: &str) -> String {
        let key = self.settings.key.as_ref().map(|key| key.secret().expose());
        let values = self.settings.headers.iter().map(|(_, value)| value.expose());
        // What is as short as a word is no secret, and taking it out would spoil the text.
        let secrets = key.filter(|key| key.len() >= 4).into_iter().chain(values.filter(|value| value.len() >= 8));
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "[secret]"))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("base", &self.base())
            .field("key", &self.settings.key)
            .finish_non_exhaustive()
    }
}
