//! A site step by step, and under anything.

use super::super::*;
use super::*;
use alloc::string::ToString;
use alloc::vec;
use proptest::prelude::*;
use tidegate_engine::{Seconds, Sla, Statistic, Step};

fn second(at: u64) -> Timestamp {
    Timestamp::from_millis(at * 1000)
}

fn application(name: &str, servers: u32) -> ApplicationSetup {
    let steps = vec![
        Step { below: 1000.0, target: Duration::from_secs(1) },
        Step { below: f64::INFINITY, target: Duration::from_secs(2) },
    ];
    ApplicationSetup {
        name: name.into(),
        sla: Sla::new(Statistic::P95, steps).unwrap(),
        revenues: vec![1.0],
        min_servers: servers,
        max_servers: 1000,
        servers,
        max_sentries: 3,
        // 60/s within a p95 of 1 s.
        replica: Some(Replica::new(0.016, 1.0, 1.0)),
    }
}

fn site(policy: ProvisionConfig) -> Site {
    Site {
        servers: 11,
        pool: Pool { setup_time: Duration::from_secs(10), ..Pool::default() },
        applications: vec![application("one", 3), application("two", 3)],
        policy,
        sentries: SentryRule::default(),
        posts: Posts::default(),
    }
}

/// Plays a site in steps of 10 s: servers come up after their setup, drain at once. What is offered beyond 60/s for
/// each server that serves is refused. Gives the servers serving the first two after each step, and all events.
fn play(site: Site, seconds: u64, rates: impl Fn(u64) -> [u64; 2]) -> (Vec<[u32; 2]>, Vec<(u64, ProvisionEvent)>) {
    play_late(site, seconds, rates, |_| 0)
}

/// The same with a clock that is so many milliseconds late at each step.
fn play_late(
    site: Site,
    seconds: u64,
    rates: impl Fn(u64) -> [u64; 2],
    late: impl Fn(u64) -> u64,
) -> (Vec<[u32; 2]>, Vec<(u64, ProvisionEvent)>) {
    let setup = site.pool.setup_time;
    let mut provisioner = Provisioner::new(site).unwrap();
    let mut starting: Vec<(Timestamp, usize)> = Vec::new();
    let (mut course, mut events) = (Vec::new(), Vec::new());
    for step in 1..=seconds / 10 {
        let now = second(step * 10) + Duration::from_millis(late(step * 10));
        for (_, server) in starting.extract_if(.., |(at, _)| *at <= now) {
            provisioner.handle_server(now, server, ServerNews::Up);
        }
        for (at, rate) in rates(step * 10 - 5).into_iter().enumerate() {
            let capacity = 60 * u64::from(provisioner.serving(at));
            let report = ApplicationReport {
                offered: vec![rate * 10],
                refused: 10 * rate.saturating_sub(capacity),
                busy: (rate as f64 / capacity as f64).min(1.0),
                ..ApplicationReport::default()
            };
            provisioner.handle_report(now, at, &report);
        }
        provisioner.handle_timeout(now);
        while let Some(action) = provisioner.poll_action() {
            match action {
                ProvisionAction::Start { server, .. } => starting.push((now + setup, server)),
                ProvisionAction::Drain { server, .. } => provisioner.handle_server(now, server, ServerNews::Drained),
                ProvisionAction::Stop { server } => starting.retain(|(_, other)| *other != server),
                _ => {}
            }
        }
        while let Some((at, event)) = provisioner.poll_event() {
            events.push(((at.as_secs_f64() + 0.5) as u64, event));
        }
        course.push([provisioner.serving(0), provisioner.serving(1)]);
    }
    (course, events)
}

/// The paper's run: the first application doubles every five minutes.
fn doubling(at: u64) -> [u64; 2] {
    [if at < 2400 { 100 << (at / 300).min(4) } else { 100 }, if at < 2700 { 100 } else { 800 }]
}

