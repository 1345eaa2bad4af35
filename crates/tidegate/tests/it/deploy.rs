//! What `deploy/` holds is valid, by the programs that will read it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::folder::folder;
use crate::support::{Folder, program};

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(deploy(path)).unwrap_or_else(|error| panic!("deploy/{path}: {error}"))
}

/// Runs `program` to its end; what it said if it failed.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let Output { status, stdout, stderr } =
        Command::new(program).args(arguments).stdin(Stdio::null()).output().expect("runs");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if status.success() { Ok(said(&stderr)) } else { Err(said(&stdout) + &said(&stderr)) }
}

#[test]
fn example_configurations_are_valid_and_raise_no_doubts() {
    let mut seen = 0;
    for entry in fs::read_dir(deploy("examples")).expect("a folder").flatten() {
        let path = entry.path();
        // Of other programs, and one with names: their tests are below.
        if ["nucleus.toml", "control.toml", "names.toml"].iter().any(|name| path.ends_with(name)) {
            continue;
        }
        let checked = run(env!("CARGO_BIN_EXE_tidegate"), &["check", path.to_str().expect("UTF-8")]);
        assert_eq!(checked, Ok(String::new()), "{}", path.display());
        seen += 1;
    }
    assert_eq!(seen, 6);
}

/// Without DNS nothing is wrong with it; that its names lead nowhere for now is said.
#[test]
fn the_example_with_names_is_valid_where_nobody_knows_them() {
    let silent = std::net::UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
    let text = read("examples/names.toml");
    let resolver = format!("\"{}\"", silent.local_addr().expect("an address"));
    let folder = Folder::new();
    let file = folder.write("names.toml", &text.replace("\"127.0.0.1:53\"", &resolver));
    let said = run(env!("CARGO_BIN_EXE_tidegate"), &["check", &file]).expect("it is valid");
    let names = ["shop.internal:8000", "srv:_http._tcp.spare.internal"];
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), names.len(), "{said}");
    for (line, name) in lines.iter().zip(names) {
        assert!(line.starts_with(&format!("warning: {name} has no addresses for now")), "{said}");
    }
}

