//! What is typed: every table of the file and its keys, nothing yet filled in or checked against each other.

use toml::de::DeTable;

use super::policy::{AdmissionChoice, DispatchChoice, PartitionChoice};
use super::section::{At, Bytes, Fields, List, PerSecond, Read, Report, Share, Time, Value, section, wrong};

section! {
    /// The file.
    struct RawConfig ("at the top level") {
        access_log: String,
        sentry: RawSentry,
        admin: RawAdmin,
        reports: RawReports,
        control: RawControl,
        application: List<RawApplication>,
    }
}

section! {
    struct RawSentry ("in [sentry]") {
        workers: u64,
        drain: Time,
    }
}

section! {
    struct RawAdmin ("in [admin]") {
        listen: String,
        token: String,
        token_file: String,
    }
}

section! {
    struct RawReports ("in [reports]") {
        listen: String,
        key_file: String,
        silent_after: Time,
        when_silent: String,
    }
}

section! {
    struct RawControl ("in [control]") {
        connect: String,
        key_file: String,
        name: String,
    }
}

section! {
    struct RawApplication ("in [[application]]") {
        name: String,
        listen: List<String>,
        servers: List<RawServer>,
        target: Time,
        sla: RawSla,
        admission: AdmissionChoice,
        dispatch: DispatchChoice,
        partition: PartitionChoice,
        affinity: RawAffinity,
        max_conn: List<RawMaxConn>,
        shadow: bool,
        default_cost: Time,
        when_all_down: String,
        class: List<RawClass>,
        request_type: List<RawType>,
        exempt: List<RawRule>,
        timeouts: RawTimeouts,
        limits: RawLimits,
        health: RawHealth,
        retry: RawRetry,
        pool: RawPool,
        forwarded: RawForwarded,
        rejection: RawRejection,
    }
}

section! {
    struct RawAffinity ("in affinity of [[application]]") {
        cookie: String,
        header: String,
        idle: Time,
        keys: u64,
    }
}

section! {
    struct RawMaxConn ("in [[application.max_conn]]") {
        name: String,
        request_types: List<String>,
        within_target: f64,
        most: f64,
    }
}

section! {
    struct RawServerTable ("in servers of [[application]]") {
        name: String,
        address: String,
        role: String,
        cores: f64,
        weight: f64,
        max_connections: u64,
    }
}

/// A server: its address, or a table.
#[derive(Clone, Debug)]
pub(super) struct RawServer(pub(super) RawServerTable);

impl Read for RawServer {
    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        if let Some(address) = value.get_ref().as_str() {
            let address = At { value: address.to_owned(), span: value.span() };
            return Some(RawServer(RawServerTable { address: Some(address), ..RawServerTable::default() }));
        }
        match value.get_ref().as_table() {
            Some(table) => Some(RawServer(RawServerTable::read_table(table, report))),
            None => wrong(value, key, "addresses such as \"127.0.0.1:9001\", or tables with an address", report),
        }
    }
}

section! {
    struct RawSla ("in sla of [[application]]") {
        statistic: String,
        target: Time,
        steps: List<RawStep>,
    }
}

section! {
    struct RawStep ("in steps of sla") {
        below: PerSecond,
        target: Time,
    }
}

section! {
    struct RawClass ("in [[application.class]]") {
        name: String,
        revenue: f64,
        min_rate: PerSecond,
        burst: f64,
        page: String,
        r#match: List<RawRule>,
    }
}

section! {
    struct RawType ("in [[application.request_type]]") {
        name: String,
        r#match: List<RawRule>,
        tags: List<String>,
    }
}

section! {
    struct RawRule ("in a match rule") {
        method: List<String>,
        host: List<String>,
        path: String,
        path_prefix: String,
        path_glob: String,
        header: List<RawValueMatch>,
        cookie: List<RawValueMatch>,
        network: List<String>,
    }
}

section! {
    struct RawValueMatch ("in header or cookie of a match rule") {
        name: String,
        value: String,
        prefix: String,
        contains: String,
    }
}

section! {
    struct RawTimeouts ("in [application.timeouts]") {
        header: Time,
        body_idle: Time,
        connect: Time,
        first_byte: Time,
        request: Time,
        client_idle: Time,
        server_idle: Time,
    }
}

section! {
    struct RawLimits ("in [application.limits]") {
        header_bytes: Bytes,
        headers: u64,
        body_bytes: Bytes,
        connections: u64,
        waiting: u64,
    }
}

section! {
    struct RawHealth ("in [application.health]") {
        path: String,
        interval: Time,
        timeout: Time,
        rise: u64,
        fall: u64,
        passive_failures: u64,
    }
}

section! {
    struct RawRetry ("in [application.retry]") {
        attempts: u64,
        budget: Share,
    }
}

section! {
    struct RawPool ("in [application.pool]") {
        idle_per_server: u64,
    }
}

section! {
    struct RawForwarded ("in [application.forwarded]") {
        x_forwarded: bool,
        forwarded: bool,
        request_id: bool,
        trust: List<String>,
    }
}

section! {
    struct RawRejection ("in [application.rejection]") {
        status: u64,
        page: String,
        decision_on_admitted: bool,
    }
}
