//! Where everything goes: nodes in layers from top to bottom, arrows between them.
//!
//! Nodes lie in the even layers, the labels of arrows in the odd ones. An arrow that passes a layer
//! has a cell of its own there, so it runs through no node and no label: between two layers it may
//! bend, inside one it runs straight down. Nothing here recurses, and nothing is quadratic.

mod mesh;
mod order;
mod place;
mod rank;
mod route;
#[cfg(test)]
mod tests;

use super::shape::Shape;
pub(super) use route::HEAD;

/// The empty rim of a drawing.
pub(super) const MARGIN: f64 = 16.0;

/// An arrow to lay out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) from: usize,
    pub(super) to: usize,
    /// The size of its label.
    pub(super) label: Option<(f64, f64)>,
}

/// A place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
}

/// A piece of the way of an arrow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// Straight on.
    Straight(Point),
    /// A curve, with the two places that bend it.
    Curve(Point, Point, Point),
}

/// The way of an arrow. It ends [`HEAD`] before the node, where its head begins.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) start: Point,
    pub(super) steps: Vec<Step>,
    /// The middle of its label, where there is room for one.
    pub(super) label: Option<Point>,
}

/// Where everything goes.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) width: f64,
    pub(super) height: f64,
    /// The middle of each node.
    pub(super) nodes: Vec<Point>,
    pub(super) routes: Vec<Route>,
}

/// Lays out nodes and arrows; `root` is the node to begin with. Every end of a line must be a node.
pub(super) fn lay_out(shapes: &[Shape], lines: &[Line], root: Option<usize>) -> Layout {
    let ranks = rank::rank(shapes.len(), lines, root);
    let mut mesh = mesh::Mesh::of(shapes, lines, &ranks);
    order::order(&mut mesh);
    let across = place::place(&mesh);
    route::route(shapes, lines, &mesh, &across)
}
