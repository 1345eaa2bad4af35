//! Gives memory back to the system after a rush of clients.
//!
//! The allocator keeps what was freed for whoever asks next: after ten thousand hostile connections that is all they
//! took, for good. So while the process is larger than it was, the allocator is asked to return what is free; more and
//! more seldom, while that is nothing.

use std::time::Duration;

/// How often it is looked, and at the least.
const PERIOD: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(80);

/// Growth that is worth the milliseconds it takes.
const WORTH: u64 = 8 << 20;

/// Looks after the process's memory, forever.
pub(crate) async fn run() {
    let (mut least, mut period) = (resident(), PERIOD);
    loop {
        tokio::time::sleep(period).await;
        let before = resident();
        if is_worth(&mut least, before) {
            // On a thread of its own, so that no connection waits for it. If there is none, memory stays where it is.
            let _ = tokio::task::spawn_blocking(give_back).await;
            period = next(period, before.saturating_sub(resident()));
        } else {
            period = PERIOD;
        }
    }
}

/// When to look again, after so many bytes were given back.
fn next(period: Duration, freed: u64) -> Duration {
    if freed >= WORTH / 8 { PERIOD } else { (period * 2).min(LONGEST) }
}

/// Whether the process has grown from the `least` that it ever was.
fn is_worth(least: &mut u64, now: u64) -> bool {
    *least = now.min(*least);
    now - *least >= WORTH
}

/// Bytes of memory that the process has; 0 where the system does not say.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "the allocator's own call"))]
fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointers, and glibc documents it as safe to call from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_after_growth_only() {
        let mut least = 100 << 20;
        let mut at = |mebibytes: u64| is_worth(&mut least, mebibytes << 20);
        assert_eq!([100, 107, 90, 97, 98].map(&mut at), [false, false, false, false, true]);
        assert!(resident() > 1 << 20);
        assert_eq!((next(PERIOD, 0), next(LONGEST, 0), next(LONGEST, 2 << 20)), (2 * PERIOD, LONGEST, PERIOD));
    }
}
