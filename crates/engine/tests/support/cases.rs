//! Every policy of the table, with default settings and with others.

use std::time::Duration;

use tidegate_engine::{
    AdmissionConfig, Affinity, Bounds, Cancel, ClassSetup, DispatchConfig, MaxConn, PartitionConfig, Role, Seconds,
    ServerSetup, Setup, Sla, Statistic, Step, WhenAllDown,
};

/// Settings besides the defaults, as in a configuration file.
const VARIANTS: &[&str] = &[
    r#"{ "policy": "concurrency", "limit": 6, "queue": 8, "queue_timeout": "300ms" }"#,
    r#"{ "policy": "codel", "limit": 6, "queue": 8, "target": "20ms", "interval": "200ms" }"#,
    r#"{ "policy": "codel", "limit": 3, "lifo": false }"#,
    r#"{ "policy": "aimd-limit", "initial_limit": 4, "min_limit": 1, "max_limit": 9, "timeout": "200ms" }"#,
    r#"{ "policy": "aimd", "targets": { "default": "200ms" },
         "controller": { "samples": 5, "timeout": "300ms", "initial_rate": 20, "depth": 3, "lag": 2 } }"#,
    r#"{ "policy": "aimd", "single": true,
         "controller": { "samples": 3, "lower_own_always": true, "quality": { "min": 0.5 } } }"#,
    r#"{ "policy": "vegas", "initial_limit": 2, "smoothing": 0.5, "probe_multiplier": 1 }"#,
    r#"{ "policy": "gradient2", "initial_limit": 3, "min_limit": 1, "window": "100ms", "window_samples": 1 }"#,
    r#"{ "policy": "gradient", "min_concurrency": 1, "min_rtt_requests": 3, "min_rtt_interval": "500ms",
         "update_interval": "20ms", "percentile": 0.95 }"#,
    r#"{ "policy": "gradient", "fixed_min_rtt": "50ms" }"#,
    r#"{ "policy": "dagor", "threshold": "1ms", "window": "200ms", "window_requests": 10, "alpha": 0.5 }"#,
    r#"{ "policy": "bouncer", "parallelism": 3, "interval": "200ms", "samples": 3, "allowance": 0.1,
         "underserved": 1.0, "median_target": "100ms" }"#,
    r#"{ "policy": "brpc", "initial_limit": 4, "min_limit": 1, "window": "100ms", "min_samples": 2, "max_samples": 5,
         "remeasure_interval": "1s" }"#,
    r#"{ "policy": "bbr", "window": "1s", "buckets": 5, "cpu_threshold": 0.1, "cpu_smoothing": 0.2 }"#,
    r#"{ "policy": "failsafe", "initial_limit": 3, "min_window": "100ms", "min_samples": 2, "calibration": "100ms",
         "initial_rejection_factor": 1.0, "recent_levels": 10, "max_wait": "200ms" }"#,
    r#"{ "policy": "netflix-partition", "shares": [0.6, 0.2],
         "limit": { "initial_limit": 3, "min_limit": 1, "window": "100ms", "window_samples": 1 } }"#,
    r#"{ "policy": "resource", "period": "200ms", "shares": [5, 1],
         "resources": [{ "name": "cpu", "control": { "initial_rate": 12, "max_rate": 40, "depth": 2 } },
         { "name": "disk" }, { "name": "memory", "control": { "reference": 50, "derivative": 0.1 } }] }"#,
    r#"{ "policy": "resource", "tags": "learn", "connections": false }"#,
    r#"{ "policy": "batch", "order": "fifo" }"#,
    r#"{ "policy": "batch", "order": "fair" }"#,
    r#"{ "policy": "batch", "partial": false, "delays": ["0ms", "50ms", "100ms"] }"#,
    r#"{ "policy": "batch", "delays": ["20ms"], "max_waiting": 5, "calibrate": false, "headroom": 1.0 }"#,
    r#"{ "policy": "cataclysm-batch", "delays": ["20ms"], "max_waiting": 5 }"#,
    r#"{ "policy": "cataclysm-threshold", "period": "1s" }"#,
    r#"{ "policy": "waiting", "order": "fifo" }"#,
    r#"{ "policy": "waiting", "order": "fair" }"#,
    r#"{ "policy": "threshold", "period": "15s", "drain": false }"#,
    r#"{ "policy": "threshold", "fixed": 0.5 }"#,
    r#"{ "policy": "sentry", "hold": "2s", "batch": { "delays": ["0ms", "30ms"] },
         "threshold": { "period": "200ms" } }"#,
];

