//! What the marks of a trail mean, below an SVG drawing that has one.

use std::fmt::Write as _;

use super::layout::MARGIN;
use super::picture::Picture;
use super::text;

const SIZE: f64 = 11.0;
const SWATCH: f64 = 20.0;

/// The marks that occur in a drawing.
pub(super) struct Legend {
    items: Vec<(Mark, &'static str)>,
}

enum Mark {
    /// A node in this state.
    Node(&'static str),
    /// An arrow that was followed.
    Arrow,
}

impl Legend {
    pub(super) fn of(picture: &Picture<'_>) -> Self {
        let nodes = &picture.nodes;
        let all = [
            (Mark::Node("rk-visited"), "visited", nodes.iter().any(|node| node.visits > 0)),
            (Mark::Arrow, "followed", picture.arrows.iter().any(|arrow| arrow.taken > 0)),
            (Mark::Node("rk-current"), "current", nodes.iter().any(|node| node.current)),
            (Mark::Node("rk-failed"), "failed", nodes.iter().any(|node| node.failed)),
        ];
        let there = all.into_iter().filter(|(_, _, there)| *there);
        Self { items: there.map(|(mark, text, _)| (mark, text)).collect() }
    }

    pub(super) fn width(&self) -> f64 {
        self.items.iter().map(|(_, text)| item_width(text)).sum::<f64>() + MARGIN
    }

    pub(super) fn height(&self) -> f64 {
        if self.items.is_empty() { 0.0 } else { 30.0 }
    }

    /// Writes the legend below `top`.
    pub(super) fn draw(&self, svg: &mut String, top: f64) {
        let (mut x, middle) = (MARGIN, top + 9.0);
        for (mark, text) in &self.items {
            svg.push_str(r#"<g class="rk-legend">"#);
            // Writing to a string does not fail.
            let _ = match mark {
                Mark::Node(state) => write!(
                    svg,
                    r#"<g class="{state}"><rect class="rk-shape" x="{x:.1}" y="{:.1}" width="{SWATCH}" height="12" rx="4"/></g>"#,
                    middle - 6.0
                ),
                Mark::Arrow => {
                    write!(svg, r#"<path class="rk-line rk-taken" d="M{x:.1} {middle:.1}h{SWATCH}"/>"#)
                }
            };
            let _ = writeln!(svg, r#"<text x="{:.1}" y="{:.1}">{text}</text></g>"#, x + SWATCH + 6.0, middle + 4.0);
            x += item_width(text);
        }
    }
}

fn item_width(text: &str) -> f64 {
    SWATCH + 6.0 + text::width(text, SIZE) + 18.0
}
