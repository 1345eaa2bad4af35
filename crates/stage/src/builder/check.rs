//! Checks a declared graph: every stage has a handler, and no stages can wait for each other for ever.

use super::GraphError;
use crate::graph::Part;

/// The first mistake in the declared stages.
pub(super) fn check(parts: &[Part]) -> Result<(), GraphError> {
    if let Some(part) = parts.iter().find(|part| part.spawn.is_none()) {
        return Err(GraphError::NoHandler { stage: part.name.clone() });
    }
    let waits: Vec<Vec<usize>> = parts.iter().map(waiting_links).collect();
    match find_cycle(&waits) {
        None => Ok(()),
        Some(cycle) => {
            Err(GraphError::Deadlock { stages: cycle.into_iter().map(|at| parts[at].name.clone()).collect() })
        }
    }
}

fn waiting_links(part: &Part) -> Vec<usize> {
    part.links.iter().filter(|(_, waits)| *waits).map(|(to, _)| *to).collect()
}

/// A cycle of the graph with these edges, if there is one, in their direction.
fn find_cycle(edges: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut done = vec![false; edges.len()];
    (0..edges.len()).find_map(|start| follow(edges, start, &mut Vec::new(), &mut done))
}

/// Depth first; at most 64 deep, as a graph has no more stages.
fn follow(edges: &[Vec<usize>], at: usize, path: &mut Vec<usize>, done: &mut [bool]) -> Option<Vec<usize>> {
    if let Some(begin) = path.iter().position(|&seen| seen == at) {
        return Some(path[begin..].to_vec());
    }
    if done[at] {
        return None;
    }
    path.push(at);
    let cycle = edges[at].iter().find_map(|&to| follow(edges, to, path, done));
    path.pop();
    done[at] = true;
    cycle
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn finds_the_cycle_and_not_the_way_to_it() {
        assert_eq!(find_cycle(&[vec![1], vec![2, 3], vec![], vec![1]]), Some(vec![1, 3]));
        assert_eq!(find_cycle(&[vec![0]]), Some(vec![0]));
        assert_eq!(find_cycle(&[vec![1, 2], vec![2], vec![]]), None);
    }

    proptest! {
        /// A graph has a cycle exactly when not all of its stages can be taken away from the ends.
        #[test]
        fn agrees_with_taking_ends_away(pairs in prop::collection::vec((0usize..8, 0usize..8), 0..16)) {
            let mut edges = vec![Vec::new(); 8];
            for (from, to) in &pairs {
                edges[*from].push(*to);
            }
            let mut left: Vec<usize> = (0..8).collect();
            while let Some(at) = left.iter().position(|&n| edges[n].iter().all(|to| !left.contains(to))) {
                left.remove(at);
            }
            let cycle = find_cycle(&edges);
            prop_assert_eq!(cycle.is_none(), left.is_empty());
            if let Some(cycle) = cycle {
                let next = |i: usize| cycle[(i + 1) % cycle.len()];
                prop_assert!((0..cycle.len()).all(|i| edges[cycle[i]].contains(&next(i))));
            }
        }
    }
}