#[test]
fn the_papers_run() {
    let (course, events) = play(site(ProvisionConfig::Cataclysm(CataclysmConfig::default())), 3600, doubling);
    let at = |seconds: usize| course[seconds / 10 - 1];
    assert_eq!((at(890), at(910)), ([3, 3], [4, 3]), "the first step");
    assert_eq!((at(1200), at(1210)), ([4, 3], [5, 3]), "the second step");
    assert_eq!((at(1800), at(1810)), ([5, 3], [8, 3]), "the plan takes the remaining three");
    let relaxed = events.iter().find(|(_, event)| matches!(event, ProvisionEvent::CeilingSet { .. })).unwrap();
    assert!(matches!(relaxed, (1800, ProvisionEvent::CeilingSet { application: 0, to, .. }) if to.as_secs() == 2));
    // Then the second one takes from the first, one at a time, for nothing is free.
    assert_eq!(at(2990), [8, 3]);
    assert_eq!(at(3020), [7, 4]);
}

#[test]
fn a_clock_that_wavers_loses_no_step() {
    let policy = ProvisionConfig::Cataclysm(CataclysmConfig::default());
    // The interval that ends at 1200 s is looked at less than `pause` after the one that ended at 900 s.
    let (course, _) = play_late(site(policy), 1300, doubling, |at| if at == 900 { 3 } else { 1 });
    let at = |seconds: usize| course[seconds / 10 - 1];
    assert_eq!((at(920), at(1220)), ([4, 3], [5, 3]));
}

#[test]
fn follow_adds_what_is_needed_at_once_and_returns_it_after_a_while() {
    let policy = ProvisionConfig::Follow(FollowConfig { hold: Seconds(120.0), ..FollowConfig::default() });
    let rush = |at: u64| [if (600..1200).contains(&at) { 400 } else { 100 }, 50];
    let (course, _) = play(site(policy), 1800, rush);
    let at = |seconds: usize| course[seconds / 10 - 1];
    assert_eq!(at(600), [3, 3]);
    // 400/s of 16 ms are 6.4 servers' work: 9 would be roomy, and 8 is all there is.
    assert_eq!(at(700), [8, 3]);
    assert_eq!((at(1200), at(1290)), ([8, 3], [8, 3]), "not yet");
    assert_eq!(at(1500), [3, 3]);
}

#[test]
fn cpu_target_is_blind_for_what_is_refused() {
    let policy = ProvisionConfig::CpuTarget(CpuTargetConfig::default());
    let rush = |at: u64| [if at >= 600 { 480 } else { 100 }, 50];
    let (course, _) = play(site(policy), 900, rush);
    let at = |seconds: usize| course[seconds / 10 - 1];
    // Three servers at 100 % ask for five, five for eight: a step at a time, each with its setup.
    assert_eq!((at(620)[0], at(640)[0], at(700)[0]), (3, 5, 8));
}

#[test]
fn a_server_that_fails_is_replaced_and_one_that_hangs_given_up() {
    let mut provisioner = Provisioner::new(site(ProvisionConfig::default())).unwrap();
    while provisioner.poll_action().is_some() {}
    provisioner.handle_server(second(5), 1, ServerNews::Failed);
    provisioner.handle_timeout(second(6));
    let actions: Vec<ProvisionAction> = core::iter::from_fn(|| provisioner.poll_action()).collect();
    assert!(actions.contains(&ProvisionAction::Start { server: 6, application: 0 }), "{actions:?}");
    assert_eq!((provisioner.serving(0), provisioner.coming(0)), (2, 1));
    assert_eq!(provisioner.arriving(second(6), 0), [(second(16), 1.0)]);
    // It hangs: after three times its setup time and a little another one is asked for.
    provisioner.handle_timeout(second(70));
    let actions: Vec<ProvisionAction> = core::iter::from_fn(|| provisioner.poll_action()).collect();
    assert!(actions.contains(&ProvisionAction::Stop { server: 6 }), "{actions:?}");
    assert_eq!(provisioner.coming(0), 1);
    let failed = |event: &(Timestamp, ProvisionEvent)| matches!(event.1, ProvisionEvent::ServerFailed { .. });
    assert_eq!(core::iter::from_fn(|| provisioner.poll_event()).filter(failed).count(), 2);
}

