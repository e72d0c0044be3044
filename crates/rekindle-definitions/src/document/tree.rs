//! What every format is first read into: values with their places, and the limits they must keep.

use serde_json::Value;

use super::source::{Source, Span};
use crate::fault::{Fault, Faults};

/// How deeply lists and objects may nest.
pub(super) const DEEPEST: usize = 64;
/// How many values a file may hold, aliases written out.
pub(super) const MOST: usize = 200_000;

/// A value with its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) span: Span,
    pub(super) content: Content,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// A key with its place.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) span: Span,
}

impl Node {
    pub(super) fn scalar(value: Value, span: Span) -> Self {
        Self { span, content: Content::Scalar(value) }
    }

    /// How many values it holds, itself included, and how deeply they nest.
    pub(super) fn measure(&self) -> (usize, usize) {
        let over = |inner: &mut dyn Iterator<Item = &Self>| {
            inner.fold((1, 0), |(count, height), node| {
                let (more, below) = node.measure();
                (count + more, height.max(below))
            })
        };
        match &self.content {
            Content::Scalar(_) => (1, 0),
            Content::List(items) => {
                let (count, height) = over(&mut items.iter());
                (count, height + 1)
            }
            Content::Map(entries) => {
                let (count, height) = over(&mut entries.iter().map(|(_, node)| node));
                (count, height + 1)
            }
        }
    }
}

/// Counts values while they are read.
#[derive(Debug, Default)]
pub(super) struct Count(usize);

impl Count {
    pub(super) fn add(&mut self, values: usize, source: &Source, span: &Span) -> Result<(), Faults> {
        self.0 = self.0.saturating_add(values);
        match self.0 > MOST {
            true => Err(source.fault(span, format!("the file holds more than {MOST} values")).into()),
            false => Ok(()),
        }
    }
}

/// The fault of something that nests too deeply.
pub(super) fn too_deep(source: &Source, span: &Span) -> Fault {
    source.fault(&(span.start..span.start + 1), format!("this nests more than {DEEPEST} levels deep"))
}
