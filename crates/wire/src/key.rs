//! Files of keys: what stands in them, whom it speaks for, and when they change.
//!
//! A file has one entry in each line, the one to speak with first; whoever listens takes what is made with any of them.
//! So a key is changed without a pause: the new one is added where it is listened for, then it is spoken with, then the
//! old one goes. An entry is
//!
//! - a *secret*, 16 bytes or more, which all share who have it: sentries, nuclei and control planes; or
//! - an *own key*, which follows from a secret and a name. Whoever has it can speak in that name and in no other, and
//!   cannot tell the secret: `nucleus 10.0.0.1:80 <64 hex digits>`.
//!
//! A file that is not text is one secret, whatever bytes are in it.

mod datagrams;
mod file;
mod ring;

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use datagrams::{Key, Keys};
pub use file::{KeyFile, exposed};
#[cfg(feature = "control")]
pub(crate) use ring::{Ring, Use};

/// Fewer bytes than this are no secret.
const LEAST_SECRET: usize = 16;
/// More entries than this are a mistake: each is tried on what is made with none of them.
const MOST_ENTRIES: usize = 8;

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
    /// A secret is too short to be one.
    #[error(
        "line {line} of the key file {path} holds {given} bytes, and a key needs {LEAST_SECRET} or more; make one with: \
         head -c 32 /dev/urandom | base64"
    )]
    TooShort {
        /// Path of the key file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Bytes in it, without white space around them.
        given: usize,
    },
    /// There are more entries than anybody needs.
    #[error("the key file {path} has {given} lines, and {MOST_ENTRIES} are the most; take the oldest keys out")]
    TooMany {
        /// Path of the key file.
        path: PathBuf,
        /// How many there are.
        given: usize,
    },
    /// A line is there for another reason than to be a secret, and would be one.
    #[error("line {line} of the key file {path} is {what}; a key file has keys only")]
    NoKey {
        /// Path of the key file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What it seems to be.
        what: &'static str,
    },
    /// There is more than one that an own key could follow from.
    #[error("the key file {path} has {given} entries; make own keys from a file with one secret in it")]
    Several {
        /// Path of the key file.
        path: PathBuf,
        /// How many there are.
        given: usize,
    },
    /// An own key stands where only a secret will do, or is another's.
    #[error("line {line} of the key file {path} is the own key of {of}, and {needs}")]
    NotFor {
        /// Path of the key file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Whose it is: `nucleus NAME`.
        of: String,
        /// What is needed here.
        needs: String,
    },
}

/// Who has own keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A server's nucleus; its name is the server's, as the nucleus has it.
    Nucleus,
    /// A sentry, toward the control plane.
    Sentry,
}

impl Owner {
    const ALL: [Owner; 2] = [Owner::Nucleus, Owner::Sentry];

    /// Its word in files and commands.
    pub const fn name(self) -> &'static str {
        match self {
            Owner::Nucleus => "nucleus",
            Owner::Sentry => "sentry",
        }
    }

    /// What own keys follow from; separated from whatever else the same secret is used for.
    fn root(self, secret: &[u8]) -> [u8; 32] {
        let context = match self {
            Owner::Nucleus => "tidegate 2026 own keys of nuclei v1",
            Owner::Sentry => "tidegate 2026 own keys of sentries v1",
        };
        blake3::derive_key(context, secret)
    }
}

/// The line for a key file that has the own key of `name`, from the secret in `file`.
///
/// # Errors
/// When the file cannot be read, or has not one secret.
pub fn own_key(file: &Path, owner: Owner, name: &str) -> Result<String, KeyError> {
    let bytes = read(file)?;
    let all = secrets(&bytes, file)?;
    let [secret] = all.as_slice() else {
        return Err(KeyError::Several { path: file.to_owned(), given: all.len() });
    };
    let key = blake3::Hash::from_bytes(own(&owner.root(secret), name.as_bytes()));
    Ok(format!("{} {name} {}", owner.name(), key.to_hex()))
}

