//! A whole trace: its sizes, the gaps between its requests, its rates, its paths.

use std::time::Duration;

use super::popularity::Popularity;
use super::rates::{RateFit, Rates};
use super::sample::Sample;
use crate::trace::{Entry, Flaw, Shape, TraceError, TraceReader, Traced, What, Window};

/// What a trace is made of.
#[derive(Debug, Clone)]
pub struct TraceFit {
    /// Format of the trace.
    pub shape: Shape,
    /// Number of requests.
    pub requests: u64,
    /// Lines left out because they could not be read.
    pub skipped: u64,
    /// The sizes of requests by column.
    pub sizes: Vec<(String, Sample)>,
    /// Work of requests, seconds, where it was told how to know it.
    pub work: Sample,
    /// Time between one request and the next, seconds; empty for counts.
    pub gaps: Sample,
    /// How requests come over time.
    pub rates: RateFit,
    /// Which paths are asked for; empty but for access logs.
    pub popularity: Popularity,
}

impl TraceFit {
    /// Reads what `window` holds of a trace. `finest` is the shortest stretch over which rates are taken; by itself a
    /// second, or an interval of counts. `work` tells the seconds of work of a request, if it can be told.
    ///
    /// # Errors
    /// What is wrong with the trace, or that nothing lies in the window.
    pub fn of(
        mut reader: TraceReader,
        window: Window,
        finest: Option<Duration>,
        work: impl Fn(&Traced) -> Option<f64>,
    ) -> Result<TraceFit, TraceError> {
        let mut reading = Reading::new(&reader, finest, work);
        while let Some(entry) = reader.next().transpose()? {
            if window.is_over(entry.at) {
                break;
            }
            if window.contains(entry.at) {
                reading.add(entry);
            }
        }
        reading.flush();
        if reading.last.is_none() {
            return Err(reader.error_in(0, Flaw::Empty(reader.skipped())));
        }
        let Reading { shape, sizes, work, gaps, rates, popularity, requests, .. } = reading;
        let rates = rates.unwrap_or_else(|| Rates::new(Duration::from_secs(1))).finish();
        Ok(TraceFit { shape, requests, skipped: reader.skipped(), sizes, work, gaps, rates, popularity })
    }
}

struct Reading<W> {
    shape: Shape,
    finest: Option<Duration>,
    sizes: Vec<(String, Sample)>,
    work: Sample,
    work_of: W,
    gaps: Sample,
    rates: Option<Rates>,
    popularity: Popularity,
    requests: u64,
    /// The entry before; of counts the first ones, until the interval is known.
    last: Option<Entry>,
}

impl<W: Fn(&Traced) -> Option<f64>> Reading<W> {
    fn new(reader: &TraceReader, finest: Option<Duration>, work_of: W) -> Self {
        let sizes = reader.columns().into_iter().zip(1..).map(|(column, stream)| (column, Sample::new(stream)));
        let shape = reader.shape();
        // Requests are looked at second by second; the interval of counts shows with their second line.
        let finest = finest.or((shape != Shape::Counts).then_some(Duration::from_secs(1)));
        Reading {
            shape,
            finest,
            sizes: sizes.collect(),
            work: Sample::new(u64::MAX),
            work_of,
            gaps: Sample::new(0),
            rates: finest.map(Rates::new),
            popularity: Popularity::default(),
            requests: 0,
            last: None,
        }
    }

    fn add(&mut self, entry: Entry) {
        if let Some(last) = &self.last {
            let gap = entry.at.since(last.at);
            if self.finest.is_none() && !gap.is_zero() {
                self.finest = Some(gap);
                self.rates = Some(Rates::new(gap));
                self.flush();
            }
            if self.shape != Shape::Counts {
                self.gaps.add(gap.as_secs_f64());
            }
        }
        if self.rates.is_some() {
            self.count(&entry);
        }
        self.last = Some(entry);
    }

    /// Counts the first entry, which waited for the interval to be known.
    fn flush(&mut self) {
        if self.requests == 0
            && let Some(first) = self.last.clone()
        {
            self.rates.get_or_insert_with(|| Rates::new(Duration::from_secs(60)));
            self.count(&first);
        }
    }

    fn count(&mut self, entry: &Entry) {
        let number = match &entry.what {
            What::Count(count) => *count,
            What::Request(traced) => {
                for ((_, sample), size) in self.sizes.iter_mut().zip(traced.sizes.as_slice()) {
                    sample.add(*size);
                }
                if let Some(work) = (self.work_of)(traced) {
                    self.work.add(work);
                }
                if self.shape == Shape::AccessLog
                    && let Some(path) = &traced.label
                {
                    self.popularity.add(path);
                }
                1
            }
        };
        self.requests += number;
        if let Some(rates) = &mut self.rates {
            rates.add(entry.at, number as f64);
        }
    }
}
