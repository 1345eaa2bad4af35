//! Keys of datagrams: what one is sealed with, and which of those that are held opened it.

use std::path::Path;

use super::{Entry, KeyError, Owner, entries_of, own, read, secrets};

/// Separates these keys from whatever else the same secret may be used for.
const CONTEXT: &str = "tidegate 2026 wire v1 datagrams";

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
pub struct Keys(Vec<Held>);

#[derive(Clone)]
enum Held {
    /// A secret: its key, and what servers' own keys follow from.
    Secret { key: [u8; 32], nuclei: [u8; 32] },
    /// A server's own key.
    Own { key: [u8; 32], name: String },
}

impl Keys {
    /// The keys that follow from a secret of any length. White space around it does not count.
    pub fn derive(secret: &[u8]) -> Keys {
        Keys(vec![Held::of(secret)])
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
        Ok(Keys(secrets(bytes, path)?.into_iter().map(Held::of).collect()))
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
        let held = |entry| match entry {
            Entry::Secret(secret) => Held::of(secret),
            Entry::Own { name, key, .. } => Held::Own { key, name: name.to_owned() },
        };
        Ok(Keys(entries_of(bytes, path, Owner::Nucleus, server)?.into_iter().map(held).collect()))
    }

    /// The one to speak with.
    pub fn first(&self) -> Key {
        match &self.0[0] {
            Held::Secret { key, .. } => Key { bytes: *key, is_own: false, entry: 1 },
            Held::Own { key, .. } => Key { bytes: *key, is_own: true, entry: 1 },
        }
    }

    /// Those with which a datagram may be sealed that is about a server, with its own key or with a shared one.
    pub(crate) fn of_datagram(&self, is_own: bool, server: &[u8]) -> impl Iterator<Item = Key> {
        self.0.iter().zip(1..).filter_map(move |(held, entry)| {
            let bytes = match held {
                Held::Secret { nuclei, .. } if is_own => own(nuclei, server),
                Held::Secret { key, .. } => *key,
                Held::Own { key, name } => (is_own && name.as_bytes() == server).then_some(*key)?,
            };
            Some(Key { bytes, is_own, entry })
        })
    }
}

impl Held {
    fn of(secret: &[u8]) -> Held {
        let secret = secret.trim_ascii();
        Held::Secret { key: blake3::derive_key(CONTEXT, secret), nuclei: Owner::Nucleus.root(secret) }
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
