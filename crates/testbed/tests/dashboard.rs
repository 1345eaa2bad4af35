//! The dashboard in a real browser, during an overload on real HTTP.

#[path = "support/browser.rs"]
mod browser;
#[path = "support/program.rs"]
mod program;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use browser::Browser;
use tidegate_engine::Snapshot;
use tidegate_loadgen::{LoadRun, Plan, Report, Stream};
use tidegate_sentry::admin::AdminServer;
use tidegate_sentry::board::Board;
use tidegate_sentry::config::Config;
use tidegate_sentry::record::NoRecords;
use tidegate_sentry::{Sentry, SentryHandle};
use tidegate_testbed::{EmulatedCluster, ServerSpec, ThreadedCluster};
use tidegate_workload::{ArrivalProcess, ServiceTime};

const TOKEN: &str = "a-token-of-24-characters";
/// Names that would do something if they became markup.
const GOLD: &str = "gold<script>window.hacked=1</script>";
const REST: &str = "\"><img src=x onerror=window.hacked=1>";
const SERVER: &str = "<b onclick=alert(1)>s0</b>";
/// Requests per second that arrive: five times what two servers of 30 do.
const RATES: [f64; 2] = [30.0, 270.0];
const DURATION: Duration = Duration::from_secs(25);
/// From the address to figures that can be used, on a machine that has nothing else to do.
const INTERACTIVE: Duration = Duration::from_secs(1);

/// Servers, sentry and admin API in this process.
struct Service {
    admin: Option<AdminServer>,
    config: Config,
    board: Arc<Board>,
    sentry: SentryHandle,
    _servers: ThreadedCluster,
}

impl Service {
    fn start() -> Self {
        let spec = ServerSpec::new(ServiceTime::lognormal(1.0 / 30.0, 0.5).expect("a distribution"), 512);
        let servers = EmulatedCluster::start_on_thread(2, spec).expect("servers");
        let [first, second] = servers.addresses()[..] else { panic!("two servers") };
        let text = format!(
            "[admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"{TOKEN}\"\n[[application]]\nname = \"shop\"\n\
             listen = \"127.0.0.1:0\"\ntarget = \"1s\"\n\
             servers = [{{ name = {SERVER:?}, address = \"{first}\" }}, \"{second}\"]\n\
             [[application.class]]\nname = {GOLD:?}\nmatch = {{ path_prefix = \"/gold\" }}\n\
             [[application.class]]\nname = {REST:?}\n"
        );
        let mut config = Config::parse(&text, "dashboard.toml".as_ref()).expect("valid").config;
        config.sentry.workers = 1;
        let sentry = Sentry::start(config.clone(), Arc::new(NoRecords)).expect("a sentry");
        let board = Arc::new(Board::new(config.clone(), sentry.apps().to_vec(), Arc::default()));
        let mut service = Service { admin: None, config, board, sentry, _servers: servers };
        service.listen(SocketAddr::from(([127, 0, 0, 1], 0)));
        service
    }

    fn listen(&mut self, at: SocketAddr) {
        self.admin = Some(AdminServer::start(at, &self.config.admin, self.board.clone()).expect("an admin API"));
    }

    fn admin(&self) -> SocketAddr {
        self.admin.as_ref().expect("it runs").address()
    }

    fn load(&self) -> LoadRun {
        let address = self.sentry.addresses("shop")[0];
        let stream = |(name, rate): (&str, f64)| {
            let stream = Stream::new(name, format!("{rate}/s").parse().expect("a profile"));
            let stream = stream.arrivals(ArrivalProcess::Constant).timeout(Duration::from_secs(10));
            stream.url(&format!("http://{address}/{name}/%3Cscript%3E"), 1.0).expect("a URL")
        };
        let streams = ["gold", "rest"].into_iter().zip(RATES).map(stream).collect();
        let plan = Plan { target: Some(Duration::from_secs(1)), connections: 2048, ..Plan::new(streams, DURATION) };
        LoadRun::start(plan).expect("a load")
    }

    fn snapshot(&self) -> Snapshot {
        self.sentry.apps()[0].snapshot()
    }

    /// A counter of `/metrics`, all classes and reasons together.
    fn metric(&self, name: &str) -> f64 {
        let text = http(self.admin(), &format!("GET /metrics HTTP/1.1\r\nauthorization: Bearer {TOKEN}"));
        let lines = text.lines().filter(|line| line.starts_with(&format!("{name}_total{{")));
        lines.map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number")).sum()
    }
}

