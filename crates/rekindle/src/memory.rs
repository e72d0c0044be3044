//! The session's memory as one call sees it: which of its keys, and through which layers.

use rekindle_core::record::RegisterSet;
use rekindle_core::{Error, Json, Record, Result, State};

use crate::driver::{MEMORY, register};
use crate::secret::{names, not_given};

pub(crate) use crate::secret::is_redacted;

/// The memory as one call sees it. What is written goes into the first layer; what is read comes
/// from the first layer that has it.
#[derive(Clone, Debug)]
pub(crate) struct MemoryView {
    layers: Vec<String>,
    allowed: Option<Allowed>,
}

/// What a node has declared.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    pub(crate) node: String,
    pub(crate) reads: Vec<String>,
    pub(crate) writes: Vec<String>,
}

impl Default for MemoryView {
    /// All of the session's memory.
    fn default() -> Self {
        Self { layers: vec![MEMORY.to_owned()], allowed: None }
    }
}

impl MemoryView {
    /// What a node may see, through `layers` of its own above the session's memory.
    pub(crate) fn of_node(mut layers: Vec<String>, allowed: Allowed) -> Self {
        layers.push(MEMORY.to_owned());
        Self { layers, allowed: Some(allowed) }
    }

    /// The same with one more layer on top.
    pub(crate) fn under(&self, layer: String) -> Self {
        let mut layers = self.layers.clone();
        layers.insert(0, layer);
        Self { layers, allowed: self.allowed.clone() }
    }

    /// A key, if it may be read.
    pub(crate) fn read(&self, state: &State, key: &str) -> Result<Option<Json>> {
        self.check_read(key)?;
        self.check_given(state, key)?;
        Ok(self.look(state, key))
    }

    /// A key, whoever asks; nothing if it holds a secret that was not given again.
    pub(crate) fn look(&self, state: &State, key: &str) -> Option<Json> {
        self.raw(state, key).filter(|value| !is_redacted(value)).cloned()
    }

    /// An error if the key holds a secret that was not given again after a restart.
    pub(crate) fn check_given(&self, state: &State, key: &str) -> Result<()> {
        match self.raw(state, key).filter(|value| is_redacted(value)) {
            Some(marked) => Err(not_given(&format!("memory key `{key}`"), &names(&marked.to_value()?))),
            None => Ok(()),
        }
    }

    fn raw<'a>(&self, state: &'a State, key: &str) -> Option<&'a Json> {
        self.layers.iter().find_map(|layer| state.register(&format!("{layer}{key}")))
    }

    /// The record that sets a key, if it may be written.
    pub(crate) fn write(&self, key: &str, value: Json) -> Result<Record> {
        self.check_write(key)?;
        let layer = self.layers.first().map_or(MEMORY, String::as_str);
        Ok(RegisterSet::new(register(&format!("{layer}{key}"))?, value).into())
    }

    fn check_read(&self, key: &str) -> Result<()> {
        match &self.allowed {
            // What one may write, one may also read back.
            Some(allowed) if !matches_any(&allowed.reads, key) && !matches_any(&allowed.writes, key) => {
                Err(undeclared(&allowed.node, "reads", key))
            }
            _ => Ok(()),
        }
    }

    /// An error if the key may not be written.
    pub(crate) fn check_write(&self, key: &str) -> Result<()> {
        match &self.allowed {
            Some(allowed) if !matches_any(&allowed.writes, key) => Err(undeclared(&allowed.node, "writes", key)),
            _ => Ok(()),
        }
    }
}

fn undeclared(node: &str, does: &str, key: &str) -> Error {
    Error::invalid(format!("node `{node}` {does} memory key `{key}`, which it does not declare"))
        .hint(format!("add `{key}` to its `{does}`"))
}

/// Whether `key` is one of those declared: by name, or by a beginning that ends in `*`. A `?` at
/// the end says that the key may be missing.
pub(crate) fn matches_any(declared: &[String], key: &str) -> bool {
    declared.iter().any(|name| match name.strip_suffix('*') {
        Some(beginning) => key.starts_with(beginning),
        None => name.strip_suffix('?').unwrap_or(name) == key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_declared_by_name_or_beginning() {
        let declared = ["topic".to_owned(), "page_*".to_owned(), "hint?".to_owned()];
        for (key, expected) in [("topic", true), ("topics", false), ("page_1", true), ("page", false), ("hint", true)] {
            assert_eq!(matches_any(&declared, key), expected, "{key}");
        }
    }

    #[test]
    fn layers_cover_each_other_and_take_what_is_written() {
        let allowed = Allowed { node: "n".into(), reads: vec!["a".into()], writes: vec!["b".into()] };
        let view = MemoryView::of_node(vec!["overlay/0.1/".into()], allowed);
        let mut state = State::default();
        for (key, value) in [("memory/a", "1"), ("memory/b", "2"), ("memory/c", "3")] {
            state.apply(&RegisterSet::new(register(key).unwrap(), Json::parse(value).unwrap()).into()).unwrap();
        }
        assert_eq!(view.read(&state, "a").unwrap().unwrap().as_str(), "1");
        state.apply(&view.write("b", Json::parse("9").unwrap()).unwrap()).unwrap();
        assert_eq!(view.read(&state, "b").unwrap().unwrap().as_str(), "9");
        assert_eq!(state.register("memory/b").unwrap().as_str(), "2");
        assert!(view.read(&state, "c").unwrap_err().to_string().contains("`n` reads memory key `c`"));
        assert!(view.write("a", Json::null()).unwrap_err().to_string().contains("`n` writes memory key `a`"));
    }
}
