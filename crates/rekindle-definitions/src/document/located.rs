//! The places of all values and keys of a file, by their JSON Pointers.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::source::{Source, Span};
use super::tree::{Content, Node};
use crate::fault::{Faults, Gathered, short};

/// Where a value stands, and the key before it.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub(super) key: Option<Span>,
    pub(super) value: Span,
}

impl Place {
    pub(super) fn key_or_value(&self) -> Span {
        self.key.clone().unwrap_or_else(|| self.value.clone())
    }
}

/// The places of a file.
#[derive(Debug, Default)]
pub(super) struct Places(HashMap<String, Place>);

impl Places {
    /// The place of what stands at `pointer`, or of what is around it.
    pub(super) fn nearest<'a>(&self, pointer: &'a str) -> (&'a str, Place) {
        let mut at = pointer;
        loop {
            if let Some(place) = self.0.get(at) {
                return (at, place.clone());
            }
            match at.rfind('/') {
                Some(end) => at = &at[..end],
                None => return (at, Place::default()),
            }
        }
    }
}

/// The value of a tree, and the places of everything in it. A key given twice is a fault.
pub(super) fn locate(tree: Node, source: &Source) -> Result<(Value, Places), Faults> {
    let mut walk = Walk { source, places: Places::default(), faults: Gathered::default() };
    let value = walk.visit(tree, String::new(), None);
    walk.faults.settle()?;
    Ok((value, walk.places))
}

struct Walk<'a> {
    source: &'a Source,
    places: Places,
    faults: Gathered,
}

impl Walk<'_> {
    fn visit(&mut self, node: Node, pointer: String, key: Option<Span>) -> Value {
        let value = match node.content {
            Content::Scalar(value) => value,
            Content::List(items) => {
                let items = items.into_iter().enumerate();
                Value::Array(items.map(|(at, item)| self.visit(item, format!("{pointer}/{at}"), None)).collect())
            }
            Content::Map(entries) => self.visit_entries(entries, &pointer),
        };
        self.places.0.insert(pointer, Place { key, value: node.span });
        value
    }

    fn visit_entries(&mut self, entries: Vec<(super::tree::Key, Node)>, pointer: &str) -> Value {
        let mut fields = Map::new();
        let mut first: HashMap<String, usize> = HashMap::new();
        for (key, node) in entries {
            if let Some(earlier) = first.get(&key.name) {
                if self.faults.is_full() {
                    continue;
                }
                let fault = self.source.fault(&key.span, format!("the key `{}` is given twice", short(&key.name)));
                self.faults.add(fault.with_hint(format!("it is first given in line {}", earlier + 1)));
                continue;
            }
            first.insert(key.name.clone(), self.source.line_of(key.span.start));
            let value = self.visit(node, child(pointer, &key.name), Some(key.span));
            fields.insert(key.name, value);
        }
        Value::Object(fields)
    }
}

/// The pointer of the field `name` of what stands at `pointer`.
pub(crate) fn child(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// A pointer as people write it: `steps[3].dependencies[0]`.
pub(crate) fn path_of(pointer: &str) -> String {
    let mut path = String::new();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            path.push_str(&format!("[{part}]"));
            continue;
        }
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(&part);
    }
    path
}
