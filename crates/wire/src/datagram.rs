//! The outside of a datagram: header and MAC.

use crate::key::{Key, Keys};
use crate::rejected::Rejected;
use crate::{MAX_DATAGRAM, VERSION};

const MAGIC: &[u8; 3] = b"TGW";
/// Bytes before the body.
pub(crate) const HEADER: usize = 32;
/// Bytes after it.
pub(crate) const MAC: usize = 16;

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// How a server is doing.
    Report,
    /// A sentry asks a nucleus to show that it lives now.
    Challenge,
    /// A nucleus stops on purpose.
    Goodbye,
    /// A sentry says how a server's cores are to be divided.
    Command,
    /// A sentry says to another how an application is doing.
    Summary,
    /// A sentry says to another that it leaves.
    Farewell,
}

impl Kind {
    /// Every kind of datagram.
    pub const ALL: [Kind; 6] =
        [Kind::Report, Kind::Challenge, Kind::Goodbye, Kind::Command, Kind::Summary, Kind::Farewell];
}

/// Who sent a datagram, and which of its datagrams it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the datagram.
    pub kind: Kind,
    /// The nucleus's boot id: drawn anew at each start. In what a sentry sends: that of the nucleus it is for.
    pub boot: u64,
    /// Counts up with every datagram of a boot, from 1. In a challenge: that of the datagram it answers. In a command:
    /// counts up with every command of a session, from 1.
    pub sequence: u64,
    /// The session's token; 0 while there is none. In a challenge: the token to use.
    pub token: u64,
}

impl Kind {
    const fn code(self) -> u8 {
        match self {
            Kind::Report => 1,
            Kind::Challenge => 2,
            Kind::Goodbye => 3,
            Kind::Command => 4,
            Kind::Summary => 5,
            Kind::Farewell => 6,
        }
    }

