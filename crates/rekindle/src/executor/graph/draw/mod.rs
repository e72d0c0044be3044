//! Drawings of a graph and of the path a run took through it, as Mermaid and as SVG.
//!
//! Ids, descriptions and conditions may hold anything: whatever is drawn goes through [`text`] or
//! the escaping of Mermaid. A graph need not be valid: what names no node is left out.

mod card;
mod layout;
mod legend;
mod mermaid;
mod picture;
mod shape;
mod svg;
#[cfg(test)]
mod tests;
mod text;

use super::{GraphSpec, Visited};
use picture::Picture;

/// What a drawing shows beside the graph itself: where a run has been, and where it is.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Trail<'a> {
    /// The nodes that were completed, in their order.
    pub path: &'a [Visited],
    /// The nodes being worked on, or next.
    pub current: Vec<String>,
    /// The nodes that failed.
    pub failed: Vec<String>,
}

impl<'a> Trail<'a> {
    /// The path of a run.
    pub fn of(path: &'a [Visited]) -> Self {
        Self { path, ..Self::default() }
    }

    /// These nodes are being worked on, or next.
    #[must_use]
    pub fn current<I>(mut self, nodes: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.current.extend(nodes.into_iter().map(Into::into));
        self
    }

    /// These nodes failed.
    #[must_use]
    pub fn failed<I>(mut self, nodes: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.failed.extend(nodes.into_iter().map(Into::into));
        self
    }
}

impl GraphSpec {
    /// A drawing as a Mermaid flowchart, which many pages and editors show. Mermaid itself refuses
    /// more than 500 edges unless it is told otherwise.
    ///
    /// The shape says what a node does: a rectangle is a function or a tool, a stadium an agent, a
    /// box with double sides a plan or a graph, a hexagon waits, a rhombus only chooses. All edges
    /// from one node to another are one arrow, and those for failures a second: the path tells
    /// only those apart.
    ///
    /// ```
    /// use rekindle::graph::{Condition, EdgeSpec, GraphSpec, NodeSpec, Trail};
    /// let graph = GraphSpec {
    ///     name: "essay".into(),
    ///     entry: "draft".into(),
    ///     nodes: vec![NodeSpec::agent("draft", "writer", "Write."), NodeSpec::router("check")],
    ///     edges: vec![
    ///         EdgeSpec::new("draft", "check"),
    ///         EdgeSpec::new("check", "draft").when(Condition::memory("score").less_than(7)),
    ///     ],
    ///     ..GraphSpec::default()
    /// };
    /// let drawing = graph.to_mermaid(&Trail::default().current(["check"]));
    /// assert!(drawing.starts_with("flowchart TD\n"));
    /// assert!(drawing.contains(r#"n0(["draft"])"#));
    /// assert!(drawing.contains(r#"n1 -->|"score #60; 7"| n0"#));
    /// assert!(drawing.contains("class n1 current"));
    /// ```
    pub fn to_mermaid(&self, trail: &Trail<'_>) -> String {
        mermaid::draw(&Picture::of(self, trail))
    }

    /// A drawing as SVG: one text without scripts or anything to load, for light and for dark
    /// pages. It shows the same as [`GraphSpec::to_mermaid`]; what is too long for its place is
    /// shortened, and whole in the tooltip.
    ///
    /// ```
    /// use rekindle::graph::{EdgeSpec, GraphSpec, NodeSpec, Trail};
    /// let graph = GraphSpec {
    ///     name: "a & b".into(),
    ///     entry: "a".into(),
    ///     nodes: vec![NodeSpec::function("a"), NodeSpec::function("b")],
    ///     edges: vec![EdgeSpec::new("a", "b")],
    ///     ..GraphSpec::default()
    /// };
    /// let drawing = graph.to_svg(&Trail::default());
    /// assert!(drawing.starts_with("<svg "));
    /// assert!(drawing.contains("<title>a &amp; b</title>"));
    /// ```
    pub fn to_svg(&self, trail: &Trail<'_>) -> String {
        svg::draw(&Picture::of(self, trail))
    }
}
