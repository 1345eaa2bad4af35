//! Deadlines, retries that say so, and runaways, against what arithmetic says of them.

use std::time::Duration;

use tidegate_engine::Cancel;
use tidegate_sim::{Discipline, Manner, Report, ServerModel, Stream, Url, World};
use tidegate_workload::{Abandoned, Profile, Retry, ServiceTime, Wait};

use crate::support::{admission, stream, world};

/// Seeds of every figure here.
const SEEDS: std::ops::Range<u64> = 0..10;

fn rate(text: &str) -> Profile {
    text.parse().expect("a profile")
}

fn runs(world: &World) -> Vec<Report> {
    SEEDS.map(|seed| world.run(seed).expect("it makes sense")).collect()
}

/// The admitted share of a stream's requests.
fn admitted(report: &Report, stream: usize) -> f64 {
    let all = report.courses[stream].total();
    all.admitted() as f64 / all.offered as f64
}

/// One server that answers 100/s. 60/s come once; of 100/s more everyone who is refused tries again every tenth of a
/// second, twenty times in all.
fn storm(says: bool) -> World {
    let mut world = world(1, 1.0, Duration::from_millis(500), admission(r#"{ "policy": "sentry" }"#));
    let cost = ServiceTime::exponential(0.01).expect("positive");
    let time = Some(ServiceTime::constant(0.1).expect("positive"));
    let retry = Retry { tries: 20, wait: Wait::Own, time, jitter: 0.5, says };
    world.streams = vec![stream(0, "60/s", cost), Stream { retry: Some(retry), ..stream(0, "100/s", cost) }];
    world.count_in_flight = false;
    world
}

/// Were all tries alike, a share `s` of each would be let in where `60 s + 100 (1 - (1 - s)^20) = 100`: 12 %. With
/// first tries first it is 100 of 160.
#[test]
fn in_a_storm_of_retries_those_who_come_once_have_what_first_tries_have() {
    for (said, unsaid) in runs(&storm(true)).iter().zip(&runs(&storm(false))) {
        let (said, unsaid) = (admitted(said, 0), admitted(unsaid, 0));
        assert!(said > 0.9 * 100.0 / 160.0 && unsaid < 0.25, "{said} with retries that say so, {unsaid} without");
    }
}

/// One server that answers 50/s, 100/s whose clients wait for 100 ms, and no admission control.
fn hurried(says: bool) -> World {
    let mut world = world(1, 1.0, Duration::from_secs(1), admission(r#"{ "policy": "none" }"#));
    let cost = ServiceTime::exponential(0.02).expect("positive");
    let once = Retry { tries: 1, wait: Wait::AtOnce, time: None, jitter: 0.0, says: false };
    let patience = Duration::from_millis(100);
    world.patience = patience;
    let manner = Manner { deadline: says.then_some(patience), ..Manner::default() };
    world.streams = vec![Stream { retry: Some(once), manner, ..stream(0, "100/s", cost) }];
    world
}

/// Without it the server works only for clients that have left; with it for requests that are more likely in time than
/// not, so for half of them at the least.
#[test]
fn deadlines_keep_a_server_from_working_for_clients_that_have_left() {
    for (said, unsaid) in runs(&hurried(true)).iter().zip(&runs(&hurried(false))) {
        let rate = |report: &Report| report.courses[0].total().admitted() as f64 / 60.0;
        assert!(rate(said) > 25.0 && rate(unsaid) < 5.0, "{} said, {} unsaid", rate(said), rate(unsaid));
        let class = &said.snapshot.classes[0];
        assert!(class.rejected.iter().all(|(reason, _)| *reason == "deadline"), "{:?}", class.rejected);
        assert_eq!(said.snapshot.stale_tickets, 0);
    }
}

/// A deadline that everybody can meet changes nothing but that it is said.
#[test]
fn far_deadlines_refuse_nobody() {
    let mut world = hurried(true);
    world.patience = Duration::from_secs(30);
    world.streams[0].manner.deadline = Some(Duration::from_secs(20));
    world.streams[0].profile = "20/s".parse().expect("a profile");
    for report in runs(&world) {
        assert_eq!(report.snapshot.classes[0].rejected, []);
    }
}

/// Four workers answer 200/s at the most; 600/s come, whose clients wait for 200 ms and say so, where the target is
/// 500 ms. Who waits by the target alone comes to its turn just when it is too late.
#[test]
fn at_three_times_the_load_hardly_a_worker_works_for_clients_whose_deadlines_pass() {
    for discipline in [Discipline::Fifo, Discipline::ProcessorSharing] {
        let mut world = world(1, 4.0, Duration::from_millis(500), admission(r#"{ "policy": "waiting" }"#));
        world.servers = vec![ServerModel::new(4.0, discipline)];
        let patience = Duration::from_millis(200);
        world.patience = patience;
        let manner = Manner { deadline: Some(patience), ..Manner::default() };
        let cost = ServiceTime::lognormal(0.02, 0.2).expect("positive");
        world.streams = vec![Stream { manner, ..stream(0, "600/s", cost) }];
        for report in runs(&world) {
            let all = report.courses[0].total();
            let (rate, late) = (all.admitted() as f64 / 60.0, all.failed as f64 / 60.0);
            assert!(rate >= 0.98 * 200.0 && late <= 0.02 * 200.0, "{rate} in time and {late} late of 200/s");
        }
    }
}

/// Four workers that answer 200/s, `load` that comes, and clients that leave after 200 ms without having said so, where
/// the target is 500 ms.
fn impatient(load: &str) -> World {
    let mut world = world(1, 4.0, Duration::from_millis(500), admission(r#"{ "policy": "waiting" }"#));
    world.servers = vec![ServerModel::new(4.0, Discipline::Fifo)];
    let cost = ServiceTime::lognormal(0.02, 0.2).expect("positive");
    let manner = Manner { patience: Some(Duration::from_millis(200)), ..Manner::default() };
    world.streams = vec![Stream { manner, ..stream(0, load, cost) }];
    world
}

/// By the target alone nearly all of them would have left when they are answered: 13 to 97 of 200 were not.
#[test]
fn clients_that_leave_sooner_than_the_target_are_not_kept_waiting_for_so_long() {
    for load in ["240/s", "400/s", "1000/s"] {
        for report in runs(&impatient(load)) {
            let rate = report.courses[0].total().admitted() as f64 / 60.0;
            assert!(rate >= 0.98 * 200.0, "{rate} of 200/s in time at {load}");
        }
    }
}

/// One in ten stays for longer, and is not worth the rest.
#[test]
fn nine_clients_in_ten_that_leave_early_are_served_before() {
    let mut world = impatient("540/s");
    world.streams.push(Stream { manner: Manner::default(), profile: rate("60/s"), ..world.streams[0].clone() });
    for report in runs(&world) {
        let good: u64 = report.courses.iter().map(|course| course.total().good).sum();
        assert!(good as f64 >= 0.98 * 200.0 * 60.0, "{good} in time in a minute, of 12,000");
    }
}

/// Others who leave soon cannot have patient clients of their class refused that would be served without them: they are
/// gone before their turn, whether after a quarter of a service time or after three. Those of them that find a place
/// free take it, so that a little is lost: a fifth or so at the most on these and twenty other seeds, whether patience
/// is learned or not.
#[test]
fn clients_that_leave_soon_take_little_from_those_that_stay() {
    let mut world = impatient("240/s");
    world.streams[0].manner = Manner::default();
    let alone: Vec<f64> = runs(&world).iter().map(|report| admitted(report, 0)).collect();
    for (others, patience) in [("200/s", 5), ("600/s", 5), ("200/s", 60), ("600/s", 60)] {
        let manner = Manner { patience: Some(Duration::from_millis(patience)), ..Manner::default() };
        let mut world = world.clone();
        world.streams.push(Stream { manner, profile: rate(others), ..world.streams[0].clone() });
        for (beside, alone) in runs(&world).iter().map(|report| admitted(report, 0)).zip(&alone) {
            assert!(beside > 0.75 * alone, "{beside} beside {others} that leave after {patience} ms, {alone} alone");
        }
    }
}

/// Eight workers that take one request at a time; the shop needs 70 % of them, reports 5 %, but one report in a hundred
/// keeps its worker for 20 s.
fn reports(cancel: Cancel, abandoned: Abandoned) -> World {
    let mut world = world(2, 4.0, Duration::from_millis(300), admission(r#"{ "policy": "sentry" }"#));
    world.servers = vec![ServerModel { abandoned, ..ServerModel::new(4.0, Discipline::Fifo) }; 2];
    let page = ServiceTime::lognormal(0.02, 0.5).expect("positive");
    let report = ServiceTime::bimodal(0.04, 20.0, 0.01).expect("positive");
    let urls = vec![Url::new(7, report)];
    world.streams = vec![stream(0, "280/s", page), Stream { urls, ..stream(2, "10/s", page) }];
    (world.setup.cancel, world.duration) = (cancel, Duration::from_secs(180));
    world
}

fn refused(report: &Report) -> f64 {
    1.0 - admitted(report, 0)
}

fn cancelled(report: &Report) -> u64 {
    report.snapshot.classes[2].runaways
}

fn mean(of: impl Iterator<Item = f64>) -> f64 {
    let all: Vec<f64> = of.collect();
    all.iter().sum::<f64>() / all.len() as f64
}

#[test]
fn ending_runaways_gives_the_shop_its_places_back() {
    let (off, on) = (reports(Cancel::Off, Abandoned::Stops), reports(Cancel::Runaways, Abandoned::Stops));
    let (off, on) = (runs(&off), runs(&on));
    let (without, with) = (mean(off.iter().map(refused)), mean(on.iter().map(refused)));
    assert!(with < without / 2.0, "{without} of the shop's requests are refused without, {with} with it");
    for report in &on {
        let answers: u64 = report.snapshot.classes.iter().map(|class| class.completed).sum();
        assert!(cancelled(report) * 100 <= answers, "{} of {answers}", cancelled(report));
        assert_eq!((report.snapshot.stale_tickets, report.snapshot.in_flight), (0, 0));
    }
    assert!(on.iter().map(cancelled).sum::<u64>() > 0);
    assert_eq!(off.iter().map(cancelled).sum::<u64>(), 0);
}

/// Where servers work on, nothing is gained, and nothing is lost but what was ended: their places stay taken.
#[test]
fn what_a_server_works_on_keeps_its_place() {
    for report in runs(&reports(Cancel::Runaways, Abandoned::WorksOn)) {
        let class = &report.snapshot.classes[2];
        assert!(class.failed >= class.runaways && report.snapshot.stale_tickets == 0, "{class:?}");
    }
}
