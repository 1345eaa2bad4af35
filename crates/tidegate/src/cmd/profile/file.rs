//! The profile file: what was measured, and the table that configurations include.

use serde::{Deserialize, Serialize};
use tidegate_engine::{MaxConn, Seconds, StealingProfile};
use tidegate_loadgen::capacity::Found;

/// A profile. `[[application]] profile = FILE` reads all but what was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// The 95th percentile that had to be held; the longest, where kinds have their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<Seconds>,
    /// What the dearest kind of request costs: safe for what is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) default_cost: Option<Seconds>,
    /// What a server can have in flight, by kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) max_conn: Vec<MaxConn>,
    /// What data servers lend at which load: `dispatch = { policy = "softscale", profile = FILE }` reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) softscale: Option<StealingProfile>,
    /// What it follows from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) measured: Option<Measured>,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measured {
    /// Seconds of each step.
    pub(super) step: f64,
    /// Seed of arrivals.
    pub(super) seed: u64,
    /// Each kind of request by itself.
    #[serde(rename = "type", default)]
    pub(super) types: Vec<Found>,
    /// What a data server held beside its own work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) lending: Vec<Lending>,
}

/// What a data server held at one load, with its cores divided in one way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lending {
    /// Cores of application work; `None`: they were not divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cores: Option<u32>,
    /// Share of the peak.
    pub(super) load: f64,
    /// Requests in flight within the target; 0: not one.
    pub(super) n_data: u32,
}

impl File {
    /// What was measured, and what a configuration takes from it.
    pub(super) fn new(measured: Measured, softscale: Option<StealingProfile>) -> File {
        let kind = |found: &Found| {
            let (within, most) = (f64::from(found.max_conn?), f64::from(found.most?));
            // A bound that was given is no measurement.
            let limit = MaxConn { name: found.name.clone(), request_types: Vec::new(), within_target: within, most };
            (!found.is_bound).then_some(limit)
        };
        let largest = |of: fn(&Found) -> f64| measured.types.iter().map(of).fold(0.0, f64::max);
        let (longest, dearest) = (largest(|found| found.target), largest(|found| found.cost));
        File {
            target: (longest > 0.0).then_some(Seconds(longest)),
            // To a microsecond: more is noise.
            default_cost: (dearest > 0.0).then_some(Seconds((dearest * 1e6).round() / 1e6)),
            max_conn: measured.types.iter().filter_map(kind).collect(),
            softscale,
            measured: Some(measured),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, max_conn: Option<u32>, most: Option<u32>, is_bound: bool) -> Found {
        Found {
            name: name.to_owned(),
            url: "http://a:1/".to_owned(),
            target: if name == "search" { 0.5 } else { 0.02 },
            capacity: 100.0,
            rate_in_target: 90.0,
            max_conn,
            most,
            is_bound,
            rate_is_bound: false,
            is_generators: false,
            knee: (80.0, 0.02),
            suggested_target: 0.1,
            cost: if name == "search" { 0.031_234_567 } else { 0.01 },
            steps: Vec::new(),
        }
    }

    #[test]
    fn a_configuration_takes_what_was_measured_and_no_bound() {
        let types = vec![
            found("page", Some(85), Some(120), false),
            found("search", Some(18), Some(26), false),
            found("image", Some(256), Some(256), true),
            found("open", None, None, false),
        ];
        let measured = Measured { step: 5.0, seed: 1, types, lending: Vec::new() };
        let file = File::new(measured, None);
        let text = toml::to_string(&file).expect("written");
        assert_eq!(toml::from_str::<File>(&text).expect("read"), file);
        let table: toml::Table = text.parse().expect("TOML");
        let kinds: Vec<_> =
            file.max_conn.iter().map(|kind| (kind.name.as_str(), kind.within_target, kind.most)).collect();
        assert_eq!(kinds, [("page", 85.0, 120.0), ("search", 18.0, 26.0)]);
        assert_eq!((table["target"].as_str(), table["default_cost"].as_str()), (Some("500ms"), Some("31235us")));
    }
}
