//! How soon the dashboard is there, and whether its figures are those of the last seconds.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidegate_loadgen::{LoadRun, Recent};

use super::tell_disturbance;
use crate::support::browser::{self, Browser};
use crate::support::program;
use crate::support::shop::{RATES, Service, log_in};

/// From the address to figures that can be used, on a machine that has nothing else to do.
const INTERACTIVE: Duration = Duration::from_secs(1);
/// How long after a load began the figures may take to become true, and the control to keep its target.
const FIGURES: Duration = Duration::from_millis(12_500);
const CONTROL: Duration = Duration::from_secs(25);

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn the_dashboard_opens_at_once_and_is_up_to_date() -> Result<(), String> {
    if !program::is_present(browser::PROGRAM) {
        println!("skipped: no chromium");
        return Ok(());
    }
    let service = Service::start();
    let mut browser = Browser::start();
    browser.resize(1440, 1700, "light");
    log_in(&mut browser, service.admin());
    let opened = it_opens_at_once(&mut browser, service.admin());
    let (load, began) = (service.load(), Instant::now());
    let true_figures = live_figures_are_true(&mut browser, &load, began + FIGURES);
    let kept_target = the_target_is_kept(&mut browser, began + CONTROL);
    load.stop();
    tell_disturbance(&load.join().expect("a report"));
    browser.until("document.querySelector('#headline').innerText.startsWith('Idle')");
    opened.and(true_figures).and(kept_target)
}

fn it_opens_at_once(browser: &mut Browser, admin: SocketAddr) -> Result<(), String> {
    let mut open = || {
        browser.value("window.left = true");
        let began = Instant::now();
        browser.open(&format!("http://{admin}/"));
        browser.until("!window.left && document.body?.dataset.ready");
        began.elapsed()
    };
    let times: [Duration; 5] = std::array::from_fn(|_| open());
    println!("from the address to the figures: {times:?}");
    let found = || format!("from the address to the figures: {times:?}, {INTERACTIVE:?} is allowed");
    times.iter().all(|time| *time < INTERACTIVE).then_some(()).ok_or_else(found)
}

/// In time the page says what the generator counts.
fn live_figures_are_true(browser: &mut Browser, load: &LoadRun, deadline: Instant) -> Result<(), String> {
    let (progress, offered) = (load.progress(), RATES.iter().sum::<f64>());
    loop {
        let page = ["#offered", "#admitted", "#refused"].map(|tile| browser.number(tile));
        let now = progress.borrow().clone();
        let sum = |of: fn(&Recent) -> f64| now.classes.iter().map(|c| of(&c.recent)).sum::<f64>();
        let truth = [offered, sum(|recent| recent.admitted_per_s), sum(|recent| recent.refused_per_s)];
        // What is admitted varies from second to second; what arrives and what is refused in all does not.
        let near = |page: f64, truth: f64, within: f64| (page - truth).abs() <= within * truth;
        if near(page[0], truth[0], 0.05) && near(page[2], truth[2], 0.05) && near(page[1], truth[1], 0.3) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(format!("after {FIGURES:?} the page says {page:?}, the generator {truth:?}"));
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

/// What is admitted keeps its target, and the page says so.
fn the_target_is_kept(browser: &mut Browser, deadline: Instant) -> Result<(), String> {
    loop {
        let headline = browser.text("#headline");
        if headline.starts_with("Overload: ") {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(format!("after {CONTROL:?} of overload the page says {headline:?}, \"Overload: ...\" is due"));
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
}
