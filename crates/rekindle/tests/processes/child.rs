//! The process the tests here start: it runs or resumes one session, says on its standard output
//! what it does, and how it ended.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rekindle::Durability;
use rekindle::core::OwnerId;
use rekindle::core::record::RunOutcome;
use rekindle::model::{Answer, Deltas, Model, ModelCapabilities, ModelError, ModelRequest};
use rekindle::tool::{Checked, FnTool, ToolError, tool};
use rekindle::{Agent, Engine, ErrorKind, Json, Message, Result, ResumeOptions, RunReport};
use rekindle_models::{Script, ScriptedModel};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc};

use crate::support::{Ledger, Of};

/// Tells the test below that it is the child, and what it is to do.
const ORDER: &str = "REKINDLE_PROCESS_ORDER";
/// What every line a child says begins with, so that it is told from those of the test runner.
const MARK: &str = "@@ ";

/// The one session of each test.
pub const SESSION: &str = "s";
/// A lease that no process loses because the machine is busy.
pub const LONG: Duration = Duration::from_secs(3_600);
/// The name of a process that every other one knows to be dead: it must have been killed.
pub const DEAD: &str = "dead";
/// The code of a run that lost its lease.
pub const LOST: &str = "RK0006";
/// The line that lets a held child go on.
const GO_ON: &str = "go on";

/// Opened once the child may go on; see [`Order::hold`].
static GATE: Semaphore = Semaphore::const_new(0);

/// What a child is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Who it is: what it writes to the ledger and its lease begin with that.
    pub name: String,
    pub directory: PathBuf,
    pub durability: Durability,
    pub script: Script,
    pub lease: Duration,
    pub take_over: bool,
    pub patience: Duration,
    /// Whether it waits for a line before it opens the session.
    pub gated: bool,
    /// Stops right after it said a line with this in it, until it is let go: a test can then act at
    /// that moment however long it takes. The lease is renewed meanwhile.
    pub hold: Option<String>,
}

/// How a child's run ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct End {
    pub outcome: Option<RunOutcome>,
    pub code: Option<String>,
    pub text: String,
    /// The owner an `AlreadyRunning` names.
    pub owner: Option<String>,
}

impl Order {
    pub fn new(directory: &Path, name: &str, script: Script) -> Self {
        Self {
            name: name.into(),
            directory: directory.into(),
            durability: Durability::Async,
            script,
            lease: LONG,
            take_over: false,
            patience: Duration::ZERO,
            gated: false,
            hold: None,
        }
    }

    /// The store as this process sees it.
    pub fn engine(&self) -> Engine {
        let dead = |owner: &OwnerId| owner.as_str().starts_with(&format!("{DEAD}/"));
        engine(&self.directory).with_lease(self.lease).with_owner(&self.name).with_dead_owners(dead)
    }

    pub fn ledger(&self) -> Ledger {
        ledger(&self.directory)
    }

    pub fn start(&self) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child::child_process", "--nocapture", "--test-threads=1"])
            .env(ORDER, serde_json::to_string(self).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Process { tell: child.stdin.take().unwrap(), child, lines, end: None }
    }
}

pub fn engine(directory: &Path) -> Engine {
    let url = format!("sqlite:{}/rekindle.db", directory.display());
    Engine::open(&url).unwrap().with_poll(Duration::from_millis(10))
}

pub fn ledger(directory: &Path) -> Ledger {
    Ledger::new(directory.join("ledger"))
}

/// A child under way.
pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    tell: ChildStdin,
    end: Option<End>,
}

impl Process {
    /// The next thing it says; nothing once its pipe is closed.
    pub fn line(&mut self) -> Option<String> {
        loop {
            let line = self.lines.next()?.unwrap();
            let Some((_, line)) = line.split_once(MARK) else { continue };
            match line.strip_prefix("end ") {
                Some(end) => self.end = Some(serde_json::from_str(end).unwrap()),
                None => return Some(line.to_owned()),
            }
        }
    }

    /// Waits until it says something with that in it.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        loop {
            let line = self.line().unwrap_or_else(|| panic!("it ended without saying `{text}`: {:?}", self.end));
            if line.contains(text) {
                return line;
            }
        }
    }

    pub fn tell(&mut self, line: &str) {
        self.tell.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Lets a held process go on.
    pub fn go_on(&mut self) {
        self.tell(GO_ON);
    }

    /// Waits until it is held at that line; `false` if it ended before.
    pub fn is_held_at(&mut self, text: &str) -> bool {
        std::iter::from_fn(|| self.line()).any(|line| line.contains(text))
    }

    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([format!("-{signal}"), self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// SIGSTOP, until none of its threads runs any more: one in the middle of a system call ends that
    /// first, and may come out of it with a lock.
    pub fn freeze(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_still = |task: PathBuf| {
            let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, state)| !state.starts_with(['R', 'S', 'D']))
        };
        let deadline = Instant::now() + LONG;
        while Path::new(&tasks).exists()
            && !std::fs::read_dir(&tasks).unwrap().all(|task| task.is_ok_and(|task| is_still(task.path())))
        {
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// SIGKILL, now. What it had said by then, and whether it had ended before.
    pub fn kill(mut self) -> Option<End> {
        self.child.kill().unwrap();
        while self.line().is_some() {}
        self.child.wait().unwrap();
        self.end
    }

    /// Waits for its end: what it said on the way, and how it ended.
    pub fn end(mut self) -> (Vec<String>, End) {
        let mut said = Vec::new();
        while let Some(line) = self.line() {
            said.push(line);
        }
        assert!(self.child.wait().unwrap().success(), "the child failed after {said:?}");
        (said, self.end.unwrap())
    }
}

fn say(line: &str) {
    // An agent of the test process itself has nobody to talk to.
    if std::env::var_os(ORDER).is_none() {
        return;
    }
    std::io::stdout().lock().write_all(format!("{MARK}{line}\n").as_bytes()).unwrap();
}

/// Says a line, and stops there if this is where the child is held.
async fn say_and_hold(order: &Order, line: &str) {
    say(line);
    if order.hold.as_ref().is_some_and(|hold| line.contains(hold)) {
        drop(GATE.acquire().await.unwrap());
    }
}

/// Not a test of its own: what the started process does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_process() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let order: Order = serde_json::from_str(&order).unwrap();
    let (told, mut orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(std::io::Result::ok).try_for_each(|line| match line.as_str() {
            GO_ON => {
                GATE.add_permits(Semaphore::MAX_PERMITS / 2);
                Ok(())
            }
            _ => told.send(line),
        })
    });
    if order.gated {
        say("ready");
        orders.recv().await.unwrap();
    }
    let end = match run(&order, &mut orders).await {
        Ok(report) => End { outcome: Some(report.outcome), code: None, text: report.text(), owner: None },
        Err(error) => {
            let owner = match error.kind() {
                ErrorKind::AlreadyRunning { owner, .. } => Some(owner.to_string()),
                _ => None,
            };
            End { outcome: None, code: Some(error.code().into()), text: error.to_string(), owner }
        }
    };
    say(&format!("end {}", serde_json::to_string(&end).unwrap()));
}

