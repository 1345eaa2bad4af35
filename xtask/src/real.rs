//! `cargo xtask real`: what two load generators that are not ours find of the sentry before a real service.
//!
//! `tidegate experiment run apache-3x --live` judges the same with our own generator. Here the load, three times what
//! Apache with PHP can do, is from hey, which writes down every answer, and from httperf, which counts every error and
//! shows the head of every refusal. The sentry is started in one line, as an operator would, and has seen nothing: the
//! first load finds it cold, and one over TLS another. In the long form one over TLS has the same loads in turn with
//! it: each request of them begins with a whole handshake, and is not to cost the service anything.

mod hey;
pub mod httperf;
pub mod process;
pub mod sentry;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::apache::{self, CAPACITY};
use crate::args::Args;
use crate::bench::report::median;
use crate::bench::stop::Scratch;
use crate::checks::{self, Check};
use crate::command;
use crate::programs;

use hey::Answers;
use httperf::Counted;
use sentry::{HTTP, HTTPS, Sentry};

const SERVICE_CORE: usize = 0;
const LOAD_CORE: usize = 1;
/// Of capacity.
const OVERLOAD: f64 = 3.0;
const TARGET: (&str, f64) = ("500ms", 0.5);
/// Of capacity; in the short form, of which building up is a larger part.
const GOODPUT: (f64, f64) = (0.90, 0.75);
/// Loads on the warm sentry. Which requests Apache leaves waiting while it makes processes, and whether costs that it
/// shows so dimly are told apart, is chance: 28 single loads of the short form had goodputs from 0.84 to 1.70 of the
/// capacity, and 95th percentiles from 231 to 440 ms. So those two are judged on the median; it was one load until that
/// failed once in continuous integration.
const WARM: usize = 3;
/// Loads on either of the two, in the long form: what TLS costs is smaller than what chance does to one. Eight pairs
/// are right to a part in seventy or so (four runs found 96.0, 97.1, 99.1 and 99.5 %); `--pairs` has more.
const PAIRS: usize = 8;
/// Of the goodput in clear text.
const BESIDE: f64 = 0.98;
/// Of what was due: less, and the load was not what it claims to be.
const KEPT: f64 = 0.95;
/// Rows of [`programs::PROGRAMS`] without which it cannot run.
pub const NEEDS: &[&str] = &["apache2", "php", "hey", "httperf"];

/// Puts the loads, prints what must hold, and fails when a bar is missed.
///
/// # Errors
/// When a program is missing or does not do its part; a missed bar is an exit status of 1.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let short = args.switch("--short");
    let seconds: f64 = args.option("--seconds")?.unwrap_or(if short { 8.0 } else { 20.0 });
    let pairs: Option<usize> = args.option("--pairs")?;
    args.finish()?;
    if pairs == Some(0) || short && pairs.is_some() {
        bail!("--pairs must be at least 1, and is not for the short form, which has none");
    }
    if seconds < 4.0 * hey::PERIOD {
        bail!("--seconds must be at least {}: the load needs one to build up", 4.0 * hey::PERIOD);
    }
    if std::thread::available_parallelism()?.get() < 2 {
        bail!("this needs two cores: one for the service, one for the sentry and the load");
    }
    programs::require(NEEDS)?;
    command::build_tidegate()?;
    let scratch = Scratch::new("real")?;
    let checks = measure(seconds, (!short).then(|| pairs.unwrap_or(PAIRS)), scratch.path())?;
    Ok(checks::tell(&checks))
}

