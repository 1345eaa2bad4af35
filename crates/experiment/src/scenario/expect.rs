//! What a scenario must show: a metric, over a span of time, within bounds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_config::{
    Found,
    Step::{Index, Key},
};
use tidegate_workload::{Cursor, ParseError, time};

use super::{Mark, Only, Scenario};

/// One thing that must come of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// What this shows, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub what: String,
    /// What it is evidence of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// The sentence or figure of the paper that it is about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// Why its bounds are not the paper's, or why the paper's policy misses the claim.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// The arms it is about; every arm when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arms: Vec<String>,
    /// The class it is about; everything when neither `class`, `load` nor `request` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The load it is about, in place of a class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<String>,
    /// The request type it is about, in place of a class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The resource it is about, such as `cpu` or `syn`, of metrics that are about a resource's rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// What is measured.
    pub metric: Metric,
    /// When: requests count by their arrival.
    pub over: Span,
    /// Length of the windows, for the metrics that have them.
    #[serde(default = "five_seconds", with = "time::text")]
    pub window: Duration,
    /// The metric must not be below this. Shares are 0 to 1, times seconds, rates per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// The metric must not be above this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// How far beyond its bound the metric may lie, for what is random in it.
    #[serde(default)]
    pub tolerance: f64,
    /// The metric counts in multiples of what it was over this span: the bounds are factors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_to: Option<Span>,
    /// The metric counts in multiples of what it was in this arm, over the same span and with the same seed: the bounds
    /// are factors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_to_arm: Option<String>,
    /// The metric counts by how much it is above what it was in this arm, over the same span and with the same seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minus_arm: Option<String>,
    /// Of several seeds, whether the mean must lie within the bounds with 95 % confidence, rather than each run; when
    /// absent, of ten simulated runs and more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_seeds: Option<bool>,
    /// Whether it must also hold in the short form.
    #[serde(default = "yes")]
    pub short: bool,
    /// Where it holds; in the simulator and with real HTTP when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Only>,
}

/// What can be measured of a run. Requests count in the second in which they arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Answered requests / offered ones.
    AdmittedShare,
    /// Refused requests / offered ones.
    RefusedShare,
    /// Requests that got neither answer nor refusal / offered ones.
    FailedShare,
    /// The class's (or load's) part of everything that was admitted.
    PartOfAdmitted,
    /// The class's (or load's) part of everything that was refused.
    PartOfRefused,
    /// Offered requests per second.
    OfferedRate,
    /// Admitted requests per second.
    AdmittedRate,
    /// Refused requests per second.
    RefusedRate,
    /// Requests answered within the target per second.
    GoodputRate,
    /// Service time of the requests answered within the target, seconds per second: so many cores were of use.
    GoodputWork,
    /// What the answers within the target were worth per second, by the revenues of their classes.
    RevenueRate,
    /// Mean response time of the admitted, seconds.
    Mean,
    /// Median response time of the admitted, seconds.
    P50,
    /// 90th percentile of the response time of the admitted, seconds.
    P90,
    /// 95th percentile of the response time of the admitted, seconds.
    P95,
    /// 99th percentile of the response time of the admitted, seconds.
    P99,
    /// The highest 90th percentile in any window, seconds.
    P90WorstWindow,
    /// The highest 95th percentile in any window, seconds.
    P95WorstWindow,
    /// The share of the windows whose 95th percentile is above the target.
    P95WindowsOver,
    /// Requests in flight, on average over the seconds.
    InFlight,
    /// The most requests that one server behind the sentry had at work at once, whoever still waited for them.
    AtWorkMost,
    /// The fewest servers that the class had to itself in any second.
    ServersLeast,
    /// The most servers that the class had to itself in any second.
    ServersMost,
    /// The number of servers that the class had to itself for the longest time, the smaller of two.
    ServersUsual,
    /// How often the number of the class's servers changed from one second to the next.
    ServersChanges,
    /// Servers that serve the application of the class (or load), on the mean.
    Servers,
    /// Sentries that the application has, on the mean.
    Sentries,
    /// The most that the application's target may relax to, on the mean, seconds.
    Ceiling,
    /// CPU of the application's first sentry in use, on the mean.
    SentryCpu,
    /// How far the CPU of the application's sentries lies apart, on the mean.
    SentrySpread,
    /// The least rate that a resource's controller let in, per second.
    RateLeast,
    /// The rate that it let in at the end of the span, per second.
    RateLast,
    /// By how much its rate fell at most from one second to the next, per second.
    RateFall,
    /// By how much its rate rose at most from one second to the next, per second.
    RateRise,
    /// By how much its rate fell in a second, on average over the span, per second.
    RateFallMean,
    /// Its greatest rise from one second to the next, in multiples of its greatest fall.
    RateRiseToFall,
    /// The share of the seconds in which the resource's controller limits anything.
    LimitedShare,
    /// How long it took to give the kernel another rate of new connections, median, seconds.
    RateChangeTime,
    /// New connections that were turned away over the span.
    TurnedAway,
    /// Processor time that turning a connection away costs, in multiples of what a refusal costs.
    RefusalCost,
    /// What all servers drew on average while requests arrived, over the whole run, watts.
    Power,
}

