//! Counts with the lengths of their intervals.

use std::time::Duration;

use super::error::{Flaw, TraceError};
use super::instant::Instant;
use super::reader::TraceReader;
use super::{Entry, What};

/// So many requests in a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Interval {
    pub(super) begin: Instant,
    pub(super) length: Duration,
    pub(super) count: u64,
}

/// The intervals of a trace of counts. All are as long as the first, or as was stated: where lines are missing, nothing
/// came. A line that comes earlier than that is an error.
pub(super) struct Intervals {
    reader: TraceReader,
    length: Option<Duration>,
    /// The line whose length is not yet known.
    held: Option<(Instant, u64)>,
}

impl Intervals {
    pub(super) fn new(reader: TraceReader, length: Option<Duration>) -> Intervals {
        Intervals { reader, length, held: None }
    }

    pub(super) fn reader(&self) -> &TraceReader {
        &self.reader
    }

    pub(super) fn next(&mut self) -> Result<Option<Interval>, TraceError> {
        loop {
            let Some(entry) = self.reader.next().transpose()? else { return self.last() };
            let Entry { at, line, what: What::Count(count) } = entry else { continue };
            let Some((begin, held)) = self.held.replace((at, count)) else { continue };
            let (length, found) = (*self.length.get_or_insert(at.since(begin)), at.since(begin));
            if found < length {
                let seconds = |time: Duration| time.as_secs_f64().to_string();
                let flaw = Flaw::Interval { expected: seconds(length), found: seconds(found) };
                return Err(self.reader.error_in(line, flaw));
            }
            return Ok(Some(Interval { begin, length, count: held }));
        }
    }

    fn last(&mut self) -> Result<Option<Interval>, TraceError> {
        let Some((begin, count)) = self.held.take() else { return Ok(None) };
        let unknown = "there is one line only, so the length of its interval is not known: state it".to_owned();
        let length = self.length.ok_or_else(|| self.reader.error_in(0, Flaw::Shape(unknown)))?;
        Ok(Some(Interval { begin, length, count }))
    }
}
