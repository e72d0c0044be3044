//! What can be said of tools before they are built.

use std::collections::HashMap;

use super::{Inner, ReadTool, models, parameters, suits};
use crate::document::{Document, child, did_you_mean, list};
use crate::fault::{Gathered, short};
use crate::form::{McpEntry, SecretName, Split, ToolEntry};

/// Reads the tool at `pointer`.
pub(super) fn read(document: &Document, pointer: String, faults: &mut Gathered) -> Option<ReadTool> {
    let mut split = faults.take(Split::new(document, &pointer))?;
    let (body, policy) = (split.take(faults), split.take(faults));
    split.finish(faults);
    let entry = ToolEntry { body: body?, policy: policy? };
    check_kind(document, &pointer, &entry, faults)?;
    Some(ReadTool { pointer, entry })
}

/// Exactly one key says how it works, and the others suit it.
fn check_kind(document: &Document, pointer: &str, entry: &ToolEntry, faults: &mut Gathered) -> Option<()> {
    let name = short(&entry.body.name);
    let kinds = entry.body.kinds();
    let kind = match kinds.as_slice() {
        [kind] => *kind,
        [] => {
            let hint = "give one of `command`, `shell`, `http`, `agent`, `plan`, `graph` and `question`";
            faults.add(document.key_fault(pointer, format!("the tool `{name}` does nothing")).with_hint(hint));
            return None;
        }
        [first, second, ..] => {
            let message = format!("the tool `{name}` has `{first}` and `{second}`");
            faults.add(document.key_fault(&child(pointer, second), message).with_hint("a tool does one thing"));
            return None;
        }
    };
    let given = document.at(pointer).and_then(|value| value.as_object()).into_iter().flat_map(|fields| fields.keys());
    for field in given {
        if let Some(suited) = suits::suits(field).filter(|suited| !suited.contains(&kind)) {
            let fault =
                document.key_fault(&child(pointer, field), format!("`{field}` does not suit a tool with `{kind}`"));
            faults.add(fault.with_hint(format!("it goes with {}", list(suited.iter().copied()))));
        }
    }
    if entry.body.description.is_none() && matches!(kind, "command" | "shell" | "http" | "question") {
        let message = format!("`description` is missing: the model must know what `{name}` is for");
        faults.add(document.key_fault(pointer, message));
    }
    for (key, argv) in [("command", &entry.body.command), ("check_command", &entry.body.check_command)] {
        if argv.as_ref().is_some_and(|argv| argv.first().is_none_or(String::is_empty)) {
            faults.add(document.fault(&child(pointer, key), "it names no program"));
        }
    }
    if let Some(Err((below, why, hint))) = entry.body.parameters.as_ref().map(parameters::schema_of) {
        let at = format!("{}{below}", child(pointer, "parameters"));
        faults.add(document.fault(&at, why).with_hint(hint));
    }
    Some(())
}

/// What tools and servers say together: names, and secrets that must be there.
pub(super) fn check(inner: &Inner, faults: &mut Gathered) {
    let mut names: HashMap<&str, &str> = HashMap::new();
    for tool in &inner.tools {
        let name = &tool.entry.body.name;
        if names.insert(name, &tool.pointer).is_some() {
            let fault = inner
                .document
                .fault(&child(&tool.pointer, "name"), format!("there are two tools named `{}`", short(name)));
            faults.add(fault.with_hint("rename one of them"));
        }
        check_tool_secrets(inner, tool, faults);
    }
    for (name, entry) in &inner.surroundings.mcp {
        check_server(inner, &child(&child(&inner.pointer, "mcp"), name), entry, faults);
    }
}

