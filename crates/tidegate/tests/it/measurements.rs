//! What the program takes, and how long.

use std::thread;
use std::time::{Duration, Instant};

use crate::control::Site;
#[cfg(feature = "kubernetes")]
use crate::election;
#[cfg(feature = "kubernetes")]
use crate::support::api::Api;
#[cfg(feature = "kubernetes")]
use crate::support::pair::Pair;
use crate::support::pool::Pool;
use crate::support::{Folder, until};
use crate::{nucleus, profile};

/// From the leader's end to the next one's first decision.
#[cfg(feature = "kubernetes")]
const TAKEOVER: Duration = Duration::from_secs(5);

/// `Err` unless it is so.
fn judge(found: String, is_good: bool) -> Result<(), String> {
    println!("{found}");
    if is_good { Ok(()) } else { Err(found) }
}

#[test]
#[cfg(feature = "kubernetes")]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn a_leader_that_is_killed_under_load_is_followed_within_five_seconds() -> Result<(), String> {
    let mut pair = Pair::start(&Api::start());
    let load = pair.load();
    let first = pair.one_that_leads();
    election::until_servers_come(&pair, first);
    let term = pair.sentry_term();
    let killed = Instant::now();
    drop(pair.members[first].process.take());
    let next = &pair.members[1 - first];
    until("the next one decides", || next.leads() && next.inputs() > 0);
    let took = killed.elapsed();
    until("the sentry follows it", || pair.sentry_term() > term);
    let told = killed.elapsed();
    load.end();
    let found = format!("{took:.2?} to the next leader's first decision, {told:.2?} to its first orders");
    judge(format!("{found}; the decision within {TAKEOVER:?}"), took < TAKEOVER)
}

/// 60 requests/s are three servers' work; sentry and control plane learn that.
#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn refusals_end_when_servers_have_come_for_the_load_and_they_go_with_it() -> Result<(), String> {
    let site = Site::new(Pool::unknown());
    let load = site.load(60);
    in_time("there are no refusals", || site.counts().1 > 0)?;
    in_time("four servers do not come", || site.serving() >= 4)?;
    let (mut offered, mut refused) = (0, 0);
    in_time("refusals do not end", || {
        let before = site.counts();
        // tidy-allow(sleeping-tests): so much time is looked at
        thread::sleep(Duration::from_secs(2));
        let after = site.counts();
        (offered, refused) = (after.0 - before.0, after.1 - before.1);
        offered > 50 && refused <= offered / 20
    })
    .map_err(|why| format!("{why}: {refused} of {offered} in two seconds, of more than 50 at most 5 %"))?;
    drop(load);
    in_time("the servers do not go", || site.serving() == 1)
}

/// A minute for what comes when sentry and control plane see what there is.
fn in_time(what: &str, mut condition: impl FnMut() -> bool) -> Result<(), String> {
    let began = Instant::now();
    while !condition() {
        if began.elapsed() > Duration::from_secs(60) {
            return Err(format!("{what} within a minute"));
        }
        thread::park_timeout(Duration::from_millis(10));
    }
    Ok(())
}

/// Under 1 % of a processor at ten samples a second: the bound leaves room for an unoptimised build,
/// `cargo bench -p tidegate-nucleus` measures.
#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn a_nucleus_takes_little_of_a_processor() -> Result<(), String> {
    let site = nucleus::Site::new();
    site.until_state(0, "speaks");
    let process = site.nucleus(0);
    let (began, used, sent) = (Instant::now(), cpu_seconds(process), site.reports(0));
    until("some samples", || site.reports(0) >= sent + 20);
    let share = (cpu_seconds(process) - used) / began.elapsed().as_secs_f64();
    judge(format!("{:.2} % of a processor, of 5 % at most", share * 100.0), share < 0.05)
}

fn cpu_seconds(process: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
    let used = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    };
    tasks.filter_map(|task| used(task.ok()?)).sum::<f64>() * 1e-9
}

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn a_known_capacity_is_found() -> Result<(), String> {
    let folder = Folder::new();
    let (_server, address) = profile::emulate(&folder, "server", "");
    let (to, out) = (format!("page=http://{address}/page"), folder.path("shop.toml"));
    let arguments = ["--target", "300ms", "--step", "1s", "--loop", "closed", "--most-in-flight", "40", "--out", &out];
    let run = profile::profile(&[&["--to", &to][..], &arguments].concat());
    if !run.status.success() {
        return Err(String::from_utf8_lossy(&run.stderr).into_owned());
    }
    let page = &profile::read(&out)["measured"]["type"][0];
    let capacity = page["capacity"].as_float().expect("a number");
    let most = page["max_conn"].as_integer().expect("a closed loop");
    // 30 at once take 300 ms each.
    let found = format!("{capacity:.1}/s, of 90 to 110; {most} at once, of 25 to 34");
    judge(found, capacity > 90.0 && capacity < 110.0 && (25..=34).contains(&most))
}

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn the_staircase_within_a_short_target() -> Result<(), String> {
    let folder = Folder::new();
    let Some(measured) = profile::staircase(&folder, "400ms", "1s") else { return Ok(()) };
    let softscale = &profile::read(&measured?)["softscale"];
    let n_app = softscale["n_app"].as_integer();
    let steps = softscale["steps"].as_array().expect("steps");
    let first = steps.first().map(|step| (step["cores"].as_integer(), step["below"].as_float()));
    let n_data = steps.first().and_then(|step| step["n_data"].as_integer());
    let found = format!("n_app {n_app:?}, of 8; {} steps, of 1; {first:?}, of 1 core below 0.5", steps.len());
    let is_good = n_app == Some(8) && steps.len() == 1 && first == Some((Some(1), Some(0.5)));
    judge(format!("{found}; n_data {n_data:?}, of 1 at least"), is_good && n_data >= Some(1))
}
