//! The beginning of a client's first flight, read without any cryptography: whether it is TLS at all, whether all of
//! the `ClientHello` is here, which ticket of an earlier session it holds, and what an answer will cost.
//!
//! It decides nothing but who is let in first when processor time is short: rustls reads the same bytes again and by
//! its own rules. So it is lenient where that does no harm, and bounded where it would.

use crate::acme::challenge::PROTOCOL;

/// A `ClientHello` is at most this long with all its records; browsers' with post-quantum keys have two kilobytes.
pub(crate) const LONGEST: usize = 16 * 1024;

/// What the bytes so far are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The beginning of a `ClientHello`.
    Partial,
    /// All of one.
    Whole(Hello),
    /// No TLS, or a message that is too long or contradicts itself.
    Alien,
}

/// What a client says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The host that it asks for. Who is believed is another question: rustls reads it again.
    pub(crate) name: Option<Box<str>>,
    /// The ticket by which it wants to resume.
    pub(crate) ticket: Option<Vec<u8>>,
    /// It verifies other signatures than RSA's, too.
    pub(crate) verifies_ecdsa: bool,
    /// It is an authority that wants to know whose a name is (RFC 8737).
    pub(crate) validates: bool,
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const SIGNATURES: u16 = 13;
const SESSION_TICKET: u16 = 35;
const PRE_SHARED_KEY: u16 = 41;
const PROTOCOLS: u16 = 16;

/// Reads what there is so far.
pub(crate) fn read(bytes: &[u8]) -> Seen {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        let wanted = match message.split_first_chunk::<4>() {
            Some((&[kind, a, b, c], _)) if kind == CLIENT_HELLO => 4 + u32::from_be_bytes([0, a, b, c]) as usize,
            Some(_) => return Seen::Alien,
            None => 4,
        };
        if wanted > LONGEST {
            return Seen::Alien;
        }
        if wanted > 4 && message.len() >= wanted {
            return body(&message[4..wanted]).map_or(Seen::Alien, Seen::Whole);
        }
        match rest {
            [kind, ..] if *kind != HANDSHAKE => return Seen::Alien,
            [_, major, ..] if *major != 3 => return Seen::Alien,
            [_, _, _, a, b, after @ ..] => {
                let length = usize::from(u16::from_be_bytes([*a, *b]));
                if length == 0 || length > LONGEST {
                    return Seen::Alien;
                }
                let (here, further) = after.split_at(length.min(after.len()));
                message.extend_from_slice(here);
                rest = further;
            }
            _ => return Seen::Partial,
        }
    }
}

/// The host in a list of names (RFC 6066, section 3).
fn server_name(list: &[u8]) -> Option<Box<str>> {
    let mut names = Reader(Reader(list).vector16()?);
    let kind = names.take(1)?;
    let name = names.vector16()?;
    std::str::from_utf8(name).ok().filter(|_| kind == [0]).map(Box::from)
}

/// ECDSA with any hash, or EdDSA (RFC 8446, section 4.2.3).
fn is_ecdsa(scheme: [u8; 2]) -> bool {
    scheme[1] == 3 || matches!(scheme, [8, 7 | 8])
}

/// RFC 8446, section 4.1.2.
fn body(message: &[u8]) -> Option<Hello> {
    let mut reader = Reader(message);
    reader.take(2 + 32)?;
    reader.vector8()?;
    reader.vector16()?;
    reader.vector8()?;
    let mut hello = Hello::default();
    if reader.0.is_empty() {
        return Some(hello);
    }
    let mut extensions = Reader(reader.vector16()?);
    while !extensions.0.is_empty() {
        let (kind, mut body) = (extensions.number16()?, Reader(extensions.vector16()?));
        let ticket = match kind {
            SESSION_TICKET => Some(body.0),
            PRE_SHARED_KEY => Reader(body.vector16()?).vector16(),
            SERVER_NAME => {
                hello.name = server_name(body.0);
                None
            }
            SIGNATURES => {
                let schemes = body.vector16().unwrap_or_default();
                hello.verifies_ecdsa = schemes.chunks_exact(2).any(|scheme| is_ecdsa([scheme[0], scheme[1]]));
                None
            }
            PROTOCOLS => {
                let protocols = body.vector16().map(Reader);
                let is_alone = |mut list: Reader<'_>| list.vector8() == Some(PROTOCOL) && list.0.is_empty();
                hello.validates = protocols.is_some_and(is_alone);
                None
            }
            _ => None,
        };
        if let Some(ticket) = ticket.filter(|ticket| !ticket.is_empty()) {
            hello.ticket = Some(ticket.to_vec());
        }
    }
    Some(hello)
}

/// Bytes that are read from the front; `None` when there are too few.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn number16(&mut self) -> Option<u16> {
        self.take(2).map(|two| u16::from_be_bytes([two[0], two[1]]))
    }

    fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.take(1)?[0];
        self.take(usize::from(length))
    }

    fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.number16()?;
        self.take(usize::from(length))
    }
}

