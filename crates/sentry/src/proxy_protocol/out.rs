//! The header that a server's connection begins with: for whom it is.
//!
//! One header speaks for a whole connection, so a connection with one belongs to one connection of a client, and nobody
//! else may use it. Who has no addresses to tell of (health checks, clients of Unix sockets, connections of HTTP/2,
//! which carry many clients) begins with the header that says so.

use std::net::{IpAddr, SocketAddr};

use super::{V1, V2};
use crate::config::ProxyOut;

/// The type of the field with the host that the client's handshake named.
const AUTHORITY: u8 = 0x02;

/// Both ends of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The client.
    pub(crate) source: SocketAddr,
    /// What it connected to.
    pub(crate) destination: SocketAddr,
}

/// The header; nothing where none is wanted. `host`: what the client's handshake named.
pub(crate) fn header(version: ProxyOut, ends: Option<Ends>, host: Option<&str>) -> Vec<u8> {
    match version {
        ProxyOut::Off => Vec::new(),
        ProxyOut::V1 => version_1(ends),
        ProxyOut::V2 => version_2(ends, host),
    }
}

/// Both addresses in one family: IPv4 if both are, else IPv6.
fn family(ends: Ends) -> (IpAddr, IpAddr) {
    let v6 = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().into(),
        IpAddr::V6(_) => ip,
    };
    match (ends.source.ip().to_canonical(), ends.destination.ip().to_canonical()) {
        (source @ IpAddr::V4(_), destination @ IpAddr::V4(_)) => (source, destination),
        (source, destination) => (v6(source), v6(destination)),
    }
}

fn version_1(ends: Option<Ends>) -> Vec<u8> {
    let line = match ends {
        None => "UNKNOWN\r\n".to_owned(),
        Some(ends) => {
            let (source, destination) = family(ends);
            let name = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            format!("{name} {source} {destination} {} {}\r\n", ends.source.port(), ends.destination.port())
        }
    };
    [V1, line.as_bytes()].concat()
}

fn version_2(ends: Option<Ends>, host: Option<&str>) -> Vec<u8> {
    let mut out = V2.to_vec();
    let Some(ends) = ends else {
        // LOCAL, without addresses.
        out.extend_from_slice(&[0x20, 0x00, 0, 0]);
        return out;
    };
    let mut rest = Vec::new();
    let kind = match family(ends) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            rest.extend_from_slice(&[source.octets(), destination.octets()].concat());
            0x11
        }
        (source, destination) => {
            for ip in [source, destination] {
                if let IpAddr::V6(ip) = ip {
                    rest.extend_from_slice(&ip.octets());
                }
            }
            0x21
        }
    };
    rest.extend_from_slice(&ends.source.port().to_be_bytes());
    rest.extend_from_slice(&ends.destination.port().to_be_bytes());
    // A host's name has at most 255 bytes.
    if let Some((host, length)) = host.and_then(|host| Some((host, u8::try_from(host.len()).ok()?))) {
        rest.extend_from_slice(&[AUTHORITY, 0, length]);
        rest.extend_from_slice(host.as_bytes());
    }
    let length = u16::try_from(rest.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&[0x21, kind]);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&rest);
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Header, read};
    use super::*;

    fn ends(source: &str, destination: &str) -> Ends {
        let address = |text: &str| text.parse().expect("an address");
        Ends { source: address(source), destination: address(destination) }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let both = ["192.0.2.1:40000", "[2001:db8::1]:40000", "[::ffff:192.0.2.1]:40000"];
        for version in [ProxyOut::V1, ProxyOut::V2] {
            for source in both {
                for destination in ["203.0.113.7:443", "[2001:db8::2]:443"] {
                    let ends = ends(source, destination);
                    let header = header(version, Some(ends), Some("shop.example"));
                    let Header::Whole { length, source: Some(read) } = read(&header) else { panic!("{header:?}") };
                    let canonical = |address: SocketAddr| (address.ip().to_canonical(), address.port());
                    assert_eq!((length, canonical(read)), (header.len(), canonical(ends.source)));
                }
            }
            let local = header(version, None, None);
            assert_eq!(read(&local), Header::Whole { length: local.len(), source: None });
        }
        assert!(header(ProxyOut::Off, None, None).is_empty());
    }

    #[test]
    fn version_1_is_a_line_and_version_2_names_the_host() {
        let v4 = ends("192.0.2.1:40000", "203.0.113.7:443");
        assert_eq!(header(ProxyOut::V1, Some(v4), None), b"PROXY TCP4 192.0.2.1 203.0.113.7 40000 443\r\n");
        let v6 = ends("192.0.2.1:40000", "[2001:db8::2]:443");
        assert_eq!(header(ProxyOut::V1, Some(v6), None), b"PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 40000 443\r\n");
        let named = header(ProxyOut::V2, Some(v4), Some("a.b"));
        assert_eq!(named[12..16], [0x21, 0x11, 0, 18]);
        assert_eq!(named[28..], [2, 0, 3, b'a', b'.', b'b']);
    }
}
