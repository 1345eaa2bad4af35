//! Limits the answers by UDP that go to one network, and to all. Pure.
//!
//! *Intuition.* Where a datagram says it is from, nobody has proved. Who sends small queries in another's name has the
//! larger answers sent to that one, and DNS servers are looked for that can be used so. A true resolver keeps answers
//! and asks a few times in their TTL; who gets hundreds of answers a second has not asked for them. So each network has
//! a bucket of answers. Once it is empty, every second answer is sent without what was asked for, and marked as cut:
//! that is no larger than its query, and a true resolver comes again by TCP, which cannot be forged. The others are
//! dropped. All networks together have a bucket, too, or queries in the names of very many would all be answered: once
//! it is empty, everybody gets the short answer, which fills no line further than its query did.
//!
//! *Awkward cases.* Networks, not addresses: a line is filled as well through its neighbours. The table has a fixed
//! size; where a network finds all places of its row taken, it gets that of the network that has had the fewest
//! answers lately. So a flood in the name of random networks, which get an answer each, lets none off that gets many;
//! and who loses its place so loses a bucket that was all but full, and gets a full one. Rows are chosen by a hash with
//! a random key: nobody can choose networks that share a row with a resolver. Two that do still have buckets of their
//! own.
//!
//! *Source.* Vixie and Schryver, DNS Response Rate Limiting, 2012; the rate is NSD's default, BIND's and Knot's count
//! fewer answers, but of one kind each.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::IpNet;

/// Answers a second that a network gets in the long run.
pub(super) const RATE: u32 = 200;
/// Answers that it gets at once.
const BURST: u32 = 1000;
/// The time after which a bucket has one more.
const EACH: Duration = Duration::from_nanos(1_000_000_000 / RATE as u64);
/// The time in which a bucket fills.
const FULL: Duration = Duration::from_secs((BURST / RATE) as u64);

/// Answers a second that all networks get together in the long run: 25 networks at their rate, and 6 MB of the largest.
pub(super) const RATE_OF_ALL: u32 = 5000;
const EACH_OF_ALL: Duration = Duration::from_nanos(1_000_000_000 / RATE_OF_ALL as u64);
const FULL_OF_ALL: Duration = Duration::from_secs(2);

/// Rows of the table, and places of a row: 1.5 MiB.
const ROWS: usize = 1 << 14;
const PLACES: usize = 4;

/// Bits of an address that make a network: what one site has.
const BITS_4: u8 = 24;
const BITS_6: u8 = 56;

/// Each network's bucket.
#[derive(Debug)]
pub(super) struct Limiter {
    seed: RandomState,
    table: Vec<[Bucket; PLACES]>,
    /// When the bucket of all will be full again.
    all_full: Duration,
}

/// What is to be done with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is sent.
    Answer,
    /// It is sent empty, marked as cut.
    Truncate,
    /// It is not sent.
    Drop,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    network: u64,
    /// When it will be full again.
    full: Duration,
    /// The next answer that is limited is dropped.
    drops: bool,
}

impl Bucket {
    /// Nobody's: no network has this number.
    const EMPTY: Bucket = Bucket { network: u64::MAX, full: Duration::ZERO, drops: false };
}

impl Limiter {
    pub(super) fn new() -> Limiter {
        Limiter { seed: RandomState::new(), table: vec![[Bucket::EMPTY; PLACES]; ROWS], all_full: Duration::ZERO }
    }

    /// Whether an answer may go to an address at this time, which is no earlier than the last.
    pub(super) fn judge(&mut self, now: Duration, to: IpAddr) -> Verdict {
        let network = number(to);
        let row = self.seed.hash_one(network) as usize % ROWS;
        let row = &mut self.table[row];
        let at = row.iter().position(|bucket| bucket.network == network).unwrap_or_else(|| {
            let at = (0..PLACES).min_by_key(|&at| row[at].full).unwrap_or(0);
            row[at] = Bucket { network, ..Bucket::EMPTY };
            at
        });
        let bucket = &mut row[at];
        let full = bucket.full.max(now) + EACH;
        if full <= now + FULL {
            bucket.full = full;
            let all_full = self.all_full.max(now) + EACH_OF_ALL;
            if all_full > now + FULL_OF_ALL {
                return Verdict::Truncate;
            }
            self.all_full = all_full;
            return Verdict::Answer;
        }
        bucket.drops = !bucket.drops;
        if bucket.drops { Verdict::Truncate } else { Verdict::Drop }
    }
}

/// The network of an address, as it is limited.
pub(super) fn network(of: IpAddr) -> IpNet {
    let of = of.to_canonical();
    let bits = if of.is_ipv4() { BITS_4 } else { BITS_6 };
    IpNet::new(of, bits).map_or(IpNet::from(of), |net| net.trunc())
}

