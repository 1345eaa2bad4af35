//! What `cargo xtask bench instructions` counts of the engine and of the simulator: one row, so many times, and little
//! else. Prints how many units were done: requests through the engine, happenings in the simulator.
//!
//! An example of this package, so that it is linked with the very libraries of the program, and nothing of them is
//! compiled once more.

use std::hint::black_box;
use std::time::Duration;

use tidegate_engine::{
    Action, AdmissionConfig, ClassId, ClassSetup, Controller, Decision, DispatchConfig, NoEvents, Outcome, Request,
    RequestTypeId, ServerSetup, Setup, Sla, Statistic, Ticket, Timestamp, UrlKey,
};
use tidegate_sim::{Discipline, Manner, ServerModel, Stream, Url, World};
use tidegate_workload::{ArrivalProcess, Profile, Rate, ServiceTime};

const USAGE: &str = "usage: instructions engine POLICY SERVERS REQUESTS | sim POLICY REQUESTS";

/// Between arrivals at the engine.
const GAP: Duration = Duration::from_micros(100);

/// Of the simulated service: servers, cores of each, mean service time in seconds, offered load as a share of capacity.
const SERVERS: usize = 10;
const CORES: f64 = 4.0;
const MEAN: f64 = 0.01;
const LOAD: f64 = 2.0;
/// The same requests in every run.
const SEED: u64 = 1;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().expect(USAGE);
    let units = match arguments[..] {
        ["engine", policy, servers, requests] => engine(policy, number(servers) as usize, number(requests)),
        ["sim", policy, requests] => simulator(policy, number(requests)),
        _ => panic!("{USAGE}"),
    };
    println!("{units}");
}

/// Arrival and completion of one request after the other, as a driver does it: timeouts when they are due, every action
/// carried out.
fn engine(policy: &str, servers: usize, requests: u64) -> u64 {
    let mut controller = Controller::new(setup(policy, servers), 1, SEED, Box::new(NoEvents)).expect("a sound setup");
    let mut now = Timestamp::ZERO;
    for number in 0..requests {
        now = now + GAP;
        if controller.poll_timeout().is_some_and(|(due, _)| due <= now) {
            controller.handle_timeout(now);
        }
        let decision = black_box(controller.handle_arrival(now, request(number)));
        if let Decision::Admit { ticket, .. } = decision {
            complete(&mut controller, now, ticket);
        }
        while let Some(action) = controller.poll_action() {
            if let Action::Start { ticket, .. } = black_box(action) {
                complete(&mut controller, now, ticket);
            }
        }
    }
    requests
}

fn complete(controller: &mut Controller, now: Timestamp, ticket: Ticket) {
    controller.handle_completion(now, ticket, Outcome::answered_in(Duration::from_millis(5)));
}

fn request(number: u64) -> Request {
    let url = UrlKey((number % 1000).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let class = ClassId((number % 3) as u8);
    Request { class, request_type: RequestTypeId(0), url, ..Request::default() }
}

/// A service offered twice what it can do.
fn simulator(policy: &str, requests: u64) -> u64 {
    let rate = SERVERS as f64 * CORES / MEAN * LOAD;
    let server = ServerModel::new(CORES, Discipline::ProcessorSharing);
    let lasts = Duration::from_secs_f64(requests as f64 / rate);
    let mut world = World::new(setup(policy, SERVERS), vec![server; SERVERS], lasts);
    // As scenario files are played.
    world.by_answer = false;
    world.streams = [0.2, 0.3, 0.5].iter().zip(0..).map(|(share, class)| stream(class, rate * share)).collect();
    world.run(SEED).expect("the setup makes sense").happenings
}

fn stream(class: u8, rate: f64) -> Stream {
    let cost = ServiceTime::exponential(MEAN).expect("positive");
    let urls = (0..8).map(|url| Url::new(u64::from(class) * 100 + url, cost)).collect();
    let profile = Profile::constant(Rate::new(rate).expect("positive"));
    Stream { class, profile, process: ArrivalProcess::Poisson, urls, retry: None, manner: Manner::default() }
}

fn setup(policy: &str, servers: usize) -> Setup {
    let sla = Sla::constant(Statistic::P95, Duration::from_millis(500)).expect("more than zero");
    let mut setup = Setup::simple("count", sla, (0..servers).map(|at| ServerSetup::new(format!("s{at}"))));
    setup.classes = ["gold", "silver", "bronze"].map(ClassSetup::new).to_vec();
    setup.admission = AdmissionConfig::from_name(policy).unwrap_or_else(|| panic!("no policy `{policy}`; {USAGE}"));
    setup.dispatch = DispatchConfig::from_name("jsq").expect("a policy of the table");
    setup
}
