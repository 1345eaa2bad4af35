//! docs/workloads.md tells the truth: every example in it is read by what it is an example of.

use std::collections::BTreeSet;
use std::io::Cursor;

use serde::Deserialize;
use tidegate_workload::trace::{TraceOptions, TraceReader};
use tidegate_workload::{ArrivalProcess, Distribution, Profile, ServiceTime, Surge};

const PAGE: &str = include_str!("../../../../docs/workloads.md");

/// The blocks of a language.
fn blocks(language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    PAGE.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn every_example_of_toml_is_read() {
    let mut known = BTreeSet::new();
    for block in blocks("toml") {
        let table: toml::Table = toml::from_str(&block).unwrap_or_else(|error| panic!("{block}\n{error}"));
        for (key, value) in table {
            let name = match key.as_str() {
                "size" => Distribution::deserialize(value).map(|law| law.name().to_owned()),
                "service" => ServiceTime::deserialize(value).map(|time| time.distribution().name().to_owned()),
                "arrivals" => ArrivalProcess::deserialize(value).map(|process| process.name().to_owned()),
                "rate" => Profile::deserialize(value).map(|_| "profile".to_owned()),
                "surge" => Surge::deserialize(value).map(|surge| surge.check().map(|()| "surge".to_owned()).unwrap()),
                _ => panic!("no example has a key {key}"),
            };
            known.insert(name.unwrap_or_else(|error| panic!("{block}\n{error}")));
        }
    }
    for name in [
        "constant",
        "exponential",
        "uniform",
        "lognormal",
        "pareto",
        "inverse-gaussian",
        "zipf",
        "bimodal",
        "lognormal-pareto",
        "empirical",
        "poisson",
        "renewal",
        "mmpp",
        "profile",
        "surge",
    ] {
        assert!(known.contains(name), "there is no example of {name}");
    }
}

#[test]
fn every_example_of_a_trace_is_read() {
    let mut shapes = BTreeSet::new();
    for block in blocks("csv").into_iter().chain(blocks("log")) {
        let options =
            TraceOptions { class_column: block.contains("tier").then(|| "tier".to_owned()), ..TraceOptions::default() };
        let reader = TraceReader::new(Box::new(Cursor::new(block.clone().into_bytes())), "docs", &options);
        let mut reader = reader.unwrap_or_else(|error| panic!("{block}\n{error}"));
        shapes.insert(reader.shape().name());
        let bad = reader.find_map(Result::err);
        assert_eq!(bad, None, "{block}");
    }
    assert_eq!(shapes.into_iter().collect::<Vec<_>>(), ["access-log", "counts", "requests"]);
}
