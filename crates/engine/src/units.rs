//! Quantities as people write them: `"500ms"`, `"20/s"`, `"64KiB"`.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::time::Duration;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// A span of time in configuration: text such as `"500ms"` or a plain number of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Seconds(pub f64);

impl Seconds {
    /// The span as a `Duration`; negative and NaN become zero.
    pub fn duration(self) -> Duration {
        Duration::try_from_secs_f64(self.0.max(0.0)).unwrap_or(Duration::MAX)
    }
}

impl From<Duration> for Seconds {
    fn from(duration: Duration) -> Self {
        Seconds(duration.as_secs_f64())
    }
}

/// A rate in configuration: text such as `"20/s"` or a plain number per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct PerSecond(pub f64);

/// Reads a span of time: a number and one of `ns`, `us`, `ms`, `s`, `m`, `h`, `d`.
///
/// # Errors
/// A sentence that says what is wrong and shows the right form.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_number(text).ok_or_else(|| wrong_form(text, "a time", "\"500ms\", \"2s\" or \"5m\""))?;
    if let Some(exact) = whole_duration(text) {
        return Ok(exact);
    }
    let seconds = match (seconds_in(unit), unit) {
        (Some(seconds), _) => number * seconds,
        (None, "") if number == 0.0 => 0.0,
        (None, "") => return Err(format!("\"{text}\" has no unit; write for example \"{text}ms\" or \"{text}s\"")),
        _ => return Err(format!("\"{text}\": unknown unit \"{unit}\"; units of time are ns, us, ms, s, m, h, d")),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("\"{text}\" is not a time that can be kept"))
}

/// A whole number of a unit, to the nanosecond: a number with a point has 53 bits, some hundred days of nanoseconds.
fn whole_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text);
    let nanos = number.parse::<u128>().ok()?.checked_mul(nanos_in(unit)?)?;
    let seconds = u64::try_from(nanos / NANOS).ok()?;
    Some(Duration::new(seconds, (nanos % NANOS) as u32))
}

/// Reads a rate per second: a number and `/s`, `/min`, `/h` or another unit of time; `k` or `M` may stand before the
/// slash.
///
/// # Errors
/// A sentence that says what is wrong and shows the right form.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let wrong = || wrong_form(text, "a rate", "\"20/s\", \"1.5k/s\" or \"100/min\"");
    let (number, unit) = split_number(text).ok_or_else(wrong)?;
    let (scale, per) = unit.split_once('/').ok_or_else(wrong)?;
    let scale = match scale.trim() {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        _ => return Err(wrong()),
    };
    let rate = number * scale / seconds_in(per.trim()).ok_or_else(wrong)?;
    if rate.is_finite() { Ok(rate) } else { Err(wrong()) }
}

/// Reads a size in bytes: a number and one of `B`, `KiB`, `MiB`, `GiB`, `kB`, `MB`, `GB`, or no unit.
///
/// # Errors
/// A sentence that says what is wrong and shows the right form.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || wrong_form(text, "a size", "\"64KiB\", \"10MB\" or \"512\"");
    let (number, unit) = split_number(text).ok_or_else(wrong)?;
    let factor = match unit {
        "" | "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" | "Ki" => 1024.0,
        "MiB" | "Mi" => 1024.0 * 1024.0,
        "GiB" | "Gi" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(wrong()),
    };
    Ok((number * factor) as u64)
}

/// Splits `"500 ms"` into 500 and `"ms"`. `None` when it does not begin with a finite, non-negative number.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let (number, unit) = split(text);
    let number: f64 = number.parse().ok()?;
    number.is_finite().then_some((number, unit))
}

/// The number and the unit as text. Digits may stand in groups: `1_000`.
fn split(text: &str) -> (String, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    (text[..end].replace('_', ""), text[end..].trim())
}

/// Nanoseconds in a second.
const NANOS: u128 = 1_000_000_000;

/// Seconds in a unit of time; `None` for what is none.
fn seconds_in(unit: &str) -> Option<f64> {
    nanos_in(unit).map(|nanos| nanos as f64 / NANOS as f64)
}

/// Nanoseconds in a unit of time; `None` for what is none.
fn nanos_in(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => NANOS,
        "m" | "min" => 60 * NANOS,
        "h" => 3600 * NANOS,
        "d" => 86_400 * NANOS,
        _ => return None,
    })
}

fn wrong_form(text: &str, what: &str, like: &str) -> String {
    format!("\"{text}\" is not {what}; write it like {like}")
}

/// The shortest exact text for a span of time, readable by [`parse_duration`].
pub fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    for (unit, size) in [("s", 1_000_000_000u128), ("ms", 1_000_000), ("us", 1_000)] {
        if nanos.is_multiple_of(size) {
            return format!("{}{unit}", nanos / size);
        }
    }
    format!("{nanos}ns")
}

struct Quantity<F> {
    expecting: &'static str,
    parse: F,
}

impl<F: Fn(&str) -> Result<f64, String>> Visitor<'_> for Quantity<F> {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<f64, E> {
        (self.parse)(text).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<f64, E> {
        if number.is_finite() && number >= 0.0 {
            return Ok(number);
        }
        Err(E::custom(format!("{number} is not {}", self.expecting)))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<f64, E> {
        self.visit_f64(number as f64)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<f64, E> {
        self.visit_f64(number as f64)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &str| parse_duration(text).map(|d| d.as_secs_f64());
        deserializer.deserialize_any(Quantity { expecting: "a time such as \"500ms\"", parse }).map(Seconds)
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_duration(self.duration()))
    }
}

impl<'de> Deserialize<'de> for PerSecond {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &str| parse_rate(text);
        deserializer.deserialize_any(Quantity { expecting: "a rate such as \"20/s\"", parse }).map(PerSecond)
    }
}

impl Serialize for PerSecond {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&(self.0.to_string() + "/s"))
    }
}

/// A rate that is kept as a plain number per second and written as text: for `#[serde(with = "...")]`.
pub(crate) mod per_second {
    use super::PerSecond;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        PerSecond::deserialize(deserializer).map(|rate| rate.0)
    }

    pub(crate) fn serialize<S: Serializer>(rate: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        PerSecond(*rate).serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_rates_and_sizes_read_as_written() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration(" 1.5 s "), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("1_000ms"), Ok(Duration::from_secs(1)));
        assert_eq!(parse_rate("20/s"), Ok(20.0));
        assert_eq!(parse_rate("1.5k/s"), Ok(1500.0));
        assert_eq!(parse_rate("90/min"), Ok(1.5));
        assert_eq!(parse_rate("1/ms"), Ok(1000.0));
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!(parse_size("10MB"), Ok(10_000_000));
    }

    #[test]
    fn wrong_quantities_say_what_to_write() {
        assert!(parse_duration("500").unwrap_err().contains("\"500ms\""));
        assert!(parse_duration("-1s").unwrap_err().contains("is not a time"));
        assert!(parse_duration("5 parsecs").unwrap_err().contains("unknown unit"));
        assert!(parse_rate("20").unwrap_err().contains("\"20/s\""));
        assert!(parse_rate(&format!("{}/ns", "9".repeat(308))).is_err());
        assert!(parse_size("many").unwrap_err().contains("\"64KiB\""));
        assert!(parse_duration("99999999999999999999d").is_err());
    }

    #[test]
    fn formatted_durations_read_back() {
        let long = ["9007199254740993ns", "18446709551616004944ns", "1844644073709551750ms", "18446744073709551615s"];
        for text in ["0s", "1s", "90s", "1500ms", "10us", "7ns", "500ms"].into_iter().chain(long) {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
    }
}
