//! Keys of connections between sentries and control planes.

use std::path::Path;

use crate::key::{KeyError, Owner, Ring, Use, read};

const USE: Use = Use { context: "tidegate 2026 control v1 channel", owner: Owner::Sentry };

/// What a connection begins with. Its text form shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct ControlKey {
    bytes: [u8; 32],
    /// The sentry whose own key it is.
    owner: Option<String>,
}

/// The keys that a sentry or a control plane holds; a sentry connects with the first. Its text form shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct ControlKeys(Ring);

impl ControlKeys {
    /// The keys that follow from a secret. White space around it does not count.
    pub fn derive(secret: &[u8]) -> ControlKeys {
        ControlKeys(Ring::derive(&USE, secret))
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
        Ring::from_secrets(&USE, bytes, path).map(ControlKeys)
    }

    /// The keys of a sentry that were read from `path`: secrets, or own keys of its name.
    ///
    /// # Errors
    /// When there is something else among them.
    pub fn of(sentry: &str, bytes: &[u8], path: &Path) -> Result<ControlKeys, KeyError> {
        Ring::of_name(&USE, sentry, bytes, path).map(ControlKeys)
    }

    /// The one to connect with.
    pub fn first(&self) -> ControlKey {
        let (bytes, owner) = self.0.first();
        ControlKey { bytes, owner: owner.map(str::to_owned) }
    }

    /// Whether a key is among these, or follows from one of them.
    pub fn hold(&self, key: &ControlKey) -> bool {
        self.of_owner(key.owner()).any(|one| one == *key)
    }

    /// Those with which somebody may connect who says that it is its own key, or that it is a shared one.
    pub(super) fn of_owner(&self, owner: Option<&str>) -> impl Iterator<Item = ControlKey> {
        let keys = self.0.of_owner(owner.map(str::as_bytes));
        keys.map(move |(_, bytes)| ControlKey { bytes, owner: owner.map(str::to_owned) })
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
