//! How far right each cell lies: near what it is tied to, and clear of its neighbours.

use super::MARGIN;
use super::mesh::{Cell, Mesh, Tie, Way};

/// How far nodes are from each other.
const NODES_APART: f64 = 36.0;
/// How far arrows and labels are from everything else.
const POINTS_APART: f64 = 16.0;
/// How much work may be spent, in cells that are moved.
const EFFORT: usize = 600_000;
/// The least and the most sweeps.
const SWEEPS: (usize, usize) = (8, 60);

/// Where a cell would like to be, and how much.
type Wish = (f64, f64);

/// The middle of each cell, from the left.
pub(super) fn place(mesh: &Mesh) -> Vec<f64> {
    let mut across = vec![0.0; mesh.cells.len()];
    for layer in &mesh.layers {
        spread(mesh, layer, &vec![(0.0, 1.0); layer.len()], &mut across);
    }
    let sweeps = (EFFORT / mesh.cells.len().max(1)).clamp(SWEEPS.0, SWEEPS.1);
    for sweep in 0..sweeps {
        let down = sweep % 2 == 0;
        // The later sweeps look both ways, so that nodes come to the middle.
        let both = sweep + sweep >= sweeps;
        for step in 0..mesh.layers.len() {
            let layer = &mesh.layers[if down { step } else { mesh.layers.len() - 1 - step }];
            let wishes: Vec<Wish> =
                layer.iter().map(|cell| wish(mesh, *cell, &across, both || down, both || !down)).collect();
            spread(mesh, layer, &wishes, &mut across);
        }
    }
    straighten(mesh, &mut across);
    let leftmost = mesh.cells.iter().zip(&across).map(|(cell, x)| x - cell.left).fold(f64::INFINITY, f64::min);
    across.iter().map(|x| x - leftmost + MARGIN).collect()
}

fn wish(mesh: &Mesh, cell: usize, across: &[f64], above: bool, below: bool) -> Wish {
    let ties = |used: bool, ties: &'_ [Tie]| -> Wish {
        let used = ties.iter().filter(|_| used);
        used.fold((0.0, 0.0), |(sum, weight), tie| {
            (sum + (across[tie.cell] + tie.shift) * tie.weight, weight + tie.weight)
        })
    };
    let up = ties(above, &mesh.cells[cell].above);
    let down = ties(below, &mesh.cells[cell].below);
    let weight = up.1 + down.1;
    // What is tied to nothing stays, unless another wants its place.
    if weight == 0.0 { (across[cell], 0.1) } else { ((up.0 + down.0) / weight, weight) }
}

/// Gives the cells of a layer the places nearest to their wishes that leave enough room between
/// them: least squares, by joining neighbours that are in each other's way into blocks.
fn spread(mesh: &Mesh, layer: &[usize], wishes: &[Wish], across: &mut [f64]) {
    struct Block {
        /// Where its first cell goes if all have their way: a sum by weight.
        sum: f64,
        weight: f64,
        count: usize,
    }
    let mut offsets = Vec::with_capacity(layer.len());
    let mut offset = 0.0;
    let mut blocks: Vec<Block> = Vec::new();
    for (at, (cell, (wish, weight))) in layer.iter().zip(wishes).enumerate() {
        if at > 0 {
            offset += apart(&mesh.cells[layer[at - 1]], &mesh.cells[*cell]);
        }
        offsets.push(offset);
        let mut block = Block { sum: (wish - offset) * weight, weight: *weight, count: 1 };
        while let Some(last) = blocks.pop_if(|last| last.sum / last.weight >= block.sum / block.weight) {
            block.sum += last.sum;
            block.weight += last.weight;
            block.count += last.count;
        }
        blocks.push(block);
    }
    let starts = blocks.iter().flat_map(|block| std::iter::repeat_n(block.sum / block.weight, block.count));
    for ((cell, offset), start) in layer.iter().zip(offsets).zip(starts) {
        across[*cell] = start + offset;
    }
}

/// How far the middles of two neighbours must be from each other.
fn apart(left: &Cell, right: &Cell) -> f64 {
    let room = if left.is_node && right.is_node { NODES_APART } else { POINTS_APART };
    left.right + room + right.left
}

/// Puts the points of each arrow one below the other, as far as their neighbours let them.
fn straighten(mesh: &Mesh, across: &mut [f64]) {
    let mut places = vec![0; mesh.cells.len()];
    for layer in &mesh.layers {
        for (place, cell) in layer.iter().enumerate() {
            places[*cell] = place;
        }
    }
    for way in &mesh.ways {
        let (Way::Down(points) | Way::Up { points, .. }) = way else { continue };
        let mut run: &[usize] = &[];
        let mut room = (f64::NEG_INFINITY, f64::INFINITY);
        for (at, point) in points.iter().enumerate() {
            let free = free(mesh, &mesh.layers[mesh.cells[*point].layer], places[*point], across);
            let shared = (room.0.max(free.0), room.1.min(free.1));
            if shared.0 <= shared.1 {
                (room, run) = (shared, &points[at - run.len()..=at]);
            } else {
                align(run, room, across);
                (room, run) = (free, &points[at..=at]);
            }
        }
        align(run, room, across);
    }
}

/// How far a cell may move to either side.
fn free(mesh: &Mesh, layer: &[usize], place: usize, across: &[f64]) -> (f64, f64) {
    let cell = &mesh.cells[layer[place]];
    let left = place.checked_sub(1).map(|left| layer[left]);
    let left = left.map_or(f64::NEG_INFINITY, |left| across[left] + apart(&mesh.cells[left], cell));
    let right = layer.get(place + 1);
    let right = right.map_or(f64::INFINITY, |right| across[*right] - apart(cell, &mesh.cells[*right]));
    // Rounding may have left a cell a little less room than it takes.
    let x = across[layer[place]];
    (left.min(x), right.max(x))
}

fn align(run: &[usize], room: (f64, f64), across: &mut [f64]) {
    let mean = run.iter().map(|point| across[*point]).sum::<f64>() / run.len().max(1) as f64;
    for point in run {
        across[*point] = mean.max(room.0).min(room.1);
    }
}
