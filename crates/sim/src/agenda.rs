//! What is to happen: events by time, ties in the order in which they were planned.
//!
//! *Intuition.* Most of what is planned is planned again before it happens: a server's next completion moves with every
//! arrival there. So each thing that can happen has a *slot*, and the heap knows where each slot stands: planning again
//! moves it in place, nothing stale is ever carried along, and cancelling is as cheap.
//!
//! *Awkward cases.* What happens is mostly followed by a plan (an arrival plans the next one), so the root stays empty
//! until then and is filled by one move instead of two. The heap has four children to a node: half the levels of two.

use tidegate_engine::Timestamp;

/// A queue of events. Events of one instant come out in the order in which they were planned.
#[derive(Debug)]
pub(crate) struct Agenda<E> {
    heap: Vec<Node>,
    slots: Vec<Slot<E>>,
    free: Vec<u32>,
    planned: u64,
    /// The root has happened and nothing took its place yet.
    hole: bool,
}

/// Something that can happen, and be planned for one instant at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId(u32);

#[derive(Clone, Copy, Debug)]
struct Node {
    at: u64,
    order: u64,
    slot: u32,
}

#[derive(Debug)]
struct Slot<E> {
    event: E,
    /// Its place in the heap.
    place: u32,
    /// Given back as soon as it has happened.
    once: bool,
}

const NOWHERE: u32 = u32::MAX;

/// Children of a node.
const FAN: usize = 4;

impl<E: Copy> Agenda<E> {
    pub(crate) fn new() -> Self {
        Agenda { heap: Vec::new(), slots: Vec::new(), free: Vec::new(), planned: 0, hole: false }
    }

    /// A slot for an event that will be planned again and again.
    pub(crate) fn slot(&mut self, event: E) -> SlotId {
        self.new_slot(event, false)
    }

    /// Plans something that happens once, or is cancelled before. Its slot must not be used after either.
    pub(crate) fn once(&mut self, at: Timestamp, event: E) -> SlotId {
        let slot = self.new_slot(event, true);
        self.plan(slot, at);
        slot
    }

    /// Plans `slot` for `at`, whatever it was planned for before.
    pub(crate) fn plan(&mut self, slot: SlotId, at: Timestamp) {
        self.planned += 1;
        let node = Node { at: at.as_nanos(), order: self.planned, slot: slot.0 };
        let place = self.slots[slot.0 as usize].place;
        if place != NOWHERE {
            let sooner = node.key() < self.heap[place as usize].key();
            if sooner { self.rise(place as usize, node) } else { self.sink(place as usize, node) }
        } else if self.hole {
            self.hole = false;
            self.sink(0, node);
        } else {
            self.heap.push(node);
            self.rise(self.heap.len() - 1, node);
        }
    }

    /// The slot is not planned any more.
    pub(crate) fn cancel(&mut self, slot: SlotId) {
        let place = std::mem::replace(&mut self.slots[slot.0 as usize].place, NOWHERE);
        if place != NOWHERE {
            self.fill(place as usize);
        }
        self.give_back(slot.0);
    }

    /// When the next event is.
    pub(crate) fn peek(&mut self) -> Option<Timestamp> {
        if std::mem::take(&mut self.hole) {
            self.fill(0);
        }
        self.heap.first().map(|root| Timestamp::from_nanos(root.at))
    }

    /// The next event.
    pub(crate) fn next(&mut self) -> Option<(Timestamp, E)> {
        if std::mem::take(&mut self.hole) {
            self.fill(0);
        }
        let root = *self.heap.first()?;
        self.hole = true;
        let slot = &mut self.slots[root.slot as usize];
        slot.place = NOWHERE;
        let event = slot.event;
        self.give_back(root.slot);
        Some((Timestamp::from_nanos(root.at), event))
    }

