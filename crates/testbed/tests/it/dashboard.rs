//! The dashboard in a real browser, during an overload on real HTTP: what holds on any machine.

use std::net::SocketAddr;

use tidegate_loadgen::Report;

use crate::support::browser::{self, Browser};
use crate::support::program;
use crate::support::shop::{GOLD, REST, SERVER, Service, TOKEN, http, log_in};

#[test]
fn the_dashboard_shows_an_overload_as_it_is() {
    if !program::is_present(browser::PROGRAM) {
        return println!("skipped: no chromium");
    }
    let mut service = Service::start();
    let mut browser = Browser::start();
    browser.resize(1440, 1700, "light");
    log_in(&mut browser, service.admin());
    it_opens_again(&mut browser, service.admin());
    browser.until("document.querySelector('#headline').innerText.startsWith('Idle')");
    let load = service.load();
    // A hostile address and hostile fields, as no well-behaved client would send them.
    let evil = "<img src=x onerror=window.hacked=1>";
    let head = format!(
        "GET /<script>window.hacked=1</script> HTTP/1.1\r\nuser-agent: {evil}\r\nx-request-id: {evil}\r\ncookie: {evil}"
    );
    http(service.sentry().addresses("shop")[0], &head);
    the_overload_is_told(&mut browser);
    names_are_text(&mut browser);
    pictures(&mut browser);
    shadow_mode_is_switched(&mut browser, &service);
    load.stop();
    let report = load.join().expect("a report");
    totals_are_true(&mut browser, &service, &report);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let origin = format!("http://{}/", service.admin());
    let elsewhere: Vec<_> = browser.requests().into_iter().filter(|url| !url.starts_with(&origin)).collect();
    assert_eq!(elsewhere, Vec::<String>::new(), "nothing is asked of anyone else");
    changes_are_refused_with_reasons(&mut browser, &service);
    it_says_when_data_is_stale_and_comes_back(&mut browser, &mut service);
}

fn it_opens_again(browser: &mut Browser, admin: SocketAddr) {
    browser.value("window.left = true");
    browser.open(&format!("http://{admin}/"));
    browser.until("!window.left && document.body?.dataset.ready");
}

/// Five times of what the servers do: whatever the machine, some are refused. Whether those who are not are answered in
/// time is up to it, and both are said.
fn the_overload_is_told(browser: &mut Browser) {
    browser.until("/^(Overload|The target is missed): /.test(document.querySelector('#headline').innerText)");
    browser.until("document.querySelectorAll('#reasons tbody tr').length > 0");
    browser
        .until("[...document.querySelectorAll('#events span')].some(e => e.innerText.includes('began to be refused'))");
}

fn names_are_text(browser: &mut Browser) {
    let names = browser.text("#classes tbody");
    assert!(names.contains(GOLD) && names.contains(REST), "{names}");
    assert!(browser.text("#servers tbody").contains(SERVER));
    assert_eq!(browser.value("typeof window.hacked"), "undefined");
    assert_eq!(browser.value("document.querySelectorAll('main script, main img, tbody b[onclick]').length"), 0);
}

fn shadow_mode_is_switched(browser: &mut Browser, service: &Service) {
    for wanted in [true, false] {
        browser.until("!document.querySelector('#dialog').open");
        browser.click("#shadow");
        assert_eq!(browser.value("document.querySelector('#dialog').open"), true, "it asks first");
        browser.click("#dialog-confirm");
        browser.until(&format!("document.querySelector('#headline').innerText.startsWith('Shadow mode') === {wanted}"));
        assert_eq!(service.snapshot().shadow, wanted);
        if wanted {
            assert_eq!(browser.text("#refused-label"), "Would refuse");
        }
    }
    let by_hand = "[...document.querySelectorAll('#events span')].some(e => e.innerText.startsWith('Changed by hand'))";
    browser.until(by_hand);
}

