//! Processor time per connection, for servers that give each connection a process of its own (Apache prefork, say).
//!
//! *Applied.* The listener's inode tells which processes are the server's; a connection's inode which of them has it. A
//! process's CPU clock can be read by its number alone, in a third of a microsecond. The sentry keeps its connections
//! open and knows which requests went over which, so it turns the clocks into costs of requests.
//!
//! *Awkward cases.* A process with two connections would mix them, and one with several threads too: such processes are
//! left out. Files of other users' processes can be read as root or as the same user only; otherwise nothing is found,
//! and nothing is measured.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use tidegate_wire::Connection;

use crate::netlink::TcpSocket;

/// Processes are looked through at most this often.
const SEARCH: Duration = Duration::from_secs(1);
/// Connections per report: those of the others follow in the next ones.
const PER_REPORT: usize = 32;

/// Which process has which connection.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    /// Processes that have a listener of the service open, and those that were looked through and have not.
    ours: HashSet<u32>,
    others: HashSet<u32>,
    /// Process by connection's inode.
    owner: HashMap<u32, u32>,
    searched: Option<Instant>,
    next: usize,
}

impl Workers {
    /// The clocks of some of the `connections`, whose server listens with sockets of these inodes.
    pub(crate) fn read(&mut self, listeners: &[u32], connections: &[TcpSocket]) -> Vec<Connection> {
        let known = |socket: &TcpSocket| self.owner.contains_key(&socket.inode);
        let unknown = connections.iter().any(|socket| socket.inode != 0 && !known(socket));
        if unknown && self.searched.is_none_or(|at| at.elapsed() >= SEARCH) {
            self.searched = Some(Instant::now());
            self.search(Path::new("/proc"), listeners, connections);
        }
        let open: HashSet<u32> = connections.iter().map(|socket| socket.inode).collect();
        self.owner.retain(|inode, _| open.contains(inode));
        let owned: Vec<_> = connections.iter().filter_map(|s| Some((s, *self.owner.get(&s.inode)?))).collect();
        let first = if owned.is_empty() { 0 } else { self.next % owned.len() };
        let taken = owned.len().min(PER_REPORT);
        self.next = first + taken;
        let some = owned.iter().cycle().skip(first).take(taken);
        some.filter_map(|(socket, pid)| Some(Connection { peer: socket.peer, cpu_ns: cpu_clock(*pid).ok()? })).collect()
    }

    /// Looks through processes for the service's sockets.
    fn search(&mut self, proc: &Path, listeners: &[u32], connections: &[TcpSocket]) {
        let Ok(folders) = fs::read_dir(proc) else { return };
        let numbers = folders.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let pids: HashSet<u32> = numbers.collect();
        self.ours.retain(|pid| pids.contains(pid));
        self.others.retain(|pid| pids.contains(pid));
        let wanted: HashSet<u32> = connections.iter().map(|socket| socket.inode).collect();
        let mut found: HashMap<u32, Vec<u32>> = HashMap::new();
        for pid in pids {
            if self.others.contains(&pid) {
                continue;
            }
            let sockets = sockets_of(&proc.join(pid.to_string()).join("fd"));
            let is_ours = sockets.iter().any(|inode| listeners.contains(inode));
            if !is_ours {
                // Looked at once only: a process does not come by a listener later, but a server may by a restart.
                self.ours.remove(&pid);
                self.others.insert(pid);
                continue;
            }
            self.ours.insert(pid);
            let of_service: Vec<u32> = sockets.into_iter().filter(|inode| wanted.contains(inode)).collect();
            if let ([inode], true) = (of_service.as_slice(), is_single_threaded(&proc.join(pid.to_string()))) {
                found.entry(*inode).or_default().push(pid);
            }
        }
        // A connection that several processes have is nobody's.
        self.owner =
            found.into_iter().filter(|(_, pids)| pids.len() == 1).map(|(inode, pids)| (inode, pids[0])).collect();
    }
}

/// The inodes of a process's sockets.
pub(crate) fn sockets_of(folder: &Path) -> Vec<u32> {
    let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
    let inode = |file: fs::DirEntry| {
        let target = fs::read_link(file.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    files.filter_map(|file| inode(file.ok()?)).collect()
}

fn is_single_threaded(process: &Path) -> bool {
    fs::read_dir(process.join("task")).is_ok_and(|tasks| tasks.count() == 1)
}

/// Processor time that a process has used, nanoseconds.
fn cpu_clock(pid: u32) -> io::Result<u64> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    let mut clock = 0;
    // SAFETY: `clock` may be written to; the call keeps no pointer.
    let failed = unsafe { libc::clock_getcpuclockid(pid, &mut clock) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` may be written to; the call keeps no pointer.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::netlink::Netlink;

    #[test]
    fn a_processs_clock_runs_while_it_works() {
        let before = cpu_clock(std::process::id()).expect("our own clock");
        let mut sum = 0u64;
        while cpu_clock(std::process::id()).expect("our own clock") < before + 2_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        // No process has a number beyond 2^22.
        assert!(cpu_clock(u32::MAX).is_err() && cpu_clock(1 << 22).is_err());
    }

    /// The test's own process has the listener and several threads: it is found, and left out.
    #[test]
    fn processes_are_found_by_the_listener_and_threads_are_left_out() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let _client = TcpStream::connect(address).expect("a connection");
        let _server = listener.accept().expect("a connection");
        let mut netlink = Netlink::open().expect("netlink");
        let (mut listeners, mut connections) = (Vec::new(), Vec::new());
        let port = address.port();
        netlink.listeners(port, |s| listeners.extend((s.local == address).then_some(s.inode))).expect("a list");
        netlink.connections(port, |s| connections.extend((s.local == address).then_some(s))).expect("a list");
        let mut workers = Workers::default();
        let (release, wait) = std::sync::mpsc::sync_channel::<()>(0);
        let other = std::thread::spawn(move || wait.recv());
        let read = workers.read(&listeners, &connections);
        assert!(workers.ours.contains(&std::process::id()));
        assert!(read.is_empty(), "several threads: {read:?}");
        drop(release);
        assert!(other.join().expect("the thread").is_err());
    }
}