/// Loads of so many seconds: pairs of them, in clear text and over TLS, or some in clear text.
fn measure(seconds: f64, pairs: Option<usize>, dir: &Path) -> Result<Vec<Check>> {
    let service = apache::start(SERVICE_CORE, dir)?;
    let sentry = |scheme| Sentry::start(scheme, service.address, TARGET.0, LOAD_CORE, dir);
    let rate = OVERLOAD * CAPACITY;
    println!("{rate:.0}/s, three times what the service can do");
    let load = |sentry: &Sentry| hey::put(&sentry.url(), rate, seconds, LOAD_CORE, dir);
    // Who is cold is alone: idle connections of another sentry hold Apache's processes, as many as there are, for half
    // a minute. Of a load on the second of two that stood there at once 93.9 % was answered, 280 of 1,967 by Apache.
    let mut checks = orderly("cold, TLS", &load(&sentry(HTTPS)?)?).to_vec();
    let plain = sentry(HTTP)?;
    checks.extend(orderly("cold", &load(&plain)?));
    let tls = sentry(HTTPS)?;
    if pairs.is_some() {
        load(&tls)?;
    }
    let (mut warm, mut warm_tls) = (Vec::new(), Vec::new());
    for is_over_tls in turns(pairs) {
        let (name, sentry, loads) = match is_over_tls {
            false => ("warm", &plain, &mut warm),
            true => ("warm, TLS", &tls, &mut warm_tls),
        };
        let answers = load(sentry)?;
        checks.extend(orderly(name, &answers));
        loads.push(answers);
    }
    let share = if pairs.is_some() { GOODPUT.0 } else { GOODPUT.1 };
    checks.extend(quick("warm", &warm, share));
    if pairs.is_some() {
        checks.extend(quick("warm, TLS", &warm_tls, share));
        checks.push(beside(&warm, &warm_tls));
    }
    checks.extend(heads(&httperf::put(plain.address(), rate, seconds / 2.0, LOAD_CORE, dir)?));
    let settled = plain.settle()? && tls.settle()?;
    let found = if settled { "they do" } else { "they do not" };
    checks.push(("in flight and waiting return to 0".to_owned(), found.to_owned(), settled));
    Ok(checks)
}

/// Which loads are over TLS: each of the two is the first of a pair as often as the other.
fn turns(pairs: Option<usize>) -> Vec<bool> {
    match pairs {
        Some(pairs) => (0..pairs).flat_map(|pair| [pair % 2 == 1, pair % 2 == 0]).collect(),
        None => vec![false; WARM],
    }
}

fn orderly(name: &str, answers: &Answers) -> [Check; 2] {
    let statuses = answers.statuses();
    let kept = answers.kept();
    let what = format!("hey, {name}: at least {:.0} % of what was due was sent and answered", KEPT * 1e2);
    [
        (format!("hey, {name}: only 200 and 503"), format!("{statuses:?}"), only_good(&statuses)),
        (what, format!("{:.1} %", kept * 1e2), kept >= KEPT),
    ]
}

fn quick(name: &str, loads: &[Answers], share: f64) -> [Check; 2] {
    // Without an admitted request nothing was in time.
    let times: Vec<f64> = loads.iter().map(|answers| answers.p95().unwrap_or(f64::INFINITY)).collect();
    let goods: Vec<f64> = loads.iter().map(|answers| answers.good_rate(TARGET.1) / CAPACITY).collect();
    let list = |of: &[f64], scale: f64| of.iter().map(|of| format!("{:.0}", of * scale)).collect::<Vec<_>>().join(", ");
    [
        (
            format!("hey, {name}: p95 of the admitted at most {}, the median", TARGET.0),
            format!("{} ms", list(&times, 1e3)),
            median(times.iter().copied()).is_some_and(|p95| p95 <= TARGET.1),
        ),
        (
            format!("hey, {name}: goodput at least {:.0} % of the capacity, the median", share * 1e2),
            format!("{} %", list(&goods, 1e2)),
            median(goods.iter().copied()).is_some_and(|good| good >= share),
        ),
    ]
}

