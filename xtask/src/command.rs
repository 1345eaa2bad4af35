//! Running other programs from the root of the checkout.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the checkout.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

/// Cargo itself, the same one that runs this.
pub fn cargo<I: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

/// Begins again without what cargo told us of our own package, if it did. Build scripts ask for some of it (ring's
/// does), and would run again, with all that depends on them, whenever cargo is called by us after a call by hand.
///
/// # Errors
/// When this program cannot be found or started.
pub fn forget_our_package() -> Result<()> {
    let is_told = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    let told = std::env::vars_os().map(|(name, _)| name).filter(|name| name.to_str().is_some_and(is_told));
    let told: Vec<_> = told.collect();
    if told.is_empty() {
        return Ok(());
    }
    let mut again = Command::new(std::env::current_exe()?);
    again.args(std::env::args_os().skip(1));
    for name in told {
        again.env_remove(name);
    }
    Err(again.exec()).context("cannot begin again")
}

/// Runs a command with its output on ours and nothing to read.
///
/// # Errors
/// When it cannot be started or ends with a failure.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command.stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// Runs a command and gives what it printed, without the last line end.
///
/// # Errors
/// When it cannot be started or ends with a failure; the message holds what it said.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` ended with {}: {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// Where a program lies: in PATH, or in the system directories that a plain user's PATH leaves out.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// The folder of all that is built.
pub fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// How our own program is built: a profile of the workspace's Cargo.toml.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Quickly built: checks.
    Release,
    /// As it is installed: records of speed.
    Dist,
}

impl Profile {
    const fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dist => "dist",
        }
    }

    /// Our own program, as [`build`](Self::build) leaves it.
    pub fn tidegate(self) -> PathBuf {
        target().join(self.name()).join("tidegate")
    }

    /// Builds our own program.
    ///
    /// # Errors
    /// When it does not build.
    pub fn build(self) -> Result<()> {
        run(&mut cargo(["build", "--profile", self.name(), "--locked", "-p", "tidegate"]))
    }
}

/// Our own program, as [`build_tidegate`] leaves it.
pub fn tidegate() -> PathBuf {
    Profile::Release.tidegate()
}

/// Builds our own program for a check.
///
/// # Errors
/// When it does not build.
pub fn build_tidegate() -> Result<()> {
    Profile::Release.build()
}

/// The command as one would type it.
fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_and_what_it_said() {
        let error = output(Command::new("sh").args(["-c", "echo oh no >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("sh -c") && text.contains("oh no") && text.contains('3'), "{text}");
        assert!(run(&mut Command::new("no-such-program-here")).is_err());
    }

    #[test]
    fn finds_programs_and_only_those() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no-such-program-here").is_none());
    }
}
