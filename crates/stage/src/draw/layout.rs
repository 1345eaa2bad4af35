//! Layout of a drawing: columns from the entries on, rows within a column.

use crate::snapshot::GraphSnapshot;

/// A stage's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) column: usize,
    pub(super) row: usize,
}

/// The links of a graph by stage number.
pub(super) fn links(graph: &GraphSnapshot) -> Vec<Vec<usize>> {
    let number = |name: &str| graph.stages.iter().position(|stage| stage.name == name);
    let of = |at: usize| graph.stages[at].sends_to.iter().filter_map(|link| number(&link.to)).collect();
    (0..graph.stages.len()).map(of).collect()
}

/// A stage stands right of all that send to it, but for links that close a cycle; stages without any links in a square.
pub(super) fn place(links: &[Vec<usize>]) -> Vec<Place> {
    if links.iter().all(Vec::is_empty) {
        // Nothing leads anywhere: about as wide as high.
        let columns = (1..).find(|side| side * side >= links.len()).unwrap_or(1);
        return (0..links.len()).map(|at| Place { column: at % columns, row: at / columns }).collect();
    }
    let forward = without_cycles(links);
    let mut columns = vec![0; links.len()];
    // A longest path has fewer links than there are stages.
    for _ in 0..links.len() {
        for (from, to) in &forward {
            columns[*to] = columns[*to].max(columns[*from] + 1);
        }
    }
    let row = |at: usize| columns[..at].iter().filter(|&&column| column == columns[at]).count();
    (0..links.len()).map(|at| Place { column: columns[at], row: row(at) }).collect()
}

/// The links without those that lead back to a stage on the way to them.
fn without_cycles(links: &[Vec<usize>]) -> Vec<(usize, usize)> {
    let mut walk = Walk { links, state: vec![State::New; links.len()], forward: Vec::new() };
    (0..links.len()).for_each(|at| walk.visit(at));
    walk.forward
}

struct Walk<'a> {
    links: &'a [Vec<usize>],
    state: Vec<State>,
    forward: Vec<(usize, usize)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    OnTheWay,
    Done,
}

impl Walk<'_> {
    /// Depth first; at most 64 deep, as a graph has no more stages.
    fn visit(&mut self, at: usize) {
        if self.state[at] != State::New {
            return;
        }
        self.state[at] = State::OnTheWay;
        for &to in &self.links[at] {
            if self.state[to] != State::OnTheWay {
                self.forward.push((at, to));
                self.visit(to);
            }
        }
        self.state[at] = State::Done;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_follow_the_longest_way() {
        let places = place(&[vec![1, 2], vec![2], vec![3, 0], vec![], vec![3]]);
        let columns: Vec<usize> = places.iter().map(|place| place.column).collect();
        assert_eq!(columns, [0, 1, 2, 3, 0]);
        assert_eq!(places[4].row, 1);
    }

    #[test]
    fn stages_without_links_stand_in_a_square() {
        let places = place(&vec![Vec::new(); 7]);
        assert_eq!((places[2], places[6]), (Place { column: 2, row: 0 }, Place { column: 0, row: 2 }));
        assert_eq!(place(&[]), []);
    }

    #[test]
    fn a_stage_that_sends_to_itself_stands_still() {
        assert_eq!(place(&[vec![0]]), [Place { column: 0, row: 0 }]);
    }
}
