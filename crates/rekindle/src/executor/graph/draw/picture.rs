//! What is to be drawn, whatever the form: nodes by number, edges between them, and the trail
//! counted up on both.

use std::collections::{HashMap, HashSet};

use super::super::{Condition, EdgeSpec, GraphSpec, NodeSpec, Visited};
use super::{Trail, text};

/// A graph and a trail, with numbers instead of names.
pub(super) struct Picture<'a> {
    pub(super) spec: &'a GraphSpec,
    pub(super) nodes: Vec<Drawn<'a>>,
    pub(super) arrows: Vec<Arrow>,
    /// The node it begins with, if there is one of that name.
    pub(super) entry: Option<usize>,
}

/// A node.
pub(super) struct Drawn<'a> {
    pub(super) spec: &'a NodeSpec,
    /// How often it was completed.
    pub(super) visits: u64,
    pub(super) current: bool,
    pub(super) failed: bool,
    /// Whether branches that ran at the same time meet here.
    pub(super) joins: bool,
    /// Whether nothing comes after it, though something leads here.
    pub(super) ends: bool,
    /// How often the path ended here.
    pub(super) ended: u64,
}

/// All edges from one node to another that the path cannot tell apart.
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kind: ArrowKind,
    /// When it is followed; empty for always.
    pub(super) label: String,
    /// How often it was followed.
    pub(super) taken: u64,
}

/// When an arrow is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArrowKind {
    /// After a success, perhaps on a condition.
    Success,
    /// If no other holds.
    Else,
    /// After a failure.
    Failure,
}

/// The arrows by where they come from, where they lead, and whether they are for failures.
type Numbers = HashMap<(usize, usize, bool), usize>;

impl<'a> Picture<'a> {
    pub(super) fn of(spec: &'a GraphSpec, trail: &Trail<'_>) -> Self {
        let mut ids: HashMap<&str, usize> = HashMap::new();
        for (number, node) in spec.nodes.iter().enumerate() {
            ids.entry(&node.id).or_insert(number);
        }
        let (arrows, numbers) = arrows(spec, &ids);
        let entry = ids.get(spec.entry.as_str()).copied();
        let mut picture = Self { spec, nodes: nodes(spec, &ids, &arrows, entry), arrows, entry };
        for visited in trail.path {
            picture.count(visited, &ids, &numbers);
        }
        for number in trail.current.iter().filter_map(|id| ids.get(id.as_str())) {
            picture.nodes[*number].current = true;
        }
        for number in trail.failed.iter().filter_map(|id| ids.get(id.as_str())) {
            picture.nodes[*number].failed = true;
        }
        picture
    }

    /// Whether the run has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.entry.is_some_and(|entry| {
            let node = &self.nodes[entry];
            node.visits > 0 || node.current || node.failed
        })
    }

    fn count(&mut self, visited: &Visited, ids: &HashMap<&str, usize>, numbers: &Numbers) {
        let Some(&from) = ids.get(visited.node.as_str()) else { return };
        self.nodes[from].visits += 1;
        self.nodes[from].ended += u64::from(visited.next.is_empty());
        let failed = visited.error.is_some();
        for to in visited.next.iter().filter_map(|id| ids.get(id.as_str())) {
            let number = numbers.get(&(from, *to, failed)).or_else(|| numbers.get(&(from, *to, !failed)));
            if let Some(number) = number {
                self.arrows[*number].taken += 1;
            }
        }
    }
}

/// `×3`, or nothing if once is all.
pub(super) fn times(count: u64) -> String {
    if count > 1 { format!("×{count}") } else { String::new() }
}

fn nodes<'a>(
    spec: &'a GraphSpec,
    ids: &HashMap<&str, usize>,
    arrows: &[Arrow],
    entry: Option<usize>,
) -> Vec<Drawn<'a>> {
    let joins: HashSet<usize> =
        spec.nodes.iter().filter_map(|node| ids.get(node.fan_out.as_deref()?)).copied().collect();
    let left: HashSet<usize> = arrows.iter().map(|arrow| arrow.from).collect();
    let reached: HashSet<usize> = arrows.iter().map(|arrow| arrow.to).chain(entry).collect();
    let drawn = spec.nodes.iter().enumerate().map(|(number, spec)| Drawn {
        spec,
        visits: 0,
        current: false,
        failed: false,
        joins: joins.contains(&number),
        ends: reached.contains(&number) && !left.contains(&number),
        ended: 0,
    });
    drawn.collect()
}

fn arrows(spec: &GraphSpec, ids: &HashMap<&str, usize>) -> (Vec<Arrow>, Numbers) {
    let mut arrows: Vec<Arrow> = Vec::new();
    let mut numbers = Numbers::new();
    for edge in &spec.edges {
        let (Some(&from), Some(&to)) = (ids.get(edge.from.as_str()), ids.get(edge.to.as_str())) else { continue };
        let kind = kind(edge);
        let label = label(edge);
        let number = numbers.entry((from, to, kind == ArrowKind::Failure)).or_insert(arrows.len());
        match arrows.get_mut(*number) {
            Some(arrow) => arrow.add(kind, &label),
            None => arrows.push(Arrow { from, to, kind, label, taken: 0 }),
        }
    }
    (arrows, numbers)
}

impl Arrow {
    /// One more edge of the same way.
    fn add(&mut self, kind: ArrowKind, label: &str) {
        if self.kind == ArrowKind::Else {
            self.kind = kind;
        }
        if self.label.is_empty() || label.is_empty() {
            self.label.clear();
        } else {
            self.label.push_str(" or ");
            self.label.push_str(label);
        }
    }
}

fn kind(edge: &EdgeSpec) -> ArrowKind {
    if edge.when.as_ref().is_some_and(|condition| is_for_failures(condition, true)) {
        ArrowKind::Failure
    } else if edge.default {
        ArrowKind::Else
    } else {
        ArrowKind::Success
    }
}

/// Whether somewhere in the condition stands that the node failed.
fn is_for_failures(condition: &Condition, wanted: bool) -> bool {
    match condition {
        Condition::All { all: parts } | Condition::Any { any: parts } => {
            parts.iter().any(|part| is_for_failures(part, wanted))
        }
        Condition::Not { not } => is_for_failures(not, !wanted),
        Condition::Failed { failed } => *failed == wanted,
        Condition::Test(_) => false,
    }
}

fn label(edge: &EdgeSpec) -> String {
    let condition = edge.when.as_ref().map(|condition| text::clean(&condition.describe())).unwrap_or_default();
    match (edge.default, condition.is_empty()) {
        (true, true) => "else".to_owned(),
        (true, false) => format!("else, {condition}"),
        (false, _) => condition,
    }
}
