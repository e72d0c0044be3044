//! The powers of a definition, for people who decide whether to trust it.

use std::collections::BTreeSet;

use super::{Definition, Inner, models, resolve_path};
use crate::form::{FileAccessName, HttpSpec, ModelSpec, Provider, SecretName};

impl Definition {
    /// Everything it may do beside asking usual models, one line for each: programs it starts, servers it
    /// asks, secrets it uses, directories it writes to. With everything it refers to.
    pub fn powers(&self) -> Vec<String> {
        let mut found = BTreeSet::new();
        for definition in self.all() {
            of_tools(definition.inner(), &mut found);
            of_servers(definition.inner(), &mut found);
            of_models(definition.inner(), &mut found);
            let secrets = definition.inner().secrets.values();
            found.extend(secrets.map(|reference| format!("uses the secret {}", reference.as_str())));
        }
        found.into_iter().collect()
    }
}

fn of_tools(inner: &Inner, found: &mut BTreeSet<String>) {
    for tool in &inner.tools {
        let body = &tool.entry.body;
        for argv in body.command.iter().chain(&body.check_command) {
            found.insert(format!("runs {}", argv.join(" ")));
        }
        if let Some(script) = &body.shell {
            found.insert(format!("runs in a shell: {}", script.trim().replace('\n', " ⏎ ")));
        }
        if let Some(HttpSpec { url, .. }) = &body.http {
            found.insert(asks(url));
        }
        named(body.secret_environment.iter().flatten().map(|(_, secret)| secret), found);
    }
    if let Some(files) = &inner.surroundings.files {
        let does = match files.access {
            FileAccessName::Read => "reads",
            FileAccessName::Write => "writes",
        };
        found.insert(format!("{does} files in {}", resolve_path(&inner.base, &files.root).display()));
    }
}

fn of_servers(inner: &Inner, found: &mut BTreeSet<String>) {
    for entry in inner.surroundings.mcp.values() {
        found.extend(entry.command.iter().map(|argv| format!("runs {}", argv.join(" "))));
        found.extend(entry.url.iter().map(|url| asks(url)));
        named(entry.secret_environment.values().chain(entry.secret_headers.values()).chain(&entry.bearer), found);
    }
}

fn of_models(inner: &Inner, found: &mut BTreeSet<String>) {
    for (_, spec) in models::named(inner) {
        found.extend(spec.powers());
    }
}

/// A server, without what may be secret in its URL.
fn asks(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    if scheme.is_empty() { format!("asks {host}{path}") } else { format!("asks {scheme}://{host}{path}") }
}

/// Secrets that stand where they are used.
fn named<'a>(secrets: impl Iterator<Item = &'a SecretName>, found: &mut BTreeSet<String>) {
    for secret in secrets {
        if let SecretName::Reference(reference) = secret {
            found.insert(format!("uses the secret {}", reference.as_str()));
        }
    }
}

impl ModelSpec {
    /// Returns whether its answers come from a script, which then decides what tools do.
    pub fn is_scripted(&self) -> bool {
        match self {
            Self::Reference(text) => text.starts_with("scripted/"),
            Self::Settings(settings) => settings.provider == Provider::Scripted || settings.script.is_some(),
        }
    }

    /// The server and the secrets that it names itself.
    pub fn powers(&self) -> Vec<String> {
        let Self::Settings(settings) = self else { return Vec::new() };
        let secrets = settings.api_key.iter().chain(settings.secret_headers.values());
        let secrets = secrets.map(|secret| format!("uses the secret {}", secret.0.as_str()));
        settings.base_url.iter().map(|url| asks(url)).chain(secrets).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Format;

    #[test]
    fn each_power_is_a_line() {
        let check = |yaml: &str, expected: &[&str]| {
            let text = format!("name: a\nmodel: openai/gpt-5\n{yaml}");
            let definition = Definition::parse("a.yaml", &text, Format::Yaml).unwrap();
            assert_eq!(definition.powers(), expected, "{yaml}");
        };
        check("system: x", &[]);
        check("tools: [{name: t, description: d, command: [git, push]}]", &["runs git push"]);
        check("tools: [{name: t, description: d, shell: \"rm x\\nls\"}]", &["runs in a shell: rm x ⏎ ls"]);
        check("tools: [{name: t, description: d, http: {url: 'https://u:p@h/x?key=1'}}]", &["asks https://h/x"]);
        check("files: {root: notes, access: write}", &["writes files in notes"]);
        check("files: {root: notes}", &["reads files in notes"]);
        check("secrets: {t: '@env:T'}", &["uses the secret @env:T"]);
        check("mcp: {m: {command: [npx, x]}}", &["runs npx x"]);
        check("mcp: {m: {url: 'https://h/mcp', bearer: '@env:B'}}", &["asks https://h/mcp", "uses the secret @env:B"]);
        check(
            "models: {m: {provider: compatible, name: x, base_url: 'http://h', api_key: '@command:k'}}",
            &["asks http://h", "uses the secret @command:k"],
        );
        check(
            "tools: [{name: t, agent: {description: d, model: openai/x, tools: [{name: u, description: d, command: [id]}]}}]",
            &["runs id"],
        );
    }
}
