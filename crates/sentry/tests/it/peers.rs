//! Sentries before the same servers, over loopback: who is heard, who leaves, and what a stranger can do.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;

use hickory_server::proto::op::ResponseCode;
use serde_json::json;
use tidegate_engine::Snapshot;
use tidegate_sentry::config::{Config, PeerPlace, Peers};
use tidegate_sentry::names::look_up;
use tidegate_sentry::record::NoRecords;
use tidegate_sentry::{Sentry, StartError};
use tidegate_wire::{Keys, Rejected};

use crate::support::dns::Dns;
use crate::support::{RawServer, Running, admission, application, config, ok, until};

/// One that all sentries of a test share, and those of no other.
fn keys() -> Keys {
    Keys::derive(&std::process::id().to_ne_bytes())
}

fn configured(server: SocketAddr, keys: Keys, sentries: Vec<SocketAddr>) -> Config {
    let mut application = application(&[server]);
    application.setup.admission = admission(json!({ "policy": "waiting" }));
    let mut config = config(application, 1);
    let sentries = sentries.into_iter().map(PeerPlace::from).collect();
    config.peers = Some(Peers { listen: ([127, 0, 0, 1], 0).into(), sentries, key_file: PathBuf::new(), keys });
    config
}

/// Sentries before one server that know of each other; each is told the whole list.
fn fleet(count: usize, server: SocketAddr) -> Vec<Running> {
    let start = |_| {
        let handle = Sentry::start(configured(server, keys(), Vec::new()), Arc::new(NoRecords)).expect("a sentry");
        let address = handle.addresses("app")[0];
        Running { handle, address }
    };
    let fleet: Vec<Running> = (0..count).map(start).collect();
    let all: Vec<SocketAddr> = fleet.iter().map(spoken_to).collect();
    for sentry in &fleet {
        sentry.handle.reload(configured(server, keys(), all.clone())).expect("the list may change");
    }
    fleet
}

fn spoken_to(sentry: &Running) -> SocketAddr {
    sentry.handle.peers().expect("it speaks with others").address()
}

/// How many others it hears.
fn heard(sentry: &Running) -> usize {
    let peers = sentry.handle.peers().expect("it speaks with others").peers();
    peers.iter().filter(|peer| peer.heard.is_some()).count()
}

/// Which part of the servers a sentry takes for its own.
fn part(sentry: &Running) -> f64 {
    let Snapshot { policy, .. } = sentry.handle.apps()[0].snapshot();
    let part = policy.more.iter().find(|(name, _)| name == "part");
    part.expect("the policy shows its part").1
}

#[test]
fn sentries_hear_each_other_share_the_servers_and_notice_who_leaves() {
    let server = RawServer::answering(|_| ok("here"));
    let mut fleet = fleet(3, server.address);
    until("all hear each other", || fleet.iter().all(|sentry| heard(sentry) == 2));
    let itself = |sentry: &Running| sentry.handle.peers().expect("there").peers().iter().any(|peer| peer.is_self);
    until("all know themselves", || fleet.iter().all(itself));
    // Nothing is known of what they need.
    until("a third each", || fleet.iter().all(|sentry| (part(sentry) - 1.0 / 3.0).abs() < 1e-9));
    assert_eq!(fleet[0].ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status, 200);
    let gone = fleet.pop().expect("three");
    drop(gone);
    until("the others notice", || fleet.iter().all(|sentry| heard(sentry) == 1));
    drop(fleet.pop());
    until("the last has everything", || part(&fleet[0]) == 1.0);
}

#[test]
fn who_has_another_key_or_address_is_not_heard() {
    let server = RawServer::answering(|_| ok("here"));
    let start = |keys, sentries| {
        let handle = Sentry::start(configured(server.address, keys, sentries), Arc::new(NoRecords)).expect("a sentry");
        let address = handle.addresses("app")[0];
        Running { handle, address }
    };
    let one = start(keys(), Vec::new());
    let forger = start(Keys::derive(b"another key that nobody shares"), vec![spoken_to(&one)]);
    let stranger = start(keys(), vec![spoken_to(&one)]);
    one.handle.reload(configured(server.address, keys(), vec![spoken_to(&forger)])).expect("the list may change");
    let counts = |why| one.handle.peers().expect("it speaks with others").counts().rejected(why);
    until("both were there", || counts(Rejected::Forged) > 2 && counts(Rejected::UnknownPeer) > 2);
    UdpSocket::bind(("127.0.0.1", 0)).expect("a port").send_to(&[7; 2000], spoken_to(&one)).expect("sent");
    until("noise is counted", || counts(Rejected::Oversized) == 1);
    assert_eq!([heard(&one), heard(&forger), heard(&stranger)], [0; 3]);
    assert_eq!(one.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status, 200);
}

const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const TWO: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A sentry that listens there and asks that name server for the others.
fn named(dns: &Dns, server: SocketAddr, listen: (Ipv4Addr, u16), sentries: &[PeerPlace]) -> Config {
    let mut config = configured(server, keys(), Vec::new());
    config.sentry.resolvers = vec![dns.address];
    let peers = config.peers.as_mut().expect("peers");
    (peers.listen, peers.sentries) = (listen.into(), sentries.to_vec());
    config
}

fn start(config: Config) -> Result<Running, StartError> {
    let handle = Sentry::start(config, Arc::new(NoRecords))?;
    let address = handle.addresses("app")[0];
    Ok(Running { handle, address })
}

fn of_port(port: u16) -> PeerPlace {
    PeerPlace::Host { name: String::from("sentries.test"), port }
}

