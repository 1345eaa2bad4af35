//! `/metrics`: everything there is to see, as OpenMetrics text, gathered when it is asked for.
//!
//! Nothing is counted twice: the numbers come from the engine's snapshots and the data path's counters at the moment
//! of the scrape, and cost the workers nothing between scrapes. Labels are names from the configuration and fixed
//! lists only, so clients cannot make new series. `docs/metrics.md` lists the names.

mod acme;
pub(crate) mod controllers;
mod datagrams;
mod family;
mod handshakes;
mod health;
mod help;
mod peers;
pub mod plain;
mod resources;
mod sources;
pub(crate) mod stealing;
mod tenants;
mod work;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Registry, Unit};
use tidegate_engine::{ClassId, ClassSnapshot, Reason, ServerSnapshot, Snapshot, Status};

use self::help::counter_help;
use crate::app::App;
use crate::board::{Board, cpu_time};
use crate::counters::{COUNTERS, Counter};
use crate::gate::head::Bad;
use crate::need::servers_needed;
use crate::reports::{Division, NucleusState, View};
use family::{Families, Labels};

/// The media type of [`render`]'s text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of the process, now.
pub fn render(board: &Arc<Board>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape { board: board.clone() }));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Scrape {
    board: Arc<Board>,
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let apps = self.board.applications();
        let all: Vec<Seen> = apps.iter().map(|app| Seen { app: app.clone(), snapshot: app.snapshot() }).collect();
        let mut out = Families::new(encoder);
        process(&mut out, &self.board)?;
        application(&mut out, &all)?;
        policy(&mut out, &all)?;
        classes(&mut out, &all)?;
        tenants::write(&mut out, &all)?;
        servers(&mut out, &all)?;
        health::write(&mut out, &all)?;
        acme::write(&mut out, &all)?;
        reports(&mut out, &self.board)?;
        peers::write(&mut out, &self.board)?;
        control(&mut out, &self.board)?;
        sources::write(&mut out, &self.board)?;
        data_path(&mut out, &all)
    }
}

/// One application at the moment of the scrape.
struct Seen {
    app: Arc<App>,
    snapshot: Snapshot,
}

impl Seen {
    fn labels(&self) -> Labels<'_> {
        Labels::new("application", &self.snapshot.application)
    }
}

fn process(out: &mut Families<'_>, board: &Board) -> fmt::Result {
    let none = || std::iter::once(Labels::default());
    let (reloads, failures) = board.reload_counts();
    out.info("tidegate_build", "The program.", [Labels::new("version", env!("CARGO_PKG_VERSION"))])?;
    out.gauge(
        "tidegate_uptime",
        "Time since the start.",
        Some(Unit::Seconds),
        none().map(|l| (l, board.uptime().as_secs_f64())),
    )?;
    out.counter_f64(
        "tidegate_process_cpu",
        "Processor time used.",
        Some(Unit::Seconds),
        none().map(|l| (l, cpu_time().as_secs_f64())),
    )?;
    out.gauge(
        "tidegate_process_cpus_busy",
        "Processors in use over the last second.",
        None,
        none().map(|l| (l, board.cpu())),
    )?;
    out.gauge("tidegate_draining", "1 while shutting down.", None, none().map(|l| (l, flag(board.draining()))))?;
    out.counter(
        "tidegate_config_reloads",
        "Configurations put in force since the start.",
        none().map(|l| (l, reloads)),
    )?;
    out.counter(
        "tidegate_config_reload_failures",
        "Configurations refused since the start.",
        none().map(|l| (l, failures)),
    )?;
    let upgrade_failures = board.upgrade_failures();
    out.counter(
        "tidegate_upgrade_failures",
        "Successors that did not take over since the start.",
        none().map(|l| (l, upgrade_failures)),
    )?;
    let dropped = board.dropped_records();
    out.counter(
        "tidegate_access_log_dropped",
        "Access log lines dropped because the disk could not follow.",
        none().map(|l| (l, dropped)),
    )
}

