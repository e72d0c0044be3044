//! The powers of a configuration: what it may do beside saying how runs behave: the powers for which a file that was found must
//! be trusted.

use std::path::{Component, Path, PathBuf};

use rekindle::SecretRef;
use rekindle_definitions::ModelSpec;
use rekindle_store::shown_url;
use serde_json::Value;

use crate::settings::Form;

/// The powers of the configuration in `file`, one line for each. Secrets are found in its text, under whatever key
/// they stand.
pub fn of_configuration(form: &Form, text: &Value, file: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let places = [
        ("keeps sessions at", &form.store),
        ("keeps large values at", &form.large_values),
        ("keeps marks at", &form.anchor),
        ("keeps archives at", &form.archive),
    ];
    for (does, url) in places {
        found.extend(url.iter().filter(|url| !is_below(url, file)).map(|url| format!("{does} {}", shown_url(url))));
    }
    found.extend(form.models.values().flat_map(ModelSpec::powers));
    add_secrets(text, &mut found);
    if let Some(keys) = form.encryption.as_ref().filter(|keys| !keys.service.is_empty()) {
        found.push(format!("runs {}", keys.service.join(" ")));
    }
    let scripted = form.models.iter().filter(|(_, model)| model.is_scripted()).map(|(name, _)| name);
    let scripted = scripted.chain(form.model.iter().filter(|model| model.starts_with("scripted/")));
    found.extend(scripted.map(|model| format!("has the answers of the model {model} come from a script")));
    found.extend(form.agents.iter().map(|(name, path)| format!("runs {} as the agent {name}", path.display())));
    found.extend(form.mcp.agents.iter().map(|path| format!("has MCP clients run {}", path.display())));
    found.extend(form.tools.environment.iter().map(|name| format!("gives programs the variable {name}")));
    found.extend(form.server.hosts.iter().map(|name| format!("serves HTTP under the name {name}")));
    found.extend(form.server.origins.iter().map(|origin| format!("serves pages of {origin}")));
    found
}

/// Adds a line for each reference to a secret that has none yet.
fn add_secrets(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text.parse::<SecretRef>().is_ok() => {
            let power = format!("uses the secret {text}");
            if !found.contains(&power) {
                found.push(power);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add_secrets(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| add_secrets(field, found)),
        _ => {}
    }
}

/// Returns whether a store is in the folder of the file that names it.
fn is_below(url: &str, file: &Path) -> bool {
    let Some((scheme, path)) = url.split_once(':') else { return false };
    let path = match scheme {
        "memory" => return true,
        "sqlite" | "file" | "objects" => path.strip_prefix("//").unwrap_or(path),
        _ => return false,
    };
    let path = path.split('?').next().unwrap_or_default();
    let Some(folder) = file.parent().map(|folder| std::path::absolute(folder.join(".")).unwrap_or_default()) else {
        return false;
    };
    let goes_up = Path::new(path).components().any(|part| part == Component::ParentDir);
    let path = folder.join(path);
    // A link may lead out of it, also one to what is not there yet.
    let first = path.ancestors().find(|part| part.symlink_metadata().is_ok());
    let there = first.and_then(|part| part.canonicalize().ok()).unwrap_or_default();
    let real: PathBuf = folder.canonicalize().unwrap_or_default();
    !goes_up && path.starts_with(&folder) && there.starts_with(&real)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_beside_their_file_need_no_trust() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rekindle.toml");
        std::os::unix::fs::symlink("/", folder.path().join("out")).unwrap();
        std::fs::create_dir(folder.path().join("in")).unwrap();
        std::os::unix::fs::symlink("/nowhere/evil.db", folder.path().join("dangling.db")).unwrap();
        let absolute = format!("sqlite:{}", folder.path().join("a.db").display());
        let check = |url: &str, expected: bool| assert_eq!(is_below(url, &file), expected, "{url}");
        for url in ["sqlite:a.db", "sqlite:./in/a.db", "file:./new/dir", "objects:in", "memory:", &absolute] {
            check(url, true);
        }
        let outside = [
            "sqlite:../a.db",
            "sqlite:in/../../a.db",
            "sqlite:/tmp/a.db",
            "file:out/tmp/x",
            "objects:out",
            "sqlite:dangling.db",
        ];
        for url in outside.into_iter().chain(["postgres://h/d", "redis://h", "s3://b", "nonsense", "ftp:x"]) {
            check(url, false);
        }
    }

    #[test]
    fn each_power_is_a_line() {
        let check = |toml: &str, expected: &[&str]| {
            let form: Form = toml::from_str(toml).unwrap();
            let text: Value = toml::from_str(toml).unwrap();
            assert_eq!(of_configuration(&form, &text, Path::new("/p/rekindle.toml")), expected, "{toml}");
        };
        check("namespace = 'a'\n[run]\ndurability = 'sync'\n[checkpoints]\nenabled = false", &[]);
        check("store = 'sqlite:./a.db'\nmodel = 'openai/gpt-5'\n[models]\nquick = 'openai/gpt-5-mini'", &[]);
        check("store = 'postgres://u:hunter2@h/d'", &["keeps sessions at postgres://u:***@h/d"]);
        check("store_password = '@command:evil'", &["uses the secret @command:evil"]);
        check("[secrets]\ntoken = '@env:TOKEN'", &["uses the secret @env:TOKEN"]);
        check("[encryption]\nservice = ['kms', 'x']", &["runs kms x"]);
        check("[signing]\nkey = '@env:A'\nold = {b = '@env:B'}", &["uses the secret @env:A", "uses the secret @env:B"]);
        check("archive = 's3://b'", &["keeps archives at s3://b"]);
        check("anchor = 'file:/x'", &["keeps marks at file:/x"]);
        check("large_values = 'objects:../x'", &["keeps large values at objects:../x"]);
        check("model = 'scripted/x.yaml'", &["has the answers of the model scripted/x.yaml come from a script"]);
        let line = "has the answers of the model m come from a script";
        check("[models]\nm = 'scripted/x.yaml'", &[line]);
        check("[models.m]\nprovider = 'scripted'\nname = 'x'\nscript = 'evil.yaml'", &[line]);
        check("[agents]\na = 'a.yaml'", &["runs a.yaml as the agent a"]);
        check("[mcp]\nagents = ['a.yaml']", &["has MCP clients run a.yaml"]);
        check("[tools]\nenvironment = ['TOKEN']", &["gives programs the variable TOKEN"]);
        check("[server]\ntoken = '@file:t'", &["uses the secret @file:t"]);
        check("[server.tokens]\nanna = '@command:evil'", &["uses the secret @command:evil"]);
        check("[server]\norigins = ['https://x']", &["serves pages of https://x"]);
        check(
            "[models.m]\nprovider = 'compatible'\nname = 'x'\nbase_url = 'https://evil/v1'\napi_key = '@env:OPENAI_API_KEY'",
            &["asks https://evil/v1", "uses the secret @env:OPENAI_API_KEY"],
        );
    }
}
