//! What the tests work with: a store in a file, agents, and a client that writes and reads lines.

use std::collections::{HashMap, VecDeque};

use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{Approval, tool};
use rekindle::{Agent, Engine, Namespace};
use rekindle_mcp::McpServer;
use rekindle_mcp::rmcp::service::serve_server;
use rekindle_mcp::rmcp::transport::async_rw::AsyncRwTransport;
use rekindle_models::{Script, ScriptedModel, Turn};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split,
};

pub struct World {
    pub engine: Engine,
    directory: tempfile::TempDir,
}

impl World {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(&directory);
        Self { engine, directory }
    }

    /// Another engine over the same file, as another process would have it.
    pub fn another(&self) -> Engine {
        open(&self.directory)
    }

    pub fn server(&self) -> McpServer {
        McpServer::builder(self.engine.clone()).author("tester").build()
    }

    /// A client of the older revision, initialized.
    pub async fn client(&self) -> Client {
        Client::initialized(self.server()).await
    }

    pub fn elsewhere(&self) -> Engine {
        self.engine.clone().in_namespace(Namespace::new("elsewhere").unwrap())
    }

    /// A session that waits for an approval.
    pub async fn waiting(&self, id: &str) {
        let session = self.engine.create(id).await.unwrap();
        payer().run_once("pay", &session).await.unwrap();
    }
}

fn open(directory: &tempfile::TempDir) -> Engine {
    Engine::open(&format!("sqlite:{}", directory.path().join("test.db").display())).unwrap()
}

#[derive(serde::Deserialize, JsonSchema)]
struct Pay {
    cents: u64,
}

/// Pays, if somebody agrees.
pub fn payer() -> Agent {
    let pay = tool("pay", "Pays.", async |_, pay: Pay| Ok(format!("paid {}", pay.cents)));
    let pay = pay.writes().never_again().needs_approval(Approval::default());
    let script = Script::new("payer").turn(Turn::call("pay", json!({"cents": 5}))).text("It is paid.").repeating_last();
    Agent::builder("payer", ScriptedModel::new(script)).tool(pay).build().unwrap()
}

/// Answers with a text.
pub fn talker() -> Agent {
    Agent::builder("talker", ScriptedModel::new(Script::new("talker").text("hello").repeating_last())).build().unwrap()
}

/// A client that knows nothing of the protocol but lines of JSON.
pub struct Client {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
    /// What every request says of the client, in the newer revision.
    meta: Option<Value>,
    pub notifications: VecDeque<Value>,
    answers: HashMap<u64, Value>,
    schemas: HashMap<String, Value>,
    next: u64,
}

impl Client {
    /// Connects without a word.
    pub fn connect(server: McpServer) -> Self {
        let (ours, theirs) = duplex(1 << 20);
        tokio::spawn(async move {
            let (read, write) = split(theirs);
            let transport = AsyncRwTransport::new_server(read, write).with_max_line_length(100 << 20);
            if let Ok(running) = serve_server(server, transport).await {
                let _ = running.waiting().await;
            }
        });
        let (read, write) = split(ours);
        Self {
            lines: BufReader::new(read).lines(),
            write,
            meta: None,
            notifications: VecDeque::new(),
            answers: HashMap::new(),
            schemas: HashMap::new(),
            next: 1,
        }
    }

    /// In revision 2025-11-25.
    pub async fn initialized(server: McpServer) -> Self {
        let mut client = Self::connect(server);
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "lines", "version": "1"},
        });
        let answer = client.request("initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        client.learn_schemas().await;
        client
    }

    /// In revision 2026-07-28: nothing is agreed on, every request says it all.
    pub async fn stateless(server: McpServer) -> Self {
        let mut client = Self::connect(server);
        client.meta = Some(json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "lines", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }));
        client.learn_schemas().await;
        client
    }

    async fn learn_schemas(&mut self) {
        let listed = self.request("tools/list", json!({})).await;
        for tool in listed["result"]["tools"].as_array().unwrap() {
            self.schemas.insert(tool["name"].as_str().unwrap().to_owned(), tool["outputSchema"].clone());
        }
    }

    pub async fn send(&mut self, message: Value) {
        let mut line = message.to_string();
        line.push('\n');
        self.write.write_all(line.as_bytes()).await.unwrap();
    }

    /// Sends a request and does not wait for its answer.
    pub async fn begin(&mut self, method: &str, mut params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        if let Some(meta) = &self.meta {
            params["_meta"] = meta.clone();
        }
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    /// The answer to a request, whatever comes before it.
    pub async fn answer(&mut self, id: u64) -> Value {
        while !self.answers.contains_key(&id) {
            self.read().await;
        }
        self.answers.remove(&id).unwrap()
    }

    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params).await;
        self.answer(id).await
    }

    /// The next notification.
    pub async fn notification(&mut self) -> Value {
        while self.notifications.is_empty() {
            self.read().await;
        }
        self.notifications.pop_front().unwrap()
    }

    async fn read(&mut self) {
        let line = self.lines.next_line().await.unwrap().expect("the server closed the connection");
        let message: Value = serde_json::from_str(&line).unwrap();
        match message["id"].as_u64() {
            Some(id) => drop(self.answers.insert(id, message)),
            None => self.notifications.push_back(message),
        }
    }

    /// The result of a call, checked against the schema of the tool.
    pub async fn result(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments})).await;
        let result = answer["result"].clone();
        assert!(result.is_object(), "{tool}: {answer}");
        let schema = &self.schemas[tool];
        let check = jsonschema::validate(schema, &result["structuredContent"]);
        assert!(check.is_ok(), "{tool}: {check:?} in {result}");
        let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, result["structuredContent"], "{tool}");
        result
    }

    /// What a call that succeeds gives.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.result(tool, arguments).await;
        assert_eq!(result["isError"], false, "{tool}: {result}");
        result["structuredContent"].clone()
    }

    /// The code of the error of a call that is refused.
    pub async fn refusal(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.result(tool, arguments).await;
        assert_eq!(result["isError"], true, "{tool}: {result}");
        let error = &result["structuredContent"];
        assert!(!error["hint"].as_str().unwrap().is_empty(), "{error}");
        error["code"].as_str().unwrap().to_owned()
    }

    /// What a call with wrong arguments is told, as the result of the tool: models read no errors of the protocol.
    pub async fn misused(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.result(tool, arguments).await;
        assert_eq!((&result["isError"], &result["structuredContent"]["code"]), (&json!(true), &json!("RK0001")));
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.len() < 10_000, "{tool}: {} bytes", text.len());
        result["structuredContent"]["message"].as_str().unwrap().to_owned()
    }

    /// The message of the error of the protocol that a call leads to.
    pub async fn invalid(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments})).await;
        assert_eq!(answer["error"]["code"], -32602, "{tool}: {answer}");
        answer["error"]["message"].as_str().unwrap().to_owned()
    }
}