/// Any bytes are read without a panic, and the longer of two prefixes never knows less.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let whole = read(bytes);
    for end in [bytes.len() / 2, bytes.len().saturating_sub(1)] {
        match read(&bytes[..end]) {
            Seen::Partial => {}
            decided => assert_eq!(decided, whole, "more bytes change nothing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    /// What rustls itself says first.
    fn genuine() -> Vec<u8> {
        let builder = ClientConfig::builder_with_provider(super::super::settings::provider());
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let name = "shop.example".try_into().expect("a name");
        let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
        let mut out = Vec::new();
        client.write_tls(&mut out).expect("memory");
        out
    }

    fn records(message: &[u8], each: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[HANDSHAKE, 3, 1], &(part.len() as u16).to_be_bytes()[..], part].concat();
        message.chunks(each).flat_map(record).collect()
    }

    /// A hello with one extension.
    fn with_extension(kind: u16, body: &[u8]) -> Vec<u8> {
        let vector = |body: &[u8]| [&(body.len() as u16).to_be_bytes()[..], body].concat();
        let extensions = vector(&[&kind.to_be_bytes()[..], &vector(body)].concat());
        let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0], &extensions].concat();
        [&[CLIENT_HELLO, 0], &(body.len() as u16).to_be_bytes()[..], &body].concat()
    }

    #[test]
    fn a_genuine_hello_is_whole_at_its_last_byte() {
        let bytes = genuine();
        let name = Some(Box::from("shop.example"));
        assert_eq!(read(&bytes), Seen::Whole(Hello { name, verifies_ecdsa: true, ..Hello::default() }));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), Seen::Partial, "{end} of {}", bytes.len());
        }
    }

    #[test]
    fn tickets_are_found_however_the_hello_is_cut() {
        let psk = [&[0, 11, 0, 5][..], b"12345", &[0, 0, 0, 0, 0, 33], &[9; 32]].concat();
        for message in [with_extension(SESSION_TICKET, b"12345"), with_extension(PRE_SHARED_KEY, &psk)] {
            for each in [1, 3, 4, 5, 17, 4096] {
                let bytes = records(&message, each);
                assert_eq!(
                    read(&bytes),
                    Seen::Whole(Hello { ticket: Some(b"12345".to_vec()), ..Hello::default() }),
                    "{each}"
                );
                assert_eq!(read(&bytes[..bytes.len() - 1]), Seen::Partial, "{each}");
            }
        }
        let bytes = records(&with_extension(SESSION_TICKET, b""), 4096);
        assert_eq!(read(&bytes), Seen::Whole(Hello::default()), "an empty one asks for a ticket and holds none");
    }

    #[test]
    fn the_host_is_found() {
        let list = [&[0, 15, 0, 0, 12][..], b"shop.example"].concat();
        let name = |list: &[u8]| match read(&records(&with_extension(SERVER_NAME, list), 4096)) {
            Seen::Whole(hello) => hello.name,
            other => panic!("{other:?}"),
        };
        assert_eq!(name(&list).as_deref(), Some("shop.example"));
        assert_eq!(name(&list[..9]), None);
        assert_eq!(name(&[]), None);
    }

    #[test]
    fn who_verifies_rsa_alone_is_known() {
        let verifies_ecdsa = |schemes: &[u16]| {
            let list: Vec<u8> = schemes.iter().flat_map(|scheme| scheme.to_be_bytes()).collect();
            let list = [&(list.len() as u16).to_be_bytes()[..], &list].concat();
            match read(&records(&with_extension(SIGNATURES, &list), 4096)) {
                Seen::Whole(hello) => hello.verifies_ecdsa,
                seen => panic!("{seen:?}"),
            }
        };
        // RSA by PKCS#1 and PSS, with SHA-1 and SHA-2.
        let rsa = [0x0201, 0x0401, 0x0501, 0x0601, 0x0804, 0x0805, 0x0806];
        assert!(!verifies_ecdsa(&rsa) && !verifies_ecdsa(&[]));
        for ecdsa in [0x0203, 0x0403, 0x0503, 0x0603, 0x0807] {
            assert!(verifies_ecdsa(&[&rsa[..], &[ecdsa]].concat()), "{ecdsa:x}");
        }
    }

    #[test]
    fn who_validates_says_so_and_nothing_else() {
        let says = |protocols: &[&[u8]]| {
            let list: Vec<u8> = protocols.iter().flat_map(|name| [&[name.len() as u8], *name].concat()).collect();
            let list = [&(list.len() as u16).to_be_bytes()[..], &list].concat();
            let message = with_extension(PROTOCOLS, &list);
            match read(&records(&message, 4096)) {
                Seen::Whole(hello) => hello.validates,
                seen => panic!("{seen:?}"),
            }
        };
        assert!(says(&[b"acme-tls/1"]));
        assert!(!says(&[b"h2", b"acme-tls/1"]) && !says(&[b"acme-tls/1", b"http/1.1"]) && !says(&[b"http/1.1"]));
    }

    #[test]
    fn what_is_no_hello_is_seen_early() {
        for bytes in
            [&b"GET / HTTP/1.1\r\n"[..], &[HANDSHAKE, 2], &[HANDSHAKE, 3, 1, 0, 0], &[HANDSHAKE, 3, 1, 0xff, 0xff]]
        {
            assert_eq!(read(bytes), Seen::Alien, "{bytes:?}");
        }
        let server_hello = records(&[2, 0, 0, 1, 0], 4096);
        assert_eq!(read(&server_hello), Seen::Alien);
        let endless = [CLIENT_HELLO, 1, 0, 0];
        assert_eq!(read(&records(&endless, 4)), Seen::Alien, "64 KiB");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            fuzz(&bytes);
        }

        #[test]
        fn a_changed_hello_is_read(at in 0usize..200, byte: u8) {
            let mut bytes = genuine();
            let at = at % bytes.len();
            bytes[at] = byte;
            fuzz(&bytes);
        }
    }
}
