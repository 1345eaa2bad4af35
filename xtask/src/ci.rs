//! `cargo xtask ci`: what must hold before a commit. Each step runs even when an earlier one failed.

use std::process::ExitCode;

use anyhow::Result;

use crate::args::Args;
use crate::command::{cargo, run as run_command};
use crate::steps::Steps;
use crate::{dependencies, docs, suite, tidy};

/// What other services have in their own processes: each can be published, with its dependencies among these.
const PACKAGES: [&str; 4] = ["tidegate-engine", "tidegate-classify", "tidegate-provision", "tidegate-stage"];

/// Runs fmt, clippy, tidy, the policy of dependencies, the packages, the tests and the docs.
///
/// # Errors
/// When an argument is unknown; a failing step is counted, not returned.
pub fn run(args: Args) -> Result<ExitCode> {
    args.finish()?;
    let mut steps = Steps::default();
    steps.run("fmt", || run_command(&mut cargo(["fmt", "--all", "--", "--check"])));
    steps.run("clippy", || {
        let mut clippy = cargo(["clippy", "--workspace", "--all-targets", "--all-features", "--locked"]);
        run_command(clippy.args(["--", "-D", "warnings"]))
    });
    steps.run("tidy", tidy::check);
    // Before the tests: what is wrong with a document should not be known after all of them only.
    steps.run("site", docs::build);
    steps.run("dependencies", dependencies::check);
    steps.run("packages", || {
        let mut package = cargo(["package", "--no-verify", "--allow-dirty", "--locked", "--offline"]);
        run_command(package.args(PACKAGES.iter().flat_map(|name| ["-p", name])))
    });
    suite::add_to(&mut steps, &suite::Options::default());
    steps.run("docs", || {
        // By itself, and first: it is called as the program is, whose pages are to stay.
        let mut library = cargo(["doc", "-p", "tidegate-ffi", "--lib", "--no-deps", "--document-private-items"]);
        run_command(library.arg("--locked").env("RUSTDOCFLAGS", "-D warnings"))?;
        let mut docs = cargo(["doc", "--workspace", "--all-features", "--no-deps", "--document-private-items"]);
        run_command(docs.arg("--locked").env("RUSTDOCFLAGS", "-D warnings"))
    });
    Ok(steps.finish())
}
