//! The PROXY protocol (versions 1 and 2): whom a proxy in front speaks for.
//!
//! *Source.* Willy Tarreau, *The PROXY protocol, versions 1 & 2* (2020), HAProxy's `doc/proxy-protocol.txt`.

pub(crate) mod out;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The first line of version 1 is at most this long with its end.
const LONGEST_LINE: usize = 107;

/// What may follow version 2's fixed part: addresses, and fields about them that are skipped.
const LONGEST_REST: usize = 4096;

const V1: &[u8; 6] = b"PROXY ";
const V2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// What a connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// The beginning of a header, as far as can be seen.
    Partial,
    /// A header of so many bytes.
    Whole {
        /// Its bytes.
        length: usize,
        /// The client; `None`: the proxy speaks for itself, to check whether anybody is there, or does not say.
        source: Option<SocketAddr>,
    },
    /// Something else.
    Absent,
    /// A header that contradicts itself.
    Broken,
}

/// Reads the bytes so far.
pub(crate) fn read(bytes: &[u8]) -> Header {
    if bytes.starts_with(V2) {
        return version_2(bytes);
    }
    if bytes.starts_with(V1) {
        return version_1(bytes);
    }
    if V1.starts_with(bytes) || V2.starts_with(bytes) { Header::Partial } else { Header::Absent }
}

fn version_1(bytes: &[u8]) -> Header {
    let line = &bytes[..bytes.len().min(LONGEST_LINE)];
    let Some(end) = line.windows(2).position(|two| two == b"\r\n") else {
        return if bytes.len() < LONGEST_LINE { Header::Partial } else { Header::Broken };
    };
    let Ok(line) = std::str::from_utf8(&line[V1.len()..end]) else { return Header::Broken };
    let length = end + 2;
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["UNKNOWN", ..] => Header::Whole { length, source: None },
        [family @ ("TCP4" | "TCP6"), source, destination, port, to_port] => {
            let address =
                |text: &str| text.parse::<IpAddr>().ok().filter(|address| address.is_ipv4() == (family == "TCP4"));
            match (address(source), address(destination), port.parse(), to_port.parse::<u16>()) {
                (Some(source), Some(_), Ok(port), Ok(_)) => {
                    Header::Whole { length, source: Some(SocketAddr::new(source, port)) }
                }
                _ => Header::Broken,
            }
        }
        _ => Header::Broken,
    }
}

fn version_2(bytes: &[u8]) -> Header {
    let Some((&[command, family, a, b], rest)) = bytes[V2.len()..].split_first_chunk() else { return Header::Partial };
    let wanted = usize::from(u16::from_be_bytes([a, b]));
    if command >> 4 != 2 || wanted > LONGEST_REST {
        return Header::Broken;
    }
    let Some(rest) = rest.get(..wanted) else { return Header::Partial };
    let length = V2.len() + 4 + wanted;
    match (command & 0xf, family) {
        // LOCAL: whatever it says of addresses is to be ignored.
        (0, _) => Header::Whole { length, source: None },
        (1, 0x11) => match rest.split_first_chunk() {
            Some((&[a, b, c, d, _, _, _, _, e, f, _, _], _)) => {
                let source = SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), u16::from_be_bytes([e, f]));
                Header::Whole { length, source: Some(source) }
            }
            _ => Header::Broken,
        },
        (1, 0x21) => match (rest.first_chunk::<16>(), rest.get(32..34)) {
            (Some(source), Some(&[a, b])) if rest.len() >= 36 => {
                let source = SocketAddr::new(Ipv6Addr::from(*source).into(), u16::from_be_bytes([a, b]));
                Header::Whole { length, source: Some(source) }
            }
            _ => Header::Broken,
        },
        // Unix sockets, datagrams, unspecified: nothing that we could use.
        (1, _) => Header::Whole { length, source: None },
        _ => Header::Broken,
    }
}

