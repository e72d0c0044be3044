//! Programs that use these tools and die, or freeze: this very test program, started again as a
//! child. There is no `rekindle` binary anywhere near.

#[cfg(feature = "mcp")]
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rekindle_tools::CommandTool;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use crate::kit::{Pipe, agent, engine, options, reads, schema};
use crate::processes::{carrying, of_call, until};

/// Makes the program a host. Its value is the folder in which it works.
const FOLDER: &str = "REKINDLE_TEST_HOST";
/// The script that its tool runs; without one it uses an MCP server.
const SCRIPT: &str = "REKINDLE_TEST_SCRIPT";
/// The lease of its run, in milliseconds.
const LEASE: &str = "REKINDLE_TEST_LEASE";

/// The host, if the program was started as one.
#[test]
fn host() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        match std::env::var(SCRIPT) {
            Ok(script) => run_command(&folder, &script).await,
            Err(_) => use_server(&folder).await,
        }
    });
    // Nothing of the harness is wanted any more.
    std::process::exit(0);
}

async fn run_command(folder: &str, script: &str) {
    let tool = CommandTool::builder("t", "Works.")
        .parameters(schema(&[]))
        .shell(script)
        .environment_base([("PATH", "/usr/bin:/bin"), ("FOLDER", folder)])
        .options(reads())
        .build()
        .unwrap();
    let lease = std::env::var(LEASE).map_or(15_000, |lease| lease.parse().unwrap());
    let engine = engine().with_lease(Duration::from_millis(lease));
    let session = engine.create("s").await.unwrap();
    let run = agent(Arc::new(tool), json!({})).run_with(vec!["go".into()], &session, options()).await.unwrap();
    run.report().await.unwrap();
}

#[cfg(feature = "mcp")]
async fn use_server(folder: &str) {
    let ledger = Path::new(folder).join("pipe");
    let server = rekindle_tools::McpServer::stdio("test", crate::mcp_server::command())
        .environment(crate::mcp_server::variables("held", &ledger));
    let _server = server.connect().await.unwrap();
    std::future::pending().await
}

#[cfg(not(feature = "mcp"))]
async fn use_server(_: &str) {}

/// A host under way. It is killed when this is dropped.
struct Host {
    child: Child,
    folder: TempDir,
    pipe: Pipe,
}

impl Host {
    fn start(variables: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        let pipe = Pipe::new(folder.path(), "pipe");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["hosts::host", "--exact", "--nocapture"]).env(FOLDER, folder.path());
        command.envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null());
        Self { child: command.spawn().unwrap(), folder, pipe }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn key(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("key")).unwrap().trim().to_owned()
    }

    /// The guards of servers that it started, with their timers.
    fn guards(&self) -> Vec<i32> {
        let host = format!("{}:", self.child.id());
        let named = |pid: &i32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let named = |found: &[u8]| {
                found.strip_prefix(b"REKINDLE_GUARD_HOST=").is_some_and(|of| of.starts_with(host.as_bytes()))
            };
            environment.split(|byte| *byte == 0).any(named)
        };
        carrying("REKINDLE_GUARD", "server").into_iter().filter(named).collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The beginning of a script: notes the key, then opens the pipe, which is open as long as anything
/// of the call lives.
const OPEN: &str = r#"echo "$REKINDLE_IDEMPOTENCY_KEY" > "$FOLDER/key"; exec 9> "$FOLDER/pipe"; "#;

#[tokio::test]
async fn a_program_ends_when_its_host_is_killed() {
    let scripts = [
        "sleep 1000; echo done >> $FOLDER/ledger",
        // Two forks deep, with nobody waiting for it.
        "(sh -c 'sleep 1000; echo done >> $FOLDER/ledger' &) ; sleep 1000",
        "exec 0<&- 1>&- 2>&-; sleep 1000",
        // The guard takes no notice of what is sent to its group.
        "trap '' TERM INT HUP; kill -TERM 0; kill -INT 0; kill -HUP 0; sleep 1000; sleep 1000",
        "nohup sleep 1000",
    ];
    for script in scripts {
        let mut host = Host::start(&[(SCRIPT, &format!("{OPEN}{script}"))]);
        let begun = host.pipe.begun().await;
        let key = {
            until("the key", || host.folder.path().join("key").exists());
            host.key()
        };
        host.signal(Signal::KILL);
        host.child.wait().unwrap();
        assert_eq!(host.pipe.ended(begun).await, "", "{script}");
        until("the end of its guard", || of_call(&key).is_empty());
        assert!(!host.folder.path().join("ledger").exists());
    }
}

#[tokio::test]
async fn a_program_ends_when_its_host_is_frozen_past_its_lease() {
    let host = Host::start(&[(SCRIPT, &format!("{OPEN}sleep 1000")), (LEASE, "3000")]);
    let begun = host.pipe.begun().await;
    host.signal(Signal::STOP);
    assert_eq!(host.pipe.ended(begun).await, "");
    until("the end of its guard", || of_call(&host.key()).is_empty());
}

#[cfg(feature = "mcp")]
#[tokio::test]
async fn a_server_ends_when_its_host_is_killed() {
    let mut host = Host::start(&[]);
    let begun = host.pipe.begun().await;
    host.signal(Signal::KILL);
    host.child.wait().unwrap();
    assert_eq!(host.pipe.ended(begun).await, "");
    until("the end of its guard", || host.guards().is_empty());
}

#[cfg(feature = "mcp")]
#[tokio::test]
async fn a_server_ends_when_its_host_is_frozen() {
    let host = Host::start(&[]);
    let begun = host.pipe.begun().await;
    host.signal(Signal::STOP);
    assert_eq!(host.pipe.ended(begun).await, "");
    until("the end of its guard", || host.guards().is_empty());
}

/// A guard ends its group by itself. One that does not come to it is no excuse.
#[cfg(feature = "mcp")]
#[tokio::test]
async fn a_server_whose_host_is_gone_is_ended_before_anything_is_decided_about_a_call() {
    use std::os::unix::process::CommandExt as _;

    let folder = TempDir::new().unwrap();
    let pipe = Pipe::new(folder.path(), "pipe");
    let guarding = |host: &str| {
        let mut guard = Command::new("sh");
        guard.args(["-c", r#"exec 9> "$PIPE"; sleep 1000; :"#]).process_group(0);
        guard.env("PIPE", pipe.path()).env("REKINDLE_GUARD", "server").env("REKINDLE_GUARD_HOST", host);
        guard.spawn().unwrap()
    };
    // A process with that number lives, and is another one.
    let mut orphan = guarding(&format!("{}:1", std::process::id()));
    let begun = pipe.begun().await;

    let server = rekindle_tools::McpServer::stdio("test", crate::mcp_server::command())
        .environment(crate::mcp_server::variables("", &folder.path().join("ledger")));
    let server = server.connect().await.unwrap();
    let tools = server.tools().await.unwrap();
    let die = tools.iter().find(|tool| tool.spec().name == "die").unwrap();
    // Ours dies during the call. The question comes after the end of the other one.
    let asked = crate::kit::doubt(Arc::clone(die), json!({})).await;
    assert!(!asked.contains("still running"), "{asked}");
    assert!(orphan.try_wait().unwrap().is_some());
    assert_eq!(pipe.ended(begun).await, "");
}
