//! What somebody holds for one use: secrets, from which the key that all share follows and one for each name, and own
//! keys.

use std::path::Path;

use super::{Entry, KeyError, Owner, entries_of, own, secrets};

/// What keys are for.
pub(crate) struct Use {
    /// Separates these keys from whatever else the same secret may be used for.
    pub(crate) context: &'static str,
    /// Who has own keys.
    pub(crate) owner: Owner,
}

/// The keys of a file for one use, at least one; the first is spoken with.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Ring(Vec<Held>);

#[derive(Clone, PartialEq, Eq)]
enum Held {
    /// A secret: its key, and what own keys follow from.
    Secret { key: [u8; 32], root: [u8; 32] },
    /// An own key.
    Own { key: [u8; 32], name: String },
}

impl Ring {
    /// Of a secret of any length. White space around it does not count.
    pub(crate) fn derive(of: &Use, secret: &[u8]) -> Ring {
        Ring(vec![Held::of(of, secret)])
    }

    /// Of a file of secrets that was read from `path`.
    ///
    /// # Errors
    /// When there is something else among them.
    pub(crate) fn from_secrets(of: &Use, bytes: &[u8], path: &Path) -> Result<Ring, KeyError> {
        Ok(Ring(secrets(bytes, path)?.into_iter().map(|secret| Held::of(of, secret)).collect()))
    }

    /// Of the file of one that has own keys: secrets, or own keys of its name.
    ///
    /// # Errors
    /// When there is something else among them.
    pub(crate) fn of_name(of: &Use, name: &str, bytes: &[u8], path: &Path) -> Result<Ring, KeyError> {
        let held = |entry| match entry {
            Entry::Secret(secret) => Held::of(of, secret),
            Entry::Own { name, key, .. } => Held::Own { key, name: name.to_owned() },
        };
        Ok(Ring(entries_of(bytes, path, of.owner, name)?.into_iter().map(held).collect()))
    }

    /// The one to speak with, and whose own key it is, if it is one.
    pub(crate) fn first(&self) -> ([u8; 32], Option<&str>) {
        match &self.0[0] {
            Held::Secret { key, .. } => (*key, None),
            Held::Own { key, name } => (*key, Some(name)),
        }
    }

    /// Those with which somebody may speak who says that it is its own key, or that it is a shared one; each with the
    /// number of its entry in the file, from 1.
    pub(crate) fn of_owner(&self, owner: Option<&[u8]>) -> impl Iterator<Item = (usize, [u8; 32])> {
        self.0.iter().zip(1..).filter_map(move |(held, entry)| {
            let key = match (held, owner) {
                (Held::Secret { root, .. }, Some(name)) => own(root, name),
                (Held::Secret { key, .. }, None) => *key,
                (Held::Own { key, name }, Some(owner)) => (name.as_bytes() == owner).then_some(*key)?,
                (Held::Own { .. }, None) => return None,
            };
            Some((entry, key))
        })
    }
}

impl Held {
    fn of(of: &Use, secret: &[u8]) -> Held {
        let secret = secret.trim_ascii();
        Held::Secret { key: blake3::derive_key(of.context, secret), root: of.owner.root(secret) }
    }
}
