//! A real Apache with PHP in place of emulated servers: prefork, a process for each connection, as Debian ships it, in
//! a folder of its own. Each URL of a scenario is a PHP file that uses processor time: so much that its service time on
//! this machine's idle core is the scenario's. A URL always costs the same, as a file has one size; the URLs of a type
//! are spread over the type's distribution.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use tidegate_testbed::{STATUS_PATH, free_address, pinned};
use tidegate_workload::{ServiceTime, rng};

use crate::scenario::Scenario;

/// A running Apache; dropped, it ends and its folder goes.
#[derive(Debug)]
pub(crate) struct Apache {
    child: Child,
    address: SocketAddr,
    folder: PathBuf,
    cores: usize,
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
/// It is up within this, and answers the calibration within this.
const PATIENCE: Duration = Duration::from_secs(20);
/// Rounds of the script that is timed.
const ROUNDS: u32 = 60_000;
/// It is timed so often; the median counts.
const TIMES: usize = 5;

impl Apache {
    /// Starts it on the processors `0..cores`, with a file for each URL of the scenario.
    ///
    /// # Errors
    /// When Apache or PHP is missing, or it does not serve.
    pub(crate) fn start(scenario: &Scenario, seed: u64) -> Result<Apache, ApacheError> {
        let php = php_module()?;
        let folder = std::env::temp_dir().join(format!("tidegate-apache-{}", std::process::id()));
        let files = folder.join("files");
        write(&files.join("calibrate"), &script(ROUNDS, 0))?;
        let address = free_address().map_err(ApacheError::Start)?;
        write(&folder.join("apache.conf"), &configuration(&folder, &files, address, &php))?;
        // Its workers run as another user.
        for place in [&folder, &files] {
            fs::set_permissions(place, fs::Permissions::from_mode(0o755)).map_err(failed(place))?;
        }
        let cores = scenario.servers.cores as usize;
        let child = spawn(&folder, cores).map_err(ApacheError::Start)?;
        let apache = Apache { child, address, folder, cores };
        let rounds_per_second = apache.calibrate()?;
        for (path, seconds, bytes) in pages(scenario, seed) {
            let rounds = (seconds * rounds_per_second).round() as u32;
            write(&files.join(path.trim_start_matches('/')), &script(rounds, bytes))?;
        }
        let first = pages(scenario, seed).next().map_or_else(|| "/calibrate".to_owned(), |(path, ..)| path);
        apache.ask(&first)?;
        Ok(apache)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Runs `start` so that the threads that it starts leave Apache its processors, where there are others.
    pub(crate) fn beside<T: Send>(&self, start: impl FnOnce() -> T + Send) -> T {
        pinned(|all| &all[all.partition_point(|&core| core < self.cores)..], start)
    }

    /// How many rounds it does in a second of processor time.
    fn calibrate(&self) -> Result<f64, ApacheError> {
        let started = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            if started.elapsed() > PATIENCE {
                return Err(self.error("/", "it does not listen".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut times = Vec::new();
        for _ in 0..TIMES {
            let text = self.ask("/calibrate")?;
            let seconds: Option<f64> = text.trim().parse().ok().filter(|seconds| *seconds > 0.0);
            times.push(seconds.ok_or_else(|| self.error("/calibrate", format!("it answers {text:?}")))?);
        }
        times.sort_by(f64::total_cmp);
        Ok(f64::from(ROUNDS) / times[TIMES / 2])
    }

    /// The body at a path.
    fn ask(&self, path: &str) -> Result<String, ApacheError> {
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

/// Every URL's path, its service time in seconds, and the size of its answer.
fn pages(scenario: &Scenario, seed: u64) -> impl Iterator<Item = (String, f64, u64)> {
    let classes = scenario.classes.iter();
    classes.flat_map(move |class| {
        scenario.requests.iter().flat_map(move |request| {
            let times = spread(&request.service, request.urls as usize, seed);
            let page = move |(number, seconds)| {
                (format!("/{}/{}/{number}", class.name, request.name), seconds, request.response_bytes)
            };
            times.into_iter().enumerate().map(page)
        })
    })
}

/// So many values that are spread as the law is: the middles of equally many draws, so that their mean is the law's.
fn spread(law: &ServiceTime, count: usize, seed: u64) -> Vec<f64> {
    const DRAWS: usize = 1000;
    let mut rng = rng(seed, 1);
    let mut draws: Vec<f64> = (0..count * DRAWS).map(|_| law.sample(&mut rng)).collect();
    draws.sort_by(f64::total_cmp);
    draws.chunks(DRAWS).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect()
}

/// Hashes in a chain: processor time, no waiting. It says how much it was, unless it has something to send.
fn script(rounds: u32, bytes: u64) -> String {
    let says = match bytes {
        0 => "$after = getrusage();\n$used = fn($at) => $at['ru_utime.tv_sec'] + $at['ru_stime.tv_sec'] \
              + 1e-6 * ($at['ru_utime.tv_usec'] + $at['ru_stime.tv_usec']);\necho $used($after) - $used($before);"
            .to_owned(),
        bytes => format!("echo str_repeat('tidegate', {});", bytes.div_ceil(8)),
    };
    format!(
        "<?php\nheader('Content-Type: text/plain');\n$before = getrusage();\n$text = 'tide';\n\
         for ($i = 0; $i < {rounds}; $i++) {{ $text = hash('sha256', $text . $i); }}\n{says}\n"
    )
}

fn configuration(folder: &Path, files: &Path, address: SocketAddr, php: &str) -> String {
    let (root, files) = (folder.display(), files.display());
    let status = STATUS_PATH.split('?').next().unwrap_or(STATUS_PATH);
    format!(
        "ServerRoot {root}\nServerName localhost\nListen {address}\nPidFile {root}/apache.pid\nUser www-data\nGroup www-data\n\
         DefaultRuntimeDir {root}\nErrorLog {root}/error.log\n\
         LoadModule mpm_prefork_module {MODULES}/mod_mpm_prefork.so\n\
         LoadModule authz_core_module {MODULES}/mod_authz_core.so\n\
         LoadModule status_module {MODULES}/mod_status.so\nLoadModule php_module {MODULES}/{php}\n\
         StartServers 32\nMinSpareServers 16\nMaxSpareServers 150\nMaxRequestWorkers 150\nMaxConnectionsPerChild 0\n\
         KeepAlive On\nMaxKeepAliveRequests 0\nKeepAliveTimeout 30\nTimeout 60\n\
         DocumentRoot {files}\n<Directory {files}>\n  Require all granted\n  SetHandler application/x-httpd-php\n</Directory>\n\
         <Location {status}>\n  SetHandler server-status\n</Location>\n"
    )
}

fn php_module() -> Result<String, ApacheError> {
    let names = fs::read_dir(MODULES).map_err(|_| ApacheError::Missing(MODULES.to_owned()))?;
    let names = names.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let php = names.filter(|name| name.starts_with("libphp") && name.ends_with(".so")).max();
    php.ok_or_else(|| ApacheError::Missing("PHP for Apache".to_owned()))
}

/// Starts it on the first processors, all of them where there are no more, and not to outlive us.
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

fn write(path: &Path, text: &str) -> Result<(), ApacheError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed(folder))?;
    }
    fs::write(path, text).map_err(failed(path))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ApacheError {
    let path = path.to_owned();
    move |error| ApacheError::File { path, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_spread_as_the_law_is() {
        let law = ServiceTime::uniform(0.02, 0.04).unwrap();
        let times = spread(&law, 20, 1);
        assert!(times.is_sorted() && times.len() == 20);
        assert!((times.iter().sum::<f64>() / 20.0 - 0.03).abs() < 0.0005);
        assert!(times[0] < 0.021 && times[19] > 0.039);
    }

    #[test]
    fn a_script_holds_its_work_and_its_size() {
        let text = script(700, 4096);
        assert!(text.contains("$i < 700;") && text.contains("str_repeat('tidegate', 512)"), "{text}");
        assert!(script(5, 0).contains("getrusage()"));
    }
}
