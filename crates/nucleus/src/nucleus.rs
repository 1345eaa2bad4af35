//! The loop: sample, send, sleep until it is time again or somebody has something to say.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;
use tidegate_wire::{KeyFile, Keys};

use crate::config::Config;
use crate::isolation::Isolation;
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
    key_file: Option<KeyFile>,
    isolation: Option<Isolation>,
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
        let keys = config.keys.clone().ok_or(StartError::NoKey)?;
        let key_file = config.key_file.clone();
        let post = Post::new(keys, config.server.clone(), &config.to);
        let isolation = config.isolation.clone().map(Isolation::new);
        Ok(Nucleus { sampler: Sampler::new(config), post, key_file, isolation, interval: config.interval })
    }

    /// Reports until SIGTERM or SIGINT, then puts back what it divided and says goodbye. On this thread: a nucleus is
    /// small.
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
            loop {
                match signals.wait(next, &self.post)? {
                    Woken::Time => break,
                    Woken::Datagram => self.listen(),
                    Woken::Signal => {
                        if let Some(isolation) = &mut self.isolation {
                            isolation.leave();
                        }
                        self.post.leave();
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Sends one report; for drivers with a loop of their own.
    pub fn report(&mut self) {
        self.follow_keys();
        self.listen();
        let mut sample = self.sampler.sample();
        if let Some(isolation) = &mut self.isolation {
            isolation.tick(Instant::now());
            isolation.show(&mut sample.gauges);
        }
        let told = self.post.send(&sample);
        self.sampler.put_back(sample.connections.len() - told);
    }

    /// Puts other keys in force when their file has changed. One that makes no sense changes nothing.
    fn follow_keys(&mut self) {
        let Some(file) = &mut self.key_file else { return };
        let Some(read) = file.poll(Instant::now()) else { return };
        match read.and_then(|bytes| Keys::of(self.post.server(), &bytes, file.path())) {
            Ok(keys) => {
                tracing::info!("the keys in {} are in force", file.path().display());
                self.post.change_keys(keys);
            }
            Err(error) => tracing::warn!("{error}; the keys of before stay in force"),
        }
    }

    /// Takes what the sentries said, and does it at once.
    pub fn listen(&mut self) {
        let Nucleus { post, isolation, .. } = self;
        post.hear(|sentry, command| {
            if let Some(isolation) = isolation {
                isolation.order(sentry, command.cores, Instant::now());
            }
        });
    }

    /// How many sentries have answered so far.
    pub fn heard(&self) -> usize {
        self.post.heard()
    }

    /// Measures once, with rates over a fifth of a second.
    pub fn once(config: &Config) -> Sample {
        let mut sampler = Sampler::new(config).thorough();
        sampler.sample();
        std::thread::sleep(ONCE);
        sampler.sample()
    }
}

/// Asks to run before others. Where that is not allowed it runs as they do.
#[expect(unsafe_code, reason = "system calls without a safe form")]
fn prefer() {
    // SAFETY: takes no pointers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
}

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    Time,
    Datagram,
    Signal,
}

/// SIGTERM and SIGINT, held back until they are waited for.
struct Signals(OwnedFd);

impl Signals {
    #[expect(unsafe_code, reason = "system calls without a safe form")]
    fn block() -> io::Result<Signals> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises the set that it is given; the other calls then read and write it.
        let (failed, file) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            let failed = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
            (failed, libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC))
        };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave this file to us, and nobody else has it.
        Ok(Signals(unsafe { OwnedFd::from_raw_fd(file) }))
    }

    /// Waits for one of them, for a sentry, or for the time.
    fn wait(&self, until: Instant, post: &Post) -> io::Result<Woken> {
        let mut files = vec![PollFd::new(&self.0, PollFlags::IN)];
        files.extend(post.sockets().map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)));
        let left = until.saturating_duration_since(Instant::now());
        let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut files, Some(&time)) {
            Ok(0) => Ok(Woken::Time),
            Ok(_) if !files[0].revents().is_empty() => Ok(Woken::Signal),
            Ok(_) => Ok(Woken::Datagram),
            Err(rustix::io::Errno::INTR) => Ok(Woken::Datagram),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "system calls without a safe form")]
    fn a_signal_ends_the_wait_and_time_does_too() {
        let signals = Signals::block().expect("blocked");
        let sentry = std::net::UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
        let to = sentry.local_addr().expect("an address").to_string();
        let mut post = Post::new(tidegate_wire::Keys::derive(b"a secret"), "web".to_owned(), &[to]);
        let long = Instant::now() + Duration::from_secs(60);
        assert_eq!(signals.wait(Instant::now(), &post).expect("waited"), Woken::Time);
        post.send(&Sample::default());
        let (_, from) = sentry.recv_from(&mut [0; 2000]).expect("a report");
        sentry.send_to(b"nonsense", from).expect("sent");
        assert_eq!(signals.wait(long, &post).expect("waited"), Woken::Datagram);
        post.hear(|_, command| panic!("nobody commanded {command:?}"));
        // SAFETY: sends a signal to this thread, which holds it back.
        unsafe { libc::raise(libc::SIGTERM) };
        assert_eq!(signals.wait(long, &post).expect("waited"), Woken::Signal);
    }
}
