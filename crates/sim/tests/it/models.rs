//! The models, each in a world small enough that what must come of it is known.

use std::time::Duration;

use tidegate_engine::Status;
use tidegate_sim::{
    Action, Fault, FaultKind, Knee, Link, Power, Program, Report, Resource, SentryModel, Step, Tier, Users, WarmUp,
    World,
};
use tidegate_sim::{Discipline, ServerModel, Url};
use tidegate_workload::{ArrivalProcess, Retry, ServiceTime, Wait};

use crate::support::{self, admission};

fn constant(seconds: f64) -> ServiceTime {
    ServiceTime::constant(seconds).expect("not negative")
}

/// One server of one core under policy `none`; requests of 10 ms, evenly spaced, at this rate for 100 s.
fn steady(rate: f64) -> World {
    let mut world = support::world(1, 1.0, Duration::from_secs(1), admission(r#"{ "policy": "none" }"#));
    world.streams = vec![support::stream(0, &format!("{rate}/s"), constant(0.010))];
    world.streams[0].process = ArrivalProcess::Constant;
    world.duration = Duration::from_secs(100);
    world
}

fn run(world: &World) -> Report {
    world.run(1).expect("the setup makes sense")
}

/// Mean response time of everything, seconds.
fn mean(report: &Report) -> f64 {
    report.courses[0].total().responses.mean().expect("something was answered")
}

#[track_caller]
fn near(found: f64, wanted: f64) {
    assert!((found / wanted - 1.0).abs() < 0.005, "{found} for {wanted}");
}

fn step(what: Action) -> Step {
    Step { what, overlap: false }
}

fn with_steps(world: &mut World, steps: Vec<Step>) {
    world.programs.push(Program { steps });
    world.streams[0].urls[0].program = 1;
}

#[test]
fn resources_are_used_one_after_the_other_or_at_once() {
    let mut world = steady(10.0);
    let disk = Resource::Station { units: 1.0, discipline: Discipline::Fifo, rate: 1.0 };
    let nic = Resource::Station { units: 1.0, discipline: Discipline::ProcessorSharing, rate: 1e6 };
    world.servers[0].resources = vec![disk, nic];
    let reads = Action::Use { resource: 1, amount: constant(0.005) };
    let sends = Action::Use { resource: 2, amount: constant(20_000.0) };
    with_steps(&mut world, vec![step(reads.clone()), step(sends.clone())]);
    near(mean(&run(&world)), 0.010 + 0.005 + 0.020);
    // The disk works beside the processor, the network card beside both.
    world.programs[1].steps = [reads, sends].map(|what| Step { what, overlap: true }).to_vec();
    near(mean(&run(&world)), 0.020);
}

#[test]
fn calls_go_to_a_tier_in_turn_or_at_once() {
    let mut world = steady(10.0);
    let servers = vec![ServerModel::new(1.0, Discipline::Fifo); 3];
    world.tiers = vec![Tier { name: "db".into(), servers, latency: Duration::from_millis(1), sentry: None }];
    let call = |parallel| Action::Call { tier: 0, calls: 3, parallel, work: constant(0.004), program: 0, pool: None };
    with_steps(&mut world, vec![step(call(false))]);
    near(mean(&run(&world)), 0.010 + 3.0 * 0.005);
    world.programs[1].steps = vec![step(call(true))];
    let report = run(&world);
    near(mean(&report), 0.010 + 0.005);
    // Each of the three servers took one call of each request.
    report.servers[1..].iter().for_each(|server| near(server.busy, 100.0 * 10.0 * 0.004));
}

#[test]
fn a_pool_lets_one_call_at_a_time() {
    let mut world = steady(10.0);
    world.servers[0].cores = 2.0;
    world.servers[0].resources = vec![Resource::Pool { tokens: 1 }];
    let servers = vec![ServerModel::new(4.0, Discipline::ProcessorSharing)];
    world.tiers = vec![Tier { name: "db".into(), servers, latency: Duration::ZERO, sentry: None }];
    let call = Action::Call { tier: 0, calls: 1, parallel: false, work: constant(0.020), program: 0, pool: Some(1) };
    let twice = Step { what: call.clone(), overlap: true };
    with_steps(&mut world, vec![step(call), twice]);
    // Both calls could run side by side at the tier, but there is one token.
    near(mean(&run(&world)), 0.010 + 2.0 * 0.020);
    world.servers[0].resources = vec![Resource::Pool { tokens: 2 }];
    near(mean(&run(&world)), 0.010 + 0.020);
}

#[test]
fn a_full_server_refuses_and_the_rest_waits() {
    let mut world = steady(400.0);
    (world.servers[0].limit, world.servers[0].backlog) = (Some(2), Some(3));
    let report = run(&world);
    let all = report.courses[0].total();
    near(all.failed as f64 / all.offered as f64, 0.75);
    // Two in service at half the speed each, three waiting for a place.
    assert!((0.04..=0.05).contains(&mean(&report)), "{}", mean(&report));
}

#[test]
fn past_the_knee_everything_is_slower() {
    let mut world = steady(25.0);
    world.servers[0].knee = Some(Knee { at: 0, loss: 1.0 });
    // Alone in service a request is one past the knee: half the speed.
    near(mean(&run(&world)), 0.020);
}

#[test]
fn a_failed_server_is_found_out_and_the_other_does_the_work() {
    let mut world = steady(50.0);
    world.setup.servers.push(tidegate_engine::ServerSetup::new("other"));
    world.servers.push(world.servers[0].clone());
    let fault = |at, what| Fault {
        at: Duration::from_secs(at),
        tier: None,
        server: 0,
        what,
        noticed_after: Duration::from_secs(2),
    };
    world.faults = vec![fault(40, FaultKind::Fail), fault(60, FaultKind::Recover)];
    let report = run(&world);
    let all = report.courses[0].total();
    assert!(all.failed <= 1, "what was there fails, what comes goes to the other server: {}", all.failed);
    let told = |status| tidegate_engine::Event::ServerChanged { server: tidegate_engine::ServerId(0), status };
    let at = |event: &tidegate_engine::Event| {
        report.events.iter().find(|(_, told)| told == event).map(|(at, _)| at.as_nanos() / 1_000_000)
    };
    assert_eq!((at(&told(Status::Down)), at(&told(Status::Up))), (Some(42_000), Some(62_000)));
}

#[test]
fn when_a_tier_fails_its_callers_fail_and_nothing_is_left_behind() {
    let mut world = steady(20.0);
    let servers = vec![ServerModel::new(1.0, Discipline::Fifo)];
    world.tiers = vec![Tier { name: "db".into(), servers, latency: Duration::from_millis(2), sentry: None }];
    let call = Action::Call { tier: 0, calls: 5, parallel: true, work: constant(0.004), program: 0, pool: None };
    with_steps(&mut world, vec![step(call)]);
    let mut fault = support::speed(50, 1.0);
    (fault.tier, fault.what) = (Some(0), FaultKind::Fail);
    // The application's server too, in the middle of its calls.
    let front = Fault { tier: None, at: Duration::from_millis(30_015), ..fault };
    let back = Fault { at: Duration::from_secs(31), what: FaultKind::Recover, ..front };
    world.faults = vec![front, back, fault];
    let report = run(&world);
    let all = report.courses[0].total();
    assert_eq!(all.failed + all.admitted(), all.offered);
    let lost = 20 * 50 + 20;
    assert!(all.failed.abs_diff(lost) <= 3, "{} of {}", all.failed, all.offered);
    assert_eq!((report.snapshot.in_flight, report.snapshot.stale_tickets), (0, 0));
}

#[test]
fn a_server_that_starts_serves_after_its_setup_and_is_slow_at_first() {
    let mut world = steady(10.0);
    let server = &mut world.servers[0];
    (server.off, server.setup_time) = (true, Duration::from_secs(20));
    server.warm_up = Some(WarmUp { time: Duration::from_secs(30), speed: 0.5 });
    server.power = Some(Power { idle: 100.0, peak: 200.0, setup: Some(150.0) });
    world.faults = vec![Fault { what: FaultKind::Start, ..support::speed(10, 1.0) }];
    let report = run(&world);
    let between = |from, to| report.courses[0].span(Duration::from_secs(from), Duration::from_secs(to));
    assert_eq!(between(0, 30).admitted(), 0);
    near(between(31, 59).responses.mean().expect("answered"), 0.020);
    near(between(61, 99).responses.mean().expect("answered"), 0.010);
    // 20 s of setup, 70 s on, of which a tenth (a fifth while it is slow) with the processor in use.
    near(report.joules(), 20.0 * 150.0 + 70.0 * 100.0 + 100.0 * (30.0 * 0.2 + 40.0 * 0.1));
    near(report.servers[0].on, 70.0);
}

#[test]
fn answers_share_the_link() {
    let mut world = steady(10.0);
    world.streams[0].urls[0].bytes = 1000;
    world.link = Some(Link { rate: Some(1e5), latency: Duration::from_millis(7) });
    near(mean(&run(&world)), 0.010 + 0.010 + 0.007);
    // Two requests at once get half the link each.
    let mut twice = world.clone();
    twice.streams.push(twice.streams[0].clone());
    twice.servers[0].cores = 2.0;
    twice.streams.iter_mut().for_each(|stream| stream.urls[0].cost = constant(0.0));
    twice.link = Some(Link { rate: Some(2.0 * 1000.0 * 10.0), latency: Duration::ZERO });
    let report = run(&twice);
    assert!(mean(&report) > 0.050, "{}", mean(&report));
}

#[test]
fn users_think_between_answers() {
    let mut world = steady(1.0);
    let url = |key, seconds| Url::new(key, constant(seconds));
    world.streams.clear();
    world.users = vec![Users {
        from: Duration::ZERO,
        until: Duration::MAX,
        class: 0,
        count: 1,
        think: constant(0.040),
        states: vec![vec![url(1, 0.010)], vec![url(2, 0.020)]],
        start: vec![1.0, 0.0],
        // From the first to the second, and then the session is over.
        next: vec![vec![0.0, 1.0], vec![0.0, 0.0]],
        pause: constant(0.090),
        retry: None,
    }];
    let report = run(&world);
    // A session is 10 + 40 + 20 + 90 ms.
    near(report.courses[0].total().offered as f64, 2.0 * 100.0 / 0.160);
    near(mean(&report), 0.015);
}

#[test]
fn users_come_and_go() {
    let mut world = steady(1.0);
    world.streams.clear();
    world.users = vec![Users {
        from: Duration::from_secs(20),
        until: Duration::from_secs(60),
        class: 0,
        count: 1,
        think: constant(0.040),
        states: vec![vec![Url::new(1, constant(0.010))]],
        start: vec![1.0],
        next: vec![vec![1.0]],
        pause: constant(0.040),
        retry: None,
    }];
    let report = run(&world);
    let offered = |from, to| report.courses[0].span(Duration::from_secs(from), Duration::from_secs(to)).offered;
    assert_eq!((offered(0, 20), offered(60, 100)), (0, 0));
    near(offered(20, 60) as f64, 40.0 / 0.050);
}

#[test]
fn requests_that_can_be_answered_cheaper_take_less_as_quality_falls() {
    // One run a completion, all of them over the target of 1 s: the quality is halved and then at its least.
    let policy = r#"{ "policy": "aimd", "controller": { "samples": 1, "smoothing": 0,
        "quality": { "min": 0.25, "lower_by": 2.0, "then_police": false } } }"#;
    let mut world = support::world(1, 1.0, Duration::from_secs(1), admission(policy));
    world.streams = vec![support::stream(0, "0.1/s", constant(3.0))];
    world.streams[0].process = ArrivalProcess::Constant;
    world.streams[0].urls[0].degrades_to = 0.5;
    let report = run(&world);
    let times: Vec<f64> =
        report.courses[0].seconds().iter().filter_map(|second| second.responses.mean()).take(4).collect();
    // 3 s, then 3 * (0.5 + 0.5 q) for q = 1/2 and 1/4.
    assert_eq!(times.len(), 4);
    for (seen, expected) in times.into_iter().zip([3.0, 2.25, 1.875, 1.875]) {
        near(seen, expected);
    }
    let quality =
        report.snapshot.policy.own.list("controllers").next().and_then(|controller| controller.number("quality"));
    assert_eq!(quality, Some(0.25));
    // The controllers were looked at every second in which something happened.
    assert!(report.shown.len() > 40 && report.shown.is_sorted_by_key(|(at, _)| *at));
    assert_eq!(report.types[0].total().offered, report.courses[0].total().offered);
}

