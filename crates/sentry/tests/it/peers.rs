//! Sentries before the same servers, over loopback: who is heard, who leaves, and what a stranger can do.

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use tidegate_engine::Snapshot;
use tidegate_sentry::Sentry;
use tidegate_sentry::config::{Config, Peers};
use tidegate_sentry::record::NoRecords;
use tidegate_wire::{Key, Rejected};

use crate::support::{RawServer, Running, admission, application, config, ok, until};

/// One that all sentries of a test share, and those of no other.
fn key() -> Key {
    Key::derive(&std::process::id().to_ne_bytes())
}

fn configured(server: SocketAddr, key: Key, sentries: Vec<SocketAddr>) -> Config {
    let mut application = application(&[server]);
    application.setup.admission = admission(json!({ "policy": "waiting" }));
    let mut config = config(application, 1);
    config.peers = Some(Peers { listen: ([127, 0, 0, 1], 0).into(), sentries, key_file: PathBuf::new(), key });
    config
}

/// Sentries before one server that know of each other; each is told the whole list.
fn fleet(count: usize, server: SocketAddr) -> Vec<Running> {
    let start = |_| {
        let handle = Sentry::start(configured(server, key(), Vec::new()), Arc::new(NoRecords)).expect("a sentry");
        let address = handle.addresses("app")[0];
        Running { handle, address }
    };
    let fleet: Vec<Running> = (0..count).map(start).collect();
    let all: Vec<SocketAddr> = fleet.iter().map(spoken_to).collect();
    for sentry in &fleet {
        sentry.handle.reload(configured(server, key(), all.clone())).expect("the list may change");
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
    let start = |key, sentries| {
        let handle = Sentry::start(configured(server.address, key, sentries), Arc::new(NoRecords)).expect("a sentry");
        let address = handle.addresses("app")[0];
        Running { handle, address }
    };
    let one = start(key(), Vec::new());
    let forger = start(Key::derive(b"another key that nobody shares"), vec![spoken_to(&one)]);
    let stranger = start(key(), vec![spoken_to(&one)]);
    one.handle.reload(configured(server.address, key(), vec![spoken_to(&forger)])).expect("the list may change");
    let counts = |why| one.handle.peers().expect("it speaks with others").counts().rejected(why);
    until("both were there", || counts(Rejected::Forged) > 2 && counts(Rejected::UnknownPeer) > 2);
    UdpSocket::bind(("127.0.0.1", 0)).expect("a port").send_to(&[7; 2000], spoken_to(&one)).expect("sent");
    until("noise is counted", || counts(Rejected::Oversized) == 1);
    assert_eq!([heard(&one), heard(&forger), heard(&stranger)], [0; 3]);
    assert_eq!(one.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status, 200);
}
