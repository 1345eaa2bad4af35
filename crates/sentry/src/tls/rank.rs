//! How important a handshake is, before anybody has asked for anything.
//!
//! *Intuition.* A class is a request's, and a handshake comes before it. Two things are known then: what the rules give
//! to every request of this address to this host, and which class requests of this address had lately. The better of
//! them counts.
//!
//! *Awkward cases.* What was learned is spent: each request that was let in is good for one handshake, up to sixteen at
//! a time. So an address that was important once cannot go on with handshakes alone, and a client with several
//! connections can. Addresses lie in a table of fixed size under a keyed hash. One gives way to another that is as
//! important, or when it was not here for an hour; it is then a stranger, as before its first request.
//!
//! *Source.* Ours.

use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;
use tidegate_engine::{ClassId, Timestamp};

use crate::config::resolve::process_seed;
use crate::shed::pile;

/// So many classes are told apart in a budget; of more, neighbours count as one.
pub(crate) const MOST_LEVELS: usize = 8;

/// Addresses that are remembered.
const SLOTS: usize = 1 << 14;

/// Handshakes that an address has earned at most.
const MOST_CREDITS: u8 = 16;

/// For how long it is remembered, minutes.
const MEMORY: u16 = 60;

/// What speaks for a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Of `levels`, counted from 0, the most important.
    level: u8,
    levels: u8,
    /// The client was here before.
    comes_back: bool,
}

impl Claim {
    /// Nothing does.
    pub(crate) const NONE: Claim = Claim { level: 0, levels: 1, comes_back: false };

    /// A client's whose requests are of one of so many classes. The first class is on the first level and the last on
    /// the last, however many an application has; an only one is as the last.
    pub(crate) fn of(class: ClassId, classes: usize, levels: usize, comes_back: bool) -> Claim {
        let lowest = levels.clamp(1, MOST_LEVELS) - 1;
        let level = match classes.saturating_sub(1) {
            0 => lowest,
            last => (class.index().min(last) * lowest + last / 2) / last,
        };
        Claim { level: level as u8, levels: lowest as u8 + 1, comes_back }
    }

    /// A client's that is as important as any, and known.
    pub(crate) fn best() -> Claim {
        Claim { comes_back: true, ..Claim::NONE }
    }

    /// Whether the client was here before.
    pub(crate) fn comes_back(self) -> bool {
        self.comes_back
    }

    /// From 0, who is served before all others, to 1, who is served when there is enough. Class comes before
    /// acquaintance.
    pub(crate) fn position(self) -> f64 {
        let place = 2 * self.level + u8::from(!self.comes_back);
        f64::from(place) / f64::from(2 * self.levels - 1)
    }

    /// Between one position and the next.
    pub(crate) fn step(self) -> f64 {
        1.0 / f64::from(2 * self.levels - 1)
    }
}

/// An application's memory of whose requests were important, and what became of handshakes by class.
#[derive(Debug)]
pub(crate) struct Ranks {
    /// Keyed as all hashes of the process are, and its successor's.
    hasher: SipHasher13,
    /// Made when there is somebody to remember.
    slots: OnceLock<Box<[AtomicU64]>>,
    /// By class, while there was not enough for all: refused, and not.
    counts: Box<[[AtomicU64; 2]]>,
}

/// What is remembered of addresses, for a process whose hashes have the same key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptRanks {
    /// Names of the classes.
    classes: Vec<String>,
    /// How many slots there are.
    slots: usize,
    /// Each one's slot and tag, for how many minutes it was not here, its class and its credits.
    addresses: Vec<(usize, u32, u16, u8, u8)>,
}

/// What is remembered of an address, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// Half of the hash of the address.
    tag: u32,
    /// When its last important request was let in, minutes.
    at: u16,
    class: u8,
    credits: u8,
}

impl Ranks {
    /// For so many classes.
    pub(crate) fn new(classes: usize) -> Ranks {
        let counts = (0..classes).map(|_| Default::default()).collect();
        let seed = process_seed();
        Ranks { hasher: SipHasher13::new_with_keys(seed, !seed), slots: OnceLock::new(), counts }
    }

    /// Whether these are of so many classes.
    pub(crate) fn classes(&self) -> usize {
        self.counts.len()
    }

    /// A request of `client` was let in. Of the last class nothing is remembered.
    pub(crate) fn note(&self, client: IpAddr, class: ClassId, now: Timestamp) {
        if class.index() + 1 >= self.classes() {
            return;
        }
        let slots = self.slots();
        let (slot, tag) = self.place(client);
        let (at, class) = (minute(now), class.0);
        let old = Entry::unpack(slots[slot].load(Relaxed));
        let is_fresh = old.is_fresh(at);
        if is_fresh && old.class < class {
            return;
        }
        let is_same = is_fresh && old.tag == tag && old.class == class;
        let credits = if is_same { (old.credits + 1).min(MOST_CREDITS) } else { 1 };
        let new = Entry { tag, at, class, credits };
        if new != old {
            // Two workers may get in each other's way: then a request counts for nothing.
            slots[slot].store(new.pack(), Relaxed);
        }
    }

