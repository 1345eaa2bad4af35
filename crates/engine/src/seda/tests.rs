//! Runs computed by hand, and what holds in any run.

use super::*;
use proptest::prelude::*;

const GOLD: ClassId = ClassId(0);
const BRONZE: ClassId = ClassId(1);

/// One sample a run and no smoothing: each completion is a run whose error is easy to see.
fn plain() -> Parameters {
    Parameters { samples: 1, smoothing: 0.0, ..Parameters::default() }
}

fn controller(parameters: Parameters, classes: usize) -> Controller {
    Controller::new(parameters, &[1.0], classes).expect("it makes sense")
}

/// Completes so many requests of the first class.
fn complete(controller: &mut Controller, count: usize, now: Timestamp, seconds: f64) {
    for _ in 0..count {
        controller.completed(now, GOLD, seconds);
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn step(controller: &Controller, class: ClassId) -> Step {
    controller.last_run(class).expect("it ran").step
}

#[track_caller]
fn close(seen: f64, expected: f64) {
    assert!((seen - expected).abs() < 1e-9, "{seen}, expected {expected}");
}

#[test]
fn a_rate_that_is_hardly_used_is_raised_only_where_the_paper_says_so() {
    for (requests, raise_unused, expected) in
        [(49, true, Step::Raised), (49, false, Step::Unused), (50, false, Step::Raised), (50, true, Step::Raised)]
    {
        let mut controller = controller(Parameters { raise_unused, ..Parameters::default() }, 1);
        controller.on_timeout(at(1000));
        // In a second in which 100 may come.
        for request in 0..requests {
            let now = at(1000 + 20 * request);
            controller.admit(now, GOLD);
            controller.completed(now, GOLD, 0.1);
        }
        controller.on_timeout(at(2000));
        assert_eq!(step(&controller, GOLD), expected, "{requests} requests");
    }
}

#[test]
fn a_run_takes_the_percentile_into_the_estimate_and_moves_the_rate() {
    let mut controller = controller(Parameters { samples: 10, ..Parameters::default() }, 1);
    // The ninth of ten is 0.2 s: the error is -0.8, the step 2 (-0.1 + 0.8).
    for (i, seconds) in [0.2, 0.2, 0.1, 0.1, 0.1, 9.0, 0.1, 0.1, 0.1].into_iter().enumerate() {
        assert!(!controller.completed(at(i as u64), GOLD, seconds), "nine are too few");
    }
    assert!(controller.completed(at(10), GOLD, 0.1));
    close(controller.rate(GOLD), 101.4);
    close(controller.percentile(GOLD).unwrap(), 0.2);
    assert_eq!(step(&controller, GOLD), Step::Raised);
    // 0.7 * 0.2 + 0.3 * 6 = 1.94: over the target.
    complete(&mut controller, 10, at(20), 6.0);
    close(controller.percentile(GOLD).unwrap(), 1.94);
    close(controller.rate(GOLD), 101.4 / 1.2);
    let run = controller.last_run(GOLD).unwrap();
    assert_eq!((run.at, run.samples, run.sample, run.step), (at(20), 10, Some(6.0), Step::Lowered));
    close(run.error.unwrap(), 0.94);
    // 0.7 * 1.94 + 0.3 * 0.1 = 1.388, then 1.0016, then 0.73112: in the dead band.
    for expected in [Step::Lowered, Step::Lowered, Step::Kept] {
        complete(&mut controller, 10, at(30), 0.1);
        assert_eq!(step(&controller, GOLD), expected);
    }
    close(controller.rate(GOLD), 101.4 / 1.728);
}

#[test]
fn a_timeout_runs_with_what_there_is_and_without_a_sample_changes_nothing() {
    let mut controller = controller(Parameters::default(), 1);
    assert_eq!(controller.next_timeout(), at(1000));
    controller.completed(at(500), GOLD, 3.0);
    controller.on_timeout(at(999));
    assert_eq!(controller.last_run(GOLD), None);
    controller.on_timeout(at(1000));
    close(controller.rate(GOLD), 100.0 / 1.2);
    assert_eq!(controller.next_timeout(), at(2000));
    controller.on_timeout(at(2500));
    assert_eq!(step(&controller, GOLD), Step::Idle);
    close(controller.rate(GOLD), 100.0 / 1.2);
    assert_eq!(controller.next_timeout(), at(3500), "counted from the run");
}

#[test]
fn a_quiet_night_is_forgotten_but_not_while_requests_are_refused() {
    let mut controller = controller(plain(), 1);
    complete(&mut controller, 50, at(0), 9.0);
    close(controller.rate(GOLD), 0.05);
    assert!(controller.admit(at(0), GOLD));
    for second in 1..=15 {
        assert!(!controller.admit(at(second * 1000 - 1), GOLD));
        controller.on_timeout(at(second * 1000));
    }
    assert_eq!(controller.percentile(GOLD), None, "forgotten");
    close(controller.rate(GOLD), 0.05);
    (16..25).for_each(|second| controller.on_timeout(at(second * 1000)));
    assert_eq!(step(&controller, GOLD), Step::Idle, "nine runs without a request");
    controller.on_timeout(at(25_000));
    assert_eq!(step(&controller, GOLD), Step::Renewed);
    close(controller.rate(GOLD), 100.0);
    assert!(controller.admit(at(25_002), GOLD), "and the bucket fills at the new rate");
}

#[test]
fn the_bucket_lets_through_its_depth_and_its_rate_and_says_when_to_return() {
    let mut controller = controller(Parameters { depth: 3.0, initial_rate: 10.0, ..plain() }, 2);
    let passed = (0..10).filter(|_| controller.admit(at(0), GOLD)).count();
    assert_eq!(passed, 3);
    assert_eq!(controller.retry_after(at(0), GOLD), Duration::from_millis(100));
    assert_eq!(controller.retry_after(at(0), BRONZE), Duration::ZERO);
    let passed = (1..=1000).filter(|ms| controller.admit(at(*ms), GOLD)).count();
    assert_eq!(passed, 10);
    controller.set_policing(false);
    assert!((0..10).all(|_| controller.admit(at(1000), GOLD)));
    assert_eq!(controller.retry_after(at(1000), GOLD), Duration::ZERO);
}

#[test]
fn less_important_classes_give_first_and_the_own_rate_only_after_the_lag() {
    let mut controller = controller(Parameters { lag: 3, ..plain() }, 2);
    let mut rates = Vec::new();
    for _ in 0..8 {
        controller.completed(at(0), GOLD, 2.0);
        rates.push((step(&controller, GOLD), controller.rate(GOLD), controller.rate(BRONZE)));
    }
    let (others, lagged, lowered) = (Step::LoweredOthers, Step::Lagged, Step::Lowered);
    let expected = [
        (others, 100.0, 10.0),
        (others, 100.0, 1.0),
        (others, 100.0, 0.1),
        (others, 100.0, 0.05),
        (lagged, 100.0, 0.05),
        (lagged, 100.0, 0.05),
        (lowered, 100.0 / 1.2, 0.05),
        (lowered, 100.0 / 1.44, 0.05),
    ];
    for ((step, gold, bronze), seen) in expected.into_iter().zip(rates) {
        assert_eq!(step, seen.0);
        close(seen.1, gold);
        close(seen.2, bronze);
    }
    assert_eq!(step(&controller, BRONZE), Step::LoweredByClass(GOLD));
    // A run on target ends the lag.
    controller.completed(at(0), GOLD, 0.8);
    controller.completed(at(0), GOLD, 2.0);
    assert_eq!(step(&controller, GOLD), Step::Lagged);
}

#[test]
fn a_class_is_not_raised_in_the_run_after_a_more_important_one_was_over() {
    let mut controller = controller(plain(), 2);
    controller.completed(at(0), GOLD, 2.0);
    controller.completed(at(0), BRONZE, 0.1);
    assert_eq!(step(&controller, BRONZE), Step::Held);
    close(controller.rate(BRONZE), 10.0);
    controller.completed(at(0), BRONZE, 0.1);
    assert_eq!(step(&controller, BRONZE), Step::Raised);
    close(controller.rate(BRONZE), 11.6);
    // The least important class has nobody to take from: at once.
    controller.completed(at(0), BRONZE, 2.0);
    assert_eq!(step(&controller, BRONZE), Step::Lowered);
    close(controller.rate(GOLD), 100.0);
}

#[test]
fn the_public_implementations_variant_lowers_the_own_rate_too() {
    let mut controller = controller(Parameters { lower_own_always: true, ..plain() }, 2);
    controller.completed(at(0), GOLD, 2.0);
    close(controller.rate(GOLD), 100.0 / 1.2);
    close(controller.rate(BRONZE), 10.0);
}

#[test]
fn quality_goes_down_before_anybody_is_refused_and_comes_back_after() {
    let quality = QualityParameters { min: 0.25, lower_by: 2.0, raise_by: 0.25, ..QualityParameters::default() };
    let mut controller = controller(Parameters { quality: Some(quality), ..plain() }, 1);
    let mut play = |seconds: f64| {
        controller.completed(at(0), GOLD, seconds);
        (step(&controller, GOLD), controller.quality(), controller.policing())
    };
    assert_eq!(play(2.0), (Step::Degraded, 0.5, false));
    assert_eq!(play(2.0), (Step::Degraded, 0.25, false));
    assert_eq!(play(2.0), (Step::Lowered, 0.25, true));
    assert!(controller.admit(at(0), GOLD) && !controller.admit(at(0), GOLD));
    let mut play = |seconds: f64| {
        controller.completed(at(0), GOLD, seconds);
        (step(&controller, GOLD), controller.quality(), controller.policing())
    };
    assert_eq!(play(0.1), (Step::Raised, 0.25, true), "it refuses");
    assert_eq!(play(0.1), (Step::Opened, 0.25, false));
    assert_eq!(play(0.1), (Step::Improved, 0.5, false));
    assert_eq!(play(0.1), (Step::Improved, 0.75, false));
    assert_eq!(play(0.1), (Step::Improved, 1.0, false));
    assert_eq!(play(0.1), (Step::Raised, 1.0, false));
}

#[test]
fn degradation_alone_never_refuses() {
    let quality = QualityParameters { then_police: false, ..QualityParameters::default() };
    let mut controller = controller(Parameters { quality: Some(quality), ..plain() }, 1);
    complete(&mut controller, 40, at(0), 9.0);
    close(controller.quality(), 0.1);
    assert_eq!((step(&controller, GOLD), controller.policing()), (Step::Kept, false));
    assert!((0..1000).all(|_| controller.admit(at(0), GOLD)));
}

#[test]
fn quality_comes_back_when_nothing_happens_any_more() {
    let mut controller = controller(Parameters { quality: Some(QualityParameters::default()), ..plain() }, 2);
    complete(&mut controller, 40, at(0), 9.0);
    (1..100).for_each(|second| controller.on_timeout(at(second * 1000)));
    assert_eq!((controller.quality(), controller.policing()), (1.0, false));
}

#[test]
fn nothing_is_forgotten_and_no_rate_starts_anew_where_that_is_off() {
    for forgets in [true, false] {
        let mut controller = controller(Parameters { forgets, ..plain() }, 1);
        complete(&mut controller, 40, at(0), 9.0);
        let lowered = controller.rate(GOLD);
        (1..100).for_each(|second| controller.on_timeout(at(second * 1000)));
        assert!(lowered < 100.0);
        assert_eq!(controller.percentile(GOLD).is_none(), forgets);
        close(controller.rate(GOLD), if forgets { 100.0 } else { lowered });
    }
}

#[test]
fn nonsense_is_named() {
    let problem = |parameters: Parameters, targets: &[f64], classes| {
        let error = Controller::new(parameters, targets, classes).expect_err("nonsense");
        alloc::string::ToString::to_string(&error)
    };
    let defaults = Parameters::default;
    assert!(problem(defaults(), &[0.0], 1).contains("target must be more than zero"));
    assert!(problem(defaults(), &[1.0, f64::NAN], 2).contains("target must be more than zero"));
    assert!(problem(defaults(), &[1.0, 1.0], 3).contains("targets must be one"));
    assert!(problem(defaults(), &[1.0], 0).contains("classes"));
    assert!(problem(Parameters { samples: 0, ..defaults() }, &[1.0], 1).contains("samples"));
    assert!(problem(Parameters { lower_by: 1.0, ..defaults() }, &[1.0], 1).contains("lower_by must be more than 1"));
    assert!(problem(Parameters { raise_offset: -0.6, ..defaults() }, &[1.0], 1).contains("raise_offset"));
    assert!(problem(Parameters { initial_rate: 0.0, ..defaults() }, &[1.0], 1).contains("initial_rate"));
    let quality = Some(QualityParameters { min: 1.5, ..QualityParameters::default() });
    assert!(problem(Parameters { quality, ..defaults() }, &[1.0], 1).contains("quality.min"));
}

#[test]
fn parameters_read_as_written() {
    let text = r#"{ "timeout": "500ms", "max_rate": "2k/s", "initial_rate": 50, "quality": { "min": 0.5 } }"#;
    let parameters: Parameters = serde_json::from_str(text).expect("well-formed");
    assert_eq!((parameters.timeout.0, parameters.max_rate, parameters.initial_rate), (0.5, 2000.0, 50.0));
    let again = serde_json::from_str(&serde_json::to_string(&parameters).expect("plain")).expect("what was written");
    assert_eq!(parameters, again);
    assert!(serde_json::from_str::<Parameters>(r#"{ "sample": 1 }"#).is_err());
}

/// One thing that happens to a controller.
#[derive(Clone, Debug)]
enum Operation {
    Admit(u8),
    Complete(u8, f64),
    Wait(u64),
    Police(bool),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => (0u8..3).prop_map(Operation::Admit),
        6 => (0u8..3, prop_oneof![0.0f64..1.0, 0.5f64..20.0]).prop_map(|(class, time)| Operation::Complete(class, time)),
        2 => (0u64..30_000).prop_map(Operation::Wait),
        1 => any::<bool>().prop_map(Operation::Police),
    ]
}

fn parameters() -> impl Strategy<Value = Parameters> {
    let quality = prop::option::of((0.01f64..0.9, any::<bool>()));
    (1u32..8, 0.0f64..0.95, any::<bool>(), 0u32..5, quality).prop_map(|(samples, smoothing, always, lag, quality)| {
        let quality =
            quality.map(|(min, then_police)| QualityParameters { min, then_police, ..QualityParameters::default() });
        Parameters {
            samples,
            smoothing,
            lower_own_always: always,
            lag,
            quality,
            max_rate: 200.0,
            ..Parameters::default()
        }
    })
}

proptest! {
    #[test]
    fn in_any_run(parameters in parameters(), operations in prop::collection::vec(operation(), 1..400)) {
        let mut controller = Controller::new(parameters.clone(), &[1.0, 2.0, 3.0], 3).expect("it makes sense");
        let least = parameters.quality.as_ref().map_or(1.0, |quality| quality.min);
        let mut now = Timestamp::ZERO;
        for operation in operations {
            let before = controller.clone();
            match operation {
                Operation::Admit(class) => {
                    let (class, wait) = (ClassId(class), controller.retry_after(now, ClassId(class)));
                    let admitted = controller.admit(now, class);
                    prop_assert_eq!(admitted, wait.is_zero(), "{:?} to wait", wait);
                    prop_assert!(admitted || controller.policing());
                }
                Operation::Complete(class, time) => {
                    controller.completed(now, ClassId(class), time);
                }
                Operation::Wait(millis) => {
                    now = now + Duration::from_millis(millis);
                    controller.on_timeout(now);
                    prop_assert!(controller.next_timeout() > now);
                }
                Operation::Police(policing) => controller.set_policing(policing),
            }
            prop_assert!((least..=1.0).contains(&controller.quality()));
            for index in 0..3 {
                let (class, seen) = (ClassId(index as u8), &controller.classes[index]);
                prop_assert!((0.05..=200.0).contains(&controller.rate(class)));
                prop_assert!(seen.samples.len() < parameters.samples as usize, "a full buffer runs");
                let raised = seen.rate() > before.classes[index].rate();
                let renewed = controller.last_run(class).is_some_and(|run| run.step == Step::Renewed);
                prop_assert!(!raised || renewed || !before.classes[index].is_held, "raised though held");
                prop_assert!(!raised || matches!(step(&controller, class), Step::Raised | Step::Renewed));
            }
            let may_police = parameters.quality.as_ref().is_none_or(|quality| quality.then_police);
            let told = matches!(operation, Operation::Police(true));
            prop_assert!(may_police || before.policing() || !controller.policing() || told);
        }
    }
}

/// A service of 20/s that was idle: nothing is set, and the rate is within its reach when the crowd comes.
#[test]
fn derived_bounds_follow_the_answers() {
    let parameters = Parameters { derived: true, ..Parameters::default() };
    let mut controller = controller(parameters, 1);
    let class = ClassId(0);
    let run = |controller: &mut Controller, second: u64, answers: u32, took: f64| {
        let now = Timestamp::from_millis(second * 1000);
        for _ in 0..answers {
            controller.completed(now, class, took);
        }
        controller.on_timeout(now + Duration::from_secs(1));
        controller.rate(class)
    };
    for second in 1..10 {
        run(&mut controller, second, 2, 0.1);
    }
    assert_eq!(run(&mut controller, 10, 2, 0.1), 10.0, "a quiet minute leaves no rate of hundreds to be found");
    // Many come, and are answered in time: it rises, to twice what is answered at most.
    for second in 11..40 {
        let now = Timestamp::from_millis(second * 1000);
        for _ in 0..100 {
            controller.admit(now, class);
        }
        run(&mut controller, second, 20, 0.1);
    }
    let risen = controller.rate(class);
    assert!(risen > 10.0 && risen <= 40.0, "{risen}");
    // Late: below what is answered at once, not by a sixth of what it was.
    let late = (40..44).map(|second| run(&mut controller, second, 20, 5.0)).fold(f64::INFINITY, f64::min);
    assert!(late <= 20.0 / 1.2 + 1e-9, "{late}");
}