fn application(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    type Value = fn(&Snapshot) -> f64;
    let gauges: [(&str, &str, Option<Unit>, Value); 8] = [
        ("tidegate_target", "The SLA's target at the current arrival rate.", Some(Unit::Seconds), |s| s.target),
        ("tidegate_shadow", "1 while refusals are only counted.", None, |s| flag(s.shadow)),
        ("tidegate_in_flight", "At work at servers.", None, |s| s.in_flight as f64),
        ("tidegate_hanging", "Of these, those that servers do not seem to work on.", None, |s| s.hanging as f64),
        ("tidegate_waiting", "Waiting in class queues.", None, |s| s.waiting as f64),
        ("tidegate_processors", "Effective processors of the servers that are up.", None, |s| s.processors),
        ("tidegate_calibration", "The SLA's statistic over the prediction from means.", None, |s| s.calibration),
        ("tidegate_cost_table_urls", "URLs in the cost table.", None, |s| s.urls as f64),
    ];
    for (name, help, unit, value) in gauges {
        out.gauge(name, help, unit, all.iter().map(|seen| (seen.labels(), value(&seen.snapshot))))?;
    }
    let needed = all.iter().filter_map(|seen| {
        let live = seen.app.live();
        Some((seen.labels(), f64::from(servers_needed(&seen.snapshot, &live.config.setup.sla)?)))
    });
    let help = "Servers that what is offered needs, so that nearly nothing is refused; absent: not known.";
    out.gauge("tidegate_servers_needed", help, None, needed)?;
    let events = |seen: &Seen| seen.app.events.recent().last().map_or(0, |last| last.number + 1);
    out.counter("tidegate_events", "Events of the engine.", all.iter().map(|seen| (seen.labels(), events(seen))))?;
    let stale = |seen: &Seen| seen.snapshot.stale_tickets;
    out.counter(
        "tidegate_stale_tickets",
        "Tickets used after their end: a fault of the program if not 0.",
        all.iter().map(|seen| (seen.labels(), stale(seen))),
    )
}

fn policy(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    // A gauge, not an info: the active part changes while the series lives.
    out.gauge(
        "tidegate_policy",
        "The policies in force; always 1.",
        None,
        all.iter().map(|seen| (policy_labels(seen), 1.0)),
    )?;
    let limit = all.iter().filter_map(|seen| Some((seen.labels(), seen.snapshot.policy.limit?)));
    out.gauge("tidegate_policy_limit", "Limit on requests in flight.", None, limit)?;
    let shares = all.iter().flat_map(shares);
    out.gauge("tidegate_policy_admit_ratio", "Share of the class that the threshold admits.", None, shares)?;
    let delays = all.iter().flat_map(|seen| {
        let delays = seen.snapshot.policy.delays.iter();
        delays.zip(&seen.snapshot.classes).map(|(delay, class)| (seen.labels().and("class", &class.name), *delay))
    });
    out.gauge("tidegate_policy_delay", "Delay d_i of the class's batches.", Some(Unit::Seconds), delays)?;
    let full = all.iter().filter_map(|seen| Some((seen.labels(), seen.snapshot.policy.full?)));
    out.gauge("tidegate_policy_full_ratio", "Measured probability that the system is full.", None, full)?;
    let more = all.iter().flat_map(|seen| {
        let more = seen.snapshot.policy.more.iter();
        more.map(|(name, value)| (seen.labels().and("name", name), *value))
    });
    out.gauge("tidegate_policy_value", "More of what the policy shows of itself.", None, more)?;
    controllers::write(out, all)?;
    resources::write(out, all)?;
    stealing::write(out, all)
}

fn policy_labels(seen: &Seen) -> Labels<'_> {
    let policy = &seen.snapshot.policy;
    let labels = seen.labels().and("admission", policy.policy).and("active", policy.active);
    labels.and("dispatch", seen.snapshot.dispatch)
}

/// What a threshold means for each class: above it all, below it none.
fn shares(seen: &Seen) -> Vec<(Labels<'_>, f64)> {
    let Some((at, share)) = seen.snapshot.policy.threshold else { return Vec::new() };
    let share_of = |index: usize| match index.cmp(&usize::from(at)) {
        std::cmp::Ordering::Less => 1.0,
        std::cmp::Ordering::Equal => share,
        std::cmp::Ordering::Greater => 0.0,
    };
    let classes = seen.snapshot.classes.iter().enumerate();
    classes.map(|(index, class)| (seen.labels().and("class", &class.name), share_of(index))).collect()
}

/// Every class with its labels.
fn per_class(all: &[Seen]) -> impl Iterator<Item = (Labels<'_>, &ClassSnapshot)> {
    all.iter()
        .flat_map(|seen| seen.snapshot.classes.iter().map(|class| (seen.labels().and("class", &class.name), class)))
}

