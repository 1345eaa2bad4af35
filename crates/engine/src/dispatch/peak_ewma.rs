//! Peak EWMA: of two servers drawn at random, the one where the requests in flight will take less time.
//!
//! *Intuition.* Who waited long at a till remembers it for a while, and goes to another one even where the line is no
//! longer.
//!
//! *Applied.* Of each server a mean of how long answers took is kept, in which those of the last `decay` count most. It
//! jumps at once to a time that is longer than it is, and sinks towards those that are shorter, also while nothing is
//! heard. A server's load is this mean, times what it has in flight and one more.
//!
//! *Awkward cases.* A server of which nothing is known gets one request, and no other before that is answered, unless
//! the other of the two is as unknown. Under processor sharing with a few requests that take a hundred times as long as
//! most, the mean is mostly of the last long one. A server that answers errors at once looks fast: only answers count
//! here, as the source's does not.
//!
//! *Source.* Twitter's Finagle, `PeakEwma.scala`, also in Linkerd; written from what is told of it, not held
//! against it.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::drawn::Candidates;
use super::{DispatchPolicy, View, require};
use crate::fleet::{ServerState, Status};
use crate::request::{Request, ServerId};
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;
use crate::units::Seconds;

/// Settings, with the source's values.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Time constant with which earlier times are forgotten.
    pub decay: Seconds,
}

impl Default for Config {
    fn default() -> Self {
        Config { decay: Seconds(10.0) }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        require((0.001..=3600.0).contains(&self.decay.0), "peak-ewma", "decay", "must lie between 1ms and 1h")
    }

    pub(super) fn build(&self, setup: &Setup) -> PeakEwma {
        let times = alloc::vec![Time::default(); setup.servers.len()];
        PeakEwma { decay: self.decay.0, candidates: Candidates::default(), times }
    }
}

/// State of the policy `peak-ewma`.
#[derive(Debug)]
pub struct PeakEwma {
    decay: f64,
    candidates: Candidates,
    times: Vec<Time>,
}

/// How long a server takes, as of when it answered last.
#[derive(Clone, Copy, Debug, Default)]
struct Time {
    seconds: f64,
    at: Timestamp,
}

/// More than any load that is known.
const UNKNOWN: f64 = 1e12;

impl Time {
    /// Nothing (0), or an answer that took so long. As in the source, both make what was known fade.
    fn observe(&mut self, now: Timestamp, decay: f64, took: f64) {
        let kept = libm::exp(-now.seconds_since(self.at) / decay);
        self.seconds = if took > self.seconds { took } else { self.seconds * kept + took * (1.0 - kept) };
        self.at = now;
    }

    fn load(self, in_flight: u32) -> f64 {
        if self.seconds == 0.0 && in_flight > 0 {
            return UNKNOWN + f64::from(in_flight);
        }
        self.seconds * f64::from(in_flight + 1)
    }
}

impl DispatchPolicy for PeakEwma {
    fn choose(&mut self, view: &mut View<'_>, _request: &Request) -> Option<ServerId> {
        let (times, decay) = (&mut self.times, self.decay);
        self.candidates.lesser_of_two(view, |view, id| {
            let time = &mut times[id.index()];
            time.observe(view.now, decay, 0.0);
            time.load(view.servers[id.index()].in_flight)
        })
    }

    fn on_servers_changed(&mut self, servers: &[ServerState], taking: Status) {
        self.candidates = Candidates::new(servers, taking);
        self.times.resize(servers.len(), Time::default());
        for server in servers.iter().filter(|server| server.status == Status::Removed) {
            self.times[server.id.index()] = Time::default();
        }
    }

    fn follows_answers(&self) -> bool {
        true
    }

    fn on_answer(&mut self, now: Timestamp, server: &ServerState, took: f64) {
        self.times[server.id.index()].observe(now, self.decay, took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    #[test]
    fn a_peak_counts_at_once_and_is_forgotten_in_time() {
        let mut time = Time::default();
        assert_eq!(time.load(0), 0.0, "who is not known is tried");
        assert!(time.load(1) > UNKNOWN, "once");
        time.observe(at(0.0), 10.0, 0.01);
        time.observe(at(1.0), 10.0, 0.5);
        assert_eq!(time.seconds, 0.5, "a peak");
        time.observe(at(11.0), 10.0, 0.01);
        let expected = 0.5 * libm::exp(-1.0) + 0.01 * (1.0 - libm::exp(-1.0));
        assert!((time.seconds - expected).abs() < 1e-12, "{time:?}");
        time.observe(at(100.0), 10.0, 0.0);
        assert!(time.load(3) > 0.0 && time.load(3) < 0.001, "nothing was heard for long: {time:?}");
    }
}
