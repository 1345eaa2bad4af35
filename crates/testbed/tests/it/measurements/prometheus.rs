//! A real Prometheus scrapes a sentry under overload: in time, and its rules see the overload.

use std::time::Duration;

use super::tell_disturbance;
use crate::support::program;
use crate::support::prometheus::{PROGRAM, Prometheus, count, load, sentry, server};

/// A minute under load by hand: `TIDEGATE_SCRAPE_SECONDS=60`.
const SECONDS: u64 = 13;

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn prometheus_scrapes_an_overloaded_sentry_and_no_scrape_fails() -> Result<(), String> {
    if !program::is_present(PROGRAM) {
        println!("skipped: no prometheus");
        return Ok(());
    }
    let seconds = std::env::var("TIDEGATE_SCRAPE_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(SECONDS);
    let servers = server();
    let (sentry, service, admin) = sentry(servers.addresses()[0]);
    let prometheus = Prometheus::start(admin, None);
    prometheus.until("up", |up| up == 1.0);
    let report = load(service, 1, Duration::from_secs(seconds)).join().expect("a report");
    tell_disturbance(&report);
    // One more scrape, so that the last second is in it.
    let counted = report.total.offered as f64;
    prometheus.until(&count("offered"), |offered| offered == counted);

    let window = format!("[{seconds}s]");
    let value = |query: String| prometheus.query(&query).unwrap_or(f64::NAN);
    // Each scrape has the whole interval of five seconds, and most take much less. How many there are is up to
    // Prometheus: on a busy machine it leaves out those that it is late for.
    let lowest = value(format!("min_over_time(up{window})"));
    let scrapes = value(format!("count_over_time(up{window})"));
    let took = value(format!("quantile_over_time(0.5, scrape_duration_seconds{window})"));
    let refused = value(count("rejected")) / counted;
    let recorded = value(format!("max_over_time(tidegate:load:ratio{window})"));
    sentry.shutdown(Duration::from_secs(1));
    let found = [
        (lowest == 1.0, format!("a scrape failed: up was {lowest}")),
        (scrapes >= 2.0, format!("{scrapes} scrapes in {seconds} s, 2 are due")),
        (took < 1.0, format!("half of the scrapes take {took} s or more, 1 s is allowed")),
        (refused > 0.3, format!("an overload: {refused} of all refused, more than 0.3 is due")),
        (recorded > 1.5, format!("the load was three times the capacity, the rule recorded {recorded}, 1.5 is due")),
    ];
    let missed: Vec<String> = found.into_iter().filter(|(holds, _)| !holds).map(|(_, what)| what).collect();
    if missed.is_empty() { Ok(()) } else { Err(missed.join("; ")) }
}
