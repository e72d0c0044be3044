//! MCP servers: started or connected to, and their tools.

use rekindle::ErrorKind;
use rekindle_tools::{McpServer, McpServerBuilder};

use super::Shop;
use super::tool::Placed;
use crate::definition::{Inner, resolve_path, resolve_secret};
use crate::document::child;
use crate::fault::Faults;
use crate::form::{McpEntry, SecretName};

/// The tools of every server that `inner` names.
pub(super) async fn build(shop: &mut Shop, inner: &Inner) -> Result<Vec<Placed>, Faults> {
    let mut tools = Vec::new();
    if shop.preview {
        return Ok(tools);
    }
    for (name, entry) in &inner.surroundings.mcp {
        let pointer = child(&child(&inner.pointer, "mcp"), name);
        let failed = |error: &rekindle::Error| {
            // What a program said may be several lines.
            let said = error.message().replace('\n', " / ");
            let message = match said.starts_with("MCP server") {
                true => format!("the {said}"),
                false => format!("the MCP server `{name}`: {said}"),
            };
            let hint = match (error.kind(), &entry.command) {
                (ErrorKind::StepFailed, Some(_)) => "check the command; run by hand it may say more",
                (ErrorKind::StepFailed, None) => "check the URL, and whether the server runs",
                _ => error.next_step(),
            };
            Faults::one(inner.document.key_fault(&pointer, message).with_hint(hint))
        };
        let builder = prepared(shop, inner, &pointer, name, entry)?;
        let server = builder.connect().await.map_err(|error| failed(&error))?;
        // From here on it is ended with everything else, whatever goes wrong.
        let listed = server.tools().await;
        shop.servers.push(server);
        let listed = listed.map_err(|error| failed(&error))?;
        tools.extend(listed.into_iter().map(|tool| (pointer.clone(), tool)));
    }
    Ok(tools)
}

fn prepared(
    shop: &Shop,
    inner: &Inner,
    pointer: &str,
    name: &str,
    entry: &McpEntry,
) -> Result<McpServerBuilder, Faults> {
    let secret = |key: &str, of: &str, secret: &SecretName| {
        let at = if of.is_empty() { child(pointer, key) } else { child(&child(pointer, key), of) };
        shop.value_of(inner, &at, secret)
    };
    let mut builder = match (&entry.command, &entry.url) {
        (Some(argv), _) => McpServer::stdio(name, argv),
        (None, url) => McpServer::http(name, url.clone().unwrap_or_default()),
    };
    if entry.command.is_some() {
        builder = builder.environment(shop.environment.clone()).environment(entry.environment.clone());
        let directory = resolve_path(&inner.base, entry.directory.as_deref().unwrap_or("."));
        if !directory.as_os_str().is_empty() {
            builder = builder.directory(directory);
        }
    }
    for (variable, given) in &entry.secret_environment {
        builder = builder.secret_environment(variable, secret("secret_environment", variable, given)?);
    }
    for (name, value) in &entry.headers {
        builder = builder.header(name, value);
    }
    for (name, given) in &entry.secret_headers {
        builder = builder.secret_header(name, secret("secret_headers", name, given)?);
    }
    if let Some(given) = &entry.bearer {
        builder = builder.bearer(secret("bearer", "", given)?);
    }
    Ok(limited(builder, entry))
}

/// Which of its tools, and how they are treated.
fn limited(mut builder: McpServerBuilder, entry: &McpEntry) -> McpServerBuilder {
    if let Some(names) = &entry.include {
        builder = builder.include(names);
    }
    if !entry.exclude.is_empty() {
        builder = builder.exclude(&entry.exclude);
    }
    if let Some(prefix) = &entry.prefix {
        builder = builder.prefix(prefix);
    }
    if let Some(timeout) = entry.timeout {
        builder = builder.connect_timeout(timeout.0);
    }
    for (tool, policy) in &entry.policies {
        builder = match tool.as_str() {
            "*" => builder.default_policy(policy.policy()),
            _ => builder.policy(tool, policy.policy()),
        };
    }
    builder.trust_annotations(entry.trust_annotations)
}

impl Shop {
    /// The value of a secret that a server is given.
    fn value_of(&self, inner: &Inner, pointer: &str, secret: &SecretName) -> Result<rekindle::Secret, Faults> {
        let reference = match secret {
            SecretName::Reference(reference) => Some(resolve_secret(&inner.base, reference)),
            SecretName::Name(name) => self.overriding.get(name).or_else(|| inner.secrets.get(name)).cloned(),
        };
        match reference {
            Some(reference) => self.resolve(&inner.document, pointer, &reference),
            None => Err(inner.document.key_fault(pointer, "there is no such secret").without_excerpt().into()),
        }
    }
}
