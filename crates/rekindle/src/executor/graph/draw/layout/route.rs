//! The ways of arrows, once every cell has its place.

use super::super::shape::{Outline, Shape};
use super::mesh::{Mesh, Way, lane};
use super::{Layout, Line, MARGIN, Point, Route, Step};

/// How long the head of an arrow is.
pub(crate) const HEAD: f64 = 8.0;
/// How far from each other arrows leave a node, if there is room.
const PORTS_APART: f64 = 22.0;
/// How round arrows turn into a lane.
const TURN: f64 = 14.0;
/// The least and the most room between two layers.
const GAP: (f64, f64) = (22.0, 56.0);
/// How many lanes there are around the drawing, and how far apart.
const AROUND: (usize, f64) = (100, 8.0);

/// The top and the bottom of a layer.
type Band = (f64, f64);

/// Gives every node its place and every line its way.
pub(super) fn route(shapes: &[Shape], lines: &[Line], mesh: &Mesh, across: &[f64]) -> Layout {
    let bands = bands(mesh, across);
    let nodes: Vec<Point> = (0..shapes.len())
        .map(|node| {
            let (top, bottom) = bands[mesh.cells[node].layer];
            Point { x: across[node], y: (top + bottom) / 2.0 }
        })
        .collect();
    let right = mesh.cells.iter().zip(across).map(|(cell, x)| x + cell.right).fold(0.0, f64::max);
    let ports = ports(shapes, lines, mesh, across);
    let router = Router { shapes, mesh, across, bands: &bands, nodes: &nodes, right };
    let routes: Vec<Route> =
        lines.iter().zip(ports).enumerate().map(|(number, (line, ports))| router.route(number, line, ports)).collect();
    let is_around = mesh.ways.iter().any(|way| matches!(way, Way::Around));
    let lanes = if is_around { (AROUND.0 + 1) as f64 * AROUND.1 } else { 0.0 };
    let height = bands.last().map_or(0.0, |band| band.1) + MARGIN;
    Layout { width: right + lanes + MARGIN, height, nodes, routes }
}

/// The layers from top to bottom: the further arrows go across, the more room between them.
fn bands(mesh: &Mesh, across: &[f64]) -> Vec<Band> {
    let mut top = MARGIN;
    let mut bands = Vec::with_capacity(mesh.layers.len());
    for layer in &mesh.layers {
        let height = layer.iter().map(|cell| mesh.cells[*cell].height).fold(0.0, f64::max);
        let ties = layer.iter().flat_map(|cell| mesh.cells[*cell].below.iter().map(|tie| (*cell, tie)));
        let widest = ties.map(|(cell, tie)| (across[cell] - across[tie.cell] - tie.shift).abs()).fold(0.0, f64::max);
        bands.push((top, top + height));
        top += height + (GAP.0 + widest * 0.08).min(GAP.1);
    }
    bands
}

/// How far from the middle each line leaves its upper node and reaches its lower one.
fn ports(shapes: &[Shape], lines: &[Line], mesh: &Mesh, across: &[f64]) -> Vec<(f64, f64)> {
    let mut below: Vec<Vec<(f64, usize)>> = vec![Vec::new(); shapes.len()];
    let mut above = below.clone();
    for (number, line) in lines.iter().enumerate() {
        if let Way::Down(points) = &mesh.ways[number]
            && let (Some(first), Some(last)) = (points.first(), points.last())
        {
            below[line.from].push((across[*first], number));
            above[line.to].push((across[*last], number));
        }
    }
    let mut ports = vec![(0.0, 0.0); lines.len()];
    for (node, shape) in shapes.iter().enumerate() {
        for (number, off) in side_by_side(shape, across[node], &mut below[node]) {
            ports[number].0 = off;
        }
        for (number, off) in side_by_side(shape, across[node], &mut above[node]) {
            ports[number].1 = off;
        }
    }
    ports
}

