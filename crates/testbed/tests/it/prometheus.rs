//! A real Prometheus scrapes a sentry under overload, with the configuration and rules of `deploy/`.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::program;
use crate::support::prometheus::{PROGRAM, Prometheus, TOKEN, answer, count, load, sentry, server};
use crate::support::seeds;

/// Seeds with which a test of this file has failed.
const REGRESSIONS: &[u64] = &[];

/// Six seconds of a load of three times what the server does: whatever the machine, some of it is refused.
#[test]
fn prometheus_counts_what_an_overloaded_sentry_does() {
    if !program::is_present(PROGRAM) {
        return println!("skipped: no prometheus");
    }
    for seed in seeds(REGRESSIONS) {
        let servers = server();
        let (sentry, service, admin) = sentry(servers.addresses()[0]);
        // In `deploy/` it is five seconds.
        let prometheus = Prometheus::start(admin, Some("1s"));
        prometheus.until("up", |up| up == 1.0);
        let report = load(service, seed, Duration::from_secs(6)).join().expect("a report");
        // Until a scrape that has the last second, and what waited then was refused or admitted.
        let counted = report.total.offered as f64;
        prometheus.until(&count("offered"), |offered| offered == counted);
        prometheus.until(&format!("{} + {}", count("rejected"), count("admitted")), |decided| decided == counted);
        assert!(prometheus.query(&count("rejected")).expect("refusals") > 0.0);
        prometheus.until("max_over_time(tidegate:load:ratio[10m])", |load| load > 0.0);
        promtool_takes_the_metrics(admin);
        sentry.shutdown(Duration::from_secs(1));
    }
}

/// In the format that promtool reads, which is also what curl gets.
fn promtool_takes_the_metrics(admin: SocketAddr) {
    if !program::is_present("promtool") {
        return println!("skipped: no promtool");
    }
    let request = format!("GET /metrics HTTP/1.0\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    let text = answer(admin, &request).expect("metrics");
    assert!(text.contains("tidegate_requests_rejected_total{"), "{text}");
    let mut promtool = Command::new("promtool");
    let piped = promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("starts");
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    let ended = child.wait_with_output().expect("it ends");
    let said = [ended.stdout, ended.stderr].concat();
    assert!(ended.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}