fn classes(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    type Count = fn(&ClassSnapshot) -> u64;
    let counters: [(&str, &str, Count); 10] = [
        ("tidegate_requests_offered", "Requests that arrived.", |c| c.offered),
        ("tidegate_requests_retried", "Of these, those that were tried before.", |c| c.retries),
        ("tidegate_requests_admitted", "Requests sent to a server.", |c| c.admitted),
        ("tidegate_requests_guaranteed", "Requests admitted by the class's guarantee.", |c| c.guaranteed),
        ("tidegate_requests_completed", "Requests answered.", |c| c.completed),
        ("tidegate_requests_goodput", "Requests answered within the target.", |c| c.in_target),
        ("tidegate_requests_failed", "Requests that a server failed or a time-out ended.", |c| c.failed),
        ("tidegate_requests_runaway", "Of these, those that the controller ended.", |c| c.runaways),
        ("tidegate_requests_refused_below", "Of those that failed, those that a service further down refused.", |c| {
            c.refused_below
        }),
        ("tidegate_requests_cancelled", "Requests whose client left.", |c| c.cancelled),
    ];
    for (name, help, count) in counters {
        out.counter(name, help, per_class(all).map(|(labels, class)| (labels, count(class))))?;
    }
    // Every reason is there from the start: a rate needs a first sample of 0.
    let rejected = per_class(all).flat_map(|(labels, class)| {
        Reason::ALL.into_iter().map(move |reason| {
            let count = class.rejected.iter().find(|(name, _)| *name == reason.name()).map_or(0, |(_, count)| *count);
            (labels.clone().and("reason", reason.name()), count)
        })
    });
    out.counter("tidegate_requests_rejected", "Requests refused (in shadow mode: that would have been).", rejected)?;
    type Value = fn(&ClassSnapshot) -> f64;
    let gauges: [(&str, &str, Option<Unit>, Value); 7] = [
        ("tidegate_class_in_flight", "At work at servers.", None, |c| c.in_flight as f64),
        ("tidegate_class_ghosts", "Of these, those that nobody waits for any more.", None, |c| c.ghosts as f64),
        ("tidegate_class_streams", "Streams and long polls that are open.", None, |c| c.streams as f64),
        ("tidegate_class_tunnels", "Tunnels that are open.", None, |c| c.tunnels as f64),
        ("tidegate_class_waiting", "Waiting in the class queue.", None, |c| c.waiting as f64),
        ("tidegate_class_offered_per_second", "Smoothed arrival rate.", None, |c| c.offered_rate),
        ("tidegate_class_cost", "Mean inherent service time.", Some(Unit::Seconds), |c| c.mean_cost),
    ];
    for (name, help, unit, value) in gauges {
        out.gauge(name, help, unit, per_class(all).map(|(labels, class)| (labels, value(class))))?;
    }
    let percentiles = per_class(all).flat_map(|(labels, class)| {
        let percentiles = [("50", class.p50), ("95", class.p95), ("99", class.p99)];
        percentiles.into_iter().filter_map(move |(p, value)| Some((labels.clone().and("percentile", p), value?)))
    });
    let help = "Response time of admitted requests over the last half minute or so.";
    out.gauge("tidegate_response_time", help, Some(Unit::Seconds), percentiles)?;
    let own = all.iter().flat_map(|seen| {
        let statistic = seen.app.live().config.setup.sla.statistic().name();
        let classes = seen.snapshot.classes.iter();
        classes.filter_map(move |class| {
            Some((seen.labels().and("class", &class.name).and("statistic", statistic), class.statistic?))
        })
    });
    let help = "The SLA's own statistic of these response times: what its target bounds.";
    out.gauge("tidegate_sla_response_time", help, Some(Unit::Seconds), own)?;
    let live: Vec<_> = all.iter().map(|seen| seen.app.live()).collect();
    let histograms = all.iter().zip(&live).flat_map(|(seen, live)| {
        let classes = live.config.setup.classes.iter().enumerate();
        classes.filter_map(|(index, class)| {
            let times = live.times(ClassId(index as u8))?;
            Some((seen.labels().and("class", &class.name), times.histogram()))
        })
    });
    let help = "Response time of admitted requests, from arrival to the last byte handed to the client.";
    out.histogram("tidegate_response_duration", help, Some(Unit::Seconds), histograms)?;
    work::write(out, all)
}