/// Straight below or above the next point where that can be, else not far from the middle.
fn side_by_side(shape: &Shape, middle: f64, ends: &mut [(f64, usize)]) -> Vec<(usize, f64)> {
    ends.sort_by(|one, other| one.0.total_cmp(&other.0));
    // A single arrow meets a rhombus at its tip.
    let reach = if ends.len() == 1 && shape.outline == Outline::Rhombus { 0.0 } else { shape.reach() };
    let after = |at: usize| (ends.len() - 1 - at) as f64;
    let apart = if ends.len() > 1 { (2.0 * reach / after(0)).min(PORTS_APART) } else { 0.0 };
    let mut ports: Vec<(usize, f64)> = Vec::with_capacity(ends.len());
    for (at, (x, number)) in ends.iter().enumerate() {
        let off = x - middle;
        let wish = if off.abs() <= reach { off } else { (reach / 2.0).copysign(off) };
        let least = ports.last().map_or(-reach, |last| last.1 + apart);
        ports.push((*number, wish.max(least).min(reach - after(at) * apart)));
    }
    ports
}

struct Router<'a> {
    shapes: &'a [Shape],
    mesh: &'a Mesh,
    across: &'a [f64],
    bands: &'a [Band],
    nodes: &'a [Point],
    /// The right end of all nodes and labels.
    right: f64,
}

