//! The loop: sample, send, sleep.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::config::Config;
use crate::post::Post;
use crate::sample::Sample;
use crate::sampler::Sampler;

/// How soon a nucleus notices that it is to stop.
const NOTICE: Duration = Duration::from_millis(100);
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

    /// Reports until `stop`, then says goodbye.
    pub fn run(mut self, stop: &AtomicBool) {
        prefer();
        let mut next = Instant::now();
        while !stop.load(Relaxed) {
            let sample = self.sampler.sample();
            self.post.send(&sample);
            next += self.interval;
            let now = Instant::now();
            if next < now {
                // It was held up: what was missed is not made up for.
                next = now + self.interval;
            }
            while let Some(left) = next.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                if stop.load(Relaxed) {
                    break;
                }
                std::thread::sleep(left.min(NOTICE));
            }
        }
        self.post.leave();
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
