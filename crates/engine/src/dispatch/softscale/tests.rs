use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use proptest::prelude::*;

use super::*;
use crate::event::{Event, EventSink};
use crate::setup::ServerSetup;
use crate::{Action, AdmissionConfig, Controller, Decision, DispatchConfig, NoEvents, Outcome, Sla, Statistic, Ticket};

const MS: Duration = Duration::from_millis(1);

fn step(below: f64, n_data: u32, cores: u32) -> ProfileStep {
    ProfileStep { below, n_data, cores: Some(cores) }
}

/// The paper's testbed in small: 3 requests at an application server, peak 100 per second.
fn profile() -> Config {
    Config {
        n_app: 3,
        peak: 100.0,
        steps: alloc::vec![step(0.3, 4, 3), step(0.55, 2, 2), step(0.8, 1, 1)],
        ..Config::default()
    }
}

fn setup(applications: usize, data: usize) -> Setup {
    let sla = Sla::constant(Statistic::P95, Duration::from_millis(500)).expect("more than zero");
    let application = (0..applications).map(|at| ServerSetup::new(format!("app{at}")));
    let data =
        (0..data).map(|at| ServerSetup { role: Role::Data, cores: Some(4.0), ..ServerSetup::new(format!("data{at}")) });
    let mut setup = Setup::simple("softscale", sla, application.chain(data));
    setup.admission = AdmissionConfig::from_name("none").expect("a name of the table");
    setup.dispatch = DispatchConfig::Softscale(profile());
    setup
}

fn controller(applications: usize, data: usize) -> Controller {
    Controller::new(setup(applications, data), 1, 1, Box::new(NoEvents)).expect("it makes sense")
}

/// Sends `count` requests at once; the servers they go to, as letters: `a`pplication or `d`ata.
fn send(controller: &mut Controller, now: Timestamp, count: usize, flying: &mut Vec<Ticket>) -> String {
    let mut letter = |_| match controller.handle_arrival(now, Request::default()) {
        Decision::Admit { ticket, server, .. } => {
            flying.push(ticket);
            if controller.servers()[server.index()].role == Role::Data { 'd' } else { 'a' }
        }
        other => panic!("{other:?}"),
    };
    (0..count).map(&mut letter).collect()
}

fn shown(controller: &Controller) -> Facts {
    controller.snapshot(Timestamp::ZERO).dispatching.facts("stealing").expect("the policy shows it").clone()
}

#[test]
fn the_first_request_too_many_goes_to_the_data_tier_and_the_limit_holds() {
    let (mut controller, mut flying) = (controller(2, 2), Vec::new());
    // 2 x 3 in the application tier, 2 x 4 in the data tier, the rest in the application tier again.
    assert_eq!(send(&mut controller, Timestamp::ZERO, 17, &mut flying), "aaaaaaddddddddaaa");
    assert_eq!(shown(&controller).count("stolen"), Some(8));
    assert_eq!(shown(&controller).text("why_not"), Some("every data server has as much as it may"));
    // A place in the application tier is taken first: it ends by itself.
    (0..8).for_each(|_| controller.handle_completion(Timestamp::ZERO, flying.remove(0), Outcome::answered()));
    assert_eq!(shown(&controller).text("why_not"), Some("an application server has room"));
    assert_eq!(send(&mut controller, Timestamp::ZERO, 1, &mut flying), "a");
}

