//! The class queues: requests that wait for their class's next policing round, in buckets by cost, those of tenants within
//! their fair share apart.
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

/// One of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    class: ClassId,
    index: usize,
}

/// Two lists per (class, bucket), each first come first out: of tenants within their fair share, and of those above it.
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
}

impl Waiting {
    pub(crate) fn new(classes: usize, buckets: usize) -> Self {
        let buckets = buckets.max(1);
        let lists = (0..classes * buckets * 2).map(|_| List::default()).collect();
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

    pub(crate) fn queue_len(&self, queue: Queue) -> u32 {
        self.lists[queue.index].len
    }

    pub(crate) fn buckets(&self) -> usize {
        self.buckets
    }

    /// A list by what waits there; a bucket beyond the last counts as the last.
    pub(crate) fn queue(&self, class: ClassId, bucket: usize, is_over: bool) -> Queue {
        let index = (class.index() * self.buckets + bucket.min(self.buckets - 1)) * 2 + usize::from(is_over);
        Queue { class, index }
    }

    /// Both lists of a bucket; who is within goes first.
    pub(crate) fn queues(&self, class: ClassId, bucket: usize) -> [Queue; 2] {
        [false, true].map(|is_over| self.queue(class, bucket, is_over))
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
        let count = &mut self.per_class[queue.class.index()];
        count.all -= 1;
        count.over -= queue.over();
        self.total -= 1;
    }
}

impl Queue {
    fn over(self) -> u32 {
        (self.index % 2) as u32
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
        fn behaves_like_plain_queues(steps in prop::collection::vec((0u8..4, 0u8..2, 0usize..3, any::<bool>()), 1..200)) {
            let mut links: Vec<Link> = alloc::vec![Link::default(); steps.len()];
            let mut waiting = Waiting::new(2, 3);
            let mut model: Vec<VecDeque<u32>> = alloc::vec![VecDeque::new(); 12];
            for (slot, (what, class, bucket, is_over)) in steps.into_iter().enumerate() {
                let slot = slot as u32;
                let queue = &mut model[(class as usize * 3 + bucket) * 2 + usize::from(is_over)];
                let list = waiting.queue(ClassId(class), bucket, is_over);
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
                prop_assert_eq!(over, model.iter().skip(1).step_by(2).map(VecDeque::len).sum::<usize>());
            }
        }
    }
}
