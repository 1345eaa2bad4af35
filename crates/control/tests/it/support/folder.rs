//! Folders of a test's own, removed at its end whatever comes of it.

use std::path::Path;

use tempfile::TempDir;

/// So much room a store may need in memory, bytes.
const ROOM: u64 = 2 << 30;

/// An empty folder.
pub fn folder() -> TempDir {
    tempfile::Builder::new().prefix("tidegate-").tempdir().expect("a folder")
}

/// One for what is written to the disk again and again: in memory where there is room. A test kills programs and cuts
/// no machine's power, and no test waits for a disk that others use.
pub fn quick_folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let has_room = rustix::fs::statvfs(memory).is_ok_and(|fs| fs.f_bavail.saturating_mul(fs.f_frsize) >= ROOM);
    let made = has_room.then(|| tempfile::Builder::new().prefix("tidegate-").tempdir_in(memory).ok());
    made.flatten().unwrap_or_else(folder)
}
