//! Reading rates and durations as people type them, with errors that point at the place.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A number of events per second; finite and not negative.
///
/// Typed as a number, an optional `k` or `M`, and a unit of time: `200/s`, `1.5k/s`, `30/min`, `10/h`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate(f64);

impl Rate {
    /// No events at all.
    pub const ZERO: Rate = Rate(0.0);

    /// `per_second` events in each second; `None` when it is negative, infinite or not a number.
    pub fn new(per_second: f64) -> Option<Rate> {
        (per_second.is_finite() && per_second >= 0.0).then_some(Rate(per_second))
    }

    /// Events per second.
    pub fn per_second(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.0)
    }
}

impl FromStr for Rate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Rate, ParseError> {
        let mut cursor = Cursor::new(text);
        let rate = cursor.rate()?;
        cursor.end("the end of the rate")?;
        Ok(rate)
    }
}

impl TryFrom<String> for Rate {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Rate, ParseError> {
        text.parse()
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> String {
        rate.to_string()
    }
}

/// A text that could not be read: what, where, and what was expected there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}, column {column}: expected {expected}, found {found}")]
pub struct ParseError {
    /// The whole text that was being read.
    pub text: String,
    /// Where in it, in characters, the first being 1.
    pub column: usize,
    /// What would have been right at that place.
    pub expected: String,
    /// The text that could not be read.
    pub found: String,
}

/// A place in a text of rates and times that is being read.
#[derive(Debug)]
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// At the beginning of a text.
    pub fn new(text: &'a str) -> Self {
        Cursor { text, at: 0 }
    }

    /// The next byte that is no space.
    pub fn position(&mut self) -> usize {
        self.skip_space();
        self.at
    }

    /// Whether nothing but space is left.
    pub fn at_end(&mut self) -> bool {
        self.skip_space();
        self.at == self.text.len()
    }

    /// Steps over `token` if it comes next.
    pub fn eat(&mut self, token: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// Steps over `token`.
    ///
    /// # Errors
    /// `expected`, when something else comes.
    pub fn expect(&mut self, token: &str, expected: &str) -> Result<(), ParseError> {
        if self.eat(token) { Ok(()) } else { Err(self.error(expected)) }
    }

    /// Is at the end.
    ///
    /// # Errors
    /// `expected`, when something comes.
    pub fn end(&mut self, expected: &str) -> Result<(), ParseError> {
        if self.at_end() { Ok(()) } else { Err(self.error(expected)) }
    }

    /// A rate such as `200/s`.
    ///
    /// # Errors
    /// What was expected, when something else comes.
    pub fn rate(&mut self) -> Result<Rate, ParseError> {
        let number = self.number("a rate such as 200/s")?;
        let multiple = if self.eat("k") {
            1e3
        } else if self.eat("M") {
            1e6
        } else {
            1.0
        };
        self.expect("/", "\"/s\" (or /ms, /min, /h) after the number")?;
        let start = self.at;
        let unit = self.word();
        let Some(seconds) = seconds_in(unit) else {
            return Err(self.error_at(start, "a unit of time: s, ms, min or h"));
        };
        Rate::new(number * multiple / seconds).ok_or_else(|| self.error_at(start, "a finite rate"))
    }

    /// A duration such as `500ms`, in seconds.
    ///
    /// # Errors
    /// What was expected, when something else comes.
    pub fn seconds(&mut self) -> Result<f64, ParseError> {
        let number = self.number("a duration such as 500ms or 30s")?;
        let start = self.at;
        let unit = self.word();
        let scale = match (seconds_in(unit), unit) {
            (Some(scale), _) => scale,
            (None, "") if number == 0.0 => 1.0,
            _ => return Err(self.error_at(start, "a unit after the number: us, ms, s, min or h")),
        };
        let seconds = number * scale;
        if Duration::try_from_secs_f64(seconds).is_err() {
            return Err(self.error_at(start, "a duration that fits the clock"));
        }
        Ok(seconds)
    }

    /// An error at the place reached.
    pub fn error(&mut self, expected: &str) -> ParseError {
        self.skip_space();
        self.error_at(self.at, expected)
    }

    /// An error at the byte `at`.
    pub fn error_at(&self, at: usize, expected: &str) -> ParseError {
        let rest: String = self.text[at..].chars().take(12).collect();
        ParseError {
            text: self.text.to_owned(),
            column: self.text[..at].chars().count() + 1,
            expected: expected.to_owned(),
            found: if rest.is_empty() { "the end".to_owned() } else { format!("{rest:?}") },
        }
    }

    fn number(&mut self, expected: &str) -> Result<f64, ParseError> {
        self.skip_space();
        let digits = self.rest().as_bytes();
        let mut length = 0;
        while length < digits.len() && is_number_byte(digits, length) {
            length += 1;
        }
        let start = self.at;
        let parsed = self.rest()[..length].replace('_', "").parse::<f64>();
        let number = parsed.map_err(|_| self.error_at(start, expected))?;
        self.at += length;
        Ok(number)
    }

    fn word(&mut self) -> &'a str {
        self.skip_space();
        let rest = &self.text[self.at..];
        let length = rest.find(|c: char| !(c.is_ascii_alphabetic() || c == 'µ')).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }
}

/// A point belongs to the number unless another follows: `1s..2s` has a range in it, and so has `1..2`.
fn is_number_byte(bytes: &[u8], at: usize) -> bool {
    match bytes[at] {
        b'0'..=b'9' | b'_' => true,
        b'.' => bytes.get(at + 1) != Some(&b'.'),
        _ => false,
    }
}

/// Seconds in a unit of time; `None` for what is none. The units are the engine's, which this crate does not import: a
/// test of `tidegate-config` compares the two.
fn seconds_in(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_in_every_unit() {
        for (text, per_second) in
            [("200/s", 200.0), ("1.5k/s", 1500.0), (" 30 / min", 0.5), ("2M/s", 2e6), ("1/ms", 1000.0), ("0/s", 0.0)]
        {
            assert_eq!(text.parse::<Rate>().unwrap().per_second(), per_second, "{text}");
        }
    }

    #[test]
    fn a_wrong_rate_says_where() {
        let error = "200/x".parse::<Rate>().unwrap_err();
        assert_eq!(error.column, 5);
        assert_eq!(error.to_string(), "\"200/x\", column 5: expected a unit of time: s, ms, min or h, found \"x\"");
        assert_eq!("".parse::<Rate>().unwrap_err().column, 1);
        assert_eq!("-3/s".parse::<Rate>().unwrap_err().column, 1);
        assert_eq!("3/s extra".parse::<Rate>().unwrap_err().column, 5);
    }

    #[test]
    fn a_rate_is_read_back_as_written() {
        let rate = Rate::new(12.5).unwrap();
        assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
        assert!(Rate::new(f64::NAN).is_none() && Rate::new(-1.0).is_none());
    }
}
