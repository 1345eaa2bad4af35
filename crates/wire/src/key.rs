//! The secret key that sentries, nuclei and the control plane share, read from a file.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Fewer bytes than this are no secret.
const LEAST_SECRET: usize = 16;
/// Separates these keys from whatever else the same secret may be used for.
const CONTEXT: &str = "tidegate 2026 wire v1 datagrams";

/// A key for authenticating datagrams. Its text form shows nothing.
#[derive(Clone)]
pub struct Key([u8; 32]);

/// Why there is no key.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("the key file {path} cannot be read: {source}")]
    Read {
        /// Path of the key file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The secret is too short to be one.
    #[error(
        "the key file {path} holds {given} bytes, and a key needs {LEAST_SECRET} or more; make one with: \
         head -c 32 /dev/urandom | base64 > {path}"
    )]
    TooShort {
        /// Path of the key file.
        path: PathBuf,
        /// Bytes in it, without white space around them.
        given: usize,
    },
}

impl Key {
    /// The key that follows from a secret of any length. White space around it does not count.
    pub fn derive(secret: &[u8]) -> Key {
        Key(blake3::derive_key(CONTEXT, secret.trim_ascii()))
    }

    /// Reads the secret from a file: 16 bytes or more, of any kind.
    ///
    /// # Errors
    /// When it cannot be read, or is too short.
    pub fn load(path: &Path) -> Result<Key, KeyError> {
        Key::from_secret(&read(path)?, path)
    }

    /// The key of a secret that was read from `path`.
    ///
    /// # Errors
    /// When it is too short.
    pub fn from_secret(secret: &[u8], path: &Path) -> Result<Key, KeyError> {
        Ok(Key::derive(long_enough(secret, path)?))
    }

    /// The MAC of `bytes`; comparing two takes the same time whatever they are.
    pub(crate) fn mac(&self, bytes: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.0, bytes)
    }
}

/// What is wrong with a secret's file that everybody on this machine can read or change, and what to do; `None` when
/// nothing is, or when there is no such file. A group may read it: so secrets are mounted into containers and units.
pub fn exposed(path: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    let others = match (mode & 0o022 != 0, mode & 0o004 != 0) {
        (true, _) => "others can change",
        (false, true) => "everybody on this machine can read",
        (false, false) => return None,
    };
    let path = path.display();
    Some(format!("{others} {path}, which holds a secret (mode {mode:04o}): chmod 600 {path}, and replace the secret"))
}

/// The bytes of a key file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
    std::fs::read(path).map_err(|source| KeyError::Read { path: path.to_owned(), source })
}

/// The secret itself, if it is one.
pub(crate) fn long_enough<'s>(secret: &'s [u8], path: &Path) -> Result<&'s [u8], KeyError> {
    match secret.trim_ascii() {
        short if short.len() < LEAST_SECRET => Err(KeyError::TooShort { path: path.to_owned(), given: short.len() }),
        secret => Ok(secret),
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_end_does_not_change_the_key() {
        let (one, other) = (Key::derive(b"0123456789abcdef\n"), Key::derive(b"0123456789abcdef"));
        assert_eq!(one.mac(b"x"), other.mac(b"x"));
        assert_ne!(one.mac(b"x"), Key::derive(b"0123456789abcdeg").mac(b"x"));
        assert_eq!(format!("{one:?}"), "Key(hidden)");
    }

    #[test]
    fn a_secret_that_others_can_read_or_change_is_noticed() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("tidegate-key-{}", std::process::id()));
        std::fs::write(&path, "0123456789abcdef").expect("a file");
        let of_mode = |mode| {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("our own file");
            exposed(&path)
        };
        assert_eq!((of_mode(0o600), of_mode(0o400), of_mode(0o440)), (None, None, None));
        let (read, changed) = (of_mode(0o644), of_mode(0o660));
        std::fs::remove_file(&path).expect("our own file");
        let read = read.expect("a problem");
        assert!(read.contains("everybody on this machine can read") && read.contains("chmod 600"), "{read}");
        assert!(changed.expect("a problem").contains("others can change"));
        assert_eq!(exposed(Path::new("/nonexistent/key")), None);
    }

    #[test]
    fn a_short_secret_is_refused_with_advice() {
        let error = Key::from_secret(b"  short \n", Path::new("k")).expect_err("too short").to_string();
        assert!(error.contains("holds 5 bytes") && error.contains("head -c 32"), "{error}");
        let error = Key::load(Path::new("/nonexistent/key")).expect_err("missing").to_string();
        assert!(error.contains("/nonexistent/key"), "{error}");
    }
}