#[test]
fn sentries_come_and_servers_are_split() {
    let mut provisioner = Provisioner::new(site(ProvisionConfig::default())).unwrap();
    while provisioner.poll_action().is_some() {}
    (1..=30).for_each(|at| provisioner.handle_sentry(second(at), 0, 0, second(at - 1), 0.9));
    let partition = ProvisionAction::Partition { application: 0, servers: vec![vec![0, 1], vec![2]] };
    assert_eq!(provisioner.poll_action(), Some(partition));
    assert_eq!(provisioner.sentries(0), 2);
}

#[test]
fn what_makes_no_sense_is_named() {
    let error = |change: fn(&mut Site)| {
        let mut site = site(ProvisionConfig::default());
        change(&mut site);
        Provisioner::new(site).unwrap_err().to_string()
    };
    for (change, part) in [
        ((|s| s.applications.clear()) as fn(&mut Site), "give 1 to 1000"),
        (|s| s.applications[1].min_servers = 2000, "application \"two\": its minimum"),
        (|s| s.applications[0].servers = 2, "application \"one\": it begins with fewer"),
        (|s| s.servers = 5, "begin with 6 servers together, of 5"),
        (|s| s.applications[0].revenues = vec![f64::NAN], "every class needs a revenue"),
        (|s| s.sentries.low = 0.9, "sentries.low must be below `high`"),
        (|s| s.policy = ProvisionConfig::Cataclysm(CataclysmConfig { step: 0, ..Default::default() }), "step must"),
        (
            |s| s.policy = ProvisionConfig::Follow(FollowConfig { every: Seconds(0.0), ..Default::default() }),
            "every must",
        ),
    ] {
        let error = error(change);
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn settings_of_follow_that_make_no_sense_are_named() {
    let error = |change: fn(&mut FollowConfig)| {
        let mut config = FollowConfig::default();
        change(&mut config);
        Provisioner::new(site(ProvisionConfig::Follow(config))).map(|_| ()).map_err(|error| error.to_string())
    };
    for (change, part) in [
        ((|c| c.hold = Seconds(f64::NAN)) as fn(&mut FollowConfig), "hold must"),
        (|c| c.most_busy = 0.0, "most_busy must be more than 0"),
        (|c| c.safety = f64::INFINITY, "safety must"),
        (|c| c.price = 0.0, "price must be more than 0"),
        (|c| c.price = f64::NAN, "price must be a finite number"),
        (|c| c.room = 0.0, "room must be more than 0"),
        (|c| c.room = -1.0, "room must be a finite number"),
        (|c| c.refused = 1.5, "refused must lie between"),
        (|c| c.least_margin = 0.0, "least_margin must be more than 0"),
        (|c| c.least_margin = f64::NAN, "least_margin must be a finite number"),
        (|c| c.least_margin = 2.0, "most_margin must not be below `least_margin`"),
        (|c| c.most_margin = f64::NAN, "most_margin must be a finite number"),
        (|c| c.trust = f64::NEG_INFINITY, "trust must"),
    ] {
        let error = error(change).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(error(|c| (c.least_margin, c.most_margin, c.trust, c.safety) = (1.0, 1.0, 0.0, 0.0)), Ok(()));
}

#[derive(Clone, Debug)]
enum Input {
    Report(usize, Vec<u64>, u64, f64),
    Sentry(usize, usize, f64),
    News(usize, ServerNews),
    Wait(u64),
}

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let news = prop_oneof![Just(ServerNews::Up), Just(ServerNews::Drained), Just(ServerNews::Failed)];
    let input = prop_oneof![
        4 => (0..3usize, prop::collection::vec(0u64..100_000, 0..3), 0u64..100_000, prop_oneof![0.0..2.0, Just(f64::NAN)])
            .prop_map(|(at, offered, refused, busy)| Input::Report(at, offered, refused, busy)),
        1 => (0..3usize, 0..4usize, 0.0f64..1.0).prop_map(|(at, sentry, cpu)| Input::Sentry(at, sentry, cpu)),
        3 => (0..13usize, news).prop_map(|(server, news)| Input::News(server, news)),
        4 => (0u64..400).prop_map(Input::Wait),
    ];
    prop::collection::vec(input, 0..200)
}

proptest! {
    /// Whatever comes: nobody gets more than there is, a server is at one place, actions follow the places, equal
    /// inputs give equal actions.
    #[test]
    fn a_site_stays_sound(inputs in inputs(), policy in 0..3usize) {
        let policy = [
            ProvisionConfig::default(),
            ProvisionConfig::Cataclysm(CataclysmConfig::default()),
            ProvisionConfig::CpuTarget(CpuTargetConfig::default()),
        ][policy].clone();
        let mut twins = [Provisioner::new(site(policy.clone())).unwrap(), Provisioner::new(site(policy)).unwrap()];
        let (mut now, mut before) = (0, 0);
        for input in inputs {
            if let Input::Wait(time) = input {
                (before, now) = (now, now + time);
            }
            for provisioner in &mut twins {
                match &input {
                    Input::Report(at, offered, refused, busy) => {
                        let (offered, refused, busy) = (offered.clone(), *refused, *busy);
                        let report = ApplicationReport { offered, refused, busy, ..Default::default() };
                        provisioner.handle_report(second(now), *at, &report);
                    }
                    Input::Sentry(at, sentry, cpu) => {
                        provisioner.handle_sentry(second(now), *at, *sentry, second(before), *cpu);
                    }
                    Input::News(server, news) => provisioner.handle_server(second(now), *server, *news),
                    Input::Wait(_) => provisioner.handle_timeout(second(now)),
                }
            }
            let [first, second] = &mut twins;
            let actions: Vec<ProvisionAction> = core::iter::from_fn(|| first.poll_action()).collect();
            let others: Vec<ProvisionAction> = core::iter::from_fn(|| second.poll_action()).collect();
            prop_assert_eq!(&actions, &others);
            for action in &actions {
                if let ProvisionAction::Partition { application, servers } = action {
                    let mut all = servers.concat();
                    all.sort_unstable();
                    let count = all.len();
                    all.dedup();
                    prop_assert_eq!(count, all.len(), "a server of {} is with two sentries", application);
                }
            }
            let members: u32 = (0..2).map(|at| first.serving(at) + first.coming(at)).sum();
            prop_assert!(members <= 11);
            for at in 0..2 {
                prop_assert!(first.wanted(at) >= 3 && (1..=3).contains(&first.sentries(at)));
                prop_assert!(first.arriving(Timestamp::ZERO, at).iter().all(|(_, worth)| *worth > 0.0));
            }
        }
    }
}

/// 380/s of 20 ms are 7.6 servers' work. How many servers that takes depends on how uneven requests and arrivals are.
#[test]
fn measured_variances_decide_how_many_servers_are_wanted() {
    let wanted = |service: Option<f64>, arrivals: Option<f64>| {
        let mut site = site(ProvisionConfig::default());
        site.servers = 100;
        site.applications.truncate(1);
        site.applications[0].replica = None;
        site.applications[0].sla = Sla::constant(Statistic::P95, Duration::from_millis(180)).unwrap();
        let mut provisioner = Provisioner::new(site).unwrap();
        for at in 1..=30 {
            let report = ApplicationReport {
                offered: vec![3800],
                mean_service: Some(0.02),
                service_variation: service,
                arrival_variation: arrivals,
                ..ApplicationReport::default()
            };
            provisioner.handle_report(second(at * 10), 0, &report);
            provisioner.handle_timeout(second(at * 10));
        }
        let measured = provisioner.measured(second(300), 0);
        assert!(measured.service_variation.zip(measured.arrival_variation).is_some());
        provisioner.wanted(0)
    };
    let poisson = wanted(None, None);
    assert_eq!(wanted(Some(1.0), Some(1.0)), poisson, "what is not known is taken to be exponential");
    let (even, bursty) = (wanted(Some(0.3), Some(0.5)), wanted(Some(1.0), Some(3.0)));
    assert!(even < poisson && poisson < bursty, "{even}, {poisson}, {bursty}");
    assert_eq!(wanted(Some(f64::NAN), Some(-1.0)), poisson, "nonsense is not believed");
    assert_eq!(wanted(None, Some(f64::MAX)), wanted(None, Some(5.0)), "nor what is beyond measure");
}
