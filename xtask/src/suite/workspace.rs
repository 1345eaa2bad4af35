//! The workspace's tests; a test program that fails runs once more, alone.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::command::{cargo, run};

/// With more than this failing nothing is tried again: that is no chance.
const FEW: usize = 4;

/// Runs every test. Gives the test programs that failed at first and then passed alone, as arguments to cargo.
///
/// # Errors
/// When something does not compile, when a test program fails twice, and when many fail.
pub fn test(variables: &[(String, String)]) -> Result<Vec<String>> {
    let mut tests = cargo(["test", "--workspace", "--locked", "--no-fail-fast"]);
    let (passed, failed) = failing(tests.envs(variables.iter().map(|(name, value)| (name, value))))?;
    if passed {
        return Ok(Vec::new());
    }
    if failed.is_empty() || failed.len() > FEW {
        bail!("cargo test failed, see above; {} test programs", failed.len());
    }
    for program in &failed {
        println!("once more, alone: {program}");
        let mut alone = cargo(["test", "--locked"]);
        alone.args(program.split(' '));
        run(alone.envs(variables.iter().map(|(name, value)| (name, value))))?;
    }
    Ok(failed)
}

/// Runs `cargo test`, showing what it says. Whether all passed, and the test programs that cargo says have failed.
fn failing(tests: &mut Command) -> Result<(bool, Vec<String>)> {
    let mut child = tests.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().context("cannot start cargo")?;
    let mut failed = Vec::new();
    for line in BufReader::new(child.stderr.take().context("cargo has no standard error")?).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        eprintln!("{line}");
        failed.extend(program(&line).map(str::to_owned));
    }
    Ok((child.wait()?.success(), failed))
}

/// The test program that a line of cargo's last words names: four blanks, and its arguments to cargo in backquotes.
fn program(line: &str) -> Option<&str> {
    line.strip_prefix("    `")?.strip_suffix('`').filter(|arguments| arguments.starts_with("-p "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_programs_are_read_from_what_cargo_says_last() {
        let said = "echo 'error: 2 targets failed:' >&2; echo '    `-p tidegate --test load`' >&2; \
                    echo '    `-p tidegate-wire --doc`' >&2; echo '    `x`' >&2; exit 101";
        let (passed, failed) = failing(Command::new("sh").args(["-c", said])).unwrap();
        assert!(!passed);
        assert_eq!(failed, ["-p tidegate --test load", "-p tidegate-wire --doc"]);
        let compiled =
            failing(Command::new("sh").args(["-c", "echo 'error: could not compile' >&2; exit 101"])).unwrap();
        assert_eq!(compiled, (false, Vec::new()));
    }
}
