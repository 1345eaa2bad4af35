//! Offered rate over time: steps and linear ramps.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::text::Rate;

mod notation;

/// The rate at which requests are offered, as a function of time since the start.
///
/// Piecewise linear. Read from text, or built with [`Profile::builder`] or [`Profile::constant`].
///
/// The text form, which scenario files and the command line share:
///
/// ```text
/// profile  =  rate                                     the same rate for ever
///          |  entry { "," entry }
/// entry    =  instant ":" rate                         a step: this rate from then on
///          |  instant ".." instant ":" [rate] "->" rate   a ramp: the first rate grows evenly to the second, which
///                                                      then holds; without a first rate, from the rate before it
///          |  instant ":" "end"                        nothing arrives from then on; last entry only
/// instant  =  number unit                              unit: ms, s, min, h
/// rate     =  number ["k" | "M"] "/" unit              20/s, 1.5k/s, 30/min
/// ```
///
/// Entries are in order of time. Before the first one nothing arrives.
/// Example: `0s:20/s, 130s:80/s, 195s..210s:120/s->200/s, 300s:end`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Profile {
    pieces: Vec<Piece>,
    /// Seconds from the start; infinite when the profile has no end.
    end: f64,
}

/// One stretch of the profile: from `from` at `start` to `to` at `stop`, linearly. Seconds, and requests per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Piece {
    pub(crate) start: f64,
    pub(crate) stop: f64,
    pub(crate) from: f64,
    pub(crate) to: f64,
}

/// Why the parts given do not make a profile.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// An entry starts before the one in front of it is over.
    #[error(
        "the entry at {at} s starts before the one in front of it is over ({after} s): put entries in order of time"
    )]
    OutOfOrder {
        /// Start of the offending entry, seconds.
        at: f64,
        /// The earliest instant it may have, seconds.
        after: f64,
    },
    /// A ramp ends where it starts, or before.
    #[error("the ramp from {start} s to {stop} s takes no time: its second instant must be the later one")]
    EmptyRamp {
        /// Start of the ramp, seconds.
        start: f64,
        /// End of the ramp, seconds.
        stop: f64,
    },
    /// There is no entry at all.
    #[error("a profile needs at least one rate")]
    Empty,
}

impl Profile {
    /// The same rate for ever.
    pub fn constant(rate: Rate) -> Profile {
        let rate = rate.per_second();
        Profile { pieces: vec![Piece { start: 0.0, stop: f64::INFINITY, from: rate, to: rate }], end: f64::INFINITY }
    }

    /// A profile put together step by step.
    pub fn builder() -> ProfileBuilder {
        ProfileBuilder { pieces: Vec::new(), reached: 0.0, end: f64::INFINITY, error: None }
    }

    /// The offered rate at `t` after the start. At a step it is the new rate.
    pub fn rate_at(&self, t: Duration) -> Rate {
        let t = t.as_secs_f64();
        if t >= self.end {
            return Rate::ZERO;
        }
        let piece = self.pieces.iter().find(|p| p.start <= t && t < p.stop);
        Rate::new(piece.map_or(0.0, |p| p.rate_at(t))).unwrap_or_default()
    }