impl Router<'_> {
    fn route(&self, number: usize, line: &Line, ports: (f64, f64)) -> Route {
        let mut route = match &self.mesh.ways[number] {
            Way::Down(points) => self.down(line, points, ports),
            Way::Up { points, out, back } => self.up(line, points, *out, *back),
            Way::Loop { lane } => self.turn(line, *lane),
            Way::Around => self.around(line, number % AROUND.0),
        };
        route.label = route.label.filter(|_| line.label.is_some());
        route
    }

    fn down(&self, line: &Line, points: &[usize], ports: (f64, f64)) -> Route {
        let (from, to) = (self.nodes[line.from], self.nodes[line.to]);
        let start = Point { x: from.x + ports.0, y: from.y + self.shapes[line.from].bottom(ports.0) };
        let end = Point { x: to.x + ports.1, y: to.y - self.shapes[line.to].top(ports.1) - HEAD };
        let mut pen = Pen::at(start);
        pen.straight(Point { x: start.x, y: self.band(line.from).1.max(start.y) });
        for point in self.in_the_way(points) {
            let (top, bottom) = self.band(*point);
            let x = self.across[*point];
            pen.bend(Point { x, y: top });
            pen.straight(Point { x, y: bottom });
        }
        pen.bend(Point { x: end.x, y: (self.band(line.to).0 - HEAD).min(end.y) });
        pen.straight(end);
        pen.route(start, points.first().map(|point| self.middle(*point)))
    }

    fn up(&self, line: &Line, points: &[usize], out: usize, back: usize) -> Route {
        let (begin, turn_out) = self.side(line.from, out, -1.0);
        let (end, turn_in) = self.side(line.to, back, 1.0);
        let mut pen = Pen::at(begin);
        pen.turn(Point { x: turn_out.x, y: begin.y }, turn_out);
        pen.straight(Point { x: turn_out.x, y: self.band(line.from).0.min(turn_out.y) });
        for point in self.in_the_way(points).rev() {
            let (top, bottom) = self.band(*point);
            let x = self.across[*point];
            pen.bend(Point { x, y: bottom });
            pen.straight(Point { x, y: top });
        }
        pen.bend(Point { x: turn_in.x, y: self.band(line.to).1.max(turn_in.y) });
        pen.straight(turn_in);
        pen.turn(Point { x: turn_in.x, y: end.y }, Point { x: end.x + HEAD, y: end.y });
        pen.route(begin, points.last().map(|point| self.middle(*point)))
    }

    /// From a node back to itself.
    fn turn(&self, line: &Line, number: usize) -> Route {
        let (begin, turn_out) = self.side(line.from, number, -1.0);
        let (end, _) = self.side(line.from, number, 1.0);
        let node = self.nodes[line.from];
        let mut pen = Pen::at(begin);
        let x = turn_out.x;
        pen.turn(Point { x, y: begin.y }, Point { x, y: node.y });
        pen.turn(Point { x, y: end.y }, Point { x: end.x + HEAD, y: end.y });
        let outermost = lane(&self.shapes[line.from], self.mesh.lanes[line.from] - 1);
        // Two loops are the most there can be: after a success, and after a failure.
        let row = (self.mesh.lanes[line.from] - 1 - number) as f64;
        let label = line
            .label
            .map(|(width, height)| Point { x: node.x + outermost + width / 2.0 + 4.0, y: node.y - row * height });
        pen.route(begin, label)
    }

    /// Around the right side of the drawing, between the layers.
    fn around(&self, line: &Line, number: usize) -> Route {
        let (from, to) = (self.nodes[line.from], self.nodes[line.to]);
        let start = Point { x: from.x, y: from.y + self.shapes[line.from].bottom(0.0) };
        let end = Point { x: to.x, y: to.y - self.shapes[line.to].top(0.0) - HEAD };
        let x = self.right + (number + 1) as f64 * AROUND.1;
        let below = self.band(line.from).1 + GAP.0 / 2.0;
        let above = self.band(line.to).0 - GAP.0 / 2.0;
        let mut pen = Pen::at(start);
        pen.straight(Point { x: start.x, y: below });
        pen.straight(Point { x, y: below });
        pen.straight(Point { x, y: above });
        pen.straight(Point { x: end.x, y: above });
        pen.straight(end);
        pen.route(start, None)
    }

    /// Where a lane begins at the side of a node, and where it has turned up (`-1`) or down (`1`).
    fn side(&self, node: usize, number: usize, way: f64) -> (Point, Point) {
        let (shape, middle) = (&self.shapes[node], self.nodes[node]);
        let outside = self.mesh.lanes[node].saturating_sub(1);
        let apart = ((shape.height / 2.0 - 14.0) / outside.max(1) as f64).clamp(0.0, 8.0);
        let off = way * (8.0 + apart * outside.saturating_sub(number) as f64);
        let begin = Point { x: middle.x + shape.side(off), y: middle.y + off };
        (begin, Point { x: middle.x + lane(shape, number), y: begin.y + way * TURN })
    }

    /// The points in layers that have anything in them.
    fn in_the_way<'p>(&self, points: &'p [usize]) -> impl DoubleEndedIterator<Item = &'p usize> {
        points.iter().filter(|point| self.band(**point).1 > self.band(**point).0)
    }

    fn band(&self, cell: usize) -> Band {
        self.bands[self.mesh.cells[cell].layer]
    }

    fn middle(&self, cell: usize) -> Point {
        let (top, bottom) = self.band(cell);
        Point { x: self.across[cell], y: (top + bottom) / 2.0 }
    }
}

/// Draws the steps of one arrow.
struct Pen {
    at: Point,
    steps: Vec<Step>,
}

impl Pen {
    fn at(start: Point) -> Self {
        Self { at: start, steps: Vec::new() }
    }

    fn straight(&mut self, to: Point) {
        // A piece that is written as no piece at all would turn the head of the arrow.
        if (to.x - self.at.x).abs().max((to.y - self.at.y).abs()) >= 0.2 {
            self.steps.push(Step::Straight(to));
            self.at = to;
        }
    }

    /// Upright at both ends.
    fn bend(&mut self, to: Point) {
        if (to.x - self.at.x).abs() < 1.5 {
            return self.straight(to);
        }
        let middle = (self.at.y + to.y) / 2.0;
        self.steps.push(Step::Curve(Point { x: self.at.x, y: middle }, Point { x: to.x, y: middle }, to));
        self.at = to;
    }

    /// Round a corner.
    fn turn(&mut self, corner: Point, to: Point) {
        self.steps.push(Step::Curve(corner, corner, to));
        self.at = to;
    }

    fn route(self, start: Point, label: Option<Point>) -> Route {
        Route { start, steps: self.steps, label }
    }
}
