//! One step of a measurement: a load on one URL for a while, cut short when it is too much.

use std::time::{Duration, Instant};

use tidegate_workload::{ArrivalProcess, Profile, Rate};

use super::{Bounds, CapacityError, Step, Target};
use crate::plan::{Plan, Stream};
use crate::progress::Progress;
use crate::report::ClassReport;
use crate::run::{LoadError, LoadRun};
use crate::users::{UsersFile, UsersPlan};

/// How often the run is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// A step is cut when its last second is so many times beyond the target, or so large a share of it failed.
const FAR: f64 = 4.0;
const FAILING: f64 = 0.2;
/// A service that was overloaded gets so long to recover; it has when it answers within so many times its first
/// response time, or a quarter of the target.
const RECOVERY: Duration = Duration::from_secs(60);
const RECOVERED: f64 = 2.0;
const PAUSE: Duration = Duration::from_millis(200);
/// An answer that takes longer than so many targets is not waited for.
const PATIENCE: u32 = 20;

/// `clients` who wait for their answers, for one step.
///
/// # Errors
/// When the load cannot be sent.
pub fn closed(target: &Target, bounds: &Bounds, clients: u32) -> Result<Step, CapacityError> {
    let mut plan = UsersPlan::new(users(target, bounds, clients)?, &target.url, bounds.step)?;
    (plan.seed, plan.target) = (bounds.seed, Some(bounds.target));
    let (report, cut) = watch(LoadRun::start_users(plan)?, bounds)?;
    let (total, seconds) = (&report.total, report.sent_for.max(1e-3));
    // The first `clients` come at once, and are no part of the pace.
    let paced = total.offered.saturating_sub(u64::from(clients)) as f64 / seconds;
    let offered = if cut { total.offered as f64 / seconds } else { paced };
    Ok(step(Some(clients), offered, total, cut, report.generator.cpu))
}

/// `rate` requests per second, whether or not the ones before were answered, for one step.
///
/// # Errors
/// When the load cannot be sent.
pub fn open(target: &Target, bounds: &Bounds, rate: f64) -> Result<Step, CapacityError> {
    let rate = Rate::new(rate).unwrap_or(Rate::ZERO);
    let mut stream = Stream::new(&target.name, Profile::constant(rate)).arrivals(ArrivalProcess::Poisson);
    stream = stream.timeout(bounds.target.saturating_mul(PATIENCE)).url(&target.url, 1.0)?;
    for (name, value) in &target.headers {
        stream = stream.header(name, value)?;
    }
    let mut plan = Plan::new(vec![stream], bounds.step);
    (plan.seed, plan.target) = (bounds.seed, Some(bounds.target));
    let (report, cut) = watch(LoadRun::start(plan)?, bounds)?;
    Ok(step(None, report.total.offered_per_s, &report.total, cut, report.generator.cpu))
}

/// Waits until the service answers one request at a time about as fast as it did in `first`.
///
/// # Errors
/// When it does not.
pub fn settle(target: &Target, bounds: &Bounds, first: &Step) -> Result<(), CapacityError> {
    let began = Instant::now();
    let fast = (first.latency.p95 * RECOVERED).max(bounds.target.as_secs_f64() / 4.0);
    let short = Bounds { step: PAUSE, ..bounds.clone() };
    while began.elapsed() < RECOVERY {
        let step = closed(target, &short, 1)?;
        if step.latency.count > 0 && step.latency.p95 <= fast {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Err(CapacityError::NotRecovered { url: target.url.clone(), waited: RECOVERY })
}

fn step(in_flight: Option<u32>, offered: f64, total: &ClassReport, cut: bool, generator: f64) -> Step {
    // Requests given up at a cut say nothing.
    let ended = total.offered.saturating_sub(total.unfinished).max(1) as f64;
    let well = total.admitted as f64 / ended;
    Step { in_flight, offered, answered: offered * well, failed: 1.0 - well, latency: total.latency, cut, generator }
}

/// Waits for the end of the run, or cuts it short; the report, and whether it was cut.
fn watch<R>(run: LoadRun<R>, bounds: &Bounds) -> Result<(R, bool), LoadError> {
    let (progress, mut cut) = (run.progress(), false);
    loop {
        {
            let now = progress.borrow();
            if now.finished || progress.has_changed().is_err() {
                break;
            }
            cut = is_too_much(&now, bounds);
        }
        if cut {
            run.stop();
            break;
        }
        std::thread::sleep(LOOK);
    }
    run.join().map(|report| (report, cut))
}

fn is_too_much(now: &Progress, bounds: &Bounds) -> bool {
    // The first second has nothing to compare with.
    now.elapsed > Duration::from_secs(1)
        && now.classes.iter().any(|class| {
            let recent = class.recent;
            let answered = recent.admitted_per_s + recent.failed_per_s + recent.refused_per_s;
            let failing = recent.failed_per_s + recent.refused_per_s > FAILING * answered && answered > 1.0;
            failing || recent.p95.is_some_and(|p95| p95 > FAR * bounds.target.as_secs_f64())
        })
}

fn users(target: &Target, bounds: &Bounds, clients: u32) -> Result<UsersFile, CapacityError> {
    let path = target.url.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..])).unwrap_or("/");
    // Braces would be taken for names of what was captured.
    let path = path.replace('{', "%7B").replace('}', "%7D");
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let mut text = format!(
        "timeout = \"{}ms\"\n[[users]]\nclass = \"all\"\ncount = {clients}\nrequests = {{ it = 1 }}\n\
         think = {{ distribution = \"constant\", value = \"1us\" }}\n\
         [[request]]\nname = \"it\"\npath = {}\n",
        bounds.target.saturating_mul(PATIENCE).as_millis().max(1),
        quoted(&path)
    );
    if !target.headers.is_empty() {
        text += "[request.headers]\n";
        for (name, value) in &target.headers {
            text += &format!("{} = {}\n", quoted(name), quoted(value));
        }
    }
    Ok(UsersFile::parse(&text, &target.url)?)
}

#[cfg(test)]
mod tests {
    use super::super::Loops;
    use super::*;

    fn given(url: &str, target: Duration) -> (Target, Bounds) {
        let step = Duration::from_secs(1);
        let bounds = Bounds { target, step, most_in_flight: 8, most_rate: 1e3, seed: 1, loops: Loops::Closed };
        (Target { name: "page".into(), url: url.into(), headers: vec![("a".into(), "b \"c\"".into())] }, bounds)
    }

    #[test]
    fn clients_ask_for_the_path_as_it_was_given() {
        let path = |url: &str| {
            let (target, bounds) = given(url, Duration::from_millis(500));
            let file = users(&target, &bounds, 3).expect("a file");
            assert_eq!((file.users[0].count, file.timeout()), (3, Duration::from_secs(10)));
            assert_eq!(file.requests[0].headers["a"], "b \"c\"");
            file.requests[0].path.clone()
        };
        assert_eq!(path("http://127.0.0.1:1/a?b=c"), "/a?b=c");
        assert_eq!(path("http://127.0.0.1:1"), "/");
        assert_eq!(path("http://127.0.0.1:1/a?b={c}"), "/a?b=%7Bc%7D", "no name of anything captured");
    }

    #[test]
    fn a_target_without_end_is_an_error() {
        let (target, bounds) = given("http://127.0.0.1:1/", Duration::MAX);
        assert!(closed(&target, &bounds, 1).is_err());
        assert!(open(&target, &bounds, 1.0).is_err());
    }
}
