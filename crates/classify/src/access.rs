//! Who may ask at all, by network.

use alloc::vec::Vec;
use core::net::IpAddr;
use hashbrown::HashMap;

use super::Network;

/// Networks that may ask, and others that may not. Of all that hold an address the most specific one decides; where
/// none does, it may ask unless only some may.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Access {
    allow: Vec<Network>,
    deny: Vec<Network>,
    /// By network, without the bits of hosts.
    decided: HashMap<Network, bool>,
    /// The lengths of their prefixes, the longest first.
    lengths: Vec<u8>,
}

impl Access {
    /// Compiles it.
    ///
    /// # Errors
    /// The first network that is both allowed and denied.
    pub fn new(allow: Vec<Network>, deny: Vec<Network>) -> Result<Access, Network> {
        let mut decided = HashMap::new();
        let both = allow.iter().map(|network| (network, true)).chain(deny.iter().map(|network| (network, false)));
        for (network, may) in both {
            if decided.insert(network.trunc(), may) == Some(!may) {
                return Err(*network);
            }
        }
        let mut lengths: Vec<u8> = decided.keys().map(Network::prefix_len).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        Ok(Access { allow, deny, decided, lengths })
    }

    /// The networks that may ask, as they were given.
    pub fn allow(&self) -> &[Network] {
        &self.allow
    }

    /// The networks that may not.
    pub fn deny(&self) -> &[Network] {
        &self.deny
    }

    /// Whether a client may ask: one look-up for each length of prefix that there is.
    pub fn lets_in(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        let of_length = |length: &u8| {
            let network = Network::new(client, *length).ok()?;
            self.decided.get(&network.trunc()).copied()
        };
        self.lengths.iter().find_map(of_length).unwrap_or(self.allow.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn networks(texts: &[&str]) -> Vec<Network> {
        texts.iter().map(|text| text.parse().expect("a network")).collect()
    }

    #[test]
    fn the_most_specific_network_decides() {
        let deny = ["10.0.0.0/8", "10.1.2.3/32", "2001:db8::/32", "0.0.0.0/0"];
        let all = Access::new(networks(&["10.1.0.0/16", "2001:db8:1::/48"]), networks(&deny)).expect("a list");
        let may = |text: &str| all.lets_in(text.parse().expect("an address"));
        for (client, wanted) in [
            ("10.2.0.1", false),
            ("10.1.0.1", true),
            ("10.1.2.3", false),
            ("::ffff:10.1.2.4", true),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
            ("2001:db8:1::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(may(client), wanted, "{client}");
        }
        let only = |allow: &[&str], deny: &[&str]| Access::new(networks(allow), networks(deny)).expect("a list");
        let client = "192.0.2.1".parse().expect("an address");
        assert!(only(&[], &["10.0.0.0/8"]).lets_in(client), "only some are denied");
        assert!(!only(&["10.0.0.0/8"], &[]).lets_in(client), "only some are allowed");
        let twice = Access::new(networks(&["10.1.2.3/8"]), networks(&["10.0.0.0/8"]));
        assert!(twice.is_err(), "bits of hosts play no part");
    }

    proptest! {
        #[test]
        fn it_agrees_with_trying_every_network(
            given in proptest::collection::vec((0u32..4, 0u8..=32, any::<bool>()), 0..6),
            client in 0u32..4,
        ) {
            let network = |bits: u32, length| Network::new(IpAddr::V4((bits << 30 | bits).into()), length).expect("short");
            let of = |wanted| given.iter().filter(|one| one.2 == wanted).map(|one| network(one.0, one.1)).collect::<Vec<_>>();
            let Ok(access) = Access::new(of(true), of(false)) else { return Ok(()) };
            let address = IpAddr::V4((client << 30 | client).into());
            let holding = given.iter().filter(|one| network(one.0, one.1).contains(&address));
            let naive = holding.max_by_key(|one| one.1).map_or(of(true).is_empty(), |one| one.2);
            prop_assert_eq!(access.lets_in(address), naive);
        }
    }
}
