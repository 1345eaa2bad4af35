use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use crate::*;

const CPU: Tags = Tags(1);
const NIC: Tags = Tags(2);

struct Bench {
    engine: Controller,
    now: Timestamp,
    syn: Option<Option<f64>>,
}

impl Bench {
    fn new(policy: &str, servers: usize) -> Bench {
        let engine = Controller::new(setup(policy, servers), 1, 1, Box::new(NoEvents)).expect("it makes sense");
        Bench { engine, now: Timestamp::ZERO, syn: None }
    }

    fn signal(&mut self, server: Option<u16>, signal: Signal, value: f64) {
        let server = server.map(ServerId);
        self.engine.handle_report(self.now, LoadReport::Signal { server, signal, value });
    }

    /// A second in which `count` requests of a class with these tags come evenly, and are answered at once.
    fn second(&mut self, count: u64, class: u8, tags: Tags) -> usize {
        let mut let_in = 0;
        for _ in 0..count {
            let_in += usize::from(self.arrive(class, tags).is_ok());
            self.pass(1_000_000 / count);
        }
        self.pass(1_000_000 - count * (1_000_000 / count.max(1)));
        let_in
    }

    fn arrive(&mut self, class: u8, tags: Tags) -> Result<(), Rejection> {
        let request = Request { class: ClassId(class), tags, ..Request::default() };
        match self.engine.handle_arrival(self.now, request) {
            Decision::Admit { ticket, .. } => {
                self.engine.handle_completion(self.now, ticket, Outcome::answered_in(Duration::from_millis(1)));
                Ok(())
            }
            Decision::Reject(rejection) => Err(rejection),
            other => panic!("nobody waits: {other:?}"),
        }
    }

    fn pass(&mut self, micros: u64) {
        let to = self.now + Duration::from_micros(micros);
        while let Some((at, _)) = self.engine.poll_timeout().filter(|(at, _)| *at <= to) {
            self.now = at;
            self.engine.handle_timeout(at);
            while let Some(action) = self.engine.poll_action() {
                if let Action::SynRate { rate, .. } = action {
                    self.syn = Some(rate);
                }
            }
        }
        self.now = to;
    }

    fn state(&self, resource: &str) -> Vec<Facts> {
        let own = self.engine.snapshot(self.now).policy.own;
        own.list("resources").filter(|state| state.text("resource") == Some(resource)).cloned().collect()
    }
}

/// At which server, the rate, and why.
fn shown(state: &Facts) -> (Option<&str>, Option<f64>, Option<&str>) {
    (state.text("server"), state.number("rate"), state.text("why"))
}

fn setup(policy: &str, servers: usize) -> Setup {
    let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("more than zero");
    let server = |at: usize| ServerSetup::new(["one", "two", "three"][at]);
    let mut setup = Setup::simple("bench", sla, (0..servers).map(server));
    setup.classes = ["gold", "bronze"].map(ClassSetup::new).to_vec();
    setup.tags = ["cpu", "nic_queue"].map(String::from).to_vec();
    setup.dispatch = DispatchConfig::from_name("wrr").expect("a name of the table");
    setup.admission = serde_json::from_str(policy).unwrap_or_else(|error| panic!("{policy}: {error}"));
    setup
}

const DEFAULT: &str = r#"{ "policy": "resource" }"#;

#[test]
fn only_what_strains_the_short_resource_is_refused() {
    let mut bench = Bench::new(DEFAULT, 1);
    for _ in 0..60 {
        (0..9).for_each(|_| bench.signal(Some(0), Signal::Cpu, 100.0));
        bench.second(100, 0, CPU);
    }
    let state = &bench.state("cpu")[0];
    assert_eq!(shown(state), (Some("one"), Some(10.0), Some("at-least")));
    assert_eq!(["input", "error", "step"].map(|key| state.number(key)), [Some(100.0), Some(-10.0), Some(-2.0)]);
    let second = |bench: &mut Bench, count, class, tags| {
        bench.signal(Some(0), Signal::Cpu, 100.0);
        bench.second(count, class, tags)
    };
    assert!((9..=11).contains(&second(&mut bench, 100, 0, CPU)), "the least rate");
    assert_eq!(second(&mut bench, 500, 1, Tags(0)), 500, "nothing else is tested");
    assert_eq!(second(&mut bench, 100, 1, NIC), 100);
    second(&mut bench, 50, 0, CPU);
    let rejection = (0..9).find_map(|_| bench.arrive(0, CPU).err()).expect("the bucket is empty");
    assert_eq!((rejection.reason, rejection.retry_after), (Reason::ResourceLimit, Duration::from_secs(1)));
    assert_eq!(bench.syn, None, "connections are let in");
}

