//! Trees of files that stand for `/proc` and `/sys`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A tree, removed at the end.
pub(crate) struct Tree(PathBuf);

impl Tree {
    pub(crate) fn new(files: &[(&str, &str)]) -> Tree {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tidegate-nucleus-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let tree = Tree(std::env::temp_dir().join(name));
        files.iter().for_each(|(path, text)| tree.write(path, text));
        tree
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        self.write_bytes(path, text.as_bytes());
    }

    /// A symbolic link; where it leads need not be.
    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
        std::os::unix::fs::symlink(target, path).expect("a link");
    }

    pub(crate) fn remove(&self, path: &str) {
        std::fs::remove_file(self.0.join(path)).expect("a file");
    }

    pub(crate) fn write_bytes(&self, path: &str, bytes: &[u8]) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
        std::fs::write(path, bytes).expect("a file");
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // The folder is temporary: leaving it harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
