//! Nodes and the points arrows pass by, as cells that lie in layers and are tied to each other.

use super::super::shape::Shape;
use super::Line;
use super::rank::Ranks;

/// How many points arrows may have in all beyond their first: those that pass many layers of a
/// large graph go around it instead.
const MOST_POINTS: usize = 60_000;
/// How far the first lane is from the side of its node.
const LANE: f64 = 20.0;
/// How far lanes are from each other.
const LANES_APART: f64 = 10.0;
/// How many lanes a node may have; what comes then shares the last.
const MOST_LANES: usize = 24;

/// Cells in layers.
#[derive(Debug)]
pub(super) struct Mesh {
    /// First the nodes, then the points.
    pub(super) cells: Vec<Cell>,
    /// The cells of each layer, from left to right.
    pub(super) layers: Vec<Vec<usize>>,
    /// The way of each line.
    pub(super) ways: Vec<Way>,
    /// How many lanes run up beside each node.
    pub(super) lanes: Vec<usize>,
}

/// A node, or a point an arrow passes by.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) layer: usize,
    /// How far it reaches to the left.
    pub(super) left: f64,
    /// How far it reaches to the right, with the lanes.
    pub(super) right: f64,
    pub(super) height: f64,
    pub(super) is_node: bool,
    pub(super) above: Vec<Tie>,
    pub(super) below: Vec<Tie>,
}

/// What a cell is tied to in the next layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tie {
    pub(super) cell: usize,
    /// How far right of that cell it would like to be.
    pub(super) shift: f64,
    /// How much.
    pub(super) weight: f64,
}

/// The way of a line.
#[derive(Debug)]
pub(super) enum Way {
    /// Down by these points.
    Down(Vec<usize>),
    /// Up by these points, given from top to bottom, and by lanes beside both nodes.
    Up { points: Vec<usize>, out: usize, back: usize },
    /// From a node to itself, by a lane.
    Loop { lane: usize },
    /// Around the drawing.
    Around,
}

impl Mesh {
    pub(super) fn of(shapes: &[Shape], lines: &[Line], ranks: &Ranks) -> Self {
        let depth = ranks.layer.iter().max().map_or(0, |deepest| deepest + 1);
        let nodes = shapes.iter().zip(&ranks.layer).map(|(shape, layer)| Cell {
            layer: *layer,
            left: shape.width / 2.0,
            right: shape.width / 2.0,
            height: shape.full_height(),
            is_node: true,
            above: Vec::new(),
            below: Vec::new(),
        });
        let mut mesh = Self {
            cells: nodes.collect(),
            layers: vec![Vec::new(); depth],
            ways: lines.iter().map(|_| Way::Around).collect(),
            lanes: vec![0; shapes.len()],
        };
        mesh.add_lines(lines, ranks);
        mesh.add_loops(lines);
        for (node, shape) in shapes.iter().enumerate().filter(|(node, _)| mesh.lanes[*node] > 0) {
            let outermost = lane(shape, mesh.lanes[node] - 1);
            mesh.cells[node].right = mesh.cells[node].right.max(outermost);
        }
        mesh.tie(shapes, lines);
        mesh
    }

    /// Gives each line its points: first the short ones, whose lanes are then the inner ones.
    fn add_lines(&mut self, lines: &[Line], ranks: &Ranks) {
        let span = |line: &Line| ranks.layer[line.from].abs_diff(ranks.layer[line.to]);
        let mut numbers: Vec<usize> = (0..lines.len()).filter(|number| span(&lines[*number]) > 0).collect();
        numbers.sort_by_key(|number| span(&lines[*number]));
        let mut left = MOST_POINTS;
        let (mut out, mut back) = (vec![0; self.lanes.len()], vec![0; self.lanes.len()]);
        for number in numbers {
            let line = &lines[number];
            let Some(rest) = left.checked_sub(span(line) - 2) else { break };
            left = rest;
            let is_back = ranks.back[number];
            let (upper, lower) = if is_back { (line.to, line.from) } else { (line.from, line.to) };
            // The label stands next to where the arrow comes from.
            let labelled = if is_back { ranks.layer[lower] - 1 } else { ranks.layer[upper] + 1 };
            let points: Vec<usize> = (ranks.layer[upper] + 1..ranks.layer[lower])
                .map(|layer| self.add_point(layer, line.label.filter(|_| layer == labelled)))
                .collect();
            self.ways[number] = if is_back {
                out[line.from] = (out[line.from] + 1).min(MOST_LANES);
                back[line.to] = (back[line.to] + 1).min(MOST_LANES);
                Way::Up { points, out: out[line.from] - 1, back: back[line.to] - 1 }
            } else {
                Way::Down(points)
            };
        }
        self.lanes = out.iter().zip(&back).map(|(out, back)| *out.max(back)).collect();
    }

