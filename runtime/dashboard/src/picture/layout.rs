//! Where the nodes of a graph lie: in layers, such that what an edge leads to lies in a later one.
//!
//! Invariants: no two nodes have one place; edges that form a cycle change nothing but the order of layers, and it ends.

use std::collections::VecDeque;

/// Sweeps over all layers that bring neighbours closer.
const SWEEPS: usize = 6;

/// Where a node lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// In which layer, from 0.
    pub layer: usize,
    /// At which place of that, from 0.
    pub row: usize,
}

/// The places of so many nodes with these edges, from one to the other.
pub fn layout(nodes: usize, edges: &[(usize, usize)]) -> Vec<Place> {
    let (mut before, mut after) = (vec![Vec::new(); nodes], vec![Vec::new(); nodes]);
    for &(from, to) in edges {
        if from != to {
            after[from].push(to);
            before[to].push(from);
        }
    }
    let layers = layers(&before, &after);
    let mut places: Vec<Place> = layers
        .into_iter()
        .map(|layer| Place { layer, row: 0 })
        .collect();
    let mut by_layer: Vec<Vec<usize>> = Vec::new();
    for (node, place) in places.iter().enumerate() {
        if by_layer.len() <= place.layer {
            by_layer.resize(place.layer + 1, Vec::new());
        }
        by_layer[place.layer].push(node);
    }
    for layer in &by_layer {
        number(layer, &mut places);
    }
    for sweep in 0..SWEEPS {
        let is_forward = sweep % 2 == 0;
        let neighbours = if is_forward { &before } else { &after };
        let count = by_layer.len();
        for at in 0..count {
            let layer = &mut by_layer[if is_forward { at } else { count - 1 - at }];
            let mut keyed: Vec<(f64, usize)> = layer
                .iter()
                .map(|&node| (middle(node, &neighbours[node], &places), node))
                .collect();
            keyed.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
            *layer = keyed.into_iter().map(|(_, node)| node).collect();
            number(layer, &mut places);
        }
    }
    places
}

/// The mean place of a node's neighbours; its own if it has none.
fn middle(node: usize, neighbours: &[usize], places: &[Place]) -> f64 {
    if neighbours.is_empty() {
        return places[node].row as f64;
    }
    let sum: usize = neighbours.iter().map(|&it| places[it].row).sum();
    sum as f64 / neighbours.len() as f64
}

fn number(layer: &[usize], places: &mut [Place]) {
    for (row, &node) in layer.iter().enumerate() {
        places[node].row = row;
    }
}

/// The layer of each node: the longest way to it. Of a cycle, the node with the lowest number is first.
fn layers(before: &[Vec<usize>], after: &[Vec<usize>]) -> Vec<usize> {
    let nodes = before.len();
    let mut layers = vec![0; nodes];
    let mut open: Vec<usize> = before.iter().map(Vec::len).collect();
    let mut is_placed = vec![false; nodes];
    let mut free: VecDeque<usize> = (0..nodes).filter(|&node| open[node] == 0).collect();
    let mut next = 0;
    loop {
        let node = match free.pop_front() {
            Some(node) => node,
            None => {
                while next < nodes && is_placed[next] {
                    next += 1;
                }
                if next == nodes {
                    return layers;
                }
                next
            }
        };
        if std::mem::replace(&mut is_placed[node], true) {
            continue;
        }
        for &to in &after[node] {
            if is_placed[to] {
                continue;
            }
            layers[to] = layers[to].max(layers[node] + 1);
            open[to] -= 1;
            if open[to] == 0 {
                free.push_back(to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn are_apart(places: &[Place]) -> bool {
        let all: BTreeSet<(usize, usize)> = places.iter().map(|it| (it.layer, it.row)).collect();
        all.len() == places.len()
    }

    #[test]
    fn edges_lead_to_later_layers_and_nothing_overlaps() {
        // A tree of two levels, and one that waits for all leaves.
        let edges = [
            (0, 1),
            (0, 2),
            (1, 3),
            (1, 4),
            (2, 5),
            (3, 6),
            (4, 6),
            (5, 6),
            (0, 6),
        ];
        let places = layout(7, &edges);
        for (from, to) in edges {
            assert!(
                places[from].layer < places[to].layer,
                "{from} {to}: {places:?}"
            );
        }
        assert!(are_apart(&places), "{places:?}");
        assert_eq!(places[6].layer, 3);
    }

    #[test]
    fn neighbours_come_close() {
        // Two lines whose ends are the other way round.
        let places = layout(4, &[(0, 3), (1, 2)]);
        let crosses = |it: &[Place]| (it[0].row < it[1].row) != (it[3].row < it[2].row);
        assert!(!crosses(&places), "{places:?}");
    }

    #[test]
    fn cycles_end() {
        let places = layout(4, &[(0, 1), (1, 2), (2, 0), (3, 3)]);
        assert!(are_apart(&places), "{places:?}");
        assert_eq!(
            (places[0].layer, places[1].layer, places[2].layer),
            (0, 1, 2)
        );
        assert!(layout(0, &[]).is_empty());
    }

    #[test]
    fn many_nodes_are_laid_out() {
        let edges: Vec<_> = (1..300).map(|node| ((node * 7) / 8, node)).collect();
        assert!(are_apart(&layout(300, &edges)));
    }
}
