//! The loop: sample, send, sleep.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::config::Config;
use crate::lean;
use crate::post::Post;
use crate::sample::Sample;
use crate::sampler::Sampler;

/// Rates of a single sample are over this time.
const ONCE: Duration = Duration::from_millis(200);
/// What a nucleus does is little, and matters most when there is least time for it.
const NICENESS: i32 = -10;

/// A nucleus, ready to run.
#[derive(Debug)]
pub struct Nucleus {
    sampler: Sampler,
    post: Post,
    interval: Duration,
}

/// Why a nucleus cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// There is no key.
    #[error("a nucleus that reports needs a key; give a key file")]
    NoKey,
}

impl Nucleus {
    /// A nucleus that does what `config` says.
    ///
    /// # Errors
    /// When there is no key.
    pub fn new(config: &Config) -> Result<Nucleus, StartError> {
        let key = config.key.clone().ok_or(StartError::NoKey)?;
        let post = Post::new(key, config.server.clone(), &config.to);
        Ok(Nucleus { sampler: Sampler::new(config), post, interval: config.interval })
    }

    /// Reports until SIGTERM or SIGINT, then says goodbye. On this thread: a nucleus is small.
    ///
    /// # Errors
    /// When signals cannot be waited for.
    pub fn run(mut self) -> io::Result<()> {
        prefer();
        let signals = Signals::block()?;
        let mut next = Instant::now();
        lean::give_code_back();
        loop {
            self.report();
            next += self.interval;
            let now = Instant::now();
            if next < now {
                // It was held up: what was missed is not made up for.
                next = now + self.interval;
            }
            if signals.wait(next)? {
                self.post.leave();
                return Ok(());
            }
        }
    }

    /// Sends one report; for drivers with a loop of their own.
    pub fn report(&mut self) {
        let sample = self.sampler.sample();
        self.post.send(&sample);
    }

    /// How many sentries have answered so far.
    pub fn heard(&self) -> usize {
        self.post.heard()
    }

    /// Measures once, with rates over a fifth of a second.
    pub fn once(config: &Config) -> Sample {
        let mut sampler = Sampler::new(config);
        sampler.sample();
        std::thread::sleep(ONCE);
        sampler.sample()
    }
}

/// Asks to run before others. Where that is not allowed it runs as they do.
fn prefer() {
    // SAFETY: takes no pointers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
}

/// SIGTERM and SIGINT, held back until they are waited for.
struct Signals(libc::sigset_t);

impl Signals {
    fn block() -> io::Result<Signals> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises the set that it is given; the other calls then read and write it.
        let (failed, set) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            let set = set.assume_init();
            (libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()), set)
        };
        if failed == 0 { Ok(Signals(set)) } else { Err(io::Error::from_raw_os_error(failed)) }
    }

    /// Waits for one of them, or for the time; whether one came.
    fn wait(&self, until: Instant) -> io::Result<bool> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let time =
                libc::timespec { tv_sec: left.as_secs() as libc::time_t, tv_nsec: left.subsec_nanos() as libc::c_long };
            // SAFETY: the set and the time are read only, and the signal's details are not asked for.
            if unsafe { libc::sigtimedwait(&self.0, ptr::null_mut(), &time) } >= 0 {
                return Ok(true);
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(false),
                Some(libc::EINTR) => {}
                _ => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_the_wait_and_time_does_too() {
        let signals = Signals::block().expect("blocked");
        assert!(!signals.wait(Instant::now()).expect("waited"));
        // SAFETY: sends a signal to this thread, which holds it back.
        unsafe { libc::raise(libc::SIGTERM) };
        assert!(signals.wait(Instant::now() + Duration::from_secs(60)).expect("waited"));
    }
}
