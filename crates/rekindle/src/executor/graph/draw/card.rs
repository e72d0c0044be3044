//! One node of an SVG drawing: its outline and what stands in it.

use std::fmt::Write as _;

use super::layout::Point;
use super::picture::{Drawn, times};
use super::shape::{BAR, Outline, Shape};
use super::text;

/// The widest text in a node.
const WIDEST: f64 = 190.0;
/// The widest text in a rhombus, where it takes twice the place.
const WIDEST_IN_RHOMBUS: f64 = 120.0;

/// A node, or the start or the end.
pub(super) enum Card<'a> {
    Node { node: &'a Drawn<'a>, shape: Shape, rows: Vec<Row> },
    Start,
    End,
}

/// A line of text in a node.
pub(super) struct Row {
    class: &'static str,
    size: f64,
    text: String,
}

impl Row {
    fn height(&self) -> f64 {
        self.size + 4.0
    }
}

impl<'a> Card<'a> {
    /// A node of the graph.
    pub(super) fn of(node: &'a Drawn<'a>) -> Self {
        let is_router = node.spec.work.kind() == "router";
        let widest = if is_router { WIDEST_IN_RHOMBUS } else { WIDEST };
        let kind = if is_router { "" } else { node.spec.work.kind() };
        let id = text::shorten(&text::clean(&node.spec.id), 14.0, widest);
        let mut rows = vec![Row { class: "rk-kind", size: 10.0, text: kind.to_owned() }];
        rows.push(Row { class: "rk-id", size: 14.0, text: id });
        let about = text::wrap(&text::clean(&node.spec.description), 12.0, widest);
        rows.extend(about.into_iter().map(|text| Row { class: "rk-about", size: 12.0, text }));
        rows.retain(|row| !row.text.is_empty());
        // Bold text is a little wider.
        let width = rows.iter().map(|row| text::width(&row.text, row.size)).fold(0.0, f64::max) * 1.05;
        let height = rows.iter().map(Row::height).sum();
        Self::Node { node, shape: Shape::around(node, width, height), rows }
    }

    pub(super) fn shape(&self) -> Shape {
        match self {
            Self::Node { shape, .. } => *shape,
            Self::Start | Self::End => Shape::dot(),
        }
    }

    /// Writes the node around its middle.
    pub(super) fn draw(&self, svg: &mut String, middle: Point) {
        let (Point { x, y }, radius) = (middle, Shape::dot().width / 2.0);
        // Writing to a string does not fail.
        let _ = match self {
            Self::Node { node, shape, rows } => return draw_node(svg, node, shape, rows, middle),
            Self::Start => {
                writeln!(
                    svg,
                    r#"<g><title>start</title><circle class="rk-dot" cx="{x:.1}" cy="{y:.1}" r="{radius}"/></g>"#
                )
            }
            Self::End => writeln!(
                svg,
                r#"<g><title>end</title><circle class="rk-ring" cx="{x:.1}" cy="{y:.1}" r="{radius}"/><circle class="rk-dot" cx="{x:.1}" cy="{y:.1}" r="{}"/></g>"#,
                radius - 3.5
            ),
        };
    }
}

