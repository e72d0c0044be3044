//! A store that outlives servers and workers, agents that keep a ledger, and a client that speaks
//! plain lines.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rekindle::message::Message;
use rekindle::model::ModelError;
use rekindle::operations::JobInput;
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{Approval, ToolOutput, tool};
use rekindle::wait::WaitSpec;
use rekindle::worker::Worker;
use rekindle::{Agent, Engine, Error, Json, Result, SessionHeader, SessionKey};
use rekindle_mcp::rmcp::ServiceExt as _;
use rekindle_mcp::{AgentInfo, Agents, McpServer};
use rekindle_models::{Script, ScriptedModel, Turn};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A store on disk, and a ledger beside it.
pub struct Place {
    directory: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { directory: TempDir::new().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// An engine as a new process would open it.
    pub fn engine(&self) -> Engine {
        engine(self.path())
    }

    pub fn ledger(&self) -> Ledger {
        Ledger(self.path().join("ledger"))
    }

    /// A worker that has every agent.
    pub fn worker(&self) -> Hand {
        let builder = Worker::builder(self.engine()).sweep(Duration::from_millis(500));
        let builder = builder.work(guide()).work(payer(&self.ledger())).work(asker()).work(broken());
        let drain = CancellationToken::new();
        let task = tokio::spawn(builder.build().unwrap().run(drain.clone()));
        Hand { drain, task }
    }

    /// A client of a server of its own.
    pub async fn client(&self) -> Client {
        Client::of(server(self.engine()))
    }
}

/// An engine over the store in a directory.
pub fn engine(directory: &Path) -> Engine {
    let engine = Engine::open(&format!("sqlite:{}/store.db", directory.display())).unwrap();
    engine.with_lease(Duration::from_millis(1_500)).with_poll(Duration::from_millis(20))
}

/// A worker at work.
pub struct Hand {
    drain: CancellationToken,
    task: JoinHandle<Result<rekindle::worker::WorkerReport>>,
}

impl Hand {
    pub async fn stop(self) {
        self.drain.cancel();
        self.task.await.unwrap().unwrap();
    }
}

/// Counts what tools did, outside of any session.
#[derive(Clone)]
pub struct Ledger(pub PathBuf);

impl Ledger {
    pub fn write(&self, line: &str) {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&self.0);
        writeln!(file.unwrap(), "{line}").unwrap();
    }

