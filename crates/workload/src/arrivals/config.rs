//! Arrival processes as a file or a command line writes them.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::mmpp::MmppState;
use super::{ArrivalProcess, Mmpp};
use crate::{Distribution, DistributionConfig, DistributionError};

/// A process as written: a name, or a table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged, expecting = "\"poisson\", \"constant\", or a table with `process` = \"renewal\" or \"mmpp\"")]
pub(super) enum Written {
    Name(String),
    Table(toml::Table),
}

/// The table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "process", rename_all = "lowercase", deny_unknown_fields)]
enum Table {
    Constant,
    Poisson,
    Renewal {
        gaps: DistributionConfig<f64>,
    },
    Mmpp {
        states: Vec<MmppState>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        transitions: Option<Vec<Vec<f64>>>,
    },
}

/// Why something is no arrival process.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// A name that no process has.
    #[error(
        "unknown arrival process {0:?}: use \"poisson\", \"constant\", or a table {{ process = \"renewal\", gaps = {{ ... }} }} \
         or {{ process = \"mmpp\", states = [...] }}"
    )]
    Unknown(String),
    /// The table has a wrong or missing key.
    #[error("arrival process: {0}")]
    Table(String),
    /// The gaps' distribution makes no sense.
    #[error("arrival process: gaps: {0}")]
    Distribution(#[from] DistributionError),
    /// The gaps have no mean that could be scaled to the rate.
    #[error("arrival process: the mean of `gaps` is {0}, but must be a finite number above 0")]
    Gaps(f64),
    /// The states or transitions make no sense.
    #[error("arrival process: {place}: {problem}")]
    Mmpp {
        /// Which of them, such as `states[2]`.
        place: String,
        /// What is wrong and what to write.
        problem: &'static str,
    },
}

impl FromStr for ArrivalProcess {
    type Err = ProcessError;

    /// Reads a name or, in braces, an inline TOML table.
    fn from_str(text: &str) -> Result<Self, ProcessError> {
        if !text.trim_start().starts_with('{') {
            return Written::Name(text.to_owned()).try_into();
        }
        let table: toml::Table = toml::from_str(&format!("process = {text}"))
            .map_err(|error| ProcessError::Table(error.message().trim().to_owned()))?;
        match table.into_iter().next() {
            Some((_, toml::Value::Table(table))) => Written::Table(table).try_into(),
            _ => Err(ProcessError::Unknown(text.to_owned())),
        }
    }
}

impl TryFrom<Written> for ArrivalProcess {
    type Error = ProcessError;

    fn try_from(written: Written) -> Result<ArrivalProcess, ProcessError> {
        let table = match written {
            Written::Name(name) => {
                let known = ArrivalProcess::ALL.into_iter().find(|process| process.name() == name);
                return known.ok_or(ProcessError::Unknown(name));
            }
            Written::Table(table) => table,
        };
        match Table::deserialize(table).map_err(|error| ProcessError::Table(error.message().trim().to_owned()))? {
            Table::Constant => Ok(ArrivalProcess::Constant),
            Table::Poisson => Ok(ArrivalProcess::Poisson),
            Table::Renewal { gaps } => ArrivalProcess::renewal(Distribution::try_from(gaps)?),
            Table::Mmpp { states, transitions } => ArrivalProcess::mmpp(states, transitions),
        }
    }
}

impl From<ArrivalProcess> for Written {
    fn from(process: ArrivalProcess) -> Written {
        let table = match process {
            ArrivalProcess::Constant | ArrivalProcess::Poisson => return Written::Name(process.name().to_owned()),
            ArrivalProcess::Renewal(gaps) => Table::Renewal { gaps: gaps.into() },
            ArrivalProcess::Mmpp(chain) => {
                let Mmpp { states, transitions, .. } = chain;
                Table::Mmpp { states: states.clone(), transitions: Some(transitions.clone()) }
            }
        };
        Written::Table(toml::Table::try_from(table).expect("a process holds nothing that TOML cannot"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ArrivalProcess, String> {
        #[derive(Deserialize)]
        struct File {
            arrivals: ArrivalProcess,
        }
        toml::from_str::<File>(text).map(|file| file.arrivals).map_err(|error| error.to_string())
    }

    #[test]
    fn names_and_tables() {
        assert_eq!(read("arrivals = \"constant\"").unwrap(), ArrivalProcess::Constant);
        assert_eq!(read("arrivals = { process = \"poisson\" }").unwrap(), ArrivalProcess::Poisson);
        let renewal = "{ process = \"renewal\", gaps = { distribution = \"pareto\", shape = 1.5, min = 1 } }";
        let expected = ArrivalProcess::renewal(Distribution::pareto(1.5, 1.0).unwrap()).unwrap();
        assert_eq!(read(&format!("arrivals = {renewal}")).unwrap(), expected);
        assert_eq!(renewal.parse::<ArrivalProcess>().unwrap(), expected);
        assert!(read("arrivals = \"mmpp\"").unwrap_err().contains("unknown arrival process"));
    }

    #[test]
    fn written_and_read_back() {
        for text in [
            "\"poisson\"",
            "{ process = \"renewal\", gaps = { distribution = \"empirical\", values = [1, 2, 9] } }",
            "{ process = \"mmpp\", states = [{ rate = 1, sojourn = \"20s\" }, { rate = 8, sojourn = 2 }] }",
        ] {
            let process = read(&format!("arrivals = {text}")).unwrap();
            let json = serde_json::to_string(&process).unwrap();
            assert_eq!(serde_json::from_str::<ArrivalProcess>(&json).unwrap(), process, "{json}");
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        for (text, part) in [
            ("{ process = \"storm\" }", "unknown variant `storm`"),
            ("{ process = \"renewal\" }", "missing field `gaps`"),
            ("{ process = \"renewal\", gaps = { distribution = \"constant\", value = 0 } }", "mean of `gaps` is 0"),
            ("{ process = \"renewal\", gaps = { distribution = \"pareto\", shape = 1, min = 1 } }", "is inf"),
            ("{ process = \"mmpp\", states = [] }", "states: "),
            ("{ process = \"mmpp\", states = [{ rate = -1, sojourn = \"1s\" }] }", "states[0]: "),
            ("{ process = \"mmpp\", states = [{ rate = 0, sojourn = \"1s\" }] }", "at least one state"),
            ("{ process = \"mmpp\", states = [{ rate = 1, sojourn = \"1s\", mood = 1 }] }", "mood"),
        ] {
            let said = read(&format!("arrivals = {text}")).unwrap_err();
            assert!(said.contains(part), "{text}: {said}");
            assert!(text.parse::<ArrivalProcess>().is_err());
        }
    }
}
