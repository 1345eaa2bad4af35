//! The example in Go: it is vetted, its own tests pass, and its programs run.

use std::path::PathBuf;
use std::process::Command;
use std::time::UNIX_EPOCH;

use crate::programs::{here, is_present, library, run, scratch};

/// A command of Go's in the example's folder, linked with the library of this build.
pub fn go(words: &[&str]) -> Command {
    let archive = std::fs::metadata(library().join("libtidegate.a")).expect("the library");
    let built = archive.modified().expect("when it was built").duration_since(UNIX_EPOCH).expect("after 1970");
    let mut go = Command::new("go");
    go.arg(words[0]);
    if words[0] != "vet" {
        // Go does not look whether a library has changed. Another flag for the linker makes it link again.
        go.args(["-ldflags", &format!("-X main.library={}", built.as_millis())]);
    }
    go.args(&words[1..]).current_dir(here().join("examples/go"));
    go.env("CGO_ENABLED", "1").env("CGO_LDFLAGS", format!("-L{}", library().display()));
    go
}

/// One of the example's programs.
pub fn program(name: &str) -> PathBuf {
    let program = scratch("go").join(name);
    let path = program.to_str().expect("a path in UTF-8");
    run(&mut go(&["build", "-o", path, &format!("./{name}")]));
    program
}

#[test]
fn the_example_in_go_passes_its_own_tests() {
    if !is_present("go") {
        return;
    }
    run(&mut go(&["vet", "./..."]));
    let said = run(&mut go(&["test", "-count=1", "-timeout=120s", "./tidegate"]));
    assert!(said.starts_with("ok"), "{said}");
}

#[test]
fn go_decides_what_rust_decides() {
    if !is_present("go") {
        return;
    }
    let said = run(Command::new(program("rate")).args(["-requests", "50000"]));
    let lines: Vec<&str> = said.lines().collect();
    let refused = |line: &str| line.rsplit(", ").next().map(str::to_owned);
    // The same requests in Rust, each by itself.
    let [half, three] = crate::rate::refused(50_000).map(|count| Some(format!("{count} refused")));
    assert_eq!((refused(lines[1]), refused(lines[3])), (half, three), "{said}");
}