#[test]
fn the_autoscaler_asks_for_a_figure_that_the_rules_record() {
    let (example, rules) = (read("kubernetes/keda.yaml"), read("prometheus/tidegate.rules.yml"));
    let query = example.lines().find_map(|line| line.trim().strip_prefix("query: ")).expect("a query");
    let (metric, application) = query.split_once('{').expect("of one application");
    assert_eq!(application, r#"application="shop"}"#);
    assert!(rules.contains(&format!("- record: {metric}\n")), "{metric}");
}

/// It is asked by the sentry's own words.
#[test]
fn the_external_scaler_is_named_as_it_is_called() {
    let example = read("kubernetes/keda-external.yaml");
    for line in ["    - type: external-push\n", "        application: shop\n", ":9900\n"] {
        assert!(example.contains(line), "{line}");
    }
    let folder = Folder::new();
    let text = "[admin]\nscaler = true\n[[application]]\nname = \"shop\"\nservers = \"127.0.0.1:1\"\n";
    let file = folder.write("sentry.toml", text);
    assert_eq!(run(env!("CARGO_BIN_EXE_tidegate"), &["check", &file]), Ok(String::new()));
}

#[test]
fn the_example_nucleus_measures() {
    let folder = Folder::new();
    let file = folder.write("nucleus.toml", &read("examples/nucleus.toml"));
    let ran = run(env!("CARGO_BIN_EXE_tidegate"), &["nucleus", "-c", &file, "--once"]);
    assert!(ran.is_ok(), "{ran:?}");
}

/// The example finds its key where the unit puts it, and its store where the unit lets it write.
#[test]
fn the_example_control_plane_is_valid_and_fits_its_unit() {
    let (example, unit) = (read("examples/control.toml"), read("systemd/tidegate-control.service"));
    let key = "/run/credentials/tidegate-control.service/control.key";
    assert!(unit.contains("LoadCredential=control.key:") && example.contains(key));
    let state = unit.lines().find_map(|line| line.strip_prefix("StateDirectory=")).expect("a folder");
    assert!(example.contains(&format!("store = \"/var/lib/{state}/")), "the store is elsewhere");
    assert!(unit.contains("\nKillMode=process\n"), "servers of the local provider outlive the control plane");
    let folder = Folder::new();
    let file = folder.write("control.toml", &example.replace(key, "key"));
    // As the unit does it, but for the places.
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStartPre=/usr/bin/tidegate ")).expect("a check");
    let words: Vec<&str> = line.split(' ').map(|word| if word.starts_with('/') { &file } else { word }).collect();
    let checked = run(env!("CARGO_BIN_EXE_tidegate"), &words);
    assert_eq!(checked, Ok(String::new()));
}

/// What the Debian package is to hold is there, and its configuration is one that an administrator may change.
#[test]
fn the_debian_package_has_what_it_names() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest: toml::Table =
        toml::from_str(&fs::read_to_string(top.join("Cargo.toml")).expect("a file")).expect("TOML");
    let deb = &manifest["package"]["metadata"]["deb"];
    let mut installed = BTreeSet::new();
    for asset in deb["assets"].as_array().expect("assets") {
        let [from, to, mode] = [0, 1, 2].map(|at| asset[at].as_str().expect("text"));
        let is_program = from == "target/release/tidegate";
        // Written by `cargo xtask sbom`, which the page has before `cargo deb`.
        let is_built = is_program || from == "../../target/tidegate.cdx.json";
        assert_eq!(mode, if is_program { "755" } else { "644" }, "{from}");
        let folder = from.strip_suffix("/*.toml");
        let source = top.join(folder.unwrap_or(from));
        assert!(is_built || source.exists(), "{from} is not there");
        let name = Path::new(from).file_name().expect("a name").to_str().expect("UTF-8");
        installed.insert(if to.ends_with('/') { format!("/{to}{name}") } else { format!("/{to}") });
    }
    assert!(read("README.md").contains("cargo xtask sbom\ncargo deb "), "the bill of materials is made first");
    assert!(installed.contains("/usr/share/doc/tidegate/tidegate.cdx.json"), "{installed:?}");
    for file in deb["conf-files"].as_array().expect("files").iter().filter_map(|file| file.as_str()) {
        assert!(installed.contains(file), "{file} is not installed");
    }
    let units = deb["systemd-units"].as_array().expect("units").iter();
    let units: BTreeSet<&str> = units.map(|unit| unit["unit-name"].as_str().expect("a name")).collect();
    assert_eq!(units, BTreeSet::from(["tidegate", "tidegate-control", "tidegate-nucleus"]));
    let folder = top.join(deb["maintainer-scripts"].as_str().expect("a folder"));
    for unit in units {
        assert!(folder.join(format!("{unit}.service")).exists(), "{unit}");
        let text = read(&format!("systemd/{unit}.service"));
        let program =
            text.lines().find_map(|line| line.strip_prefix("ExecStart=")?.split(' ').next()).expect("a program");
        assert!(installed.contains(program), "{unit}.service starts {program}, which the package does not have");
    }
}

/// Every name of ours in rules, their tests and the board is one that `/metrics` has or a rule records.
#[test]
fn rules_and_board_name_metrics_that_there_are() {
    let documented = fs::read_to_string(deploy("../docs/metrics.md")).expect("a file");
    let known: BTreeSet<&str> = names(&documented).collect();
    let rules = read("prometheus/tidegate.rules.yml");
    for (file, text) in [
        ("tidegate.rules.yml", rules.clone()),
        ("tidegate.tests.yml", read("prometheus/tidegate.tests.yml")),
        ("tidegate.json", read("grafana/tidegate.json")),
    ] {
        let unknown: Vec<&str> = names(&text)
            .filter(|name| name.contains('_') && !known.contains(name.trim_end_matches("_total")))
            .filter(|name| !name.contains(':') || !rules.contains(&format!("record: {name}\n")))
            .collect();
        assert_eq!(unknown, Vec::<&str>::new(), "{file}");
    }
    assert!(names("x(tidegate_requests_offered_total{a})").eq(["tidegate_requests_offered_total"]), "names are found");
}

/// Words that begin as our metrics do.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = text.split(move |c| !part(c)).map(|word| word.trim_end_matches(':'));
    words.filter(|word| word.starts_with("tidegate_") || word.starts_with("tidegate:"))
}

#[test]
fn the_board_is_one_that_grafana_takes() {
    let board: serde_json::Value = serde_json::from_str(&read("grafana/tidegate.json")).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let ids: BTreeSet<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    assert!(panels.len() > 10 && ids.len() == panels.len(), "panels have ids of their own");
    for panel in panels {
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty() && panel["title"].is_string(), "{panel}");
        let place = &panel["gridPos"];
        assert!(place["x"].as_u64().expect("x") + place["w"].as_u64().expect("w") <= 24, "{}", panel["title"]);
    }
}

