//! On whose behalf a request comes, as far as networks may ask: the connection's client, or the one that a trusted
//! proxy names.

use std::net::{IpAddr, SocketAddr};

use tidegate_classify::{Network, RequestView};

/// The client of a request. Where the connection's is in `trust`, the last of `X-Forwarded-For` that is not, as each
/// proxy appends whom it has seen.
pub(crate) fn client_of(view: &impl RequestView, trust: &[Network]) -> Option<IpAddr> {
    let peer = view.client()?;
    let is_trusted = |address: &IpAddr| trust.iter().any(|network| network.contains(address));
    if !is_trusted(&peer) {
        return Some(peer);
    }
    let list = view.last_header("x-forwarded-for").unwrap_or_default();
    let mut client = peer;
    for entry in list.rsplit(|&byte| byte == b',') {
        // Behind what nobody can read it is anybody's guess.
        let Some(address) = address(entry) else { break };
        client = address;
        if !is_trusted(&client) {
            break;
        }
    }
    Some(client)
}

/// `192.0.2.1`, `2001:db8::1`, or either with a port.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?.trim();
    let plain = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    plain.parse().ok().or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client, and what it says of others.
    struct Asked(IpAddr, Option<&'static str>);

    impl RequestView for Asked {
        fn method(&self) -> &str {
            "GET"
        }

        fn host(&self) -> Option<&str> {
            None
        }

        fn path(&self) -> &str {
            "/"
        }

        fn header(&self, _: &str) -> Option<&[u8]> {
            self.1.map(str::as_bytes)
        }

        fn client(&self) -> Option<IpAddr> {
            Some(self.0)
        }
    }

    #[test]
    fn the_last_address_that_nobody_vouches_for_is_the_client() {
        let trust: Vec<Network> = ["10.0.0.0/8", "2001:db8::/32"].map(|text| text.parse().expect("a network")).into();
        let client = |peer: &str, list: Option<&'static str>| {
            let asked = Asked(peer.parse().expect("an address"), list);
            client_of(&asked, &trust).expect("a client").to_string()
        };
        for (peer, list, wanted) in [
            ("192.0.2.1", Some("198.51.100.1"), "192.0.2.1"),
            ("10.0.0.1", None, "10.0.0.1"),
            ("10.0.0.1", Some("198.51.100.1"), "198.51.100.1"),
            ("10.0.0.1", Some("127.0.0.1, 198.51.100.1, 10.0.0.2"), "198.51.100.1"),
            ("10.0.0.1", Some("198.51.100.1:80 , [2001:db8::1]:443"), "198.51.100.1"),
            ("10.0.0.1", Some("10.0.0.3, 10.0.0.2"), "10.0.0.3"),
            ("10.0.0.1", Some("198.51.100.1, unknown"), "10.0.0.1"),
            ("2001:db8::9", Some("::ffff:198.51.100.1"), "198.51.100.1"),
        ] {
            assert_eq!(client(peer, list), wanted, "{peer} {list:?}");
        }
    }
}
