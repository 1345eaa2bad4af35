//! A program under test: started on one core, awaited, measured, and stopped when dropped.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::stop;

const START: Duration = Duration::from_secs(15);
const STOP: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(10);

/// A running program that answers HTTP.
#[derive(Debug)]
pub struct Service {
    name: String,
    child: Child,
    log: PathBuf,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Service {
    /// Starts a program on one core, its output in a log, and waits until it answers.
    ///
    /// # Errors
    /// When it cannot be started, ends, or does not listen in time; the message holds its log's end.
    pub fn start(name: &str, command: Command, core: usize, address: SocketAddr, dir: &Path) -> Result<Self> {
        Self::start_on(name, command, &[core], address, dir)
    }

    /// The same on several cores.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_on(
        name: &str,
        mut command: Command,
        cores: &[usize],
        address: SocketAddr,
        dir: &Path,
    ) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        pin_to(&mut command, cores);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        stop::remember(child.id());
        let mut service = Self { name: name.to_owned(), child, log, address };
        service.wait_until_listening()?;
        Ok(service)
    }

    /// The process that was started; it may have children.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether its first process has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks for a path once and gives the status.
    ///
    /// # Errors
    /// When there is no HTTP answer.
    pub fn status(&self, path: &str) -> Result<u16> {
        let mut stream = self.ask(path)?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).with_context(|| format!("{} gave no answer", self.name))?;
        let status = std::str::from_utf8(&head).ok().and_then(|head| head.rsplit(' ').next()?.parse().ok());
        status.with_context(|| format!("{} gave no HTTP answer", self.name))
    }

    /// Asks for a path once and does not wait for the answer.
    ///
    /// # Errors
    /// When the service cannot be reached.
    pub fn ask(&self, path: &str) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(START))?;
        // In one write: `write!` on a socket would send its pieces one by one.
        let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    }

    fn wait_until_listening(&mut self) -> Result<()> {
        let deadline = Instant::now() + START;
        loop {
            if TcpStream::connect(self.address).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status}: {}", self.name, self.log_end());
            }
            if Instant::now() > deadline {
                bail!("{} does not listen on {}: {}", self.name, self.address, self.log_end());
            }
            thread::sleep(POLL);
        }
    }

    fn log_end(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let pid = self.pid();
        // To the first process only: a master stops its own workers.
        if let Ok(Some(_)) = self.child.try_wait() {
            stop::forget(pid);
            return;
        }
        let _already_ended = rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + STOP;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > deadline {
                stop::signal_tree(pid, Signal::KILL);
                let _ended = self.child.wait();
                break;
            }
            thread::sleep(POLL);
        }
        stop::forget(pid);
    }
}

/// An address on 127.0.0.1 that nobody has now, and that nobody was given before.
///
/// # Errors
/// When there is none.
pub fn free_address() -> Result<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Below the ports that the system gives to clients: a client of ours could otherwise meet itself there.
    let first = 20_000 + (std::process::id() % 8_000) as u16;
    for _ in 0..1000 {
        let address = SocketAddr::from(([127, 0, 0, 1], first + NEXT.fetch_add(1, Ordering::Relaxed) % 4_000));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no free port on 127.0.0.1 from {first} on")
}

/// Lets the command run on one core only, and not outlive us.
pub fn pin(command: &mut Command, core: usize) {
    pin_to(command, &[core]);
}

/// Lets the command run on these cores only, and not outlive us.
#[expect(unsafe_code, reason = "`pre_exec` has no safe form")]
fn pin_to(command: &mut Command, on: &[usize]) {
    let mut cores = CpuSet::new();
    on.iter().for_each(|core| cores.set(*core));
    // SAFETY: between fork and exec the closure makes a system call and touches no memory but its own.
    unsafe { command.pre_exec(move || Ok(sched_setaffinity(None, &cores)?)) };
    tie(command);
}

/// Lets the command not outlive the thread that starts it.
#[expect(unsafe_code, reason = "`pre_exec` has no safe form")]
pub fn tie(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes a system call and touches no memory but its own.
    unsafe { command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?)) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::proc_fs;

    #[test]
    fn a_service_that_ends_at_once_is_an_error_with_its_log() {
        let dir = std::env::temp_dir().join(format!("tidegate-xtask-service-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no luck; exit 4"]);
        let error = Service::start("sh", command, 0, free_address().unwrap(), &dir).unwrap_err();
        let text = error.to_string();
        fs::remove_dir_all(&dir).unwrap();
        assert!(text.contains("no luck") && text.contains('4'), "{text}");
    }

    #[test]
    fn a_service_is_asked_and_stopped_when_dropped() {
        let dir = std::env::temp_dir().join(format!("tidegate-xtask-served-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        // A listener of ours stands in for the program's; the program only has to live.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                let mut stream = stream.unwrap();
                let _probe_sends_nothing = stream.read(&mut [0; 256]);
                let _probe_is_gone = stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\n\r\n");
            }
        });
        let mut command = Command::new("tail");
        command.args(["-f", "/dev/null"]);
        let service = Service::start("tail", command, 0, address, &dir).unwrap();
        let pid = service.pid();
        assert_eq!(service.status("/x").unwrap(), 503);
        drop(service);
        assert!(proc_fs::cpu_micros(pid).is_err(), "still there");
        server.join().unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }
}