/// Two sentries, one of which listens on any port and the other on the same of another address. Both find the others by
/// one name: the first since a reload, the second from its start.
fn pair(dns: &Dns, server: SocketAddr) -> (Running, Running) {
    loop {
        let one = start(named(dns, server, (ONE, 0), &[])).expect("a sentry");
        let port = spoken_to(&one).port();
        one.handle.reload(named(dns, server, (ONE, 0), &[of_port(port)])).expect("the list may change");
        match start(named(dns, server, (TWO, port), &[of_port(port)])) {
            Ok(two) => return (one, two),
            // Somebody else has that port there.
            Err(StartError::Peers { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Where the others are that a sentry finds by the name, itself among them, and whether it is itself.
fn found(sentry: &Running) -> Vec<(Ipv4Addr, bool)> {
    let view = sentry.handle.peers().expect("it speaks with others");
    let name = format!("sentries.test:{}", view.address().port());
    let by_name = view.peers().into_iter().filter(|peer| peer.name.as_deref() == Some(&*name));
    by_name.filter_map(|peer| Some((peer.address.ip().to_string().parse().ok()?, peer.is_self))).collect()
}

#[test]
fn sentries_find_each_other_by_a_name_whose_addresses_change() {
    let (dns, server) = (Dns::start(), RawServer::answering(|_| ok("here")));
    dns.set("sentries.test", &[ONE]);
    let (one, two) = pair(&dns, server.address);
    assert_eq!(found(&two), [(ONE, false)], "known when it starts");
    until("the first finds itself", || found(&one) == [(ONE, true)]);
    assert_eq!(part(&one), 1.0);

    dns.set("sentries.test", &[ONE, TWO]);
    until("they hear each other", || [heard(&one), heard(&two)] == [1, 1]);
    assert_eq!(found(&one), [(ONE, true), (TWO, false)]);
    until("the second finds itself", || found(&two) == [(ONE, false), (TWO, true)]);
    until("half each", || [part(&one), part(&two)].iter().all(|part| (part - 0.5).abs() < 1e-9));
    let shown = one.handle.peers().expect("there").to_json();
    assert_eq!(shown["sentries"][1]["address"], json!(spoken_to(&two).to_string()));
    assert_eq!(shown["sentries"][1]["name"], json!(format!("sentries.test:{}", spoken_to(&one).port())));

    // While DNS is away, or says that there is nobody, all stay.
    for code in [ResponseCode::ServFail, ResponseCode::NXDomain] {
        dns.fail(Some(code));
        let states = |sentry: &Running| sentry.handle.names().expect("names").all()[0].state;
        until("it is noticed", || [states(&one), states(&two)] == ["stale"; 2]);
        assert_eq!([heard(&one), heard(&two)], [1, 1], "{code}");
        assert_eq!([found(&one).len(), found(&two).len()], [2, 2], "{code}");
        dns.fail(None);
        until("it is back", || [states(&one), states(&two)] == ["fresh"; 2]);
    }

    // Who is not in the name any more is a stranger, even if it goes on speaking.
    dns.set("sentries.test", &[ONE]);
    until("the second goes", || found(&one) == [(ONE, true)]);
    until("its part is free", || part(&one) == 1.0);
    dns.set("sentries.test", &[ONE, TWO]);
    until("it comes back", || [heard(&one), heard(&two)] == [1, 1]);

    // An address that a name leads to as well is one sentry; a reload loses nothing that is known.
    let both = [of_port(spoken_to(&one).port()), spoken_to(&two).into()];
    one.handle.reload(named(&dns, server.address, (ONE, 0), &both)).expect("the list may change");
    assert_eq!((found(&one).len(), heard(&one)), (2, 1));
    one.handle.reload(named(&dns, server.address, (ONE, 0), &both[1..])).expect("the list may change");
    assert_eq!((found(&one).len(), heard(&one)), (0, 1));
    assert_eq!(one.ask(GET).status, 200);
}

#[test]
fn who_listens_at_every_address_is_known_by_the_one_that_the_name_has() {
    let (dns, server) = (Dns::start(), RawServer::answering(|_| ok("here")));
    dns.set("sentries.test", &[ONE]);
    let every = (Ipv4Addr::UNSPECIFIED, 0);
    let one = start(named(&dns, server.address, every, &[])).expect("a sentry");
    let two = start(named(&dns, server.address, (TWO, 0), &[of_port(spoken_to(&one).port())])).expect("a sentry");
    let both = [of_port(spoken_to(&one).port()), spoken_to(&two).into()];
    one.handle.reload(named(&dns, server.address, every, &both)).expect("the list may change");
    until("they hear each other", || [heard(&one), heard(&two)] == [1, 1]);
    until("the first hears itself and is left out", || found(&one) == [(ONE, true)]);
}

#[test]
fn a_name_without_sentries_stops_nothing_and_is_asked_for_again() {
    let (dns, server) = (Dns::start(), RawServer::answering(|_| ok("here")));
    let (one, two) = pair(&dns, server.address);
    assert_eq!([one.ask(GET).status, two.ask(GET).status], [200, 200]);
    assert_eq!((found(&two), part(&two)), (Vec::new(), 1.0));
    let seen = two.handle.names().expect("names").all().remove(0);
    assert!(seen.is_of_peers && seen.problem.is_some_and(|why| why.contains("there is no")));
    let port = spoken_to(&two).port();
    let checked =
        || look_up(&named(&dns, server.address, (TWO, port), &[of_port(port)])).expect("a name server").remove(0);
    assert!(checked().1.is_err(), "a check says so, too");
    dns.set("sentries.test", &[TWO, ONE]);
    assert_eq!(checked().1.map(|all| all.len()), Ok(2));
    until("they hear each other", || [heard(&one), heard(&two)] == [1, 1]);
}
