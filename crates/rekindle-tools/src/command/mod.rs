//! Tools that run programs. A program is given an argument vector; a shell is used only where it is
//! asked for, and then no value becomes part of the script.

mod builder;
mod check;
mod fill;
mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use rekindle::tool::{Checked, Leftovers, Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};
use rekindle::{Error, Json, Result};
use serde_json::{Value, json};

use crate::process::{Live, Start, end_call, ended, find_program};
use crate::template::{Template, Values};
use run::{Finished, Job, run};

pub use builder::CommandToolBuilder;

/// Time an earlier try of a call may take to end, behind its grace.
const TRY_ENDS_WITHIN: Duration = Duration::from_secs(10);

/// A tool that runs a program.
///
/// ```
/// use rekindle::Json;
/// use rekindle_tools::{CommandOutput, CommandTool, Stdin};
///
/// let count = CommandTool::builder("count_words", "Counts the words of a text.")
///     .parameters(Json::parse(
///         r#"{"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}"#,
///     )?)
///     .command(["wc", "-w"])
///     .stdin(Stdin::Text("${arguments.text}".into()))
///     .output(CommandOutput::Text)
///     .options(rekindle::tool::ToolOptions::default()) // it only reads
///     .build()?;
/// count.check_installed()?;
/// # Ok::<(), rekindle::Error>(())
/// ```
///
/// # What the program is given
/// * The arguments of [`command`](CommandToolBuilder::command), each filled in by itself: a value is
///   never split and never read by a shell. An element that is one reference disappears if there is
///   no value, and becomes several arguments if the value is a list.
/// * The variables it was given, and `REKINDLE_IDEMPOTENCY_KEY` and `REKINDLE_SESSION`, so that a
///   script can do something once, and `REKINDLE_FENCE`, the generation of the lease, for whatever can
///   refuse an older one.
/// * Nothing else: neither the environment of this process nor its standard input.
///
/// # What becomes of it
/// A call that is stopped or takes too long ends the program and all it started: first by
/// `SIGTERM`, after [`kill_grace`](CommandToolBuilder::kill_grace) by `SIGKILL`. What the program
/// left running when it ended is ended too, unless it made itself a session of its own.
///
/// A program does not outlive its run: a guard, a small `sh` in the same process group, ends the
/// group as soon as this process dies, however it does, and shortly before the lease of a run ends
/// that is frozen or cut off from its store. Before anything is decided about a call in doubt, what is
/// left of it on this machine is ended and waited for. A process that made itself a session of its
/// own (`setsid`) is not ended; where `/proc` shows it, it is named, and the call is not repeated
/// without a person unless it may be repeated anyway.
#[derive(Clone, Debug)]
pub struct CommandTool {
    spec: ToolSpec,
    options: ToolOptions,
    what: What,
    check: Option<Vec<Template>>,
    dashes: bool,
    stdin: Feed,
    base: BTreeMap<String, String>,
    environment: Vec<(String, Template)>,
    secrets: BTreeSet<String>,
    directory: Option<PathBuf>,
    output: CommandOutput,
    limit: usize,
    accept: Vec<i32>,
    grace: Duration,
}

/// What a program reads from its standard input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
    /// Nothing.
    #[default]
    Nothing,
    /// A text with references in it.
    Text(String),
    /// The arguments of the call, as JSON.
    Arguments,
}

/// What the result of a call is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandOutput {
    /// `{"exit_code": 0, "stdout": "…", "stderr": "…"}`; with `"truncated": true` if there was more.
    #[default]
    Full,
    /// What the program wrote to its standard output, as text.
    Text,
    /// What the program wrote to its standard output, read as JSON.
    Json,
}

/// What is run.
#[derive(Clone, Debug)]
enum What {
    Command(Vec<Template>),
    Shell(String),
}

/// [`Stdin`] with its template read.
#[derive(Clone, Debug)]
enum Feed {
    Nothing,
    Text(Template),
    Arguments,
}

impl CommandTool {
    /// A tool that is not finished.
    pub fn builder(name: impl Into<String>, description: impl Into<String>) -> CommandToolBuilder {
        CommandToolBuilder::new(name.into(), description.into())
    }

