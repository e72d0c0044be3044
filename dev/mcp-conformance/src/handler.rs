//! The handler: answers from the fixtures, asks clients of revisions in which servers may, and hands tasks
//! on to Rekindle's own.

#![expect(deprecated, reason = "earlier revisions have subscriptions, logging and sampling")]

use std::sync::Arc;
use std::time::Duration;

use rekindle_mcp::McpServer;
use rmcp::model::*;
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;
use tokio::sync::broadcast;

use crate::fixtures::{self, complete, made, missing};
use crate::rounds::{self, Abilities};
use crate::runs;

/// The suite's fixtures.
#[derive(Clone)]
pub struct Fixtures {
    durable: McpServer,
    changes: Arc<broadcast::Sender<Change>>,
}

/// A list that is said to have changed.
#[derive(Clone, Copy)]
enum Change {
    Tools,
    Prompts,
}

impl Fixtures {
    /// With tasks that `durable` keeps.
    pub fn new(durable: McpServer) -> Self {
        Self { durable, changes: Arc::new(broadcast::Sender::new(16)) }
    }

    /// A tool that talks to the client while it works.
    async fn talk(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<CallToolResponse>, ErrorData> {
        let argument = |name: &str| {
            let value = request.arguments.as_ref().and_then(|all| all.get(name)?.as_str().map(str::to_owned));
            value.unwrap_or_default()
        };
        let said = match &*request.name {
            "test_tool_with_logging" | "test_logging_tool" => log(&request.name, context).await?,
            "test_tool_with_progress" => progress(context).await?,
            "test_sampling" => sample(argument("prompt"), context).await?,
            "test_elicitation" | "test_elicitation_sep1034_defaults" | "test_elicitation_sep1330_enums" => {
                elicit(&request.name, argument("message"), context).await?
            }
            "test_trigger_tool_change" => self.change(Change::Tools),
            "test_trigger_prompt_change" => self.change(Change::Prompts),
            "test_missing_capability" => {
                let can = context.client_capabilities().is_some_and(|can| can.sampling.is_some());
                if can { "sampling is possible".to_owned() } else { return Err(missing(json!({ "sampling": {} }))) }
            }
            "test_streaming_elicitation" => {
                let asked = json!({ "user_name": rounds::question("What is your name?", "name") });
                return Ok(Some(rounds::asks(asked, None)?.into()));
            }
            "greet" => format!("Hello, {}!", argument("name")),
            _ => return Ok(None),
        };
        Ok(Some(CallToolResponse::Complete(made(complete(json!({ "content": [{ "type": "text", "text": said }] })))?)))
    }

    fn change(&self, what: Change) -> String {
        // Nobody may listen.
        let _ = self.changes.send(what);
        "changed".to_owned()
    }
}

async fn log(name: &str, context: &RequestContext<RoleServer>) -> Result<String, ErrorData> {
    // 2026-07-28: only clients that ask for it, request by request, are sent what is logged.
    let wanted = name == "test_tool_with_logging" || context.meta.0.contains_key("io.modelcontextprotocol/logLevel");
    for text in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        if wanted {
            let message = made(json!({ "level": "info", "logger": "fixture", "data": text }))?;
            let _ = context.peer.notify_logging_message(message).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok("logged".to_owned())
}

async fn progress(context: &RequestContext<RoleServer>) -> Result<String, ErrorData> {
    for done in [0, 50, 100] {
        if let Some(token) = context.meta.get_progress_token() {
            let progress = made(json!({ "progressToken": token, "progress": done, "total": 100 }))?;
            let _ = context.peer.notify_progress(progress).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok("progress was reported".to_owned())
}

async fn sample(prompt: String, context: &RequestContext<RoleServer>) -> Result<String, ErrorData> {
    let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
    let request = made(json!({ "messages": [message], "maxTokens": 100 }))?;
    let answer = context.peer.create_message(request).await;
    let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let answer = serde_json::to_value(&answer).unwrap_or_default();
    Ok(format!("LLM response: {}", answer["content"]["text"].as_str().unwrap_or_default()))
}

async fn elicit(name: &str, message: String, context: &RequestContext<RoleServer>) -> Result<String, ErrorData> {
    let message = if message.is_empty() { "Please fill this in".to_owned() } else { message };
    let request = made(json!({ "mode": "form", "message": message, "requestedSchema": fixtures::form(name) }))?;
    let answer = context.peer.create_elicitation(request).await;
    let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let answer = serde_json::to_value(&answer).unwrap_or_default();
    let action = answer["action"].as_str().unwrap_or_default();
    Ok(format!("Elicitation completed: action={action}, content={}", answer["content"]))
}

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_completions()
            .enable_logging()
            .enable_tasks()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("rekindle-fixtures", "1"))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(answer) = fixtures::answer(&request.name) {
            return Ok(CallToolResponse::Complete(made(complete(answer))?));
        }
        let can = context.client_capabilities();
        let can = can.map(|can| Abilities { elicitation: can.elicitation.is_some(), sampling: can.sampling.is_some() });
        if let Some(answer) = rounds::call(&request, can.unwrap_or_default())? {
            return Ok(answer);
        }
        if let Some(answer) = self.talk(&request, &context).await? {
            return Ok(answer);
        }
        match runs::started(&self.durable, &request, context).await? {
            Some(answer) => Ok(answer),
            None => Err(ErrorData::invalid_params(format!("there is no tool {}", request.name), None)),
        }
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(fixtures::tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        fixtures::tools().into_iter().find(|tool| tool.name == name)
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(fixtures::resources()?))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(fixtures::templates()?))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        let contents = fixtures::contents(uri)
            .ok_or_else(|| ErrorData::resource_not_found("there is no such resource", Some(json!({ "uri": uri }))))?;
        Ok(ReadResourceResponse::Complete(made(complete(json!({ "contents": [contents] })))?))
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(fixtures::prompts()?))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name == "test_input_required_result_prompt" {
            let given = request.input_responses.unwrap_or_default();
            let Some(about) = rounds::field(&given, "user_context", "context") else {
                let asked = rounds::question("What context should the prompt use?", "context");
                return Ok(rounds::asks(json!({ "user_context": asked }), None)?.into());
            };
            let message = json!({ "role": "user", "content": { "type": "text", "text": format!("Use {about}.") } });
            return Ok(GetPromptResponse::Complete(made(complete(json!({ "messages": [message] })))?));
        }
        let arguments = request.arguments.unwrap_or_default();
        let messages = fixtures::messages(&request.name, &arguments)
            .ok_or_else(|| ErrorData::invalid_params(format!("there is no prompt {}", request.name), None))?;
        Ok(GetPromptResponse::Complete(made(complete(json!({ "messages": messages })))?))
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let values = ["paris", "park", "party"];
        made(complete(json!({ "completion": { "values": values, "total": 3, "hasMore": false } })))
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let legacy = context.protocol_version().is_some_and(|version| version.as_str() < "2026-07-28");
        if legacy { Ok(()) } else { Err(ErrorData::method_not_found::<SetLevelRequestMethod>()) }
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => {
                    let sink = context.sink();
                    // A kind of change that was not asked for is not sent.
                    let _ = match change {
                        Ok(Change::Tools) => sink.notify_tool_list_changed().await,
                        Ok(Change::Prompts) => sink.notify_prompt_list_changed().await,
                        Err(_) => return Ok(()),
                    };
                }
            }
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.durable.get_task(request, context).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.durable.update_task(request, context).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.durable.cancel_task(request, context).await
    }
}