/// A span of time since the start of the run, such as `130s..195s`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span {
    /// Its beginning.
    pub from: Duration,
    /// Its end, later than the beginning.
    pub to: Duration,
}

impl Expect {
    /// Whether it is about that arm.
    pub fn is_about(&self, arm: &str) -> bool {
        self.arms.is_empty() || self.arms.iter().any(|name| name == arm)
    }

    /// Its class, load, request type or resource, or `all`.
    pub fn subject(&self) -> &str {
        let named =
            self.load.as_deref().or(self.class.as_deref()).or(self.request.as_deref()).or(self.resource.as_deref());
        named.unwrap_or("all")
    }

    /// What is demanded, such as `<= 0.05`.
    pub fn bound(&self) -> String {
        let at_least = self.at_least.map(|bound| format!(">= {bound}"));
        let at_most = self.at_most.map(|bound| format!("<= {bound}"));
        let tolerance = (self.tolerance > 0.0).then(|| format!("(+-{})", self.tolerance));
        let factor = self.relative_to.map(|span| format!("times that of {span}"));
        let of_arm = self.relative_to_arm.as_ref().map(|arm| format!("times that of `{arm}`"));
        let above = self.minus_arm.as_ref().map(|arm| format!("above that of `{arm}`"));
        let seeds = (self.over_seeds == Some(true)).then(|| "over the seeds".to_owned());
        [at_least, at_most, tolerance, factor, of_arm, above, seeds].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// Whether its bounds are multiples of another measurement.
    pub fn is_ratio(&self) -> bool {
        self.relative_to.is_some() || self.relative_to_arm.is_some()
    }

    /// The arm that it compares with.
    pub fn other_arm(&self) -> Option<&String> {
        self.relative_to_arm.as_ref().or(self.minus_arm.as_ref())
    }

    /// Whether a measurement is within the bounds.
    pub fn allows(&self, measured: f64) -> bool {
        self.at_least.is_none_or(|bound| measured >= bound - self.tolerance)
            && self.at_most.is_none_or(|bound| measured <= bound + self.tolerance)
    }
}

impl Metric {
    /// Its name in scenario files.
    pub fn name(self) -> &'static str {
        match self {
            Metric::AdmittedShare => "admitted_share",
            Metric::RefusedShare => "refused_share",
            Metric::FailedShare => "failed_share",
            Metric::PartOfAdmitted => "part_of_admitted",
            Metric::PartOfRefused => "part_of_refused",
            Metric::OfferedRate => "offered_rate",
            Metric::AdmittedRate => "admitted_rate",
            Metric::RefusedRate => "refused_rate",
            Metric::GoodputRate => "goodput_rate",
            Metric::GoodputWork => "goodput_work",
            Metric::RevenueRate => "revenue_rate",
            Metric::Mean => "mean",
            Metric::P50 => "p50",
            Metric::P90 => "p90",
            Metric::P95 => "p95",
            Metric::P99 => "p99",
            Metric::P90WorstWindow => "p90_worst_window",
            Metric::P95WorstWindow => "p95_worst_window",
            Metric::P95WindowsOver => "p95_windows_over",
            Metric::InFlight => "in_flight",
            Metric::AtWorkMost => "at_work_most",
            Metric::ServersLeast => "servers_least",
            Metric::ServersMost => "servers_most",
            Metric::ServersUsual => "servers_usual",
            Metric::ServersChanges => "servers_changes",
            Metric::Servers => "servers",
            Metric::Sentries => "sentries",
            Metric::Ceiling => "ceiling",
            Metric::SentryCpu => "sentry_cpu",
            Metric::SentrySpread => "sentry_spread",
            Metric::RateLeast => "rate_least",
            Metric::RateLast => "rate_last",
            Metric::RateFall => "rate_fall",
            Metric::RateRise => "rate_rise",
            Metric::RateFallMean => "rate_fall_mean",
            Metric::RateRiseToFall => "rate_rise_to_fall",
            Metric::LimitedShare => "limited_share",
            Metric::RateChangeTime => "rate_change_time",
            Metric::TurnedAway => "turned_away",
            Metric::RefusalCost => "refusal_cost",
            Metric::Power => "power",
        }
    }

