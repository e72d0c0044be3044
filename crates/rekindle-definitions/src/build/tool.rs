//! Tools: commands, HTTP requests, files, questions, and other work.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rekindle::core::Hash;
use rekindle::tool::{Tool, ToolSpec};
use rekindle::{Error, Json, SubAgent};
use rekindle_tools::{CommandOutput, CommandTool, FileAccess, HttpBody, HttpTool, Stdin, file_tools_except};
use serde_json::json;

use super::adjusted::Adjusted;
use super::question::Question;
use super::{Shop, Work, semantic, work};
use crate::definition::{Definition, Inner, ReadTool, resolve_path, resolve_secret, schema_of};
use crate::document::child;
use crate::fault::{Fault, Faults};
use crate::form::{BodySpec, FileAccessName, HttpSpec, OutputName, SecretName, StdinSpec};

/// The keys of a tool that say what it does.
const DOES: [&str; 11] = [
    "command",
    "shell",
    "http",
    "question",
    "directory",
    "stdin",
    "environment",
    "secret_environment",
    "output",
    "accept_exit_codes",
    "check_command",
];

/// A tool, with where it is declared.
pub(super) type Placed = (String, Arc<dyn Tool>);

/// The tool that `tool` declares.
pub(super) async fn build(shop: &mut Shop, definition: &Definition, tool: &ReadTool) -> Result<Placed, Faults> {
    let inner = definition.inner();
    let body = &tool.entry.body;
    let at = At { inner, tool };
    let made: Arc<dyn Tool> = if let Some(http) = &body.http {
        at.http(http)?
    } else if body.command.is_some() || body.shell.is_some() {
        at.command(shop)?
    } else if let Some(question) = &body.question {
        Arc::new(Question::new(at.spec()?, question.clone()))
    } else {
        let key = body.kinds().first().copied().unwrap_or_default();
        other_work(shop, definition, &child(&tool.pointer, key), &body.name, body.description.as_deref()).await?
    };
    let mut policy = tool.entry.policy.policy();
    // To say what is so anyway must not undo what else is so: that a call in doubt can be checked.
    policy.writes = policy.writes.filter(|writes| *writes != made.options().writes);
    let options = policy.apply(made.options().clone());
    let made = if options == *made.options() { made } else { Arc::new(Adjusted::new(made, options)) };
    Ok((tool.pointer.clone(), made))
}

/// An agent, a plan or a graph as a tool of that name.
pub(super) async fn other_work(
    shop: &mut Shop,
    definition: &Definition,
    pointer: &str,
    name: &str,
    description: Option<&str>,
) -> Result<Arc<dyn Tool>, Faults> {
    let inner = definition.inner();
    let Some(other) = inner.children.get(pointer) else {
        return Err(inner.document.fault(pointer, "this leads nowhere").into());
    };
    let description = description.or(other.description()).unwrap_or_default().to_owned();
    Ok(match work::build(shop, other, Some(name), false).await? {
        Work::Agent(agent) => Arc::new(SubAgent::new(agent, description)),
        Work::Plan(plan) => Arc::new(plan.as_tool(&description)),
        Work::Graph(graph) => Arc::new(graph.as_tool(&description)),
    })
}

/// The tools for the files under a directory.
pub(super) fn files(shop: &Shop, inner: &Inner) -> Result<Vec<Placed>, Faults> {
    let Some(files) = &inner.surroundings.files else { return Ok(Vec::new()) };
    let pointer = child(&inner.pointer, "files");
    let root = resolve_path(&inner.base, &files.root);
    // A file in the working directory has no directory in its path.
    let root = if root.as_os_str().is_empty() { PathBuf::from(".") } else { root };
    let fault = |message: String| inner.document.fault(&child(&pointer, "root"), message);
    if files.create {
        std::fs::create_dir_all(&root).map_err(|error| fault(format!("the directory cannot be made: {error}")))?;
    } else if !root.is_dir() {
        let hint = "make it, or write `create: true`";
        return Err(fault(format!("there is no directory `{}`", root.display())).with_hint(hint).into());
    }
    let access = match files.access {
        FileAccessName::Read => FileAccess::ReadOnly,
        FileAccessName::Write => FileAccess::ReadWrite,
    };
    let tools = file_tools_except(root, access, &shop.protected)
        .map_err(|error| fault(error.message().to_owned()).with_hint(error.next_step()))?;
    Ok(tools.into_iter().map(|tool| (pointer.clone(), tool)).collect())
}

