//! The class queues: requests that wait for their class's next policing round, in buckets by cost, and in each by turns
//! (`turns.rs`).
//!
//! Every operation is O(1), whatever waits: lists run through the flight table by index, so that a client that leaves
//! is unlinked at once, and a round touches each request once.

use alloc::vec::Vec;

use super::turns::Turn;
use crate::request::ClassId;

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;

/// A request's place in a list: the slots before and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

impl Default for Link {
    fn default() -> Self {
        Link { prev: NIL, next: NIL }
    }
}

/// Where the links live: the flight table.
pub(crate) trait Links {
    fn link(&mut self, slot: u32) -> &mut Link;
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for List {
    fn default() -> Self {
        List { head: NIL, tail: NIL, len: 0 }
    }
}

/// Lists of a bucket.
const TURNS: usize = Turn::ALL.len();

/// One of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    class: ClassId,
    bucket: u8,
    index: usize,
}

/// One list per (class, bucket, turn), each first come first out.
#[derive(Debug)]
pub(crate) struct Waiting {
    buckets: usize,
    lists: Vec<List>,
    per_class: Vec<Count>,
    total: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: u32,
    over: u32,
    /// One bit for each bucket in which anybody waits: rounds need not look at the others.
    used: u64,
}

/// The most buckets of a class.
const MOST_BUCKETS: usize = u64::BITS as usize;

impl Waiting {
    pub(crate) fn new(classes: usize, buckets: usize) -> Self {
        let buckets = buckets.clamp(1, MOST_BUCKETS);
        let lists = (0..classes * buckets * TURNS).map(|_| List::default()).collect();
        Waiting { buckets, lists, per_class: alloc::vec![Count::default(); classes], total: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.total
    }

    pub(crate) fn class_len(&self, class: ClassId) -> u32 {
        self.per_class[class.index()].all
    }

    /// How many of a class are of tenants above their share.
    pub(crate) fn over_len(&self, class: ClassId) -> u32 {
        self.per_class[class.index()].over
    }

    /// The buckets of a class in which anybody waits now, the first first.
    pub(crate) fn used(&self, class: ClassId) -> impl Iterator<Item = usize> + use<> {
        bits(self.per_class[class.index()].used)
    }

    pub(crate) fn queue_len(&self, queue: Queue) -> u32 {
        self.lists[queue.index].len
    }

    pub(crate) fn buckets(&self) -> usize {
        self.buckets
    }

    /// A list by what waits there; a bucket beyond the last counts as the last.
    pub(crate) fn queue(&self, class: ClassId, bucket: usize, turn: Turn) -> Queue {
        let bucket = bucket.min(self.buckets - 1);
        let index = (class.index() * self.buckets + bucket) * TURNS + turn.index();
        Queue { class, bucket: bucket as u8, index }
    }

    /// The lists of a bucket, by turns.
    pub(crate) fn queues(&self, class: ClassId, bucket: usize) -> [Queue; TURNS] {
        Turn::ALL.map(|turn| self.queue(class, bucket, turn))
    }

    /// The first of a list.
    pub(crate) fn first(&self, queue: Queue) -> Option<u32> {
        let head = self.lists[queue.index].head;
        (head != NIL).then_some(head)
    }

    /// The last of a list.
    pub(crate) fn last(&self, queue: Queue) -> Option<u32> {
        let tail = self.lists[queue.index].tail;
        (tail != NIL).then_some(tail)
    }

    /// Appends `slot` to a list.
    pub(crate) fn push(&mut self, links: &mut impl Links, queue: Queue, slot: u32) {
        let list = &mut self.lists[queue.index];
        *links.link(slot) = Link { prev: list.tail, next: NIL };
        match list.tail {
            NIL => list.head = slot,
            tail => links.link(tail).next = slot,
        }
        list.tail = slot;
        list.len += 1;
        let count = &mut self.per_class[queue.class.index()];
        count.all += 1;
        count.over += queue.over();
        count.used |= 1 << queue.bucket;
        self.total += 1;
    }

    /// The first of a list, unlinked.
    pub(crate) fn pop(&mut self, links: &mut impl Links, queue: Queue) -> Option<u32> {
        let head = self.first(queue)?;
        self.unlink(links, queue, head);
        Some(head)
    }

    /// The last of a list, unlinked.
    pub(crate) fn pop_last(&mut self, links: &mut impl Links, queue: Queue) -> Option<u32> {
        let tail = self.last(queue)?;
        self.unlink(links, queue, tail);
        Some(tail)
    }

    /// Takes `slot` out of its list, wherever it stands.
    pub(crate) fn unlink(&mut self, links: &mut impl Links, queue: Queue, slot: u32) {
        let Link { prev, next } = core::mem::take(links.link(slot));
        let list = &mut self.lists[queue.index];
        match prev {
            NIL => list.head = next,
            prev => links.link(prev).next = next,
        }
        match next {
            NIL => list.tail = prev,
            next => links.link(next).prev = prev,
        }
        list.len -= 1;
        let is_empty = list.len == 0 && self.lists[queue.of_bucket()].iter().all(|list| list.len == 0);
        let count = &mut self.per_class[queue.class.index()];
        count.all -= 1;
        count.over -= queue.over();
        count.used &= !(u64::from(is_empty) << queue.bucket);
        self.total -= 1;
    }
}

impl Queue {
    /// Where the lists of its bucket are.
    fn of_bucket(self) -> core::ops::Range<usize> {
        let first = self.index - self.index % TURNS;
        first..first + TURNS
    }

