//! `cargo xtask reproduce`: the program built twice, in folders of different names, must be the same bytes.
//!
//! Whoever doubts a program can then build it and compare. What would differ is where it was built: the compiler writes
//! paths into debugging information and into the messages of panics. So both builds are told to write others
//! ([`Site::remapped`]); a path that is left in the program is a finding of its own.
//!
//! Sources are the files that git tracks, as they are here now. Both builds use the same compilers and the same copies
//! of other crates, which Cargo.lock names by their hashes. What was built already is not built again: a run that was
//! stopped goes on where it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::args::Args;
use crate::command::{cargo, output, run as run_command, target};

/// Below `target/reproduce`; of different lengths, as a path's length can move what comes after it.
const FOLDERS: [&str; 2] = ["a", "another-folder/of-a-longer-name"];

/// What paths of the sources and of cargo's own folder are called in the program.
const SOURCES: &str = "/usr/src/tidegate";
const CARGO_HOME: &str = "/usr/src/cargo";

/// Builds twice and compares.
///
/// # Errors
/// When an argument is unknown, a build fails, or the two differ.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let profile = args.option::<String>("--profile")?.unwrap_or_else(|| "dist".to_owned());
    args.finish()?;
    let home = cargo_home()?;
    let sites = FOLDERS.map(|folder| Site { folder: target().join("reproduce").join(folder), home: home.clone() });
    // Both before either is built: somebody may go on writing meanwhile.
    sites.iter().try_for_each(Site::copy_sources)?;
    let [first, second] = &sites;
    let (first, second) = (first.build(&profile)?, second.build(&profile)?);
    if let Some(difference) = difference(&first, &second) {
        bail!("the two builds differ: {difference}");
    }
    for path in [target(), home] {
        let path = path.to_string_lossy().into_owned();
        if let Some(at) = find(&first, path.as_bytes()) {
            bail!("the program holds the path {path}, at byte {at}: ...{}...", around(&first, at));
        }
    }
    println!("the same {} bytes twice, and no path of this machine in them", first.len());
    Ok(ExitCode::SUCCESS)
}

/// A folder to build in.
struct Site {
    folder: PathBuf,
    home: PathBuf,
}

impl Site {
    fn sources(&self) -> PathBuf {
        self.folder.join("tidegate")
    }

    /// Copies what git tracks, if it differs: cargo goes by a file's time.
    fn copy_sources(&self) -> Result<()> {
        let listed = output(Command::new("git").args(["ls-files", "-z"]))?;
        for path in listed.split('\0').filter(|path| !path.is_empty()) {
            let Ok(bytes) = fs::read(path) else { continue };
            let to = self.sources().join(path);
            if fs::read(&to).is_ok_and(|there| there == bytes) {
                continue;
            }
            let folder = to.parent().context("a file lies in a folder")?;
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
        }
        Ok(())
    }

    /// Builds, and gives the program's bytes.
    fn build(&self, profile: &str) -> Result<Vec<u8>> {
        println!("── building in {}", self.folder.display());
        let built = self.folder.join("target");
        let mut build = cargo(["build", "--locked", "--profile", profile, "-p", "tidegate", "--bin", "tidegate"]);
        build.current_dir(self.sources()).env("CARGO_TARGET_DIR", &built);
        build.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", self.remapped("--remap-path-prefix="));
        // A part of the program is C: the allocator.
        build.env("CFLAGS", self.remapped("-ffile-prefix-map="));
        run_command(&mut build)?;
        let program = built.join(profile).join("tidegate");
        fs::read(&program).with_context(|| format!("cannot read {}", program.display()))
    }

    /// The options that give paths other names. The last that fits counts.
    fn remapped(&self, option: &str) -> String {
        let from_to = [(&self.home, CARGO_HOME), (&self.folder, "/usr/src"), (&self.sources(), SOURCES)];
        from_to.map(|(from, to)| format!("{option}{}={to}", from.display())).join(" ")
    }
}

/// Where cargo keeps the sources of other crates.
fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = std::env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?;
    Ok(Path::new(&home).join(".cargo"))
}

/// Where two programs differ first, in words; nothing when they do not.
fn difference(a: &[u8], b: &[u8]) -> Option<String> {
    if a == b {
        return None;
    }
    let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
    let count = a.iter().zip(b).filter(|(a, b)| a != b).count();
    Some(format!(
        "{} and {} bytes, {count} of them different, the first at {at}: ...{}... and ...{}...",
        a.len(),
        b.len(),
        around(a, at),
        around(b, at)
    ))
}

/// Where `needle` begins.
fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

/// What can be read around a byte.
fn around(bytes: &[u8], at: usize) -> String {
    let piece = &bytes[at.saturating_sub(24)..bytes.len().min(at + 64)];
    piece.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_shown_where_it_begins() {
        assert_eq!(difference(b"same", b"same"), None);
        let said = difference(b"in /a/b.rs:1", b"in /c/b.rs:1").unwrap();
        assert!(said.contains("1 of them different, the first at 4") && said.contains("/c/b.rs"), "{said}");
        let said = difference(b"short", b"shorter").unwrap();
        assert!(said.contains("5 and 7 bytes") && said.contains("first at 5"), "{said}");
    }

    #[test]
    fn a_path_that_is_left_is_found() {
        assert_eq!(find(b"\0\0/folder/x\0", b"/folder"), Some(2));
        assert_eq!(find(b"\0/usr/src/x\0", b"/folder"), None);
    }

    #[test]
    fn the_sources_have_one_name_wherever_they_are() {
        let site = |folder: &str| Site { folder: folder.into(), home: "/h".into() };
        assert_eq!(
            site("/t/a").remapped("-m="),
            "-m=/h=/usr/src/cargo -m=/t/a=/usr/src -m=/t/a/tidegate=/usr/src/tidegate"
        );
        assert_ne!(site("/t/a").remapped("-m="), site("/t/b").remapped("-m="));
    }
}
