//! The table of tools: what clients are told of them, and how each is called.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rekindle::Error;
use rmcp::ErrorData;
use rmcp::handler::server::tool::{schema_for_input, schema_for_output};
use rmcp::model::{
    CacheScope, CallToolResponse, CallToolResult, ContentBlock, JsonObject, ListToolsResult, Tool as Description,
    ToolAnnotations,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Answer, Caller, Effect, Tool};
use crate::agents::AgentInfo;
use crate::error::{ToolError, clipped, invalid_arguments, tool_error};
use crate::server::Core;

type Called<'a> = BoxFuture<'a, Result<CallToolResponse, ErrorData>>;

const NO_QUEUE: &str = "the store of this server keeps no queue, so that nothing can be run; \
                        sqlite:, postgres: and redis: keep one";

/// How many of the things that can be started are described, and how much is said of each; all are named.
const MOST_TOLD: usize = 50;
const LONGEST_TOLD: usize = 300;

/// A tool in the table.
pub(crate) struct Entry {
    description: Description,
    effect: Effect,
    needs_agents: bool,
    call: for<'a> fn(&'a Core, JsonObject, Caller) -> Called<'a>,
}

impl Entry {
    /// The entry of a tool.
    pub(crate) fn of<T: Tool>() -> Self {
        let input = schema_for_input::<T::Args>().expect("the arguments of every tool are an object");
        let annotations = annotations(T::EFFECT, T::TITLE);
        let description = Description::new(T::NAME, T::DESCRIPTION, input)
            .with_title(T::TITLE)
            .with_raw_output_schema(output_schema::<T>())
            .with_annotations(annotations);
        Self { description, effect: T::EFFECT, needs_agents: T::NEEDS_AGENTS, call: call::<T> }
    }

    /// The same with the names of what can be started: no other tool tells them.
    fn naming(mut self, agents: &[AgentInfo]) -> Self {
        if agents.is_empty() {
            return self;
        }
        let told = agents.iter().take(MOST_TOLD).map(told).collect::<String>();
        let text = self.description.description.take().unwrap_or_default();
        self.description.description = Some(format!("{text}\n\nThese can be run:{told}").into());
        let mut schema = self.description.input_schema.as_ref().clone();
        if let Some(agent) = schema.get_mut("properties").and_then(|all| all.get_mut("agent")) {
            agent["enum"] = agents.iter().map(|agent| agent.name.as_str()).collect();
        }
        self.description.input_schema = Arc::new(schema);
        self
    }

    /// Calls it.
    pub(crate) fn call<'a>(&self, core: &'a Core, arguments: JsonObject, caller: Caller) -> Called<'a> {
        (self.call)(core, arguments, caller)
    }
}

/// One line about something that can be started.
fn told(agent: &AgentInfo) -> String {
    let what = agent.description.as_deref().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let what: String = what.chars().take(LONGEST_TOLD).collect();
    let gap = if what.is_empty() { "" } else { ": " };
    format!("\n- `{}` ({}){gap}{what}", agent.name, agent.kind)
}

/// The schema of what a tool gives: its result, or an error. Some clients check errors too.
fn output_schema<T: Tool>() -> Arc<JsonObject> {
    let mut output = schema_for_output::<T::Output>().as_ref().clone();
    let mut error = schema_for_output::<ToolError>().as_ref().clone();
    error.remove("$schema");
    let dialect = output.remove("$schema");
    let mut definitions = match output.remove("$defs") {
        Some(Value::Object(definitions)) => definitions,
        _ => JsonObject::new(),
    };
    definitions.insert("ToolError".into(), Value::Object(error));
    let mut whole = JsonObject::new();
    whole.extend(dialect.map(|dialect| ("$schema".to_owned(), dialect)));
    whole.insert("type".into(), "object".into());
    whole.insert("anyOf".into(), json!([output, { "$ref": "#/$defs/ToolError" }]));
    whole.insert("$defs".into(), Value::Object(definitions));
    Arc::new(whole)
}

