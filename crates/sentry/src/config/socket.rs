//! Unix sockets to listen on.

use std::fmt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A Unix socket to listen on. Its path lives as long as the process, which has few of them: so this is as cheap to
/// hand on as an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketFile {
    path: &'static Path,
    /// Who may connect: the file's permissions.
    pub mode: u32,
}

/// Every path that there was, each once: reloads do not make them more.
static PATHS: Mutex<Vec<&'static Path>> = Mutex::new(Vec::new());

impl SocketFile {
    /// The socket at `path`.
    pub fn new(path: &Path, mode: u32) -> Self {
        let mut paths = PATHS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = paths.iter().find(|known| **known == path).copied();
        let path = known.unwrap_or_else(|| {
            let path: &'static Path = Box::leak(path.to_path_buf().into_boxed_path());
            paths.push(path);
            path
        });
        SocketFile { path, mode }
    }

    /// Where it is.
    pub fn path(&self) -> &'static Path {
        self.path
    }
}

impl fmt::Display for SocketFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix:{}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_path_is_kept_once() {
        let one = SocketFile::new(Path::new("/run/a.sock"), 0o600);
        let again = SocketFile::new(Path::new("/run/a.sock"), 0o600);
        assert!(std::ptr::eq(one.path(), again.path()) && one == again);
        assert_ne!(one, SocketFile::new(Path::new("/run/a.sock"), 0o660));
        assert_eq!(one.to_string(), "unix:/run/a.sock");
    }
}