    /// When arrivals stop for good, if they do.
    pub fn end(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.end).ok()
    }

    /// The highest rate the profile ever has.
    pub fn peak(&self) -> Rate {
        let rates =
            self.pieces.iter().filter(|p| p.start < self.end).map(|p| p.from.max(p.rate_at(p.stop.min(self.end))));
        Rate::new(rates.fold(0.0, f64::max)).unwrap_or_default()
    }

    /// The number of arrivals to expect in the first `t`.
    pub fn expected_until(&self, t: Duration) -> f64 {
        let t = t.as_secs_f64().min(self.end);
        self.pieces.iter().map(|p| p.area_until(t)).sum()
    }

    /// The same shape with every rate multiplied by `factor`.
    ///
    /// # Panics
    /// When `factor` is negative or not finite.
    pub fn scale_rate(&self, factor: f64) -> Profile {
        assert!(factor.is_finite() && factor >= 0.0, "a rate can be scaled by a finite factor >= 0 only, not {factor}");
        let pieces = self.pieces.iter().map(|p| Piece { from: p.from * factor, to: p.to * factor, ..*p }).collect();
        Profile { pieces, end: self.end }
    }

    /// The same rates with every instant multiplied by `factor`: 0.1 plays ten minutes in one.
    ///
    /// # Panics
    /// When `factor` is not a finite number above 0.
    pub fn scale_time(&self, factor: f64) -> Profile {
        assert!(factor.is_finite() && factor > 0.0, "time can be scaled by a finite factor > 0 only, not {factor}");
        let scale = |p: &Piece| Piece { start: p.start * factor, stop: p.stop * factor, ..*p };
        Profile { pieces: self.pieces.iter().map(scale).collect(), end: self.end * factor }
    }

    /// The same profile, over at `end` at the latest.
    pub fn until(&self, end: Duration) -> Profile {
        Profile { pieces: self.pieces.clone(), end: self.end.min(end.as_secs_f64()) }
    }

    /// What is left of the profile after its first `skipped`, from the start again.
    pub fn after(&self, skipped: Duration) -> Profile {
        let skipped = skipped.as_secs_f64();
        let rest = |piece: &Piece| {
            let start = piece.start.max(skipped);
            Piece { start: start - skipped, stop: piece.stop - skipped, from: piece.rate_at(start), ..*piece }
        };
        let pieces = self.pieces.iter().filter(|piece| piece.stop > skipped).map(rest).collect();
        Profile { pieces, end: (self.end - skipped).max(0.0) }
    }

    /// The stretches with arrivals in them, cut at the end.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece> {
        let end = self.end;
        self.pieces.iter().filter(move |p| p.start < end).map(move |p| {
            let stop = p.stop.min(end);
            Piece { to: p.rate_at(stop), stop, ..*p }
        })
    }
}

impl Piece {
    /// Expected number of arrivals in this piece before `t`.
    pub(crate) fn area_until(&self, t: f64) -> f64 {
        let t = t.min(self.stop);
        if t <= self.start || (self.from == 0.0 && self.to == 0.0) {
            return 0.0;
        }
        (self.from + self.rate_at(t)) / 2.0 * (t - self.start)
    }

    /// Expected number of arrivals in the whole piece; infinite for one without end.
    pub(crate) fn area(&self) -> f64 {
        self.area_until(self.stop)
    }

    fn rate_at(&self, t: f64) -> f64 {
        if self.from == self.to {
            return self.from;
        }
        self.from + (self.to - self.from) * ((t - self.start) / (self.stop - self.start))
    }

    /// The instant by which `count` arrivals are expected in this piece; `count` is below [`Piece::area`].
    pub(crate) fn instant_of(&self, count: f64) -> f64 {
        if self.from == self.to {
            return self.start + count / self.from;
        }
        // from*u + slope*u*u/2 = count, in the form that does not cancel when the slope is small.
        let slope = (self.to - self.from) / (self.stop - self.start);
        let root = (self.from * self.from + 2.0 * slope * count).max(0.0).sqrt();
        self.start + 2.0 * count / (self.from + root)
    }
}

/// Builds a [`Profile`] from parts in order of time.
#[derive(Debug, Clone)]
pub struct ProfileBuilder {
    pieces: Vec<Piece>,
    /// The instant before which no further entry may start.
    reached: f64,
    end: f64,
    error: Option<ProfileError>,
}

impl ProfileBuilder {
    /// From `at` on, `rate`.
    #[must_use]
    pub fn step(mut self, at: Duration, rate: Rate) -> Self {
        let (at, rate) = (at.as_secs_f64(), rate.per_second());
        self.close_at(at);
        self.reached = at;
        self.pieces.push(Piece { start: at, stop: f64::INFINITY, from: rate, to: rate });
        self
    }