    /// The class of `client`'s last important requests, as long as there is a handshake that they are good for.
    pub(crate) fn class_of(&self, client: IpAddr, now: Timestamp) -> Option<ClassId> {
        let (slot, tag) = self.place(client);
        let entry = Entry::unpack(self.slots.get()?[slot].load(Relaxed));
        (entry.tag == tag && entry.is_fresh(minute(now))).then_some(ClassId(entry.class))
    }

    /// `client` gets a handshake for that.
    pub(crate) fn spend(&self, client: IpAddr) {
        let (slot, tag) = self.place(client);
        let Some(slots) = self.slots.get() else { return };
        let entry = Entry::unpack(slots[slot].load(Relaxed));
        if entry.tag == tag && entry.credits > 0 {
            slots[slot].store(Entry { credits: entry.credits - 1, ..entry }.pack(), Relaxed);
        }
    }

    /// A handshake of that class was refused or not, while there was not enough for all.
    pub(crate) fn count(&self, class: ClassId, is_refused: bool) {
        if let Some(counts) = self.counts.get(class.index()) {
            counts[usize::from(!is_refused)].fetch_add(1, Relaxed);
        }
    }

    /// How many of a class were refused, and how many were not.
    pub(crate) fn counts(&self, class: usize) -> [u64; 2] {
        self.counts.get(class).map_or([0, 0], |counts| [counts[0].load(Relaxed), counts[1].load(Relaxed)])
    }

    /// What is remembered now, of classes with these names.
    pub(crate) fn kept(&self, classes: Vec<String>, now: Timestamp) -> KeptRanks {
        let entries = self.slots.get().into_iter().flatten().map(|word| Entry::unpack(word.load(Relaxed))).enumerate();
        let addresses = entries.filter(|(_, entry)| entry.is_fresh(minute(now)));
        let addresses = addresses
            .map(|(slot, Entry { tag, at, class, credits })| (slot, tag, minute(now).wrapping_sub(at), class, credits));
        KeptRanks { classes, slots: SLOTS, addresses: addresses.collect() }
    }

    /// Goes on with what was remembered there, and not here. Of classes that are no more, or are the last now, nothing
    /// is.
    pub(crate) fn recall(&self, kept: &KeptRanks, classes: &[String], now: Timestamp) {
        self.slots.get().into_iter().flatten().for_each(|slot| slot.store(0, Relaxed));
        for &(slot, tag, age, class, credits) in kept.addresses.iter().filter(|_| kept.slots == SLOTS) {
            let name = kept.classes.get(usize::from(class));
            let class = classes.iter().position(|known| Some(known) == name);
            let Some(class) = class.filter(|class| class + 1 < self.classes()) else { continue };
            let at = minute(now).wrapping_sub(age);
            let entry = Entry { tag, at, class: class as u8, credits: credits.min(MOST_CREDITS) };
            if let Some(slot) = self.slots().get(slot).filter(|_| entry.is_fresh(minute(now))) {
                slot.store(entry.pack(), Relaxed);
            }
        }
    }