/// After the load, the sums on the page against `/metrics` and the generator's own count.
fn totals_are_true(browser: &mut Browser, service: &Service, report: &Report) {
    let ids = ["#total-offered", "#total-admitted", "#total-refused", "#total-goodput"];
    browser.until("document.querySelector('#in-flight').innerText === '0'");
    // The headline goes on about a target that was missed in shadow mode for half a minute.
    browser.until("document.querySelector('#offered').innerText === '0/s'");
    let page = ids.map(|id| browser.number(id));
    let metrics =
        ["offered", "admitted", "rejected", "goodput"].map(|name| service.metric(&format!("tidegate_requests_{name}")));
    println!("offered, admitted, refused, in time: page {page:?}, metrics {metrics:?}");
    // Of what was admitted in shadow mode, the page counts as admitted what would have been: for these the sum of both
    // counts is more than what arrived.
    let would = metrics[1] + metrics[2] - metrics[0];
    println!("refused only on paper: {would}");
    for (what, page, metric) in [("offered", page[0], metrics[0]), ("refused", page[2], metrics[2])] {
        assert_near(&format!("{what} by /metrics"), page, metric);
    }
    assert_near("admitted by /metrics", page[1], metrics[1]);
    assert_near("goodput by /metrics", page[3], metrics[3]);
    let total = &report.total;
    println!("generator: {} {} {} {}", total.offered, total.admitted, total.refused_by_sentry, total.good);
    // It was stopped: the sentry may or may not have seen and decided what was under way then.
    let by_generator = |what: &str, page: f64, counted: u64| {
        let off = (page - counted as f64).abs();
        let most = 0.05 * counted as f64 + total.unfinished as f64;
        assert!(
            off <= most,
            "{what}: the page says {page}, the generator {counted}, and {} unfinished",
            total.unfinished
        );
    };
    by_generator("offered", page[0], total.offered);
    // Not its goodput: it counts from the scheduled instant, before a busy machine lets it send.
    by_generator("admitted", page[1], total.admitted);
    by_generator("refused", page[2] - would, total.refused_by_sentry);
}

fn changes_are_refused_with_reasons(browser: &mut Browser, service: &Service) {
    browser.value("sessionStorage.clear()");
    browser.click("#servers tbody tr:nth-child(2) button");
    browser.fill("#dialog-token", "not-the-token-of-24-ch");
    browser.click("#dialog-confirm");
    browser.until("document.querySelector('#dialog-error').innerText === 'The token is wrong.'");
    browser.fill("#dialog-token", TOKEN);
    browser.click("#dialog-confirm");
    browser.until("document.querySelector('#servers tbody').innerText.includes('draining')");
    assert_eq!(service.snapshot().servers[1].status, tidegate_engine::Status::Draining);
    browser.click("#servers tbody tr:nth-child(1) button");
    browser.click("#dialog-confirm");
    browser.until("document.querySelector('#dialog-error').innerText.includes('no other server')");
    browser.click("#dialog-cancel");
    browser.click("#classes tbody tr:nth-child(1) button");
    browser.fill("#dialog-value", "12.5");
    browser.click("#dialog-confirm");
    browser.until("document.querySelector('#classes tbody').innerText.includes('13/s')");
    assert_eq!(service.sentry().apps()[0].live().config.setup.classes[0].min_rate, 12.5);
}

fn it_says_when_data_is_stale_and_comes_back(browser: &mut Browser, service: &mut Service) {
    let address = service.admin();
    service.admin = None;
    browser.until("document.body.dataset.link === 'stale'");
    assert!(browser.text("#notice").contains("old"), "{}", browser.text("#notice"));
    service.listen(address);
    browser.until("document.body.dataset.link === 'live'");
    assert_eq!(browser.value("document.querySelector('#notice').hidden"), true);
}

/// With `TIDEGATE_PICTURES=<folder>`: the page as people see it, in base64, for a look.
fn pictures(browser: &mut Browser) {
    let Some(folder) = std::env::var_os("TIDEGATE_PICTURES").map(std::path::PathBuf::from) else { return };
    for (name, width, height, scheme) in
        [("light", 1440, 1900, "light"), ("dark", 1440, 1900, "dark"), ("phone", 390, 4400, "dark")]
    {
        browser.resize(width, height, scheme);
        // Two frames, so that what changed is drawn.
        browser.value("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))");
        let picture = browser.picture();
        std::fs::write(folder.join(format!("{name}.png.base64")), picture).expect("the folder is there");
    }
    browser.resize(1440, 1700, "light");
}

#[track_caller]
fn assert_near(what: &str, page: f64, truth: f64) {
    assert!((page - truth).abs() <= 0.05 * truth, "{what}: the page says {page}, it was {truth}");
}
