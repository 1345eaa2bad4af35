//! W1's controller at work: the rate of the stage that lists messages, second by second.

use std::path::Path;

use tidegate_experiment::scenario::Scenario;
use tidegate_experiment::service::Played;

#[test]
fn after_a_spike_the_rate_falls_exponentially_and_comes_back() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/w1.toml");
    let scenario = Scenario::load(&path).unwrap_or_else(|error| panic!("{error}"));
    let arm = scenario.arms.iter().find(|arm| arm.name == "aimd").expect("W1 has it");
    let played = Played::new(&scenario, arm).expect("the engine takes it");
    let outcome = played.play(scenario.seed).expect("the setup makes sense");
    let controls = outcome.controls.iter().filter(|control| control.request == "list-messages");
    let rates: Vec<f64> = controls.map(|control| control.rate.expect("it polices")).collect();
    assert_eq!(rates.len(), 300, "one a second");
    assert!(rates[..60].iter().all(|rate| *rate == 40.0), "before the spike the bound holds it");
    // Runs are a second apart while there are few completions: ten in a row, each a sixth less.
    let falls = |pair: &[f64]| (pair[0] / pair[1] - 1.2).abs() < 1e-6;
    let longest = rates.windows(2).map(falls).fold((0, 0), |(longest, now), fell| {
        let now = if fell { now + 1 } else { 0 };
        (usize::max(longest, now), now)
    });
    assert!(longest.0 >= 10, "{} falls in a row", longest.0);
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(least < 4.0 && rates[150..].iter().any(|rate| *rate > 2.0 * least), "least {least}");
}
