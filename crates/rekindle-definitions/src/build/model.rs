//! Models: a provider's, with its key, or a script.

use std::path::Path;
use std::sync::Arc;

use rekindle::model::Model;
use rekindle::{Error, SecretRef};
use rekindle_models::{AnthropicModel, ApiKey, OpenAiModel, Price, ScriptedModel};

use super::Shop;
use crate::definition::{Inner, read_script, resolve_secret, script_of, unknown_provider};
use crate::document::{Document, child, list};
use crate::fault::{Fault, Faults, short};
use crate::form::{ModelSettings, ModelSpec, Named, Provider};

/// How many names may stand for each other in a row.
const DEEPEST: usize = 16;

/// The version of Azure's interface unless another is named.
const AZURE_VERSION: &str = "2024-10-21";

/// What the builders of all providers take.
macro_rules! shared {
    ($builder:ident, $settings:ident, $key:ident, $headers:ident) => {
        if let Some(key) = $key {
            $builder = $builder.api_key(key);
        }
        for (name, value) in $headers {
            $builder = $builder.header(name, value);
        }
        for (field, value) in $settings.extra.clone() {
            $builder = $builder.extra(field, value);
        }
        if let Some(temperature) = $settings.temperature {
            $builder = $builder.temperature(temperature);
        }
        if let Some(streaming) = $settings.stream {
            $builder = $builder.streaming(streaming);
        }
        if let Some(timeout) = $settings.timeout {
            $builder = $builder.silence_timeout(timeout.0);
        }
        if let Some(price) = $settings.price {
            let cached = price.cached_input.unwrap_or(price.input);
            $builder = $builder.price(Price::per_million(price.input, price.output).cached_input(cached));
        }
    };
}
/// The model that `spec` means where it stands, or the one that was given in its place.
pub(super) fn build(shop: &mut Shop, inner: &Inner, pointer: &str, spec: &ModelSpec) -> Result<Arc<dyn Model>, Faults> {
    let Some(given) = shop.model.clone() else {
        return written(shop, inner, pointer, spec.clone(), &inner.base);
    };
    // What is said outside the file is relative to where the program was started, and no line of the
    // file is to blame for it.
    let built = written(shop, inner, pointer, ModelSpec::Reference(given.clone()), Path::new(""));
    built.map_err(|faults| {
        let first = faults.iter().next();
        let why = first.map(|fault| fault.message.clone()).unwrap_or_default();
        let fault = Fault::new(format!("the model `{given}` that was given: {why}"));
        Faults::one(match first.and_then(|fault| fault.hint.clone()) {
            Some(hint) => fault.with_hint(hint),
            None => fault,
        })
    })
}

fn written(
    shop: &mut Shop,
    inner: &Inner,
    pointer: &str,
    mut spec: ModelSpec,
    base: &Path,
) -> Result<Arc<dyn Model>, Faults> {
    let mut at = At { document: &inner.document, pointer: pointer.to_owned(), base };
    for _ in 0..DEEPEST {
        let next = match &spec {
            ModelSpec::Settings(settings) => return at.settings(shop, settings),
            ModelSpec::Reference(text) => match Named::of(text) {
                Named::Provided(Provider::Scripted, path) => return at.scripted(shop, path),
                Named::Provided(provider, name) => return at.settings(shop, &ModelSettings::new(provider, name)),
                Named::Unknown(provider) => return Err(unknown_provider(at.document, &at.pointer, provider).into()),
                Named::Alias(name) => match (inner.models.get(name), shop.models.get(name)) {
                    (Some((place, next)), _) => {
                        at = At { pointer: place.clone(), base: &inner.base, ..at };
                        next.clone()
                    }
                    (None, Some(next)) => {
                        at.base = Path::new("");
                        next.clone()
                    }
                    (None, None) => return Err(at.unknown_alias(shop, inner, name)),
                },
            },
        };
        spec = next;
    }
    Err(at.fault("the names of models stand for each other in a circle").into())
}

/// Where a model is named, for faults.
struct At<'a> {
    document: &'a Document,
    pointer: String,
    base: &'a Path,
}

