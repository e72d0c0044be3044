//! What can be said of a model before it is built: whether its provider is known, whether what is
//! said of it suits the provider, and whether its script is right.

use std::path::Path;

use rekindle_models::Script;

use super::{Body, Inner, SourceFile, resolve_path};
use crate::document::{Document, child, did_you_mean, list};
use crate::fault::{Fault, Faults, Gathered, short};
use crate::form::{ModelSettings, ModelSpec, Named, Provider, ReductionSpec, Reference};

/// Headers that carry keys.
const KEY_HEADERS: [&str; 4] = ["authorization", "x-api-key", "api-key", "proxy-authorization"];

/// Checks every model a definition names itself.
pub(super) fn check(inner: &mut Inner, faults: &mut Gathered) {
    let mut files = Vec::new();
    for (pointer, spec) in named(inner) {
        check_one(inner, &pointer, &spec, &mut files, faults);
    }
    inner.files.extend(files);
}

/// The models of a definition, with where they stand.
pub(super) fn named(inner: &Inner) -> Vec<(String, ModelSpec)> {
    let mut found: Vec<_> = inner.models.values().filter(|(at, _)| at.starts_with(&inner.pointer)).cloned().collect();
    if let Body::Agent(agent) = &inner.body {
        found.push((child(&inner.pointer, "model"), agent.model.clone()));
        if let Some(ReductionSpec::Summarise(summarise)) = &agent.reduction {
            let at = child(&child(&child(&inner.pointer, "reduction"), "summarise"), "model");
            found.extend(summarise.model.clone().map(|model| (at, model)));
        }
    }
    found
}

fn check_one(inner: &Inner, pointer: &str, spec: &ModelSpec, files: &mut Vec<SourceFile>, faults: &mut Gathered) {
    let document = &inner.document;
    match spec {
        ModelSpec::Reference(text) => match Named::of(text) {
            // Configuration may know it.
            Named::Alias(_) => {}
            Named::Unknown(provider) => faults.add(unknown_provider(document, pointer, provider)),
            Named::Provided(Provider::Scripted, path) => {
                let read = read_script(document, pointer, &inner.base, path);
                files.extend(faults.take(read).map(|(file, _)| file));
            }
            Named::Provided(provider @ (Provider::Azure | Provider::Compatible), _) => {
                let message = format!("the provider `{}` needs a `base_url`", provider.as_str());
                let hint = format!("write it as an object: {{provider: {}, name: …, base_url: …}}", provider.as_str());
                faults.add(document.fault(pointer, message).with_hint(hint));
            }
            Named::Provided(_, "") => faults.add(document.fault(pointer, "the name of the model is missing")),
            Named::Provided(..) => {}
        },
        ModelSpec::Settings(settings) => {
            check_settings(document, pointer, settings, faults);
            if settings.provider == Provider::Scripted {
                files.extend(
                    faults.take(script_of(document, pointer, &inner.base, settings)).and_then(|(file, _)| file),
                );
            }
        }
    }
}

/// The fault of a provider nobody knows.
pub(crate) fn unknown_provider(document: &Document, pointer: &str, provider: &str) -> Fault {
    let known = || Provider::ALL.iter().map(|provider| provider.as_str());
    let fault = document.fault(pointer, format!("there is no provider `{}`", short(provider)));
    let there = format!("there are {}", list(known()));
    fault.with_hint(did_you_mean(provider, known()).map_or(there.clone(), |near| format!("{near} {there}")))
}