/// The number of an address's network.
fn number(of: IpAddr) -> u64 {
    match network(of).addr() {
        IpAddr::V4(address) => 1 << 63 | u64::from(Ipv4Addr::to_bits(address)),
        IpAddr::V6(address) => (Ipv6Addr::to_bits(address) >> (128 - BITS_6)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// How often each verdict fell.
    fn flood(limiter: &mut Limiter, to: IpAddr, start: Duration, rate: u32, seconds: u32) -> [u32; 3] {
        let mut counts = [0; 3];
        for number in 0..rate * seconds {
            let now = start + Duration::from_secs(1) * number / rate;
            counts[limiter.judge(now, to) as usize] += 1;
        }
        counts
    }

    #[test]
    fn a_flood_gets_the_rate_and_every_second_one_beyond_it_is_cut() {
        let mut limiter = Limiter::new();
        let [answers, cut, dropped] = flood(&mut limiter, address("192.0.2.1"), Duration::ZERO, 5000, 10);
        assert!((BURST + 9 * RATE..=BURST + 10 * RATE).contains(&answers), "{answers}");
        assert!(cut - dropped <= 1 && answers + cut + dropped == 50_000, "{cut} {dropped}");
        // A minute later all is forgiven.
        let later = flood(&mut limiter, address("192.0.2.1"), Duration::from_secs(60), RATE, 10);
        assert_eq!(later, [RATE * 10, 0, 0]);
    }

    #[test]
    fn a_network_has_one_bucket() {
        let mut limiter = Limiter::new();
        let mut next = |to: &str| limiter.judge(Duration::ZERO, address(to));
        for number in 0..BURST {
            assert_eq!(next(&format!("192.0.2.{}", number % 256)), Verdict::Answer);
            assert_eq!(next(&format!("2001:db8:0:1{:02x}::1", number % 256)), Verdict::Answer);
        }
        assert_eq!((next("192.0.2.7"), next("::ffff:192.0.2.8")), (Verdict::Truncate, Verdict::Drop));
        assert_eq!((next("2001:db8:0:1ff::9"), next("2001:db8:0:100::")), (Verdict::Truncate, Verdict::Drop));
        for other in ["192.0.3.1", "192.0.1.255", "2001:db8:0:2ff::", "2001:db8::1", "::"] {
            assert_eq!(next(other), Verdict::Answer, "{other}");
        }
        assert_eq!(network(address("::ffff:192.0.2.8")).to_string(), "192.0.2.0/24");
        assert_eq!(network(address("2001:db8:0:1ff::9")).to_string(), "2001:db8:0:100::/56");
    }

    #[test]
    fn a_flood_of_random_networks_frees_no_other_and_gets_no_more_than_all_may() {
        let mut limiter = Limiter::new();
        let (victim, resolver) = (address("192.0.2.1"), address("198.51.100.1"));
        let (mut answers, mut of_random) = (0, 0);
        for round in 0..10_000_u32 {
            let now = Duration::from_millis(1) * round;
            for number in 0..100 {
                let random = IpAddr::from((round * 100 + number).wrapping_mul(0x9e37_79b1).to_be_bytes());
                of_random += u32::from(limiter.judge(now, random) == Verdict::Answer);
            }
            answers += u32::from(limiter.judge(now, victim) == Verdict::Answer);
            if round % 20 == 0 {
                assert_ne!(limiter.judge(now, resolver), Verdict::Drop, "it can come by TCP at least");
            }
        }
        // A million and a hundred thousand queries in ten seconds.
        assert!((9 * RATE_OF_ALL..=12 * RATE_OF_ALL).contains(&of_random), "{of_random}");
        let later = Duration::from_secs(12);
        assert_eq!(limiter.judge(later, resolver), Verdict::Answer);
        assert!(answers <= BURST + 10 * RATE, "{answers} answers to who did not ask");
        assert_eq!(limiter.table.len(), ROWS);
    }

    proptest! {
        #[test]
        fn nobody_gets_more_than_the_rate(steps in prop::collection::vec((0_u64..200_000, 0_u8..3), 1..5000)) {
            let mut limiter = Limiter::new();
            let (mut now, mut answers) = (Duration::ZERO, [0_u32; 3]);
            for (step, to) in steps {
                now += Duration::from_nanos(step);
                let verdict = limiter.judge(now, IpAddr::from([10, 0, to, 1]));
                answers[usize::from(to)] += u32::from(verdict == Verdict::Answer);
            }
            let most = f64::from(BURST) + f64::from(RATE) * now.as_secs_f64();
            prop_assert!(answers.iter().all(|&got| f64::from(got) <= most + 1e-6));
        }
    }
}