#[test]
fn clients_try_again_as_often_as_they_may_and_when_they_are_told() {
    let mut world = steady(10.0);
    world.servers[0].off = true;
    let retry = Retry { tries: 4, wait: Wait::Own, time: Some(constant(2.0)), jitter: 0.0, says: false };
    world.streams[0].retry = Some(retry);
    let report = run(&world);
    let client = report.clients[0];
    assert_eq!((client.satisfied, client.given_up), (0, client.wanted));
    // Each is tried four times, but for those of the last six seconds.
    near(report.courses[0].total().offered as f64, 4.0 * 1000.0 - 60.0 - 40.0 - 20.0);
    world.streams[0].retry = Some(Retry { wait: Wait::AtOnce, ..retry });
    near(run(&world).courses[0].total().offered as f64, 4.0 * 1000.0);
    // What is told comes from the engine, one second at least.
    world.streams[0].retry = Some(Retry { wait: Wait::RetryAfter, ..retry });
    world.setup.when_all_down = tidegate_engine::WhenAllDown::Refuse;
    let all = run(&world).courses[0].total();
    assert_eq!((all.failed, all.refused), (0, all.offered));
    assert!((3900..3990).contains(&all.offered), "{}", all.offered);
}

#[test]
fn a_client_that_leaves_costs_the_server_its_work_and_the_engine_nothing() {
    let mut world = steady(50.0);
    world.streams[0].urls[0].cost = constant(0.015);
    world.patience = Duration::from_millis(5);
    world.streams[0].retry = Some(Retry { tries: 1, wait: Wait::AtOnce, time: None, jitter: 0.0, says: false });
    let report = run(&world);
    let all = report.courses[0].total();
    assert_eq!((all.failed, all.admitted()), (all.offered, 0));
    near(report.servers[0].busy, 100.0 * 50.0 * 0.015);
    let class = &report.snapshot.classes[0];
    assert_eq!((class.cancelled, class.completed, report.snapshot.stale_tickets), (all.offered, 0, 0));
}