impl At<'_> {
    fn fault(&self, message: impl Into<String>) -> Fault {
        self.document.fault(&self.pointer, message)
    }

    fn error(&self, error: &Error) -> Faults {
        self.fault(error.message()).with_hint(error.next_step()).into()
    }

    fn unknown_alias(&self, shop: &Shop, inner: &Inner, name: &str) -> Faults {
        let mut known: Vec<&str> = inner.models.keys().chain(shop.models.keys()).map(String::as_str).collect();
        known.sort_unstable();
        known.dedup();
        let there = if known.is_empty() { "none".to_owned() } else { list(known) };
        let hint = format!("write `provider/name`, e.g. `openai/gpt-5`; the names in `models` are: {there}");
        self.fault(format!("there is no model named `{}`", short(name))).with_hint(hint).into()
    }

    fn scripted(&self, shop: &mut Shop, path: &str) -> Result<Arc<dyn Model>, Faults> {
        let (_, script) = read_script(self.document, &self.pointer, self.base, path)?;
        shop.model_names.push(format!("scripted/{}", script.name));
        Ok(Arc::new(ScriptedModel::new(script)))
    }

    fn settings(&self, shop: &mut Shop, settings: &ModelSettings) -> Result<Arc<dyn Model>, Faults> {
        if settings.provider == Provider::Scripted {
            let (_, script) = script_of(self.document, &self.pointer, self.base, settings)?;
            shop.model_names.push(format!("scripted/{}", script.name));
            return Ok(Arc::new(ScriptedModel::new(script)));
        }
        let name = settings.name.clone().unwrap_or_default();
        shop.model_names.push(format!("{}/{name}", settings.provider.as_str()));
        let key = self.key(shop, settings)?;
        let headers = self.headers(shop, settings)?;
        match settings.provider {
            Provider::Anthropic => self.anthropic(settings, name, key, headers),
            _ => self.openai(settings, name, key, headers),
        }
    }

    fn key(&self, shop: &Shop, settings: &ModelSettings) -> Result<Option<ApiKey>, Faults> {
        let usual = || settings.provider.usual_key().and_then(|text| text.parse::<SecretRef>().ok());
        let Some(reference) = settings.api_key.as_ref().map(|text| resolve_secret(self.base, &text.0)).or_else(usual)
        else {
            return Ok(None);
        };
        let key = ApiKey::resolve(&reference, &*shop.secrets).map_err(|error| {
            let message = format!("the key `{}` of the model cannot be had: {}", reference.as_str(), error.message());
            let own = child(&self.pointer, "api_key");
            let at = if settings.api_key.is_some() { own } else { self.pointer.clone() };
            let hint = match reference.scheme() {
                "env" => format!("set the environment variable {}", reference.rest()),
                _ => error.next_step().to_owned(),
            };
            Faults::one(self.document.fault(&at, message).with_hint(hint))
        })?;
        Ok(Some(key))
    }

    fn headers(&self, shop: &Shop, settings: &ModelSettings) -> Result<Vec<(String, String)>, Faults> {
        let mut headers: Vec<_> = settings.headers.clone().into_iter().collect();
        for (name, text) in &settings.secret_headers {
            let at = child(&child(&self.pointer, "secret_headers"), name);
            headers.push((
                name.clone(),
                shop.resolve(self.document, &at, &resolve_secret(self.base, &text.0))?.expose().to_owned(),
            ));
        }
        Ok(headers)
    }

    fn openai(
        &self,
        settings: &ModelSettings,
        name: String,
        key: Option<ApiKey>,
        headers: Vec<(String, String)>,
    ) -> Result<Arc<dyn Model>, Faults> {
        let provider = settings.provider;
        let mut builder = OpenAiModel::builder(name.as_str());
        if let Some(url) = base_url(settings, &name) {
            builder = builder.base_url(url);
        }
        if provider == Provider::Azure {
            builder = builder.azure(settings.api_version.as_deref().unwrap_or(AZURE_VERSION));
        }
        if let Some(effort) = &settings.reasoning_effort {
            builder = builder.reasoning_effort(effort);
        }
        if let Some(tokens) = settings.max_tokens {
            builder = match provider {
                Provider::Openai | Provider::Azure => builder.max_output_tokens(tokens),
                _ => builder.max_tokens(tokens),
            };
        }
        shared!(builder, settings, key, headers);
        builder.build().map(|model| Arc::new(model) as Arc<dyn Model>).map_err(|error| self.error(&error))
    }

    fn anthropic(
        &self,
        settings: &ModelSettings,
        name: String,
        key: Option<ApiKey>,
        headers: Vec<(String, String)>,
    ) -> Result<Arc<dyn Model>, Faults> {
        let mut builder = AnthropicModel::builder(name);
        if let Some(url) = &settings.base_url {
            builder = builder.base_url(url);
        }
        if let Some(tokens) = settings.max_tokens {
            builder = builder.max_output_tokens(tokens);
        }
        if let Some(tokens) = settings.thinking_budget {
            builder = builder.thinking_budget(tokens);
        }
        shared!(builder, settings, key, headers);
        builder.build().map(|model| Arc::new(model) as Arc<dyn Model>).map_err(|error| self.error(&error))
    }
}

fn base_url(settings: &ModelSettings, name: &str) -> Option<String> {
    let given = settings.base_url.clone().or_else(|| settings.provider.usual_url().map(str::to_owned))?;
    if settings.provider == Provider::Azure && !given.contains("/openai/deployments/") {
        return Some(format!("{}/openai/deployments/{name}", given.trim_end_matches('/')));
    }
    Some(given)
}