    fn of(code: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// Puts header and MAC around a body that stands in `buffer` from byte 32 on. Returns the datagram's length.
///
/// # Panics
/// When the body does not fit.
pub fn seal(key: &Key, header: &Header, buffer: &mut [u8; MAX_DATAGRAM], body: usize) -> usize {
    let end = HEADER + body;
    let length = end + MAC;
    assert!(length <= MAX_DATAGRAM, "a body of {body} bytes does not fit a datagram");
    buffer[..3].copy_from_slice(MAGIC);
    buffer[3] = VERSION;
    buffer[4] = header.kind.code();
    buffer[5] = u8::from(key.is_own());
    buffer[6..8].copy_from_slice(&(length as u16).to_le_bytes());
    buffer[8..16].copy_from_slice(&header.boot.to_le_bytes());
    buffer[16..24].copy_from_slice(&header.sequence.to_le_bytes());
    buffer[24..32].copy_from_slice(&header.token.to_le_bytes());
    let mac = key.mac(&buffer[..end]);
    buffer[end..length].copy_from_slice(&mac.as_bytes()[..MAC]);
    length
}

/// Checks a datagram's form and MAC; the header, the body, and the key that it is sealed with. One that says that it is
/// sealed with a server's own key begins with the server's name.
///
/// # Errors
/// Why it must be ignored. Nothing of it was believed before its MAC was right, but its length and version, to count
/// it, and whose key is to be tried.
pub fn open<'d>(keys: &Keys, datagram: &'d [u8]) -> Result<(Header, &'d [u8], Key), Rejected> {
    if datagram.len() > MAX_DATAGRAM {
        return Err(Rejected::Oversized);
    }
    if datagram.len() < HEADER + MAC {
        return Err(Rejected::Truncated);
    }
    if datagram[..3] != *MAGIC {
        return Err(Rejected::Forged);
    }
    if datagram[3] != VERSION {
        return Err(Rejected::OtherVersion);
    }
    let length = usize::from(u16::from_le_bytes([datagram[6], datagram[7]]));
    if length > datagram.len() {
        return Err(Rejected::Truncated);
    }
    let (signed, mac) = datagram.split_at(datagram.len() - MAC);
    if length != datagram.len() || datagram[5] > 1 {
        return Err(Rejected::Forged);
    }
    let (is_own, body) = (datagram[5] == 1, &signed[HEADER..]);
    let key = keys.of_datagram(is_own, name(body)).find(|key| same(&key.mac(signed), mac)).ok_or(Rejected::Forged)?;
    let word = |at: usize| u64::from_le_bytes(signed[at..at + 8].try_into().unwrap_or_default());
    let kind = Kind::of(signed[4]).ok_or(Rejected::Malformed)?;
    Ok((Header { kind, boot: word(8), sequence: word(16), token: word(24) }, body, key))
}

/// The name with which a body begins, if it does.
fn name(body: &[u8]) -> &[u8] {
    let Some((length, rest)) = body.split_first() else { return &[] };
    rest.get(..usize::from(*length)).unwrap_or_default()
}

/// In constant time: `blake3::Hash` compares so, and the half that was not sent is filled in from the expected one.
fn same(expected: &blake3::Hash, given: &[u8]) -> bool {
    let mut whole = *expected.as_bytes();
    whole[..MAC].copy_from_slice(given);
    *expected == blake3::Hash::from_bytes(whole)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::key::{Owner, own_line};

    fn key() -> Keys {
        Keys::derive(b"a secret of the tests")
    }

    fn sealed(body: &[u8]) -> Vec<u8> {
        let mut buffer = [0; MAX_DATAGRAM];
        buffer[HEADER..HEADER + body.len()].copy_from_slice(body);
        let header = Header { kind: Kind::Report, boot: 7, sequence: 8, token: 9 };
        let length = seal(&key().first(), &header, &mut buffer, body.len());
        buffer[..length].to_vec()
    }

    #[test]
    fn what_is_sealed_can_be_opened() {
        let datagram = sealed(b"body");
        let (header, body, _) = open(&key(), &datagram).expect("authentic");
        assert_eq!(header, Header { kind: Kind::Report, boot: 7, sequence: 8, token: 9 });
        assert_eq!(body, b"body");
        assert_eq!(open(&Keys::derive(b"another secret of some"), &datagram).err(), Some(Rejected::Forged));
    }

    /// A server that was taken over reports for itself, and for nobody else; and it is no sentry.
    #[test]
    fn an_own_key_opens_what_is_about_its_server_only() {
        let line = own_line("a secret of the tests", Owner::Nucleus, "web");
        let own = Keys::of("web", line.as_bytes(), Path::new("key")).expect("its own");
        let seal_about = |server: &[u8], is_own: bool| {
            let mut buffer = [0; MAX_DATAGRAM];
            buffer[HEADER] = server.len() as u8;
            buffer[HEADER + 1..HEADER + 1 + server.len()].copy_from_slice(server);
            let header = Header { kind: Kind::Goodbye, boot: 7, sequence: 8, token: 9 };
            let length = seal(&own.first(), &header, &mut buffer, 1 + server.len());
            if !is_own {
                buffer[5] = 0;
            }
            buffer[..length].to_vec()
        };
        let (_, _, with) = open(&key(), &seal_about(b"web", true)).expect("its server");
        assert!(with.is_own());
        for (server, is_own) in [(b"web".as_slice(), false), (b"db", true), (b"webs", true), (b"", true)] {
            assert_eq!(open(&key(), &seal_about(server, is_own)).err(), Some(Rejected::Forged), "{server:?}");
        }
        let others = Keys::derive(b"another secret of some");
        assert_eq!(open(&others, &seal_about(b"web", true)).err(), Some(Rejected::Forged));
    }

    #[test]
    fn each_fault_has_its_reason() {
        let good = sealed(b"body");
        assert_eq!(open(&key(), &[0; MAX_DATAGRAM + 1]).err(), Some(Rejected::Oversized));
        assert_eq!(open(&key(), b"").err(), Some(Rejected::Truncated));
        assert_eq!(open(&key(), &good[..good.len() - 1]).err(), Some(Rejected::Truncated));
        assert_eq!(open(&key(), &[&good[..], &[0]].concat()).err(), Some(Rejected::Forged));
        assert_eq!(open(&key(), &[b'x'; 100]).err(), Some(Rejected::Forged));
        let mut other = good.clone();
        other[3] += 1;
        assert_eq!(open(&key(), &other).err(), Some(Rejected::OtherVersion));
    }

    proptest! {
        #[test]
        fn any_changed_bit_is_noticed(body in prop::collection::vec(any::<u8>(), 0..200), at: prop::sample::Index, bit in 0..8) {
            let mut datagram = sealed(&body);
            let at = at.index(datagram.len());
            datagram[at] ^= 1u8 << bit;
            prop_assert!(open(&key(), &datagram).is_err());
        }

        #[test]
        fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
            prop_assert!(open(&key(), &bytes).is_err());
        }
    }
}