/// Any bytes are read without a panic; more bytes change nothing that is decided; a header is no longer than they are.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let whole = read(bytes);
    if let Header::Whole { length, .. } = whole {
        assert!(length <= bytes.len());
        assert_eq!(read(&bytes[..length]), whole);
    }
    match read(&bytes[..bytes.len() / 2]) {
        Header::Partial => {}
        decided => assert_eq!(decided, whole, "more bytes change nothing"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A header of version 2: `source` connects to `destination`.
    fn write(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
        let (source, destination) = (canonical(source), canonical(destination));
        let mut out = V2.to_vec();
        let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                out.extend_from_slice(&[0x21, 0x11, 0, 12]);
                out.extend_from_slice(&from.octets());
                out.extend_from_slice(&to.octets());
            }
            (from, to) => {
                let v6 = |address: IpAddr| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                };
                out.extend_from_slice(&[0x21, 0x21, 0, 36]);
                out.extend_from_slice(&v6(from));
                out.extend_from_slice(&v6(to));
            }
        }
        out.extend_from_slice(&ports);
        out
    }

    fn canonical(address: SocketAddr) -> SocketAddr {
        SocketAddr::new(address.ip().to_canonical(), address.port())
    }

    fn whole(header: &[u8], source: Option<&str>) {
        let source = source.map(|source| source.parse().expect("an address"));
        let followed = [header, b"GET / HTTP/1.1\r\n"].concat();
        assert_eq!(read(&followed), Header::Whole { length: header.len(), source });
        for end in 0..header.len() {
            assert_eq!(read(&header[..end]), Header::Partial, "{end}");
        }
    }

    #[test]
    fn headers_of_both_versions_are_read() {
        whole(b"PROXY TCP4 192.0.2.1 203.0.113.7 40000 443\r\n", Some("192.0.2.1:40000"));
        whole(b"PROXY TCP6 2001:db8::1 2001:db8::2 40000 443\r\n", Some("[2001:db8::1]:40000"));
        whole(b"PROXY UNKNOWN\r\n", None);
        whole(b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None);
        let (v4, v6) = ("192.0.2.1:40000", "[2001:db8::1]:40000");
        let to = |to: &str| to.parse().expect("an address");
        whole(&write(to(v4), to("203.0.113.7:443")), Some(v4));
        whole(&write(to(v6), to("[2001:db8::2]:443")), Some(v6));
        whole(&write(to(v6), to("203.0.113.7:443")), Some(v6));
        // LOCAL, with addresses that mean nothing; further fields; a Unix socket.
        let with = |head: [u8; 4], rest: &[u8]| [&V2[..], &head, rest].concat();
        whole(&with([0x20, 0, 0, 0], b""), None);
        whole(&with([0x20, 0x11, 0, 12], &[9; 12]), None);
        whole(&with([0x21, 0x11, 0, 15], &[1, 2, 3, 4, 5, 6, 7, 8, 0, 80, 0, 90, 4, 0, 0]), Some("1.2.3.4:80"));
        whole(&with([0x21, 0x31, 0, 216], &[b'/'; 216]), None);
    }

    #[test]
    fn what_is_no_header_is_told_from_a_broken_one() {
        for absent in ["GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\n", "PROXYING", "\r\n\r\nGET /"] {
            assert_eq!(read(absent.as_bytes()), Header::Absent, "{absent:?}");
        }
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(120));
        for broken in [
            "PROXY \r\n",
            "PROXY TCP4 192.0.2.1 203.0.113.7 40000\r\n",
            "PROXY TCP4 192.0.2.1 203.0.113.7 40000 70000\r\n",
            "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
            "PROXY TCP4  192.0.2.1 203.0.113.7 1 2\r\n",
            "PROXY UDP4 192.0.2.1 203.0.113.7 1 2\r\n",
            &long,
        ] {
            assert_eq!(read(broken.as_bytes()), Header::Broken, "{broken:?}");
        }
        let with = |head: [u8; 4], rest: &[u8]| read(&[&V2[..], &head, rest].concat());
        assert_eq!(with([0x11, 0x11, 0, 12], &[0; 12]), Header::Broken, "version 1 in binary");
        assert_eq!(with([0x22, 0x11, 0, 12], &[0; 12]), Header::Broken, "an unknown command");
        assert_eq!(with([0x21, 0x11, 0, 11], &[0; 11]), Header::Broken, "too short for its addresses");
        assert_eq!(with([0x21, 0x21, 0, 35], &[0; 35]), Header::Broken);
        assert_eq!(with([0x21, 0x11, 0xff, 0xff], &[]), Header::Broken, "too long");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(start in 0usize..3, rest in proptest::collection::vec(any::<u8>(), 0..80)) {
            let start: &[u8] = [&b""[..], V1, V2][start];
            fuzz(&[start, &rest].concat());
        }
    }
}