/// One entry of a key file.
enum Entry<'b> {
    Secret(&'b [u8]),
    Own { owner: Owner, name: &'b str, key: [u8; 32] },
}

impl<'b> Entry<'b> {
    fn of(line: &'b [u8]) -> Entry<'b> {
        Entry::own(line).unwrap_or(Entry::Secret(line))
    }

    fn own(line: &'b [u8]) -> Option<Entry<'b>> {
        let (owner, rest) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        let owner = Owner::ALL.into_iter().find(|one| one.name() == owner)?;
        let (name, key) = rest.rsplit_once(' ')?;
        let key = *blake3::Hash::from_hex(key).ok()?.as_bytes();
        Some(Entry::Own { owner, name: name.trim(), key })
    }

    fn secret(&self) -> Option<&'b [u8]> {
        match self {
            Entry::Secret(secret) => Some(secret),
            Entry::Own { .. } => None,
        }
    }

    fn not_for(&self, path: &Path, line: usize, needs: &str) -> KeyError {
        let of = match self {
            Entry::Own { owner, name, .. } => format!("{} {name}", owner.name()),
            Entry::Secret(_) => "nobody".to_owned(),
        };
        KeyError::NotFor { path: path.to_owned(), line, of, needs: needs.to_owned() }
    }
}

/// What a key file holds, with the lines; at least one entry.
fn entries<'b>(bytes: &'b [u8], path: &Path) -> Result<Vec<(usize, Entry<'b>)>, KeyError> {
    let is_odd = |c: char| c.is_control() && !"\t\r\n".contains(c);
    let is_text = std::str::from_utf8(bytes).is_ok_and(|text| !text.contains(is_odd));
    let lines: Vec<(usize, &[u8])> = if is_text {
        let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        lines.enumerate().map(|(at, line)| (at + 1, line)).filter(|(_, line)| !line.is_empty()).collect()
    } else {
        vec![(1, bytes.trim_ascii())]
    };
    if lines.len() > MOST_ENTRIES {
        return Err(KeyError::TooMany { path: path.to_owned(), given: lines.len() });
    }
    let too_short = |line, given| KeyError::TooShort { path: path.to_owned(), line, given };
    if lines.is_empty() {
        return Err(too_short(1, 0));
    }
    let entry = |(line, text): (usize, &'b [u8])| match Entry::of(text) {
        Entry::Secret(secret) if secret.len() < LEAST_SECRET => Err(too_short(line, secret.len())),
        Entry::Secret(secret) => match no_secret(secret) {
            Some(what) => Err(KeyError::NoKey { path: path.to_owned(), line, what }),
            None => Ok((line, Entry::Secret(secret))),
        },
        own => Ok((line, own)),
    };
    lines.into_iter().map(entry).collect()
}

/// What somebody may have written into a key file who did not mean a secret, which others could guess.
fn no_secret(line: &[u8]) -> Option<&'static str> {
    let is_own = Owner::ALL
        .iter()
        .any(|owner| line.strip_prefix(owner.name().as_bytes()).is_some_and(|rest| rest.starts_with(b" ")));
    match line {
        [b'#', ..] => Some("a comment"),
        [b'-', b'-', b'-', ..] => Some("the frame of a certificate or of a key for TLS"),
        _ if is_own => Some("an own key that is not whole: it ends in 64 hexadecimal digits"),
        _ => None,
    }
}

/// The secrets of a file that must have nothing else.
fn secrets<'b>(bytes: &'b [u8], path: &Path) -> Result<Vec<&'b [u8]>, KeyError> {
    let secret = |(line, entry): (usize, Entry<'b>)| {
        entry.secret().ok_or_else(|| entry.not_for(path, line, "here the secret is needed that it was made from"))
    };
    entries(bytes, path)?.into_iter().map(secret).collect()
}

/// The entries of a file that `name` is to speak with: secrets, and own keys of that name.
fn entries_of<'b>(bytes: &'b [u8], path: &Path, owner: Owner, name: &str) -> Result<Vec<Entry<'b>>, KeyError> {
    let entry = |(line, entry): (usize, Entry<'b>)| match &entry {
        Entry::Own { owner: of, name: own, .. } if (*of, *own) != (owner, name) => {
            let needs =
                format!("this is {} {name}; make its own with: tidegate key {0} {name} --of SECRET", owner.name());
            Err(entry.not_for(path, line, &needs))
        }
        _ => Ok(entry),
    };
    entries(bytes, path)?.into_iter().map(entry).collect()
}

