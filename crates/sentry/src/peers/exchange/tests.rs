//! Who is a member, who is told and who counts, while lists and names change. Datagrams go from hand to hand.

use std::path::PathBuf;

use super::*;
use crate::config::{Config, OneLine};
use crate::record::NoRecords;

const ONE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 9903);
const TWO: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), 9903);
const THREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 3)), 9903);

/// One sentry's exchange, which speaks of one application.
struct Bench {
    exchange: Exchange,
}

impl Bench {
    fn new(own: SocketAddr, sentries: &[PeerPlace]) -> Bench {
        let line = OneLine { to: vec![String::from("127.0.0.1:1")], ..OneLine::default() };
        let application = Config::one_line(line).expect("valid").config.applications.remove(0);
        let app = App::new(application, 1, 1, Arc::new(NoRecords)).expect("it makes sense");
        let keys = Keys::derive(b"a secret of the tests");
        let config = config::Peers { listen: own, sentries: sentries.to_vec(), key_file: PathBuf::new(), keys };
        let exchange = Exchange::new(&config, own, vec![Arc::new(app)], Arc::new(Counts::default()));
        Bench { exchange }
    }

    /// A name leads to these addresses from now on.
    fn find(&mut self, addresses: &[SocketAddr]) {
        let member = |address: &SocketAddr| names::Member { address: *address, weight: 1.0 };
        let members = addresses.iter().map(member).collect();
        let named = Named::of_peers(&name()).expect("a name");
        self.exchange.find(|found| drop(found.insert(named, members)));
    }

    /// Everybody in the list: where, by a name or not, and whether it is this sentry itself.
    fn members(&self) -> Vec<(SocketAddr, bool, bool)> {
        let peers = self.exchange.peers(Instant::now());
        peers.into_iter().map(|peer| (peer.address, peer.name.is_some(), peer.is_self)).collect()
    }

    /// What it tells, and whom.
    fn told(&mut self) -> Vec<(Vec<u8>, SocketAddr)> {
        let mut told = Vec::new();
        self.exchange.tell(Instant::now(), &mut |datagram, to| told.push((datagram.to_vec(), to)));
        told
    }

    fn whom(&mut self) -> Vec<SocketAddr> {
        self.told().into_iter().map(|(_, to)| to).collect()
    }

    /// Each hears what the other tells, twice, at and from these addresses.
    fn meet(&mut self, own: SocketAddr, other: &mut Bench, others: SocketAddr) {
        for _ in 0..2 {
            self.hear(own, other, others);
            other.hear(others, self, own);
        }
    }

    /// Hears what another tells at `at`.
    fn hear(&mut self, at: SocketAddr, other: &mut Bench, from: SocketAddr) {
        for (datagram, _) in other.told().iter().filter(|(_, to)| *to == at) {
            self.exchange.hear(Instant::now(), datagram, from);
        }
    }

    /// Time enough has passed to be sure who is not there.
    fn settle(&mut self) {
        self.exchange.tell(Instant::now() + Duration::from_secs(2), &mut |_, _| {});
        let topic = &mut self.exchange.topics[0];
        topic.circle.peers(topic.app.now() + Duration::from_secs(2));
    }

    /// How many others it reckons with.
    fn others(&mut self) -> usize {
        self.exchange.topics[0].circle.peers(Timestamp::ZERO).count
    }
}

fn name() -> PeerPlace {
    PeerPlace::Host { name: String::from("sentries.example"), port: 9903 }
}

#[test]
fn its_own_address_is_left_out_whenever_it_comes() {
    let mut one = Bench::new(ONE, &[]);
    one.exchange.configure(&[ONE.into(), TWO.into()]);
    assert_eq!(one.members(), [(ONE, false, true), (TWO, false, false)]);
    assert_eq!(one.whom(), [TWO]);
    one.exchange.configure(&[TWO.into()]);
    one.exchange.configure(&[name(), TWO.into()]);
    one.find(&[ONE]);
    assert_eq!(one.members(), [(ONE, true, true), (TWO, false, false)]);
    assert_eq!(one.whom(), [TWO]);
}

#[test]
fn a_name_is_all_of_its_addresses_and_each_counts_once() {
    let mut one = Bench::new(ONE, &[TWO.into(), name()]);
    assert_eq!(one.exchange.wanted(), [Named::of_peers(&name()).expect("a name")]);
    assert_eq!(one.members(), [(TWO, false, false)], "nothing is known of the name");
    let mapped = SocketAddr::new(std::net::IpAddr::V6(std::net::Ipv4Addr::new(10, 0, 0, 3).to_ipv6_mapped()), 9903);
    one.find(&[ONE, TWO, THREE, mapped, "[fd00::3]:9903".parse().expect("an address")]);
    let all = [(TWO, false, false), (ONE, true, true), (THREE, true, false)];
    assert_eq!(one.members(), all, "but for the address that a socket for IPv4 cannot reach");
    // A reload keeps what is known of names that stay, and forgets the rest.
    one.exchange.configure(&[name()]);
    assert_eq!(one.members(), [(ONE, true, true), (TWO, true, false), (THREE, true, false)]);
    one.exchange.configure(&[TWO.into()]);
    one.exchange.configure(&[name()]);
    assert_eq!(one.members(), []);
}

