use std::io::Cursor;
use std::time::Duration;

use super::*;
use crate::trace::{TraceOptions, TraceReader, Window};
use crate::{ArrivalProcess, Distribution, Profile, rng};
use proptest::prelude::*;

fn drawn(distribution: Distribution, seed: u64, n: usize) -> Vec<f64> {
    let mut rng = rng(seed, 0);
    let mut sample: Vec<f64> = (0..n).map(|_| distribution.sample(&mut rng)).collect();
    sample.sort_by(f64::total_cmp);
    sample
}

#[test]
fn what_was_drawn_is_found_again() {
    for made in [
        Distribution::exponential(0.3).unwrap(),
        Distribution::lognormal_log(7.6, 1.3).unwrap(),
        Distribution::uniform(20.0, 50.0).unwrap(),
        Distribution::inverse_gaussian(3.86, 9.46).unwrap(),
        Distribution::pareto(1.4, 1.0).unwrap(),
        Distribution::bounded_pareto(1.1, 2.0, 300.0).unwrap(),
        Distribution::lognormal_pareto(7.63, 1.001, 10_240.0, 1.0).unwrap(),
    ] {
        let n = 30_000;
        let found = fits(&drawn(made, 4, n));
        let best = found[0];
        assert_eq!(best.distribution.name(), made.name(), "{found:?}");
        assert!(best.distance < 1.95 / (n as f64).sqrt(), "{best:?}");
        assert!(found.iter().all(|other| other.aic >= best.aic), "{found:?}");
    }
}

#[test]
fn parameters_are_near_the_true_ones() {
    let parameters = |made: Distribution| {
        let name = made.name();
        let found = fits(&drawn(made, 9, 50_000));
        let text =
            found.iter().find(|fit| fit.distribution.name() == name).map(|fit| toml::Value::try_from(fit.distribution));
        let parameters = (text.unwrap().unwrap(), toml::Value::try_from(made).unwrap());
        (parameters.0.as_table().unwrap().clone(), parameters.1.as_table().unwrap().clone())
    };
    for made in [
        Distribution::exponential(0.3).unwrap(),
        Distribution::lognormal(100.0, 0.8).unwrap(),
        Distribution::inverse_gaussian(3.0, 7.0).unwrap(),
        Distribution::bounded_pareto(1.3, 2.0, 5000.0).unwrap(),
    ] {
        let (found, truth) = parameters(made);
        for (key, value) in truth.iter().filter(|(key, _)| key.as_str() != "distribution" && key.as_str() != "max") {
            let (found, value) = (found[key].as_float().unwrap(), value.as_float().unwrap());
            assert!((found / value - 1.0).abs() < 0.03, "{made:?}: {key} = {found}, truly {value}");
        }
    }
}

#[test]
fn the_distance_sees_a_wrong_distribution() {
    let sample = drawn(Distribution::exponential(1.0).unwrap(), 3, 10_000);
    assert!(kolmogorov_smirnov(&Distribution::exponential(1.0).unwrap(), &sample) < 0.0195);
    assert!(kolmogorov_smirnov(&Distribution::exponential(1.2).unwrap(), &sample) > 0.04);
    assert!(kolmogorov_smirnov(&Distribution::uniform(0.0, 2.0).unwrap(), &sample) > 0.1);
    // Of a single value half of the mass lies on each side of the median.
    assert!((kolmogorov_smirnov(&Distribution::uniform(0.0, 2.0).unwrap(), &[1.0]) - 0.5).abs() < 1e-6);
}

#[test]
fn a_sample_of_a_long_stream_is_uniform_and_its_moments_are_exact() {
    let mut sample = Sample::new(1);
    let n = 400_000;
    (0..n).for_each(|at| sample.add(f64::from(at)));
    assert_eq!((sample.count(), sample.zeros(), sample.range()), (400_000, 1, Some((0.0, 399_999.0))));
    assert!((sample.mean() - 199_999.5).abs() < 1e-3);
    assert!((sample.cv() - 1.0 / 3f64.sqrt()).abs() < 1e-4);
    let even = Distribution::uniform(0.0, f64::from(n)).unwrap();
    let kept = sample.sorted();
    assert_eq!(kept.len(), 100_000);
    assert!(kolmogorov_smirnov(&even, &kept) < 1.95 / 100_000f64.sqrt());
}

