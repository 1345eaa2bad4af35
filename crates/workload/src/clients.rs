//! Clients that react: users who wait for their answers, and what is done when there is none.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::service::ServiceTime;
use crate::time;

/// A fixed number of users of one class: each asks, waits for the answer, thinks, and asks again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Users {
    /// Their name, for results and expectations; the class's name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The class of their requests.
    pub class: String,
    /// Number of clients.
    pub count: u32,
    /// When they come, all at once; at the beginning when absent.
    #[serde(default, skip_serializing_if = "Duration::is_zero", with = "time::text")]
    pub from: Duration,
    /// When they stop asking; at the end when absent.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::optional")]
    pub until: Option<Duration>,
    /// Time between an answer and the next request.
    pub think: ServiceTime,
    /// What a session begins with: request types and their weights.
    pub requests: BTreeMap<String, f64>,
    /// From each request type to each, with its probability; what is missing to 1 is the end of the session. Without
    /// this table every request is drawn from `requests`, and sessions do not end.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub next: BTreeMap<String, BTreeMap<String, f64>>,
    /// Time between the end of a session and the beginning of the next; as `think` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<ServiceTime>,
    /// What they do when they are not answered; they give up at once when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

/// What a client does that was refused, failed, or waited longer than `timeout`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Tries in all, the first included; then it gives up.
    #[serde(default = "three")]
    pub tries: u32,
    /// When it tries again.
    #[serde(default)]
    pub wait: Wait,
    /// How long it waits, with `wait = "own"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<ServiceTime>,
    /// Its wait is stretched at random by up to this share.
    #[serde(default)]
    pub jitter: f64,
    /// Whether its further tries say that they are retries.
    #[serde(default, skip_serializing_if = "is_false")]
    pub says: bool,
}

/// How long a client waits before it tries again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// The client tries again at once.
    AtOnce,
    /// As long as the refusal's `Retry-After` says; not at all where nothing was said.
    #[default]
    RetryAfter,
    /// A time of its own.
    Own,
}

impl Users {
    /// Their name in results.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.class)
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

fn three() -> u32 {
    3
}
