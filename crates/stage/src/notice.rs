//! Notices: what stages did and why. Each goes to the log, as a `tracing` event, and to the sink, for dashboards and
//! tests.

use std::sync::Arc;

use serde::Serialize;
use tidegate_engine::Timestamp;
use tracing::level_filters::LevelFilter;
use tracing::{debug, error, info};

/// Something a stage did that a person may ask about later.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Notice {
    /// When, on the process's own clock.
    pub at: Timestamp,
    /// Which stage (or layer).
    pub stage: Arc<str>,
    /// What the stage did.
    pub what: What,
}

/// What a stage did.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
#[non_exhaustive]
pub enum What {
    /// The controller changed the rate it admits.
    RateChanged {
        /// Of which class, 0 is the most important.
        class: u8,
        /// Events per second before.
        from: f64,
        /// Events per second now.
        to: f64,
        /// The percentile of response time that decided it, seconds.
        percentile: Option<f64>,
    },
    /// The first event of the class was refused after a time without.
    RefusalBegan {
        /// Which class, 0 is the most important.
        class: u8,
        /// Reason of the refusal.
        reason: crate::RefusalReason,
    },
    /// No event of the class was refused for a second.
    RefusalEnded {
        /// Which class, 0 is the most important.
        class: u8,
        /// How many were refused since it began.
        refused: u64,
    },
    /// Answers became cheaper, or better again.
    QualityChanged {
        /// Quality before, 0 to 1.
        from: f64,
        /// Quality after the change, 0 to 1.
        to: f64,
    },
    /// The admission controller was switched on or off.
    PolicingSwitched {
        /// Whether it refuses now.
        on: bool,
    },
    /// The number of workers changed.
    WorkersChanged {
        /// Number of workers before the change.
        from: usize,
        /// Number of workers after the change.
        to: usize,
    },
    /// The limit of a batch changed.
    BatchChanged {
        /// Batch size before the change, events.
        from: usize,
        /// Batch size after the change, events.
        to: usize,
    },
    /// A handler panicked; the stage goes on.
    HandlerPanicked {
        /// What the panic said.
        message: String,
        /// How many events were lost with it.
        lost: usize,
    },
    /// The graph takes no more work.
    Draining,
    /// The graph's stages have stopped.
    Stopped,
}

impl What {
    /// A short name for logs and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            What::RateChanged { .. } => "rate-changed",
            What::RefusalBegan { .. } => "refusal-began",
            What::RefusalEnded { .. } => "refusal-ended",
            What::QualityChanged { .. } => "quality-changed",
            What::PolicingSwitched { .. } => "policing-switched",
            What::WorkersChanged { .. } => "workers-changed",
            What::BatchChanged { .. } => "batch-changed",
            What::HandlerPanicked { .. } => "handler-panicked",
            What::Draining => "draining",
            What::Stopped => "stopped",
        }
    }
}

/// Where notices go. Called by workers and senders, never within a lock of a stage: take the notice and return soon.
pub trait NoticeSink: Send + Sync + 'static {
    /// Takes one notice.
    fn record(&self, notice: &Notice);
}

impl<F: Fn(&Notice) + Send + Sync + 'static> NoticeSink for F {
    fn record(&self, notice: &Notice) {
        self(notice)
    }
}

/// Whether anybody hears of notices: a sink, or a log that is not silent. Two loads; asked when something changed,
/// never for each event.
pub(crate) fn is_heard(has_sink: bool) -> bool {
    has_sink || LevelFilter::current() >= LevelFilter::INFO
}

/// A stage's name with the sink, if there is one.
#[derive(Clone)]
pub(crate) struct Reporter {
    pub(crate) stage: Arc<str>,
    pub(crate) sink: Option<Arc<dyn NoticeSink>>,
}

impl Reporter {
    pub(crate) fn has_sink(&self) -> bool {
        self.sink.is_some()
    }

    pub(crate) fn report(&self, at: Timestamp, what: What) {
        log(&self.stage, &what);
        if let Some(sink) = &self.sink {
            sink.record(&Notice { at, stage: self.stage.clone(), what });
        }
    }

    pub(crate) fn report_all(&self, notices: Vec<(Timestamp, What)>) {
        for (at, what) in notices {
            self.report(at, what);
        }
    }
}

/// A handler that panics needs a person; refusals, drains and switches change the state; the rest is detail.
fn log(stage: &str, what: &What) {
    match what {
        What::RateChanged { class, from, to, percentile } => {
            debug!(stage, class, from, to, percentile, "another rate is admitted");
        }
        What::RefusalBegan { class, reason } => info!(stage, class, reason = reason.name(), "refusals began"),
        What::RefusalEnded { class, refused } => info!(stage, class, refused, "refusals ended"),
        What::QualityChanged { from, to } => debug!(stage, from, to, "answers have another quality"),
        What::PolicingSwitched { on } => info!(stage, on, "admission control was switched"),
        What::WorkersChanged { from, to } => debug!(stage, from, to, "the number of workers changed"),
        What::BatchChanged { from, to } => debug!(stage, from, to, "the limit of a batch changed"),
        What::HandlerPanicked { message, lost } => error!(stage, panic = message, lost, "a handler panicked"),
        What::Draining => info!(graph = stage, "draining"),
        What::Stopped => info!(graph = stage, "stopped"),
    }
}
