//! What was learned, in a file that outlives a stop or a crash.
//!
//! Less than a successor gets: no keys of session tickets, for a disk keeps what it is given; and nothing of what is at
//! work, which is over by then. A file that cannot be read is no error: it is put aside under another name, so that
//! what a later version wrote is still there for it, and the process begins anew.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tracing::{info, warn};

use super::state::{LARGEST, State, adopt_secrets};

impl State {
    /// What the file at `path` knows, if there is one that can be read. From now on hashes are keyed as when it was
    /// written: to be called before a configuration is read.
    pub fn load(path: &Path) -> Option<State> {
        let shown = path.display();
        let bytes = match read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                info!("there is no state at {shown} yet: nothing is known");
                return None;
            }
            Err(error) => {
                warn!("the state at {shown} cannot be read ({error}): nothing is known");
                return None;
            }
        };
        match State::read(&bytes) {
            Ok(state) => {
                adopt_secrets(&state);
                Some(state)
            }
            Err(why) => {
                let aside = beside(path, "set-aside");
                let moved = fs::rename(path, &aside).map_or_else(
                    |error| format!("it cannot be put aside: {error}"),
                    |()| format!("it is put aside as {}", aside.display()),
                );
                warn!("the state at {shown} is not used: {why}; {moved}; nothing is known");
                None
            }
        }
    }

    /// Writes it to the file at `path`, for its owner alone: as a whole or not at all, whatever happens meanwhile.
    ///
    /// # Errors
    /// When the system does not let it; the file is as it was then.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec(&self.at_rest())?;
        let fresh = beside(path, "new");
        let written = write(&fresh, &bytes).and_then(|()| fs::rename(&fresh, path));
        if written.is_err() {
            // It may not even have been made.
            let _ = fs::remove_file(&fresh);
        }
        written
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.len() > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than any state"));
    }
    fs::read(path)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // One that a crash left, or somebody else, may have another mode.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Another file in the same folder.
fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{what}"));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = include_str!("fixtures/learned-v1.json");

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tidegate-state-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn what_is_saved_is_private_holds_no_secrets_and_comes_back() {
        let folder = folder("saved");
        let path = folder.join("state");
        assert!(State::load(&path).is_none(), "there is none yet");
        let state = State::read(WRITTEN.as_bytes()).expect("it is one");
        state.save(&path).expect("it can be written");
        state.save(&path).expect("and again");
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = State::read(&fs::read(&path).expect("a file")).expect("it is one");
        let learned = again.learned("shop").expect("it is in there");
        assert_eq!((learned.urls(), learned.at_work()), (2, 0));
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1, "nothing else is left there");
        let nowhere = folder.join("none").join("state");
        assert_eq!(state.save(&nowhere).map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
        fs::remove_dir_all(folder).expect("it is there");
    }

    #[test]
    fn what_cannot_be_read_is_put_aside() {
        let folder = folder("aside");
        let path = folder.join("state");
        for text in ["{\"version\":1,\"se", &WRITTEN.replacen("\"version\":1", "\"version\":9", 1)] {
            fs::write(&path, text).expect("a file");
            assert!(State::load(&path).is_none());
            assert!(!path.exists());
            let aside = fs::read_to_string(folder.join("state.set-aside")).expect("it is kept");
            assert_eq!(aside, text);
        }
        fs::remove_dir_all(folder).expect("it is there");
    }
}
