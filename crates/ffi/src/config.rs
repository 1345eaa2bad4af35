//! The configuration of an application: the keys of the sentry's `[[application]]` that are about deciding, at the top
//! level. Nothing is required.

use tidegate_config::{
    At, ConfigErrors, Kind, List, PerSecond, Policies, RawSla, Read, Report, Time, Value, parse_document, section,
    wrong,
};
use tidegate_engine::{AdmissionConfig, ClassSetup, Demands, DispatchConfig, ServerSetup, Setup, WhenAllDown};
use toml::de::DeValue;

/// What messages call the text.
const SOURCE: &str = "configuration";

section! {
    /// The text.
    struct RawApplication ("at the top level") {
        /// What it is called. Default: `"default"`.
        name: String,
        /// Short for `sla = { target = ... }`. Default: `"1s"`.
        target: Time,
        /// The response-time target, where it is more than one bound of the 95th percentile. Default: from `target`.
        sla: RawSla,
        /// The admission policy: its name, or `{ policy = "...", ... }` with its settings. Default: `"waiting"`.
        admission: Admission,
        /// Which server gets a request: a policy, likewise. Default: `"jsq"`.
        dispatch: Dispatch,
        /// Who does the work: names, or tables. Default: one, `"here"`, which is the process itself.
        servers: List<RawServer>,
        /// Decide and count, but refuse nothing. Default: `false`.
        shadow: bool,
        /// Cost of a request of which nothing is known yet. Default: a quarter of the target.
        default_cost: Time,
        /// With no server up, `"try"` them nevertheless, or `"refuse"`. Default: `"try"`.
        when_all_down: String,
        /// Most important first. Default: one class, `default`.
        class: List<RawClass>,
        /// Names of the kinds of requests. Default: one, `"default"`.
        request_types: List<String>,
    }
}

section! {
    struct RawServerTable ("in servers") {
        /// What it is called. Required.
        name: String,
        /// Effective processors. Default: learned.
        cores: f64,
        /// Its part under weighted round robin. Default: `1.0`.
        weight: f64,
        /// The most requests in flight there. Default: no limit.
        max_connections: u64,
    }
}

section! {
    struct RawClass ("in [[class]]") {
        /// What it is called. Required.
        name: String,
        /// Value of an answer within the target, in any unit. Default: `1.0`.
        revenue: f64,
        /// Guaranteed rate: up to it requests are always admitted, without a test. Default: `"0/s"`.
        min_rate: PerSecond,
        /// Most guaranteed requests at once. Default: a tenth of a second of `min_rate`, at least 1.
        burst: f64,
    }
}

/// A server: its name, or a table.
#[derive(Clone, Debug)]
struct RawServer(RawServerTable);

impl Read for RawServer {
    const KIND: Kind = Kind::Table(&RawServerTable::SECTION);

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(name) => {
                let name = Some(At { value: name.to_string(), span: value.span() });
                Some(RawServer(RawServerTable { name, ..RawServerTable::default() }))
            }
            DeValue::Table(table) => Some(RawServer(RawServerTable::read_table(table, report))),
            _ => wrong(value, key, "names such as \"one\", or tables with a name", report),
        }
    }
}

/// An admission policy with its settings.
#[derive(Clone, Debug)]
struct Admission(AdmissionConfig);

impl Read for Admission {
    const KIND: Kind = Kind::Value("policy");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let policy = Policies::admission(key).read(value, report)?;
        is_possible(value, key, policy.name(), policy.demands(), report).then_some(Admission(policy))
    }
}

/// A dispatch policy with its settings.
#[derive(Clone, Debug)]
struct Dispatch(DispatchConfig);

impl Read for Dispatch {
    const KIND: Kind = Kind::Value("policy");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let policy = Policies::dispatch(key).read(value, report)?;
        is_possible(value, key, policy.name(), policy.demands(), report).then_some(Dispatch(policy))
    }
}

/// Whether the library can give the policy what it needs.
fn is_possible(value: &Value<'_>, key: &str, name: &str, demands: Demands, report: &mut Report<'_>) -> bool {
    let Demands { signals, connections, kinds, lenders, cores, weights: _ } = demands;
    let is_possible = !(signals || connections.is_some() || kinds || lenders || cores);
    if !is_possible {
        let what = "needs what only a sentry has: signals, limits by kind of request, new connections or other servers' \
                    cores; take another, or leave it out for the default";
        report.error(&value.span(), format!("{key} policy \"{name}\" {what}"));
    }
    is_possible
}

