//! Compilers, and the library as they find it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where cargo has put `libtidegate.so` and `libtidegate.a`: beside this program.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    let folder = program.parent().expect("and a folder").to_owned();
    for name in ["libtidegate.so", "libtidegate.a"] {
        assert!(folder.join(name).is_file(), "{name} is not in {}", folder.display());
    }
    folder
}

/// The crate's own folder.
pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder for what a test makes.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a folder for what the test makes");
    folder
}

/// Runs a command that must end well, and gives what it wrote.
pub fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (said, complained) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?} ended with {status}\n{said}\n{complained}");
    said.into_owned()
}

/// Whether `program` is in PATH.
pub fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Whether `program` is there. With `CI=true`, or where the tests' programs were installed, it must be.
pub fn is_present(program: &str) -> bool {
    let installed = format!("TIDEGATE_HAVE_{}", program.to_uppercase());
    let wanted = std::env::var("CI").is_ok_and(|ci| ci == "true") || std::env::var(installed).is_ok();
    let present = is_in_path(program);
    assert!(present || !wanted, "{program} is not in PATH; cargo xtask programs installs it");
    if !present {
        println!("skipped: {program} is not in PATH");
    }
    present
}
