//! Drawings as Mermaid flowcharts.
//!
//! No word of the graph reaches Mermaid unescaped: nodes are numbered, and labels are quoted with
//! every sign that could mean something to Mermaid, Markdown or HTML written as its code.

use std::fmt::Write as _;

use super::picture::{Arrow, ArrowKind, Drawn, Picture, times};
use super::text;
use crate::executor::graph::Work;

/// The longest line of a label, in widths of an `m`.
const WIDEST: f64 = 40.0;

const TAKEN: &str = "stroke:#2563eb,stroke-width:4px";
const FAILURE: &str = "stroke:#dc2626,stroke-dasharray:6 4";
const TAKEN_FAILURE: &str = "stroke:#dc2626,stroke-width:4px,stroke-dasharray:6 4";

/// The flowchart.
pub(super) fn draw(picture: &Picture<'_>) -> String {
    let mut chart = "flowchart TD\n".to_owned();
    let name = text::clean(&picture.spec.name);
    if !name.is_empty() {
        line(&mut chart, &format!("accTitle: {}", label(&name)));
    }
    if picture.entry.is_some() {
        line(&mut chart, r#"start(("start"))"#);
    }
    for (number, node) in picture.nodes.iter().enumerate() {
        let (open, close) = shape(&node.spec.work);
        line(&mut chart, &format!(r#"n{number}{open}"{}"{close}"#, node_label(node)));
    }
    if picture.nodes.iter().any(|node| node.ends) {
        line(&mut chart, r#"finish((("end")))"#);
    }
    let looks = arrows(&mut chart, picture);
    for style in [TAKEN, FAILURE, TAKEN_FAILURE] {
        let numbers = looks.iter().enumerate().filter(|(_, look)| **look == Some(style));
        let numbers: Vec<String> = numbers.map(|(number, _)| number.to_string()).collect();
        if !numbers.is_empty() {
            line(&mut chart, &format!("linkStyle {} {style}", numbers.join(",")));
        }
    }
    classes(&mut chart, picture);
    chart
}

fn line(chart: &mut String, text: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(chart, "    {text}");
}

fn shape(work: &Work) -> (&'static str, &'static str) {
    match work {
        Work::Function { .. } | Work::Tool { .. } => ("[", "]"),
        Work::Agent { .. } => ("([", "])"),
        Work::Plan { .. } | Work::Graph { .. } => ("[[", "]]"),
        Work::Wait(_) => ("{{", "}}"),
        Work::Router { .. } => ("{", "}"),
    }
}

fn node_label(node: &Drawn<'_>) -> String {
    let mut lines = vec![format!("{} {}", text::clean(&node.spec.id), times(node.visits))];
    lines.push(text::clean(&node.spec.description));
    if let Some(join) = &node.spec.fan_out {
        lines.push(format!("all at once, until {}", text::clean(join)));
    }
    if node.joins {
        lines.push("where they meet".to_owned());
    }
    let lines = lines.iter().map(|line| label(line.trim())).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("<br/>")
}

/// Writes the arrows; gives back how each looks if it stands out.
fn arrows(chart: &mut String, picture: &Picture<'_>) -> Vec<Option<&'static str>> {
    let mut looks = Vec::new();
    if let Some(entry) = picture.entry {
        line(chart, &format!("start --> n{entry}"));
        looks.push(picture.has_begun().then_some(TAKEN));
    }
    for arrow in &picture.arrows {
        let Arrow { from, to, .. } = arrow;
        line(chart, &format!("n{from} {}{} n{to}", line_of(arrow.kind), arrow_label(arrow)));
        looks.push(look(arrow));
    }
    for (number, node) in picture.nodes.iter().enumerate().filter(|(_, node)| node.ends) {
        line(chart, &format!("n{number} -->{} finish", quoted(&times(node.ended))));
        looks.push((node.ended > 0).then_some(TAKEN));
    }
    looks
}

fn line_of(kind: ArrowKind) -> &'static str {
    match kind {
        ArrowKind::Success | ArrowKind::Failure => "-->",
        ArrowKind::Else => "-.->",
    }
}

fn arrow_label(arrow: &Arrow) -> String {
    let mark = if arrow.kind == ArrowKind::Failure { "✗ " } else { "" };
    let text = text::shorten(&arrow.label, 1.0, WIDEST);
    quoted(format!("{mark}{text} {}", times(arrow.taken)).trim())
}

fn quoted(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(r#"|"{}"|"#, label(text)) }
}

fn look(arrow: &Arrow) -> Option<&'static str> {
    match (arrow.kind, arrow.taken) {
        (ArrowKind::Failure, 0) => Some(FAILURE),
        (ArrowKind::Failure, _) => Some(TAKEN_FAILURE),
        (_, 0) => None,
        _ => Some(TAKEN),
    }
}

fn classes(chart: &mut String, picture: &Picture<'_>) {
    let mut marks = Vec::new();
    marks.extend(picture.entry.map(|_| "start".to_owned()));
    marks.extend(picture.nodes.iter().any(|node| node.ends).then(|| "finish".to_owned()));
    let of = |holds: fn(&Drawn<'_>) -> bool| -> Vec<String> {
        let numbers = picture.nodes.iter().enumerate().filter(|(_, node)| holds(node));
        numbers.map(|(number, _)| format!("n{number}")).collect()
    };
    let all = [
        ("mark", "fill:#64748b,stroke:#64748b,color:#ffffff", marks),
        (
            "visited",
            "fill:#dbeafe,stroke:#2563eb,color:#0f172a",
            of(|node| node.visits > 0 && !node.current && !node.failed),
        ),
        (
            "current",
            "fill:#fef3c7,stroke:#d97706,color:#0f172a,stroke-width:4px",
            of(|node| node.current && !node.failed),
        ),
        ("failed", "fill:#fee2e2,stroke:#dc2626,color:#0f172a,stroke-width:3px", of(|node| node.failed)),
    ];
    for (class, look, nodes) in all.iter().filter(|(_, _, nodes)| !nodes.is_empty()) {
        line(chart, &format!("classDef {class} {look}"));
        line(chart, &format!("class {} {class}", nodes.join(",")));
    }
}

/// Shortened, with codes for all signs but those between letters that mean nothing to anyone.
fn label(text: &str) -> String {
    let text = text::shorten(text, 1.0, WIDEST);
    let mut escaped = String::with_capacity(text.len());
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let after = rest.peek().copied().unwrap_or(' ');
        if before == '$' && character == '$' {
            // Two of them begin a formula, even as codes.
            escaped.push('\u{200B}');
        }
        if is_plain(before, character, after) {
            escaped.push(character);
        } else {
            // Writing to a string does not fail.
            let _ = write!(escaped, "#{};", u32::from(character));
        }
        before = character;
    }
    escaped
}

/// Whether a character stands for itself, whatever Mermaid makes of the label: it reads Markdown
/// (lists, links, emphasis) even where none was asked for.
fn is_plain(before: char, character: char, after: char) -> bool {
    match character {
        // Mermaid's own signs for codes it has read.
        'ﬂ' | '°' | '¶' => false,
        ' ' | ',' | '?' => true,
        '_' | '-' => before.is_alphanumeric() && after.is_alphanumeric(),
        '.' => before.is_alphabetic() && after == ' ' || before.is_ascii_digit() && after.is_ascii_digit(),
        other => !other.is_ascii() || other.is_ascii_alphanumeric(),
    }
}
