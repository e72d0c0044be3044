//! What is kept when a run ends.

use rekindle::core::retention::{Policy, Rule};
use rekindle::schemars::{self, JsonSchema};
use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use super::Period;

/// Which checkpoints are kept when a run ends. A checkpoint stays if any of these says so; what is
/// still needed always stays.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetentionSpec {
    /// The newest of each branch.
    #[serde(default)]
    pub latest_only: bool,
    /// The newest so many of each branch.
    pub last: Option<usize>,
    /// Those made within this time, e.g. `7d`.
    pub max_age: Option<Period>,
    /// The newest whose history since fits this many bytes.
    pub max_bytes: Option<u64>,
    /// Those with this tag, or with one of these.
    pub tagged: Option<Tags>,
    /// All.
    #[serde(default)]
    pub full_history: bool,
    /// Whether only checkpoints count on the way to which nothing failed.
    #[serde(default)]
    pub clean_only: bool,
}

/// One tag or several.
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[serde(untagged)]
pub enum Tags {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl RetentionSpec {
    /// As runs take it.
    pub fn policy(&self) -> Policy {
        let tags = match &self.tagged {
            None => Vec::new(),
            Some(Tags::One(tag)) => vec![tag.clone()],
            Some(Tags::Several(tags)) => tags.clone(),
        };
        let rules = [
            self.latest_only.then_some(Rule::LatestOnly),
            self.last.map(Rule::LastN),
            self.max_age.map(|age| Rule::MaxAge(age.0)),
            self.max_bytes.map(Rule::MaxBytes),
            self.full_history.then_some(Rule::FullHistory),
        ];
        let rules = rules.into_iter().flatten().chain(tags.into_iter().map(Rule::Tagged));
        Policy::new(rules).with_clean_only(self.clean_only)
    }
}

impl<'de> Deserialize<'de> for Tags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Tags;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a tag or a list of tags")
            }

            fn visit_str<E: Error>(self, tag: &str) -> Result<Tags, E> {
                Ok(Tags::One(tag.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, tags: A) -> Result<Tags, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(tags)).map(Tags::Several)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
