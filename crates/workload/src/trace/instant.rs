//! Instants in traces: calendar times and plain seconds.
//!
//! Nanoseconds in 64 bits reach from 1677 to 2262 and keep what traces write, which a floating-point number of seconds
//! would not. Calendar arithmetic is H. Hinnant's *chrono-compatible low-level date algorithms*.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// An instant of a trace: nanoseconds since 1970, or since whatever a trace with plain seconds begins at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(i64);

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;

impl Instant {
    /// That many nanoseconds after 1970.
    pub fn from_nanos(nanos: i64) -> Instant {
        Instant(nanos)
    }

    /// Nanoseconds since 1970.
    pub fn as_nanos(self) -> i64 {
        self.0
    }

    /// Time since an earlier instant; 0 when that is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The instant that much later.
    #[must_use]
    pub fn after(self, time: Duration) -> Instant {
        Instant(self.0.saturating_add(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// The begin of its day, by the calendar of the trace.
    #[must_use]
    pub fn day(self) -> Instant {
        Instant(self.0.div_euclid(DAY).saturating_mul(DAY))
    }

    /// The begin of the next day.
    #[must_use]
    pub fn next_day(self) -> Instant {
        Instant(self.day().0.saturating_add(DAY))
    }

    /// Reads a number of units of `unit` seconds each, such as `12.5`, without rounding to a floating-point number.
    pub(super) fn from_number(text: &str, unit: f64) -> Option<Instant> {
        if unit == 1.0
            && let Some(exact) = decimal(text)
        {
            return Some(exact);
        }
        let number: f64 = text.parse().ok()?;
        let nanos = number * unit * SECOND as f64;
        (number >= 0.0 && nanos < i64::MAX as f64).then_some(Instant(nanos as i64))
    }

    /// The time in the brackets of an access log: `10/Oct/2000:13:55:36 -0700`.
    pub(super) fn from_access_log(text: &str) -> Option<Instant> {
        const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let (date, rest) = text.split_once(':')?;
        let mut parts = date.splitn(3, '/');
        let day = whole(parts.next()?)?;
        let name = parts.next()?;
        let month = MONTHS.iter().position(|month| *month == name)? as i64 + 1;
        let year = whole(parts.next()?)?;
        at(days(year, month, day)?, rest)
    }
}

impl FromStr for Instant {
    type Err = ();

    /// Reads `2026-01-31`, `2026-01-31 12:00`, `2026-01-31T12:00:00.5Z`, `... +02:00`, or plain seconds.
    fn from_str(text: &str) -> Result<Instant, ()> {
        let text = text.trim();
        calendar(text).or_else(|| Instant::from_number(text, 1.0)).ok_or(())
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Within the first years of the epoch nobody kept traces: these are plain seconds.
        if self.0 < 10 * 365 * DAY {
            return write!(f, "{} s", self.0 as f64 / SECOND as f64);
        }
        let (day, time) = (self.0.div_euclid(DAY), self.0.rem_euclid(DAY));
        let (year, month, day) = civil(day);
        let (seconds, nanos) = (time / SECOND, time % SECOND);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")?;
        if nanos == 0 { Ok(()) } else { write!(f, "{}", format!(".{nanos:09}").trim_end_matches('0')) }
    }
}

fn calendar(text: &str) -> Option<Instant> {
    let (date, time) = match text.find([' ', 'T']) {
        Some(at) => (&text[..at], text[at + 1..].trim_start()),
        None => (text, "00:00"),
    };
    let mut parts = date.splitn(3, '-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if year.len() != 4 {
        return None;
    }
    at(days(whole(year)?, whole(month)?, whole(day)?)?, time)
}

/// The instant on a day, days since 1970, at `13:55[:36[.5]]` and a zone: none, `Z`, `-0700`, `+02:00`.
fn at(day: i64, time: &str) -> Option<Instant> {
    let zone_at = time.find(['Z', '+', '-']).unwrap_or(time.len());
    let (clock, zone) = (time[..zone_at].trim_end(), &time[zone_at..]);
    let mut parts = clock.splitn(3, ':');
    let (hour, minute) = (whole(parts.next()?)?, whole(parts.next()?)?);
    let seconds = parts.next().map_or(Some(Instant(0)), decimal)?;
    // 60: a leap second is the first of the next minute.
    if hour > 23 || minute > 59 || seconds.0 >= 61 * SECOND {
        return None;
    }
    let nanos = (i128::from(day) * 86_400 + i128::from(hour * 3600 + minute * 60)) * i128::from(SECOND)
        + i128::from(seconds.0)
        - i128::from(offset(zone)?) * i128::from(SECOND);
    i64::try_from(nanos).ok().map(Instant)
}

/// Seconds that a zone is ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    if matches!(zone, "" | "Z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let digits = zone[1..].replacen(':', "", 1);
    if digits.len() != 4 {
        return None;
    }
    let number = whole(&digits)?;
    (number / 100 < 24 && number % 100 < 60).then_some(sign * (number / 100 * 3600 + number % 100 * 60))
}

/// Digits, and perhaps a point and digits, as seconds. Beyond nine digits of a second nothing is kept.
fn decimal(text: &str) -> Option<Instant> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(seconds) || !all_digits(fraction) || seconds.len() > 18 {
        return None;
    }
    let kept = &fraction[..fraction.len().min(9)];
    let nanos = kept.parse::<i64>().ok()? * 10i64.pow(9 - kept.len() as u32);
    seconds.parse::<i64>().ok()?.checked_mul(SECOND)?.checked_add(nanos).map(Instant)
}

/// A whole number of at most nine digits.
fn whole(text: &str) -> Option<i64> {
    (text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Days from 1970 to a date.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    const LENGTHS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = LENGTHS.get(usize::try_from(month - 1).ok()?)? + i64::from(leap && month == 2);
    if !(1..=length).contains(&day) || year > 9999 {
        return None;
    }
    let shifted = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

/// The date that many days after 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nanos(text: &str) -> Option<i64> {
        text.parse::<Instant>().ok().map(Instant::as_nanos)
    }

    #[test]
    fn times_as_traces_write_them() {
        let july = 899_847_660 * SECOND;
        for text in ["1998-07-07 21:41:00", "1998-07-07T21:41", "1998-07-07 23:41:00 +02:00", "1998-07-07T21:41:00Z"] {
            assert_eq!(nanos(text), Some(july), "{text}");
        }
        assert_eq!(nanos("2023-11-16 18:17:03.9799600"), Some(1_700_158_623 * SECOND + 979_960_000));
        assert_eq!(nanos("899847660"), Some(july));
        assert_eq!(nanos("0.25"), Some(SECOND / 4));
        assert_eq!(nanos("1.5e3"), Some(1500 * SECOND));
        assert_eq!(Instant::from_number("1500", 1e-3), Some(Instant(3 * SECOND / 2)));
        let log = Instant::from_access_log("10/Oct/2000:13:55:36 -0700").unwrap();
        assert_eq!(log.to_string(), "2000-10-10 20:55:36");
        assert_eq!(log.day().to_string(), "2000-10-10 00:00:00");
    }

    #[test]
    fn what_is_no_time() {
        for text in [
            "",
            "x",
            "-5",
            "1998-13-01",
            "1998-02-29",
            "1998-07-07 24:00",
            "1998-07-07 21",
            "98-07-07",
            "NaN",
            "inf",
            "1e300",
            "9999-01-01",
            "1998-07-07 21:41 +2",
        ] {
            assert_eq!(nanos(text), None, "{text}");
        }
        for text in ["", "10/Oct/2000", "10/Okt/2000:13:55:36 +0000", "40/Oct/2000:13:55:36 +0000"] {
            assert_eq!(Instant::from_access_log(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn written_and_read_back(nanos in 10 * 365 * DAY..i64::MAX) {
            prop_assert_eq!(Instant(nanos).to_string().parse::<Instant>(), Ok(Instant(nanos)));
        }

        #[test]
        fn any_text_is_a_time_or_none(text in "\\PC{0,30}") {
            let _ = (nanos(&text), Instant::from_access_log(&text));
        }

        #[test]
        fn almost_times_are_times_or_none(text in "[0-9]{1,5}[-/][0-9A-Z]{1,3}[-/][0-9]{1,5}[ T:][0-9:.+Z-]{0,16}") {
            let _ = (nanos(&text), Instant::from_access_log(&text));
        }
    }
}