#[test]
fn promtool_takes_rules_and_their_tests_pass() {
    if !program::is_present("promtool") {
        return println!("skipped: no promtool");
    }
    let path = |name: &str| deploy("prometheus").join(name).to_str().expect("UTF-8").to_owned();
    for arguments in [
        ["check", "rules", &path("tidegate.rules.yml")],
        ["check", "config", &path("prometheus.yml")],
        ["test", "rules", &path("tidegate.tests.yml")],
    ] {
        let ran = run("promtool", &arguments);
        assert!(ran.is_ok(), "promtool {}: {}", arguments.join(" "), ran.unwrap_err());
    }
}

/// Every query of the board is one that Prometheus can read: as a rule file they would be refused otherwise.
#[test]
fn promtool_takes_the_queries_of_the_board() {
    if !program::is_present("promtool") {
        return println!("skipped: no promtool");
    }
    let board: serde_json::Value = serde_json::from_str(&read("grafana/tidegate.json")).expect("JSON");
    let panels = board["panels"].as_array().expect("panels").iter();
    let queries = panels.flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let rules: Vec<_> = queries
        .enumerate()
        .map(|(at, target)| serde_json::json!({ "record": format!("query:{at}"), "expr": target["expr"] }))
        .collect();
    // JSON is YAML.
    let text = serde_json::json!({ "groups": [{ "name": "board", "rules": rules }] }).to_string();
    let folder = Folder::new();
    let ran = run("promtool", &["check", "rules", &folder.write("board.yml", &text)]);
    assert!(ran.is_ok(), "{}", ran.unwrap_err());
}

/// What the guide says of each unit is so: `yes` is a line of it, anything else is none.
#[test]
fn units_are_as_hard_as_the_guide_says() {
    let guide = fs::read_to_string(deploy("../docs/hardening.md")).expect("a file");
    let units = ["tidegate.service", "tidegate-control.service", "tidegate-nucleus.service"];
    let rows: Vec<Vec<&str>> = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | ").filter(|(name, _)| name.contains('=')))
        .map(|(name, cells)| [name].into_iter().chain(cells.trim_end_matches(" |").split(" | ")).collect())
        .collect();
    assert!(rows.len() > 20, "the guide has its table: {rows:?}");
    for (at, unit) in units.iter().enumerate() {
        let text = read(&format!("systemd/{unit}"));
        for row in &rows {
            let [directive, cell] = [row[0], row[at + 1]];
            let has = text.lines().any(|line| line == directive);
            assert_eq!(has, cell == "yes", "{unit}: {directive}");
            assert!(has || cell.starts_with("no: "), "{unit}: {directive}: the guide gives no reason");
        }
        // And nothing that protects is left untold.
        let names: BTreeSet<&str> = rows.iter().filter_map(|row| row[0].split('=').next()).collect();
        let protects = |name: &str| {
            let kinds = ["Protect", "Restrict", "Private", "SystemCall", "Capability", "NoNew", "Lock", "MemoryDeny"];
            kinds.iter().any(|kind| name.starts_with(kind))
        };
        for name in text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name) {
            assert!(!protects(name) || names.contains(name), "{unit}: the guide does not name {name}");
        }
    }
}

#[test]
fn systemd_takes_the_units() {
    if !program::is_present("systemd-analyze") {
        return println!("skipped: no systemd-analyze");
    }
    let temporary = folder();
    let folder = temporary.path();
    for drop_in in ["tidegate.service.d/kernel-policing.conf", "tidegate-control.service.d/local-servers.conf"] {
        fs::create_dir_all(folder.join(drop_in).parent().expect("a folder")).expect("a folder");
        fs::write(folder.join(drop_in), read(&format!("systemd/{drop_in}"))).expect("a file");
    }
    for unit in ["tidegate.service", "tidegate-nucleus.service", "tidegate-control.service"] {
        let text = read(&format!("systemd/{unit}")).replace("/usr/bin/tidegate", env!("CARGO_BIN_EXE_tidegate"));
        let file = folder.join(unit);
        fs::write(&file, text).expect("a file");
        let ran = run("systemd-analyze", &["verify", "--man=no", file.to_str().expect("UTF-8")]);
        let said = ran.unwrap_or_else(|said| panic!("{unit}: {said}"));
        // It also tells of other units of the machine.
        let ours: Vec<&str> = said.lines().filter(|line| line.contains("tidegate")).collect();
        assert_eq!(ours, Vec::<&str>::new(), "{unit}");
    }
}
