//! Processor time per connection, for servers that give each connection a process of its own (Apache prefork, say).
//!
//! *Intuition.* Who holds the connection does its work. *Applied.* A connection's inode tells which process has it
//! open, and a process's CPU clock can be read by its number alone, in a third of a microsecond. The sentry keeps its
//! connections open and knows which requests went over which, so it turns the clocks into costs of requests.
//!
//! *Cost.* The kernel lists connections by walking its whole table, a quarter of a million places on a machine of
//! 16 GiB, and looking through the files of processes takes longer still. Neither is needed while nothing changes: the
//! counter of accepted connections says whether any is new, and one `readlink` whether a process that worked still has
//! its own. So looking is done when there is news, at most once a second, and never for more than 0.2 % of a processor,
//! however large the machine is and however hopeless the search.
//!
//! *Awkward cases.* A process with two connections would mix them, and one with several threads too: such processes are
//! left out. Files of other users' processes can be read as root or as the same user only; otherwise nothing is found,
//! and nothing is measured.

mod allowance;
mod search;

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tidegate_wire::Connection;

use self::allowance::Allowance;
use self::search::{Holder, Search};
use crate::netlink::TcpSocket;

pub(crate) use self::search::sockets_of;

/// Time between looks while there is news, and while there is none.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_ANYWAY: Duration = Duration::from_secs(10);
/// Connections per report: those of the others follow in the next ones.
const PER_REPORT: usize = 32;
/// The kernel's number for the clock of what the scheduler counts.
const CPUCLOCK_SCHED: i32 = 2;

/// Which process has which connection.
#[derive(Debug)]
pub(crate) struct Workers {
    search: Search,
    allowance: Allowance,
    held: Vec<Held>,
    /// Where in `held` the next report begins.
    next: usize,
    looked: Option<Instant>,
    /// Connections accepted on the machine, when it was looked last.
    opened: Option<f64>,
    /// Connections were not accepted yet then, or nobody was found to have them.
    is_unsettled: bool,
}

/// A connection, and the process that has it.
#[derive(Debug)]
struct Held {
    peer: SocketAddr,
    inode: u32,
    holder: Holder,
    /// The clock when the process was last seen to have it, nanoseconds.
    cpu_ns: Option<u64>,
}

impl Workers {
    /// Looks for processes in the folder `proc`.
    pub(crate) fn new(proc: &Path) -> Workers {
        Workers {
            search: Search::new(proc),
            allowance: Allowance::new(),
            held: Vec::new(),
            next: 0,
            looked: None,
            opened: None,
            is_unsettled: false,
        }
    }

    /// Whether it is time to [look](Workers::look), `opened` connections having been accepted since the machine started
    /// (`None`: nobody counts them).
    pub(crate) fn is_look_due(&mut self, now: Instant, opened: Option<f64>) -> bool {
        let Some(looked) = self.looked else { return true };
        let has_news = self.is_unsettled || opened.is_none() || opened != self.opened;
        let pause = if has_news { LOOK } else { LOOK_ANYWAY };
        now.saturating_duration_since(looked) >= pause && self.allowance.is_left(now)
    }

    /// Finds out who has which connection. `list` lists those to the service, whose listeners have these inodes.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        opened: Option<f64>,
        listeners: &[u32],
        list: impl FnOnce() -> io::Result<Vec<TcpSocket>>,
    ) {
        let before = used_by_this_thread();
        (self.looked, self.opened) = (Some(now), opened);
        match list() {
            Ok(connections) => self.settle(now, listeners, &connections),
            Err(_) => self.is_unsettled = true,
        }
        self.allowance.spend(now, used_by_this_thread().saturating_sub(before));
    }

    /// The clocks of some of the connections that were found, of those only that their process still has.
    pub(crate) fn read(&mut self) -> Vec<Connection> {
        let count = self.held.len().min(PER_REPORT);
        let mut readings = Vec::with_capacity(count);
        for _ in 0..count {
            self.next %= self.held.len();
            match self.held[self.next].read() {
                Some(reading) => {
                    readings.push(reading);
                    self.next += 1;
                }
                None => drop(self.held.remove(self.next)),
            }
        }
        readings
    }

    /// The last `count` of what was read found no room in the report: the next one begins with them.
    pub(crate) fn put_back(&mut self, count: usize) {
        let length = self.held.len();
        if let Some(back) = count.checked_rem(length) {
            self.next = (self.next % length + length - back) % length;
        }
    }

    fn settle(&mut self, now: Instant, listeners: &[u32], connections: &[TcpSocket]) {
        // A connection has an inode as soon as it is accepted.
        let accepted: HashSet<u32> =
            connections.iter().map(|socket| socket.inode).filter(|inode| *inode != 0).collect();
        self.held.retain(|held| accepted.contains(&held.inode) && held.holder.socket() == Some(held.inode));
        let known: HashSet<u32> = self.held.iter().map(|held| held.inode).collect();
        let wanted: HashSet<u32> = accepted.difference(&known).copied().collect();
        if !wanted.is_empty() {
            // Who has a connection is not looked at, unless somebody has more than one.
            let busy = self.held.iter().map(|held| held.holder.pid).collect();
            let mut found = self.search.find(now, listeners, &wanted, &busy);
            if found.len() < wanted.len() && !busy.is_empty() {
                self.held.clear();
                found = self.search.find(now, listeners, &accepted, &HashSet::new());
            }
            let new = |socket: &TcpSocket| {
                let holder = found.remove(&socket.inode)?;
                Some(Held { peer: socket.peer, inode: socket.inode, holder, cpu_ns: None })
            };
            self.held.extend(connections.iter().filter_map(new));
        }
        self.is_unsettled = self.held.len() < connections.len();
    }
}

impl Held {
    /// The clock of its process; `None` when that has it no longer.
    fn read(&mut self) -> Option<Connection> {
        let cpu_ns = cpu_clock(self.holder.pid).ok()?;
        // While its clock stands still a process does nothing, so it has what it had.
        if self.cpu_ns != Some(cpu_ns) {
            self.cpu_ns = (self.holder.socket() == Some(self.inode)).then_some(cpu_ns);
        }
        Some(Connection { peer: self.peer, cpu_ns: self.cpu_ns? })
    }
}

/// Processor time that a process has used, nanoseconds.
#[expect(unsafe_code, reason = "no library reads another process's clock")]
fn cpu_clock(pid: u32) -> io::Result<u64> {
    // As the kernel's `MAKE_PROCESS_CPUCLOCK` does it. `clock_getcpuclockid` asks the kernel first whether there is
    // such a process, which reading its clock does again.
    let clock = i32::try_from(pid).map_err(io::Error::other)?.wrapping_neg().wrapping_sub(1) << 3 | CPUCLOCK_SCHED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` may be written to; the call keeps no pointer.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

fn used_by_this_thread() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