fn http(to: SocketAddr, head: &str) -> String {
    let mut stream = TcpStream::connect(to).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
    let request = format!("{head}\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sends");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[track_caller]
fn assert_near(what: &str, page: f64, truth: f64) {
    assert!((page - truth).abs() <= 0.05 * truth, "{what}: the page says {page}, it was {truth}");
}

#[test]
fn the_dashboard_shows_an_overload_as_it_is() {
    if !program::is_present(browser::PROGRAM) {
        return println!("skipped: no chromium");
    }
    let mut service = Service::start();
    let mut browser = Browser::start();
    browser.resize(1440, 1700, "light");
    log_in(&mut browser, service.admin());
    it_opens_at_once(&mut browser, service.admin());
    let load = service.load();
    // A hostile address and hostile fields, as no well-behaved client would send them.
    let evil = "<img src=x onerror=window.hacked=1>";
    let head = format!(
        "GET /<script>window.hacked=1</script> HTTP/1.1\r\nuser-agent: {evil}\r\nx-request-id: {evil}\r\ncookie: {evil}"
    );
    http(service.sentry.addresses("shop")[0], &head);
    live_figures_are_true(&mut browser, &load);
    names_are_text(&mut browser);
    pictures(&mut browser);
    shadow_mode_is_switched(&mut browser, &service);
    let report = load.join().expect("a report");
    totals_are_true(&mut browser, &service, &report);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let origin = format!("http://{}/", service.admin());
    let elsewhere: Vec<_> = browser.requests().into_iter().filter(|url| !url.starts_with(&origin)).collect();
    assert_eq!(elsewhere, Vec::<String>::new(), "nothing is asked of anyone else");
    changes_are_refused_with_reasons(&mut browser, &service);
    it_says_when_data_is_stale_and_comes_back(&mut browser, &mut service);
}

/// The page opens without a token, asks for it, and then shows figures.
fn log_in(browser: &mut Browser, admin: SocketAddr) {
    browser.open(&format!("http://{admin}/"));
    browser.until("document.querySelector('#dialog')?.open");
    // From here on it has the token, and no answer is a refusal.
    browser.fill("#dialog-token", TOKEN);
    browser.click("#dialog-confirm");
    browser.until("document.body.dataset.ready && document.body.dataset.link === 'live'");
    // The question for the token is a refusal, which browsers log.
    browser.forget();
}

/// The best of several times counts: tests share the machine with others.
fn it_opens_at_once(browser: &mut Browser, admin: SocketAddr) {
    let mut open = || {
        browser.value("window.left = true");
        let began = Instant::now();
        browser.open(&format!("http://{admin}/"));
        browser.until("!window.left && document.body?.dataset.ready");
        began.elapsed()
    };
    let times: [Duration; 5] = std::array::from_fn(|_| open());
    println!("from the address to the figures: {times:?}");
    assert!(times.into_iter().min() < Some(INTERACTIVE), "{times:?}");
}

fn live_figures_are_true(browser: &mut Browser, load: &LoadRun) {
    let (progress, offered) = (load.progress(), RATES.iter().sum::<f64>());
    let deadline = Instant::now() + DURATION / 2;
    loop {
        let page = ["#offered", "#admitted", "#refused"].map(|tile| browser.number(tile));
        let now = progress.borrow().clone();
        let sum = |of: fn(&tidegate_loadgen::Recent) -> f64| now.classes.iter().map(|c| of(&c.recent)).sum::<f64>();
        let truth = [offered, sum(|recent| recent.admitted_per_s), sum(|recent| recent.refused_per_s)];
        // What is admitted varies from second to second; what arrives and what is refused in all does not.
        let near = |page: f64, truth: f64, within: f64| (page - truth).abs() <= within * truth;
        if near(page[0], truth[0], 0.05) && near(page[2], truth[2], 0.05) && near(page[1], truth[1], 0.3) {
            break;
        }
        assert!(Instant::now() < deadline, "the page says {page:?}, the generator {truth:?}");
        std::thread::park_timeout(Duration::from_millis(100));
    }
    browser.until("document.querySelector('#headline').innerText.startsWith('Overload: ')");
    let reasons = "document.querySelectorAll('#reasons tbody tr').length > 0";
    browser.until(reasons);
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
    browser.until("document.querySelector('#headline').innerText.startsWith('Idle')");
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
    assert_near("offered by the generator", page[0], total.offered as f64);
    // Not its goodput: it counts from the scheduled instant, before a busy machine lets it send.
    assert_near("admitted by the generator", page[1], total.admitted as f64);
    assert_near("refused by the generator", page[2] - would, total.refused_by_sentry as f64);
}

fn changes_are_refused_with_reasons(browser: &mut Browser, service: &Service) {
    browser.value("sessionStorage.clear()");
    browser.click("#servers tbody tr:nth-child(2) button");
    browser.fill("#dialog-token", "not-the-token-of-24-ch");
    browser.click("#dialog-confirm");
    browser.until("document.querySelector('#dialog-error').innerText === 'That is not the token.'");
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
    assert_eq!(service.sentry.apps()[0].live().config.setup.classes[0].min_rate, 12.5);
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