/// A tool and what it stands in.
struct At<'a> {
    inner: &'a Inner,
    tool: &'a ReadTool,
}

impl At<'_> {
    fn parameters(&self) -> Result<Json, Faults> {
        let Some(written) = &self.tool.entry.body.parameters else {
            return Ok(Json::from(json!({ "type": "object", "properties": {} })));
        };
        let schema = schema_of(written).map_err(|(below, why, hint)| {
            let at = format!("{}{below}", child(&self.tool.pointer, "parameters"));
            Faults::one(self.inner.document.fault(&at, why).with_hint(hint))
        })?;
        Ok(Json::from(schema))
    }

    fn spec(&self) -> Result<ToolSpec, Faults> {
        let body = &self.tool.entry.body;
        let description = body.description.clone().unwrap_or_default();
        Ok(ToolSpec {
            name: body.name.clone(),
            description,
            parameters: self.parameters()?,
            version: Some(self.version()),
        })
    }

    /// What a person calls it, or a mark of what it does: a changed command or URL is drift, whether
    /// or not somebody thought of saying so.
    fn version(&self) -> String {
        if let Some(version) = &self.tool.entry.body.version {
            return version.clone();
        }
        let written = self.inner.document.at(&self.tool.pointer).and_then(|tool| tool.as_object());
        let does: Vec<_> = DOES.iter().map(|key| written.and_then(|tool| tool.get(*key))).collect();
        let text = serde_json::to_string(&does).unwrap_or_default();
        Hash::of(text.as_bytes()).short()
    }

    /// What a builder said is wrong, at the part of the tool it quotes.
    fn error(&self, error: &Error) -> Faults {
        let message = error.message();
        let pointer = &self.tool.pointer;
        let at = match message.contains("schema is not valid") {
            true => child(pointer, "parameters"),
            false => semantic::mentioned(self.inner, pointer, message, &self.tool.entry.body.name)
                .or_else(|| self.field(message))
                .unwrap_or_else(|| child(pointer, "name")),
        };
        self.fault(&at, error).into()
    }

    /// The field that a message begins with: ``tool `t`: url: …``.
    fn field(&self, message: &str) -> Option<String> {
        let word = message.split_once("`: ")?.1.split(':').next()?;
        let pointer = &self.tool.pointer;
        let places = [child(pointer, word), child(&child(pointer, "http"), word)];
        places.into_iter().find(|place| self.inner.document.at(place).is_some())
    }

    fn fault(&self, pointer: &str, error: &Error) -> Fault {
        let fault = self.inner.document.fault(pointer, error.message());
        match error.next_step() == rekindle::ErrorKind::Invalid.catalog_entry().remedy {
            true => fault,
            false => fault.with_hint(error.next_step()),
        }
    }

    fn command(&self, shop: &mut Shop) -> Result<Arc<dyn Tool>, Faults> {
        let body = &self.tool.entry.body;
        let spec = self.spec()?;
        let mut builder = CommandTool::builder(spec.name, spec.description).parameters(spec.parameters);
        builder = match (&body.command, &body.shell) {
            (Some(argv), _) => builder.command(argv),
            (_, shell) => builder.shell(shell.clone().unwrap_or_default()),
        };
        builder = builder.environment_base(shop.environment.clone()).directory(self.directory());
        for (variable, template) in body.environment.iter().flatten() {
            builder = builder.environment(variable, template);
        }
        for (variable, secret) in body.secret_environment.iter().flatten() {
            builder = builder.secret_environment(variable, shop.named(&self.inner.base, secret));
        }
        builder = match &body.stdin {
            None => builder,
            Some(StdinSpec::Arguments) => builder.stdin(Stdin::Arguments),
            Some(StdinSpec::Text(text)) => builder.stdin(Stdin::Text(text.clone())),
        };
        builder = builder.output(match body.output {
            None | Some(OutputName::Full) => CommandOutput::Full,
            Some(OutputName::Text) => CommandOutput::Text,
            Some(OutputName::Json) => CommandOutput::Json,
        });
        builder = builder.accept_exit_codes(body.accept_exit_codes.clone().unwrap_or_default());
        if let Some(argv) = &body.check_command {
            builder = builder.check_command(argv);
        }
        let made = builder.version(self.version()).build().map_err(|error| self.error(&error))?;
        made.check_installed().map_err(|error| self.not_installed(&error))?;
        Ok(Arc::new(made))
    }

    fn not_installed(&self, error: &Error) -> Faults {
        let body = &self.tool.entry.body;
        let named = |argv: &Option<Vec<String>>| argv.as_ref().is_some_and(|argv| error.message().contains(&argv[0]));
        let key = match () {
            () if named(&body.command) => "command",
            () if named(&body.check_command) => "check_command",
            () if body.directory.is_some() => "directory",
            () => body.kinds().first().copied().unwrap_or("name"),
        };
        let at = child(&self.tool.pointer, key);
        let first = format!("{at}/0");
        let at = if self.inner.document.at(&first).is_some() { first } else { at };
        self.inner.document.fault(&at, error.message()).with_hint("install it, or give its whole path").into()
    }

    fn directory(&self) -> PathBuf {
        let below = self.tool.entry.body.directory.as_deref().unwrap_or(".");
        let directory = resolve_path(&self.inner.base, below);
        if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory }
    }

    fn http(&self, http: &HttpSpec) -> Result<Arc<dyn Tool>, Faults> {
        let spec = self.spec()?;
        let mut builder = HttpTool::builder(spec.name, spec.description).parameters(spec.parameters).url(&http.url);
        if let Some(method) = &http.method {
            builder = builder.method(method);
        }
        for (name, template) in &http.query {
            builder = builder.query(name, template);
        }
        for (name, template) in &http.headers {
            builder = builder.header(name, template);
        }
        builder = builder.body(match http.body.clone() {
            None => HttpBody::Nothing,
            Some(BodySpec::Arguments) => HttpBody::Arguments,
            Some(BodySpec::Json(value)) => HttpBody::Json(value),
            Some(BodySpec::Text(text)) => HttpBody::Text(text),
        });
        if let Some(name) = &http.idempotency_header {
            builder = builder.idempotency_header(name);
        }
        if let Some(bytes) = http.response_limit {
            builder = builder.response_limit(bytes);
        }
        builder = builder.response_headers(&http.response_headers).version(self.version());
        let made = builder.build().map_err(|error| self.error(&error))?;
        Ok(Arc::new(made))
    }
}

impl Shop {
    /// The name under which runs know a secret; one given by reference gets a name here.
    pub(super) fn named(&mut self, base: &Path, secret: &SecretName) -> String {
        match secret {
            SecretName::Name(name) => name.clone(),
            SecretName::Reference(reference) => {
                let reference = &resolve_secret(base, reference);
                let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
                let mut name: String = reference.as_str().trim_start_matches('@').chars().map(legal).take(80).collect();
                while self.found.get(&name).is_some_and(|known| known != reference) {
                    name.push('_');
                }
                self.found.insert(name.clone(), reference.clone());
                name
            }
        }
    }

    /// The value of a secret that is needed now.
    pub(super) fn resolve(
        &self,
        document: &crate::Document,
        pointer: &str,
        reference: &rekindle::SecretRef,
    ) -> Result<rekindle::Secret, Faults> {
        self.secrets.resolve(reference).map_err(|error| {
            let message = format!("the secret `{}` cannot be had: {}", reference.as_str(), error.message());
            Faults::one(document.fault(pointer, message).with_hint(error.next_step()))
        })
    }
}