fn servers(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    type Value = fn(&ServerSnapshot) -> f64;
    let gauges: [(&str, &str, Value); 7] = [
        ("tidegate_server_up", "1 when the server takes requests.", |s| flag(s.status == Status::Up)),
        ("tidegate_server_in_flight", "Requests in flight at the server.", |s| f64::from(s.in_flight)),
        ("tidegate_server_streams", "Streams and long polls open at the server.", |s| f64::from(s.streams)),
        ("tidegate_server_tunnels", "Tunnels open at the server.", |s| f64::from(s.tunnels)),
        ("tidegate_server_processors", "The server's effective processors, given or learned.", |s| s.processors),
        ("tidegate_server_learned", "1 once the effective processors are learned or given.", |s| flag(s.learned)),
        ("tidegate_server_confidence", "Completions that the learned value stands on.", |s| s.confidence),
    ];
    let per_server = || {
        all.iter().flat_map(|seen| {
            let servers = seen.snapshot.servers.iter().filter(|server| server.status != Status::Removed);
            servers.map(|server| (seen.labels().and("server", &server.name), server))
        })
    };
    for (name, help, value) in gauges {
        out.gauge(name, help, None, per_server().map(|(labels, server)| (labels, value(server))))?;
    }
    Ok(())
}

/// Nuclei, by their server's address, and what became of datagrams.
fn reports(out: &mut Families<'_>, board: &Board) -> fmt::Result {
    let view = board.reports();
    let nuclei = view.map(View::nuclei).unwrap_or_default();
    let per_nucleus = |value: fn(&Nucleus) -> Option<f64>| {
        nuclei.iter().filter_map(move |nucleus| Some((Labels::new("address", &nucleus.0), value(nucleus)?)))
    };
    let speaks = per_nucleus(|nucleus| Some(flag(nucleus.1 == NucleusState::Speaks)));
    out.gauge("tidegate_nucleus_speaks", "1 while the server's nucleus reports.", None, speaks)?;
    let help = "Time since the nucleus's last report.";
    out.gauge("tidegate_nucleus_age", help, Some(Unit::Seconds), per_nucleus(|nucleus| nucleus.2))?;
    divisions(out, &view.map(View::divisions).unwrap_or_default())?;
    let taken = ("tidegate_reports_taken", "Datagrams of nuclei that were taken.");
    let ignored = ("tidegate_reports_ignored", "Datagrams that were ignored, by reason.");
    datagrams::write(out, view.map(View::counts), taken, ignored)
}

/// How the cores of data servers are divided, by their address.
fn divisions(out: &mut Families<'_>, all: &[(String, Division)]) -> fmt::Result {
    type Value = fn(&Division) -> Option<f64>;
    let gauges: [(&str, &str, Option<Unit>, Value); 5] = [
        ("tidegate_isolation_wanted_cores", "Cores that application work is to have.", None, |d| {
            Some(f64::from(d.wanted))
        }),
        ("tidegate_isolation_cores", "Cores that application work has to itself.", None, |d| {
            Some(f64::from(d.in_force?))
        }),
        ("tidegate_isolation_age", "Time since the division changed.", Some(Unit::Seconds), |d| d.age),
        ("tidegate_isolation_move", "Time that the last move took.", Some(Unit::Seconds), |d| d.move_seconds),
        ("tidegate_isolation_problem", "1 while the cores cannot be divided and nothing is stolen.", None, |d| {
            Some(flag(d.problem.is_some()))
        }),
    ];
    for (name, help, unit, value) in gauges {
        let values =
            all.iter().filter_map(|(address, division)| Some((Labels::new("address", address), value(division)?)));
        out.gauge(name, help, unit, values)?;
    }
    let problems = all.iter().map(|(address, division)| (Labels::new("address", address), division.problems));
    out.counter("tidegate_isolation_problems", "How often a server became unable to lend.", problems)
}

/// Address, state, seconds since the last report.
type Nucleus = (String, NucleusState, Option<f64>);