    /// The file of the program it runs. An error names the program, and where it was looked for; it
    /// also tells whether the directory and the program that checks are there.
    pub fn check_installed(&self) -> Result<PathBuf> {
        let missing = |fault: String| Error::not_found(format!("tool `{}`: {fault}", self.spec.name));
        crate::process::check_directory(self.directory.as_deref()).map_err(missing)?;
        let find = |name: &str| find_program(name, self.base.get("PATH"), self.directory.as_deref()).map_err(missing);
        // What runs is never a reference.
        let first = |command: &[Template]| command.first().and_then(Template::plain).unwrap_or_default().to_owned();
        if let Some(check) = &self.check {
            find(&first(check))?;
        }
        match &self.what {
            What::Shell(_) => find("sh"),
            What::Command(command) => find(&first(command)),
        }
    }

    fn job(&self, start: Start, stdin: Vec<u8>) -> Job {
        Job { start, stdin, limit: self.limit, grace: self.grace }
    }

    async fn values<'a>(&self, context: &'a ToolContext, arguments: &'a Value) -> Result<Values<'a>, ToolError> {
        Values::of(context, arguments, &self.secrets).await
    }

    /// What came of a call, as its result.
    fn result(&self, name: &str, finished: &Finished) -> Result<ToolOutput, ToolError> {
        let code = finished.status.code();
        if !code.is_some_and(|code| code == 0 || self.accept.contains(&code)) {
            return Err(ToolError::failed(failure(name, finished)));
        }
        let value = match self.output {
            CommandOutput::Text => finished.stdout.text().into(),
            CommandOutput::Json => return parsed(name, finished).map(ToolOutput::json),
            CommandOutput::Full => {
                let (stdout, stderr) = (&finished.stdout, &finished.stderr);
                let mut value = json!({"exit_code": code, "stdout": stdout.text(), "stderr": stderr.text()});
                if stdout.is_truncated() || stderr.is_truncated() {
                    value["truncated"] = true.into();
                }
                value
            }
        };
        Ok(ToolOutput::json(Json::from(value)))
    }
}

#[async_trait]
impl Tool for CommandTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn options(&self) -> &ToolOptions {
        &self.options
    }

    async fn call(&self, context: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        let arguments = arguments.to_value()?;
        let values = self.values(context, &arguments).await?;
        let (start, stdin) = self.start(&values)?;
        let name = start.command.first().cloned().unwrap_or_default();
        let finished = run(self.job(start, stdin), context).await?;
        self.result(&name, &finished)
    }

    async fn check(&self, context: &ToolContext, arguments: &Json) -> Result<Checked, ToolError> {
        let arguments = arguments.to_value()?;
        self.ask(context, &arguments).await
    }

    async fn end_leftovers(&self, context: &ToolContext, _: &Json) -> Result<Leftovers, ToolError> {
        let (key, fence) = (context.idempotency_key().to_owned(), context.fence());
        // An earlier try in this process ends in order; whatever of it does not is ended like the rest.
        let _ = tokio::time::timeout(self.grace.saturating_add(TRY_ENDS_WITHIN), Live::end(&key)).await;
        let looked = tokio::task::spawn_blocking(move || end_call(&key, fence)).await;
        let running = looked.map_err(|error| ToolError::failed(format!("the search was lost: {error}")))?;
        Ok(Leftovers { running })
    }
}

/// Why a program failed: how it ended, and the last it said.
fn failure(name: &str, finished: &Finished) -> String {
    const SAID: usize = 2 << 10;
    let said = [&finished.stderr, &finished.stdout].map(|captured| captured.end(SAID));
    let said = said.iter().find(|said| !said.is_empty()).map(|said| format!(": {said}"));
    format!("`{name}` {}{}", ended(finished.status), said.unwrap_or_default())
}

fn parsed(name: &str, finished: &Finished) -> Result<Json, ToolError> {
    if finished.stdout.is_truncated() {
        return Err(ToolError::failed(format!("`{name}` wrote more JSON than the limit of the tool allows")));
    }
    let fault = |why: String| {
        ToolError::failed(format!("`{name}` did not write JSON ({why}), but: {}", finished.stdout.end(500)))
    };
    let text = String::from_utf8(finished.stdout.bytes()).map_err(|error| fault(error.to_string()))?;
    // Read as a tree first: what is not JSON is explained better by its reader than by the record's.
    let value: Value = serde_json::from_str(&text).map_err(|error| fault(error.to_string()))?;
    Ok(Json::from(value))
}