#[test]
fn who_is_not_in_the_name_any_more_has_no_part_and_who_comes_back_has() {
    let (mut one, mut two) = (Bench::new(ONE, &[name()]), Bench::new(TWO, &[ONE.into()]));
    one.find(&[ONE, TWO]);
    one.exchange.begin(Instant::now());
    assert_eq!(one.others(), 1, "it reckons with who is in the name");
    one.settle();
    assert_eq!(one.others(), 0);
    one.meet(ONE, &mut two, TWO);
    assert_eq!(one.others(), 1, "it hears the other");
    one.find(&[ONE, TWO, THREE]);
    assert_eq!(one.others(), 1, "and goes on hearing it");
    one.find(&[ONE, THREE]);
    assert_eq!(one.others(), 0);
    let strangers = |one: &Bench| one.exchange.counts.rejected(Rejected::UnknownPeer);
    assert_eq!(strangers(&one), 0);
    one.hear(ONE, &mut two, TWO);
    assert_eq!((one.others(), strangers(&one)), (0, 1), "whatever it says");
    one.find(&[ONE, TWO]);
    one.settle();
    two.settle();
    one.meet(ONE, &mut two, TWO);
    assert_eq!(one.others(), 1);
}

#[test]
fn who_was_alone_reckons_with_those_that_are_found() {
    let mut one = Bench::new(ONE, &[name()]);
    one.exchange.begin(Instant::now());
    assert_eq!(one.others(), 0);
    one.find(&[ONE, TWO, THREE]);
    assert_eq!(one.others(), 2);
}

#[test]
fn who_has_two_addresses_counts_once() {
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    let any = address("[::]:9903");
    let (one_too, two_too) = (address("[fd00::1]:9903"), address("[fd00::2]:9903"));
    let mut one = Bench::new(any, &[name()]);
    let mut two = Bench::new(any, &[ONE.into(), one_too.into()]);
    one.find(&[TWO, two_too]);
    assert_eq!(one.members().len(), 2, "a socket for every address reaches both");
    // Both are told what is needed to be believed before either is.
    let (first, second) = (one.told(), one.told());
    for (datagram, to) in first.iter().chain(&second) {
        two.exchange.hear(Instant::now(), datagram, if *to == TWO { ONE } else { one_too });
    }
    one.hear(ONE, &mut two, TWO);
    one.hear(one_too, &mut two, two_too);
    let heard = |bench: &Bench| bench.exchange.members.iter().map(|member| member.heard.is_some()).collect::<Vec<_>>();
    assert_eq!(heard(&one), [true, false]);
    assert_eq!(one.exchange.counts.rejected(Rejected::UnknownPeer), 1);
}

#[test]
fn who_hears_itself_there_leaves_itself_out_and_sending_back_what_it_says_silences_nobody() {
    let any: SocketAddr = "0.0.0.0:9903".parse().expect("an address");
    let (mut one, mut two) = (Bench::new(any, &[ONE.into(), TWO.into()]), Bench::new(TWO, &[ONE.into()]));
    one.exchange.begin(Instant::now());
    let echo = |one: &mut Bench, own: SocketAddr| {
        let told = one.told();
        let back = told.iter().filter(|(_, to)| *to == own);
        back.for_each(|(datagram, _)| one.exchange.hear(Instant::now(), datagram, own));
    };
    // The first is itself. In the name of the second somebody sends back what it was told.
    echo(&mut one, ONE);
    echo(&mut one, TWO);
    assert_eq!(one.members(), [(ONE, false, true), (TWO, false, true)]);
    assert_eq!((one.whom(), one.exchange.counts.taken()), (Vec::new(), 0));
    // The second is not told each time, but often enough to be heard.
    let ask = |one: &mut Bench| one.exchange.asks = Instant::now();
    ask(&mut one);
    assert_eq!(one.whom(), [ONE, TWO]);
    for _ in 0..2 {
        ask(&mut one);
        two.hear(TWO, &mut one, ONE);
        one.hear(ONE, &mut two, TWO);
    }
    assert_eq!(one.members(), [(ONE, false, true), (TWO, false, false)]);
    echo(&mut one, TWO);
    assert_eq!(one.whom(), [TWO], "while it is heard nothing sent back counts");
}