/// What the data path counts. Counters that come in kinds become one family with a label.
fn data_path(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    let labelled = [
        ("handshakes", "outcome", "tidegate_handshakes", "TLS handshakes, by what came of them."),
        ("status", "code", "tidegate_responses", "Answers to clients, by status."),
        ("timeout", "kind", "tidegate_timeouts", "Time-outs, by kind."),
    ];
    for (prefix, label, name, help) in labelled {
        let samples = all.iter().flat_map(|seen| {
            COUNTERS.iter().filter_map(move |(counter, counted)| {
                let kind = counted.strip_prefix(prefix)?.strip_prefix('_')?;
                Some((seen.labels().and(label, kind), seen.app.counters.get(*counter)))
            })
        });
        out.counter(name, help, samples)?;
    }
    handshakes::write(out, all)?;
    let is_family =
        |name: &str| name.starts_with("nanos") || labelled.iter().any(|(prefix, ..)| name.starts_with(prefix));
    let single = COUNTERS.iter().filter(|(_, name)| !is_family(name));
    for (counter, counted) in single {
        let samples = all.iter().map(|seen| (seen.labels(), seen.app.counters.get(*counter)));
        let (name, unit) = match counter {
            Counter::BytesIn => ("tidegate_received".to_owned(), Some(Unit::Bytes)),
            Counter::BytesOut => ("tidegate_sent".to_owned(), Some(Unit::Bytes)),
            _ => (format!("tidegate_{counted}"), None),
        };
        out.counter_with_unit(&name, counter_help(*counter), unit, samples)?;
    }
    let rebuilt = all.iter().map(|seen| (seen.labels(), seen.app.rebuilt()));
    out.counter("tidegate_controllers_rebuilt", "Controllers built anew after a panic.", rebuilt)?;
    let replaced = all.iter().map(|seen| (seen.labels(), seen.app.replaced()));
    out.counter("tidegate_workers_replaced", "Workers that were stuck and whose places others took.", replaced)?;
    let bad = all.iter().flat_map(|seen| {
        Bad::ALL.into_iter().map(|bad| (seen.labels().and("reason", bad.name()), seen.app.counters.bad(bad)))
    });
    out.counter("tidegate_bad_requests", "Requests answered with an error of the sentry's own.", bad)?;
    let open = all.iter().map(|seen| (seen.labels(), seen.app.counters.connections_open() as f64));
    out.gauge("tidegate_connections_open", "Client connections open now.", None, open)?;
    let held = all.iter().map(|seen| (seen.labels(), seen.app.counters.held() as f64));
    let help = "Bytes held for clients: what they sent ahead, what they have not read, TLS, HTTP/2.";
    out.gauge("tidegate_held", help, Some(Unit::Bytes), held)?;
    let most = all.iter().map(|seen| (seen.labels(), seen.app.most_held(&seen.app.live()) as f64));
    out.gauge("tidegate_held_limit", "Bytes that may be held for clients.", Some(Unit::Bytes), most)?;
    let streams = all.iter().map(|seen| (seen.labels(), seen.app.counters.streams_take() as f64));
    out.gauge(
        "tidegate_http2_streams",
        "Bytes that open streams of HTTP/2 take, by estimate.",
        Some(Unit::Bytes),
        streams,
    )?;
    let tunnels = all.iter().map(|seen| (seen.labels(), seen.app.counters.tunnels_open() as f64));
    out.gauge("tidegate_tunnels_open", "Upgraded connections open now.", None, tunnels)
}

/// How it stands with the control plane; nothing where there is none to follow.
fn control(out: &mut Families<'_>, board: &Board) -> fmt::Result {
    let seen = board.control().map(|view| view.seen());
    let none = || Labels::default();
    let connected = seen.iter().map(|seen| (none(), flag(seen.is_connected)));
    out.gauge(
        "tidegate_control_connected",
        "1 while the control plane is heard; 0: its last word holds.",
        None,
        connected,
    )?;
    let revision = seen.iter().map(|seen| (none(), seen.applied.1 as f64));
    out.gauge(
        "tidegate_control_revision",
        "The newest orders of the control plane that are in force.",
        None,
        revision,
    )?;
    let cuts = seen.iter().map(|seen| (none(), seen.cuts));
    out.counter("tidegate_control_cuts", "How often the control plane was lost.", cuts)?;
    let refused = seen.iter().map(|seen| (none(), seen.orders_refused));
    out.counter("tidegate_control_orders_refused", "Orders that could not be put in force.", refused)
}

fn flag(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}