/// Pairs come one after the other, so what the machine does to one it mostly does to both. With the standard error by
/// how much pairs differ.
fn beside(plain: &[Answers], tls: &[Answers]) -> Check {
    let sum = |loads: &[Answers]| loads.iter().map(|load| load.good_rate(TARGET.1)).sum::<f64>();
    let ratio = sum(tls) / sum(plain);
    let pairs = plain.iter().zip(tls).map(|(plain, tls)| tls.good_rate(TARGET.1) / plain.good_rate(TARGET.1));
    let pairs: Vec<f64> = pairs.collect();
    let error = standard_error(&pairs);
    let pairs: Vec<String> = pairs.iter().map(|ratio| format!("{:.0}", ratio * 1e2)).collect();
    (
        format!("hey, warm: goodput over TLS at least {:.0} % of that in clear text, all loads together", BESIDE * 1e2),
        format!("{:.1} +- {:.1} % (pairs: {} %)", ratio * 1e2, error * 1e2, pairs.join(", ")),
        ratio >= BESIDE,
    )
}

/// By how much the mean may be off.
fn standard_error(of: &[f64]) -> f64 {
    let count = of.len() as f64;
    let mean = of.iter().sum::<f64>() / count;
    (of.iter().map(|of| (of - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0) / count).sqrt()
}

fn heads(counted: &Counted) -> [Check; 2] {
    let refused = counted.statuses.get(&503).copied().unwrap_or(0);
    [
        (
            "httperf: every refusal has Retry-After and Tidegate-Decision".to_owned(),
            format!("{} of {refused} have not", counted.unexplained),
            refused > 0 && counted.unexplained == 0,
        ),
        (
            "httperf: no error, only 200 and 503".to_owned(),
            format!("{:?}, errors {:?}", counted.statuses, counted.errors),
            only_good(&counted.statuses) && counted.errors.is_empty(),
        ),
    ]
}

fn only_good(statuses: &BTreeMap<u16, u64>) -> bool {
    statuses.keys().all(|status| matches!(status, 200 | 503)) && statuses.contains_key(&503)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hey::Row;

    #[test]
    fn pairs_begin_with_either_in_turn() {
        assert_eq!(turns(Some(3)), [false, true, true, false, false, true]);
        assert_eq!(turns(None), [false; WARM]);
    }

    #[test]
    fn pairs_that_differ_say_less() {
        assert_eq!(standard_error(&[1.0, 1.0, 1.0, 1.0]), 0.0);
        assert!((standard_error(&[0.9, 1.1, 0.9, 1.1]) - 0.1155 / 2.0).abs() < 1e-4);
    }

    #[test]
    fn two_loads_of_three_in_time_and_full_are_enough_and_one_is_not() {
        let load = |took: f64, count: usize| {
            let row = Row { offset: 0.0, took, status: 200 };
            Answers { rows: vec![row; count], seconds: 1.0, due: 1.0 }
        };
        let enough = CAPACITY as usize + 1;
        let held = |loads: [Answers; 3]| quick("warm", &loads, 0.75).map(|check| check.2);
        assert_eq!(held([load(0.1, enough), load(0.9, 1), load(0.3, enough)]), [true, true]);
        assert_eq!(held([load(0.1, enough), load(0.9, 1), load(0.6, 1)]), [false, false]);
        assert_eq!(held([load(0.1, enough), load(0.1, 0), load(0.1, 0)]), [false, false], "nothing was admitted");
    }

    #[test]
    fn goodput_over_tls_is_held_against_that_without() {
        let load = |count: usize| {
            let row = Row { offset: 0.0, took: 0.1, status: 200 };
            Answers { rows: vec![row; count], seconds: 1.0, due: 1.0 }
        };
        let (what, found, holds) = beside(&[load(100), load(50)], &[load(97), load(50)]);
        assert!(what.contains("98 %") && holds, "{what}");
        assert_eq!(found, "98.0 +- 1.5 % (pairs: 97, 100 %)");
        assert!(!beside(&[load(100), load(50)], &[load(96), load(50)]).2);
        assert!(!beside(&[load(100)], &[load(0)]).2 && !beside(&[load(0)], &[load(0)]).2);
    }

    #[test]
    fn another_status_or_no_refusal_is_not_good() {
        assert!(only_good(&BTreeMap::from([(200, 5), (503, 1)])));
        assert!(!only_good(&BTreeMap::from([(200, 5), (502, 1), (503, 1)])));
        assert!(!only_good(&BTreeMap::from([(200, 5)])));
    }
}
