//! Keys of connections between sentries and control planes.

use std::path::Path;

use crate::key::{Entry, KeyError, Owner, entries_of, own, read, secrets};

/// Separates these keys from whatever else the same secret may be used for.
const CONTEXT: &str = "tidegate 2026 control v1 channel";

/// What a connection begins with. Its text form shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct ControlKey {
    bytes: [u8; 32],
    /// The sentry whose own key it is.
    owner: Option<String>,
}

/// The keys that a sentry or a control plane holds; a sentry connects with the first. Its text form shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct ControlKeys(Vec<Held>);

#[derive(Clone, PartialEq, Eq)]
enum Held {
    /// A secret: its key, and what sentries' own keys follow from.
    Secret { key: [u8; 32], sentries: [u8; 32] },
    /// A sentry's own key.
    Own { key: [u8; 32], name: String },
}

impl ControlKeys {
    /// The keys that follow from a secret. White space around it does not count.
    pub fn derive(secret: &[u8]) -> ControlKeys {
        ControlKeys(vec![Held::of(secret)])
    }

    /// Reads a control plane's file of secrets.
    ///
    /// # Errors
    /// When it cannot be read, or has something else in it.
    pub fn load(path: &Path) -> Result<ControlKeys, KeyError> {
        ControlKeys::from_secrets(&read(path)?, path)
    }

    /// The keys of secrets that were read from `path`.
    ///
    /// # Errors
    /// When there is something else among them.
    pub fn from_secrets(bytes: &[u8], path: &Path) -> Result<ControlKeys, KeyError> {
        Ok(ControlKeys(secrets(bytes, path)?.into_iter().map(Held::of).collect()))
    }

    /// The keys of a sentry that were read from `path`: secrets, or own keys of its name.
    ///
    /// # Errors
    /// When there is something else among them.
    pub fn of(sentry: &str, bytes: &[u8], path: &Path) -> Result<ControlKeys, KeyError> {
        let held = |entry| match entry {
            Entry::Secret(secret) => Held::of(secret),
            Entry::Own { name, key, .. } => Held::Own { key, name: name.to_owned() },
        };
        Ok(ControlKeys(entries_of(bytes, path, Owner::Sentry, sentry)?.into_iter().map(held).collect()))
    }

    /// The one to connect with.
    pub fn first(&self) -> ControlKey {
        match &self.0[0] {
            Held::Secret { key, .. } => ControlKey { bytes: *key, owner: None },
            Held::Own { key, name } => ControlKey { bytes: *key, owner: Some(name.clone()) },
        }
    }

    /// Whether a key is among these, or follows from one of them.
    pub fn hold(&self, key: &ControlKey) -> bool {
        self.of_owner(key.owner()).any(|one| one == *key)
    }

    /// Those with which somebody may connect who says that it is its own key, or that it is a shared one.
    pub(super) fn of_owner(&self, owner: Option<&str>) -> impl Iterator<Item = ControlKey> {
        self.0.iter().filter_map(move |held| {
            let bytes = match (held, owner) {
                (Held::Secret { sentries, .. }, Some(name)) => own(sentries, name.as_bytes()),
                (Held::Secret { key, .. }, None) => *key,
                (Held::Own { key, name }, Some(owner)) => (name == owner).then_some(*key)?,
                (Held::Own { .. }, None) => return None,
            };
            Some(ControlKey { bytes, owner: owner.map(str::to_owned) })
        })
    }
}

impl Held {
    fn of(secret: &[u8]) -> Held {
        let secret = secret.trim_ascii();
        Held::Secret { key: blake3::derive_key(CONTEXT, secret), sentries: Owner::Sentry.root(secret) }
    }
}

impl ControlKey {
    /// The sentry whose own key it is; `None`: it is shared.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }
}

impl std::fmt::Debug for ControlKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ControlKey(hidden)")
    }
}

impl std::fmt::Debug for ControlKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ControlKeys(hidden)")
    }
}
