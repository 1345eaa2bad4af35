//! A key file on the disk: who else can read it, and when it changes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::KeyError;

/// Between two looks.
const LOOKS: Duration = Duration::from_secs(1);

/// A file that is looked at once a second, so that a key can change while everybody runs.
#[derive(Clone, Debug)]
pub struct KeyFile {
    path: PathBuf,
    /// How it looked when it was last read, and at the last look.
    read: Option<Print>,
    seen: Option<Print>,
    next: Instant,
}

/// How a file looks from outside: when it was written, its length, and which it is.
type Print = (SystemTime, u64, u64);

impl KeyFile {
    /// A file that is about to be read.
    pub fn new(path: &Path) -> KeyFile {
        let read = print(path);
        KeyFile { path: path.to_owned(), read, seen: read, next: Instant::now() + LOOKS }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it, when that has changed and was the same at the last look: else it is being written. Once for each
    /// change, also when it cannot be read.
    pub fn poll(&mut self, now: Instant) -> Option<Result<Vec<u8>, KeyError>> {
        if now < self.next {
            return None;
        }
        self.next = now + LOOKS;
        let print = print(&self.path);
        let rests = std::mem::replace(&mut self.seen, print) == print;
        // One that is gone is being replaced.
        if !rests || print.is_none() || print == self.read {
            return None;
        }
        self.read = print;
        Some(super::read(&self.path))
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

fn print(path: &Path) -> Option<Print> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.size(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_when_it_changed_and_rests() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        std::fs::write(&path, "one").expect("a file");
        let mut file = KeyFile::new(&path);
        let mut now = Instant::now();
        let mut look = |file: &mut KeyFile| {
            now += LOOKS;
            file.poll(now).map(|read| read.map(|bytes| String::from_utf8(bytes).expect("text")).map_err(|_| ()))
        };
        assert_eq!(look(&mut file), None);
        std::fs::write(&path, "longer").expect("a file");
        assert_eq!(look(&mut file), None, "it may be half written");
        std::fs::write(&path, "longer still").expect("a file");
        assert_eq!(look(&mut file), None);
        assert_eq!(look(&mut file), Some(Ok("longer still".into())));
        assert_eq!(look(&mut file), None);
        std::fs::remove_file(&path).and_then(|()| std::fs::create_dir(&path)).expect("what cannot be read");
        assert_eq!((look(&mut file), look(&mut file), look(&mut file)), (None, Some(Err(())), None), "said once");
        std::fs::remove_dir(&path).and_then(|()| std::fs::write(&path, "again")).expect("a file");
        assert_eq!((look(&mut file), look(&mut file)), (None, Some(Ok("again".into()))));
        std::fs::remove_file(&path).expect("a file");
        assert_eq!((look(&mut file), look(&mut file)), (None, None), "the last is good");
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
}
