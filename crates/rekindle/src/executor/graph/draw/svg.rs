//! Drawings as SVG. All text of the graph passes [`text::clean`] and [`text::xml`].

use std::fmt::Write as _;

use super::card::Card;
use super::layout::{self, HEAD, Layout, Line, Route, Step};
use super::legend::Legend;
use super::picture::{Arrow, ArrowKind, Picture, times};
use super::text;

/// The size of the text of arrows, how wide it may be, and how high a line of it is.
const LABEL: f64 = 11.0;
const LABEL_WIDEST: f64 = 180.0;
const LABEL_HEIGHT: f64 = 16.0;

/// The drawing.
pub(super) fn draw(picture: &Picture<'_>) -> String {
    let scene = Scene::of(picture);
    let shapes: Vec<_> = scene.cards.iter().map(Card::shape).collect();
    let lines: Vec<_> = scene.strokes.iter().map(|stroke| stroke.line).collect();
    let layout = layout::lay_out(&shapes, &lines, scene.root);
    let legend = Legend::of(picture);
    let mut svg = String::new();
    head(&mut svg, picture, layout.width.max(legend.width()), layout.height + legend.height());
    scene.draw(&mut svg, &layout);
    legend.draw(&mut svg, layout.height);
    svg.push_str("</svg>\n");
    svg
}

fn head(svg: &mut String, picture: &Picture<'_>, width: f64, height: f64) {
    let name = text::clean(&picture.spec.name);
    let name = if name.is_empty() { "graph" } else { &name };
    // Writing to a string does not fail, here and below.
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" class="rk-graph" role="img" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}">"#
    );
    let _ = writeln!(svg, "<title>{}</title>", text::xml(name));
    let _ = writeln!(svg, "<desc>{}</desc>", text::xml(&description(picture)));
    let _ = writeln!(svg, "<style>\n{}</style>\n<defs>", include_str!("style.css"));
    for head in ["rk-head", "rk-head-taken", "rk-head-failure"] {
        let _ = writeln!(
            svg,
            r#"<marker id="{head}" markerUnits="userSpaceOnUse" markerWidth="{HEAD}" markerHeight="10" refX="0" refY="5" orient="auto"><path class="{head}" d="M0 0L{HEAD} 5L0 10Z"/></marker>"#
        );
    }
    svg.push_str("</defs>\n<rect class=\"rk-page\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n");
}