    fn new_slot(&mut self, event: E, once: bool) -> SlotId {
        let slot = Slot { event, place: NOWHERE, once };
        match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                SlotId(at)
            }
            None => {
                self.slots.push(slot);
                SlotId(self.slots.len() as u32 - 1)
            }
        }
    }

    fn give_back(&mut self, slot: u32) {
        if self.slots[slot as usize].once {
            self.free.push(slot);
        }
    }

    /// Puts the last node where one was taken out.
    fn fill(&mut self, place: usize) {
        let Some(last) = self.heap.pop() else { return };
        if place == self.heap.len() {
            return;
        }
        let above = place > 0 && last.key() < self.heap[(place - 1) / FAN].key();
        if above { self.rise(place, last) } else { self.sink(place, last) }
    }

    /// Puts `node` at `place` or above.
    fn rise(&mut self, mut place: usize, node: Node) {
        while place > 0 {
            let parent = (place - 1) / FAN;
            if self.heap[parent].key() <= node.key() {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, node);
    }

    /// Puts `node` at `place` or below.
    fn sink(&mut self, mut place: usize, node: Node) {
        let key = node.key();
        loop {
            let first = place * FAN + 1;
            let (least, least_key) = match self.heap.get(first..first + FAN) {
                // Two pairs side by side, then the better ones: no chain of comparisons.
                Some(&[a, b, c, d]) => {
                    let left = if b.key() < a.key() { (first + 1, b.key()) } else { (first, a.key()) };
                    let right = if d.key() < c.key() { (first + 3, d.key()) } else { (first + 2, c.key()) };
                    if right.1 < left.1 { right } else { left }
                }
                _ => match (first..self.heap.len()).map(|child| (child, self.heap[child].key())).min_by_key(|c| c.1) {
                    Some(least) => least,
                    None => break,
                },
            };
            if key <= least_key {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, node);
    }

    fn put(&mut self, place: usize, node: Node) {
        self.heap[place] = node;
        self.slots[node.slot as usize].place = place as u32;
    }
}

impl Node {
    /// One number, so that time and order are compared without a branch.
    fn key(&self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rest<E: Copy>(agenda: &mut Agenda<E>) -> Vec<E> {
        std::iter::from_fn(|| agenda.next().map(|(_, event)| event)).collect()
    }

    #[test]
    fn ties_come_out_in_the_order_they_went_in() {
        let mut agenda = Agenda::new();
        let soon = Timestamp::from_millis(1);
        for name in ["b", "c", "d"] {
            agenda.once(soon, name);
        }
        agenda.once(Timestamp::ZERO, "a");
        assert_eq!(rest(&mut agenda), ["a", "b", "c", "d"]);
    }

    #[test]
    fn planned_again_it_happens_once_and_last_of_its_instant() {
        let mut agenda = Agenda::new();
        let soon = Timestamp::from_millis(1);
        let moved = agenda.slot("moved");
        agenda.plan(moved, Timestamp::ZERO);
        agenda.once(soon, "first");
        agenda.plan(moved, soon);
        assert_eq!(rest(&mut agenda), ["first", "moved"]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Plan(usize, u64),
        Cancel(usize),
        Next,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..40usize, 0..30u64).prop_map(|(slot, after)| Step::Plan(slot, after)),
            1 => (0..40usize).prop_map(Step::Cancel),
            3 => Just(Step::Next),
        ];
        prop::collection::vec(step, 1..300)
    }

    proptest! {
        /// Against a sorted list.
        #[test]
        fn it_is_a_queue_by_time_and_order(steps in steps()) {
            let mut agenda = Agenda::new();
            let slots: Vec<SlotId> = (0..40).map(|slot| agenda.slot(slot)).collect();
            let (mut list, mut now, mut order): (Vec<(u64, u64, usize)>, u64, u64) = (Vec::new(), 0, 0);
            for step in steps {
                match step {
                    Step::Plan(slot, after) => {
                        order += 1;
                        list.retain(|entry| entry.2 != slot);
                        list.push((now + after, order, slot));
                        agenda.plan(slots[slot], Timestamp::from_nanos(now + after));
                    }
                    Step::Cancel(slot) => {
                        list.retain(|entry| entry.2 != slot);
                        agenda.cancel(slots[slot]);
                    }
                    Step::Next => {
                        list.sort();
                        let wanted = (!list.is_empty()).then(|| list.remove(0));
                        let found = agenda.next().map(|(at, slot)| (at.as_nanos(), slot));
                        prop_assert_eq!(found, wanted.map(|(at, _, slot)| (at, slot)));
                        now = wanted.map_or(now, |(at, ..)| at);
                    }
                }
            }
        }
    }
}
