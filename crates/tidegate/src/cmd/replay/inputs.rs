//! The values of options, as they are typed.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use tidegate_workload::trace::{Instant, Shape, TraceError, TraceOptions, TraceReader};
use tidegate_workload::{ServiceTime, parse_duration};

use super::policy::inline_table;

/// How a trace is read; shared by the commands that read one.
#[derive(Debug, Clone, clap::Args)]
pub struct Reading {
    /// Format of the trace, if its first line does not show it: counts, requests or access-log
    #[arg(long, value_name = "SHAPE")]
    format: Option<Shape>,
    /// Skip and count lines that cannot be read
    #[arg(long)]
    lenient: bool,
    /// Unit of times that are plain numbers, such as 1ms; default 1s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    time_unit: Option<Duration>,
    /// How far requests may be out of order; default 1min in access logs, else not at all
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    reorder: Option<Duration>,
    /// Length of an interval of counts; default: the time from the first line to the second
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub interval: Option<Duration>,
}

impl Reading {
    /// Opens the trace.
    pub fn open(&self, trace: &Path, class_column: Option<&str>) -> Result<TraceReader, TraceError> {
        let options = TraceOptions {
            shape: self.format,
            lenient: self.lenient,
            class_column: class_column.map(str::to_owned),
            time_unit: self.time_unit.map_or(1.0, |unit| unit.as_secs_f64()),
            reorder: self.reorder,
        };
        TraceReader::open(trace, &options)
    }
}

/// A distribution of work.
#[derive(Debug, Clone, Copy)]
pub struct Service(pub ServiceTime);

impl FromStr for Service {
    type Err = String;

    /// Reads a time, the mean of an exponential distribution, or a table as in scenario files.
    fn from_str(text: &str) -> Result<Service, String> {
        if text.trim_start().starts_with('{') {
            let table = inline_table(text)?;
            return ServiceTime::deserialize(table).map(Service).map_err(|error| error.message().trim().to_owned());
        }
        let mean = parse_duration(text).map_err(|error| error.to_string())?;
        ServiceTime::exponential(mean.as_secs_f64()).map(Service).map_err(|error| error.to_string())
    }
}

/// What a unit of a column costs; shared, too.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitCost {
    /// The column; absent: the only one.
    pub column: Option<String>,
    /// Work per unit.
    pub time: Duration,
}

impl FromStr for UnitCost {
    type Err = String;

    fn from_str(text: &str) -> Result<UnitCost, String> {
        let (column, time) = match text.rsplit_once('=') {
            Some((column, time)) => (Some(column.trim().to_owned()), time),
            None => (None, text),
        };
        Ok(UnitCost { column, time: parse_duration(time.trim()).map_err(|error| error.to_string())? })
    }
}

/// A class of requests, as `--class` defines it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassArg {
    /// Its name.
    pub name: String,
    /// What is in it.
    pub what: Membership,
}

/// How requests become members of a class.
#[derive(Debug, Clone, PartialEq)]
pub enum Membership {
    /// A share of all requests, 0 to 1, assigned at random.
    Share(f64),
    /// Requests whose path begins with this prefix.
    Path(String),
    /// Requests of no other class, or those that the class column assigns.
    Rest,
}

impl FromStr for ClassArg {
    type Err = String;

    fn from_str(text: &str) -> Result<ClassArg, String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let what = match value.trim() {
            "" => Membership::Rest,
            path if path.starts_with('/') => Membership::Path(path.to_owned()),
            share => {
                let number = share.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
                Membership::Share(
                    number.ok_or_else(|| format!("{share:?} is neither a share from 0 to 1 nor a /path"))?,
                )
            }
        };
        if name.trim().is_empty() {
            return Err("a class needs a name".to_owned());
        }
        Ok(ClassArg { name: name.trim().to_owned(), what })
    }
}

/// The day of the trace that `--day` selects.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Day {
    /// The day of the busiest interval.
    Peak,
    /// The day that contains this instant.
    Of(Instant),
}

impl FromStr for Day {
    type Err = String;

    fn from_str(text: &str) -> Result<Day, String> {
        if text == "peak" {
            return Ok(Day::Peak);
        }
        text.parse().map(Day::Of).map_err(|()| "write a date such as 2026-01-31, or peak".to_owned())
    }
}

/// An end of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Edge {
    /// That long after the begin of the trace.
    After(Duration),
    /// An instant of the trace.
    At(Instant),
}

impl FromStr for Edge {
    type Err = String;

    fn from_str(text: &str) -> Result<Edge, String> {
        if let Ok(after) = parse_duration(text) {
            return Ok(Edge::After(after));
        }
        let said = "write a time such as \"2026-01-31 12:00\", or one after the begin such as 2h";
        text.parse().map(Edge::At).map_err(|()| said.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_as_typed() {
        assert_eq!("20ms".parse::<Service>().unwrap().0.mean(), 0.02);
        let table = "{ distribution = \"constant\", value = \"5ms\" }";
        assert_eq!(table.parse::<Service>().unwrap().0.mean(), 0.005);
        let unit = "Generated=Tokens=5ms".parse::<UnitCost>().unwrap();
        assert_eq!((unit.column.as_deref(), unit.time), (Some("Generated=Tokens"), Duration::from_millis(5)));
        assert_eq!("gold=0.2".parse::<ClassArg>().unwrap().what, Membership::Share(0.2));
        assert_eq!("shop=/shop".parse::<ClassArg>().unwrap().what, Membership::Path("/shop".to_owned()));
        assert_eq!("2h".parse::<Edge>().unwrap(), Edge::After(Duration::from_secs(7200)));
        assert_eq!("peak".parse::<Day>().unwrap(), Day::Peak);
        assert!(matches!("1998-07-07".parse::<Edge>().unwrap(), Edge::At(_)));
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        assert!("fast".parse::<Service>().is_err());
        assert!("{ distribution = \"constant\" }".parse::<Service>().unwrap_err().contains("value"));
        assert!("gold=2".parse::<ClassArg>().unwrap_err().contains("share from 0 to 1"));
        assert!("=0.5".parse::<ClassArg>().is_err());
        assert!("x=fast".parse::<UnitCost>().is_err());
        assert!("noon".parse::<Edge>().is_err() && "noon".parse::<Day>().is_err());
    }
}