/// Begins a turn, or goes on with it. Every line from outside is a request to stop.
async fn run(order: &Order, orders: &mut mpsc::UnboundedReceiver<String>) -> Result<RunReport> {
    let engine = order.engine();
    let session = engine.open_or_create(SESSION).await?;
    let begun = engine.journal().load(session.key(), None).await?.state.run().is_some();
    let input = if begun { Vec::new() } else { vec![Message::user("go")] };
    let mut options = ResumeOptions::new(&order.name).patience(order.patience);
    if order.take_over {
        options = options.take_over();
    }
    let mut handle = agent(order).run_with(input, &session, options).await?;
    say("running");
    loop {
        tokio::select! {
            event = handle.next_event() => if event?.is_none() { break },
            Some(_) = orders.recv() => {
                handle.stop("told to");
                say("stopping");
            }
        }
    }
    handle.report().await
}

/// The agent every process has: tools of each policy, which write what they do to the ledger.
pub fn agent(order: &Order) -> Agent {
    let model = ScriptedModel::new(order.script.clone()).with_ledger(order.directory.join("ledger"));
    Agent::builder("worker", Telling(model, order.clone()))
        .durability(order.durability)
        .grace(LONG)
        .partials(8, Duration::from_secs(60))
        .tool(takes(order, "read", Duration::ZERO))
        .tool(takes(order, "slow", Duration::from_millis(30)))
        .tool(takes(order, "long", Duration::from_millis(600)))
        .tool(takes(order, "charge", Duration::ZERO).writes().idempotent())
        .tool(takes(order, "append", Duration::from_millis(10)).writes().idempotent().sequential())
        .tool(takes(order, "lengthy", Duration::from_millis(600)).sequential())
        .tool(takes(order, "endless", Duration::from_secs(3_600)).timeout(Duration::from_secs(7_200)))
        .tool(takes(order, "transfer", Duration::from_millis(100)).writes())
        .tool(takes(order, "single", Duration::from_millis(300)).writes().concurrency(1))
        .tool(email(order))
        .build()
        .unwrap()
}

/// A tool that says when it begins, takes its time, and writes to the ledger what it did.
fn takes(order: &Order, name: &'static str, time: Duration) -> FnTool<Of> {
    let order = order.clone();
    tool(name, "Does something.", move |call, of: Of| {
        let order = order.clone();
        async move {
            let ledger = order.ledger();
            ledger.write(&format!("begin {} {name} {}", order.name, of.what));
            say_and_hold(&order, &format!("begin {name} {}", of.what)).await;
            if !time.is_zero() {
                // Whatever was written before it began is on disk by the time it is halfway.
                tokio::time::sleep(time / 2).await;
                say_and_hold(&order, &format!("amid {name} {}", of.what)).await;
                tokio::time::sleep(time / 2).await;
            }
            let line = format!("{name} {} {}", of.what, call.idempotency_key());
            ledger.write(&line);
            say(&line);
            Ok::<_, ToolError>(format!("{name} {}", of.what))
        }
    })
}

/// It can be found out whether it happened.
fn email(order: &Order) -> FnTool<Of> {
    let ledger = order.ledger();
    takes(order, "email", Duration::ZERO).writes().check(move |call, of: Of| {
        let happened = ledger.count(&format!("email {} {}", of.what, call.idempotency_key())) > 0;
        let result = Json::from(format!("email {}", of.what).as_str());
        async move { Ok(if happened { Checked::Happened(result) } else { Checked::DidNotHappen }) }
    })
}

/// Says on standard output when it is asked and when it has answered.
#[derive(Debug)]
struct Telling(ScriptedModel, Order);

#[async_trait]
impl Model for Telling {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> ModelCapabilities {
        self.0.capabilities()
    }

    async fn answer(&self, request: &ModelRequest, deltas: &Deltas) -> Result<Answer, ModelError> {
        say_and_hold(&self.1, &format!("asked {}", request.idempotency_key)).await;
        let answer = self.0.answer(request, deltas).await?;
        say_and_hold(&self.1, &format!("answered {}", request.idempotency_key)).await;
        Ok(answer)
    }
}