fn draw_node(svg: &mut String, node: &Drawn<'_>, shape: &Shape, rows: &[Row], middle: Point) {
    let states = [("rk-visited", node.visits > 0), ("rk-failed", node.failed), ("rk-current", node.current)];
    let mut class = "rk-node".to_owned();
    for (state, _) in states.iter().filter(|(_, holds)| *holds) {
        class.push(' ');
        class.push_str(state);
    }
    // Writing to a string does not fail, here and below.
    let _ = writeln!(svg, r#"<g class="{class}"><title>{}</title>"#, text::xml(&tooltip(node)));
    outline(svg, shape, middle);
    bars(svg, shape, middle);
    let mut top = middle.y - rows.iter().map(Row::height).sum::<f64>() / 2.0;
    for row in rows {
        let baseline = top + row.size * 0.86 + 2.0;
        let _ = writeln!(
            svg,
            r#"<text class="{}" x="{:.1}" y="{baseline:.1}">{}</text>"#,
            row.class,
            middle.x,
            text::xml(&row.text)
        );
        top += row.height();
    }
    badge(svg, shape, middle, &times(node.visits));
    svg.push_str("</g>\n");
}

/// Everything about a node, in full.
fn tooltip(node: &Drawn<'_>) -> String {
    let mut parts = vec![format!("{} ({})", text::clean(&node.spec.id), node.spec.work.kind())];
    parts.push(text::clean(&node.spec.description));
    if let Some(join) = &node.spec.fan_out {
        parts.push(format!("follows its edges all at once, until {}", text::clean(join)));
    }
    let states = [
        ("where they meet".to_owned(), node.joins),
        (
            format!("visited {}", if node.visits == 1 { "once".to_owned() } else { format!("{} times", node.visits) }),
            node.visits > 0,
        ),
        ("current".to_owned(), node.current),
        ("failed".to_owned(), node.failed),
    ];
    parts.extend(states.into_iter().filter(|(_, holds)| *holds).map(|(text, _)| text));
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

fn outline(svg: &mut String, shape: &Shape, middle: Point) {
    match shape.outline {
        Outline::Rectangle => rounded(svg, shape, middle, 8.0),
        Outline::Stadium | Outline::Dot => rounded(svg, shape, middle, shape.height / 2.0),
        Outline::DoubleSides => {
            rounded(svg, shape, middle, 3.0);
            let (left, top) = (middle.x - shape.width / 2.0 + 7.0, middle.y - shape.height / 2.0);
            let (right, height) = (left + shape.width - 14.0, shape.height);
            let way = format!("M{left:.1} {top:.1}v{height:.1}M{right:.1} {top:.1}v{height:.1}");
            let _ = writeln!(svg, r#"<path class="rk-shape" d="{way}"/>"#);
        }
        Outline::Hexagon => pointed(svg, shape, middle, shape.inset()),
        Outline::Rhombus => pointed(svg, shape, middle, shape.width / 2.0),
    }
}

fn rounded(svg: &mut String, shape: &Shape, middle: Point, radius: f64) {
    let Shape { width, height, .. } = shape;
    let (left, top) = (middle.x - width / 2.0, middle.y - height / 2.0);
    let _ = writeln!(
        svg,
        r#"<rect class="rk-shape" x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}" rx="{radius:.1}"/>"#
    );
}

/// With a tip on either side.
fn pointed(svg: &mut String, shape: &Shape, Point { x, y }: Point, inset: f64) {
    let (half, rise) = (shape.width / 2.0, shape.height / 2.0);
    let (left, right, top, bottom) = (x - half, x + half, y - rise, y + rise);
    let (from, to) = (left + inset, right - inset);
    let upper = format!("M{left:.1} {y:.1}L{from:.1} {top:.1}L{to:.1} {top:.1}L{right:.1} {y:.1}");
    let _ = writeln!(
        svg,
        r#"<path class="rk-shape" stroke-linejoin="round" d="{upper}L{to:.1} {bottom:.1}L{from:.1} {bottom:.1}Z"/>"#
    );
}

/// The bars where branches part and meet.
fn bars(svg: &mut String, shape: &Shape, middle: Point) {
    let half = shape.reach().max(24.0);
    let h = shape.height / 2.0;
    let tops = [(shape.bar_above, middle.y - h - BAR), (shape.bar_below, middle.y + h)];
    for (_, top) in tops.iter().filter(|(there, _)| *there) {
        let _ = writeln!(
            svg,
            r#"<rect class="rk-bar" x="{:.1}" y="{top:.1}" width="{:.1}" height="{BAR}" rx="2"/>"#,
            middle.x - half,
            half * 2.0
        );
    }
}

/// How often, at the upper right corner.
fn badge(svg: &mut String, shape: &Shape, middle: Point, count: &str) {
    if count.is_empty() {
        return;
    }
    let width = text::width(count, 11.0) + 12.0;
    let up = shape.height / 2.0 * if shape.outline == Outline::Rhombus { 0.55 } else { 1.0 };
    let right = middle.x + shape.side(up * 0.8) + 8.0;
    let _ = writeln!(
        svg,
        r#"<g class="rk-badge"><rect x="{:.1}" y="{:.1}" width="{width:.1}" height="17" rx="8.5"/><text x="{:.1}" y="{:.1}">{count}</text></g>"#,
        right - width,
        middle.y - up - 8.5,
        right - width / 2.0,
        middle.y - up + 4.0
    );
}
