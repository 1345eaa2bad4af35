//! What is kept on disk: the account, certificates with their keys, challenges under way, and whose turn it is.
//!
//! Nobody else may read it: the folder is the owner's alone, and so is each file. A file is written beside its place
//! and moved there, so that whoever reads it reads all of it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::challenge::Answer;
use crate::tls::certificates;

/// A challenge that was left behind is void after so long.
const STALE: Duration = Duration::from_secs(3600);

/// The most challenges that are read: one for each name of a few certificates.
const MOST: usize = 1000;

/// Makes a folder that is the owner's alone, if it is not there.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Puts a file in place of what was there.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&beside, path)).inspect_err(|_| {
        // It is of no use to anybody.
        let _ = fs::remove_file(&beside);
    })
}

/// The turn of one sentry among those that share a folder; over when it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _lock: File,
}

impl Turn {
    /// `None`: another one has it.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub(super) fn take(folder: &Path) -> io::Result<Option<Turn>> {
        let path = folder.join("lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Turn { _lock: lock })),
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A challenge's file; removed when this is dropped.
#[derive(Debug)]
pub(super) struct Posted(std::path::PathBuf);

/// Puts up a challenge, for every sentry that shares the folder. `name`: a token with its text, or a host with its
/// certificate and key as PEM.
pub(super) fn post(folder: &Path, name: &str, kind: Kind, text: &str) -> io::Result<Posted> {
    make(folder)?;
    let path = folder.join(format!("{name}.{}", kind.extension()));
    write(&path, text.as_bytes())?;
    Ok(Posted(path))
}

impl Drop for Posted {
    fn drop(&mut self) {
        // What is left is void soon, and read by nobody then.
        let _ = fs::remove_file(&self.0);
    }
}

/// What a challenge's file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A text.
    Http,
    /// A certificate and its key.
    Tls,
}

impl Kind {
    const fn extension(self) -> &'static str {
        match self {
            Kind::Http => "token",
            Kind::Tls => "pem",
        }
    }
}

/// The challenges that are up, by token or host. What cannot be read is left out.
pub(super) fn posted(folder: &Path) -> Vec<(String, Answer)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().take(MOST).filter_map(|entry| read(&entry.path())).collect()
}

fn read(path: &Path) -> Option<(String, Answer)> {
    let written = fs::metadata(path).ok()?.modified().ok()?;
    if SystemTime::now().duration_since(written).unwrap_or_default() > STALE {
        return None;
    }
    let name = path.file_stem()?.to_str()?.to_owned();
    match path.extension()?.to_str()? {
        "token" => Some((name, Answer::Http(fs::read_to_string(path).ok()?))),
        "pem" => {
            let pem = fs::read(path).ok()?;
            Some((name, Answer::Tls(certificates::of_challenge(&pem).ok()?)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_kept_is_the_owner_s_alone_and_one_sentry_has_its_turn() {
        let folder = std::env::temp_dir().join(format!("tidegate-acme-cache-{}", std::process::id()));
        make(&folder).expect("a folder");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        write(&folder.join("key.pem"), b"one").expect("writes");
        write(&folder.join("key.pem"), b"two").expect("writes");
        assert_eq!(fs::read(folder.join("key.pem")).expect("reads"), b"two");
        assert_eq!((mode(&folder), mode(&folder.join("key.pem"))), (0o700, 0o600));
        let turn = Turn::take(&folder).expect("a lock").expect("its turn");
        assert!(Turn::take(&folder).expect("a lock").is_none());
        drop(turn);
        assert!(Turn::take(&folder).expect("a lock").is_some());
        let challenges = folder.join("challenges");
        let posted_one = post(&challenges, "token-1", Kind::Http, "token-1.print").expect("writes");
        fs::write(challenges.join("broken.pem"), "no PEM").expect("writes");
        let all = posted(&challenges);
        assert!(matches!(&all[..], [(name, Answer::Http(text))] if name == "token-1" && text == "token-1.print"));
        drop(posted_one);
        assert!(posted(&challenges).is_empty() && posted(&folder.join("nowhere")).is_empty());
        fs::remove_dir_all(&folder).expect("removes");
    }
}
