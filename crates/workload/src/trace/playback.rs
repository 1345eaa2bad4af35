//! A trace as requests of a run: the window that is wanted, scaled in rate and time.
//!
//! *Counts* tell how many came in an interval, not when. They are spread over it either as a Poisson process of that
//! rate, so that the number varies around the count as it would on another such day, or evenly, so that it is the
//! count.
//! *Requests* come at their times. Fewer are made by leaving each out with the same probability (of a Poisson process
//! that leaves a Poisson process; bursts get thinner, not rarer). More are made by repeating each, the copies at
//! random between it and the next: as if more such users were there at the same time.

use std::collections::VecDeque;
use std::time::Duration;

use rand::RngExt;
use rand_distr::{Distribution as _, Exp1};

use super::error::TraceError;
use super::instant::Instant;
use super::intervals::{Interval, Intervals};
use super::reader::TraceReader;
use super::scan::Window;
use super::{Entry, Shape, Traced, What};
use crate::{Rng, rng};

/// How a trace is played.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlaybackOptions {
    /// The part that is played; its begin, or the first request in it, is the begin of the run.
    pub window: Window,
    /// What the number of requests is multiplied by.
    pub rate: f64,
    /// How many times faster time goes; rates grow by that, too.
    pub speed: f64,
    /// How counts are spread.
    pub spread: Spread,
    /// Length of an interval of counts; the first one's when absent.
    pub interval: Option<Duration>,
    /// Seed of what is random.
    pub seed: u64,
}

impl Default for PlaybackOptions {
    fn default() -> Self {
        let window = Window::default();
        PlaybackOptions { window, rate: 1.0, speed: 1.0, spread: Spread::Poisson, interval: None, seed: 1 }
    }
}

/// How the requests of an interval are spread over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spread {
    /// As a Poisson process.
    #[default]
    Poisson,
    /// Evenly.
    Even,
}

impl std::str::FromStr for Spread {
    type Err = String;

    fn from_str(text: &str) -> Result<Spread, String> {
        match text {
            "poisson" => Ok(Spread::Poisson),
            "even" => Ok(Spread::Even),
            _ => Err("use poisson or even".to_owned()),
        }
    }
}

/// A request of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// When it arrives, from the begin of the run.
    pub at: Duration,
    /// The line it comes from; of counts 0.
    pub line: u64,
    /// What the trace says about it; nothing in a trace of counts.
    pub traced: Traced,
}

/// The requests of a run, in order of time. Equal options give equal requests. After an error it is over.
pub struct Playback {
    source: Source,
    options: PlaybackOptions,
    origin: Option<Instant>,
    rng: Rng,
    done: bool,
}

enum Source {
    Counts {
        intervals: Intervals,
        open: Option<Interval>,
        /// Expected requests from the begin of the open interval to the last request.
        spent: f64,
        /// Expected requests from there to the next.
        ahead: f64,
    },
    Requests {
        reader: TraceReader,
        next: Option<Entry>,
        /// Copies not yet given, by time.
        copies: VecDeque<Timed>,
    },
}

impl Playback {
    /// Plays what `reader` reads.
    ///
    /// # Panics
    /// When the rate is not a finite number of 0 or more, or the speed not one above 0.
    pub fn new(reader: TraceReader, options: PlaybackOptions) -> Playback {
        assert!(options.rate.is_finite() && options.rate >= 0.0, "a rate is multiplied by 0 or more: {}", options.rate);
        assert!(
            options.speed.is_finite() && options.speed > 0.0,
            "time goes faster than not at all: {}",
            options.speed
        );
        let mut rng = rng(options.seed, u64::MAX);
        let source = match reader.shape() {
            Shape::Counts => {
                let ahead = match options.spread {
                    Spread::Poisson => Exp1.sample(&mut rng),
                    Spread::Even => rng.random(),
                };
                let intervals = Intervals::new(reader, options.interval);
                Source::Counts { intervals, open: None, spent: 0.0, ahead }
            }
            Shape::Requests | Shape::AccessLog => Source::Requests { reader, next: None, copies: VecDeque::new() },
        };
        Playback { source, options, origin: options.window.from, rng, done: false }
    }

