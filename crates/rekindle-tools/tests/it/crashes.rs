//! A process that dies while a tool is at work, and another that goes on. A ledger outside of
//! everything shows what really happened.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rekindle::core::IdSource;
use rekindle::core::codec::Codec;
use rekindle::tool::Tool;
use rekindle::{Agent, Clock, Engine, Journal, Store};
use rekindle_store::{MemoryStore, StoreOptions};
use rekindle_testkit::ManualClock;
use rekindle_tools::{CommandOutput, CommandTool, CommandToolBuilder, EditFile, HttpTool};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::kit::{Pipe, agent, outcome, results, schema};
use crate::server::{Server, answer};

/// A store that outlives the processes that open it.
pub struct World {
    clock: Arc<ManualClock>,
    store: MemoryStore,
    pub directory: TempDir,
}

impl World {
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(StoreOptions::new().with_clock(clock.clone()));
        Self { clock, store, directory: TempDir::new().unwrap() }
    }

    pub fn engine(&self, seed: u8) -> Engine {
        let (store, clock): (Arc<dyn Store>, Arc<dyn Clock>) = (Arc::new(self.store.clone()), self.clock.clone());
        Engine::with_journal(Journal::new(store, Codec::new(), clock, IdSource::seeded([seed; 32])))
    }

    /// A process that dies once `at_work` returns.
    pub fn die(&self, agent: &Agent, at_work: impl FnOnce()) {
        let runtime = process();
        let engine = self.engine(1);
        runtime.block_on(async {
            let session = engine.create("s").await.unwrap();
            agent.run("go", &session).await.unwrap().detach();
        });
        at_work();
        drop(runtime);
        // Nobody renews the lease of the dead.
        self.clock.advance(Duration::from_secs(3_600));
    }

    /// Another process that goes on to the end.
    pub fn go_on(&self, agent: &Agent) -> Result<Value, String> {
        let engine = self.engine(2);
        process().block_on(async {
            let session = engine.open_session("s").await.unwrap();
            let report = agent.resume(&session).await.unwrap().report().await.unwrap();
            assert_eq!(report.text(), "done");
            outcome(&results(&engine, &session).await[0])
        })
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }
}

pub fn process() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

pub fn lines(path: impl AsRef<Path>) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// A program that enters something into a ledger, says so, and never ends; and one that looks.
pub fn enter(world: &World, pipe: &Pipe, script: &str) -> CommandToolBuilder {
    let look = r#"grep -x "$REKINDLE_IDEMPOTENCY_KEY" "$LEDGER" > /dev/null || exit 3; echo '{"entered": true}'"#;
    CommandTool::builder("enter", "Enters.")
        .parameters(schema(&["a"]))
        .shell(script)
        .check_command(["sh", "-c", look])
        .environment_base([("PATH", "/usr/bin:/bin"), ("LEDGER", &*world.path("ledger")), ("PIPE", pipe.path())])
        .output(CommandOutput::Json)
}

/// Waits for a line in a pipe.
pub fn wait_for(pipe: &Pipe) -> impl FnOnce() {
    let path = pipe.path().to_owned();
    move || assert_eq!(std::fs::read_to_string(path).unwrap(), "at work\n")
}

#[test]
fn a_program_that_did_its_work_is_not_run_again() {
    let world = World::new();
    let pipe = Pipe::new(world.directory.path(), "pipe");
    let script = r#"echo "$REKINDLE_IDEMPOTENCY_KEY" >> "$LEDGER"; echo at work > "$PIPE"; exec sleep 1000"#;
    let agent = agent(Arc::new(enter(&world, &pipe, script).build().unwrap()), json!({"a": 1}));
    world.die(&agent, wait_for(&pipe));
    assert_eq!(world.go_on(&agent), Ok(json!({"entered": true})));
    assert_eq!(lines(world.path("ledger")).len(), 1);
}

#[test]
fn a_program_that_had_not_done_its_work_is_run_again_with_the_same_key() {
    let world = World::new();
    let pipe = Pipe::new(world.directory.path(), "pipe");
    // It dies before it enters anything; the second one comes to its end.
    let script = r#"echo "$REKINDLE_IDEMPOTENCY_KEY" >> "$LEDGER.tries"
        if [ -e "$LEDGER.died" ]; then echo "$REKINDLE_IDEMPOTENCY_KEY" >> "$LEDGER"; echo '"entered now"'; exit; fi
        touch "$LEDGER.died"; echo at work > "$PIPE"; exec sleep 1000"#;
    let agent = agent(Arc::new(enter(&world, &pipe, script).build().unwrap()), json!({"a": 1}));
    world.die(&agent, wait_for(&pipe));
    assert_eq!(world.go_on(&agent), Ok(json!("entered now")));
    let tries = lines(world.path("ledger.tries"));
    assert_eq!((tries.len(), lines(world.path("ledger")).len()), (2, 1));
    assert_eq!(tries[0], tries[1], "one call, one key");
}

#[test]
fn a_request_is_made_again_with_the_same_key_if_the_server_honours_it() {
    let world = World::new();
    let internet = process();
    let (arrived, arrivals) = mpsc::channel();
    let server = internet.block_on(Server::start(move |_, before| match before {
        0 => {
            arrived.send(()).unwrap();
            // The answer is lost with the process that waits for it.
            Vec::new()
        }
        _ => answer("200 OK", "", "booked"),
    }));
    let post = HttpTool::builder("book", "Books.").method("POST").url(&server.url).idempotency_header("X-Key");
    let tool: Arc<dyn Tool> = Arc::new(post.build().unwrap());
    let agent = agent(tool, json!({}));
    world.die(&agent, || arrivals.recv().unwrap());
    assert_eq!(world.go_on(&agent), Ok(json!({"status": 200, "body": "booked"})));
    let keys: Vec<_> = server.seen().iter().map(|seen| seen.header("x-key").unwrap().to_owned()).collect();
    assert!(keys.len() >= 2 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

/// A file tool whose process dies right after its work, before anybody hears of it.
#[derive(Debug)]
struct Last<T>(T, mpsc::Sender<()>);

#[rekindle::async_trait]
impl<T: Tool> Tool for Last<T> {
    fn spec(&self) -> &rekindle::tool::ToolSpec {
        self.0.spec()
    }

    fn options(&self) -> &rekindle::tool::ToolOptions {
        self.0.options()
    }

    async fn call(
        &self,
        context: &rekindle::tool::ToolContext,
        arguments: &rekindle::Json,
    ) -> Result<rekindle::tool::ToolOutput, rekindle::tool::ToolError> {
        self.0.call(context, arguments).await?;
        self.1.send(()).unwrap();
        std::future::pending().await
    }
}

#[test]
fn an_edit_is_found_in_the_file_and_not_made_twice() {
    let world = World::new();
    std::fs::write(world.path("a.txt"), "x").unwrap();
    let edit = || EditFile::builder(world.directory.path()).build().unwrap();
    let arguments = json!({"path": "a.txt", "old": "x", "new": "xx"});
    let (done, works) = mpsc::channel();
    world.die(&agent(Arc::new(Last(edit(), done)), arguments.clone()), || works.recv().unwrap());
    let outcome = world.go_on(&agent(Arc::new(edit()), arguments));
    assert_eq!(outcome, Ok(json!({"path": "a.txt", "bytes": 2, "lines": 1})));
    assert_eq!(std::fs::read_to_string(world.path("a.txt")).unwrap(), "xx");
}