/// Policies that share servers out among classes, beside each of these admission policies.
const DIVIDED: &[(&str, &str)] = &[
    ("switch", r#"{ "policy": "static", "shares": [0.2] }"#),
    ("switch", r#"{ "policy": "dynamic", "period": "200ms", "dead_band": 0.0 }"#),
    ("none", r#"{ "policy": "dynamic", "shares": [0.5, 0.5], "least": [2], "period": "100ms" }"#),
    ("sentry", r#"{ "policy": "static" }"#),
    ("concurrency", r#"{ "policy": "dynamic" }"#),
];

/// An application to put under test.
#[derive(Clone, Debug)]
pub struct Case {
    /// What to call it in a message.
    pub name: String,
    /// The setup it starts with.
    pub setup: Setup,
}

/// Every admission policy with every dispatch policy, every variant with half of them in turn; every partition policy
/// with some, and with sessions that stay.
pub fn all() -> Vec<Case> {
    let defaults = AdmissionConfig::NAMES.iter().map(|name| {
        let policy = AdmissionConfig::from_name(name).expect("a name of the table");
        (String::from(*name), policy)
    });
    let defaults: Vec<(String, AdmissionConfig)> = defaults.collect();
    let variants = VARIANTS.iter().enumerate().flat_map(|(at, text)| {
        let dispatches = DispatchConfig::NAMES.iter().cycle().skip(at).take(DispatchConfig::NAMES.len().div_ceil(2));
        dispatches.map(|dispatch| case(&one_line(text), &admission(text), dispatch)).collect::<Vec<_>>()
    });
    let with_dispatch = |(name, policy): &(String, AdmissionConfig)| {
        DispatchConfig::NAMES.iter().map(|dispatch| case(name, policy, dispatch)).collect::<Vec<_>>()
    };
    let stealing = AdmissionConfig::NAMES.iter().map(|name| {
        let policy = AdmissionConfig::from_name(name).expect("a name of the table");
        stealing(name, &policy)
    });
    let divided = DIVIDED.iter().flat_map(|&(name, partition)| {
        let policy = AdmissionConfig::from_name(name).expect("a name of the table");
        let cases = with_dispatch(&(format!("{name} + {partition}"), policy));
        let cases = cases.into_iter().filter(|case| case.setup.dispatch.name() != "softscale");
        cases.map(|case| with_partition(case, partition)).collect::<Vec<_>>()
    });
    defaults.iter().flat_map(with_dispatch).chain(variants).chain(stealing).chain(divided).collect()
}

/// The same three servers and two data servers, which lend by a profile that few requests run through.
fn stealing(name: &str, policy: &AdmissionConfig) -> Case {
    let profile = r#"{ "policy": "softscale", "n_app": 2, "peak": "100/s", "steps": [
        { "below": 0.2, "n_data": 4, "cores": 3 }, { "below": 0.5, "n_data": 2, "cores": 2 },
        { "below": 0.8, "n_data": 1, "cores": 1 }] }"#;
    let dispatch = serde_json::from_str(profile).unwrap_or_else(|error| panic!("{profile}: {error}"));
    let mut setup = Setup { admission: policy.clone(), dispatch, ..setup() };
    let data = |name| ServerSetup { role: Role::Data, cores: Some(4.0), ..ServerSetup::new(name) };
    setup.servers.extend(["d", "e"].map(data));
    Case { name: format!("{name} + softscale with data servers"), setup }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a policy does what a paper says and no more: what is ours beyond the papers need not hold of it. It refuses
/// for ever what is foreseen to take longer than the target, and knows no retries.
pub fn is_as_published(policy: &str) -> bool {
    policy.starts_with("cataclysm-")
}

/// An admission policy from its JSON.
pub fn admission(text: &str) -> AdmissionConfig {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The case of an admission policy, under the first dispatch policy.
pub fn of(policy: AdmissionConfig) -> Case {
    case(policy.name(), &policy, DispatchConfig::NAMES[0])
}

fn with_partition(mut case: Case, partition: &str) -> Case {
    case.setup.partition = serde_json::from_str(partition).unwrap_or_else(|error| panic!("{partition}: {error}"));
    case.setup.affinity = Some(Affinity { idle: Seconds(0.5), keys: 8 });
    let kind = |name: &str, within_target, most| MaxConn {
        name: name.into(),
        request_types: vec![name.into()],
        within_target,
        most,
    };
    case.setup.max_conn = vec![kind("default", 8.0, 12.0), kind("search", 2.0, 3.5)];
    case
}

fn case(name: &str, policy: &AdmissionConfig, dispatch: &str) -> Case {
    let dispatch = DispatchConfig::from_name(dispatch).expect("a name of the table");
    let name = format!("{name} + {}", dispatch.name());
    Case { name, setup: Setup { admission: policy.clone(), dispatch, ..setup() } }
}

/// Three classes, the first with a guarantee; three servers, of which one is known, one limited and one plain.
fn setup() -> Setup {
    let steps = [(50.0, 300), (f64::INFINITY, 500)];
    let step = |(below, ms)| Step { below, target: Duration::from_millis(ms) };
    let sla = Sla::new(Statistic::P95, steps.map(step).to_vec()).expect("growing steps");
    let mut setup = Setup::simple("case", sla, ["a", "b", "c"].map(ServerSetup::new));
    setup.classes = ["gold", "silver", "bronze"].map(ClassSetup::new).to_vec();
    (setup.classes[0].min_rate, setup.classes[0].burst) = (2.0, 2.0);
    setup.request_types = ["default", "search", "report"].map(String::from).to_vec();
    setup.tags = vec!["cpu".into()];
    setup.servers[0].cores = Some(2.0);
    setup.servers[1].max_connections = Some(20);
    setup.servers[2].weight = 2.5;
    setup.most_open = 6;
    setup.cancel = Cancel::Runaways;
    setup
}

/// Another setup for a running controller: each number changes something else.
pub fn reconfigured(mut setup: Setup, which: u8) -> Setup {
    match which % 11 {
        0 => {}
        1 => setup.servers.truncate(1),
        2 => setup.servers = ["a", "b", "c"].map(ServerSetup::new).to_vec(),
        3 => setup.servers.rotate_left(1),
        4 => setup.classes = ["gold", "bronze"].map(ClassSetup::new).to_vec(),
        5 => setup.classes = ["bronze", "new", "gold", "silver"].map(ClassSetup::new).to_vec(),
        6 => {
            let at = AdmissionConfig::NAMES.iter().position(|name| *name == setup.admission.name()).unwrap_or(0);
            let next = AdmissionConfig::NAMES[(at + 1) % AdmissionConfig::NAMES.len()];
            setup.admission = AdmissionConfig::from_name(next).expect("a name of the table");
        }
        7 => {
            let other = if setup.dispatch.name() == "jsq" { "wrr" } else { "jsq" };
            setup.dispatch = DispatchConfig::from_name(other).expect("a name of the table");
        }
        8 => {
            let sla = Sla::constant(Statistic::Mean, Duration::from_millis(200)).expect("more than zero");
            setup.sla = sla.bounding(Bounds::FirstByte);
            setup.request_types.truncate(1);
            setup.max_conn.truncate(1);
        }
        9 => {
            setup.partition = PartitionConfig::from_name("dynamic").expect("a name of the table");
            if setup.dispatch.name() == "softscale" {
                setup.dispatch = DispatchConfig::from_name("jsq").expect("a name of the table");
            }
        }
        _ => setup.when_all_down = WhenAllDown::Refuse,
    }
    setup
}
