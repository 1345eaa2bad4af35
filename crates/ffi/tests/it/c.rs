//! A program in C uses every function; it judges for itself.

use std::process::Command;

use crate::programs::{here, library, run, scratch};

fn compile(source: &str, how: &str, link: &[&str]) -> std::path::PathBuf {
    let program = scratch("c").join(how);
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-I"]).arg(here().join("include"));
    cc.arg(here().join(source)).arg("-o").arg(&program);
    run(cc.args(link));
    program
}

#[test]
fn c_uses_every_function_of_the_shared_library() {
    let folder = library();
    let folder = folder.to_str().expect("a path in UTF-8");
    let program = compile(
        "tests/it/every_function.c",
        "shared",
        &["-L", folder, "-ltidegate", "-lm", &format!("-Wl,-rpath,{folder}")],
    );
    assert!(run(&mut Command::new(program)).ends_with("all is well\n"));
}

#[test]
fn c_uses_every_function_of_the_static_library() {
    let archive = library().join("libtidegate.a");
    let archive = archive.to_str().expect("a path in UTF-8");
    let program = compile("tests/it/every_function.c", "static", &[archive, "-lm", "-ldl", "-lpthread"]);
    assert!(run(&mut Command::new(program)).ends_with("all is well\n"));
}

#[test]
fn the_first_example_answers_its_request() {
    let archive = library().join("libtidegate.a");
    let archive = archive.to_str().expect("a path in UTF-8");
    let program = compile("examples/begin.c", "begin", &[archive, "-lm", "-ldl", "-lpthread"]);
    assert_eq!(run(&mut Command::new(program)), "arrived 1, answered 1, in time 1\n");
}
