//! The entries of a trace.

use std::io::BufRead;
use std::iter::FusedIterator;
use std::path::Path;
use std::time::Duration;

use super::columns::Columns;
use super::error::{Flaw, TraceError};
use super::lines::Lines;
use super::order::Order;
use super::{Entry, Shape, access_log};

/// How a trace is read.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceOptions {
    /// Its shape; told from its first line when absent.
    pub shape: Option<Shape>,
    /// Leave out lines that cannot be read, and count them, instead of stopping at the first.
    pub lenient: bool,
    /// The column that names a request's class.
    pub class_column: Option<String>,
    /// Seconds in a unit of times that are plain numbers: 1 for seconds, 0.001 for milliseconds.
    pub time_unit: f64,
    /// How far requests may be out of order; a minute for access logs, else not at all, when absent.
    pub reorder: Option<Duration>,
}

impl Default for TraceOptions {
    fn default() -> Self {
        TraceOptions { shape: None, lenient: false, class_column: None, time_unit: 1.0, reorder: None }
    }
}

/// Reads a trace entry by entry, in order of time. After an error it is over.
pub struct TraceReader {
    lines: Lines,
    form: Form,
    lenient: bool,
    order: Order,
    skipped: u64,
    /// The first entry, when there was no header before it.
    first: Option<String>,
    given: bool,
    /// No line is left.
    over: bool,
    /// No entry is left, or there was an error.
    done: bool,
}

enum Form {
    Columns(Columns),
    AccessLog,
}

impl TraceReader {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be read, or its first lines do not tell what it is.
    pub fn open(path: &Path, options: &TraceOptions) -> Result<TraceReader, TraceError> {
        TraceReader::of_lines(Lines::open(path)?, options)
    }

    /// Reads from any source, plain or gzip; `file` is its name in messages.
    ///
    /// # Errors
    /// As [`TraceReader::open`].
    pub fn new(
        source: Box<dyn BufRead + Send>,
        file: impl Into<String>,
        options: &TraceOptions,
    ) -> Result<TraceReader, TraceError> {
        TraceReader::of_lines(Lines::new(source, file.into())?, options)
    }

    fn of_lines(mut lines: Lines, options: &TraceOptions) -> Result<TraceReader, TraceError> {
        let Some(first) = lines.next()? else {
            return Err(TraceError { file: lines.file().to_owned(), line: 0, flaw: Flaw::Empty(0) });
        };
        let is_log = options.shape.map_or_else(|| access_log::read(&first).is_ok(), |s| s == Shape::AccessLog);
        let (form, first) = if is_log {
            (Form::AccessLog, Some(first))
        } else {
            let class = options.class_column.as_deref();
            let (columns, is_entry) = Columns::of_first_line(&first, options.shape, class, options.time_unit)
                .map_err(|flaw| lines.error(flaw))?;
            (Form::Columns(columns), is_entry.then_some(first))
        };
        let natural = if is_log { Duration::from_secs(60) } else { Duration::ZERO };
        let counts = matches!(&form, Form::Columns(columns) if columns.shape() == Shape::Counts);
        let window = if counts { Duration::ZERO } else { options.reorder.unwrap_or(natural) };
        let order = Order::new(window);
        Ok(TraceReader {
            lines,
            form,
            lenient: options.lenient,
            order,
            skipped: 0,
            first,
            given: false,
            over: false,
            done: false,
        })
    }

    /// Name of the trace's file.
    pub fn file(&self) -> &str {
        self.lines.file()
    }

    /// Format of the trace.
    pub fn shape(&self) -> Shape {
        match &self.form {
            Form::Columns(columns) => columns.shape(),
            Form::AccessLog => Shape::AccessLog,
        }
    }

    /// The names of the sizes that every request has.
    pub fn columns(&self) -> Vec<String> {
        match &self.form {
            Form::Columns(columns) => columns.sizes(),
            Form::AccessLog => vec!["bytes".to_owned()],
        }
    }

    /// Lines left out so far because they could not be read.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// An error in an entry's line that only its user can see.
    pub fn error_in(&self, line: u64, flaw: Flaw) -> TraceError {
        TraceError { file: self.file().to_owned(), line, flaw }
    }

    fn advance(&mut self) -> Result<Option<Entry>, TraceError> {
        loop {
            if let Some(entry) = self.order.pop(self.over) {
                self.given = true;
                return Ok(Some(entry));
            }
            if self.over {
                let empty = Flaw::Empty(self.skipped);
                return if self.given { Ok(None) } else { Err(self.error_in(0, empty)) };
            }
            match self.read_line() {
                Ok(more) => self.over = !more,
                Err(error) if self.lenient && error.flaw.is_of_one_line() => self.skipped += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a line into the order; `false` at the end.
    fn read_line(&mut self) -> Result<bool, TraceError> {
        let line = match self.first.take() {
            Some(line) => line,
            None => match self.lines.next()? {
                Some(line) => line,
                None => return Ok(false),
            },
        };
        let read = match &self.form {
            Form::Columns(columns) => columns.read(&line),
            Form::AccessLog => access_log::read(&line),
        };
        let number = self.lines.number();
        let pushed = read.and_then(|(at, what)| self.order.push(Entry { at, line: number, what }));
        pushed.map(|()| true).map_err(|flaw| self.lines.error(flaw))
    }
}

impl Iterator for TraceReader {
    type Item = Result<Entry, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.advance();
        self.done = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

impl FusedIterator for TraceReader {}
