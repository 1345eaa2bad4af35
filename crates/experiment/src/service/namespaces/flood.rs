//! A flood of new connections, bounded in number and rate, and what each costs.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use rustix::time::{ClockId, clock_gettime};

/// Tries `count` connections at `rate` per second at most, without waiting for any. Processor time of each attempt,
/// seconds: on a link between namespaces the other end's kernel works on this thread's time too.
///
/// # Errors
/// When there are no sockets.
pub(super) fn flood(to: SocketAddr, count: u32, rate: f64) -> io::Result<f64> {
    let (begin, used) = (Instant::now(), used());
    for number in 0..count {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        // It is under way, or refused at once: both will do.
        let _ = connect(&socket, &to);
        drop(socket);
        let due = begin + Duration::from_secs_f64(f64::from(number) / rate);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok((self::used() - used).as_secs_f64() / f64::from(count))
}

/// Processor time of this thread.
fn used() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