    fn slots(&self) -> &[AtomicU64] {
        self.slots.get_or_init(|| (0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }

    fn place(&self, client: IpAddr) -> (usize, u32) {
        let mut hasher = self.hasher;
        hasher.write_u64(pile(client.to_canonical()));
        let hash = hasher.finish();
        (hash as usize % SLOTS, (hash >> 32) as u32)
    }
}

impl Entry {
    /// Whether it counts. It does not once its credits are spent.
    fn is_fresh(self, now: u16) -> bool {
        self.credits > 0 && now.wrapping_sub(self.at) <= MEMORY
    }

    fn pack(self) -> u64 {
        u64::from(self.tag) << 32 | u64::from(self.at) << 16 | u64::from(self.class) << 8 | u64::from(self.credits)
    }

    fn unpack(word: u64) -> Entry {
        Entry { tag: (word >> 32) as u32, at: (word >> 16) as u16, class: (word >> 8) as u8, credits: word as u8 }
    }
}

fn minute(at: Timestamp) -> u16 {
    (at.as_nanos() / 60_000_000_000) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLD: ClassId = ClassId(0);
    const SILVER: ClassId = ClassId(1);
    const REST: ClassId = ClassId(2);

    fn client(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn after(minutes: u64) -> Timestamp {
        Timestamp::from_nanos(minutes * 60_000_000_000)
    }

    #[test]
    fn a_request_is_good_for_a_handshake() {
        let (ranks, now) = (Ranks::new(3), after(1));
        assert_eq!(ranks.class_of(client(1), now), None);
        ranks.note(client(1), SILVER, now);
        ranks.note(client(2), REST, now);
        assert_eq!((ranks.class_of(client(1), now), ranks.class_of(client(2), now)), (Some(SILVER), None));
        ranks.spend(client(1));
        assert_eq!(ranks.class_of(client(1), now), None);
        for _ in 0..100 {
            ranks.note(client(1), SILVER, now);
        }
        let spent =
            (0..100).take_while(|_| ranks.class_of(client(1), now).is_some()).inspect(|_| ranks.spend(client(1)));
        assert_eq!(spent.count(), usize::from(MOST_CREDITS));
    }

    #[test]
    fn the_best_of_the_last_hour_counts() {
        let ranks = Ranks::new(3);
        ranks.note(client(1), SILVER, after(1));
        ranks.note(client(1), GOLD, after(2));
        ranks.note(client(1), SILVER, after(3));
        assert_eq!(ranks.class_of(client(1), after(62)), Some(GOLD));
        assert_eq!(ranks.class_of(client(1), after(63)), None);
        ranks.note(client(1), SILVER, after(64));
        assert_eq!(ranks.class_of(client(1), after(64)), Some(SILVER));
        let mapped = IpAddr::V6(std::net::Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
        assert_eq!(ranks.class_of(mapped, after(64)), Some(SILVER), "the same client");
    }

    /// A successor has another time, and other classes.
    #[test]
    fn a_successor_remembers_who_was_important() {
        let names = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        let (before, after) = (Ranks::new(3), Ranks::new(4));
        before.note(client(1), GOLD, self::after(7));
        before.note(client(2), SILVER, self::after(60));
        before.note(client(2), SILVER, self::after(60));
        let kept = before.kept(names(&["gold", "silver", "rest"]), self::after(62));
        let written = serde_json::to_string(&kept).expect("JSON");
        let kept: KeptRanks = serde_json::from_str(&written).expect("the same");
        let now = names(&["platinum", "gold", "silver", "rest"]);
        after.recall(&kept, &now, self::after(1));
        assert_eq!(after.class_of(client(1), self::after(1)), Some(ClassId(1)));
        assert_eq!(after.class_of(client(1), self::after(7)), None, "an hour is over");
        for credits in [2, 1] {
            assert_eq!(after.class_of(client(2), self::after(7)), Some(ClassId(2)), "{credits}");
            after.spend(client(2));
        }
        assert_eq!(after.class_of(client(2), self::after(7)), None);
        after.recall(&kept, &now, self::after(2));
        after.recall(&KeptRanks::default(), &now, self::after(2));
        assert_eq!(after.class_of(client(2), self::after(2)), None, "the last word counts");
        let addresses = [(SLOTS, 1, 0, 0, 1), (0, 1, MEMORY + 1, 0, 1), (1, 1, 0, 0, 0), (2, 1, 0, 9, 1)];
        let broken = KeptRanks { addresses: addresses.into(), ..kept.clone() };
        after.recall(&broken, &now, self::after(2));
        after.recall(&KeptRanks { slots: SLOTS / 2, ..kept.clone() }, &now, self::after(2));
        assert!(after.kept(now, self::after(2)).addresses.is_empty(), "nonsense is nothing");
        let fewer = Ranks::new(2);
        fewer.recall(&kept, &names(&["platinum", "gold"]), self::after(1));
        assert_eq!(fewer.class_of(client(1), self::after(1)), None, "the last class is nobody's");
    }

    /// However many come, nobody who is more important is forgotten for them.
    #[test]
    fn who_is_less_important_pushes_nobody_out() {
        let (ranks, now) = (Ranks::new(3), after(1));
        ranks.note(client(1), GOLD, now);
        for address in 0..4 * SLOTS as u32 {
            ranks.note(IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0A00_0000 | address)), SILVER, now);
        }
        assert_eq!(ranks.class_of(client(1), now), Some(GOLD));
    }

    #[test]
    fn class_comes_before_acquaintance() {
        let of = |class: u8, classes, levels, comes_back| Claim::of(ClassId(class), classes, levels, comes_back);
        let mut order = Vec::new();
        for class in 0..3 {
            order.extend([true, false].map(|comes_back| of(class, 3, 3, comes_back).position()));
        }
        assert!(order.is_sorted() && order[0] == 0.0 && order[5] == 1.0, "{order:?}");
        assert_eq!(Claim::best().position(), of(0, 3, 3, true).position());
        // The ends are the same wherever there are fewer classes than levels, or more.
        for classes in [2, 3, 5, 200] {
            assert_eq!(of(0, classes, 4, false), of(0, 2, 4, false));
            assert_eq!(of(classes as u8 - 1, classes, 4, false), of(1, 2, 4, false));
        }
        assert_eq!(of(0, 1, 4, true), of(1, 2, 4, true), "an only class is the last");
        assert_eq!(of(0, 1, 1, false), Claim::NONE);
    }
}
