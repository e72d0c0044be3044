//! Reading trees that come from elsewhere: every step knows where it is, so an error can say so.

use rekindle::{Error, Result};
use serde_json::Value;

/// The most characters of a foreign text an error quotes.
const QUOTED: usize = 40;

/// A value and where it stands.
#[derive(Clone)]
pub(super) struct At<'a> {
    path: String,
    pub(super) value: &'a Value,
}

impl<'a> At<'a> {
    pub(super) fn new(path: &str, value: &'a Value) -> Self {
        Self { path: path.to_owned(), value }
    }

    /// A field; absent and null are the same.
    pub(super) fn get(&self, name: &str) -> Option<At<'a>> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Some(At { path, value })
    }

    /// A field that must be there.
    pub(super) fn need(&self, name: &str) -> Result<At<'a>> {
        if !self.value.is_object() {
            return Err(self.error("is not an object"));
        }
        self.get(name).ok_or_else(|| self.error(format_args!("has no `{name}`")))
    }

    /// A field of text that must be there.
    pub(super) fn need_text(&self, name: &str) -> Result<&'a str> {
        self.need(name)?.text()
    }

    /// A field of text.
    pub(super) fn get_text(&self, name: &str) -> Result<Option<&'a str>> {
        self.get(name).map(|at| at.text()).transpose()
    }

    pub(super) fn text(&self) -> Result<&'a str> {
        self.value.as_str().ok_or_else(|| self.error("is not a string"))
    }

    pub(super) fn items(&self) -> Result<impl Iterator<Item = At<'a>> + use<'a>> {
        let items = self.value.as_array().ok_or_else(|| self.error("is not an array"))?;
        let path = self.path.clone();
        Ok(items.iter().enumerate().map(move |(index, value)| At { path: format!("{path}[{index}]"), value }))
    }

    /// A field of an array; none if it is absent.
    pub(super) fn get_items(&self, name: &str) -> Result<impl Iterator<Item = At<'a>> + use<'a>> {
        let items = self.get(name).map(|at| at.items()).transpose()?;
        Ok(items.into_iter().flatten())
    }

    pub(super) fn error(&self, what: impl std::fmt::Display) -> Error {
        let place = if self.path.is_empty() { "the value" } else { &self.path };
        Error::invalid(format!("{place} {what}"))
    }

    /// An error that quotes the text found here.
    pub(super) fn not_a(&self, what: &str) -> Error {
        let found: String = self.value.as_str().unwrap_or_default().chars().take(QUOTED).collect();
        self.error(format_args!("is not {what}: {found:?}"))
    }
}
