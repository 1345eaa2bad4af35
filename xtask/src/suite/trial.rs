//! One test in a process of its own: what another test does to its process or its memory does not reach it, and one
//! that hangs is ended alone.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::binaries::Test;

/// No test may take longer.
const LONGEST: Duration = Duration::from_secs(300);

/// The variable by which all that a test starts is known, whoever its parent is by then.
const MARK: &str = "TIDEGATE_TRIAL";

static TRIALS: AtomicUsize = AtomicUsize::new(0);

/// Between two looks at a process.
const LOOK: Duration = Duration::from_millis(3);

/// How a test ended.
#[derive(Debug, Clone)]
pub struct Trial {
    pub end: End,
    pub took: Duration,
    /// All that it printed.
    pub said: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Passed,
    /// It returned an error: a measurement missed a bound.
    Missed,
    /// It panicked, crashed or did not end.
    Broke,
}

/// Runs a test, and waits for it.
///
/// # Errors
/// When it cannot be started or watched.
pub fn run(test: &Test, variables: &[(String, String)], log: &Path) -> Result<Trial> {
    let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(&test.binary.program);
    command.args(["--exact", &test.name, "--include-ignored", "--nocapture"]).current_dir(&test.binary.folder);
    command.env("CARGO_MANIFEST_DIR", &test.binary.folder).envs(variables.iter().map(|(name, value)| (name, value)));
    let mark = format!("{}-{}", std::process::id(), TRIALS.fetch_add(1, Ordering::Relaxed));
    command.env(MARK, &mark);
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    let began = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {}", test.binary.program.display()))?;
    let mut is_late = false;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if !is_late && began.elapsed() > LONGEST {
            is_late = true;
            kill_all_of(&mark);
        }
        std::thread::sleep(LOOK);
    };
    let took = began.elapsed();
    let mut said = String::from_utf8_lossy(&fs::read(log)?).into_owned();
    fs::remove_file(log)?;
    if is_late {
        said.push_str(&format!("\nended after {LONGEST:?}: no test may take longer\n"));
    }
    let end = end_of(status.success(), is_late, &said);
    if end == End::Broke {
        kill_all_of(&mark);
    }
    Ok(Trial { end, took, said })
}

/// Ends every process of the trial with this mark: of a test that ended before it cleaned up, some have no parent left.
fn kill_all_of(mark: &str) {
    let marked = format!("{MARK}={mark}");
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        let variables = fs::read(entry.path().join("environ")).unwrap_or_default();
        if variables.split(|byte| *byte == 0).any(|variable| variable == marked.as_bytes()) {
            let _already_ended = kill_process(pid, Signal::KILL);
        }
    }
}

fn end_of(success: bool, is_late: bool, said: &str) -> End {
    let missed_only = !is_late && !said.contains("panicked at") && said.contains("test result: FAILED");
    match success {
        // A name that the binary does not know is no failure to it.
        true if said.contains("test result: ok. 1 passed") => End::Passed,
        false if missed_only => End::Missed,
        _ => End::Broke,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a shell whose child sleeps, and ends the shell: nobody is the parent of what sleeps.
    fn orphan(mark: &str) -> Pid {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 </dev/null >/dev/null 2>&1 & echo $!"]).env(MARK, mark);
        let said = crate::command::output(&mut shell).unwrap();
        Pid::from_raw(said.trim().parse().unwrap()).unwrap()
    }

    #[test]
    fn what_a_broken_test_started_ends_with_it_even_without_a_parent() {
        let (own, other) = (orphan("own"), orphan("other"));
        kill_all_of("own");
        let is_gone = |pid: Pid| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
            // Who adopts it may take a while to bury it.
            stat.is_empty() || stat.contains(") Z ")
        };
        let deadline = Instant::now() + LONGEST;
        while !is_gone(own) {
            assert!(Instant::now() < deadline, "it is still there");
            std::thread::yield_now();
        }
        assert!(!is_gone(other));
        kill_all_of("other");
    }

    #[test]
    fn a_missed_bound_is_told_from_a_panic_and_a_crash() {
        let result = "test result: FAILED. 0 passed; 1 failed";
        let passed = "thread 'x' panicked at: expected\ntest result: ok. 1 passed; 0 failed";
        assert_eq!(end_of(true, false, passed), End::Passed);
        assert_eq!(end_of(true, false, "test result: ok. 0 passed; 0 failed"), End::Broke);
        assert_eq!(end_of(false, false, &format!("Error: \"p95 of 3 s\"\n{result}")), End::Missed);
        assert_eq!(end_of(false, false, &format!("thread 'x' panicked at a.rs\n{result}")), End::Broke);
        assert_eq!(end_of(false, false, "running 1 test\n"), End::Broke);
        assert_eq!(end_of(false, true, result), End::Broke);
    }
}
