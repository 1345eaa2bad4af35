//! Folders of a test's own, removed at its end whatever comes of it.

use tempfile::TempDir;

/// An empty folder.
pub fn folder() -> TempDir {
    tempfile::Builder::new().prefix("tidegate-").tempdir().expect("a folder")
}