#[test]
fn the_sentry_itself_can_be_the_bottleneck() {
    let mut world = steady(50.0);
    world.sentry = Some(SentryModel {
        workers: 1,
        admitted: Duration::from_millis(4),
        refused: Duration::from_millis(1),
        tested: Duration::ZERO,
        backlog: None,
        report_every: Duration::from_secs(1),
    });
    let report = run(&world);
    near(mean(&report), 0.014);
    near(report.sentry_cpu.expect("it is simulated"), 0.2);
    // Three hundred a second are too many for its worker: 250 pass, the rest queues there and sees it busy.
    world.streams = steady(300.0).streams;
    world.streams[0].urls[0].cost = constant(0.0);
    let report = run(&world);
    near(report.sentry_cpu.expect("it is simulated"), 1.0);
    assert!(mean(&report) > 5.0, "{}", mean(&report));
    world.sentry.as_mut().expect("just set").backlog = Some(10);
    let all = run(&world).courses[0].total();
    near(all.failed as f64 / all.offered as f64, 1.0 / 6.0);
}

#[test]
fn what_the_table_decides_costs_no_test() {
    let busy = |policy: &str, min_rate: f64| {
        let mut world = steady(50.0);
        world.setup.admission = admission(policy);
        (world.setup.classes[0].min_rate, world.setup.classes[0].burst) = (min_rate, 1000.0);
        let cost = Duration::from_millis(1);
        let tested = Duration::from_millis(5);
        let (workers, report_every) = (1, Duration::from_secs(1));
        world.sentry =
            Some(SentryModel { workers, admitted: cost, refused: cost, tested, backlog: None, report_every });
        run(&world).sentry_cpu.expect("it is simulated")
    };
    near(busy(r#"{ "policy": "batch" }"#, 0.0), 50.0 * 0.006);
    near(busy(r#"{ "policy": "batch" }"#, 1000.0), 50.0 * 0.001);
    near(busy(r#"{ "policy": "threshold" }"#, 0.0), 50.0 * 0.001);
}

#[test]
fn the_engine_hears_of_its_busy_sentry_and_changes_its_policy() {
    let switched = |world: &World| {
        let report = run(world);
        report.events.iter().find(|(_, event)| event.name() == "policy-switched").map(|(at, _)| at.as_secs_f64())
    };
    let mut world = steady(300.0);
    world.setup.admission = admission(r#"{ "policy": "sentry" }"#);
    world.sentry = Some(SentryModel {
        workers: 1,
        admitted: Duration::from_millis(9),
        refused: Duration::from_micros(3200),
        tested: Duration::ZERO,
        backlog: Some(100),
        report_every: Duration::from_secs(1),
    });
    let at_once = switched(&world).expect("it is busy");
    world.channel.delay = Duration::from_secs(10);
    near(switched(&world).expect("it hears of it later") - at_once, 10.0);
    world.channel.loss = 1.0;
    assert_eq!(switched(&world), None, "it never hears of it");
}
