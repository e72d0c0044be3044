//! Layouts keep their promises, whatever the graph.

use super::super::shape::{Outline, Shape};
use super::*;

/// Numbers that look random and are always the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

fn shape(dice: &mut Dice) -> Shape {
    let outlines = [Outline::Rectangle, Outline::Stadium, Outline::DoubleSides, Outline::Hexagon, Outline::Rhombus];
    let outline = outlines[dice.below(outlines.len())];
    let (width, height) = (72.0 + dice.below(200) as f64, 40.0 + dice.below(40) as f64);
    Shape { outline, width, height, bar_above: dice.below(4) == 0, bar_below: dice.below(4) == 0 }
}

fn random(seed: u64, nodes: usize, lines: usize) -> (Vec<Shape>, Vec<Line>) {
    let mut dice = Dice(seed);
    let shapes = (0..nodes).map(|_| shape(&mut dice)).collect();
    let lines = (0..lines).map(|_| {
        let label = (dice.below(2) == 0).then(|| (20.0 + dice.below(150) as f64, 16.0));
        Line { from: dice.below(nodes), to: dice.below(nodes), label }
    });
    (shapes, lines.collect())
}

fn line(from: usize, to: usize) -> Line {
    Line { from, to, label: None }
}

/// Left, top, right and bottom.
type Rect = (f64, f64, f64, f64);

fn around(middle: Point, width: f64, height: f64) -> Rect {
    (middle.x - width / 2.0, middle.y - height / 2.0, middle.x + width / 2.0, middle.y + height / 2.0)
}

fn overlap(one: &Rect, other: &Rect) -> bool {
    // Rounding is no overlap.
    one.0 + 0.1 < other.2 && other.0 + 0.1 < one.2 && one.1 + 0.1 < other.3 && other.1 + 0.1 < one.3
}

/// No two nodes or labels overlap, and all are inside the drawing.
fn check_apart(shapes: &[Shape], lines: &[Line], layout: &Layout) {
    let nodes =
        shapes.iter().zip(&layout.nodes).map(|(shape, middle)| around(*middle, shape.width, shape.full_height()));
    // Loops of one node share a place; the graph itself never has more than two.
    let labels = lines.iter().zip(&layout.routes).filter(|(line, _)| line.from != line.to);
    let labels = labels.filter_map(|(line, route)| Some(around(route.label?, line.label?.0, line.label?.1)));
    let mut rects: Vec<Rect> = nodes.chain(labels).collect();
    rects.sort_by(|one, other| one.1.total_cmp(&other.1));
    for (at, one) in rects.iter().enumerate() {
        assert!(one.0 >= 0.0 && one.1 >= 0.0 && one.2 <= layout.width && one.3 <= layout.height, "{one:?}");
        for other in rects[at + 1..].iter().take_while(|other| other.1 < one.3) {
            assert!(!overlap(one, other), "{one:?} {other:?}");
        }
    }
}

/// Where an arrow is on its way, closely enough.
fn trace(route: &Route) -> Vec<Point> {
    let mut points = vec![route.start];
    let mut at = route.start;
    for step in &route.steps {
        let (one, two, to) = match step {
            Step::Straight(to) => (at, *to, *to),
            Step::Curve(one, two, to) => (*one, *two, *to),
        };
        for part in 1..=20 {
            let t = f64::from(part) / 20.0;
            let s = 1.0 - t;
            let mix = |a: f64, b: f64, c: f64, d: f64| {
                s * s * s * a + 3.0 * s * s * t * b + 3.0 * s * t * t * c + t * t * t * d
            };
            points.push(Point { x: mix(at.x, one.x, two.x, to.x), y: mix(at.y, one.y, two.y, to.y) });
        }
        at = to;
    }
    points
}

/// No step is so short that it points nowhere.
fn check_steps(route: &Route) {
    let mut at = route.start;
    for step in &route.steps {
        let (Step::Straight(to) | Step::Curve(_, _, to)) = *step;
        assert!((to.x - at.x).abs().max((to.y - at.y).abs()) >= 0.2, "{route:?}");
        at = to;
    }
}