/// The admin API's JSON: other programs read it.
#[test]
fn its_state_has_these_keys_in_this_order() {
    let state = serde_json::to_string(&controller(1, 1).snapshot(Timestamp::ZERO)).expect("JSON");
    let own = r#""stealing":{"stolen":0,"is_stealing":false,"limit":4,"cores":3,"load":0.0,"why_not":"#;
    let expected = format!(r#""dispatch":"softscale",{own}"an application server has room"}},"partition":"none","#);
    assert!(state.contains(&expected), "{state}");
}

#[test]
fn lost_servers_are_excess_too() {
    let (mut controller, mut flying) = (controller(4, 2), Vec::new());
    assert_eq!(send(&mut controller, Timestamp::ZERO, 6, &mut flying), "aaaaaa");
    (0..3).for_each(|server| controller.handle_server(Timestamp::ZERO, ServerId(server), Status::Down));
    let left = 3 - controller.servers()[3].in_flight as usize;
    let expected: String = core::iter::repeat_n('a', left).chain("dd".chars()).collect();
    assert_eq!(send(&mut controller, Timestamp::ZERO, left + 2, &mut flying), expected);
}

#[test]
fn a_data_server_without_the_software_is_not_stolen_from() {
    let (mut controller, mut flying) = (controller(1, 2), Vec::new());
    controller.handle_server(Timestamp::ZERO, ServerId(1), Status::Down);
    send(&mut controller, Timestamp::ZERO, 7, &mut flying);
    assert_eq!(controller.servers()[1].in_flight, 0);
    assert_eq!(controller.servers()[2].in_flight, 4);
    controller.handle_server(Timestamp::ZERO, ServerId(2), Status::Down);
    assert_eq!(
        shown(&controller).text("why_not"),
        Some("no data server is up, has the application's software and can divide its cores")
    );
    // Not even when every application server is down and all are tried.
    controller.handle_server(Timestamp::ZERO, ServerId(0), Status::Down);
    assert_eq!(send(&mut controller, Timestamp::ZERO, 5, &mut flying), "aaaaa");
}

#[test]
fn under_another_policy_data_servers_get_nothing() {
    for name in ["jsq", "wrr"] {
        for applications in [2, 40] {
            let mut setup = setup(applications, 3);
            setup.dispatch = DispatchConfig::from_name(name).expect("a name of the table");
            let mut controller = Controller::new(setup, 1, 1, Box::new(NoEvents)).expect("it makes sense");
            let snapshot = controller.snapshot(Timestamp::ZERO);
            assert_eq!((snapshot.dispatching, snapshot.processors), (Facts::default(), applications as f64));
            let sent = send(&mut controller, Timestamp::ZERO, 100, &mut Vec::new());
            assert!(!sent.contains('d'), "{name}: {sent}");
        }
    }
}

/// Offers `rate` per second for `seconds`; each request takes 10 ms. Actions about cores are handed back.
fn offer(controller: &mut Controller, from: u64, rate: u64, seconds: u64) -> Vec<Action> {
    let mut actions = Vec::new();
    for millisecond in 0..seconds * 1000 {
        let now = Timestamp::from_millis(from + millisecond);
        controller.handle_timeout(now);
        let due = |at: u64| at * rate / 1000;
        for _ in due(millisecond)..due(millisecond + 1) {
            if let Decision::Admit { ticket, .. } = controller.handle_arrival(now, Request::default()) {
                controller.handle_completion(now, ticket, Outcome::answered_in(10 * MS));
            }
        }
        actions.extend(core::iter::from_fn(|| controller.poll_action()));
    }
    actions
}

#[test]
fn the_boundary_of_the_cores_moves_with_the_load_and_nuclei_are_told() {
    let mut controller = controller(2, 1);
    let cores = |actions: Vec<Action>| -> Vec<u32> {
        let cores = |action: &Action| match action {
            Action::Isolate { server: ServerId(2), cores } => *cores,
            other => panic!("{other:?}"),
        };
        actions.iter().map(cores).collect()
    };
    assert_eq!(cores(offer(&mut controller, 0, 20, 10)), [3]);
    assert_eq!(cores(offer(&mut controller, 10_000, 40, 10)), [2]);
    assert_eq!(controller.servers()[2].capacity.processors(), 2.0);
    assert_eq!(cores(offer(&mut controller, 20_000, 90, 10)), [1, 0]);
    assert_eq!(["limit", "cores"].map(|key| shown(&controller).count(key)), [Some(0); 2]);
    // At 80 % of the peak and above nothing is stolen, whatever the excess.
    let sent = send(&mut controller, Timestamp::from_millis(30_000), 20, &mut Vec::new());
    assert!(!sent.contains('d'), "{sent}");
    assert_eq!(shown(&controller).text("why_not"), Some("the data tier needs its cores at this load"));
    // A nucleus that was away is told again.
    controller.handle_server(Timestamp::from_millis(30_000), ServerId(2), Status::Down);
    controller.handle_server(Timestamp::from_millis(30_000), ServerId(2), Status::Up);
    assert_eq!(cores(offer(&mut controller, 30_000, 90, 1)), [0]);
    assert_eq!(cores(offer(&mut controller, 31_000, 10, 10)), [1, 2, 3]);
}

#[test]
fn who_cannot_divide_its_cores_is_not_stolen_from_until_it_can() {
    let mut controller = controller(1, 2);
    offer(&mut controller, 0, 20, 1);
    let now = Timestamp::from_millis(1000);
    let lends = |controller: &mut Controller, server: u16, can: bool| {
        controller.handle_report(now, crate::LoadReport::Lends { server: ServerId(server), can });
    };
    lends(&mut controller, 1, false);
    // 3 at the application server, 4 at the data server that can, the rest at the application server.
    let mut flying = Vec::new();
    assert_eq!(send(&mut controller, now, 9, &mut flying), "aaaddddaa");
    assert_eq!((controller.servers()[1].in_flight, controller.servers()[2].in_flight), (0, 4));
    lends(&mut controller, 2, false);
    assert!(!send(&mut controller, now, 9, &mut flying).contains('d'));
    assert!(shown(&controller).text("why_not").is_some_and(|why| why.contains("can divide its cores")));
    lends(&mut controller, 1, true);
    assert_eq!(send(&mut controller, now, 5, &mut flying), "dddda");
    lends(&mut controller, 900, false);
}

#[test]
fn a_step_up_waits_until_the_load_is_clearly_below_its_edge() {
    let profile = profile();
    assert_eq!(profile.step_at(0.31, 0), 1);
    assert_eq!(profile.step_at(0.295, 1), 1);
    assert_eq!(profile.step_at(0.27, 1), 0);
    assert_eq!(profile.step_at(0.79, 3), 3);
    assert_eq!(profile.step_at(0.1, 3), 0);
    assert_eq!(profile.step_at(5.0, 0), 3);
    let sharp = Config { hysteresis: 0.0, ..profile };
    assert_eq!(sharp.step_at(0.295, 1), 0);
}

#[test]
fn profiles_that_make_no_sense_say_where() {
    let with = |steps: Vec<ProfileStep>| Config { steps, ..profile() };
    let mixed = ProfileStep { cores: None, ..step(0.5, 3, 0) };
    let cases: [(Config, &str); 11] = [
        (Config { n_app: 0, ..profile() }, "n_app must be at least 1"),
        (Config { peak: 0.0, ..profile() }, "peak must be more than 0"),
        (Config { hysteresis: 0.7, ..profile() }, "hysteresis must lie"),
        (with(alloc::vec![step(0.0, 3, 3)]), "steps[0].below = 0 is no share"),
        (with(alloc::vec![step(0.5, 4, 3), step(0.5, 3, 2)]), "steps[1].below = 0.5 is not above the step before"),
        (with(alloc::vec![step(0.3, 4, 3), step(0.5, 5, 2)]), "steps[1].n_data rises with the load, from 4 to 5"),
        (with(alloc::vec![step(0.3, 4, 2), step(0.5, 3, 3)]), "steps[1].cores rise with the load"),
        (with(alloc::vec![step(0.3, 4, 3), step(0.8, 1, 1)]), "the step with 2 is missing"),
        (with(alloc::vec![step(0.3, 4, 3), mixed]), "steps[1].cores are given in one step"),
        (with(alloc::vec![step(0.3, 4, 4)]), "steps[0].cores gives away 4 cores, but server \"data0\" has 4"),
        (with(Vec::new()), "steps are missing"),
    ];
    for (profile, expected) in cases {
        let mut setup = setup(1, 1);
        setup.dispatch = DispatchConfig::Softscale(profile);
        let error = setup.check().expect_err(expected).to_string();
        assert!(error.starts_with("dispatch policy \"softscale\": ") && error.contains(expected), "{error}");
    }
    let mut unknown = setup(1, 1);
    unknown.servers[1].cores = None;
    assert!(unknown.check().expect_err("cores").to_string().contains("server \"data0\": cores is missing"));
    assert_eq!(profile().check_for(Some(4)), Ok(()));
    assert!(profile().check_for(Some(3)).is_err());
}

/// Equation 1 with the paper's servers and the limits that its results imply.
#[test]
fn the_model_gives_the_papers_jumps() {
    let steps = alloc::vec![step(0.3, 9, 3), step(0.55, 6, 2), step(0.8, 3, 1)];
    let profile = Config { steps, ..Config::default() };
    for (load, reach) in [(0.10, 0.273), (0.20, 0.373), (0.30, 0.415), (0.40, 0.515), (0.60, 0.658), (0.80, 0.80)] {
        assert!((profile.reach(load, 20, 5) - reach).abs() < 0.001, "{load}: {}", profile.reach(load, 20, 5));
    }
}

/// Counts events by name.
#[derive(Clone, Default)]
struct Counts(Arc<[AtomicU64; 3]>);

impl EventSink for Counts {
    fn record(&mut self, _now: Timestamp, event: Event) {
        let names = ["stealing-began", "stealing-ended", "lending-changed"];
        if let Some(at) = names.iter().position(|name| *name == event.name()) {
            self.0[at].fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn beginning_and_end_of_stealing_are_told_once() {
    let counts = Counts::default();
    let mut controller = Controller::new(setup(1, 1), 1, 1, Box::new(counts.clone())).expect("it makes sense");
    let mut flying = Vec::new();
    let tick = |controller: &mut Controller, tenth: u64| controller.handle_timeout(Timestamp::from_millis(100 * tenth));
    for round in 0..3u64 {
        send(&mut controller, Timestamp::from_millis(100 * round), 5, &mut flying);
        flying.drain(..).for_each(|ticket| {
            controller.handle_completion(Timestamp::from_millis(100 * round), ticket, Outcome::answered());
        });
        tick(&mut controller, round + 1);
        assert!(shown(&controller).is_set("is_stealing"));
    }
    (4..20).for_each(|tenth| tick(&mut controller, tenth));
    assert!(!shown(&controller).is_set("is_stealing"));
    let told = counts.0.each_ref().map(|count| count.load(Ordering::Relaxed));
    assert_eq!((told[0], told[1]), (1, 1));
}

proptest! {
    /// Whatever comes and goes: an application server with room first, no data server over its limit, the excess at
    /// data servers as long as one has room.
    #[test]
    fn every_request_goes_where_the_algorithm_says(
        steps in prop::collection::vec((0u8..12, any::<prop::sample::Index>()), 1..300),
    ) {
        let mut controller = controller(3, 2);
        let (mut flying, mut now): (Vec<Ticket>, _) = (Vec::new(), Timestamp::ZERO);
        for (what, which) in steps {
            now = now + 9 * MS;
            controller.handle_timeout(now);
            match what {
                0..7 => {
                    let before: Vec<_> = controller.servers().to_vec();
                    let limit = shown(&controller).count("limit").expect("a count") as u32;
                    let any_up = before[..3].iter().any(|server| server.status == Status::Up);
                    let taking = if any_up { Status::Up } else { Status::Down };
                    let open: Vec<_> = before[..3].iter().filter(|server| server.status == taking).collect();
                    let lending = before[3..].iter().filter(|server| server.status == Status::Up && server.in_flight < limit);
                    let least = |of: &[&ServerState]| of.iter().map(|server| server.in_flight).min();
                    let has_room = open.iter().any(|server| server.in_flight < 3);
                    let lending: Vec<_> = lending.collect();
                    match controller.handle_arrival(now, Request::default()) {
                        Decision::Admit { ticket, server, .. } => {
                            flying.push(ticket);
                            let server = &before[server.index()];
                            let steals = !has_room && !lending.is_empty();
                            prop_assert_eq!(server.role == Role::Data, steals);
                            let pool = if steals { least(&lending) } else { least(&open) };
                            prop_assert_eq!(Some(server.in_flight), pool);
                        }
                        _ => prop_assert!(open.is_empty() && lending.is_empty()),
                    }
                }
                7..10 if !flying.is_empty() => {
                    let ticket = flying.swap_remove(which.index(flying.len()));
                    controller.handle_completion(now, ticket, Outcome::answered());
                }
                10 if !flying.is_empty() => {
                    let ticket = flying[which.index(flying.len())];
                    let failed = controller.server_of(ticket).expect("it is in flight");
                    let other = controller.handle_redispatch(now, ticket, failed);
                    prop_assert!(other != Some(failed));
                }
                11 => {
                    let status = [Status::Up, Status::Up, Status::Down, Status::Draining][which.index(4)];
                    controller.handle_server(now, ServerId(which.index(5) as u16), status);
                }
                _ => {}
            }
        }
    }
}
