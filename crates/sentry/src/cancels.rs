//! The clients whose requests were abandoned most often lately, in bounded memory whoever comes.
//!
//! *Intuition.* Somebody who reloads without end, or a program that gives up too early and tries again, makes ghosts by
//! the thousand. Who that is shows at once if abandoned requests are counted by client. There are more addresses than
//! there is memory, so only as many clients are kept as fit into a short list: whoever is not on it takes the place of
//! the one with the least, and inherits its count, which is then by how much the newcomer's may be too high.
//!
//! *Awkward cases.* Whoever holds an IPv6 network has 2^64 addresses: they are one client. An IPv4 address inside IPv6
//! is the IPv4 address. Old counts fade with a half-life of a minute, so that the list shows the present. A count is
//! never too low, and too high by no more than it says; whoever has more than the 64th part of all is on the list.
//!
//! *Source.* Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements in data streams"
//! (ICDT 2005): space-saving. The fading is Cormode's forward decay (ICDE 2009): new counts weigh more.

use std::net::{IpAddr, Ipv6Addr};

use tidegate_engine::Timestamp;

/// How many clients are kept.
const KEPT: usize = 64;
/// Counts halve in this time, seconds.
const HALF_LIFE: f64 = 60.0;
/// Weights are scaled down when a new count weighs more than this.
const HEAVIEST: f64 = 1e12;

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Cancels {
    kept: Vec<Kept>,
    /// The time at which a count weighs 1.
    epoch: Timestamp,
}

/// One client and what it left.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Kept {
    client: IpAddr,
    count: f64,
    /// Of that, so much may be others'.
    inherited: f64,
}

/// A client that left requests behind.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Leaver {
    /// Its address; of IPv6, its network of 64 bits.
    pub client: IpAddr,
    /// Requests that it left lately: those of the last minute or two, faded.
    pub recent: f64,
    /// By how much that may be too high.
    pub at_most_over: f64,
}

impl Cancels {
    /// A client left a request behind.
    pub(crate) fn count(&mut self, now: Timestamp, client: IpAddr) {
        let client = prefix(client);
        let weight = self.weight(now);
        if let Some(known) = self.kept.iter_mut().find(|kept| kept.client == client) {
            known.count += weight;
            return;
        }
        if self.kept.len() < KEPT {
            self.kept.push(Kept { client, count: weight, inherited: 0.0 });
        } else if let Some(least) = self.kept.iter_mut().min_by(|a, b| a.count.total_cmp(&b.count)) {
            *least = Kept { client, count: least.count + weight, inherited: least.count };
        }
    }

    /// Those that left most, first of all the one with most.
    pub(crate) fn most(&self, now: Timestamp, how_many: usize) -> Vec<Leaver> {
        let fade = 1.0 / growth(self.epoch, now);
        let mut all = self.kept.clone();
        all.sort_by(|a, b| b.count.total_cmp(&a.count).then(a.client.cmp(&b.client)));
        let leaver = |kept: &Kept| Leaver {
            client: kept.client,
            recent: kept.count * fade,
            at_most_over: kept.inherited * fade,
        };
        all.iter().take(how_many).map(leaver).collect()
    }

    /// What a count of now weighs.
    fn weight(&mut self, now: Timestamp) -> f64 {
        let weight = growth(self.epoch, now);
        if weight < HEAVIEST {
            return weight;
        }
        for kept in &mut self.kept {
            kept.count /= weight;
            kept.inherited /= weight;
        }
        self.epoch = now;
        1.0
    }
}

fn growth(epoch: Timestamp, now: Timestamp) -> f64 {
    (now.seconds_since(epoch) / HALF_LIFE).exp2()
}

/// Whom the client counts as.
fn prefix(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn v4(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    fn after(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    proptest! {
        /// Against exact counts: never too low, too high by no more than is said, and nobody with much is missing.
        #[test]
        fn counts_are_within_the_bounds_that_they_name(clients in prop::collection::vec(0u32..300, 1..3000)) {
            let (mut cancels, mut exact) = (Cancels::default(), HashMap::<IpAddr, f64>::new());
            for client in &clients {
                // Few have much, many have little.
                let client = v4(client * client / 300);
                cancels.count(Timestamp::ZERO, client);
                *exact.entry(client).or_default() += 1.0;
            }
            let shown = cancels.most(Timestamp::ZERO, KEPT);
            prop_assert!(shown.len() <= KEPT && shown.is_sorted_by(|a, b| a.recent >= b.recent));
            for leaver in &shown {
                let truth = exact[&leaver.client];
                prop_assert!(leaver.recent >= truth && leaver.recent - leaver.at_most_over <= truth, "{leaver:?}");
            }
            for (client, count) in exact {
                let much = count > clients.len() as f64 / KEPT as f64;
                prop_assert!(!much || shown.iter().any(|leaver| leaver.client == client), "{client}: {count}");
            }
        }
    }

    #[test]
    fn a_network_is_one_client() {
        let mut cancels = Cancels::default();
        for address in ["2001:db8::1", "2001:db8::ffff", "2001:db8:0:1::1", "::ffff:192.0.2.7", "192.0.2.7"] {
            cancels.count(Timestamp::ZERO, address.parse().expect("an address"));
        }
        let shown = cancels.most(Timestamp::ZERO, 9);
        let shown: Vec<_> = shown.iter().map(|leaver| (leaver.client.to_string(), leaver.recent)).collect();
        let of = |client: &str, count| (client.to_owned(), count);
        assert_eq!(shown, [of("192.0.2.7", 2.0), of("2001:db8::", 2.0), of("2001:db8:0:1::", 1.0)]);
    }

    #[test]
    fn the_past_fades_and_never_overflows() {
        let mut cancels = Cancels::default();
        (0..64).for_each(|_| cancels.count(after(0), v4(1)));
        assert!((cancels.most(after(120), 1)[0].recent - 16.0).abs() < 1e-9);
        cancels.count(after(86_400 * 365), v4(2));
        let shown = cancels.most(after(86_400 * 365), 2);
        assert_eq!((shown[0].client, shown[0].recent), (v4(2), 1.0));
        assert!(shown[1].recent < 1e-6);
    }
}
