//! Which cell of a layer lies left of which: so that few arrows cross.

use super::mesh::{Mesh, Tie};

/// How much work may be spent, in ties that are looked at.
const EFFORT: usize = 1_000_000;
const MOST_SWEEPS: usize = 24;

/// Fills the layers and orders them: each cell is moved to the middle of what it is tied to, down
/// and up by turns, beginning once from the left and once from the right. The best order found is
/// kept.
pub(super) fn order(mesh: &mut Mesh) {
    let ties: usize = mesh.cells.iter().map(|cell| cell.above.len()).sum();
    let sweeps = (EFFORT / ties.max(1)).clamp(2, MOST_SWEEPS);
    let mut best = Vec::new();
    let mut fewest = u64::MAX;
    for mirrored in [false, true] {
        let mut places = fill(mesh, mirrored);
        for sweep in 0..=sweeps {
            let count = crossings(mesh, &places);
            if count < fewest {
                (best, fewest) = (mesh.layers.clone(), count);
            }
            if fewest == 0 {
                break;
            }
            let down = sweep % 2 == 0;
            for step in 0..mesh.layers.len() {
                let layer = if down { step } else { mesh.layers.len() - 1 - step };
                sort(mesh, layer, down, &mut places);
            }
        }
    }
    mesh.layers = best;
}

/// A first order: that in which one comes by them from the top. Gives back their places.
fn fill(mesh: &mut Mesh, mirrored: bool) -> Vec<usize> {
    let mut tops: Vec<usize> = (0..mesh.cells.len()).collect();
    tops.sort_by_key(|cell| mesh.cells[*cell].layer);
    mesh.layers.iter_mut().for_each(Vec::clear);
    let mut seen = vec![false; mesh.cells.len()];
    let mut places = vec![0; mesh.cells.len()];
    for top in tops {
        let mut stack = vec![top];
        while let Some(cell) = stack.pop() {
            if std::mem::replace(&mut seen[cell], true) {
                continue;
            }
            let layer = &mut mesh.layers[mesh.cells[cell].layer];
            places[cell] = layer.len();
            layer.push(cell);
            let below = mesh.cells[cell].below.iter().map(|tie| tie.cell);
            if mirrored { stack.extend(below) } else { stack.extend(below.rev()) }
        }
    }
    places
}

fn sort(mesh: &mut Mesh, layer: usize, by_above: bool, places: &mut [usize]) {
    let cells = &mesh.cells;
    let wish = |cell: usize| {
        let ties = if by_above { &cells[cell].above } else { &cells[cell].below };
        if ties.is_empty() {
            return places[cell] as f64;
        }
        ties.iter().map(|tie| place(tie, places)).sum::<f64>() / ties.len() as f64
    };
    let mut wishes: Vec<(f64, usize)> = mesh.layers[layer].iter().map(|cell| (wish(*cell), *cell)).collect();
    wishes.sort_by(|one, other| one.0.total_cmp(&other.0));
    mesh.layers[layer] = wishes.into_iter().map(|(_, cell)| cell).collect();
    for (place, cell) in mesh.layers[layer].iter().enumerate() {
        places[*cell] = place;
    }
}

/// The place a tie pulls to. Beside a node is not where the node is.
fn place(tie: &Tie, places: &[usize]) -> f64 {
    let beside = if tie.shift == 0.0 { 0.0 } else { 0.4_f64.copysign(tie.shift) };
    places[tie.cell] as f64 + beside
}

/// How many pairs of ties cross. Lanes run right of their nodes.
fn crossings(mesh: &Mesh, places: &[usize]) -> u64 {
    let mut count = 0;
    for (number, layer) in mesh.layers.iter().enumerate() {
        let below = mesh.layers.get(number + 1).map_or(0, Vec::len);
        // How many ties seen so far end at a place or left of it: a binary indexed tree.
        let (mut tree, mut seen) = (vec![0_u64; 2 * below + 1], 0);
        for cell in layer {
            let ties = mesh.cells[*cell].below.iter();
            // Whether it begins in a lane, and where it ends.
            let ends = ties.map(|tie| (tie.shift < 0.0, 2 * places[tie.cell] + usize::from(tie.shift > 0.0)));
            let mut ends: Vec<(bool, usize)> = ends.collect();
            ends.sort_unstable();
            for group in ends.chunk_by(|one, other| one.0 == other.0) {
                count += group.iter().map(|(_, end)| seen - sum(&tree, end + 1)).sum::<u64>();
                for (_, end) in group {
                    add(&mut tree, end + 1);
                    seen += 1;
                }
            }
        }
    }
    count
}

fn sum(tree: &[u64], mut at: usize) -> u64 {
    let mut sum = 0;
    while at > 0 {
        sum += tree[at];
        at &= at - 1;
    }
    sum
}

fn add(tree: &mut [u64], mut at: usize) {
    while at < tree.len() {
        tree[at] += 1;
        at += at & at.wrapping_neg();
    }
}
