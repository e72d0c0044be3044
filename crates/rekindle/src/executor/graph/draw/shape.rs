//! The outlines of nodes: how large they are, and where arrows meet them.

use super::picture::Drawn;
use crate::executor::graph::Work;

/// How thick the bar is where branches part or meet.
pub(super) const BAR: f64 = 5.0;

/// What a node looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outline {
    /// A function or a tool.
    Rectangle,
    /// An agent.
    Stadium,
    /// A plan or a graph.
    DoubleSides,
    /// A wait.
    Hexagon,
    /// A router.
    Rhombus,
    /// The start or the end.
    Dot,
}

/// An outline of some size, around its middle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) outline: Outline,
    pub(super) width: f64,
    pub(super) height: f64,
    /// Whether a bar lies on top of it: branches meet here.
    pub(super) bar_above: bool,
    /// Whether a bar lies below it: branches part here.
    pub(super) bar_below: bool,
}

impl Shape {
    /// The start or the end.
    pub(super) fn dot() -> Self {
        Self { outline: Outline::Dot, width: 16.0, height: 16.0, bar_above: false, bar_below: false }
    }

    /// Large enough for text of this size.
    pub(super) fn around(node: &Drawn<'_>, width: f64, height: f64) -> Self {
        let outline = outline(&node.spec.work);
        let (width, height) = match outline {
            Outline::Rhombus => (width * 1.7 + 24.0, height * 2.4 + 8.0),
            Outline::Stadium | Outline::Hexagon => (width + 44.0, height + 14.0),
            Outline::Rectangle | Outline::DoubleSides | Outline::Dot => (width + 32.0, height + 14.0),
        };
        let bar_below = node.spec.fan_out.is_some();
        Self { outline, width: width.max(72.0), height, bar_above: node.joins, bar_below }
    }

    /// How far from the middle arrows may come in above and go out below.
    pub(super) fn reach(&self) -> f64 {
        match self.outline {
            Outline::Rectangle | Outline::DoubleSides => self.width / 2.0 - 14.0,
            Outline::Stadium | Outline::Hexagon => self.width / 2.0 - self.height / 2.0,
            Outline::Rhombus => self.width / 4.0,
            Outline::Dot => 0.0,
        }
        .max(0.0)
    }

    /// How far above the middle an arrow ends that comes in `off` the middle.
    pub(super) fn top(&self, off: f64) -> f64 {
        if self.bar_above { self.height / 2.0 + BAR } else { self.half_height(off) }
    }

    /// How far below the middle an arrow begins that goes out `off` the middle.
    pub(super) fn bottom(&self, off: f64) -> f64 {
        if self.bar_below { self.height / 2.0 + BAR } else { self.half_height(off) }
    }

    /// How far from the middle the side is, `off` the middle upwards or downwards.
    pub(super) fn side(&self, off: f64) -> f64 {
        let (half, part) = (self.width / 2.0, (2.0 * off.abs() / self.height).min(1.0));
        match self.outline {
            Outline::Rectangle | Outline::DoubleSides | Outline::Dot => half,
            Outline::Stadium => half - self.height / 2.0 * (1.0 - (1.0 - part * part).sqrt()),
            Outline::Hexagon => half - self.inset() * part,
            Outline::Rhombus => half * (1.0 - part),
        }
    }

    /// How much shorter than the middle the top and the bottom of a hexagon are, on each side.
    pub(super) fn inset(&self) -> f64 {
        self.height / 3.0
    }

    /// With the bars, and as much above the middle as below.
    pub(super) fn full_height(&self) -> f64 {
        self.height + if self.bar_above || self.bar_below { 2.0 * BAR } else { 0.0 }
    }

    fn half_height(&self, off: f64) -> f64 {
        let half = self.height / 2.0;
        match self.outline {
            Outline::Rhombus => half * (1.0 - (2.0 * off.abs() / self.width).min(1.0)),
            _ => half,
        }
    }
}

fn outline(work: &Work) -> Outline {
    match work {
        Work::Function { .. } | Work::Tool { .. } => Outline::Rectangle,
        Work::Agent { .. } => Outline::Stadium,
        Work::Plan { .. } | Work::Graph { .. } => Outline::DoubleSides,
        Work::Wait(_) => Outline::Hexagon,
        Work::Router { .. } => Outline::Rhombus,
    }
}
