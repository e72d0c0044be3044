//! The tools that are tasks: each is a flow on a durable engine, started by Rekindle's own `run_agent` and
//! run by a worker of this process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rekindle::model::{Answer, Deltas, Model, ModelCapabilities, ModelError, ModelRequest};
use rekindle::operations::JobInput;
use rekindle::wait::WaitSpec;
use rekindle::worker::Worker;
use rekindle::{Agent, Engine, Error, Flow, Json, Message, Result, SessionHeader, SessionKey, async_trait};
use rekindle_mcp::{AgentInfo, Agents, McpServer};
use rmcp::model::{CallToolRequestParams, CallToolResponse};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler as _};
use serde_json::{Value, json};

use crate::fixtures::missing;
use crate::rounds;

/// The tools that are tasks.
const NAMES: &[&str] =
    &["slow_compute", "failing_job", "protocol_error_job", "confirm_delete", "multi_input", "test_tool_with_task"];

/// Those that no client without tasks can use.
const REQUIRED: &[&str] = &["failing_job", "test_tool_with_task"];

/// An engine with the flows, a server over it, and what runs them.
pub fn start(folder: &Path) -> Result<(McpServer, Worker)> {
    let engine = Engine::open(&format!("sqlite:{}", folder.join("fixtures.db").display()))?;
    let server = McpServer::builder(engine.clone()).agents(Arc::new(Flows)).build();
    let flows = [slow_compute(), failing_job(), protocol_error_job(), confirm_delete(), multi_input()];
    let worker = flows.into_iter().fold(Worker::builder(engine), |worker, flow| worker.work(flow));
    Ok((server, worker.work(hello()?).build()?))
}

/// Starts the flow of that name; nothing if there is none.
pub async fn started(
    server: &McpServer,
    request: &CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<Option<CallToolResponse>, ErrorData> {
    if !NAMES.contains(&&*request.name) {
        return Ok(None);
    }
    let tasks = context.client_capabilities().is_some_and(|can| can.supports_tasks());
    if REQUIRED.contains(&&*request.name) && !tasks {
        return Err(missing(json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } })));
    }
    let mut input = Value::Object(request.arguments.clone().unwrap_or_default());
    if request.name == "test_tool_with_task" {
        let given = request.input_responses.clone().unwrap_or_default();
        let Some(name) = rounds::field(&given, "user_name", "name") else {
            let asked = json!({ "user_name": rounds::question("What is your name?", "name") });
            return Ok(Some(rounds::asks(asked, None)?.into()));
        };
        input["name"] = name.into();
    }
    let arguments = json!({ "agent": request.name, "input": input });
    let mut call = CallToolRequestParams::new("run_agent");
    call.meta.clone_from(&request.meta);
    call.arguments = arguments.as_object().cloned();
    server.call_tool(call, context).await.map(Some)
}

/// The flows, by name.
struct Flows;

impl Agents for Flows {
    fn list(&self) -> Vec<AgentInfo> {
        let flow = |name: &&str| AgentInfo { name: (*name).to_owned(), description: None, kind: "flow".to_owned() };
        NAMES.iter().map(flow).collect()
    }

    fn header(&self, name: &str, session: SessionKey) -> Result<SessionHeader> {
        let mut header = SessionHeader::new(session);
        header.agent = Some(name.to_owned());
        Ok(header)
    }

    fn input(&self, name: &str, input: Value) -> Result<JobInput> {
        if name == "test_tool_with_task" {
            return Ok(JobInput::Message(Message::user(input["name"].as_str().unwrap_or_default())));
        }
        Ok(JobInput::Input(Json::of(&input)?))
    }
}

fn slow_compute() -> Flow {
    Flow::new("slow_compute", async |context, input: Value| {
        let seconds = input["seconds"].as_f64().unwrap_or(0.0).clamp(0.0, 60.0);
        if seconds > 0.0 {
            context.sleep("compute", Duration::from_secs_f64(seconds)).await?;
        }
        Ok(format!("computed for {seconds} seconds"))
    })
}

fn failing_job() -> Flow {
    Flow::new("failing_job", async |_, _: Value| Err::<String, _>(Error::invalid("this job always fails")))
}

fn protocol_error_job() -> Flow {
    Flow::new("protocol_error_job", async |_, _: Value| {
        Err::<String, _>(Error::corrupt("what is stored cannot be read"))
    })
}

fn confirm_delete() -> Flow {
    Flow::new("confirm_delete", async |context, input: Value| {
        let file = input["filename"].as_str().unwrap_or("it").to_owned();
        let answer = context.wait("confirm", &asking(&format!("Delete {file}?"), "confirm", "boolean")?).await?;
        Ok(format!("deleted {file}: {}", answer.as_str()))
    })
}

fn multi_input() -> Flow {
    Flow::new("multi_input", async |context, _: Value| {
        let (name, place) = (asking("Which name?", "name", "string")?, asking("Which place?", "place", "string")?);
        let (name, place) = tokio::join!(context.wait("name", &name), context.wait("place", &place));
        Ok(format!("{} in {}", name?.as_str(), place?.as_str()))
    })
}

/// An agent, whose answer is what the task gives: a flow leaves none in its session.
fn hello() -> Result<Agent> {
    Agent::builder("test_tool_with_task", Greeter).build()
}

/// Greets whoever it hears of last.
#[derive(Debug)]
struct Greeter;

#[async_trait]
impl Model for Greeter {
    fn name(&self) -> &str {
        "greeter"
    }

    fn capabilities(&self) -> ModelCapabilities {
        ModelCapabilities::default()
    }

    async fn answer(&self, request: &ModelRequest, _deltas: &Deltas) -> Result<Answer, ModelError> {
        let name = request.view.messages().rev().find_map(Result::ok).map(|message| message.text());
        Ok(Answer::text(format!("Hello, {}!", name.unwrap_or_default())))
    }
}

fn asking(question: &str, field: &str, kind: &str) -> Result<WaitSpec> {
    let schema = json!({ "type": "object", "properties": { field: { "type": kind } } });
    Ok(WaitSpec::question(question).with_schema(Json::of(&schema)?))
}