#[test]
fn popularity_by_zipf() {
    for exponent in [0.7, 1.0, 1.6] {
        let (law, mut rng) = (Distribution::zipf(500, exponent).unwrap(), rng(8, 0));
        let mut popularity = Popularity::default();
        (0..100_000).for_each(|_| popularity.add(&format!("/{}", law.sample(&mut rng))));
        let found = popularity.exponent().unwrap();
        assert!((found - exponent).abs() < 0.03, "{found} for {exponent}");
    }
    assert_eq!(Popularity::default().exponent(), None);
}

fn read(text: String) -> TraceFit {
    let reader = TraceReader::new(Box::new(Cursor::new(text.into_bytes())), "t", &TraceOptions::default()).unwrap();
    TraceFit::of(reader, Window::default(), None, |_| None).unwrap()
}

#[test]
fn a_trace_of_requests() {
    let profile: Profile = "0s:40/s, 500s:end".parse().unwrap();
    let sizes = drawn(Distribution::lognormal(1000.0, 1.5).unwrap(), 2, 20_300);
    let times = ArrivalProcess::Poisson.arrivals(&profile, 6, 0);
    let order =
        times.zip(0usize..).map(|(at, number)| format!("{},{}\n", at.as_secs_f64(), sizes[number * 7919 % 20_300]));
    let found = read("time,bytes\n".to_owned() + &order.collect::<String>());
    assert_eq!(fits(&found.gaps.sorted())[0].distribution.name(), "exponential");
    assert_eq!(
        (found.sizes[0].0.as_str(), fits(&found.sizes[0].1.sorted())[0].distribution.name()),
        ("bytes", "lognormal")
    );
    let second = found.rates.scales[0];
    assert_eq!((second.stretch, second.stretches), (Duration::from_secs(1), 500));
    assert!((second.mean - 40.0).abs() < 1.5 && (second.dispersion - 1.0).abs() < 0.25, "{second:?}");
    let shape = found.rates.profile.unwrap();
    assert!((shape.expected_until(Duration::from_secs(1000)) - found.requests as f64).abs() < 1.0, "{shape}");
}

#[test]
fn a_trace_of_counts() {
    let found = read("time,count\n0,60\n60,60\n120,600\n180,0\n300,60\n".to_owned());
    let minute = found.rates.scales[0];
    assert_eq!((found.requests, minute.stretch, minute.stretches), (780, Duration::from_secs(60), 6));
    assert!((minute.mean - 780.0 / 360.0).abs() < 1e-9 && (minute.peak - 10.0).abs() < 1e-9, "{minute:?}");
    // Counts 60, 60, 600, 0, 0, 60: mean 130, variance 44,900.
    assert!((minute.dispersion - 44_900.0 / 130.0).abs() < 1e-6, "{minute:?}");
    let rate = |seconds| found.rates.profile.as_ref().unwrap().rate_at(Duration::from_secs(seconds)).per_second();
    assert_eq!([30, 150, 200, 330, 400].map(rate), [1.0, 10.0, 0.0, 1.0, 0.0]);
}

proptest! {
    #[test]
    fn any_sample_can_be_fitted_or_not(mut sample in prop::collection::vec(1e-9f64..1e9, 0..60)) {
        sample.sort_by(f64::total_cmp);
        for fit in fits(&sample) {
            prop_assert!((0.0..=1.0 + 1e-9).contains(&fit.distance), "{fit:?}");
        }
    }

    #[test]
    fn few_different_values_can_be_fitted_or_not(sample in prop::collection::vec(1u8..4, 0..60)) {
        let mut sample: Vec<f64> = sample.into_iter().map(f64::from).collect();
        sample.sort_by(f64::total_cmp);
        for fit in fits(&sample) {
            prop_assert!(fit.distance <= 1.0 + 1e-9, "{fit:?}");
        }
    }
}