    /// Whether it lies between 0 and 1 by its nature.
    pub fn is_share(self) -> bool {
        use Metric::*;
        let of_requests = matches!(self, AdmittedShare | RefusedShare | FailedShare | PartOfAdmitted | PartOfRefused);
        of_requests || matches!(self, P95WindowsOver | LimitedShare)
    }

    /// Whether it is in seconds.
    pub fn is_time(self) -> bool {
        use Metric::*;
        matches!(self, Mean | P50 | P90 | P95 | P99 | P90WorstWindow | P95WorstWindow | Ceiling)
    }

    /// Whether it is in requests per second.
    pub fn is_rate(self) -> bool {
        use Metric::*;
        matches!(self, OfferedRate | AdmittedRate | RefusedRate | GoodputRate | RevenueRate)
    }

    /// Whether it is about the servers of a class rather than its requests.
    pub fn is_of_partition(self) -> bool {
        use Metric::*;
        matches!(self, ServersLeast | ServersMost | ServersUsual | ServersChanges)
    }

    /// Whether it is about a resource's rate.
    pub fn is_of_resource(self) -> bool {
        use Metric::*;
        matches!(self, RateLeast | RateLast | RateFall | RateRise | RateFallMean | RateRiseToFall | LimitedShare)
    }

    /// Whether it looks at windows.
    pub fn has_windows(self) -> bool {
        matches!(self, Metric::P90WorstWindow | Metric::P95WorstWindow | Metric::P95WindowsOver)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Span {
    /// The span with both ends multiplied by `factor`.
    pub fn scale(self, factor: f64) -> Span {
        Span { from: self.from.mul_f64(factor), to: self.to.mul_f64(factor) }
    }

    /// The whole seconds in it; `None` when there is none.
    pub fn whole_seconds(self) -> Option<Span> {
        let from = self.from.as_secs() + u64::from(self.from.subsec_nanos() > 0);
        let to = self.to.as_secs();
        (from < to).then(|| Span { from: Duration::from_secs(from), to: Duration::from_secs(to) })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}s..{}s", self.from.as_secs_f64(), self.to.as_secs_f64()))
    }
}

impl FromStr for Span {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Span, ParseError> {
        let mut cursor = Cursor::new(text);
        let from = cursor.seconds()?;
        cursor.expect("..", "\"..\" and the end of the span, such as 130s..195s")?;
        let at = cursor.position();
        let to = cursor.seconds()?;
        cursor.end("the end of the span")?;
        if to <= from {
            return Err(cursor.error_at(at, "an instant after the span's beginning"));
        }
        Ok(Span { from: Duration::from_secs_f64(from), to: Duration::from_secs_f64(to) })
    }
}

impl TryFrom<String> for Span {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Span, ParseError> {
        text.parse()
    }
}

impl From<Span> for String {
    fn from(span: Span) -> String {
        span.to_string()
    }
}

/// What is wrong with comparisons of arms.
pub(super) fn problems(scenario: &Scenario) -> Vec<Found> {
    let mut found = Vec::new();
    for (at, expect) in scenario.expects.iter().enumerate() {
        let Some(other) = expect.other_arm() else { continue };
        let key = if expect.relative_to_arm.is_some() { "relative_to_arm" } else { "minus_arm" };
        let problem = match scenario.arms.iter().any(|arm| arm.name == *other) {
            false => format!("there is no arm \"{other}\""),
            true if expect.relative_to.is_some() => "stands beside `relative_to`: give one of them".to_owned(),
            true if expect.relative_to_arm.is_some() && expect.minus_arm.is_some() => {
                "stands beside `minus_arm`: give one of them".to_owned()
            }
            true => continue,
        };
        found.push(Found { place: vec![Key("expect"), Index(at), Key(key)], problem });
    }
    found
}

fn five_seconds() -> Duration {
    Duration::from_secs(5)
}

fn yes() -> bool {
    true
}
