//! What a configuration refers to and does not contain: files, processors.

use std::io;
use std::path::{Path, PathBuf};

/// Looks things up.
pub(in crate::config) trait World {
    /// Processors this process may use.
    fn cores(&self) -> usize;
    /// A file's bytes; relative paths start from the configuration file's folder.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The path as this process should open it.
    fn absolute(&self, path: &Path) -> PathBuf;
    /// What is wrong with a secret's file, if others can read or change it.
    fn exposed(&self, _path: &Path) -> Option<String> {
        None
    }
}

/// The machine.
pub(in crate::config) struct RealWorld {
    /// Where relative paths start.
    pub(in crate::config) folder: PathBuf,
}

impl World for RealWorld {
    fn cores(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(self.absolute(path))
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        let joined = self.folder.join(path);
        std::path::absolute(&joined).unwrap_or(joined)
    }

    fn exposed(&self, path: &Path) -> Option<String> {
        tidegate_wire::exposed(&self.absolute(path))
    }
}

/// A world of two processors in which no file exists: for fuzzing, where nothing may be
/// touched.
#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::config) struct NoWorld;

#[cfg(any(test, feature = "fuzzing"))]
impl World for NoWorld {
    fn cores(&self) -> usize {
        2
    }

    fn read(&self, _path: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
}
