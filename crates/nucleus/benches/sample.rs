//! What a nucleus costs in processor time, with everything measured and sent, waking included: ten reports a second, as
//! they are, since what is read depends on the time that passed, and its cost on what others did to the caches
//! meanwhile. The servers are real: processes that wait for connections. `cargo bench -p tidegate-nucleus`.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tidegate_nucleus::{Given, Nucleus};

const ROUNDS: usize = 5;
/// Reports of a round: three seconds.
const REPORTS: u32 = 30;
const INTERVAL: Duration = Duration::from_millis(100);
const CONNECTIONS: usize = 64;

fn main() -> io::Result<()> {
    let bench = Bench::new()?;
    let quiet = TcpListener::bind(("127.0.0.1", 0))?;
    let address = quiet.local_addr()?;
    bench.run("nobody waits to be accepted", address, false)?;
    // While somebody waits the counters are read for every report.
    let waiting = TcpStream::connect(address)?;
    bench.run("somebody waits to be accepted", address, false)?;
    drop((waiting, quiet));

    let (address, workers) = prefork()?;
    let clients = Child::fork(|| hold(address, None))?;
    bench.run("64 connections, each with its process", address, true)?;
    drop(clients);
    let clients = Child::fork(|| hold(address, Some(Duration::from_millis(100))))?;
    bench.run("the same, ten of them new every second", address, true)?;
    drop((clients, workers));

    let (address, server) = together()?;
    let clients = Child::fork(|| hold(address, None))?;
    bench.run("64 connections, one process for all", address, true)?;
    drop((clients, server));
    Ok(())
}

/// A key, and somebody to report to.
struct Bench {
    key: PathBuf,
    sentry: UdpSocket,
}

impl Bench {
    fn new() -> io::Result<Bench> {
        let key = std::env::temp_dir().join(format!("tidegate-bench-nucleus-{}", std::process::id()));
        std::fs::write(&key, "a secret of this benchmark, and of nothing else")?;
        Ok(Bench { key, sentry: UdpSocket::bind(("127.0.0.1", 0))? })
    }

    fn run(&self, what: &str, server: SocketAddr, connections: bool) -> io::Result<()> {
        let given = Given {
            server: Some(server.to_string()),
            to: vec![self.sentry.local_addr()?.to_string()],
            key_file: Some(self.key.clone()),
            connections: Some(connections),
            ..Given::default()
        };
        let config = given.resolve(true).map_err(io::Error::other)?;
        let mut nucleus = Nucleus::new(&config).map_err(io::Error::other)?;
        // What is done once at the start is not counted.
        round(&mut nucleus);
        let mut micros: Vec<f64> = (0..ROUNDS).map(|_| round(&mut nucleus)).collect();
        micros.sort_by(f64::total_cmp);
        let (low, median, high) = (micros[0], micros[ROUNDS / 2], micros[ROUNDS - 1]);
        println!(
            "a report, {what}: {median:.0} us ({low:.0} to {high:.0}); ten a second are {:.2} % of a processor",
            median * 1e-3
        );
        Ok(())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // The folder is temporary: leaving it harms nobody.
        let _ = std::fs::remove_file(&self.key);
    }
}

/// Microseconds of processor time per report.
fn round(nucleus: &mut Nucleus) -> f64 {
    let cpu = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 * 1e-3
    };
    let (before, began) = (cpu(), Instant::now());
    for number in 1..=REPORTS {
        nucleus.report();
        std::thread::park_timeout((INTERVAL * number).saturating_sub(began.elapsed()));
    }
    (cpu() - before) / f64::from(REPORTS)
}

/// A server with a process per connection.
fn prefork() -> io::Result<(SocketAddr, Vec<Child>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let serve = || {
        loop {
            let (mut stream, _) = listener.accept()?;
            while stream.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        }
    };
    let workers = (0..CONNECTIONS).map(|_| Child::fork(serve)).collect::<io::Result<_>>()?;
    Ok((listener.local_addr()?, workers))
}

/// A server that has all its connections in one process.
fn together() -> io::Result<(SocketAddr, Child)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let serve = || {
        let mut connections = Vec::new();
        loop {
            connections.push(listener.accept()?);
        }
    };
    Ok((listener.local_addr()?, Child::fork(serve)?))
}

/// Clients that keep connections, and open one of them anew after each time `renew`.
fn hold(server: SocketAddr, renew: Option<Duration>) -> io::Result<()> {
    let mut connections =
        (0..CONNECTIONS).map(|_| TcpStream::connect(server)).collect::<io::Result<std::collections::VecDeque<_>>>()?;
    loop {
        std::thread::park_timeout(renew.unwrap_or(Duration::from_secs(60)));
        if renew.is_some() {
            drop(connections.pop_front());
            connections.push_back(TcpStream::connect(server)?);
        }
    }
}

/// A process that ends with this value, and with its parent.
struct Child(libc::pid_t);

impl Child {
    fn fork(body: impl FnOnce() -> io::Result<()>) -> io::Result<Child> {
        // SAFETY: this program has one thread, so the child finds everything in order; it never returns from here.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // SAFETY: takes no pointers.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                let code = i32::from(body().is_err());
                // SAFETY: ends this process, and nothing of the parent's with it.
                unsafe { libc::_exit(code) }
            }
            pid => Ok(Child(pid)),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: the process is our child, and nobody else waits for it.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}