fn annotations(effect: Effect, title: &str) -> ToolAnnotations {
    ToolAnnotations::with_title(title)
        .read_only(effect == Effect::Reads)
        .destructive(matches!(effect, Effect::Runs | Effect::Ends))
        .idempotent(matches!(effect, Effect::Reads | Effect::AddsOnce | Effect::Ends))
        .open_world(effect == Effect::Runs)
}

fn call<T: Tool>(core: &Core, arguments: JsonObject, caller: Caller) -> Called<'_> {
    Box::pin(async move {
        let arguments = match read::<T>(arguments) {
            Ok(arguments) => arguments,
            Err(error) => return Ok(tool_error(&error).into()),
        };
        Ok(match T::call(core, arguments, caller).await {
            Ok(Answer::Done(output)) => structured(&output)?.into(),
            Ok(Answer::Task(task)) => task.into(),
            Err(error) => tool_error(&error).into(),
        })
    })
}

/// The arguments of a tool; an error says which is wrong, and how. It is the result of the tool: models read
/// results and can do better, while errors of the protocol are for programs.
fn read<T: Tool>(arguments: JsonObject) -> Result<T::Args, Error> {
    if arguments.contains_key("agent_work_dir") {
        let message = "`agent_work_dir` is refused: the server knows where sessions are, and takes no directories \
                       from clients; leave it out";
        return Err(invalid_arguments(T::NAME, message));
    }
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        match error.path().to_string().as_str() {
            "." => invalid_arguments(T::NAME, error.inner()),
            path => invalid_arguments(T::NAME, format_args!("`{path}`: {}", error.inner())),
        }
    })
}

/// A result as structured content, and the same as text for clients that read no other.
pub(crate) fn structured(output: &impl Serialize) -> Result<CallToolResult, ErrorData> {
    let written = || -> serde_json::Result<_> { Ok((serde_json::to_string(output)?, serde_json::to_value(output)?)) };
    let (text, value) = written()
        .map_err(|error| ErrorData::internal_error(format!("the result cannot be written as JSON: {error}"), None))?;
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(value);
    Ok(result)
}

/// The tools a server offers.
pub(crate) struct Catalogue {
    offered: Vec<Entry>,
    listed: Arc<[Description]>,
    /// Tools that exist and are not offered, with the reason.
    withheld: Vec<(String, &'static str)>,
}

impl Catalogue {
    /// What a server offers.
    pub(crate) fn new(read_only: bool, runs: bool, agents: Option<&[AgentInfo]>) -> Self {
        let (mut offered, mut withheld) = (Vec::new(), Vec::new());
        for entry in super::all() {
            let name = entry.description.name.to_string();
            match entry {
                entry if read_only && entry.effect != Effect::Reads => {
                    withheld.push((name, "this server is read-only; it changes and runs nothing"));
                }
                entry if !runs && entry.effect == Effect::Runs => withheld.push((name, NO_QUEUE)),
                entry if entry.needs_agents => match agents {
                    Some(agents) => offered.push(entry.naming(agents)),
                    None => withheld.push((name, "this server knows nothing that could be started by name")),
                },
                entry => offered.push(entry),
            }
        }
        let listed = offered.iter().map(|entry| entry.description.clone()).collect();
        Self { offered, listed, withheld }
    }

    /// All of them.
    pub(crate) fn list(&self) -> ListToolsResult {
        ListToolsResult::with_all_items(self.listed.to_vec()).with_ttl_ms(300_000).with_cache_scope(CacheScope::Public)
    }

    /// What clients are told of one.
    pub(crate) fn tool(&self, name: &str) -> Option<Description> {
        self.listed.iter().find(|tool| tool.name == name).cloned()
    }

    /// A tool by name.
    pub(crate) fn find(&self, name: &str) -> Result<&Entry, ErrorData> {
        let found = self.offered.iter().find(|entry| entry.description.name == name);
        found.ok_or_else(|| {
            let shown = clipped(name);
            let why = self.withheld.iter().find(|(withheld, _)| withheld == name);
            let message = match why {
                Some((_, why)) => format!("the tool `{shown}` is not offered: {why}"),
                None => format!("unknown tool `{shown}`; `tools/list` names those there are"),
            };
            ErrorData::invalid_params(message, None)
        })
    }
}
