//! Inputs and outputs of a plane.

use serde::{Deserialize, Serialize};
use tidegate_engine::Timestamp;
use tidegate_provision::{ApplicationReport, Measured, ServerNews};

use crate::names::Roll;

/// Something that came from outside. The journal is made of these.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Input {
    /// A daemon took over; what was offered meanwhile is not known.
    Began {
        /// Time of the input.
        now: Timestamp,
    },
    /// A period is over.
    Period {
        /// Time of the input.
        now: Timestamp,
        /// Per application what its sentries saw; `None` where nobody knows.
        reports: Vec<Option<ApplicationReport>>,
        /// How busy sentries were: application, sentry, share of its CPU.
        sentries: Vec<(usize, usize, f64)>,
    },
    /// A provider's news of a server.
    Server {
        /// Time of the input.
        now: Timestamp,
        /// Its place in the pool.
        server: usize,
        /// The new state of the server.
        news: ServerNews,
        /// How that is known.
        reason: String,
    },
    /// News of the sentry at a post.
    Post {
        /// Time of the input.
        now: Timestamp,
        /// Number of the post.
        post: usize,
        /// The new state of the sentry.
        news: ServerNews,
        /// What the sentry calls itself, where that is known.
        name: Option<String>,
        /// How that is known.
        reason: String,
    },
    /// A provider is through with a step.
    Done {
        /// Time of the input.
        now: Timestamp,
        /// Number of the step.
        step: u64,
        /// The process that was started, where there is one.
        process: Option<Process>,
    },
    /// An application's sentries are these.
    Sentries {
        /// Time of the input.
        now: Timestamp,
        /// Index of the application.
        application: usize,
        /// Names of the sentries.
        names: Vec<String>,
    },
    /// These sentries are cut off, and no others.
    Silent {
        /// Time of the input.
        now: Timestamp,
        /// Names of the sentries.
        names: Vec<String>,
    },
    /// Several at the same instant, in their order.
    Several {
        /// Time of the input.
        now: Timestamp,
        /// These.
        inputs: Vec<Input>,
    },
    /// An application's name stands for these.
    Names {
        /// Time of the input.
        now: Timestamp,
        /// Index of the application.
        application: usize,
        /// Its sentries in the answer, with their addresses.
        roll: Roll,
    },
    /// Something to remember that changes nothing.
    Note {
        /// Time of the input.
        now: Timestamp,
        /// What kind of thing.
        kind: String,
        /// Description of the event, with its reason.
        reason: String,
    },
}

/// What providers start and stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A server of the pool.
    #[default]
    Server,
    /// A sentry at a post.
    Sentry,
}

/// A process that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Process {
    /// Process number of the server.
    pub pid: u32,
    /// When it started, in the system's ticks since boot: tells it from a later one with its number.
    pub started: u64,
    /// The step that started it.
    pub step: u64,
}

/// What a provider is to do, once.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Step {
    /// Counts up, over all starts of the daemon.
    pub number: u64,
    /// What it is about. Versions before posts knew only servers.
    #[serde(default)]
    pub unit: Unit,
    /// Its place in the pool, or the number of its post.
    #[serde(alias = "server")]
    pub place: usize,
    /// The action of the step.
    pub what: What,
}

/// What a provider can do.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Start it.
    Start {
        /// Index of the application that gets it.
        application: usize,
    },
    /// Stop it, whatever it still has.
    Stop,
}

/// What was decided, or happened, with what stood behind it.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// When, by the plane's clock.
    pub at: Timestamp,
    /// What kind of thing.
    pub kind: String,
    /// Name of the application concerned, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// The place of the server concerned, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<usize>,
    /// The post of the sentry concerned, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post: Option<usize>,
    /// In words, with the reason.
    pub text: String,
    /// The inputs of the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Measured>,
    /// The step's number, for steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
}

impl std::fmt::Display for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Unit::Server => "server",
            Unit::Sentry => "post",
        })
    }
}

impl Input {
    /// Time at which the input arrived.
    pub fn now(&self) -> Timestamp {
        match self {
            Input::Began { now }
            | Input::Period { now, .. }
            | Input::Server { now, .. }
            | Input::Post { now, .. }
            | Input::Done { now, .. }
            | Input::Sentries { now, .. }
            | Input::Silent { now, .. }
            | Input::Several { now, .. }
            | Input::Names { now, .. }
            | Input::Note { now, .. } => *now,
        }
    }

    /// Whether servers may be elsewhere after it, or sentries others: else nothing is to be divided anew.
    pub(super) fn may_move(&self) -> bool {
        match self {
            Input::Began { .. }
            | Input::Period { .. }
            | Input::Server { .. }
            | Input::Post { .. }
            | Input::Sentries { .. } => true,
            Input::Several { inputs, .. } => inputs.iter().any(Input::may_move),
            Input::Done { .. } | Input::Silent { .. } | Input::Names { .. } | Input::Note { .. } => false,
        }
    }
}