    fn add_point(&mut self, layer: usize, label: Option<(f64, f64)>) -> usize {
        let (width, height) = label.unwrap_or((0.0, 0.0));
        let half = width / 2.0;
        let (above, below) = (Vec::new(), Vec::new());
        self.cells.push(Cell { layer, left: half, right: half, height, is_node: false, above, below });
        self.cells.len() - 1
    }

    /// Loops are outside of all other lanes, with their labels beside them.
    fn add_loops(&mut self, lines: &[Line]) {
        for (number, line) in lines.iter().enumerate().filter(|(_, line)| line.from == line.to) {
            let node = line.from;
            self.ways[number] = Way::Loop { lane: self.lanes[node] };
            self.lanes[node] += 1;
            if let Some((width, height)) = line.label {
                let cell = &mut self.cells[node];
                let lanes = LANE + LANES_APART * self.lanes[node] as f64;
                // The left is half of the node's own width.
                cell.right = cell.right.max(cell.left + lanes + width);
                cell.height = cell.height.max(height * 2.0);
            }
        }
    }

    fn tie(&mut self, shapes: &[Shape], lines: &[Line]) {
        let ways = std::mem::take(&mut self.ways);
        let (mut below, mut above) = (vec![0; shapes.len()], vec![0; shapes.len()]);
        for (line, _) in lines.iter().zip(&ways).filter(|(_, way)| matches!(way, Way::Down(_))) {
            below[line.from] += 1;
            above[line.to] += 1;
        }
        for (way, line) in ways.iter().zip(lines) {
            // What simply follows stands straight below.
            let only = below[line.from] == 1 && above[line.to] == 1;
            let ends = match way {
                Way::Down(_) if only => 16.0,
                Way::Down(_) => 1.0,
                _ => 0.3,
            };
            let (points, upper, lower, shifts) = match way {
                Way::Down(points) => (points, line.from, line.to, (0.0, 0.0)),
                Way::Up { points, out, back } => {
                    let shifts = (lane(&shapes[line.to], *back), lane(&shapes[line.from], *out));
                    (points, line.to, line.from, shifts)
                }
                Way::Loop { .. } | Way::Around => continue,
            };
            let mut last = (upper, shifts.0);
            for point in points {
                // Arrows bend rather at their ends than on the way.
                let weight = if self.cells[last.0].is_node { ends } else { 8.0 };
                self.tie_two(last, (*point, 0.0), weight);
                last = (*point, 0.0);
            }
            self.tie_two(last, (lower, shifts.1), ends);
        }
        self.ways = ways;
    }

    /// Ties two cells at a distance from their middles.
    fn tie_two(&mut self, (upper, upper_off): (usize, f64), (lower, lower_off): (usize, f64), weight: f64) {
        let shift = upper_off - lower_off;
        self.cells[upper].below.push(Tie { cell: lower, shift: -shift, weight });
        self.cells[lower].above.push(Tie { cell: upper, shift, weight });
    }
}

/// How far right of the middle of a node a lane runs.
pub(super) fn lane(shape: &Shape, lane: usize) -> f64 {
    shape.width / 2.0 + LANE + LANES_APART * lane as f64
}
