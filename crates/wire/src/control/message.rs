//! Messages between sentries and the control plane, as JSON. Fields may be added; unknown ones are skipped.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Messages from a sentry to the control plane.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FromSentry {
    /// The first thing it says.
    Hello(Hello),
    /// Once in every period.
    Report(Report),
    /// It stops on purpose: its servers go to others at once.
    Goodbye,
}

/// The control plane speaks.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FromControl {
    /// The sentry is registered.
    Welcome {
        /// How often it is to report, milliseconds.
        period_ms: u64,
        /// From now on it hears [`Here`](FromControl::Here) in every period. Older control planes do not say it.
        #[serde(default)]
        is_told: bool,
    },
    /// Nothing more than that it is still there: a connection is silent, too, when its other end is gone. Said to those
    /// that asked for it only, as older sentries do not know the word.
    Here,
    /// It is not; the connection ends.
    Refused {
        /// Why, and what to do.
        why: String,
        /// Another control plane leads, or will: the sentry's other addresses are worth a try at once.
        #[serde(default)]
        waits: bool,
    },
    /// What it is to work with from now on.
    Orders(Orders),
}

/// Who a sentry is.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Hello {
    /// Its name, one of its own among all sentries.
    pub sentry: String,
    /// Drawn anew at each start: tells a restart from a second sentry of the same name.
    pub instance: u64,
    /// Where clients reach it: application and address; an unspecified address stands for where it connects from.
    #[serde(default)]
    pub addresses: Vec<(String, IpAddr)>,
    /// Its applications, by name, and how many classes each has.
    pub applications: Vec<(String, usize)>,
    /// It asks to be told in every period that the control plane is there.
    #[serde(default)]
    pub asks: bool,
}

/// What a sentry saw since its last report.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Report {
    /// How long that was, seconds.
    pub seconds: f64,
    /// Share of the sentry's own processors in use, 0 to 1.
    pub cpu: f64,
    /// The newest orders that it works by: term and revision; zeros for none.
    pub applied: (u64, u64),
    /// Measurements of each application.
    pub applications: Vec<ApplicationSeen>,
}

/// What a sentry saw of one application.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ApplicationSeen {
    /// Its name.
    pub name: String,
    /// Requests that arrived, per class, most important first: before anything was refused.
    pub offered: Vec<u64>,
    /// Requests of these that were refused.
    pub refused: u64,
    /// Mean share of its servers' processors in use, 0 to 1.
    pub busy: f64,
    /// Mean inherent service time, seconds, once known.
    pub mean_service: Option<f64>,
    /// Coefficient of variation of inherent service times, once known; older sentries do not say it.
    #[serde(default)]
    pub service_variation: Option<f64>,
    /// Coefficient of variation of the time between arrivals, once known.
    #[serde(default)]
    pub arrival_variation: Option<f64>,
    /// Effective processors of a server, once known.
    pub processors: Option<f64>,
    /// Its servers, those that drain included.
    pub servers: Vec<ServerSeen>,
}

/// What a sentry sees of a server; what the server's nucleus says is in it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ServerSeen {
    /// Its name.
    pub name: String,
    /// `up`, `down` or `draining`.
    pub status: String,
    /// Requests in flight there.
    pub in_flight: u32,
}

/// What a sentry is to work with. Always complete: what is not in it is not the sentry's any more.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Orders {
    /// Counts up with every start of a control plane on its store: of two, the older one is not listened to.
    pub term: u64,
    /// Counts up with every change within a term.
    pub revision: u64,
    /// Orders for each application.
    pub applications: Vec<ApplicationOrders>,
}

/// What a sentry is to work with, of one application.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ApplicationOrders {
    /// Its name.
    pub name: String,
    /// The servers it has.
    pub servers: Vec<ServerOrder>,
    /// The target to keep.
    pub target: TargetOrder,
    /// Capacity that was asked for and is not there yet, soonest first.
    pub coming: Vec<Coming>,
}

/// A server to work with.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ServerOrder {
    /// Its name.
    pub name: String,
    /// Address of the server, `host:port`.
    pub address: String,
}

/// A target as a step function of the offered rate.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct TargetOrder {
    /// The statistic that it bounds: `mean`, `p90`, `p95` or `p99`.
    pub statistic: String,
    /// Its steps, the last one without a bound.
    pub steps: Vec<Step>,
}

/// One step of a target.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Step {
    /// It holds below this rate, requests per second; `None`: at every rate.
    pub below: Option<f64>,
    /// Response-time target in milliseconds.
    pub target_ms: f64,
}

/// Capacity on its way.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Coming {
    /// From when the orders were sent until it serves, milliseconds.
    pub in_ms: u64,
    /// How much, in full servers' worth.
    pub servers: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_older_neither_asks_nor_tells_that_it_is_there() {
        let hello = r#"{"kind":"hello","sentry":"a","instance":1,"applications":[["shop",2]]}"#;
        let FromSentry::Hello(hello) = serde_json::from_str(hello).expect("a hello") else { panic!("another word") };
        assert!(!hello.asks);
        let welcome: FromControl = serde_json::from_str(r#"{"kind":"welcome","period_ms":1000}"#).expect("a welcome");
        assert_eq!(welcome, FromControl::Welcome { period_ms: 1000, is_told: false });
    }
}
