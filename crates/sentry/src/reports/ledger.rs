//! Which requests went over which connection to a server, so that processor time measured per connection becomes cost
//! per request.
//!
//! *Intuition.* A taxi with a meter that runs for the whole day, and a note of who rode. *Applied.* Where a server has
//! a process per connection (Apache prefork, PHP-FPM behind nothing, a CGI-less application server), its nucleus reads
//! the process's CPU clock and reports it by the connection's address. The difference between two readings is what the
//! requests in between used. When exactly one request ran, that is its cost; else each gets its share by expected cost.
//!
//! *Awkward cases.* A reading taken while a request runs belongs to two: such readings wait until the connection rests,
//! or until so many requests have passed that the error is small. A connection that is closed and opened again at the
//! same port has another process: its first reading only sets the meter.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_engine::Request;

/// So many requests make a reading good although one is running.
const ENOUGH: usize = 32;
/// The most requests that are kept between readings; of a connection with more, the first are forgotten as a group.
const MOST: usize = 256;
/// Connections kept; a sentry holds at most some hundreds to one server.
const CONNECTIONS: usize = 4096;

/// The ledger of one server. Costs nothing until its nucleus reports connections.
#[derive(Debug, Default)]
pub struct Ledger {
    in_use: AtomicBool,
    lines: Mutex<HashMap<SocketAddr, Line>>,
}

/// One connection.
#[derive(Debug, Default)]
struct Line {
    /// The last reading that was settled, nanoseconds; `None` before the first.
    cpu_ns: Option<u64>,
    passed: Vec<Request>,
    running: bool,
    /// More passed than were kept: the next reading starts anew.
    torn: bool,
}

impl Ledger {
    /// Whether connections are measured, so that requests are worth noting.
    pub fn is_in_use(&self) -> bool {
        self.in_use.load(Relaxed)
    }

    /// A new connection, whatever was at its address before.
    pub fn open(&self, local: SocketAddr) {
        if self.is_in_use() {
            self.lock().remove(&local);
        }
    }

    /// A request begins on a connection.
    pub fn begin(&self, local: SocketAddr) {
        if self.is_in_use() {
            let mut lines = self.lock();
            if lines.len() >= CONNECTIONS {
                // Mostly connections that are gone. Those that are not begin anew.
                lines.clear();
            }
            lines.entry(local).or_default().running = true;
        }
    }

    /// A request ends on it.
    pub fn end(&self, local: SocketAddr, request: &Request) {
        if !self.is_in_use() {
            return;
        }
        if let Some(line) = self.lock().get_mut(&local) {
            line.running = false;
            line.torn |= line.passed.len() >= MOST;
            if !line.torn {
                line.passed.push(*request);
            }
        }
    }

    /// A reading: the requests since the last settled one go to `settled`, with the processor time that they used
    /// together, seconds.
    pub fn read(&self, peer: SocketAddr, cpu_ns: u64, settled: impl FnOnce(&[Request], f64)) {
        self.in_use.store(true, Relaxed);
        let mut lines = self.lock();
        let Some(line) = lines.get_mut(&peer) else { return };
        let Some(before) = line.cpu_ns.filter(|&before| before <= cpu_ns && !line.torn) else {
            // The first reading, another process, or more than was noted.
            line.passed.clear();
            line.torn = false;
            line.cpu_ns = (!line.running).then_some(cpu_ns);
            return;
        };
        if line.running && line.passed.len() < ENOUGH {
            return;
        }
        if !line.passed.is_empty() {
            settled(&line.passed, (cpu_ns - before) as f64 / 1e9);
        }
        line.passed.clear();
        line.cpu_ns = Some(cpu_ns);
    }

    /// No readings come any more.
    pub fn rest(&self) {
        self.in_use.store(false, Relaxed);
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::UrlKey;

    use super::*;

    const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4000);

    fn request(url: u64) -> Request {
        Request { url: UrlKey(url), ..Request::default() }
    }

    fn read(ledger: &Ledger, cpu_ns: u64) -> Option<(Vec<u64>, f64)> {
        let mut settled = None;
        ledger.read(HERE, cpu_ns, |requests, seconds| {
            settled = Some((requests.iter().map(|request| request.url.0).collect(), seconds));
        });
        settled
    }

    fn pass(ledger: &Ledger, url: u64) {
        ledger.begin(HERE);
        ledger.end(HERE, &request(url));
    }

    /// A ledger in use, with the meter of one connection set to 1 s.
    fn metered() -> Ledger {
        let ledger = Ledger::default();
        assert_eq!(read(&ledger, 0), None);
        pass(&ledger, 1);
        assert_eq!(read(&ledger, 1_000_000_000), None, "the first reading only sets the meter");
        ledger
    }

    #[test]
    fn nothing_is_noted_before_a_nucleus_measures() {
        let ledger = Ledger::default();
        pass(&ledger, 1);
        assert!(!ledger.is_in_use() && ledger.lock().is_empty());
    }

    #[test]
    fn what_passed_between_readings_used_the_difference() {
        let ledger = metered();
        pass(&ledger, 7);
        assert_eq!(read(&ledger, 1_010_000_000), Some((vec![7], 0.01)));
        assert_eq!(read(&ledger, 1_011_000_000), None, "nobody rode");
        pass(&ledger, 8);
        pass(&ledger, 9);
        assert_eq!(read(&ledger, 1_031_000_000), Some((vec![8, 9], 0.02)));
    }

    #[test]
    fn a_reading_in_the_middle_of_a_request_waits() {
        let ledger = metered();
        pass(&ledger, 7);
        ledger.begin(HERE);
        assert_eq!(read(&ledger, 1_015_000_000), None);
        ledger.end(HERE, &request(8));
        assert_eq!(read(&ledger, 1_030_000_000), Some((vec![7, 8], 0.03)));
        (0..ENOUGH as u64).for_each(|url| pass(&ledger, url));
        ledger.begin(HERE);
        assert_eq!(read(&ledger, 2_030_000_000).map(|(urls, _)| urls.len()), Some(ENOUGH), "enough to be good");
    }

    #[test]
    fn another_process_sets_the_meter_anew() {
        let ledger = metered();
        pass(&ledger, 7);
        assert_eq!(read(&ledger, 5_000), None, "its clock is behind");
        pass(&ledger, 8);
        assert_eq!(read(&ledger, 10_005_000), Some((vec![8], 0.01)));
        ledger.open(HERE);
        pass(&ledger, 9);
        assert_eq!(read(&ledger, 20_005_000), None);
    }

    #[test]
    fn memory_is_bounded() {
        let ledger = metered();
        (0..10 * MOST as u64).for_each(|url| pass(&ledger, url));
        assert!(ledger.lock()[&HERE].passed.len() <= MOST);
        assert_eq!(read(&ledger, 9_000_000_000), None, "not all of them are known");
        for port in 0..u16::MAX {
            ledger.begin(SocketAddr::new(HERE.ip(), port));
        }
        assert!(ledger.lock().len() <= CONNECTIONS);
        ledger.rest();
        assert!(ledger.lock().is_empty());
    }
}
