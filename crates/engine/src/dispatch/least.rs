//! The least of many numbers, kept up to date: a tournament tree.
//!
//! *Intuition.* A knock-out cup. Every match remembers the better of its two players' results and how many players
//! below it share that result. Who changes plays again only the matches on the way to the final, and stops as soon as
//! one ends as it did before. To draw among all winners, one walks from the final down, at each match to a side as
//! likely as it holds winners: one random number and log2(n) steps.

use alloc::vec::Vec;

use crate::rng::Rng;

/// The least of numbers that change, and how many share it.
#[derive(Debug)]
pub(super) struct Least {
    /// `nodes[1]` is the final, those below `i` are `2i` and `2i + 1`, the players are the last half.
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Node {
    least: f64,
    /// How many share it.
    ties: u32,
}

/// Takes no part.
const ABSENT: Node = Node { least: f64::INFINITY, ties: 0 };

impl Node {
    fn player(value: Option<f64>) -> Node {
        value.map_or(ABSENT, |least| Node { least, ties: 1 })
    }

    /// Without branches: which side is less is as good as random.
    fn of(a: Node, b: Node) -> Node {
        let ties = a.ties * u32::from(a.least <= b.least) + b.ties * u32::from(b.least <= a.least);
        Node { least: if b.least < a.least { b.least } else { a.least }, ties }
    }
}

impl Least {
    /// Numbers, by position; `None` takes no part. No number may be NaN or infinite.
    pub(super) fn new(values: impl ExactSizeIterator<Item = Option<f64>>) -> Least {
        let players = values.len().next_power_of_two();
        let mut nodes = alloc::vec![ABSENT; 2 * players];
        for (at, value) in values.enumerate() {
            nodes[players + at] = Node::player(value);
        }
        for at in (1..players).rev() {
            nodes[at] = Node::of(nodes[2 * at], nodes[2 * at + 1]);
        }
        Least { nodes }
    }

    /// The number at a position becomes another.
    pub(super) fn set(&mut self, position: usize, value: Option<f64>) {
        let mut at = self.nodes.len() / 2 + position;
        let mut node = Node::player(value);
        while self.nodes[at] != node {
            self.nodes[at] = node;
            if at == 1 {
                return;
            }
            node = Node::of(node, self.nodes[at ^ 1]);
            at /= 2;
        }
    }

    /// A position with the least number, each as likely; `None` when none takes part.
    pub(super) fn draw(&self, rng: &mut Rng) -> Option<usize> {
        let Node { least, ties } = self.nodes[1];
        // The how manieth from the left.
        let mut left = match ties {
            0 => return None,
            1 => 0,
            ties => rng.below(ties as usize) as u32,
        };
        let players = self.nodes.len() / 2;
        let mut at = 1;
        while at < players {
            let side = self.nodes[2 * at];
            let there = side.ties * u32::from(side.least == least);
            let beyond = left >= there;
            left -= there * u32::from(beyond);
            at = 2 * at + usize::from(beyond);
        }
        Some(at - players)
    }
}

#[cfg(test)]
mod tests {
    use super::{Least, Vec};
    use crate::rng::Rng;
    use proptest::prelude::{any, prop, prop_assert_eq, proptest};

    proptest! {
        /// Against a scan: the same least, after any changes, of any count.
        #[test]
        fn draws_a_least_of_those_that_take_part(
            count in 1usize..70,
            changes in prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(0u8..6)), 1..200),
        ) {
            let mut values: Vec<Option<f64>> = (0..count).map(|i| (i % 5 > 0).then_some(i as f64)).collect();
            let mut least = Least::new(values.iter().copied());
            let mut rng = Rng::new(1);
            for (position, value) in changes {
                let (position, value) = (position.index(count), value.map(f64::from));
                values[position] = value;
                least.set(position, value);
                let expected = values.iter().flatten().copied().reduce(f64::min);
                prop_assert_eq!(least.draw(&mut rng).and_then(|at| values[at]), expected);
            }
        }
    }

    /// Chi-square: ties anywhere in the tree are drawn equally often.
    #[test]
    fn ties_are_drawn_equally_often() {
        for (count, seed) in [(17, 1), (100, 2), (1000, 3)] {
            let is_tie = |at: usize| !at.is_multiple_of(3);
            let least = Least::new((0..count).map(|at| Some(if is_tie(at) { 0.5 } else { 0.75 })));
            let mut rng = Rng::new(seed);
            let ties = (0..count).filter(|&at| is_tie(at)).count();
            let draws = 200 * ties;
            let mut counts = alloc::vec![0.0_f64; count];
            (0..draws).for_each(|_| counts[least.draw(&mut rng).expect("there are ties")] += 1.0);
            assert!((0..count).all(|at| is_tie(at) || counts[at] == 0.0));
            let square = |at: usize| (counts[at] - 200.0).powi(2) / 200.0;
            let chi_square: f64 = (0..count).filter(|&at| is_tie(at)).map(square).sum();
            let freedom = (ties - 1) as f64;
            // Mean and deviation of the distribution: beyond four deviations is chance once in 10,000.
            let deviations = (chi_square - freedom) / (2.0 * freedom).sqrt();
            assert!(deviations.abs() < 4.0, "{count} servers: {deviations} deviations off");
        }
    }

    #[test]
    fn none_takes_part() {
        assert_eq!(Least::new([None, None].into_iter()).draw(&mut Rng::new(1)), None);
        assert_eq!(Least::new([].into_iter()).draw(&mut Rng::new(1)), None);
    }
}