/// What does not go together.
fn check_settings(document: &Document, pointer: &str, settings: &ModelSettings, faults: &mut Gathered) {
    let provider = settings.provider;
    let mut unsuited = |key: &str, given: bool, suits: bool| {
        if given && !suits {
            let message = format!("`{key}` does not suit the provider `{}`", provider.as_str());
            faults.add(document.key_fault(&child(pointer, key), message));
        }
    };
    let is_scripted = provider == Provider::Scripted;
    unsuited("script", settings.script.is_some(), is_scripted);
    unsuited("api_version", settings.api_version.is_some(), provider == Provider::Azure);
    unsuited("thinking_budget", settings.thinking_budget.is_some(), provider == Provider::Anthropic);
    unsuited("reasoning_effort", settings.reasoning_effort.is_some(), provider != Provider::Anthropic && !is_scripted);
    for (key, given) in [
        ("api_key", settings.api_key.is_some()),
        ("base_url", settings.base_url.is_some()),
        ("temperature", settings.temperature.is_some()),
        ("max_tokens", settings.max_tokens.is_some()),
        ("headers", !settings.headers.is_empty()),
        ("secret_headers", !settings.secret_headers.is_empty()),
        ("price", settings.price.is_some()),
        ("stream", settings.stream.is_some()),
        ("timeout", settings.timeout.is_some()),
        ("extra", !settings.extra.is_empty()),
    ] {
        unsuited(key, given, !is_scripted);
    }
    if settings.name.as_deref().unwrap_or_default().is_empty() && !is_scripted {
        faults.add(document.key_fault(pointer, "`name` is missing"));
    }
    if settings.base_url.is_none() && matches!(provider, Provider::Azure | Provider::Compatible) {
        let message = format!("the provider `{}` needs a `base_url`", provider.as_str());
        faults.add(document.key_fault(pointer, message));
    }
    check_headers(document, &child(pointer, "headers"), settings.headers.keys(), faults);
}

/// Keys do not stand in headers that anybody may read.
pub(super) fn check_headers<'a>(
    document: &Document,
    pointer: &str,
    names: impl Iterator<Item = &'a String>,
    faults: &mut Gathered,
) {
    for name in names.filter(|name| KEY_HEADERS.contains(&name.to_lowercase().as_str())) {
        let fault = document.key_fault(&child(pointer, name), crate::document::SECRET_BY_VALUE);
        faults.add(fault.with_hint("put this header under `secret_headers`, e.g. @env:VARIABLE").without_excerpt());
    }
}

/// The script of a scripted model, and its file if it has one.
pub(crate) fn script_of(
    document: &Document,
    pointer: &str,
    base: &Path,
    settings: &ModelSettings,
) -> Result<(Option<SourceFile>, Script), Faults> {
    let at = child(pointer, "script");
    match (&settings.script, &settings.name) {
        (Some(Reference::Path(path)), _) => {
            read_script(document, &at, base, path).map(|(file, script)| (Some(file), script))
        }
        (Some(Reference::Inline(..)), _) => {
            // The model is called as the settings say, unless the script says so itself.
            let mut value = document.at(&at).cloned().unwrap_or_default();
            if let (Some(fields), Some(name)) = (value.as_object_mut(), &settings.name) {
                fields.entry("name").or_insert_with(|| name.clone().into());
            }
            let script: Script = document.decode_value(value, &at)?;
            script.check().map_err(|error| Faults::one(document.fault(&at, error.message())))?;
            Ok((None, script))
        }
        (None, Some(path)) => {
            let at = child(pointer, "name");
            read_script(document, &at, base, path).map(|(file, script)| (Some(file), script))
        }
        (None, None) => Err(document.key_fault(pointer, "`script` is missing").into()),
    }
}

/// Reads the file of a script.
pub(crate) fn read_script(
    document: &Document,
    pointer: &str,
    base: &Path,
    path: &str,
) -> Result<(SourceFile, Script), Faults> {
    let full = resolve_path(base, path);
    if !full.is_file() {
        let message = format!("the script `{}` does not exist", short(path));
        return Err(document.fault(pointer, message).with_hint("paths are relative to this file").into());
    }
    let written = Document::load(&full)?;
    let script: Script = written.decode("")?;
    script.check().map_err(|error| Faults::one(written.fault("", error.message())))?;
    Ok((SourceFile { path: full, hash: written.hash() }, script))
}
