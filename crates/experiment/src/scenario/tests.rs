use super::*;

pub(super) const GOOD: &str = r#"id = "rush"
title = "A rush"
source = "ours"
duration = "3min"
seed = 4
[short]
time_scale = 0.5
arms = ["sentry"]
[sla]
statistic = "p90"
steps = [{ below = "100/s", target = "1s" }, { target = "2s" }]
[servers]
count = 2
cores = 4
discipline = "fifo"
learned = false
[[class]]
name = "gold"
revenue = 5.0
min_rate = "3/s"
[[class]]
name = "rest"
[[request]]
name = "page"
service = { distribution = "lognormal", mean = "20ms", cv = 1.0 }
response_bytes = 100
urls = 3
[[request]]
name = "image"
service = { distribution = "uniform", min = "1ms", max = "5ms" }
[[load]]
class = "gold"
requests = { page = 1 }
rate = "0s:50/s, 1min:300/s, 100s..2min:->50/s, 150s:end"
[[load]]
name = "crawler"
class = "rest"
requests = { page = 1.5, image = 2 }
rate = "20/s"
arrivals = "constant"
[[arm]]
name = "sentry"
about = "ours"
admission = { policy = "batch", delays = ["0ms", "50ms"] }
dispatch = { policy = "wrr" }
[[arm]]
name = "none"
[[expect]]
what = "it holds"
arms = ["sentry", "none"]
class = "gold"
metric = "p95_worst_window"
window = "10s"
over = "60s..120s"
at_most = 0.5
tolerance = 0.1
[[expect]]
load = "crawler"
metric = "admitted_share"
over = "0s..1min"
at_least = 0.9
short = false
"#;