/// A server is a program or a URL, and what is said of it suits that.
fn check_server(inner: &Inner, at: &str, entry: &McpEntry, faults: &mut Gathered) {
    let mut add = |pointer: String, message: &str| faults.add(inner.document.key_fault(&pointer, message));
    match (&entry.command, &entry.url) {
        (None, None) => add(at.to_owned(), "give a `command` that starts the server, or its `url`"),
        (Some(_), Some(_)) => add(child(at, "url"), "a server has a `command` or a `url`, not both"),
        (Some(argv), None) if argv.first().is_none_or(String::is_empty) => {
            add(child(at, "command"), "it names no program");
        }
        _ => {}
    }
    let of_url = [
        ("headers", !entry.headers.is_empty()),
        ("secret_headers", !entry.secret_headers.is_empty()),
        ("bearer", entry.bearer.is_some()),
    ];
    let of_program = [
        ("environment", !entry.environment.is_empty()),
        ("secret_environment", !entry.secret_environment.is_empty()),
        ("directory", entry.directory.is_some()),
    ];
    let (unsuited, what) = if entry.command.is_some() { (of_url, "a `command`") } else { (of_program, "a `url`") };
    for (key, _) in unsuited.into_iter().filter(|(_, given)| *given) {
        add(child(at, key), &format!("`{key}` does not suit a server with {what}"));
    }
    models::check_headers(&inner.document, &child(at, "headers"), entry.headers.keys(), faults);
    check_server_secrets(inner, at, entry, faults);
}

fn check_server_secrets(inner: &Inner, at: &str, entry: &McpEntry, faults: &mut Gathered) {
    for (key, secrets) in [("secret_environment", &entry.secret_environment), ("secret_headers", &entry.secret_headers)]
    {
        for (variable, secret) in secrets {
            check_secret(inner, &child(&child(at, key), variable), secret, faults);
        }
    }
    if let Some(secret) = &entry.bearer {
        check_secret(inner, &child(at, "bearer"), secret, faults);
    }
}

fn check_tool_secrets(inner: &Inner, tool: &ReadTool, faults: &mut Gathered) {
    let body = &tool.entry.body;
    let map = child(&tool.pointer, "secret_environment");
    for (variable, secret) in body.secret_environment.iter().flatten() {
        check_secret(inner, &child(&map, variable), secret, faults);
    }
    let headers = child(&child(&tool.pointer, "http"), "headers");
    let headers = body.http.iter().flat_map(|http| &http.headers).map(|(name, value)| (child(&headers, name), value));
    let environment = child(&tool.pointer, "environment");
    let variables = body.environment.iter().flatten().map(|(name, value)| (child(&environment, name), value));
    for (pointer, template) in headers.chain(variables) {
        for name in template.split("${secrets.").skip(1).filter_map(|rest| rest.split('}').next()) {
            if !inner.secrets.contains_key(name) {
                faults.add(unknown_secret(inner, &pointer, Some(name)));
            }
        }
    }
}

fn check_secret(inner: &Inner, pointer: &str, secret: &SecretName, faults: &mut Gathered) {
    if let SecretName::Name(name) = secret
        && !inner.secrets.contains_key(name)
    {
        faults.add(unknown_secret(inner, pointer, None));
    }
}

/// The fault of a secret that is not there. A name is told only where it cannot be the secret.
fn unknown_secret(inner: &Inner, pointer: &str, name: Option<&str>) -> crate::Fault {
    let known = || inner.secrets.keys().map(String::as_str);
    let there = match inner.secrets.is_empty() {
        true => "say where it is under `secrets`, e.g. {token: \"@env:TOKEN\"}".to_owned(),
        false => format!("the file's `secrets` are {}", list(known())),
    };
    match name {
        Some(name) => {
            let fault = inner.document.fault(pointer, format!("there is no secret `{}`", short(name)));
            fault.with_hint(did_you_mean(name, known()).unwrap_or(there))
        }
        None => {
            let message = "this is neither a reference nor the name of one of the file's `secrets`";
            let hint = format!("write @env:VARIABLE or @file:path; {there}");
            inner.document.key_fault(pointer, message).with_hint(hint).without_excerpt()
        }
    }
}
