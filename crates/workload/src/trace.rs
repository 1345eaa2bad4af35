//! Traces: what was asked of a real service, read as a stream.
//!
//! A file is read line by line with bounded buffers, plain or gzip, however large it is. Three shapes are known:
//!
//! | shape | a line |
//! |---|---|
//! | counts | `time,count`: how many requests came in the interval that begins there |
//! | requests | `time,size,...`: one request, with columns of sizes (and one that names its class, if asked for) |
//! | access log | common or combined log format, as Apache and nginx write it |
//!
//! [`TraceReader`] gives the lines as [`Entry`]s in order of time, [`Playback`] turns them into requests of a run: the
//! window that is wanted, scaled in rate and time.

mod access_log;
mod bins;
mod columns;
mod error;
mod instant;
mod intervals;
mod lines;
mod order;
mod playback;
mod reader;
mod scan;

pub use bins::{Bin, Bins};
pub use error::{Flaw, TraceError};
pub use instant::Instant;
pub use playback::{Playback, PlaybackOptions, Spread, Timed};
pub use reader::{TraceOptions, TraceReader};
pub use scan::{Scan, Window};

/// The shape of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// `time,count`.
    Counts,
    /// `time,size,...`.
    Requests,
    /// Common or combined log format.
    AccessLog,
}

impl Shape {
    /// Every shape and its name on the command line.
    pub const NAMES: [(&'static str, Shape); 3] =
        [("counts", Shape::Counts), ("requests", Shape::Requests), ("access-log", Shape::AccessLog)];

    /// Name of the format, as in options.
    pub fn name(self) -> &'static str {
        Shape::NAMES[self as usize].0
    }
}

impl std::str::FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        let found = Shape::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, shape)| *shape).ok_or_else(|| "use counts, requests or access-log".to_owned())
    }
}

/// One line of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// When: the request's arrival, or the begin of the interval.
    pub at: Instant,
    /// The line's number, the first being 1.
    pub line: u64,
    /// The requests of the entry.
    pub what: What,
}

/// What a line tells.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// How many requests came in the interval.
    Count(u64),
    /// One request.
    Request(Traced),
}

/// A request as a trace has it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Traced {
    /// Its sizes, in the order of [`TraceReader::columns`]; of an access log the bytes of the answer.
    pub sizes: Sizes,
    /// What its class can be told from: the column that names it, or the path in an access log.
    pub label: Option<Box<str>>,
}

/// Sizes of a request: a few numbers, kept without a list on the heap.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sizes {
    values: [f64; Sizes::MOST],
    count: u8,
}

impl Sizes {
    /// Columns of sizes at most.
    pub const MOST: usize = 8;

    /// The sizes, in the order of the columns.
    pub fn as_slice(&self) -> &[f64] {
        &self.values[..usize::from(self.count)]
    }

    /// Adds one; what is beyond [`Sizes::MOST`] is left out.
    pub(crate) fn push(&mut self, size: f64) {
        if let Some(place) = self.values.get_mut(usize::from(self.count)) {
            *place = size;
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests;
