//! Errors in a trace, with file and line.

use std::fmt;

/// A trace that cannot be used: the file, the line, the reason.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{file}{}: {flaw}", Place(*line))]
pub struct TraceError {
    /// Name of the trace's file.
    pub file: String,
    /// The line at fault, the first being 1; 0 for the file as a whole.
    pub line: u64,
    /// The mistake in the trace.
    pub flaw: Flaw,
}

/// The mistakes that a trace can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// The file cannot be opened or read.
    #[error("cannot be read: {0}")]
    Read(String),
    /// Compressed data end in the middle.
    #[error("the compressed data end too early: the file is truncated; copy it again")]
    Truncated,
    /// Compressed data make no sense.
    #[error("the compressed data are damaged ({0}); copy the file again")]
    Damaged(String),
    /// A line without end.
    #[error("the line is longer than {0} bytes: this is no trace")]
    LongLine(usize),
    /// The trace contains no request.
    #[error("there is no request in it{}", BadLines(*.0))]
    Empty(u64),
    /// The shape cannot be told.
    #[error("{0}")]
    Shape(String),
    /// The number of columns is not that of the lines before.
    #[error("{found} columns where {expected} were expected")]
    Columns {
        /// How many the header or the first line has.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A time that is none.
    #[error("{0:?} is no time; write 2026-01-31 12:00:00, or seconds such as 12.5")]
    Time(String),
    /// A count that is none.
    #[error("{0:?} is no count; write a whole number, 0 or more")]
    Count(String),
    /// A size that is none.
    #[error("{column} = {value:?} is no size; write a number, 0 or more")]
    Size {
        /// Name of the column.
        column: String,
        /// The text that could not be read.
        value: String,
    },
    /// No line of an access log.
    #[error("not a line of an access log: {0}")]
    AccessLog(&'static str),
    /// Time goes back.
    #[error("{at} comes after {before}: lines must be in order of time{hint}", hint = if *.sortable {
        "; sort the file, or allow some disorder with a larger reorder window"
    } else {
        ""
    })]
    Order {
        /// The time of this line.
        at: String,
        /// The latest time so far.
        before: String,
        /// Whether a window for reordering would help.
        sortable: bool,
    },
    /// The same interval twice.
    #[error("{0} is there twice: every interval must have one line")]
    Duplicate(String),
    /// Intervals overlap.
    #[error("the interval of the line before lasts {expected} s and is not over after {found} s: state the right one")]
    Interval {
        /// The interval's length so far.
        expected: String,
        /// The time from the line before to this one.
        found: String,
    },
    /// A class that nobody announced.
    #[error("{0:?} is the class of none: name it with the others")]
    Class(String),
}

impl Flaw {
    /// Whether it is of one line only, so that a lenient reader can go on with the next.
    pub fn is_of_one_line(&self) -> bool {
        !matches!(self, Flaw::Read(_) | Flaw::Truncated | Flaw::Damaged(_) | Flaw::Empty(_) | Flaw::Shape(_))
    }

    /// What reading or decompressing ran into.
    pub(super) fn of_reading(error: &std::io::Error, compressed: bool) -> Flaw {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::UnexpectedEof if compressed => Flaw::Truncated,
            ErrorKind::InvalidInput | ErrorKind::InvalidData if compressed => Flaw::Damaged(error.to_string()),
            _ => Flaw::Read(error.to_string()),
        }
    }
}

struct BadLines(u64);

impl fmt::Display for BadLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, ", only {} bad lines", self.0) }
    }
}

struct Place(u64);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, ":{}", self.0) }
    }
}