/// The admin API's JSON: other programs read it.
#[test]
fn its_state_has_these_keys_in_this_order() {
    let mut bench = Bench::new(r#"{ "policy": "resource", "connections": false }"#, 1);
    bench.signal(Some(0), Signal::Cpu, 50.0);
    bench.second(1, 0, CPU);
    let state = serde_json::to_string(&bench.engine.snapshot(bench.now).policy).expect("JSON");
    let resource =
        r#""full":null,"resources":[{"resource":"cpu","signal":"cpu","server":"one","rate":null,"parts":[],"#;
    let numbers = r#""hits":1.0,"admitted":1,"refused":0,"input":50.0,"reference":90.0,"error":40.0,"step":8.0,"#;
    let uses = r#""why":"never-short"}],"uses":[{"request_type":"default","requests":1,"cpu_seconds":"#;
    let expected = [resource, numbers, uses].concat();
    assert!(state.contains(&expected) && state.ends_with(r#","more":[]}"#), "{state}");
}

#[test]
fn each_server_has_its_bucket_and_is_tested_when_it_is_chosen() {
    let mut bench = Bench::new(DEFAULT, 2);
    for _ in 0..80 {
        bench.signal(Some(0), Signal::Cpu, 100.0);
        bench.signal(Some(1), Signal::Cpu, 50.0);
        bench.second(100, 0, CPU);
    }
    let states = bench.state("cpu");
    let shown: Vec<_> = states.iter().map(shown).collect();
    assert_eq!(shown, [(Some("one"), Some(10.0), Some("at-least")), (Some("two"), None, Some("never-short"))]);
    // Every second request goes to the other server.
    assert!((59..=61).contains(&bench.second(100, 0, CPU)));
}

#[test]
fn a_resource_of_the_sentry_is_tested_for_every_server() {
    let mut bench = Bench::new(DEFAULT, 3);
    for length in [100.0, 300.0, 500.0, 700.0, 900.0] {
        bench.signal(None, Signal::NicQueue, length);
        bench.second(60, 0, NIC);
    }
    let state = &bench.state("nic_queue")[0];
    assert_eq!(shown(state), (None, Some(10.0), Some("at-least")));
    assert!(bench.second(60, 0, NIC) < 15);
}

#[test]
fn connections_are_limited_by_the_queue_and_raised_only_while_processors_are_free() {
    let mut bench = Bench::new(DEFAULT, 1);
    let second = |bench: &mut Bench, queue: f64, cpu: f64, offered: u64| {
        bench.signal(Some(0), Signal::Cpu, cpu);
        bench.signal(Some(0), Signal::ListenQueue, queue);
        bench.engine.handle_report(bench.now, LoadReport::Connections { offered, refused: offered / 10 });
        bench.second(offered, 0, Tags(0));
    };
    second(&mut bench, 10.0, 95.0, 300);
    assert_eq!((bench.syn, bench.state("syn")[0].text("why")), (None, Some("never-short")));
    second(&mut bench, 200.0, 100.0, 800);
    let begun = 800.0 - 100.0 / 16.0 - 190.0 / 4.0;
    assert_eq!(bench.syn, Some(Some(begun)));
    second(&mut bench, 20.0, 95.0, 800);
    assert_eq!((bench.syn, bench.state("syn")[0].text("why")), (Some(Some(begun)), Some("cpu-busy")));
    second(&mut bench, 10.0, 60.0, 800);
    assert!(bench.syn > Some(Some(begun)) && bench.state("syn")[0].text("why") == Some("raised"));
    assert_eq!(bench.state("syn")[0].count("refused"), Some(30 + 80 + 80 + 80));
    bench.engine.set_shadow(bench.now, true);
    second(&mut bench, 400.0, 60.0, 800);
    assert_eq!(bench.syn, Some(None), "in shadow mode nothing is turned away");
}

#[test]
fn another_policy_lets_all_connections_in() {
    let mut bench = Bench::new(DEFAULT, 1);
    for _ in 0..3 {
        assert!(bench.syn.flatten().is_none(), "a long queue may pass");
        bench.signal(Some(0), Signal::ListenQueue, 500.0);
        bench.second(100, 0, Tags(0));
    }
    assert!(bench.syn.flatten().is_some());
    let setup = setup(r#"{ "policy": "none" }"#, 1);
    bench.engine.reconfigure(bench.now, setup).expect("it makes sense");
    assert_eq!(bench.engine.poll_action(), Some(Action::SynRate { rate: None, depth: 1.0 }));
}

#[test]
fn a_lost_nucleus_lifts_the_limit_of_its_server() {
    let mut bench = Bench::new(DEFAULT, 1);
    for _ in 0..60 {
        bench.signal(Some(0), Signal::Cpu, 100.0);
        bench.second(100, 0, CPU);
    }
    assert!(bench.second(100, 0, CPU) < 20);
    bench.engine.handle_report(bench.now, LoadReport::Silent(ServerId(0)));
    assert_eq!(bench.second(100, 0, CPU), 100);
    assert_eq!(bench.state("cpu"), []);
}

#[test]
fn classes_have_partitions_and_lend_what_they_do_not_use() {
    let both = |bench: &mut Bench| {
        bench.signal(Some(0), Signal::Cpu, 91.0);
        let mut let_in = [0, 0];
        for at in 0..100u8 {
            let_in[usize::from(at % 2)] += usize::from(bench.arrive(at % 2, CPU).is_ok());
            bench.pass(10_000);
        }
        let_in
    };
    let policy = r#"{ "policy": "resource", "shares": [3, 1], "resources": [
        { "name": "cpu", "control": { "initial_rate": 20 } }, { "name": "nic_queue" }] }"#;
    let mut bench = Bench::new(policy, 1);
    for _ in 0..3 {
        both(&mut bench);
    }
    let [gold, bronze] = both(&mut bench);
    assert!((14..=16).contains(&gold) && (4..=6).contains(&bronze), "{gold}, {bronze}");
    bench.signal(Some(0), Signal::Cpu, 91.0);
    bench.second(100, 1, CPU);
    bench.signal(Some(0), Signal::Cpu, 91.0);
    let alone = bench.second(100, 1, CPU);
    assert!((16..=19).contains(&alone), "{alone}: gold asks for nothing and keeps a tenth of its part");
}

#[test]
fn learned_tags_are_of_what_costs_a_multiple_of_the_mean() {
    let mut bench = Bench::new(r#"{ "policy": "resource", "tags": "learn" }"#, 1);
    let serve = |bench: &mut Bench, url: u64, millis: u64| {
        let request = Request { url: UrlKey(url << 32 | url), ..Request::default() };
        let decision = bench.engine.handle_arrival(bench.now, request);
        bench.pass(5_000);
        let Decision::Admit { ticket, .. } = decision else { return false };
        bench.engine.handle_completion(bench.now, ticket, Outcome::answered_in(Duration::from_millis(millis)));
        true
    };
    let mut refused = [0, 0];
    for at in 0..6000u64 {
        if at % 200 == 0 {
            bench.signal(Some(0), Signal::Cpu, 100.0);
        }
        let heavy = at % 10 == 0;
        let let_in = serve(&mut bench, if heavy { 1 } else { 2 }, if heavy { 50 } else { 1 });
        refused[usize::from(heavy)] += usize::from(!let_in);
    }
    assert_eq!(refused[0], 0, "cheap ones pass");
    assert!(refused[1] > 100, "{refused:?}");
}

#[test]
fn wrong_settings_say_what_to_write() {
    let wrong = |policy: &str| setup(policy, 1).check().expect_err(policy).to_string();
    for (policy, says) in [
        (r#"{ "policy": "resource", "resources": [{ "name": "cpu" }] }"#, "\"nic_queue\" is a tag without a resource"),
        (r#"{ "policy": "resource", "resources": [{ "name": "db" }] }"#, "\"db\" is no signal's name"),
        (r#"{ "policy": "resource", "resources": [{ "name": "net_sent" }] }"#, "has no reference"),
        (r#"{ "policy": "resource", "resources": [{ "name": "cpu" }, { "name": "cpu" }] }"#, "is there twice"),
        (r#"{ "policy": "resource", "syn": { "min_rate": "20/s", "max_rate": "10/s" } }"#, "\"syn\" has a max_rate"),
        (r#"{ "policy": "resource", "syn": { "depth": 0.5 } }"#, "depth below 1"),
        (r#"{ "policy": "resource", "period": "1ms" }"#, "period must lie"),
    ] {
        assert!(wrong(policy).contains(says), "{}", wrong(policy));
    }
    let given = serde_json::from_str::<AdmissionConfig>(r#"{ "policy": "resource", "syn": { "refrence": 1 } }"#);
    assert!(given.is_err());
}