/// No arrow runs through a node, not even through those it connects, nor through the label of
/// another.
fn check_clear(shapes: &[Shape], lines: &[Line], layout: &Layout) {
    let labels = lines.iter().zip(&layout.routes).enumerate().filter(|(_, (line, _))| line.from != line.to);
    let labels = labels.filter_map(|(at, (line, route))| {
        let (width, height) = line.label?;
        Some((at, around(route.label?, width, height)))
    });
    let labels: Vec<(usize, Rect)> = labels.collect();
    for (number, route) in layout.routes.iter().enumerate() {
        check_steps(route);
        for point in trace(route) {
            for (shape, middle) in shapes.iter().zip(&layout.nodes) {
                let (across, down) = ((point.x - middle.x).abs(), point.y - middle.y);
                let inside = down.abs() < shape.height / 2.0 - 0.2 && across < shape.side(down) - 0.2;
                assert!(!inside, "{point:?} in {shape:?} at {middle:?}: {route:?}");
            }
            let place = around(point, 0.0, 0.0);
            let hit = labels.iter().find(|(at, label)| *at != number && overlap(&place, label));
            assert!(hit.is_none(), "{hit:?}: {route:?}");
        }
    }
}

#[test]
fn nodes_and_labels_are_apart_and_arrows_run_between_them() {
    for seed in 0..60 {
        let nodes = 1 + seed as usize % 25;
        let (shapes, lines) = random(seed, nodes, seed as usize * 7 % 50);
        let layout = lay_out(&shapes, &lines, Some(0));
        check_apart(&shapes, &lines, &layout);
        check_clear(&shapes, &lines, &layout);
    }
}

#[test]
fn many_lines_back_share_lanes() {
    let (shapes, _) = random(4, 60, 0);
    let label = Some((40.0, 16.0));
    let chain = (1..60).map(|to| line(to - 1, to));
    let back = (1..60).map(|from| Line { from, to: 0, label });
    let lines: Vec<Line> = chain.chain(back).chain([Line { from: 0, to: 0, label }]).collect();
    let layout = lay_out(&shapes, &lines, Some(0));
    check_apart(&shapes, &lines, &layout);
    check_clear(&shapes, &lines, &layout);
}

#[test]
fn every_line_but_those_of_cycles_leads_down() {
    for seed in 0..40 {
        let (shapes, lines) = random(seed, 1 + seed as usize, seed as usize * 3);
        let ranks = rank::rank(shapes.len(), &lines, None);
        let layout = lay_out(&shapes, &lines, None);
        for (number, line) in lines.iter().enumerate().filter(|(_, line)| line.from != line.to) {
            let (from, to) = if ranks.back[number] { (line.to, line.from) } else { (line.from, line.to) };
            assert!(ranks.layer[from] < ranks.layer[to]);
            assert!(layout.nodes[from].y < layout.nodes[to].y);
        }
    }
}

#[test]
fn without_cycles_no_line_leads_back() {
    let lines: Vec<Line> = (0..30).flat_map(|from| (from + 1..30).step_by(3).map(move |to| line(from, to))).collect();
    let ranks = rank::rank(30, &lines, None);
    assert!(ranks.back.iter().all(|back| !back));
    let circle = [line(0, 1), line(1, 2), line(2, 0), line(1, 1)];
    assert_eq!(rank::rank(3, &circle, Some(1)).back, [true, false, false, true]);
}

#[test]
fn a_drawing_of_nothing_is_small() {
    let layout = lay_out(&[], &[], None);
    assert!(layout.width.is_finite() && layout.height.is_finite());
}

#[test]
fn what_is_alone_stands_in_rows() {
    let (shapes, _) = random(1, 600, 0);
    let layout = lay_out(&shapes, &[], None);
    check_apart(&shapes, &[], &layout);
    assert!(layout.width < 2500.0, "{}", layout.width);
}

#[test]
fn lines_that_pass_too_much_go_around() {
    let (shapes, _) = random(2, 2000, 0);
    let mut dice = Dice(3);
    let mut lines: Vec<Line> = (1..2000).map(|to| line(to - 1, to)).collect();
    lines.extend((0..8000).map(|_| line(dice.below(2000), dice.below(2000))));
    let layout = lay_out(&shapes, &lines, Some(0));
    check_apart(&shapes, &lines, &layout);
    let rightmost =
        layout.nodes.iter().zip(&shapes).map(|(node, shape)| node.x + shape.width / 2.0).fold(0.0, f64::max);
    let is_around = |route: &Route| trace(route).iter().any(|point| point.x > rightmost);
    assert!(layout.routes.iter().any(is_around));
}
