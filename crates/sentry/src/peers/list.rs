//! From the list of the configuration to addresses: each once, with those to which its names lead now.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::config::PeerPlace;
use crate::names::{Member, Named};

/// Who the others are, as it is written, and what was found of it.
#[derive(Debug, Default)]
pub(super) struct List {
    places: Vec<PeerPlace>,
    /// Where names lead. Nothing of a name that has not been answered yet.
    pub(super) found: HashMap<Named, Vec<Member>>,
}

impl List {
    /// These are the others from now on. What is known of a name that stays is kept.
    pub(super) fn configure(&mut self, places: &[PeerPlace]) {
        places.clone_into(&mut self.places);
        let wanted = self.wanted();
        self.found.retain(|named, _| wanted.contains(named));
    }

    /// What there is to look up.
    pub(super) fn wanted(&self) -> Vec<Named> {
        self.places.iter().filter_map(Named::of_peers).collect()
    }

    /// Every address that can be reached from `own`, in the order of the list, with the name that it was found by.
    pub(super) fn addresses(&self, own: SocketAddr) -> Vec<(SocketAddr, Option<String>)> {
        let mut all: Vec<(SocketAddr, Option<String>)> = Vec::new();
        let mut add = |address: SocketAddr, name: Option<String>| {
            if !all.iter().any(|(other, _)| same(*other, address)) {
                all.push((address, name));
            }
        };
        for place in &self.places {
            if let PeerPlace::Address(address) = place {
                add(*address, None);
            }
            let found = Named::of_peers(place).and_then(|named| self.found.get(&named));
            for member in found.into_iter().flatten().filter(|member| reaches(own, member.address)) {
                add(member.address, Some(place.to_string()));
            }
        }
        all
    }
}

/// Whether two addresses are the same, one of them perhaps as a socket for IPv6 shows it.
pub(super) fn same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}

/// Whether a socket that is bound to `own` speaks the family of `to`: names often have addresses of both.
fn reaches(own: SocketAddr, to: SocketAddr) -> bool {
    let speaks_both = own.is_ipv6() && own.ip().is_unspecified();
    speaks_both || own.ip().to_canonical().is_ipv4() == to.ip().to_canonical().is_ipv4()
}