/// Reads the text of a configuration.
///
/// # Errors
/// Everything that is wrong, each with its line and what to write.
pub(crate) fn read(text: &str) -> Result<Setup, ConfigErrors> {
    let mut report = Report::new(text);
    let Some(document) = parse_document(text, &mut report) else { return Err(report.failure(SOURCE)) };
    let raw = RawApplication::read_table(document.get_ref(), &mut report);
    let is_complete = !report.has_errors();
    let sla = tidegate_config::sla(raw.target, raw.sla, is_complete, &mut report);
    let servers = servers(raw.servers, &mut report);
    let name = raw.name.map_or_else(|| String::from("default"), |name| name.value);
    let mut setup = Setup::simple(name, sla, servers);
    setup.admission = raw.admission.map_or_else(AdmissionConfig::default, |choice| choice.value.0);
    setup.dispatch = raw.dispatch.map_or_else(DispatchConfig::default, |choice| choice.value.0);
    setup.shadow = raw.shadow.is_some_and(|shadow| shadow.value);
    setup.default_cost = raw.default_cost.map(|cost| cost.value.0);
    setup.when_all_down = raw.when_all_down.map_or_else(WhenAllDown::default, |at| when_all_down(&at, &mut report));
    if let Some(classes) = raw.class {
        setup.classes = classes.value.0.into_iter().map(|class| class_of(class, &mut report)).collect();
        unique("class", setup.classes.iter().map(|class| &class.name), &classes.span, &mut report);
    }
    if let Some(types) = raw.request_types {
        setup.request_types = types.value.0.into_iter().map(|name| name.value).collect();
        unique("request type", setup.request_types.iter(), &types.span, &mut report);
    }
    if report.has_errors() {
        return Err(report.failure(SOURCE));
    }
    setup.check().map_err(|error| ConfigErrors::whole(SOURCE, error.to_string()))?;
    Ok(setup)
}

fn servers(servers: Option<At<List<RawServer>>>, report: &mut Report<'_>) -> Vec<ServerSetup> {
    let Some(servers) = servers else { return vec![ServerSetup::new("here")] };
    if servers.value.0.is_empty() {
        report.error(&servers.span, "there is no server; name one or more, or leave \"servers\" out");
    }
    servers.value.0.into_iter().map(|server| server_of(server, report)).collect()
}

fn server_of(server: At<RawServer>, report: &mut Report<'_>) -> ServerSetup {
    let At { value: RawServer(raw), span } = server;
    let name = required(raw.name, "this server has no name; add name = \"one\"", &span, report);
    let max_connections = raw.max_connections.and_then(|most| match u32::try_from(most.value) {
        Ok(fits) if fits > 0 => Some(fits),
        _ => {
            report.error(&most.span, "max_connections must lie between 1 and 4294967295");
            None
        }
    });
    ServerSetup {
        cores: raw.cores.map(|cores| cores.value),
        weight: raw.weight.map_or(1.0, |weight| weight.value),
        max_connections,
        ..ServerSetup::new(name)
    }
}

fn class_of(class: At<RawClass>, report: &mut Report<'_>) -> ClassSetup {
    let At { value: raw, span } = class;
    let name = required(raw.name, "this class has no name; add name = \"gold\"", &span, report);
    let min_rate = raw.min_rate.map_or(0.0, |rate| rate.value.0);
    ClassSetup {
        name,
        revenue: raw.revenue.map_or(1.0, |revenue| revenue.value),
        min_rate,
        burst: raw.burst.map_or((min_rate * 0.1).max(1.0), |burst| burst.value),
    }
}

fn required(name: Option<At<String>>, problem: &str, span: &std::ops::Range<usize>, report: &mut Report<'_>) -> String {
    name.map_or_else(
        || {
            report.error(span, problem);
            String::new()
        },
        |name| name.value,
    )
}

fn unique<'n>(
    what: &str,
    names: impl Iterator<Item = &'n String>,
    span: &std::ops::Range<usize>,
    report: &mut Report<'_>,
) {
    let mut seen = std::collections::HashSet::new();
    for name in names.filter(|name| !name.is_empty()) {
        if !seen.insert(name) {
            report.error(span, format!("{what} \"{name}\" is there twice; give each {what} a name of its own"));
        }
    }
}

