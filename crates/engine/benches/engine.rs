//! What decisions cost, in nanoseconds. Prints Markdown tables; `TIDEGATE_BENCH_SHORT=1` takes fewer rounds.
//!
//! Time is passed in, so no clock is read but by the bench itself, around batches of many calls. Each figure is the
//! median over many short rounds, so that a busy machine spoils few, with the fastest and the slowest.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tidegate_engine::{
    AdmissionConfig, Affinity, AffinityKey, ClassId, ClassSetup, Controller, Decision, DispatchConfig, NoEvents,
    Outcome, PartitionConfig, Request, RequestTypeId, ServerId, ServerSetup, Setup, Sla, Statistic, Ticket, Timestamp,
    UrlKey,
};

// Shared with the classifier's benchmark.
#[path = "rows/mod.rs"]
mod rows;
use rows::{HEAD, Scale, print_row, row};

#[path = "contention/mod.rs"]
mod contention;

fn main() {
    let scale = Scale::asked_for();
    println!("{HEAD}");
    policing(scale);
    whole_requests(scale);
    dispatching(scale);
    batches(scale);
    rounds_by_waiting(scale);
    contention::contended(scale);
}

fn policing(scale: Scale) {
    for (what, share) in [("threshold: passes", "1.0"), ("threshold: by draw", "0.5"), ("threshold: refused", "0.0")] {
        let policy = format!(r#"{{ "policy": "threshold", "fixed": {share} }}"#);
        let policer = controller(&policy, "jsq", 3).policer();
        row(scale, what, Some(40.0), 20_000, || {
            for i in 0..20_000 {
                black_box(policer.police(0, Timestamp::from_nanos(i), &Request::default()));
            }
        });
    }
}

/// Arrival and completion of one request at a time, each policy of the table; among them, what a tick takes.
fn whole_requests(scale: Scale) {
    for name in AdmissionConfig::NAMES {
        let mut controller = controller(&format!(r#"{{ "policy": "{name}" }}"#), "jsq", 3);
        let mut now = Timestamp::ZERO;
        row(scale, &format!("{name}: arrival and completion"), None, 2_000, || {
            for i in 0..2_000 {
                now = now + Duration::from_micros(100);
                if let Decision::Admit { ticket, .. } = controller.handle_arrival(now, request(i, 0)) {
                    controller.handle_completion(now, ticket, Outcome::answered_in(Duration::from_millis(5)));
                }
            }
            controller.handle_timeout(now);
        });
        row(scale, &format!("{name}: tick"), None, 100, || {
            for _ in 0..100 {
                now = now + Duration::from_millis(100);
                controller.handle_timeout(now);
            }
        });
    }
}

fn dispatching(scale: Scale) {
    for dispatch in DispatchConfig::NAMES {
        for servers in [3, 100, 1000] {
            let mut controller = controller(r#"{ "policy": "none" }"#, dispatch, servers);
            let mut flying: Vec<Ticket> =
                (0..servers as u64 * 2).filter_map(|i| admitted(&mut controller, i)).collect();
            let mut at = 0;
            row(scale, &format!("{dispatch}: request with {servers} servers, all of it"), None, 100, || {
                for i in 0..100 {
                    let now = Timestamp::from_nanos(i);
                    controller.handle_completion(now, flying[at], Outcome::answered_in(Duration::from_millis(5)));
                    flying[at] = admitted(&mut controller, i).expect("nothing is refused");
                    at = (at + 1) % flying.len();
                }
            });
        }
        // Partitions do not go with stealing.
        if *dispatch != "softscale" {
            partitioned(scale, dispatch);
        }
    }
}

/// Three classes with about a thousand servers each, admission by what these hold, and sessions that stay.
fn partitioned(scale: Scale, dispatch: &str) {
    for (what, affinity) in [("", None), (", with affinity", Some(Affinity::default()))] {
        let mut setup = setup(r#"{ "policy": "switch" }"#, dispatch, 3000);
        setup.partition = PartitionConfig::from_name("static").expect("a policy of the table");
        setup.affinity = affinity;
        let mut controller = Controller::new(setup, 1, 1, Box::new(NoEvents)).expect("a sound setup");
        let request = |i: u64| Request { affinity: AffinityKey(i % 5_000 + 1), ..request(i, 1) };
        let admitted = |controller: &mut Controller, i: u64| {
            let decision = controller.handle_arrival(Timestamp::from_nanos(i), request(i));
            let Decision::Admit { ticket, .. } = decision else { panic!("nothing is refused") };
            ticket
        };
        let mut flying: Vec<Ticket> = (0..2_000).map(|i| admitted(&mut controller, i)).collect();
        let (mut at, mut number) = (0, 2_000);
        row(scale, &format!("{dispatch}: request in a partition of 1000{what}, all of it"), None, 100, || {
            for _ in 0..100 {
                let now = Timestamp::from_nanos(number);
                controller.handle_completion(now, flying[at], Outcome::answered_in(Duration::from_millis(5)));
                flying[at] = admitted(&mut controller, number);
                (at, number) = ((at + 1) % flying.len(), number + 1);
            }
        });
        if !what.is_empty() {
            // A session stays where it is.
            continue;
        }
        // What dispatch does of that, and a little more: the server that failed is left out and put back.
        let mut server = ServerId(0);
        row(scale, &format!("{dispatch}: another server in a partition of 1000"), Some(200.0), 100, || {
            for _ in 0..100 {
                let now = Timestamp::from_nanos(number);
                server = controller.handle_redispatch(now, flying[at], server).expect("there are many");
                (at, number) = ((at + 1) % flying.len(), number + 1);
            }
        });
    }
}

fn admitted(controller: &mut Controller, i: u64) -> Option<Ticket> {
    match controller.handle_arrival(Timestamp::from_nanos(i), request(i, 0)) {
        Decision::Admit { ticket, .. } => Some(ticket),
        _ => None,
    }
}

/// What a waiting request costs in all: its queueing, its share of the round, and its action.
fn batches(scale: Scale) {
    for waiting in [1, 1_000, scale.most_waiting] {
        let repeat = (1_000 / waiting).max(1);
        // Few rounds where one takes long. With one request the clock would be a part of what is measured.
        let clock = clock_cost();
        let rounds = if waiting >= 100_000 { 5 } else { scale.rounds };
        let mut controller = controller(BATCH, "jsq", 3);
        let mut now = Timestamp::ZERO;
        let mut times = Vec::new();
        for round in 0..=rounds {
            let mut seconds = 0.0;
            for _ in 0..repeat {
                let start = Instant::now();
                fill(&mut controller, now, waiting);
                now = now + Duration::from_millis(1);
                controller.handle_timeout(now);
                let started = drain(&mut controller);
                seconds += start.elapsed().as_secs_f64() - clock;
                for ticket in started {
                    controller.handle_completion(now, ticket, Outcome::answered_in(Duration::from_millis(5)));
                }
            }
            if round > 0 {
                times.push(seconds * 1e9 / f64::from(waiting) / f64::from(repeat));
            }
        }
        print_row(&format!("batch: a request of {waiting} waiting"), Some(200.0), times);
    }
}

/// What reading the clock twice takes, seconds.
fn clock_cost() -> f64 {
    let mut times: Vec<f64> = (0..1_001).map(|_| Instant::now().elapsed().as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

const BATCH: &str = r#"{ "policy": "batch", "delays": ["1ms"], "max_waiting": 2000000 }"#;

/// A round by what waits: tests are per bucket and class, so what grows is only the release of each request.
fn rounds_by_waiting(scale: Scale) {
    println!("\n| waiting | round µs | per request ns |\n|---|---|---|");
    for waiting in [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000] {
        if waiting > scale.most_waiting {
            continue;
        }
        let mut controller = controller(BATCH, "jsq", 3);
        let mut now = Timestamp::ZERO;
        let mut times: Vec<f64> = (0..if waiting > 100_000 { 3 } else { 9 })
            .map(|_| {
                fill(&mut controller, now, waiting);
                now = now + Duration::from_millis(1);
                let start = Instant::now();
                controller.handle_timeout(now);
                let took = start.elapsed().as_secs_f64();
                for ticket in drain(&mut controller) {
                    controller.handle_completion(now, ticket, Outcome::answered_in(Duration::from_millis(5)));
                }
                took
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        println!("| {waiting} | {:.1} | {:.0} |", median * 1e6, median * 1e9 / f64::from(waiting));
    }
}

fn fill(controller: &mut Controller, now: Timestamp, waiting: u32) {
    for i in 0..waiting {
        black_box(controller.handle_arrival(now, request(u64::from(i), (i % 3) as u8)));
    }
}

/// Polls every action; returns what was started.
fn drain(controller: &mut Controller) -> Vec<Ticket> {
    let mut started = Vec::new();
    while let Some(action) = controller.poll_action() {
        if let tidegate_engine::Action::Start { ticket, .. } = black_box(action) {
            started.push(ticket);
        }
    }
    started
}

fn request(i: u64, class: u8) -> Request {
    let url = UrlKey((i % 1000).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    Request { class: ClassId(class), request_type: RequestTypeId(0), url, ..Request::default() }
}

fn controller(policy: &str, dispatch: &str, servers: usize) -> Controller {
    Controller::new(setup(policy, dispatch, servers), 1, 1, Box::new(NoEvents)).expect("a sound setup")
}

fn setup(policy: &str, dispatch: &str, servers: usize) -> Setup {
    let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("more than zero");
    let mut setup = Setup::simple("bench", sla, (0..servers).map(|i| ServerSetup::new(format!("s{i}"))));
    setup.classes = ["gold", "silver", "bronze"].map(ClassSetup::new).to_vec();
    setup.admission = serde_json::from_str(policy).unwrap_or_else(|error| panic!("{policy}: {error}"));
    setup.dispatch = DispatchConfig::from_name(dispatch).expect("a policy of the table");
    setup
}
