//! Lines of a file, plain or gzip, in bounded memory.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::error::{Flaw, TraceError};

/// A line may be this long.
pub(super) const LONGEST: usize = 64 * 1024;

/// The lines of a file, without their ends.
pub(super) struct Lines {
    file: String,
    source: Box<dyn BufRead + Send>,
    compressed: bool,
    number: u64,
    line: Vec<u8>,
}

impl Lines {
    /// The lines of the file at `path`; whether it is compressed is told by its first bytes.
    pub(super) fn open(path: &Path) -> Result<Lines, TraceError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| whole(&name, Flaw::Read(error.to_string())))?;
        Lines::new(Box::new(BufReader::with_capacity(128 * 1024, file)), name)
    }

    /// The lines of any source; `file` is its name in messages.
    pub(super) fn new(mut source: Box<dyn BufRead + Send>, file: String) -> Result<Lines, TraceError> {
        let head = source.fill_buf().map_err(|error| whole(&file, Flaw::Read(error.to_string())))?;
        let compressed = head.starts_with(&[0x1f, 0x8b]);
        if compressed {
            source = Box::new(BufReader::with_capacity(128 * 1024, MultiGzDecoder::new(source)));
        }
        Ok(Lines { file, source, compressed, number: 0, line: Vec::new() })
    }

    /// The file's name.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// The number of the last line read, the first being 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The next line that has something in it, `None` at the end. A byte-order mark before the first is left out, and
    /// what is not UTF-8 is replaced: it is wrong only where a number should stand.
    pub(super) fn next(&mut self) -> Result<Option<String>, TraceError> {
        loop {
            self.line.clear();
            let mut limited = (&mut self.source).take(LONGEST as u64 + 2);
            let read = limited.read_until(b'\n', &mut self.line);
            // The line in which reading broke off is named.
            self.number += 1;
            if read.map_err(|error| self.error(Flaw::of_reading(&error, self.compressed)))? == 0 {
                self.number -= 1;
                return Ok(None);
            }
            if self.line.last() != Some(&b'\n') && self.line.len() > LONGEST {
                self.skip_rest()?;
                return Err(self.error(Flaw::LongLine(LONGEST)));
            }
            let text = String::from_utf8_lossy(&self.line);
            let text = text.trim_end_matches(['\n', '\r']);
            let text = if self.number == 1 { text.trim_start_matches('\u{feff}') } else { text };
            if !text.trim().is_empty() {
                return Ok(Some(text.to_owned()));
            }
        }
    }

    pub(super) fn error(&self, flaw: Flaw) -> TraceError {
        TraceError { file: self.file.clone(), line: self.number, flaw }
    }

    fn skip_rest(&mut self) -> Result<(), TraceError> {
        loop {
            let buffer = match self.source.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) => return Err(self.error(Flaw::of_reading(&error, self.compressed))),
            };
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let (length, done) = (end.map_or(buffer.len(), |at| at + 1), end.is_some() || buffer.is_empty());
            self.source.consume(length);
            if done {
                return Ok(());
            }
        }
    }
}

fn whole(file: &str, flaw: Flaw) -> TraceError {
    TraceError { file: file.to_owned(), line: 0, flaw }
}
