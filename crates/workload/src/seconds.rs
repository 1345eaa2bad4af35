//! Durations in configuration: `"20ms"`, or a bare number of seconds.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::{Serialize, Serializer};

use crate::text::{Cursor, ParseError};

/// Reads a duration such as `500ms`, `30s`, `2min` or `1h`.
///
/// # Errors
/// What was expected and at which column, when `text` is something else.
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    let mut cursor = Cursor::new(text);
    let seconds = cursor.seconds()?;
    cursor.end("the end of the duration")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Seconds as a configuration writes them; whether the value makes sense is for the owner of the key to say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seconds(pub f64);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Seconds, D::Error> {
        deserializer.deserialize_any(SecondsVisitor)
    }
}

struct SecondsVisitor;

impl Visitor<'_> for SecondsVisitor {
    type Value = Seconds;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"20ms\", or a number of seconds")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Seconds, E> {
        parse_duration(text).map(|d| Seconds(d.as_secs_f64())).map_err(E::custom)
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<Seconds, E> {
        Ok(Seconds(seconds))
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<Seconds, E> {
        Ok(Seconds(seconds as f64))
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<Seconds, E> {
        Ok(Seconds(seconds as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse_duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(parse_duration("1.5 min").unwrap(), Duration::from_secs(90));
        assert_eq!(parse_duration("12").unwrap_err().column, 3);
        assert!(parse_duration("99999999999999999999999h").is_err());
    }

    #[test]
    fn text_or_number() {
        assert_eq!(serde_json::from_str::<Seconds>("\"20ms\"").unwrap(), Seconds(0.02));
        assert_eq!(serde_json::from_str::<Seconds>("0.5").unwrap(), Seconds(0.5));
        assert_eq!(serde_json::from_str::<Seconds>("2").unwrap(), Seconds(2.0));
        assert!(serde_json::from_str::<Seconds>("true").is_err());
    }
}
