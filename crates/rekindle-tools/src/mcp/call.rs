//! One call of a server's tool.

use std::sync::Arc;

use async_trait::async_trait;
use rekindle::Json;
use rekindle::tool::{Leftovers, Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam, ClientRequest, ProgressToken,
    RequestId, RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::Value;

use super::handler::Calls;
use super::link::{Lines, Link};
use super::result;
use crate::outcome::{lost, stopped};
use crate::process::end_orphaned_servers;

/// Where the idempotency key is in the `_meta` of a request.
const KEY: &str = "rekindle/idempotencyKey";

/// How often a connection is made for one try of a call.
const TRIES: usize = 2;

/// A tool of a server.
#[derive(Debug)]
pub(super) struct McpTool {
    spec: ToolSpec,
    options: ToolOptions,
    /// Its name there.
    own_name: String,
    lines: Arc<Lines>,
}

impl McpTool {
    pub(super) fn new(spec: ToolSpec, options: ToolOptions, own_name: String, lines: Arc<Lines>) -> Self {
        Self { spec, options, own_name, lines }
    }

    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(super) fn own_name(&self) -> &str {
        &self.own_name
    }

    async fn make(&self, context: &ToolContext, arguments: Value) -> Result<ToolOutput, ToolError> {
        let request = self.request(context, arguments);
        let (link, sent) = self.send(context, request).await?;
        let mut under_way = UnderWay::new(&link, &sent);
        let answer = sent.await_response().await;
        under_way.answered = true;
        match answer {
            Ok(ServerResult::CallToolResult(result)) => self.result(result),
            Ok(_) => Err(self.failed("its answer is no result of a tool")),
            Err(error) => Err(self.broke_off(&link, error).await),
        }
    }

    fn request(&self, context: &ToolContext, arguments: Value) -> ClientRequest {
        let mut params = CallToolRequestParams::new(self.own_name.clone());
        if let Value::Object(arguments) = arguments {
            params = params.with_arguments(arguments);
        }
        let mut meta = RequestMetaObject::new();
        meta.0.0.insert(KEY.to_owned(), context.idempotency_key().into());
        params.meta = Some(meta);
        ClientRequest::CallToolRequest(CallToolRequest::new(params))
    }

    /// Hands the request over. What fails here was not sent, so nothing happened.
    async fn send(
        &self,
        context: &ToolContext,
        request: ClientRequest,
    ) -> Result<(Arc<Link>, RequestHandle<RoleClient>), ToolError> {
        let not_sent = |why: String| ToolError::retry(self.text(&why));
        for _ in 0..TRIES {
            let link = self.lines.link().await.map_err(not_sent)?;
            // Held until the token is known, so that no progress comes before it.
            let mut calls = link.calls.lock().await;
            let options = PeerRequestOptions::no_options();
            match link.peer.send_request_with_option(request.clone(), options).await {
                Ok(sent) => {
                    calls.insert(sent.progress_token.clone(), context.clone());
                    drop(calls);
                    return Ok((link, sent));
                }
                // It broke since it was looked at: the next one is new.
                Err(ServiceError::TransportClosed) => {}
                Err(error) => return Err(not_sent(error.to_string())),
            }
        }
        Err(not_sent("it ends as soon as it is reached".to_owned()))
    }

    fn result(&self, result: CallToolResult) -> Result<ToolOutput, ToolError> {
        let failed = result.is_error == Some(true);
        let value = self.lines.config.masks.value(result::value(result));
        match failed {
            true => Err(ToolError::failed(crate::template::written(&value))),
            false => Ok(ToolOutput::json(Json::from(value))),
        }
    }

    /// The request was sent, and there is no result.
    async fn broke_off(&self, link: &Link, error: ServiceError) -> ToolError {
        match error {
            ServiceError::McpError(error) => self.failed(&format!("it refused the call: {}", error.message)),
            ServiceError::UnexpectedResponse => self.failed("its answer is no result of a tool"),
            ServiceError::TransportSend(error) => {
                let why = self.text(&format!("the request failed: {error}"));
                match refusal(&*error.error) {
                    Some(Refusal::ForNow) => ToolError::retry(why),
                    Some(Refusal::ForGood) => ToolError::failed(why),
                    None => lost(why),
                }
            }
            ServiceError::TransportClosed => {
                let why = format!("it died during the call{}", link.last_words().await);
                lost(self.text(&why))
            }
            error => lost(self.text(&format!("the call broke off: {error}"))),
        }
    }

    fn failed(&self, why: &str) -> ToolError {
        ToolError::failed(self.text(why))
    }

    fn text(&self, why: &str) -> String {
        let config = &self.lines.config;
        config.masks.text(format!("MCP server `{}`: {why}", config.name))
    }
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn options(&self) -> &ToolOptions {
        &self.options
    }

    async fn call(&self, context: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        let arguments = arguments.to_value()?;
        tokio::select! {
            biased;
            output = self.make(context, arguments) => output,
            // What was sent is cancelled as it is dropped.
            () = context.cancelled() => Err(stopped()),
        }
    }

    /// Servers that earlier processes started may still work on the call.
    async fn end_leftovers(&self, _: &ToolContext, _: &Json) -> Result<Leftovers, ToolError> {
        if !self.lines.config.is_program() {
            return Ok(Leftovers::none());
        }
        let looked = tokio::task::spawn_blocking(end_orphaned_servers).await;
        let running = looked.map_err(|error| self.failed(&format!("the search was lost: {error}")))?;
        Ok(Leftovers { running })
    }
}

/// A request that did nothing.
enum Refusal {
    ForNow,
    ForGood,
}

/// Whether a request did nothing: it never left, or was turned away before anybody looked into it.
fn refusal(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<Refusal> {
    use StreamableHttpError as E;
    match error.downcast_ref::<E<reqwest::Error>>()? {
        E::Client(error) if error.is_connect() => Some(Refusal::ForNow),
        E::SessionExpired => Some(Refusal::ForNow),
        E::HttpStatus(error) if error.status == 429 => Some(Refusal::ForNow),
        E::AuthRequired(_) | E::InsufficientScope(_) => Some(Refusal::ForGood),
        _ => None,
    }
}

/// A call that is under way. When it is dropped before its result came, the server is told.
struct UnderWay {
    peer: Peer<RoleClient>,
    calls: Calls,
    id: RequestId,
    token: ProgressToken,
    answered: bool,
}

impl UnderWay {
    fn new(link: &Link, sent: &RequestHandle<RoleClient>) -> Self {
        let (id, token) = (sent.id.clone(), sent.progress_token.clone());
        Self { peer: link.peer.clone(), calls: Arc::clone(&link.calls), id, token, answered: false }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (peer, calls, id, token) =
            (self.peer.clone(), Arc::clone(&self.calls), self.id.clone(), self.token.clone());
        let answered = self.answered;
        runtime.spawn(async move {
            calls.lock().await.remove(&token);
            if !answered {
                let _ = peer.notify_cancelled(CancelledNotificationParam::new(Some(id), None)).await;
            }
        });
    }
}
