//! A first look at a trace: how much there is, when, and where its peak is.

use std::time::Duration;

use super::bins::{Bin, Bins};
use super::error::{Flaw, TraceError};
use super::instant::Instant;
use super::intervals::Intervals;
use super::reader::TraceReader;
use super::{Shape, Traced, What};

/// A stretch of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Window {
    /// What is earlier is left out.
    pub from: Option<Instant>,
    /// This and what is later is left out.
    pub to: Option<Instant>,
}

impl Window {
    /// The whole day on which `at` lies.
    pub fn day_of(at: Instant) -> Window {
        Window { from: Some(at.day()), to: Some(at.next_day()) }
    }

    /// Whether `at` lies in it.
    pub fn contains(&self, at: Instant) -> bool {
        self.from.is_none_or(|from| from <= at) && !self.is_over(at)
    }

    /// Whether `at` and all that is later lies behind it.
    pub fn is_over(&self, at: Instant) -> bool {
        self.to.is_some_and(|to| to <= at)
    }
}

/// What a trace, or a window of it, holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scan {
    /// Format of the trace.
    pub shape: Shape,
    /// The first request, or the begin of the first interval.
    pub first: Instant,
    /// The last request, or the end of the last interval.
    pub last: Instant,
    /// Number of requests in the window.
    pub requests: u64,
    /// Work of these requests, seconds.
    pub work: f64,
    /// Stretch of time over which peaks are taken.
    pub bin: Duration,
    /// Most requests per second over such a stretch.
    pub peak_rate: f64,
    /// Instant at which the busiest interval begins.
    pub peak_at: Instant,
    /// Most work per second over such a stretch: processors that would be busy.
    pub peak_work: f64,
    /// Lines that could not be read.
    pub skipped: u64,
}

impl Scan {
    /// Reads what `window` holds of a trace. `bin` is the stretch over which peaks are taken (an interval of a trace of
    /// counts, when that is longer), `interval` the length of an interval where the trace does not tell, `work` the
    /// seconds of work of a request.
    ///
    /// # Errors
    /// What is wrong with the trace, or that nothing lies in the window.
    pub fn of(
        reader: TraceReader,
        window: Window,
        bin: Duration,
        interval: Option<Duration>,
        work: impl Fn(&Traced) -> f64,
    ) -> Result<Scan, TraceError> {
        let shape = reader.shape();
        let mut sum = Sum { shape, window, bin, work_of: work, bins: Bins::new(bin), scan: None };
        let (file, skipped) = match shape {
            Shape::Counts => sum.counts(Intervals::new(reader, interval))?,
            Shape::Requests | Shape::AccessLog => sum.requests(reader)?,
        };
        let last = sum.bins.close();
        sum.peak(last);
        let nothing = || TraceError { file, line: 0, flaw: Flaw::Empty(skipped) };
        sum.scan.map(|scan| Scan { skipped, ..scan }).ok_or_else(nothing)
    }

    /// Time from the first to the last.
    pub fn duration(&self) -> Duration {
        self.last.since(self.first)
    }
}

struct Sum<F> {
    shape: Shape,
    window: Window,
    bin: Duration,
    work_of: F,
    bins: Bins,
    scan: Option<Scan>,
}

impl<F: Fn(&Traced) -> f64> Sum<F> {
    fn counts(&mut self, mut intervals: Intervals) -> Result<(String, u64), TraceError> {
        let work = (self.work_of)(&Traced::default());
        while let Some(interval) = intervals.next()? {
            if self.window.is_over(interval.begin) {
                break;
            }
            if !self.window.contains(interval.begin) {
                continue;
            }
            if self.scan.is_none() && interval.length > self.bin {
                self.bin = interval.length;
                self.bins = Bins::new(interval.length);
            }
            let end = interval.begin.after(interval.length);
            self.add(interval.begin, end, interval.count, interval.count as f64 * work);
        }
        Ok((intervals.reader().file().to_owned(), intervals.reader().skipped()))
    }

    fn requests(&mut self, mut reader: TraceReader) -> Result<(String, u64), TraceError> {
        while let Some(entry) = reader.next().transpose()? {
            if self.window.is_over(entry.at) {
                break;
            }
            if let What::Request(traced) = &entry.what
                && self.window.contains(entry.at)
            {
                self.add(entry.at, entry.at, 1, (self.work_of)(traced));
            }
        }
        Ok((reader.file().to_owned(), reader.skipped()))
    }

    fn add(&mut self, at: Instant, end: Instant, requests: u64, work: f64) {
        let (shape, bin) = (self.shape, self.bin);
        let start = || Scan {
            shape,
            first: at,
            last: end,
            requests: 0,
            work: 0.0,
            bin,
            peak_rate: 0.0,
            peak_at: at,
            peak_work: 0.0,
            skipped: 0,
        };
        let scan = self.scan.get_or_insert_with(start);
        scan.last = end;
        scan.requests += requests;
        scan.work += work;
        let closed = self.bins.add(at, requests as f64, work);
        self.peak(closed);
    }

    fn peak(&mut self, closed: Option<Bin>) {
        let (Some(bin), Some(scan)) = (closed, &mut self.scan) else { return };
        let width = self.bin.as_secs_f64();
        if bin.requests / width > scan.peak_rate {
            (scan.peak_rate, scan.peak_at) = (bin.requests / width, bin.begin);
        }
        scan.peak_work = scan.peak_work.max(bin.work / width);
    }
}