/// The drawing in words.
fn description(picture: &Picture<'_>) -> String {
    let names = |holds: fn(&super::picture::Drawn<'_>) -> bool| -> Vec<String> {
        picture.nodes.iter().filter(|node| holds(node)).map(|node| text::clean(&node.spec.id)).collect()
    };
    let mut parts = vec![text::clean(&picture.spec.description)];
    parts.push(format!("Nodes: {}. Edges: {}.", picture.nodes.len(), picture.spec.edges.len()));
    for (word, names) in [
        ("Visited", names(|node| node.visits > 0)),
        ("Current", names(|node| node.current)),
        ("Failed", names(|node| node.failed)),
    ] {
        if !names.is_empty() {
            parts.push(format!("{word}: {}.", names.join(", ")));
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join(" ")
}

/// What is drawn: the nodes and arrows of the graph, the start and the ends.
struct Scene<'a> {
    cards: Vec<Card<'a>>,
    strokes: Vec<Stroke>,
    root: Option<usize>,
}

/// An arrow and how it looks.
struct Stroke {
    line: Line,
    kind: ArrowKind,
    taken: bool,
    /// What stands beside it.
    label: String,
    /// What its tooltip says.
    title: String,
}

impl Stroke {
    fn plain(from: usize, to: usize, taken: u64) -> Self {
        Self::new(from, to, ArrowKind::Success, "", taken)
    }

    fn of(arrow: &Arrow) -> Self {
        Self::new(arrow.from, arrow.to, arrow.kind, &arrow.label, arrow.taken)
    }

    fn new(from: usize, to: usize, kind: ArrowKind, text: &str, taken: u64) -> Self {
        let mark = if kind == ArrowKind::Failure { "✗ " } else { "" };
        let short = text::shorten(text, LABEL, LABEL_WIDEST);
        let label = format!("{mark}{short} {}", times(taken)).trim().to_owned();
        let title = format!("{text} {}", times(taken)).trim().to_owned();
        let size = (!label.is_empty()).then(|| (text::width(&label, LABEL) + 10.0, LABEL_HEIGHT));
        Self { line: Line { from, to, label: size }, kind, taken: taken > 0, label, title }
    }

    fn classes(&self) -> (&'static str, &'static str) {
        match (self.kind, self.taken) {
            (ArrowKind::Success, false) => ("rk-line", "rk-head"),
            (ArrowKind::Success, true) => ("rk-line rk-taken", "rk-head-taken"),
            (ArrowKind::Else, false) => ("rk-line rk-else", "rk-head"),
            (ArrowKind::Else, true) => ("rk-line rk-else rk-taken", "rk-head-taken"),
            (ArrowKind::Failure, false) => ("rk-line rk-failure", "rk-head-failure"),
            (ArrowKind::Failure, true) => ("rk-line rk-failure rk-taken", "rk-head-failure"),
        }
    }

    fn draw(&self, svg: &mut String, route: &Route) {
        let (class, head) = self.classes();
        let way = way(route);
        let title =
            if self.title.is_empty() { String::new() } else { format!("<title>{}</title>", text::xml(&self.title)) };
        let _ = writeln!(svg, r#"<path class="{class}" d="{way}" marker-end="url(#{head})">{title}</path>"#);
    }

    fn draw_label(&self, svg: &mut String, route: &Route) {
        let (Some(middle), Some((width, height))) = (route.label, self.line.label) else { return };
        let strong = if self.taken { " rk-strong" } else { "" };
        let _ = writeln!(
            svg,
            r#"<g><title>{}</title><rect class="rk-halo" x="{:.1}" y="{:.1}" width="{width:.1}" height="{height:.1}" rx="4"/><text class="rk-label{strong}" x="{:.1}" y="{:.1}">{}</text></g>"#,
            text::xml(&self.title),
            middle.x - width / 2.0,
            middle.y - height / 2.0,
            middle.x,
            middle.y + LABEL * 0.36,
            text::xml(&self.label)
        );
    }
}

impl<'a> Scene<'a> {
    fn of(picture: &'a Picture<'a>) -> Self {
        let mut scene = Self {
            cards: picture.nodes.iter().map(Card::of).collect(),
            strokes: picture.arrows.iter().map(Stroke::of).collect(),
            root: None,
        };
        if let Some(entry) = picture.entry {
            scene.root = Some(scene.cards.len());
            scene.strokes.push(Stroke::plain(scene.cards.len(), entry, u64::from(picture.has_begun())));
            scene.cards.push(Card::Start);
        }
        for (number, node) in picture.nodes.iter().enumerate().filter(|(_, node)| node.ends) {
            scene.strokes.push(Stroke::plain(number, scene.cards.len(), node.ended));
            scene.cards.push(Card::End);
        }
        scene
    }

    /// What was followed lies over what was not, and the labels over all arrows.
    fn draw(&self, svg: &mut String, layout: &Layout) {
        for taken in [false, true] {
            for (stroke, route) in self.strokes.iter().zip(&layout.routes).filter(|(stroke, _)| stroke.taken == taken) {
                stroke.draw(svg, route);
            }
        }
        for (card, middle) in self.cards.iter().zip(&layout.nodes) {
            card.draw(svg, *middle);
        }
        for (stroke, route) in self.strokes.iter().zip(&layout.routes) {
            stroke.draw_label(svg, route);
        }
    }
}

fn way(route: &Route) -> String {
    let mut way = format!("M{:.1} {:.1}", route.start.x, route.start.y);
    for step in &route.steps {
        let _ = match step {
            Step::Straight(to) => write!(way, "L{:.1} {:.1}", to.x, to.y),
            Step::Curve(one, two, to) => {
                write!(way, "C{:.1} {:.1} {:.1} {:.1} {:.1} {:.1}", one.x, one.y, two.x, two.y, to.x, to.y)
            }
        };
    }
    way
}