fn good() -> Scenario {
    Scenario::parse(GOOD, "rush.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn error(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    Scenario::parse(&GOOD.replacen(from, to, 1), "rush.toml").expect_err(to).to_string()
}

/// What the service that a live run is on cannot follow.
fn beyond(scenario: &Scenario) -> Vec<String> {
    crate::service::of(&scenario.on()).cannot_do(scenario)
}

#[test]
fn read_as_written() {
    let s = good();
    assert_eq!((s.duration, s.seed, s.timeout), (Duration::from_secs(180), 4, Duration::from_secs(30)));
    assert_eq!((s.target(99.0), s.target(100.0)), (Duration::from_secs(1), Duration::from_secs(2)));
    assert_eq!((s.offered_at(Duration::from_secs(61)), s.loads[1].label()), (320.0, "crawler"));
    assert_eq!((s.classes[1].revenue, s.requests[1].urls, s.servers.cores), (1.0, 1, 4));
    assert_eq!((s.class_index("rest"), s.request_index("image"), s.class_index("x")), (Some(1), Some(1), None));
    assert_eq!(s.arms[1].expectations(&s).count(), 2);
    assert_eq!((s.expects[0].bound(), s.expects[1].subject()), ("<= 0.5 (+-0.1)".to_owned(), "crawler"));
}

#[test]
fn written_and_read_back() {
    for scenario in [good(), good().shortened()] {
        let text = scenario.to_toml();
        let again = Scenario::parse(&text, "again.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(again, scenario, "{text}");
    }
}

#[test]
fn the_short_form_shrinks_time_and_nothing_else() {
    let short = good().shortened();
    assert_eq!((short.duration, short.short), (Duration::from_secs(90), None));
    assert_eq!(short.loads[0].rate.rate_at(Duration::from_secs(31)).per_second(), 300.0);
    assert_eq!((short.arms.len(), short.expects.len()), (1, 1));
    assert_eq!(
        (short.expects[0].over.to_string(), short.expects[0].window),
        ("30s..60s".to_owned(), Duration::from_secs(10))
    );
    assert_eq!(short.expects[0].arms, ["sentry"]);
}

#[test]
fn errors_say_where_and_what_to_do() {
    let mut wrong = Vec::new();
    for (from, to, parts) in [
        ("duration =", "duratoin =", &["rush.toml:4: duratoin:", "unknown key", "did you mean \"duration\"?"][..]),
        ("cores = 4", "corse = 4", &["rush.toml:14: servers.corse:", "did you mean \"cores\"?"]),
        ("revenue = 5.0", "revenu = 5.0", &["rush.toml:19: class[0].revenu:", "did you mean \"revenue\"?"]),
        ("time_scale = 0.5", "time_scale = 1.5", &["rush.toml:7: short.time_scale: must be more than 0"]),
        (
            "arms = [\"sentry\"]",
            "arms = [\"sentri\"]",
            &["rush.toml:8:", "no arm \"sentri\"; did you mean \"sentry\"?"],
        ),
        ("\"p90\"", "\"p91\"", &["rush.toml:10: sla.statistic: there is no statistic \"p91\"; did you mean \"p90\"?"]),
        ("below = \"100/s\", ", "", &["rush.toml:11: sla.steps[0]: every step but the last needs `below`"]),
        ("count = 2", "count = 0", &["rush.toml:13: servers.count: must be 1 to 1000"]),
        ("count = 2", "count = -2", &["rush.toml:13: servers.count:"]),
        ("\"fifo\"", "\"lifo\"", &["rush.toml:15: servers.discipline:", "did you mean \"fifo\"?"]),
        ("min_rate = \"3/s\"", "min_rate = \"-3/s\"", &["rush.toml:20: class[0].min_rate:", "a rate such as 200/s"]),
        ("name = \"rest\"", "name = \"gold\"", &["rush.toml:22: class[1].name: \"gold\" is there twice"]),
        ("name = \"rest\"", "name = \"a b\"", &["rush.toml:22: class[1].name: must be made of letters"]),
        ("cv = 1.0", "cv = -1.0", &["rush.toml:25:", "`cv` is -1"]),
        (
            "class = \"gold\"\nreq",
            "class = \"glod\"\nreq",
            &["rush.toml:32: load[0].class: there is no class \"glod\"; did you mean \"gold\"?"],
        ),
        ("100s..2min:->50/s", "30s:50/s", &["rush.toml:34: load[0].rate:", "column 22"]),
        ("rate = \"20/s\"", "rate = \"0/s\"", &["rush.toml:39: load[1].rate: is 0 for the whole duration"]),
        ("image = 2", "imgae = 2", &["rush.toml:38: load[1].requests: there is no request type \"imgae\""]),
        ("image = 2", "image = 0", &["the weight of \"image\" must be more than 0"]),
        ("name = \"crawler\"", "name = \"gold\"", &["load[1].name: \"gold\" is there twice"]),
        (
            "\"p95_worst_window\"",
            "\"p95_worst_windw\"",
            &["rush.toml:52: expect[0].metric:", "did you mean \"p95_worst_window\"?"],
        ),
        (
            "over = \"60s..120s\"",
            "over = \"60s..50s\"",
            &["rush.toml:54: expect[0].over:", "after the span's beginning"],
        ),
        ("over = \"60s..120s\"", "over = \"60s..200s\"", &["rush.toml:54: expect[0].over: ends after"]),
        ("at_most = 0.5\n", "", &["expect[0]: needs `at_least` or `at_most`: it could not fail"]),
        ("at_least = 0.9", "at_least = 1.9", &["rush.toml:61: expect[1].at_least: must be 0 to 1"]),
        (
            "load = \"crawler\"",
            "load = \"crawlr\"",
            &["rush.toml:58: expect[1].load: there is no load \"crawlr\"; did you mean"],
        ),
        ("window = \"10s\"", "window = \"10ms\"", &["rush.toml:53: expect[0].window: must be at least 1s"]),
        ("urls = 3", "degrades_to = 1.5", &["rush.toml:27: request[0].degrades_to: must be 0 to 1"]),
        (
            "load = \"crawler\"",
            "request = \"pag\"",
            &["rush.toml:58: expect[1].request: there is no request type \"pag\"; did you mean \"page\"?"],
        ),
        ("load = \"crawler\"", "load = \"crawler\"\nrequest = \"page\"", &["stands beside `class` or `load`"]),
        ("id = \"rush\"", "id = ", &["rush.toml:1:"]),
        ("title = \"A rush\"\n", "", &["missing field `title`"]),
    ] {
        let error = error(from, to);
        if !parts.iter().all(|part| error.contains(part)) {
            wrong.push(format!("{from} -> {to}: wanted {parts:?}, got\n{error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn all_problems_are_told_at_once_in_the_order_of_the_file() {
    let text = GOOD
        .replace("count = 2", "count = 0")
        .replace("at_least = 0.9", "at_least = 7")
        .replace("urls = 3", "urls = 0");
    let error = Scenario::parse(&text, "rush.toml").unwrap_err();
    let lines: Vec<Option<usize>> = error.problems.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [Some(13), Some(27), Some(61)], "{error}");
    // What cannot be read comes first, all of it: numbers that make no sense are judged when it can.
    let text = text.replace("duration =", "duratoin =").replace("\"fifo\"", "\"lifo\"").replace("cv = 1.0", "cw = 1.0");
    let error = Scenario::parse(&text, "rush.toml").unwrap_err();
    let lines: Vec<Option<usize>> = error.problems.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [Some(4), Some(15), Some(25)], "{error}");
}

#[test]
fn a_file_that_is_not_there_says_so() {
    let error = Scenario::load(Path::new("/nonexistent/c1.toml")).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent/c1.toml: cannot be read"), "{error}");
}

#[test]
fn in_the_short_form_a_second_across_an_edge_belongs_to_neither_side() {
    let short = |over: &str| {
        let text = GOOD.replace("over = \"60s..120s\"", &format!("over = \"{over}\""));
        let short = Scenario::parse(&text, "rush.toml").unwrap().shortened();
        short.expects.first().map(|expect| expect.over.to_string())
    };
    assert_eq!(short("61s..121s").as_deref(), Some("31s..60s"));
    assert_eq!(short("61s..63s"), None);
}

/// A file that says everything that only the simulator can do.
const MACHINES: &str = r#"id = "shop"
title = "A shop"
duration = "60s"
[sla]
target = "500ms"
[servers]
count = 4
off = 1
limit = 64
backlog = 100
knee = { at = 40, loss = 0.01 }
power = { idle = 100.0, peak = 180.0 }
setup_time = "5s"
warm_up = { time = "5s", speed = 0.5 }
[[servers.resource]]
name = "disk"
units = 2
[[servers.resource]]
name = "connections"
tokens = 16
[[tier]]
name = "db"
count = 2
latency = "1ms"
[[tier.resource]]
name = "log"
rate = 1e6
[[tier.step]]
resource = "log"
amount = { distribution = "constant", value = 2000 }
[link]
rate = 25e6
latency = "2ms"
[sentry]
admitted = "200us"
refused = "50us"
[reports]
delay = "100ms"
loss = 0.1
[[fault]]
at = "20s"
server = 0
kind = "fail"
[[fault]]
at = "40s"
tier = "db"
server = 1
kind = "slow"
speed = 0.5
[[class]]
name = "buyers"
[[request]]
name = "page"
service = { distribution = "exponential", mean = "10ms" }
[[request.step]]
tier = "db"
calls = 3
amount = { distribution = "exponential", mean = "2ms" }
pool = "connections"
[[request.step]]
resource = "disk"
amount = { distribution = "constant", value = "5ms" }
overlap = true
[[load]]
name = "crawlers"
class = "buyers"
requests = { page = 1 }
rate = "0s:50/s, 20s:200/s"
retry = { tries = 3, wait = "retry-after", jitter = 0.5 }
[[users]]
class = "buyers"
count = 200
think = { distribution = "exponential", mean = "1s" }
requests = { page = 1 }
next = { page = { page = 0.9 } }
retry = { tries = 2, wait = "own", time = { distribution = "constant", value = "1s" } }
[[arm]]
name = "sentry"
[sweep]
"servers.count" = [2, 4]
"load.crawlers.rate" = ["x0.5", "30/s"]
"sla.target" = ["x2"]
"#;

fn machines_error(from: &str, to: &str) -> String {
    assert!(MACHINES.contains(from), "{from}");
    Scenario::parse(&MACHINES.replacen(from, to, 1), "shop.toml").expect_err(to).to_string()
}

#[test]
fn machines_are_written_and_read_back() {
    let scenario = Scenario::parse(MACHINES, "shop.toml").unwrap_or_else(|error| panic!("{error}"));
    let text = scenario.to_toml();
    assert_eq!(Scenario::parse(&text, "again.toml").unwrap_or_else(|error| panic!("{error}\n{text}")), scenario);
}

#[test]
fn what_only_the_simulator_can_do_is_named() {
    let scenario = Scenario::parse(MACHINES, "shop.toml").unwrap();
    assert_eq!(
        beyond(&scenario),
        [
            "servers.limit",
            "servers.backlog",
            "servers.knee",
            "servers.resource.tokens",
            "servers.power",
            "servers.off",
            "servers.warm_up",
            "tier",
            "request.step.tier",
            "users",
            "link",
            "sentry",
            "reports",
            "fault",
        ]
    );
    assert_eq!(beyond(&good()), [""; 0]);
}

#[test]
fn a_sweep_is_every_combination() {
    let points = Scenario::parse(MACHINES, "shop.toml").unwrap().points().unwrap();
    let settings: Vec<String> = points
        .iter()
        .map(|point| point.settings.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(settings, ["2 x0.5 x2", "2 30/s x2", "4 x0.5 x2", "4 30/s x2"]);
    let rate = |at: usize| points[at].scenario.loads[0].rate.rate_at(Duration::from_secs(30)).per_second();
    assert_eq!((rate(0), rate(1), points[3].scenario.servers.count), (100.0, 30.0, 4));
    assert!(
        points.iter().all(|p| p.scenario.sla.target == Some(Duration::from_secs(1)) && p.scenario.sweep.is_empty())
    );
    assert_eq!(good().points().unwrap().len(), 1);
}

#[test]
fn errors_about_machines_say_where_and_what_to_do() {
    let mut wrong = Vec::new();
    for (from, to, parts) in [
        ("off = 1", "off = 4", &["shop.toml:8: servers.off: must leave one server"][..]),
        ("limit = 64", "limit = 0", &["shop.toml:9: servers.limit: must be at least 1"]),
        ("loss = 0.01", "loss = -0.01", &["shop.toml:11: servers.knee: its `loss` must be"]),
        ("peak = 180.0", "peek = 180.0", &["shop.toml:12:", "unknown key \"peek\"; did you mean \"peak\"?"]),
        ("idle = 100.0", "idle = -1.0", &["shop.toml:12: servers.power: must be finite numbers of watts"]),
        ("name = \"connections\"", "name = \"disk\"", &["servers.resource[1]: the name \"disk\" is taken"]),
        ("rate = 1e6", "rate = -1e6", &["tier[0].resource[0]: its `rate` must be a finite number above 0"]),
        ("resource = \"log\"", "resource = \"lug\"", &["there is no resource \"lug\"; did you mean \"log\"?"]),
        ("resource = \"log\"", "tier = \"db\"", &["tier[0].step[0].tier: there is no tier (further back) \"db\""]),
        ("loss = 0.1", "loss = 1.1", &["reports.loss: must be 0 to 1"]),
        ("server = 0", "server = 4", &["fault[0].server: there is no server 4 among 4, from 0"]),
        ("at = \"20s\"", "at = \"61s\"", &["fault[0].at: is after the scenario's `duration`"]),
        ("speed = 0.5\n", "", &["fault[1].speed: `kind = \"slow\"` and `speed` go together"]),
        ("pool = \"connections\"", "pool = \"disk\"", &["request[0].step[0].pool: there is no pool \"disk\""]),
        ("tier = \"db\"\ncalls = 3", "calls = 3", &["request[0].step[0].resource: a step needs either"]),
        ("tries = 3", "tries = 0", &["load[0].retry: its `tries` must be at least 1"]),
        ("wait = \"own\", ", "", &["users[0].retry: `wait = \"own\"` and `time` go together"]),
        ("page = 0.9", "page = 1.9", &["users[0].next: the probabilities after \"page\" must be 0 to 1"]),
        (
            "think = { distribution = \"exponential\", mean = \"1s\" }",
            "think = { distribution = \"constant\", value = 0 }",
            &["users[0].think: `think` and `pause` must be more than 0"],
        ),
        ("count = 200", "count = 0", &["users[0].count: must be at least 1"]),
        ("count = 200", "count = 200\nfrom = \"2h\"", &["users[0].from: must be before `until`"]),
        ("count = 200", "count = 200\nuntil = \"2h\"", &["users[0].until: is after the scenario's `duration`"]),
        ("think = { distribution = \"exponential\", mean = \"1s\" }\n", "", &["missing field `think`"]),
        ("\"servers.count\" = [2, 4]", "\"servers.count\" = 2", &["sweep: \"servers.count\" needs a list"]),
        ("\"servers.count\" = [2, 4]", "\"servers.count\" = [2, 0]", &["servers.count must be 1 to 1000"]),
        (
            "\"servers.count\" = [2, 4]",
            "\"server.count\" = [2]",
            &["no \"server\" on the way; did you mean \"servers\"?"],
        ),
        ("load.crawlers.rate", "load.crawler.rate", &["no load \"crawler\"; did you mean \"crawlers\"?"]),
        ("\"x0.5\"", "\"x-1\"", &["a factor must be a finite number"]),
    ] {
        let error = machines_error(from, to);
        if !parts.iter().all(|part| error.contains(part)) {
            wrong.push(format!("{from} -> {to}: wanted {parts:?}, got\n{error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn applications_and_provisioning_are_checked() {
    const SITE: &str = r#"
        id = "s"
        title = "s"
        duration = "10s"
        sla = { target = "1s" }
        servers = { count = 4 }
        provision = { every = "10s", max_sentries = 2 }
        application = [{ name = "shop", servers = 1 }, { name = "blog", servers = 2 }]
        class = [{ name = "buyers", application = "shop" }, { name = "readers", application = "blog" }]
        request = [{ name = "page", service = { distribution = "constant", value = "1ms" } }]
        load = [{ class = "buyers", requests = { page = 1 }, rate = "20/s" }]
        arm = [{ name = "a", provision = { policy = "cataclysm" } }]
    "#;
    let site = Scenario::parse(SITE, "s.toml").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((site.application_of("buyers"), site.application_of("readers")), (0, 1));
    assert_eq!(Scenario::parse(&site.to_toml(), "again.toml").unwrap(), site);
    assert_eq!(beyond(&site), ["provision"]);
    for (from, to, part) in [
        (
            "application = \"blog\"",
            "application = \"blag\"",
            "there is no application \"blag\"; did you mean \"blog\"?",
        ),
        ("application = \"blog\"", "application = \"shop\"", "application[1]: needs a class"),
        ("every = \"10s\"", "every = \"10ms\"", "provision.every: must be at least 1s"),
        ("max_sentries = 2", "max_sentries = 0", "provision.max_sentries: must be 1 to 16"),
        ("servers = 2", "servers = 4", "begin with more servers than there are"),
        ("provision = { every = \"10s\", max_sentries = 2 }", "", "applications share servers by `provision`"),
    ] {
        let error = Scenario::parse(&SITE.replacen(from, to, 1), "s.toml").unwrap_err().to_string();
        assert!(error.contains(part), "{from} -> {to}: {error}");
    }
}

#[test]
fn the_short_form_of_a_space_keeps_every_nth_load_before_the_jump() {
    let scenario = crate::built_in::find("S5").unwrap();
    let loads = |scenario: &Scenario| {
        let settings = scenario.points().unwrap().into_iter().flat_map(|point| point.settings);
        settings.filter(|(key, _)| key == "before").map(|(_, load)| load).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((loads(&scenario).len(), scenario.shortened().duration), (16, scenario.duration));
    assert_eq!(loads(&scenario.shortened()), ["5", "20", "35", "50", "65", "80"].map(str::to_owned).into());
}