    /// Lines left out so far.
    pub fn skipped(&self) -> u64 {
        match &self.source {
            Source::Counts { intervals, .. } => intervals.reader().skipped(),
            Source::Requests { reader, .. } => reader.skipped(),
        }
    }

    fn advance(&mut self) -> Result<Option<Timed>, TraceError> {
        let Playback { source, options, origin, rng, .. } = self;
        match source {
            Source::Counts { intervals, open, spent, ahead } => loop {
                if let Some(interval) = open {
                    let area = interval.count as f64 * options.rate;
                    if *spent + *ahead < area {
                        *spent += *ahead;
                        *ahead = match options.spread {
                            Spread::Poisson => Exp1.sample(rng),
                            Spread::Even => 1.0,
                        };
                        let at = interval.begin.after(interval.length.mul_f64(*spent / area));
                        let at = moment(at, *origin.get_or_insert(interval.begin), options.speed);
                        return Ok(Some(Timed { at, line: 0, traced: Traced::default() }));
                    }
                    *ahead -= area - *spent;
                }
                *spent = 0.0;
                *open = next_interval(intervals, &options.window)?;
                let Some(interval) = open else { return Ok(None) };
                origin.get_or_insert(interval.begin);
            },
            Source::Requests { reader, next, copies } => loop {
                if let Some(copy) = copies.pop_front() {
                    return Ok(Some(copy));
                }
                let entry = match next.take() {
                    Some(entry) => entry,
                    None => match next_request(reader, &options.window)? {
                        Some(entry) => entry,
                        None => return Ok(None),
                    },
                };
                *next = next_request(reader, &options.window)?;
                let origin = *origin.get_or_insert(entry.at);
                let gap = next.as_ref().map_or(Duration::ZERO, |next| next.at.since(entry.at));
                copies.extend(repeated(&entry, gap, origin, options, rng));
            },
        }
    }
}

impl Iterator for Playback {
    type Item = Result<Timed, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.advance();
        self.done = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

impl std::iter::FusedIterator for Playback {}

/// The entry as often as the rate says, by time.
fn repeated(entry: &Entry, gap: Duration, origin: Instant, options: &PlaybackOptions, rng: &mut Rng) -> Vec<Timed> {
    let What::Request(traced) = &entry.what else { return Vec::new() };
    let whole = options.rate.floor();
    let more = rng.random::<f64>() < options.rate - whole;
    let times = (whole as u64).saturating_add(u64::from(more));
    let place = |number: u64, rng: &mut Rng| match number {
        0 => entry.at,
        _ => entry.at.after(gap.mul_f64(rng.random())),
    };
    let mut instants: Vec<Instant> = (0..times).map(|number| place(number, rng)).collect();
    instants.sort_unstable();
    let timed = |at| Timed { at: moment(at, origin, options.speed), line: entry.line, traced: traced.clone() };
    instants.into_iter().map(timed).collect()
}

fn moment(at: Instant, origin: Instant, speed: f64) -> Duration {
    let since = at.since(origin);
    if speed == 1.0 { since } else { Duration::try_from_secs_f64(since.as_secs_f64() / speed).unwrap_or(Duration::MAX) }
}

fn next_interval(intervals: &mut Intervals, window: &Window) -> Result<Option<Interval>, TraceError> {
    while let Some(interval) = intervals.next()? {
        if window.is_over(interval.begin) {
            break;
        }
        if window.contains(interval.begin) {
            return Ok(Some(interval));
        }
    }
    Ok(None)
}

fn next_request(reader: &mut TraceReader, window: &Window) -> Result<Option<Entry>, TraceError> {
    while let Some(entry) = reader.next().transpose()? {
        if window.is_over(entry.at) {
            break;
        }
        if window.contains(entry.at) {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}
