//! What is typed of who asks: sessions, tenants, and how long clients wait.

use tidegate_config::{List, PerSecond, Time, section};

section! {
    pub(in crate::config) struct RawAffinity ("in affinity of [[application]]") {
        /// By the value of this cookie. Either this or `header`. Default: none.
        cookie: String,
        /// By the value of this header field. Default: none.
        header: String,
        /// How long a value is remembered after its last request. Default: `"5m"`.
        idle: Time,
        /// How many values are remembered. Default: `65536`.
        keys: u64,
    }
}

section! {
    pub(in crate::config) struct RawTenants ("in tenants of [[application]]") {
        /// `"network"`, an IPv4 address or 64 bits of an IPv6 address; `"certificate"`, the first name in the client's
        /// [certificate](tls.md#client-certificates); `"nobody"`, there are no tenants. Default: `"network"`.
        by: String,
        /// Instead of `by`: the value of this header field, such as an API key. Clients that can invent values escape
        /// their share. Default: none.
        header: String,
        /// Instead of `by`: the value of this cookie; likewise. Default: none.
        cookie: String,
    }
}

section! {
    pub(in crate::config) struct RawTenant ("in [[application.tenant]]") {
        /// What it is called in metrics and on the dashboard. Required.
        name: String,
        /// Values of the header field, cookie or certificate that `tenants` asks for. This or `network`, or both.
        /// Default: none.
        value: List<String>,
        /// Networks of its clients, where a request has no such value; the most specific one of all counts. Default:
        /// none.
        network: List<String>,
        /// Guaranteed rate: up to it requests are admitted without a test. Default: `"0/s"`.
        min_rate: PerSecond,
        /// Requests beyond this rate are refused, whatever the load. Default: none.
        max_rate: PerSecond,
        /// How many times the share of others it gets. Default: `1.0`.
        weight: f64,
    }
}

section! {
    pub(in crate::config) struct RawDeadline ("in deadline of [[application]]") {
        /// A header field of the service's own: a number of `unit`, or a time such as `250ms`. Default: none.
        header: String,
        /// `"us"`, `"ms"`, `"s"`: what a number without a unit counts there. Default: `"ms"`.
        unit: String,
        /// Whether `grpc-timeout` and `x-envoy-expected-rq-timeout-ms` are read, too. Default: `true`.
        well_known: bool,
    }
}
