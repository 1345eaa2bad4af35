//! Durations for serde: `"20ms"`, read as such and written as seconds. For `#[serde(with = "time::text")]`.

use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::Serializer;

use crate::seconds::Seconds;

/// A duration that must be there.
pub mod text {
    use super::*;

    /// As seconds with their unit.
    ///
    /// # Errors
    /// Those of the format.
    pub fn serialize<S: Serializer>(time: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&format!("{}s", time.as_secs_f64()))
    }

    /// From text or a number of seconds.
    ///
    /// # Errors
    /// When it is neither, or not a duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let Seconds(seconds) = Seconds::deserialize(from)?;
        Duration::try_from_secs_f64(seconds).map_err(|_| D::Error::custom(format!("{seconds} s is not a duration")))
    }
}

/// A duration that may be absent.
pub mod optional {
    use super::*;

    /// As seconds with their unit.
    ///
    /// # Errors
    /// Those of the format.
    pub fn serialize<S: Serializer>(time: &Option<Duration>, out: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => text::serialize(time, out),
            None => out.serialize_none(),
        }
    }

    /// From text or a number of seconds; `#[serde(default)]` makes it `None` where it is absent.
    ///
    /// # Errors
    /// When it is neither, or not a duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        text::deserialize(from).map(Some)
    }
}
