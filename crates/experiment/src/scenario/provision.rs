//! Servers and sentries that come and go, and applications that share them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_workload::time;

use super::Scenario;

/// How servers and sentries come and go. The policy is the arm's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provision {
    /// How often sentries report.
    #[serde(default = "ten_seconds", with = "time::text")]
    pub every: Duration,
    /// Sentries of an application at most; it begins with one.
    #[serde(default = "one")]
    pub max_sentries: u32,
    /// Share of a sentry's CPU above which it asks for another one.
    #[serde(default = "high")]
    pub sentry_high: f64,
    /// Share of a sentry's CPU below which it is returned.
    #[serde(default = "low")]
    pub sentry_low: f64,
    /// For how long its CPU must lie there.
    #[serde(default = "thirty_seconds", with = "time::text")]
    pub sentry_hold: Duration,
}

/// One of the applications that share the servers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// Its name; letters, digits, `-` and `_`.
    pub name: String,
    /// Servers that it begins with.
    pub servers: u32,
    /// It has at least so many.
    #[serde(default = "one")]
    pub min_servers: u32,
    /// It has at most so many; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_servers: Option<u32>,
}

impl Scenario {
    /// The applications: those of the file, or the only one there is.
    pub fn all_applications(&self) -> Vec<Application> {
        if !self.applications.is_empty() {
            return self.applications.clone();
        }
        let servers = (self.servers.count - self.servers.off) as u32;
        vec![Application { name: self.id.clone(), servers, min_servers: 1, max_servers: None }]
    }

    /// The application of a class, by its place.
    pub fn application_of(&self, class: &str) -> usize {
        let name = self.class_index(class).and_then(|at| self.classes[at].application.as_ref());
        name.and_then(|name| self.applications.iter().position(|a| a.name == *name)).unwrap_or(0)
    }
}

fn one() -> u32 {
    1
}

fn high() -> f64 {
    0.8
}

fn low() -> f64 {
    0.3
}

fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

fn thirty_seconds() -> Duration {
    Duration::from_secs(30)
}