fn when_all_down(given: &At<String>, report: &mut Report<'_>) -> WhenAllDown {
    match given.value.as_str() {
        "try" => WhenAllDown::Try,
        "refuse" => WhenAllDown::Refuse,
        other => {
            report.error(&given.span, format!("when_all_down = \"{other}\" is unknown; write \"try\" or \"refuse\""));
            WhenAllDown::Try
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn problems(text: &str) -> String {
        read(text).expect_err(text).to_string()
    }

    #[test]
    fn nothing_is_required_and_the_target_is_enough() {
        let setup = read("").expect("nothing");
        assert_eq!((setup.servers.len(), setup.classes.len(), setup.admission.name()), (1, 1, "waiting"));
        assert_eq!(read("target = \"100ms\"").expect("a target").sla.target(0.0), Duration::from_millis(100));
    }

    #[test]
    fn everything_that_can_be_said_is_understood() {
        let text = "name = \"shop\"\nsla = { statistic = \"p99\", target = \"2s\" }\nshadow = true\n\
            admission = { policy = \"concurrency\" }\ndispatch = \"p2c\"\ndefault_cost = \"20ms\"\n\
            servers = [\"one\", { name = \"two\", cores = 4.0, weight = 2.0, max_connections = 64 }]\n\
            when_all_down = \"refuse\"\nrequest_types = [\"page\", \"report\"]\n\
            [[class]]\nname = \"gold\"\nrevenue = 10.0\nmin_rate = \"50/s\"\n[[class]]\nname = \"rest\"\n";
        let setup = read(text).expect("sound");
        assert_eq!((setup.admission.name(), setup.dispatch.name(), setup.shadow), ("concurrency", "p2c", true));
        assert_eq!((setup.servers[1].cores, setup.servers[1].max_connections), (Some(4.0), Some(64)));
        assert_eq!((setup.classes[0].min_rate, setup.classes[0].burst, setup.classes[1].burst), (50.0, 5.0, 1.0));
        assert_eq!(setup.when_all_down, WhenAllDown::Refuse);
        assert_eq!(setup.request_types, ["page", "report"]);
    }

    #[test]
    fn every_mistake_is_told_at_once_with_its_line_and_what_to_write() {
        let text = "targte = \"100ms\"\nadmission = \"wating\"\ndispatch = { policy = \"jsq\", x = 1 }\n\
            when_all_down = \"pray\"\nservers = [{ cores = 1.0 }]\n[[class]]\nmin_rate = \"many\"\n";
        let told = problems(text);
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), 7, "{told}");
        assert_eq!(lines[0], "configuration:1: unknown key \"targte\" at the top level; did you mean \"target\"?");
        assert_eq!(lines[1], "configuration:2: unknown admission policy \"wating\"; did you mean \"waiting\"?");
        assert!(lines[2].starts_with("configuration:3: unknown key \"x\" in dispatch policy \"jsq\""), "{told}");
        assert!(lines[3].starts_with("configuration:4: ") && lines[4].contains("add name = "), "{told}");
        assert!(lines[5].starts_with("configuration:6: ") && lines[6].contains("\"20/s\""), "{told}");
    }

    #[test]
    fn what_is_no_toml_or_makes_no_sense_is_told() {
        assert!(problems("target = ").starts_with("configuration:1: this is not TOML: "));
        assert!(problems("target = \"0s\"").contains("target is zero"));
        assert!(problems("servers = []").contains("no server"));
        assert!(problems("servers = [\"a\", \"a\"]").contains("\"a\" is there twice"));
        assert!(problems("[[class]]\nname = \"a\"\n[[class]]\nname = \"a\"").contains("\"a\" is there twice"));
        assert!(problems("request_types = [\"a\", \"a\"]").contains("\"a\" is there twice"));
        assert!(problems("request_types = []").contains("0 request types"));
        assert!(problems("[[class]]\nname = \"a\"\nburst = 0.5").contains("burst = 0.5 is out of range"));
    }

    #[test]
    fn the_page_shows_every_key_and_a_configuration_that_is_sound() {
        let page = include_str!("../../../docs/embedding.md");
        for section in [RawApplication::SECTION, RawServerTable::SECTION, RawClass::SECTION] {
            for key in section.keys {
                assert!(page.contains(key.name()), "{} is not in docs/embedding.md", key.name());
            }
        }
        let shown = page.split_once("```toml\n").and_then(|(_, rest)| rest.split_once("```")).expect("a block").0;
        assert_eq!(read(shown).expect(shown).classes.len(), 2);
    }

    #[test]
    fn policies_that_need_a_sentry_are_refused() {
        for name in AdmissionConfig::NAMES {
            let policy = AdmissionConfig::from_name(name).expect("a name of the table");
            let demands = policy.demands();
            let needs_more = demands.signals || demands.connections.is_some() || demands.kinds;
            let read = read(&format!("admission = \"{name}\""));
            assert_eq!(read.is_err(), needs_more, "{name}");
        }
        assert!(problems("admission = \"resource\"").contains("only a sentry has"));
        assert!(problems("dispatch = \"softscale\"").contains("only a sentry has"));
    }
}