/// The own key of a name.
fn own(root: &[u8; 32], name: &[u8]) -> [u8; 32] {
    *blake3::keyed_hash(root, name).as_bytes()
}

/// The bytes of a key file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
    std::fs::read(path).map_err(|source| KeyError::Read { path: path.to_owned(), source })
}

/// The own key of `name` as a line of a file, for tests.
#[cfg(test)]
pub(crate) fn own_line(secret: &str, owner: Owner, name: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("secret");
    std::fs::write(&path, secret).expect("a file");
    own_key(&path, owner, name).expect("a secret")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_secret_is_refused_with_advice() {
        let error = Keys::from_secrets(b"  short \n", Path::new("k")).expect_err("too short").to_string();
        assert!(error.contains("holds 5 bytes") && error.contains("head -c 32"), "{error}");
        let error = Keys::load(Path::new("/nonexistent/key")).expect_err("missing").to_string();
        assert!(error.contains("/nonexistent/key"), "{error}");
    }

    fn said(bytes: &[u8]) -> Result<Vec<usize>, String> {
        let all = secrets(bytes, Path::new("key")).map_err(|error| error.to_string())?;
        Ok(all.into_iter().map(<[u8]>::len).collect())
    }

    #[test]
    fn each_line_of_a_text_is_a_secret() {
        assert_eq!(said(b"0123456789abcdef\n"), Ok(vec![16]));
        assert_eq!(said(b" 0123456789abcdef \r\n\n0123456789abcdefg"), Ok(vec![16, 17]));
        assert_eq!(said(b"\x000123456789abcdef\n0123456789abcdef"), Ok(vec![34]), "no text: one secret");
        assert!(said(b"0123456789abcdef\nshort").unwrap_err().starts_with("line 2 of the key file key holds 5 bytes"));
        assert!(said(b"\n").unwrap_err().contains("holds 0 bytes"));
        for (line, what) in [
            ("# the old one, until December", "is a comment"),
            ("-----BEGIN EC PRIVATE KEY-----", "is the frame of"),
            ("nucleus 10.0.0.1:80 0123456789abcdef", "is an own key that is not whole"),
        ] {
            let text = format!("0123456789abcdef\n{line}\n");
            assert!(
                said(text.as_bytes()).unwrap_err().starts_with(&format!("line 2 of the key file key {what}")),
                "{line}"
            );
        }
        assert!(said(&b"0123456789abcdef\n".repeat(9)).unwrap_err().contains("has 9 lines, and 8 are the most"));
    }

    #[test]
    fn an_own_key_is_one_name_s_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        std::fs::write(&path, "0123456789abcdef\nanother secret of some").expect("a file");
        let several = own_key(&path, Owner::Nucleus, "a").expect_err("from which?").to_string();
        assert!(several.contains("has 2 entries; make own keys from a file with one"), "{several}");
        std::fs::write(&path, "0123456789abcdef\n").expect("a file");
        let line = own_key(&path, Owner::Nucleus, "10.0.0.1:80").expect("a secret");
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!((words.len(), words[0], words[1], words[2].len()), (3, "nucleus", "10.0.0.1:80", 64));
        let of = |owner, name: &str| entries_of(line.as_bytes(), &path, owner, name).map(|all| all.len());
        assert_eq!(of(Owner::Nucleus, "10.0.0.1:80").expect("its own"), 1);
        let other = of(Owner::Nucleus, "10.0.0.2:80").expect_err("another's").to_string();
        assert!(other.contains("is the own key of nucleus 10.0.0.1:80, and this is nucleus 10.0.0.2:80"), "{other}");
        assert!(of(Owner::Sentry, "10.0.0.1:80").is_err());
        let wrong = secrets(line.as_bytes(), &path).expect_err("no secret").to_string();
        assert!(wrong.contains("here the secret is needed that it was made from"), "{wrong}");
        std::fs::write(&path, &line).expect("a file");
        assert!(own_key(&path, Owner::Nucleus, "10.0.0.2:80").is_err(), "no other follows from it");
    }
}