    pub fn lines(&self) -> Vec<String> {
        std::fs::read_to_string(&self.0).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

#[derive(serde::Deserialize, JsonSchema)]
struct Pay {
    cents: u64,
}

#[derive(serde::Deserialize, JsonSchema)]
struct Nothing {}

fn guide() -> Agent {
    Agent::builder("guide", ScriptedModel::new(Script::new("m").text("Take a hat.").repeating_last())).build().unwrap()
}

/// Pays once somebody approves.
fn payer(ledger: &Ledger) -> Agent {
    let ledger = ledger.clone();
    let pay = tool("pay", "Pays.", move |_, pay: Pay| {
        let ledger = ledger.clone();
        async move {
            ledger.write(&format!("paid {}", pay.cents));
            Ok("paid")
        }
    });
    let script = Script::new("m").turn(Turn::call("pay", json!({ "cents": 5 }))).text("It is paid.").repeating_last();
    let pay = pay.writes().never_again().needs_approval(Approval::default());
    Agent::builder("payer", ScriptedModel::new(script)).tool(pay).build().unwrap()
}

/// Asks a question.
fn asker() -> Agent {
    let schema = r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#;
    let ask = tool("ask", "Asks.", move |_, _: Nothing| async move {
        Ok(ToolOutput::wait(WaitSpec::question("Where to?").with_schema(Json::parse(schema).unwrap())))
    });
    let script = Script::new("m").turn(Turn::call("ask", json!({}))).text("Thanks.").repeating_last();
    Agent::builder("asker", ScriptedModel::new(script)).tool(ask).build().unwrap()
}

fn broken() -> Agent {
    let script = Script::new("m").turn(Turn::error(ModelError::fatal("the model is away"))).repeating_last();
    Agent::builder("broken", ScriptedModel::new(script)).build().unwrap()
}

/// A server over an engine.
pub fn server(engine: Engine) -> McpServer {
    McpServer::builder(engine).author("maria").agents(Arc::new(Named)).build()
}

struct Named;

impl Agents for Named {
    fn list(&self) -> Vec<AgentInfo> {
        let info = |name: &str| AgentInfo { name: name.to_owned(), description: None, kind: "agent".to_owned() };
        ["guide", "payer", "asker", "broken", "writer"].map(info).to_vec()
    }

    fn header(&self, name: &str, session: SessionKey) -> Result<SessionHeader> {
        if !self.list().iter().any(|info| info.name == name) {
            return Err(Error::not_found(format!("there is no agent `{name}`")));
        }
        Ok(SessionHeader { agent: Some(name.to_owned()), ..SessionHeader::new(session) })
    }

    fn input(&self, _name: &str, input: Value) -> Result<JobInput> {
        let text = input.as_str().ok_or_else(|| Error::invalid("an agent takes a text"))?;
        Ok(JobInput::Message(Message::user(text)))
    }
}

/// A client that speaks plain lines to a server of its own.
pub struct Client {
    lines: tokio::io::Lines<BufReader<Box<dyn AsyncRead + Send + Unpin>>>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    next: u64,
    /// Whether it declares that it understands tasks.
    pub tasks: bool,
    server: Option<JoinHandle<()>>,
}

impl Client {
    fn of(server: McpServer) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let server = tokio::spawn(async move {
            let running = server.serve(theirs).await.unwrap();
            running.waiting().await.unwrap();
        });
        let (reader, writer) = tokio::io::split(ours);
        Self { server: Some(server), ..Self::over(reader, writer) }
    }

    /// A client of whatever speaks on these.
    pub fn over(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let reader: Box<dyn AsyncRead + Send + Unpin> = Box::new(reader);
        Self { lines: BufReader::new(reader).lines(), writer: Box::new(writer), next: 0, tasks: true, server: None }
    }

    /// Sends a request of the stateless revision; its whole response.
    pub async fn request(&mut self, method: &str, mut params: Value) -> Value {
        self.next += 1;
        let extensions = if self.tasks { json!({ "io.modelcontextprotocol/tasks": {} }) } else { json!({}) };
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {}, "extensions": extensions },
        });
        let line = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        loop {
            let line = self.lines.next_line().await.unwrap().expect("the server went away");
            // A test runner says things of its own.
            let Ok(response) = serde_json::from_str::<Value>(&line) else { continue };
            if response["id"] == json!(self.next) {
                return response;
            }
        }
    }

    pub async fn result(&mut self, method: &str, params: Value) -> Value {
        let response = self.request(method, params).await;
        assert!(response.get("error").is_none(), "{response}");
        response["result"].clone()
    }

    pub async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.result("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Starts an agent; the id of its task.
    pub async fn start(&mut self, agent: &str, session: &str) -> String {
        let created = self.call("run_agent", json!({ "agent": agent, "input": "go", "session_id": session })).await;
        assert_eq!(created["resultType"], "task", "{created}");
        created["taskId"].as_str().unwrap().to_owned()
    }

    pub async fn get(&mut self, task: &str) -> Value {
        self.result("tasks/get", json!({ "taskId": task })).await
    }

    /// Asks until a task has that status.
    pub async fn until(&mut self, task: &str, status: &str) -> Value {
        let mut last = Value::Null;
        for _ in 0..3_000 {
            last = self.get(task).await;
            if last["status"] == status {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{task} is never {status}: {last}");
    }

    /// Ends the server without a word.
    pub fn kill(self) {
        self.server.unwrap().abort();
    }
}
