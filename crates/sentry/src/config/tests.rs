mod acme;
mod health;
mod listen;
mod peers;
mod profile;
mod reference;
mod reports;
mod routing;
mod tenants;
mod work;

use std::path::Path;

use proptest::prelude::*;
use tidegate_engine::{AdmissionConfig, DispatchConfig};

use super::parse::parse_in;
use super::resolve::NoWorld;
use super::*;

fn parse(text: &str) -> Result<Checked, ConfigErrors> {
    parse_in(text, "shop.toml", None, &NoWorld)
}

fn accepted(text: &str) -> Checked {
    parse(text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn refused(text: &str) -> String {
    parse(text).map(|checked| checked.config.to_toml()).expect_err("a bad file").to_string()
}

/// The example of the design, with a little of everything else.
const FULL: &str = r#"
access_log = "/var/log/tidegate/access.log"

[sentry]
workers = 3
drain = "10s"

[admin]
listen = "0.0.0.0:9900"
token = "0123456789abcdef"

[[application]]
name = "shop"
listen = ["0.0.0.0:8080", "[::]:8080"]
admission = { policy = "sentry", high = 0.7, hold = "10s" }
dispatch = "wrr"
partition = { policy = "dynamic", shares = [0.2], period = "2s" }
affinity = { cookie = "session", idle = "10m" }
tenants = { header = "X-Api-Key" }
deadline = { header = "X-Patience", unit = "s", well_known = false }
cancel = "runaways"
refused_below = [503, 429]
servers = [
    "127.0.0.1:9001",
    { name = "big", address = "big.internal:9002", cores = 8, weight = 2, max_connections = 512 },
]
shadow = true
default_cost = "20ms"
when_all_down = "refuse"
exempt = { path = "/healthz", network = ["10.0.0.0/8", "192.168.1.1"] }

[application.sla]
statistic = "p90"
steps = [{ below = "1000/s", target = "1s" }, { below = "10k/s", target = "2s" }, { target = "3s" }]

[application.timeouts]
first_byte = "5s"
request = "30s"

[application.limits]
header_bytes = "32KiB"
body_bytes = "10MiB"

[application.health]
path = "/up"
interval = 0.5

[application.retry]
attempts = 2
budget = "10%"

[application.forwarded]
forwarded = true
trust = "10.0.0.0/8"

[application.rejection]
status = 429
decision_on_admitted = true

[[application.class]]
name = "gold"
revenue = 10.0
min_rate = "20/s"
match = [{ path_prefix = "/checkout" }, { cookie = { name = "tier", value = "gold" } }]

[[application.class]]
name = "api"
[[application.class.match]]
method = ["GET", "HEAD"]
host = "*.shop.example"
path_glob = "/api/*/list"
header = [{ name = "x-key" }, { name = "accept", contains = "json" }]

[[application.class]]
name = "rest"

[[application.request_type]]
name = "search"
match = { path = "/search" }
tags = ["db", "cpu"]

[[application.tenant]]
name = "acme"
value = ["k1", "k2"]
network = "198.51.100.0/24"
min_rate = "5/s"
max_rate = "500/s"

[[application.max_conn]]
name = "pages"
request_types = ["default"]
within_target = 85
most = 100

[[application.max_conn]]
name = "search"
within_target = 18
most = 26

[[application]]
name = "blog"
listen = "127.0.0.1:8081"
servers = "127.0.0.1:9003"
"#;

#[test]
fn a_full_file_means_what_it_says() {
    let Checked { config, warnings } = accepted(FULL);
    let shop = &config.applications[0];
    assert_eq!((config.sentry.workers, config.sentry.drain), (3, Duration::from_secs(10)));
    assert_eq!(config.access_log, AccessLog::File("/var/log/tidegate/access.log".into()));
    assert_eq!(shop.listen.len(), 2);
    assert_eq!(shop.setup.sla.target(20_000.0), Duration::from_secs(3));
    assert_eq!((shop.setup.admission.name(), shop.setup.dispatch.name()), ("sentry", "wrr"));
    assert_eq!(shop.servers[1], Server { name: "big".into(), address: "big.internal:9002".into() });
    assert_eq!((shop.setup.servers[1].cores, shop.setup.servers[1].max_connections), (Some(8.0), Some(512)));
    assert_eq!(shop.timeouts.header, Duration::from_secs(10), "a default");
    assert_eq!((shop.limits.header_bytes, shop.limits.body_bytes), (32_768, Some(10 << 20)));
    assert_eq!((shop.retry.attempts, shop.retry.budget), (2, 0.1));
    assert_eq!((shop.setup.classes[0].min_rate, shop.setup.classes[0].burst), (20.0, 2.0));
    assert_eq!((shop.setup.request_types.len(), shop.tags.len(), shop.exempt.len()), (2, 2, 1));
    assert_eq!(config.applications[1].setup.classes[0].name, "default");
    assert_eq!(warnings[0].at("f"), "f:12: \"shop\" is in shadow mode: it decides and counts, but refuses nothing");
}

#[test]
fn the_rendering_is_a_valid_configuration_of_the_same_meaning() {
    let first = accepted(FULL).config;
    let second = accepted(&first.to_toml()).config;
    assert_eq!(format!("{first:#?}"), format!("{second:#?}"));
}

#[test]
fn every_policy_with_its_defaults_survives_the_rendering() {
    let file = |admission: &str, dispatch: &str| {
        format!(
            "[[application]]\nservers = \"a:1\"\nadmission = \"{admission}\"\ndispatch = {{ policy = \"{dispatch}\" }}"
        )
    };
    for admission in AdmissionConfig::NAMES {
        for dispatch in DispatchConfig::NAMES {
            let first = accepted(&file(admission, dispatch)).config;
            let second = accepted(&first.to_toml()).config;
            assert_eq!(second.applications[0].setup.admission, AdmissionConfig::from_name(admission).expect("a name"));
            assert_eq!(format!("{first:?}"), format!("{second:?}"));
        }
    }
}

#[test]
fn bad_files_say_what_where_and_what_to_do() {
    let app = |rest: &str| refused(&format!("[[application]]\nservers = [\"127.0.0.1:9001\"]\n{rest}\n"));
    insta::assert_snapshot!(
        [
            refused(""),
            refused("[[application]]\nname = \"shop\"\n\n[aplication]\n"),
            app("tagret = \"500ms\"\nlistn = 5\ncolour = 1"),
            app("target = \"500\""),
            app("target = \"0s\""),
            app("target = true"),
            app("target = \"1s\"\nsla = { target = \"1s\" }"),
            app("sla = { steps = [{ below = \"10/s\", target = \"1s\" }] }"),
            app("sla = { statistic = \"p42\" }"),
            app("listen = \"127.0.0.1\""),
            app("listen = \"8080\""),
            app("listen = \"shop.example:80\""),
            app("listen = \"127.0.0.1:99999\""),
            app("admission = \"btach\""),
            app("admission = { policy = \"batch\", headrom = 0.5, epsilom = 1 }"),
            app("admission = { policy = \"sentry\", batch = { headrom = 0.5 } }"),
            app("admission = { policy = \"sentry\", low = 0.9 }"),
            app("admission = { policy = \"sentry\",\n  hold = \"soon\" }"),
            app("admission = { high = 0.9 }"),
            app("dispatch = 4"),
            app("timeouts = { header = \"0s\", conect = \"1s\" }"),
            app("limits = { headers = 0, header_bytes = \"1B\" }"),
            app("retry = { attempts = -1, budget = \"200%\" }"),
            app("rejection = { status = 200 }"),
            app("rejection = { page = \"sorry.html\" }"),
            app("health = { path = \"up\" }"),
            app("when_all_down = \"panic\""),
            app("affinity = { idle = \"5m\" }"),
            app("affinity = { cookie = \"a\", header = \"b\" }"),
            app("deadline = { header = \"a b\" }"),
            app("deadline = { unit = \"s\" }\ncancel = \"some\""),
            app("deadline = { header = \"x-left\", unit = \"min\" }"),
            app("max_conn = [{ name = \"default\", most = 5 }]"),
            app("max_conn = [{ name = \"default\", within_target = 9, most = 5 }]"),
            app("partition = { policy = \"dynamic\", period = \"0s\" }"),
            app("[[application.class]]\nname = \"rest\"\n[[application.class]]\nname = \"gold\"\n"),
            app("[[application.class]]\nname = \"a\"\nmatch = { path = \"x\" }\n[[application.class]]\nname = \"a\""),
            app("[[application.class]]\nmatch = {}\n[[application.class]]\nname = \"b\"\nmin_rate = \"-2/s\""),
            app("exempt = [{ host = \"a:80\" }, { path = \"/a\", path_glob = \"/b\" }, { network = \"10.0.0.0/99\" }]"),
            app("exempt = []"),
            app("[[application.request_type]]\nname = \"default\"\nmatch = { path = \"/\" }"),
            app("[[application.request_type]]\ntags = [\"db\"]"),
            app("[admin]\nlisten = \"0.0.0.0:9900\""),
            app("[admin]\nlisten = \"0.0.0.0:8080\"\ntoken = \"short\""),
            app("[admin]\nlisten = \"0.0.0.0:9900\"\ntoken_file = \"missing\""),
            app("[admin]\ntoken = \"0123456789abcdef\"\ntoken_file = \"missing\""),
            app("[sentry]\nworkers = 0"),
            refused("[[application]]\nlisten = \":80\"\n"),
            refused("[[application]]\nservers = []\n"),
            refused("[[application]]\nservers = [\"a\", \"http://a:80/x\", \"a:0x50\", \"127.0.0.1:0\", \"a b:1\"]\n"),
            refused("[[application]]\nservers = [\"a:1\", { name = \"a:1\", address = \"b:1\", cores = 0 }]\n"),
            refused("[[application]]\nservers = \"a:1\"\n[[application]]\nname = \"default\"\nservers = \"b:1\"\n"),
            refused(
                "[[application]]\nname = \"x\"\nservers = \"a:1\"\n[[application]]\nname = \"x\"\nservers = \"b:1\""
            ),
            refused("[[application]\nname = 3 4\n"),
        ]
        .join("\n---\n")
    );
}

#[test]
fn warnings_do_not_stop_anything() {
    let file = "[[application]]\nservers = { address = \"a:1\", cores = 2, weight = 3 }\ndefault_cost = \"100ms\"\n\
                timeouts = { request = \"100ms\" }\n[[application.class]]\nname = \"gold\"\nmin_rate = 50\n\
                match = { path = \"/\" }";
    let warnings: Vec<String> = accepted(file).warnings.iter().map(|warning| warning.at("f")).collect();
    insta::assert_snapshot!(warnings.join("\n"));
}

#[test]
fn names_are_not_looked_up_here_and_pages_are_read() {
    struct OnePage;
    impl resolve::World for OnePage {
        fn cores(&self) -> usize {
            1
        }
        fn read(&self, _: &Path) -> std::io::Result<Vec<u8>> {
            Ok(b"sorry".to_vec())
        }
        fn absolute(&self, path: &Path) -> PathBuf {
            Path::new("/etc/tidegate").join(path)
        }
    }
    let file = "[[application]]\nservers = [\"127.0.0.1:1\", \"[::1]:1\", \"nowhere.invalid:80\"]\n";
    let checked = parse_in(file, "f", None, &OnePage).expect("valid");
    assert_eq!((checked.config.applications[0].servers.len(), checked.warnings.len()), (3, 0));

    let file = "[[application]]\nservers = \"127.0.0.1:1\"\nrejection = { page = \"sorry.html\" }\n";
    let pages = parse_in(file, "f", None, &OnePage).expect("valid").config.applications.remove(0).rejection.pages;
    let page = pages[0].as_ref().expect("a page");
    assert_eq!((page.content_type.as_str(), &page.body[..]), ("text/html; charset=utf-8", &b"sorry"[..]));
    assert_eq!(page.path, Path::new("/etc/tidegate/sorry.html"));
}

/// A world with one file: a profile.
struct Profiled(&'static str);

impl resolve::World for Profiled {
    fn cores(&self) -> usize {
        1
    }
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        if path == Path::new("shop.profile.toml") {
            Ok(self.0.into())
        } else {
            Err(std::io::ErrorKind::NotFound.into())
        }
    }
    fn absolute(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
}

const PROFILE: &str = "[softscale]\nn_app = 12\npeak = \"600/s\"\nsteps = [\n\
    { below = 0.4, n_data = 4, cores = 2 },\n{ below = 0.8, n_data = 2, cores = 1 },\n]\n";

fn stealing(dispatch: &str, cores: u32, profile: &'static str) -> Result<Checked, ConfigErrors> {
    let file = format!(
        "[[application]]\nservers = [\n\"a:1\",\n{{ address = \"d:1\", role = \"data\", cores = {cores} }},\n]\n\
         dispatch = {dispatch}\n"
    );
    parse_in(&file, "shop.toml", None, &Profiled(profile))
}

const FROM_FILE: &str = "{ policy = \"softscale\", profile = \"shop.profile.toml\" }";

#[test]
fn a_profile_is_the_same_in_a_file_of_its_own_and_in_place() {
    let from_file = stealing(FROM_FILE, 4, PROFILE).expect("valid").config;
    let roles: Vec<_> = from_file.applications[0].setup.servers.iter().map(|server| server.role).collect();
    assert_eq!(roles, [tidegate_engine::Role::Application, tidegate_engine::Role::Data]);
    // The rendering holds it in place, and reads back.
    let again = parse(&from_file.to_toml()).unwrap_or_else(|errors| panic!("{errors}")).config;
    assert_eq!(again.applications[0].setup.dispatch, from_file.applications[0].setup.dispatch);
    assert_eq!(again.applications[0].setup.servers, from_file.applications[0].setup.servers);
    let DispatchConfig::Softscale(profile) = &again.applications[0].setup.dispatch else { panic!("another policy") };
    assert_eq!((profile.n_app, profile.peak, profile.steps[1].n_data), (12, 600.0, 2));
}

#[test]
fn bad_profiles_say_what_where_and_what_to_do() {
    let told = |dispatch: &str, cores, profile| match stealing(dispatch, cores, profile) {
        Ok(checked) => checked.warnings.iter().map(|warning| warning.at("shop.toml")).collect::<Vec<_>>().join("; "),
        Err(errors) => errors.to_string(),
    };
    const RISES: &str = "[softscale]\nsteps = [{ below = 0.4, n_data = 4 }, { below = 0.8, n_data = 5 }]\n";
    const UNKNOWN: &str = "[softscale]\nn_app = 12\nsteps_ = []\n";
    for (told, expected) in [
        (
            told(FROM_FILE, 2, PROFILE),
            "shop.toml:6: dispatch policy \"softscale\": steps[0].cores gives away 2 cores, but server \"d:1\" has 2",
        ),
        (told(FROM_FILE, 2, PROFILE), "(profile \"shop.profile.toml\", [softscale])"),
        (
            told(FROM_FILE, 4, RISES),
            "shop.toml:6: profile \"shop.profile.toml\": [softscale]: steps[1].n_data rises with the load, from 4 to 5",
        ),
        (
            told(FROM_FILE, 4, UNKNOWN),
            "profile \"shop.profile.toml\": line 3: unknown key \"steps_\"; did you mean \"steps\"?",
        ),
        (
            told("{ policy = \"softscale\", profile = \"gone.toml\" }", 4, PROFILE),
            "profile \"gone.toml\": cannot be read",
        ),
        (
            told("{ policy = \"softscale\", profile = \"shop.profile.toml\", n_app = 3 }", 4, PROFILE),
            "no other setting beside it",
        ),
        (told("{ policy = \"softscale\", n_apps = 3 }", 4, PROFILE), "unknown key \"n_apps\""),
        (told("\"softscale\"", 4, PROFILE), "steps are missing: there are data servers"),
        (told("\"jsq\"", 4, PROFILE), "get requests under dispatch = \"softscale\" only"),
    ] {
        assert!(told.contains(expected), "expected: {expected}\n told: {told}");
    }
    assert!(
        refused("[[application]]\nservers = { address = \"a:1\", role = \"spare\" }\n")
            .contains("\"application\" or \"data\"")
    );
}

#[test]
fn the_one_line_form_is_a_configuration_too() {
    let line = OneLine {
        listen: vec![":8080".into()],
        to: vec!["127.0.0.1:9000".into()],
        target: Some("500ms".into()),
        admin: Some("127.0.0.1:9900".into()),
        ..OneLine::default()
    };
    let config = Config::one_line(line.clone()).expect("valid").config;
    assert_eq!(config.applications[0].setup.sla.target(1.0), Duration::from_millis(500));
    assert_eq!(config.applications[0].listen, [([0u16; 8], 8080).into()]);
    let bad = OneLine { target: Some("500".into()), policy: Some("magic".into()), to: vec!["x".into()], ..line };
    insta::assert_snapshot!(Config::one_line(bad).expect_err("three mistakes").to_string());
}

#[test]
fn the_token_is_in_the_rendering_for_its_owner_only() {
    let config = accepted(FULL).config;
    assert!(config.to_toml().contains("0123456789abcdef"));
    assert!(!config.to_json().to_string().contains("0123456789abcdef"));
}

/// Lines that are often nearly right, so that random files get past the first key.
fn line() -> impl Strategy<Value = String> {
    let known = prop::sample::select(FULL.lines().map(str::to_owned).collect::<Vec<_>>());
    let broken = (known.clone(), any::<prop::sample::Index>(), any::<char>()).prop_map(|(line, at, with)| {
        let mut letters: Vec<char> = line.chars().collect();
        let at = at.index(letters.len().max(1));
        letters.iter_mut().skip(at).take(1).for_each(|letter| *letter = with);
        letters.into_iter().collect()
    });
    prop_oneof![6 => known, 3 => broken, 1 => any::<String>()]
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(lines in prop::collection::vec(line(), 0..60)) {
        fuzz(&lines.join("\n"));
    }

    #[test]
    fn a_whole_file_with_one_line_changed_never_panics(at in 0..80usize, with in line()) {
        let mut lines: Vec<String> = FULL.lines().map(str::to_owned).collect();
        if let Some(place) = lines.get_mut(at) {
            *place = with;
        }
        fuzz(&lines.join("\n"));
    }
}
