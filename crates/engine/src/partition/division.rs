//! The servers as a partition policy sees them: who is whose, what they hold, and moves between partitions.

use alloc::vec::Vec;

use crate::fleet::{ServerState, Status};
use crate::max_conn::{Kinds, MOST_KINDS, MaxConn};

/// What the servers of an application hold, and whose they are. Servers that take nothing are left out: they keep their
/// partition for the time they come back, and count for nothing until then.
pub struct Division<'a> {
    pub(crate) servers: &'a mut [ServerState],
    /// The state in which servers take requests.
    pub(crate) taking: Status,
    pub(crate) kinds: &'a Kinds,
    /// As many as there are classes, or as servers where those are fewer.
    pub(crate) groups: usize,
}

/// A server that a class has, as of its number in the setup.
type Slot = usize;

impl Division<'_> {
    /// How many partitions there are.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// The servers that take requests, in the order of the setup.
    pub fn live(&self) -> impl Iterator<Item = Slot> + '_ {
        let takes = |server: &&ServerState| server.is_divided(self.taking);
        self.servers.iter().filter(takes).map(|server| server.id.index())
    }

    /// The servers of a partition that take requests.
    pub fn of(&self, group: usize) -> impl Iterator<Item = Slot> + '_ {
        self.live().filter(move |&at| self.servers[at].partition == Some(group as u8))
    }

    /// How many these are.
    pub fn count(&self, group: usize) -> usize {
        self.of(group).count()
    }

    /// The partition of a server; `None`: it is new.
    pub fn group(&self, server: Slot) -> Option<usize> {
        self.servers[server].partition.map(usize::from)
    }

    /// A server's weight.
    pub fn weight(&self, server: Slot) -> f64 {
        self.servers[server].weight
    }

    /// The weight of a partition.
    pub fn weight_of(&self, group: usize) -> f64 {
        self.of(group).map(|at| self.servers[at].weight).sum()
    }

    /// What a server of weight 1 can hold, by kind.
    pub fn limits(&self) -> &[MaxConn] {
        self.kinds.limits()
    }

    /// What a partition's servers hold, by kind: in flight from here, and what others sent as nuclei tell.
    pub fn load(&self, group: usize) -> [f64; MOST_KINDS] {
        let mut sum = [0.0; MOST_KINDS];
        for at in self.of(group) {
            sum.iter_mut().enumerate().for_each(|(kind, sum)| *sum += self.servers[at].holds(kind));
        }
        sum
    }

    /// What a server holds, as the largest share of what it can hold within the target, over the kinds.
    pub fn fill(&self, server: Slot) -> f64 {
        let server = &self.servers[server];
        let share = |(kind, limit): (usize, &MaxConn)| server.holds(kind) / (limit.within_target * server.weight);
        self.limits().iter().enumerate().map(share).fold(0.0, f64::max)
    }

    /// The least loaded server of a partition, the last of equals.
    pub fn least_loaded(&self, group: usize) -> Option<Slot> {
        let lesser = |best: (Slot, f64), next: (Slot, f64)| if next.1 <= best.1 { next } else { best };
        self.of(group).map(|at| (at, self.fill(at))).reduce(lesser).map(|(at, _)| at)
    }

    /// Puts a server into a partition. It finishes what it has, and gets new requests of that partition only.
    pub fn put(&mut self, server: Slot, group: usize) {
        self.servers[server].partition = Some(group as u8);
    }

    /// The paper's formula, from the most important class down: of the `rest` that is left to a class and those below
    /// it, a class with the share `r` of their requests has the weight `r rest + rest (1 - r) (1 - safety)`, and
    /// servers are dealt to it in order until they reach that. Everyone has at least `least` servers, and the last what
    /// is left.
    pub fn by_formula(&mut self, shares: &[f64], least: &[usize]) {
        let live: Vec<Slot> = self.live().collect();
        let safety = self.limits().iter().map(MaxConn::safety).fold(1.0, f64::min);
        let mut next = 0;
        for group in 0..self.groups {
            let rest: f64 = live[next..].iter().map(|&at| self.weight(at)).sum();
            let share = share_of_rest(shares, group);
            let wanted = share * rest + rest * (1.0 - share) * (1.0 - safety);
            let below = (group + 1..self.groups).map(|group| least[group]).sum::<usize>();
            let most = (live.len() - next).saturating_sub(below).max(1);
            let (mut count, mut weight) = (0, 0.0);
            // Rounding must not make one more of what is exactly enough.
            while count < most && (count < least[group] || weight < wanted * (1.0 - 1e-9)) {
                weight += self.weight(live[next + count]);
                count += 1;
            }
            let count = if group + 1 == self.groups { live.len() - next } else { count };
            live[next..next + count].iter().for_each(|&at| self.put(at, group));
            next += count;
        }
    }

    /// Puts new servers, and those of partitions that are gone, into the last partition, and sees to it that none has
    /// fewer than its least: they come from the partition that has most beyond its own.
    pub fn repair(&mut self, least: &[usize]) {
        let strays: Vec<Slot> =
            self.live().filter(|&at| self.group(at).is_none_or(|group| group >= self.groups)).collect();
        strays.into_iter().for_each(|at| self.put(at, self.groups - 1));
        for group in 0..self.groups {
            while self.count(group) < least[group] {
                let spare = |other: &usize| self.count(*other).saturating_sub(least[*other]);
                let giver = (0..self.groups).filter(|other| *other != group).max_by_key(spare);
                let Some(giver) = giver.filter(|giver| spare(giver) > 0) else { return };
                let Some(server) = self.least_loaded(giver) else { return };
                self.put(server, group);
            }
        }
    }
}

/// A class's part of what it and the less important ones bring; evenly where nothing is known.
fn share_of_rest(shares: &[f64], group: usize) -> f64 {
    let rest: f64 = shares[group..].iter().sum();
    if rest > 0.0 { shares[group] / rest } else { 1.0 / (shares.len() - group) as f64 }
}

/// The least numbers of servers for `groups` partitions of `servers` servers: those wished for, and at least one each,
/// unless there are not enough; then, from the least important up, fewer, and one at least.
pub(super) fn least(wished: &[u32], groups: usize, servers: usize) -> Vec<usize> {
    let mut least: Vec<usize> = (0..groups).map(|at| wished.get(at).map_or(1, |&n| n.max(1) as usize)).collect();
    for at in (0..groups).rev() {
        let excess = least.iter().sum::<usize>().saturating_sub(servers);
        least[at] -= excess.min(least[at] - 1);
    }
    least
}

/// The shares expected of `groups` partitions: the last has what the others leave, together with classes beyond.
pub(super) fn shares(expected: &[f64], groups: usize) -> Vec<f64> {
    let mut shares: Vec<f64> = (0..groups).map(|at| expected.get(at).copied().unwrap_or(f64::NAN)).collect();
    if expected.len() > groups {
        shares[groups - 1] = expected[groups - 1..].iter().sum();
    }
    let known: f64 = shares.iter().filter(|share| !share.is_nan()).sum();
    let unknown = shares.iter().filter(|share| share.is_nan()).count();
    let each = (1.0 - known).max(0.0) / unknown.max(1) as f64;
    shares.iter_mut().filter(|share| share.is_nan()).for_each(|share| *share = each);
    shares
}

/// Checks shares as they are written.
pub(super) fn are_shares(expected: &[f64]) -> bool {
    expected.iter().all(|share| (0.0..=1.0).contains(share)) && expected.iter().sum::<f64>() <= 1.0 + 1e-9
}
