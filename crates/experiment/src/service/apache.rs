//! A real Apache as Debian builds it, prefork, a process for each connection, in a folder of its own: what it serves,
//! and how, is for whoever starts it. [`pages`] has the URLs of a scenario.

mod pages;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use tidegate_testbed::pinned;

/// A running Apache; dropped, it ends and its folder goes.
#[derive(Debug)]
pub struct Apache {
    child: Child,
    /// Where it is reached.
    address: SocketAddr,
    folder: PathBuf,
    cores: usize,
}

/// What an Apache is to serve.
pub(super) struct Site<'a> {
    /// Its own, with what it serves; see [`Apache::folder`]. It goes with it.
    pub(super) folder: PathBuf,
    pub(super) listen: SocketAddr,
    /// It has the processors `0..cores`.
    pub(super) cores: usize,
    /// Besides prefork and authz_core, such as `cgi`.
    pub(super) modules: &'a [&'a str],
    /// The rest of its configuration.
    pub(super) settings: &'a str,
    /// It serves when this path is answered.
    pub(super) first: &'a str,
}

/// Why Apache does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ApacheError {
    /// A program or module is missing.
    #[error("{0} is missing; install the Debian packages apache2 and libapache2-mod-php")]
    Missing(String),
    /// A file or folder of its own.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It cannot be started.
    #[error("cannot start apache2: {0}")]
    Start(io::Error),
    /// It does not answer, or not as it should.
    #[error("apache2 does not serve {path}: {problem}")]
    Serve {
        /// What was asked for.
        path: String,
        /// What came, and the end of its log.
        problem: String,
    },
}

const MODULES: &str = "/usr/lib/apache2/modules";
/// It is up within this, and answers within this.
const PATIENCE: Duration = Duration::from_secs(20);

impl Apache {
    /// A folder for another one.
    pub(super) fn folder() -> PathBuf {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        std::env::temp_dir().join(format!("tidegate-apache-{}-{number}", std::process::id()))
    }

    /// Starts it in the caller's network namespace; it ends with the caller's thread at the latest.
    ///
    /// # Errors
    /// When Apache is missing, or it does not serve.
    pub(super) fn serve(site: Site<'_>) -> Result<Apache, ApacheError> {
        let Site { folder, listen, cores, modules, settings, first } = site;
        write(&folder.join("apache.conf"), &format!("{}{settings}", head(&folder, listen, modules)))?;
        // Its workers run as another user.
        for place in [&folder, &folder.join("files")] {
            fs::set_permissions(place, fs::Permissions::from_mode(0o755)).map_err(failed(place))?;
        }
        let child = spawn(&folder, cores).map_err(ApacheError::Start)?;
        let mut address = listen;
        if address.ip().is_unspecified() {
            address.set_ip([127, 0, 0, 1].into());
        }
        let mut apache = Apache { child, address, folder, cores };
        apache.until_it_listens()?;
        apache.ask(first)?;
        Ok(apache)
    }

    /// Where it is reached from this machine.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of its first process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Runs `start` so that the threads that it starts leave Apache its processors, where there are others.
    pub(super) fn beside<T: Send>(&self, start: impl FnOnce() -> T + Send) -> T {
        pinned(|all| &all[all.partition_point(|&core| core < self.cores)..], start)
    }

    /// The body at a path.
    pub(super) fn ask(&self, path: &str) -> Result<String, ApacheError> {
        let failed = |error: io::Error| self.error(path, error.to_string());
        let mut stream = TcpStream::connect(self.address).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).map_err(failed)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(failed)?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.contains(" 200 ") => Ok(body.to_owned()),
            _ => Err(self.error(path, answer.lines().next().unwrap_or("nothing").to_owned())),
        }
    }

    fn until_it_listens(&mut self) -> Result<(), ApacheError> {
        let started = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            if started.elapsed() > PATIENCE || !matches!(self.child.try_wait(), Ok(None)) {
                return Err(self.error("/", "it does not listen".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn error(&self, path: &str, problem: String) -> ApacheError {
        let log = fs::read_to_string(self.folder.join("error.log")).unwrap_or_default();
        let last = log.lines().last().unwrap_or("nothing in its log");
        ApacheError::Serve { path: path.to_owned(), problem: format!("{problem}; {last}") }
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        // On this signal the parent ends its workers at once.
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// What every one has.
fn head(folder: &Path, listen: SocketAddr, modules: &[&str]) -> String {
    let root = folder.display();
    let load = |name: &&str| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n");
    let modules: String = ["mpm_prefork", "authz_core"].iter().chain(modules).map(load).collect();
    format!(
        "ServerRoot {root}\nServerName localhost\nListen {listen}\nPidFile {root}/apache.pid\nUser www-data\n\
         Group www-data\nDefaultRuntimeDir {root}\nErrorLog {root}/error.log\n{modules}"
    )
}

/// Starts it on the first processors, all of them where there are no more, and not to outlive us.
#[expect(unsafe_code, reason = "`pre_exec` has no safe form")]
fn spawn(folder: &Path, cores: usize) -> io::Result<Child> {
    let mut own = CpuSet::new();
    (0..cores).for_each(|core| own.set(core));
    let pinned = cores < std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let prepare = move || {
        if pinned {
            sched_setaffinity(None, &own)?;
        }
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        Ok(())
    };
    let mut apache = Command::new("apache2");
    apache.args(["-D", "FOREGROUND", "-f"]).arg(folder.join("apache.conf"));
    // When it stops, Apache signals its whole process group: that must not be ours.
    apache.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between fork and exec the closure makes two system calls and touches no memory but its own.
    unsafe { apache.pre_exec(prepare) };
    apache.spawn()
}

/// Writes a file, and makes its folder.
pub(super) fn write(path: &Path, text: &str) -> Result<(), ApacheError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed(folder))?;
    }
    fs::write(path, text).map_err(failed(path))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ApacheError {
    let path = path.to_owned();
    move |error| ApacheError::File { path, error }
}
