//! What an arm means for the mail service.

use std::time::Duration;

use tidegate_workload::parse_duration;

use crate::scenario::{Arm, Scenario};
use crate::service::ServiceError;

/// How the service is to run for an arm, and its users with it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settings {
    /// Options of the program.
    pub(super) options: Vec<String>,
    /// The controllers' settings, for a file.
    pub(super) parameters: toml::Table,
    /// Whether there are controllers to look at.
    pub(super) is_controlled: bool,
    /// Whether users keep their connections.
    pub(super) keep_alive: bool,
    /// How long a user waits for an answer.
    pub(super) patience: Duration,
}

impl Settings {
    pub(super) fn of(scenario: &Scenario, arm: &Arm) -> Result<Settings, ServiceError> {
        let cannot = |what: String| ServiceError::CannotDo { arm: arm.name.clone(), what };
        let mut settings = Settings::uncontrolled(scenario);
        match text(&arm.admission, "policy") {
            "none" => settings.option("policy", "none"),
            "aimd" => settings.aimd(scenario, &arm.admission).map_err(cannot)?,
            "concurrency" => settings.connections(&arm.admission).map_err(cannot)?,
            other => return Err(cannot(format!("the policy \"{other}\""))),
        }
        Ok(settings)
    }

    fn uncontrolled(scenario: &Scenario) -> Settings {
        let mut settings = Settings {
            options: Vec::new(),
            parameters: toml::Table::new(),
            is_controlled: false,
            keep_alive: true,
            patience: scenario.timeout,
        };
        settings.option("target", &format!("{}s", scenario.target(0.0).as_secs_f64()));
        settings.option("timeout", &format!("{}s", scenario.timeout.as_secs_f64()));
        settings
    }

    fn aimd(&mut self, scenario: &Scenario, policy: &toml::Table) -> Result<(), String> {
        if policy.contains_key("targets") {
            return Err("`targets` of single request types".to_owned());
        }
        self.is_controlled = true;
        self.option("policy", if is(policy, "single", false) { "single" } else { "aimd" });
        let classes = if is(policy, "by_class", true) { scenario.classes.len() } else { 1 };
        self.option("classes", &classes.to_string());
        if let Some(controller) = policy.get("controller").and_then(toml::Value::as_table) {
            self.parameters = controller.clone();
        }
        if let Some(quality) = self.parameters.get("quality").and_then(toml::Value::as_table) {
            self.option("degrade", if is(quality, "then_police", true) { "then-refuse" } else { "alone" });
        }
        Ok(())
    }

    /// A limit of connections is one of requests only where every request has a connection of its own.
    fn connections(&mut self, policy: &toml::Table) -> Result<(), String> {
        let limit = policy.get("limit").and_then(toml::Value::as_integer).ok_or("a limit that is no number")?;
        self.option("policy", &format!("limit={limit}"));
        self.keep_alive = false;
        if policy.contains_key("queue_timeout") {
            let patience = parse_duration(text(policy, "queue_timeout"));
            self.patience = patience.map_err(|error| format!("this `queue_timeout`: {error}"))?;
        }
        Ok(())
    }

    fn option(&mut self, name: &str, value: &str) {
        self.options.extend([format!("--{name}"), value.to_owned()]);
    }
}

fn text<'t>(table: &'t toml::Table, key: &str) -> &'t str {
    table.get(key).and_then(toml::Value::as_str).unwrap_or_default()
}

fn is(table: &toml::Table, key: &str, otherwise: bool) -> bool {
    table.get(key).and_then(toml::Value::as_bool).unwrap_or(otherwise)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(admission: &str) -> Result<Settings, ServiceError> {
        let text = include_str!("../../../../../scenarios/w7.toml");
        let scenario = Scenario::parse(text, "w7.toml").unwrap();
        let admission = toml::from_str(admission).unwrap();
        let arm = Arm {
            name: "it".into(),
            about: String::new(),
            admission,
            dispatch: toml::Table::new(),
            partition: toml::Table::new(),
            provision: toml::Table::new(),
            set: toml::Table::new(),
            cooperation: Default::default(),
            cancel: tidegate_engine::Cancel::Off,
            unchecked: String::new(),
        };
        Settings::of(&scenario, &arm)
    }

    #[test]
    fn arms_are_options() {
        let common = "--target 10s --timeout 120s";
        for (admission, options) in [
            ("policy = \"none\"", "--policy none"),
            ("policy = \"aimd\"", "--policy aimd --classes 2"),
            ("policy = \"aimd\"\nsingle = true\nby_class = false", "--policy single --classes 1"),
            ("policy = \"aimd\"\ncontroller = { quality = {} }", "--policy aimd --classes 2 --degrade then-refuse"),
            (
                "policy = \"aimd\"\ncontroller = { quality = { then_police = false } }",
                "--policy aimd --classes 2 --degrade alone",
            ),
            ("policy = \"concurrency\"\nlimit = 128", "--policy limit=128"),
        ] {
            assert_eq!(settings(admission).unwrap().options.join(" "), format!("{common} {options}"));
        }
        let limited = settings("policy = \"concurrency\"\nlimit = 128\nqueue_timeout = \"20s\"").unwrap();
        assert_eq!((limited.keep_alive, limited.patience), (false, Duration::from_secs(20)));
        assert_eq!(settings("policy = \"none\"").unwrap().patience, Duration::from_secs(120));
    }

    #[test]
    fn what_the_service_has_not_is_refused() {
        for (admission, wanted) in
            [("policy = \"batch\"", "\"batch\""), ("policy = \"aimd\"\ntargets = { search = \"3s\" }", "`targets`")]
        {
            let error = settings(admission).unwrap_err().to_string();
            assert!(error.contains("arm \"it\"") && error.contains(wanted), "{error}");
        }
    }
}