    fn over(self) -> u32 {
        u32::from(Turn::ALL[self.index % TURNS].is_above())
    }
}

/// The numbers of the bits of a set, smallest first.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let at = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    impl Links for Vec<Link> {
        fn link(&mut self, slot: u32) -> &mut Link {
            &mut self[slot as usize]
        }
    }

    #[test]
    fn bits_of_a_set_come_in_order() {
        assert_eq!(bits(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
        assert_eq!(bits(1 << 63).collect::<Vec<_>>(), [63]);
    }

    proptest! {
        /// Against a model of plain queues: the same order out, the same lengths, whatever is unlinked between.
        #[test]
        fn behaves_like_plain_queues(steps in prop::collection::vec((0u8..4, 0u8..2, 0usize..3, 0usize..TURNS), 1..200)) {
            let mut links: Vec<Link> = alloc::vec![Link::default(); steps.len()];
            let mut waiting = Waiting::new(2, 3);
            let mut model: Vec<VecDeque<u32>> = alloc::vec![VecDeque::new(); 6 * TURNS];
            for (slot, (what, class, bucket, turn)) in steps.into_iter().enumerate() {
                let slot = slot as u32;
                let queue = &mut model[(class as usize * 3 + bucket) * TURNS + turn];
                let list = waiting.queue(ClassId(class), bucket, Turn::ALL[turn]);
                match what {
                    0 => {
                        waiting.push(&mut links, list, slot);
                        queue.push_back(slot);
                    }
                    1 => prop_assert_eq!(waiting.pop(&mut links, list), queue.pop_front()),
                    2 => prop_assert_eq!(waiting.pop_last(&mut links, list), queue.pop_back()),
                    _ => if let Some(middle) = queue.remove(queue.len() / 2) {
                        waiting.unlink(&mut links, list, middle);
                    },
                }
                prop_assert_eq!(waiting.queue_len(list) as usize, queue.len());
                prop_assert_eq!(waiting.len(), model.iter().map(VecDeque::len).sum::<usize>());
                let over = (0..2).map(|class| waiting.over_len(ClassId(class)) as usize).sum::<usize>();
                for class in 0..2 {
                    let waits = |bucket: &usize| {
                        let first = (class * 3 + bucket) * TURNS;
                        model[first..first + TURNS].iter().any(|list| !list.is_empty())
                    };
                    let used: Vec<usize> = (0..3).filter(waits).collect();
                    prop_assert_eq!(waiting.used(ClassId(class as u8)).collect::<Vec<_>>(), used);
                }
                prop_assert_eq!(over, model.chunks(TURNS).flat_map(|lists| &lists[2..]).map(VecDeque::len).sum::<usize>());
            }
        }
    }
}
