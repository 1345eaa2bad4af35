//! Keys of datagrams: what one is sealed with, and which of those that are held opened it.

use std::path::Path;

use super::ring::{Ring, Use};
use super::{KeyError, Owner, read};

const USE: Use = Use { context: "tidegate 2026 wire v1 datagrams", owner: Owner::Nucleus };

/// What a datagram is sealed with. Its text form shows nothing.
#[derive(Clone)]
pub struct Key {
    bytes: [u8; 32],
    /// It is a server's own key; a datagram says so, as others are tried on it then.
    is_own: bool,
    /// Which of the file's entries it is or follows from, from 1.
    entry: usize,
}

/// The keys that somebody holds for datagrams; the first is spoken with. Its text form shows nothing.
#[derive(Clone)]
pub struct Keys(Ring);

impl Keys {
    /// The keys that follow from a secret of any length. White space around it does not count.
    pub fn derive(secret: &[u8]) -> Keys {
        Keys(Ring::derive(&USE, secret))
    }

    /// Reads a file of secrets.
    ///
    /// # Errors
    /// When it cannot be read, or has something else in it.
    pub fn load(path: &Path) -> Result<Keys, KeyError> {
        Keys::from_secrets(&read(path)?, path)
    }

    /// The keys of secrets that were read from `path`.
    ///
    /// # Errors
    /// When there is something else among them.
    pub fn from_secrets(bytes: &[u8], path: &Path) -> Result<Keys, KeyError> {
        Ring::from_secrets(&USE, bytes, path).map(Keys)
    }

    /// Reads the file of a server's nucleus: secrets, or own keys of the server.
    ///
    /// # Errors
    /// When it cannot be read, or has something else in it.
    pub fn load_of(server: &str, path: &Path) -> Result<Keys, KeyError> {
        Keys::of(server, &read(path)?, path)
    }

    /// The keys of a server's nucleus that were read from `path`.
    ///
    /// # Errors
    /// When there is something else among them.
    pub fn of(server: &str, bytes: &[u8], path: &Path) -> Result<Keys, KeyError> {
        Ring::of_name(&USE, server, bytes, path).map(Keys)
    }

    /// The one to speak with.
    pub fn first(&self) -> Key {
        let (bytes, owner) = self.0.first();
        Key { bytes, is_own: owner.is_some(), entry: 1 }
    }

    /// Those with which a datagram may be sealed that is about a server, with its own key or with a shared one.
    pub(crate) fn of_datagram(&self, is_own: bool, server: &[u8]) -> impl Iterator<Item = Key> {
        let keys = self.0.of_owner(is_own.then_some(server));
        keys.map(move |(entry, bytes)| Key { bytes, is_own, entry })
    }
}

impl Key {
    /// The MAC of `bytes`; comparing two takes the same time whatever they are.
    pub(crate) fn mac(&self, bytes: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.bytes, bytes)
    }

    /// Whether it is a server's own key.
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// Which entry of the key file it is or follows from, from 1: one that nobody uses any more can go.
    pub fn entry(&self) -> usize {
        self.entry
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(hidden)")
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::own_key;

    #[test]
    fn a_line_end_does_not_change_the_key() {
        let mac = |secret: &[u8]| Keys::derive(secret).first().mac(b"x");
        assert_eq!(mac(b"0123456789abcdef\n"), mac(b"0123456789abcdef"));
        assert_ne!(mac(b"0123456789abcdef"), mac(b"0123456789abcdeg"));
        let keys = Keys::derive(b"0123456789abcdef");
        assert_eq!((format!("{keys:?}"), format!("{:?}", keys.first())), ("Keys(hidden)".into(), "Key(hidden)".into()));
    }

    #[test]
    fn a_server_s_own_key_follows_from_each_secret_that_is_held() {
        let folder = tempfile::tempdir().expect("a folder");
        let (old, both) = (folder.path().join("old"), folder.path().join("both"));
        std::fs::write(&old, "the old secret, long enough\n").expect("a file");
        std::fs::write(&both, "the new secret, long enough\nthe old secret, long enough\n").expect("a file");
        let line = own_key(&old, Owner::Nucleus, "web").expect("a secret");
        let nucleus = Keys::of("web", line.as_bytes(), &old).expect("its own");
        let sentry = Keys::load(&both).expect("two secrets");
        let mac = nucleus.first().mac(b"x");
        let opens = |server: &[u8]| sentry.of_datagram(true, server).any(|key| key.mac(b"x") == mac);
        assert!(opens(b"web") && !opens(b"web2"));
        let entry = |key: Key| (key.mac(b"x") == mac).then_some(key.entry());
        assert_eq!(sentry.of_datagram(true, b"web").find_map(entry), Some(2));
        assert!(sentry.of_datagram(false, b"web").all(|key| key.mac(b"x") != mac), "it is not the shared one");
        assert_eq!((nucleus.of_datagram(true, b"web").count(), nucleus.of_datagram(true, b"db").count()), (1, 0));
        assert_eq!(nucleus.of_datagram(false, b"web").count(), 0, "who has its own key does not hear the shared one");
    }
}