    /// From `start` to `stop` evenly from one rate to the other; the second then holds.
    #[must_use]
    pub fn ramp(mut self, start: Duration, stop: Duration, from: Rate, to: Rate) -> Self {
        let (start, stop) = (start.as_secs_f64(), stop.as_secs_f64());
        if stop <= start {
            self.error.get_or_insert(ProfileError::EmptyRamp { start, stop });
            return self;
        }
        self.close_at(start);
        self.reached = stop;
        let (from, to) = (from.per_second(), to.per_second());
        self.pieces.push(Piece { start, stop, from, to });
        self.pieces.push(Piece { start: stop, stop: f64::INFINITY, from: to, to });
        self
    }

    /// Nothing arrives from `at` on.
    #[must_use]
    pub fn end(mut self, at: Duration) -> Self {
        let at = at.as_secs_f64();
        self.check_order(at);
        self.reached = at;
        self.end = at;
        self
    }

    /// The profile.
    ///
    /// # Errors
    /// The first part that is out of order or empty.
    pub fn build(self) -> Result<Profile, ProfileError> {
        match self.error {
            Some(error) => Err(error),
            None if self.pieces.is_empty() => Err(ProfileError::Empty),
            None => Ok(Profile { pieces: self.pieces, end: self.end }),
        }
    }

    fn last_rate(&self) -> Rate {
        self.pieces.last().and_then(|p| Rate::new(p.to)).unwrap_or_default()
    }

    /// Ends the rate that held so far, because another takes over at `at`.
    fn close_at(&mut self, at: f64) {
        self.check_order(at);
        if let Some(last) = self.pieces.last_mut() {
            last.stop = last.stop.min(at);
        }
        self.pieces.retain(|p| p.stop > p.start);
    }

    fn check_order(&mut self, at: f64) {
        if at < self.reached {
            self.error.get_or_insert(ProfileError::OutOfOrder { at, after: self.reached });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(profile: &Profile, seconds: f64) -> f64 {
        profile.rate_at(Duration::from_secs_f64(seconds)).per_second()
    }

    #[test]
    fn steps_ramps_and_end() {
        let profile: Profile = "10s:20/s, 130s:80/s, 195s..210s:120/s->200/s, 300s:end".parse().unwrap();
        let rates = [0.0, 10.0, 129.9, 130.0, 195.0, 202.5, 210.0, 299.0, 300.0].map(|t| at(&profile, t));
        assert_eq!(rates, [0.0, 20.0, 20.0, 80.0, 120.0, 160.0, 200.0, 200.0, 0.0]);
        assert_eq!(profile.end(), Some(Duration::from_secs(300)));
        assert_eq!(profile.peak().per_second(), 200.0);
        let expected = 120.0 * 20.0 + 65.0 * 80.0 + 15.0 * 160.0 + 90.0 * 200.0;
        assert!((profile.expected_until(Duration::from_secs(1000)) - expected).abs() < 1e-6);
    }

    #[test]
    fn scaling() {
        let profile: Profile = "0s:10/s, 10s..20s:->30/s, 40s:end".parse().unwrap();
        let faster = profile.scale_time(0.5).scale_rate(2.0);
        assert_eq!((at(&faster, 7.5), at(&faster, 12.0)), (40.0, 60.0));
        assert_eq!(faster.end(), Some(Duration::from_secs(20)));
        assert_eq!(profile.until(Duration::from_secs(15)).peak().per_second(), 20.0);
    }

    #[test]
    fn what_is_left_after_a_while() {
        let profile: Profile = "10s:20/s, 130s:80/s, 195s..210s:120/s->200/s, 300s:end".parse().unwrap();
        for skipped in [0.0, 5.0, 10.0, 150.0, 202.5, 250.0] {
            let rest = profile.after(Duration::from_secs_f64(skipped));
            for t in [0.0, 7.5, 20.0, 100.0] {
                assert_eq!(at(&rest, t), at(&profile, skipped + t), "{t} s after {skipped} s");
            }
            assert_eq!(rest.end(), Some(Duration::from_secs_f64(300.0 - skipped)));
        }
        assert_eq!(profile.after(Duration::from_secs(400)).expected_until(Duration::from_secs(10)), 0.0);
    }
}
