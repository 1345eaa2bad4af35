//! The class queues: requests that wait for their class's next policing round, in buckets by cost.
//!
//! Every operation is O(1), whatever waits: lists run through the flight table by index, so that a client that leaves
//! is unlinked at once, and a round touches each request once.

use alloc::vec::Vec;

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

/// One list per (class, bucket), first come first out.
#[derive(Debug)]
pub(crate) struct Waiting {
    buckets: usize,
    lists: Vec<List>,
    per_class: Vec<u32>,
    total: usize,
}

impl Waiting {
    pub(crate) fn new(classes: usize, buckets: usize) -> Self {
        let buckets = buckets.max(1);
        let lists = (0..classes * buckets).map(|_| List::default()).collect();
        Waiting { buckets, lists, per_class: alloc::vec![0; classes], total: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.total
    }

    pub(crate) fn class_len(&self, class: ClassId) -> u32 {
        self.per_class[class.index()]
    }

    pub(crate) fn bucket_len(&self, class: ClassId, bucket: usize) -> u32 {
        self.lists[self.index(class, bucket)].len
    }

    pub(crate) fn buckets(&self) -> usize {
        self.buckets
    }

    /// The first of a list.
    pub(crate) fn first(&self, class: ClassId, bucket: usize) -> Option<u32> {
        let head = self.lists[self.index(class, bucket)].head;
        (head != NIL).then_some(head)
    }

    /// Appends `slot` to its list; a bucket beyond the last counts as the last.
    pub(crate) fn push(&mut self, links: &mut impl Links, class: ClassId, bucket: usize, slot: u32) {
        let index = self.index(class, bucket);
        let list = &mut self.lists[index];
        *links.link(slot) = Link { prev: list.tail, next: NIL };
        match list.tail {
            NIL => list.head = slot,
            tail => links.link(tail).next = slot,
        }
        list.tail = slot;
        list.len += 1;
        self.per_class[class.index()] += 1;
        self.total += 1;
    }

    /// The first of a list, unlinked.
    pub(crate) fn pop(&mut self, links: &mut impl Links, class: ClassId, bucket: usize) -> Option<u32> {
        let head = self.first(class, bucket)?;
        self.unlink(links, class, bucket, head);
        Some(head)
    }

    /// The last of a list.
    pub(crate) fn last(&self, class: ClassId, bucket: usize) -> Option<u32> {
        let tail = self.lists[self.index(class, bucket)].tail;
        (tail != NIL).then_some(tail)
    }

    /// The last of a list, unlinked.
    pub(crate) fn pop_last(&mut self, links: &mut impl Links, class: ClassId, bucket: usize) -> Option<u32> {
        let tail = self.last(class, bucket)?;
        self.unlink(links, class, bucket, tail);
        Some(tail)
    }

    /// Takes `slot` out of its list, wherever it stands.
    pub(crate) fn unlink(&mut self, links: &mut impl Links, class: ClassId, bucket: usize, slot: u32) {
        let index = self.index(class, bucket);
        let Link { prev, next } = core::mem::take(links.link(slot));
        let list = &mut self.lists[index];
        match prev {
            NIL => list.head = next,
            prev => links.link(prev).next = next,
        }
        match next {
            NIL => list.tail = prev,
            next => links.link(next).prev = prev,
        }
        list.len -= 1;
        self.per_class[class.index()] -= 1;
        self.total -= 1;
    }

    fn index(&self, class: ClassId, bucket: usize) -> usize {
        class.index() * self.buckets + bucket.min(self.buckets - 1)
    }
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

    proptest! {
        /// Against a model of plain queues: the same order out, the same lengths, whatever is unlinked between.
        #[test]
        fn behaves_like_plain_queues(steps in prop::collection::vec((0u8..4, 0u8..2, 0usize..3), 1..200)) {
            let mut links: Vec<Link> = alloc::vec![Link::default(); steps.len()];
            let mut waiting = Waiting::new(2, 3);
            let mut model: Vec<VecDeque<u32>> = alloc::vec![VecDeque::new(); 6];
            for (slot, (what, class, bucket)) in steps.into_iter().enumerate() {
                let slot = slot as u32;
                let queue = &mut model[class as usize * 3 + bucket];
                let class = ClassId(class);
                match what {
                    0 => {
                        waiting.push(&mut links, class, bucket, slot);
                        queue.push_back(slot);
                    }
                    1 => prop_assert_eq!(waiting.pop(&mut links, class, bucket), queue.pop_front()),
                    2 => prop_assert_eq!(waiting.pop_last(&mut links, class, bucket), queue.pop_back()),
                    _ => if let Some(middle) = queue.remove(queue.len() / 2) {
                        waiting.unlink(&mut links, class, bucket, middle);
                    },
                }
                prop_assert_eq!(waiting.bucket_len(class, bucket) as usize, queue.len());
                prop_assert_eq!(waiting.len(), model.iter().map(VecDeque::len).sum::<usize>());
            }
        }
    }
}
