//! Which layer each node lies in, and which arrows lead back up.

use super::Line;

/// How many nodes without any arrow stand beside each other.
const ROW: usize = 6;

/// The layers of the nodes.
#[derive(Debug)]
pub(super) struct Ranks {
    /// The layer of each node, from 0: always even.
    pub(super) layer: Vec<usize>,
    /// Which lines lead back up.
    pub(super) back: Vec<bool>,
}

/// Every node comes below all that lead to it, but for the lines that close a cycle.
pub(super) fn rank(nodes: usize, lines: &[Line], root: Option<usize>) -> Ranks {
    let back = back_lines(nodes, lines, root);
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    let mut before = vec![0_usize; nodes];
    for (line, back) in lines.iter().zip(&back).filter(|(line, _)| line.from != line.to) {
        let (upper, lower) = if *back { (line.to, line.from) } else { (line.from, line.to) };
        next[upper].push(lower);
        before[lower] += 1;
    }
    let sources: Vec<usize> = (0..nodes).filter(|node| before[*node] == 0).collect();
    let mut layer = vec![0; nodes];
    let mut ready = sources.clone();
    while let Some(node) = ready.pop() {
        for &lower in &next[node] {
            layer[lower] = layer[lower].max(layer[node] + 2);
            before[lower] -= 1;
            if before[lower] == 0 {
                ready.push(lower);
            }
        }
    }
    settle(&sources, &next, &mut layer);
    Ranks { layer, back }
}

/// Moves what nothing leads to down to what it leads to, and what leads nowhere either below all
/// the rest, in rows.
fn settle(sources: &[usize], next: &[Vec<usize>], layer: &mut [usize]) {
    let (joined, alone): (Vec<usize>, Vec<usize>) = sources.iter().partition(|node| !next[**node].is_empty());
    for node in &joined {
        let highest = next[*node].iter().map(|lower| layer[*lower]).min();
        layer[*node] = highest.unwrap_or(2).saturating_sub(2);
    }
    let deepest = if joined.is_empty() { None } else { layer.iter().max().copied() };
    let first = deepest.map_or(0, |deepest| deepest + 2);
    for (count, node) in alone.iter().enumerate() {
        layer[*node] = first + count / ROW * 2;
    }
}

/// The lines that lead to a node one has come by: without them there is no cycle.
fn back_lines(nodes: usize, lines: &[Line], root: Option<usize>) -> Vec<bool> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        Open,
        Done,
    }
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for (number, line) in lines.iter().enumerate() {
        out[line.from].push(number);
    }
    let mut back = vec![false; lines.len()];
    let mut seen = vec![Seen::No; nodes];
    for first in root.into_iter().chain(0..nodes) {
        if seen[first] != Seen::No {
            continue;
        }
        seen[first] = Seen::Open;
        let mut stack = vec![(first, 0)];
        while let Some((node, at)) = stack.last_mut() {
            let Some(&number) = out[*node].get(*at) else {
                seen[*node] = Seen::Done;
                stack.pop();
                continue;
            };
            *at += 1;
            let to = lines[number].to;
            match seen[to] {
                Seen::No => {
                    seen[to] = Seen::Open;
                    stack.push((to, 0));
                }
                Seen::Open => back[number] = true,
                Seen::Done => {}
            }
        }
    }
    back
}
