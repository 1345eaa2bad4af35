//! The model of the cores against queueing theory, in virtual time: exact arithmetic, no clock, no HTTP.

use std::collections::HashMap;

use tidegate_testbed::Cores;
use tidegate_workload::{ArrivalProcess, Discipline, Profile, Rate, ServiceTime, rng};

/// Mean response time of `n` Poisson arrivals, seconds.
fn mean_response(mut cores: Cores, rate: f64, service: ServiceTime, n: usize) -> f64 {
    let profile = Profile::constant(Rate::new(rate).unwrap());
    let mut sizes = rng(5, 1);
    let mut arrived = HashMap::new();
    let mut total = 0.0;
    for arrival in ArrivalProcess::Poisson.arrivals(&profile, 5, 0).take(n) {
        let now = arrival.as_secs_f64();
        total += pass_completions(&mut cores, &mut arrived, now);
        arrived.insert(cores.arrive(now, service.sample(&mut sizes)).unwrap(), now);
    }
    total += pass_completions(&mut cores, &mut arrived, f64::INFINITY);
    assert!(arrived.is_empty());
    total / n as f64
}

/// Moves from completion to completion until `end`; the sum of the response times.
fn pass_completions(cores: &mut Cores, arrived: &mut HashMap<tidegate_testbed::JobId, f64>, end: f64) -> f64 {
    let mut sum = 0.0;
    while let Some(at) = cores.next_completion().filter(|at| *at <= end) {
        cores.advance(at);
        sum += cores.take_done().iter().map(|id| at - arrived.remove(id).unwrap()).sum::<f64>();
    }
    sum
}

fn assert_near(measured: f64, theory: f64, tolerance: f64) {
    assert!((measured / theory - 1.0).abs() < tolerance, "measured {measured}, theory {theory}");
}

fn one_core(discipline: Discipline) -> Cores {
    Cores::new(discipline, 1, None, None)
}

#[test]
fn processor_sharing_does_not_care_about_the_distribution() {
    for service in [
        ServiceTime::exponential(0.01).unwrap(),
        ServiceTime::constant(0.01).unwrap(),
        ServiceTime::bimodal(0.005, 0.105, 0.05).unwrap(),
        ServiceTime::lognormal(0.01, 2.0).unwrap(),
    ] {
        // E[S] / (1 - load) for every distribution of the same mean.
        assert_near(mean_response(one_core(Discipline::ProcessorSharing), 50.0, service, 200_000), 0.02, 0.05);
        assert_near(mean_response(one_core(Discipline::ProcessorSharing), 80.0, service, 400_000), 0.05, 0.10);
    }
}

#[test]
fn fifo_waits_as_pollaczek_and_khinchine_say() {
    for service in [ServiceTime::constant(0.01).unwrap(), ServiceTime::lognormal(0.01, 1.5).unwrap()] {
        let (rate, second_moment) = (70.0, service.variance() + service.mean().powi(2));
        let theory = service.mean() + rate * second_moment / (2.0 * (1.0 - rate * service.mean()));
        assert_near(mean_response(one_core(Discipline::Fifo), rate, service, 400_000), theory, 0.06);
    }
}

#[test]
fn several_cores_wait_as_erlang_says() {
    // M/M/3 at 2.4 erlang: probability of waiting by Erlang's C formula.
    let (k, load) = (3u32, 2.4f64);
    let tail = load.powi(3) / 6.0 / (1.0 - load / 3.0);
    let waits = tail / (1.0 + load + load * load / 2.0 + tail);
    let theory = 0.01 + waits * 0.01 / (f64::from(k) - load);
    let service = ServiceTime::exponential(0.01).unwrap();
    // With exponential service the mean does not depend on who is served first: sharing gives the same.
    for discipline in [Discipline::Fifo, Discipline::ProcessorSharing] {
        assert_near(mean_response(Cores::new(discipline, k, None, None), 240.0, service, 400_000), theory, 0.05);
    }
}
