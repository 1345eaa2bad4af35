//! A timer finer than tokio's, whose wheel turns once a millisecond.

use std::io;
use std::time::Instant;

/// Sleeps until an instant to within tens of microseconds (Linux), or a millisecond (elsewhere).
///
/// Follows the real clock: tokio's paused time does not move it.
#[derive(Debug)]
pub struct FineTimer {
    inner: imp::Timer,
}

impl FineTimer {
    /// A timer on the current tokio runtime.
    ///
    /// # Errors
    /// When the process is out of file descriptors.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O enabled.
    pub fn new() -> io::Result<FineTimer> {
        Ok(FineTimer { inner: imp::Timer::new()? })
    }

    /// Sleeps until `at`; returns at once when that is past. May be dropped and called again.
    ///
    /// # Errors
    /// When the kernel refuses to arm or read the timer.
    pub async fn sleep_until(&mut self, at: Instant) -> io::Result<()> {
        self.inner.sleep_until(at).await
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Instant;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    #[derive(Debug)]
    pub(super) struct Timer {
        fd: AsyncFd<OwnedFd>,
    }

    impl Timer {
        #[expect(unsafe_code, reason = "`AsyncFd::register_with_interest` has no safe form")]
        pub(super) fn new() -> io::Result<Timer> {
            let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
            // SAFETY: an `OwnedFd` is open for as long as it lives, and the `AsyncFd` keeps it until it is
            // deregistered.
            let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
            Ok(Timer { fd: registered.map_err(|error| error.into_parts().1)? })
        }

        pub(super) async fn sleep_until(&mut self, at: Instant) -> io::Result<()> {
            let wait = at.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                return Ok(());
            }
            let it_value = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) as _ };
            let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
            // Setting the time also forgets an expiry that a dropped call left unread.
            timerfd_settime(self.fd.get_ref(), TimerfdTimerFlags::empty(), &spec)?;
            loop {
                let mut ready = self.fd.readable().await?;
                let mut expirations = [0u8; 8];
                let read = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut expirations)?));
                if let Ok(result) = read {
                    return result.map(drop);
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;
    use std::time::Instant;

    #[derive(Debug)]
    pub(super) struct Timer;

    impl Timer {
        pub(super) fn new() -> io::Result<Timer> {
            Ok(Timer)
        }

        pub(super) async fn sleep_until(&mut self, at: Instant) -> io::Result<()> {
            tokio::time::sleep_until(at.into()).await;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn never_early_and_reusable_after_a_drop() {
        let mut timer = FineTimer::new().unwrap();
        let far = Instant::now() + Duration::from_secs(3600);
        let dropped = tokio::time::timeout(Duration::from_millis(1), timer.sleep_until(far)).await;
        assert!(dropped.is_err());
        for micros in [0, 50, 300, 2000] {
            let at = Instant::now() + Duration::from_micros(micros);
            timer.sleep_until(at).await.unwrap();
            assert!(Instant::now() >= at);
        }
    }
}
