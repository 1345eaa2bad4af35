//! Values that keys can have: text, numbers, and quantities with units.

use std::time::Duration;

use toml::de::DeValue;

use crate::report::Report;
use crate::section::{Kind, Read, Value, wrong};
use crate::units::{parse_duration, parse_rate, parse_share, parse_size, share};

impl Read for String {
    const KIND: Kind = Kind::Value("text");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        match value.get_ref().as_str() {
            Some(text) => Some(text.to_owned()),
            None => wrong(value, key, "text in quotes", report),
        }
    }
}

impl Read for bool {
    const KIND: Kind = Kind::Value("`true` or `false`");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        value.get_ref().as_bool().or_else(|| wrong(value, key, "true or false", report))
    }
}

/// A whole number, 0 or more.
impl Read for u64 {
    const KIND: Kind = Kind::Value("whole number");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let number = value.get_ref().as_integer().and_then(|i| u64::from_str_radix(i.as_str(), i.radix()).ok());
        number.or_else(|| wrong_number(value, key, "a whole number, 0 or more", report))
    }
}

/// A number, whole or not.
impl Read for f64 {
    const KIND: Kind = Kind::Value("number");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        number(value).or_else(|| wrong_number(value, key, "a number", report))
    }
}

/// A span of time: `"500ms"`, or a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Time(pub Duration);

impl Read for Time {
    const KIND: Kind = Kind::Value("time");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let seconds = |number: f64| Duration::try_from_secs_f64(number).map_err(|_| format!("{number} is not a time"));
        quantity(value, key, "a time such as \"500ms\"", report, parse_duration, seconds).map(Time)
    }
}

/// Requests per second: `"20/s"`, or a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerSecond(pub f64);

impl Read for PerSecond {
    const KIND: Kind = Kind::Value("rate");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let plain = |number: f64| {
            let fits = number.is_finite() && number >= 0.0;
            if fits { Ok(number) } else { Err(format!("{number} is not a rate; it must be 0 or more")) }
        };
        quantity(value, key, "a rate such as \"20/s\"", report, parse_rate, plain).map(PerSecond)
    }
}

/// Bytes: `"64KiB"`, or a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bytes(pub u64);

impl Read for Bytes {
    const KIND: Kind = Kind::Value("size");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let plain = |number: f64| match number >= 0.0 && number.fract() == 0.0 {
            true => Ok(number as u64),
            false => Err(format!("{number} is not a size; it must be a whole number of bytes")),
        };
        quantity(value, key, "a size such as \"64KiB\"", report, parse_size, plain).map(Bytes)
    }
}

/// A share of a whole: `"20%"`, or a number from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl Read for Share {
    const KIND: Kind = Kind::Value("share");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        quantity(value, key, "a share such as \"20%\"", report, parse_share, share).map(Share)
    }
}

/// Reads a quantity written as text with a unit, or as a plain number.
fn quantity<T>(
    value: &Value<'_>,
    key: &str,
    wanted: &str,
    report: &mut Report<'_>,
    text: impl Fn(&str) -> Result<T, String>,
    plain: impl Fn(f64) -> Result<T, String>,
) -> Option<T> {
    let read = match (value.get_ref().as_str(), number(value)) {
        (Some(written), _) => text(written),
        (None, Some(number)) => plain(number),
        (None, None) => return wrong(value, key, wanted, report),
    };
    read.map_err(|problem| report.error(&value.span(), format!("{key} = {problem}"))).ok()
}

fn number(value: &Value<'_>) -> Option<f64> {
    match value.get_ref() {
        DeValue::Integer(i) => i64::from_str_radix(i.as_str(), i.radix()).ok().map(|i| i as f64),
        DeValue::Float(f) => f.as_str().parse().ok(),
        _ => None,
    }
}

/// A number of the wrong range is shown; anything else is named by its kind.
fn wrong_number<T>(value: &Value<'_>, key: &str, wanted: &str, report: &mut Report<'_>) -> Option<T> {
    match number(value) {
        Some(number) => {
            report.error(&value.span(), format!("\"{key}\" must be {wanted}; found {number}"));
            None
        }
        None => wrong(value, key, wanted, report),
    }
}
