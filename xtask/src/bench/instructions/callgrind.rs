//! Programs under valgrind's callgrind, and what it writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::bench::service::Service;
use crate::command::output;

/// How long it may take to write what it counted.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// The C library copies without instructions that repeat themselves: on processors that have them each byte would count
/// as one.
const COPY: (&str, &str) =
    ("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=1073741824:glibc.cpu.x86_rep_stosb_threshold=1073741824");

/// Runs a program from its start to its end, at the lowest priority. Gives what it printed, and how many instructions
/// it took.
///
/// # Errors
/// When it fails, or valgrind wrote no count.
pub fn run(program: &Path, arguments: &[&str], dir: &Path) -> Result<(String, u64)> {
    let file = dir.join("whole.out");
    let mut valgrind = Command::new("nice");
    valgrind
        .args(["-n", "19", "valgrind", "--quiet", "--tool=callgrind"])
        .env(COPY.0, COPY.1)
        .arg(option("--callgrind-out-file", &file));
    let said = output(valgrind.arg(program).args(arguments))?;
    let text = fs::read_to_string(&file).with_context(|| format!("valgrind did not write {}", file.display()))?;
    let count = total(&text).with_context(|| format!("valgrind wrote no count to {}", file.display()))?;
    Ok((said, count))
}

/// A program whose instructions are counted now and then. What it leaves lies in `dir`.
#[derive(Debug)]
pub struct Watched {
    /// The program.
    pub service: Service,
    dir: PathBuf,
    /// How often its count was written.
    written: u32,
}

/// What was counted between two instants.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Instructions of all its threads.
    pub instructions: u64,
    /// How long it was.
    pub seconds: f64,
}

/// What starts a program that is not counted yet.
pub fn command(program: &Path, dir: &Path) -> Command {
    let mut valgrind = Command::new("valgrind");
    // Without instrumentation it is several times as fast. Turns are fair, or one thread could keep the others waiting.
    valgrind.args(["--quiet", "--tool=callgrind", "--instr-atstart=no", "--fair-sched=try"]);
    valgrind.arg(option("--callgrind-out-file", &dir.join("window.out")));
    valgrind.env(COPY.0, COPY.1).arg(prefix(dir)).arg(program);
    valgrind
}

impl Watched {
    /// A service that was started by [`command`] with the same folder, which has had no other such service.
    pub fn new(service: Service, dir: &Path) -> Self {
        Self { service, dir: dir.to_owned(), written: 0 }
    }

    /// Counts while `work` is done.
    ///
    /// # Errors
    /// When the work fails, or valgrind does not answer.
    pub fn count(&mut self, work: impl FnOnce() -> Result<()>) -> Result<Window> {
        self.tell(&["instrumentation", "on"])?;
        let begun = Instant::now();
        work()?;
        let seconds = begun.elapsed().as_secs_f64();
        self.tell(&["instrumentation", "off"])?;
        // Also begins the count again at nothing.
        self.tell(&["dump"])?;
        self.written += 1;
        let file = self.dir.join(format!("window.out.{}", self.written));
        let deadline = Instant::now() + PATIENCE;
        loop {
            // It is written after the answer, and its last line is the count.
            if let Some(instructions) = fs::read_to_string(&file).ok().as_deref().and_then(total) {
                return Ok(Window { instructions, seconds });
            }
            if Instant::now() > deadline {
                bail!("valgrind did not write {} within {} s", file.display(), PATIENCE.as_secs());
            }
            thread::sleep(POLL);
        }
    }

    fn tell(&self, words: &[&str]) -> Result<()> {
        let mut vgdb = Command::new("vgdb");
        vgdb.arg(prefix(&self.dir)).arg(format!("--pid={}", self.service.pid())).args(words);
        output(&mut vgdb).context("valgrind is told by vgdb what to count")?;
        Ok(())
    }
}

/// Where the two meet: there, nothing is left behind.
fn prefix(dir: &Path) -> String {
    option("--vgdb-prefix", &dir.join("vgdb"))
}

fn option(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

/// The count that a file ends with.
fn total(text: &str) -> Option<u64> {
    let (_, last) = text.strip_suffix('\n')?.rsplit_once('\n')?;
    last.strip_prefix("totals: ")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As callgrind writes it when instrumentation is off: what it sums up at the head is nothing then.
    const TEXT: &str = "# callgrind format\nversion: 1\ncreator: callgrind-3.19.0\npart: 1\n\nevents: Ir\nsummary: 0\n\n\
                        ob=(1) /bin/x\nfn=(1) main\n0 509\n\ntotals: 129651732\n";

    #[test]
    fn the_count_is_the_last_line() {
        assert_eq!(total(TEXT), Some(129_651_732));
    }

    #[test]
    fn a_file_that_is_not_finished_has_no_count() {
        for end in 0..TEXT.len() {
            assert_eq!(total(&TEXT[..end]), None, "{end}");
        }
        assert_eq!(total(""), None);
    }
}
