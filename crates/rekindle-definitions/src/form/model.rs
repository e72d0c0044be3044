//! Models in files.

use std::collections::BTreeMap;
use std::fmt;

use rekindle::schemars::{self, JsonSchema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::{Period, Reference, ScriptForm, SecretText};

/// A model: `provider/name` (`openai/gpt-5`, `ollama/llama3.2`, `scripted/./script.yaml`), the name
/// of one of `models`, or an object.
///
/// ```
/// use rekindle_definitions::ModelSpec;
/// let model: ModelSpec = serde_json::from_str(r#""openai/gpt-5""#)?;
/// assert_eq!(model, ModelSpec::Reference("openai/gpt-5".into()));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[serde(untagged)]
pub enum ModelSpec {
    /// `provider/name`, or the name of one of `models`.
    Reference(String),
    /// All that is said of it.
    Settings(Box<ModelSettings>),
}

/// All that can be said of a model.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    /// Who provides it.
    pub provider: Provider,
    /// Its name at the provider; for Azure, that of the deployment.
    pub name: Option<String>,
    /// Where the provider is, if not at the usual place.
    pub base_url: Option<String>,
    /// Where the key is: `@env:VARIABLE`, `@file:path` or `@keychain:service/account`. Without it, the usual
    /// variable of the provider.
    pub api_key: Option<SecretText>,
    /// The version of the interface, for Azure.
    pub api_version: Option<String>,
    /// How freely it chooses its words.
    pub temperature: Option<f64>,
    /// How many tokens an answer may have.
    pub max_tokens: Option<u32>,
    /// How much it thinks, e.g. `low`, `medium` or `high`; not for Anthropic.
    pub reasoning_effort: Option<String>,
    /// How many tokens it may think, for Anthropic.
    pub thinking_budget: Option<u32>,
    /// Headers that are sent with every request.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Headers that are secret.
    #[serde(default)]
    pub secret_headers: BTreeMap<String, SecretText>,
    /// What it costs.
    pub price: Option<PriceSpec>,
    /// Whether answers are streamed; yes unless this says otherwise.
    pub stream: Option<bool>,
    /// How long the provider may be silent, e.g. `2m`.
    pub timeout: Option<Period>,
    /// Fields of the request that are sent as they are.
    #[serde(default)]
    pub extra: Map<String, Value>,
    /// For `scripted`: the script, or its file.
    #[schemars(with = "Option<Reference<ScriptForm>>")]
    pub(crate) script: Option<Reference<ScriptForm>>,
}

/// Who provides a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// OpenAI; the key is in `OPENAI_API_KEY` unless `api_key` says otherwise.
    Openai,
    /// Anthropic; the key is in `ANTHROPIC_API_KEY` unless `api_key` says otherwise.
    Anthropic,
    /// Azure OpenAI; needs `base_url`. The key is in `AZURE_OPENAI_API_KEY` unless `api_key` says
    /// otherwise.
    Azure,
    /// Ollama on this machine, unless `base_url` says otherwise. Needs no key.
    Ollama,
    /// OpenRouter; the key is in `OPENROUTER_API_KEY` unless `api_key` says otherwise.
    Openrouter,
    /// Any other server that speaks like OpenAI; needs `base_url`.
    Compatible,
    /// Answers from a script, for tests and demonstrations.
    Scripted,
}

/// What a model costs, in units of the currency for a million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceSpec {
    /// Tokens sent.
    pub input: f64,
    /// Tokens received.
    pub output: f64,
    /// Tokens sent that the provider had in its cache; as `input` unless this says otherwise.
    pub cached_input: Option<f64>,
}

impl Provider {
    pub(crate) const ALL: [Self; 7] =
        [Self::Openai, Self::Anthropic, Self::Azure, Self::Ollama, Self::Openrouter, Self::Compatible, Self::Scripted];

    /// The name used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
            Self::Azure => "azure",
            Self::Ollama => "ollama",
            Self::Openrouter => "openrouter",
            Self::Compatible => "compatible",
            Self::Scripted => "scripted",
        }
    }

    /// Where its key is unless something else is said.
    pub(crate) fn usual_key(self) -> Option<&'static str> {
        match self {
            Self::Openai => Some("@env:OPENAI_API_KEY"),
            Self::Anthropic => Some("@env:ANTHROPIC_API_KEY"),
            Self::Azure => Some("@env:AZURE_OPENAI_API_KEY"),
            Self::Openrouter => Some("@env:OPENROUTER_API_KEY"),
            Self::Ollama | Self::Compatible | Self::Scripted => None,
        }
    }

    /// Where it is unless something else is said.
    pub(crate) fn usual_url(self) -> Option<&'static str> {
        match self {
            Self::Ollama => Some("http://127.0.0.1:11434/v1"),
            Self::Openrouter => Some("https://openrouter.ai/api/v1"),
            _ => None,
        }
    }
}

impl ModelSettings {
    /// A model of which nothing else is said.
    pub fn new(provider: Provider, name: impl Into<String>) -> Self {
        Self {
            provider,
            name: Some(name.into()),
            base_url: None,
            api_key: None,
            api_version: None,
            temperature: None,
            max_tokens: None,
            reasoning_effort: None,
            thinking_budget: None,
            headers: BTreeMap::new(),
            secret_headers: BTreeMap::new(),
            price: None,
            stream: None,
            timeout: None,
            extra: Map::new(),
            script: None,
        }
    }
}

/// A model as a text names it.
pub(crate) enum Named<'a> {
    /// One of `models`.
    Alias(&'a str),
    /// A provider's.
    Provided(Provider, &'a str),
    /// That of a provider nobody knows.
    Unknown(&'a str),
}

impl<'a> Named<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        let Some((provider, name)) = text.split_once('/') else { return Self::Alias(text) };
        match Provider::ALL.into_iter().find(|known| known.as_str() == provider) {
            Some(provider) => Self::Provided(provider, name),
            None => Self::Unknown(provider),
        }
    }
}

impl<'de> Deserialize<'de> for ModelSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = ModelSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a model: `provider/name`, the name of one of `models`, or an object")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<ModelSpec, E> {
                Ok(ModelSpec::Reference(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<ModelSpec, A::Error> {
                let settings = ModelSettings::deserialize(MapAccessDeserializer::new(fields))?;
                Ok(ModelSpec::Settings(Box::new(settings)))
            }
        }
        deserializer.deserialize_any(Either)
    }
}
