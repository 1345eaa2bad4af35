//! docs/policies.md is made from the policy tables: from each policy's essay, its settings and their defaults.
//!
//! After a change there, `cargo xtask docs --bless` (or this test with `TIDEGATE_BLESS=1`) writes the page again.

mod source;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use source::Setting;
use tidegate_engine::seda::{Parameters, QualityParameters};
use tidegate_engine::{AdmissionConfig, DispatchConfig, PartitionConfig};

/// A table of policies.
struct Family {
    title: &'static str,
    /// What the family decides, and how it is chosen.
    intro: &'static str,
    /// Its file, and folder, below `src`.
    module: &'static str,
    policies: &'static [(&'static str, &'static str)],
    default: String,
    /// A policy with its default settings, as JSON.
    settings: fn(&str) -> Value,
}

fn families() -> [Family; 3] {
    [
        Family {
            title: "Admission",
            intro: "Who gets in: `admission = \"NAME\"`, or `admission = { policy = \"NAME\", ... }` with settings, in \
                    `[[application]]`.",
            module: "admission",
            policies: AdmissionConfig::DESCRIPTIONS,
            default: AdmissionConfig::default().name().to_owned(),
            settings: |name| serde_json::to_value(AdmissionConfig::from_name(name)).expect("JSON"),
        },
        Family {
            title: "Dispatch",
            intro: "Which server gets an admitted request: `dispatch`, likewise.",
            module: "dispatch",
            policies: DispatchConfig::DESCRIPTIONS,
            default: DispatchConfig::default().name().to_owned(),
            settings: |name| serde_json::to_value(DispatchConfig::from_name(name)).expect("JSON"),
        },
        Family {
            title: "Partition",
            intro: "Which servers a class may use: `partition`, likewise.",
            module: "partition",
            policies: PartitionConfig::DESCRIPTIONS,
            default: PartitionConfig::default().name().to_owned(),
            settings: |name| serde_json::to_value(PartitionConfig::from_name(name)).expect("JSON"),
        },
    ]
}

#[test]
fn the_page_of_policies_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies.md");
    let wanted = page();
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    if page == wanted {
        return;
    }
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        return std::fs::write(&path, wanted).expect("the page is ours");
    }
    let stale = wanted.lines().filter(|line| !page.contains(line)).collect::<Vec<_>>().join("\n");
    panic!("docs/policies.md is behind the tables; run `cargo xtask docs --bless`. Missing there:\n{stale}");
}

/// Settings that are tables: their type, and the file below `src` that declares it.
const TABLES: &[(&str, &str)] = &[
    ("Parameters", "seda/parameters.rs"),
    ("QualityParameters", "seda/parameters.rs"),
    ("ProfileStep", "dispatch/softscale/profile.rs"),
    ("Resource", "admission/resource/config.rs"),
    ("Tuning", "admission/resource/config.rs"),
];

/// Whoever reads the page finds every setting there is, and what it means.
#[test]
fn every_setting_of_every_policy_has_its_words() {
    for family in families() {
        for (name, _) in family.policies {
            let settings = settings(&family, name);
            let written: Vec<&str> = settings.iter().map(|setting| setting.name.as_str()).collect();
            let json = (family.settings)(name);
            let known = json.as_object().expect("a table").keys().filter(|key| *key != "policy");
            for key in known {
                assert!(written.contains(&key.as_str()), "{name}: the setting {key} was not found in the source");
            }
            for setting in &settings {
                assert!(!setting.doc.is_empty(), "{name}: {} has no words", setting.name);
                // A table whose keys nobody would find.
                let shown = inner(setting).is_some() || setting.kind.starts_with("BTreeMap<");
                assert!(!json[&setting.name].is_object() || shown, "{name}: enter {} in TABLES", setting.kind);
            }
        }
    }
}

#[test]
fn a_setting_is_read_from_the_source() {
    let text = [
        "//! Says no.\n//!\n//! *Source.* [`Us`](crate::us).\n",
        "/// S.\n#[derive(Debug)]\npub struct Config {\n    /// How often,\n    /// at most.\n    #[serde(x)]",
        "    pub often: Seconds,\n    pub bare: batch::Config,\n}\n",
    ]
    .join("\n");
    let text = text.as_str();
    let found = source::settings(text, "Config");
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].name.as_str(), found[0].doc.as_str()), ("often", "How often, at most."));
    assert_eq!((found[1].doc.as_str(), found[1].kind.as_str()), ("", "batch::Config"));
    assert_eq!(source::essay(text), "Says no.\n\n*Source.* `Us`.\n");
}

fn page() -> String {
    let mut out = String::from(
        "# Policies\n\n<!-- generated from the tables of the engine: cargo xtask docs --bless -->\n\n\
         Every policy that there is, as its source describes itself. The same ones run in the sentry and in the \
         simulator\n(`--policy NAME`, `policies = [...]` in [scenarios](scenarios.md)). How they compare: \
         [baselines](baselines.md), \
         [experiments](experiments.md).\nHow to add one: [CONTRIBUTING](../CONTRIBUTING.md#add-a-policy).\n",
    );
    for family in families() {
        write!(out, "\n## {}\n\n{}\n\n| policy | what it does |\n|---|---|\n", family.title, family.intro)
            .expect("memory");
        for (name, what) in family.policies {
            let default = if *name == family.default { " (default)" } else { "" };
            let anchor = format!("{}-{name}", family.title.to_lowercase());
            writeln!(out, "| [`{name}`](#{anchor}){default} | {} |", what.trim()).expect("memory");
        }
        for (name, _) in family.policies {
            policy(&mut out, &family, name);
        }
    }
    out
}

fn policy(out: &mut String, family: &Family, name: &str) {
    let text = std::fs::read_to_string(file(family, name)).expect("the policy's file");
    write!(out, "\n### {} `{name}`\n\n{}", family.title, source::essay(&text)).expect("memory");
    let settings = settings(family, name);
    if settings.is_empty() {
        out.push_str("\nNo settings.\n");
        return;
    }
    table(out, "", &settings, &(family.settings)(name));
}

/// The settings of a table, then those of tables within it. `path` is what stands before a key.
fn table(out: &mut String, path: &str, settings: &[Setting], defaults: &Value) {
    out.push_str("\n| setting | default | meaning |\n|---|---|---|\n");
    for setting in settings {
        let default = match inner(setting) {
            Some(Inner::Policy(name)) => format!("[as there](#admission-{name})"),
            Some(Inner::Table(_)) if defaults.get(&setting.name).is_some_and(Value::is_object) => {
                "see below".to_owned()
            }
            _ => match defaults.get(&setting.name) {
                Some(given) => source::default_of(given),
                None if setting.kind.starts_with("Option<") => "none".to_owned(),
                None => "**required**".to_owned(),
            },
        };
        writeln!(out, "| `{path}{}` | {default} | {} |", setting.name, setting.doc).expect("memory");
    }
    for setting in settings {
        if let Some(Inner::Table((name, file))) = inner(setting) {
            let text = std::fs::read_to_string(source_file(file)).expect("the file of the settings");
            let given = defaults.get(&setting.name).filter(|given| given.is_object());
            let within = given.cloned().unwrap_or_else(|| defaults_of(name));
            table(out, &format!("{path}{}.", setting.name), &source::settings(&text, name), &within);
        }
    }
}

/// The defaults of a table within settings; a key without one must be given.
fn defaults_of(table: &str) -> Value {
    let json = match table {
        "Parameters" => serde_json::to_value(Parameters::default()),
        "QualityParameters" => serde_json::to_value(QualityParameters::default()),
        "Resource" => Ok(serde_json::json!({ "control": {} })),
        _ => Ok(Value::Object(serde_json::Map::default())),
    };
    json.expect("JSON")
}

/// What is within a setting.
enum Inner {
    /// The settings of another policy.
    Policy(String),
    /// A row of [`TABLES`].
    Table((&'static str, &'static str)),
}

fn inner(setting: &Setting) -> Option<Inner> {
    if let Some(module) = setting.kind.strip_suffix("::Config") {
        return Some(Inner::Policy(module.to_owned()));
    }
    let bare = setting.kind.trim_start_matches("Option<").trim_start_matches("Vec<").trim_end_matches('>');
    TABLES.iter().find(|(name, _)| *name == bare).map(|row| Inner::Table(*row))
}

fn source_file(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(below)
}

/// The settings of a policy, with those of tables within.
fn settings(family: &Family, name: &str) -> Vec<Setting> {
    let path = file(family, name);
    let text = std::fs::read_to_string(&path).expect("the policy's file");
    let module = path.file_stem().expect("a file").to_string_lossy().into_owned();
    let own = source::settings(&text, "Config");
    if !own.is_empty() || text.contains("pub struct Config") {
        return own;
    }
    // Settings that have a file of their own: `pub use profile::{Profile as Config, ...}`, `pub use config::Config`.
    let (inner, name) = if text.contains("Profile as Config") { ("profile", "Profile") } else { ("config", "Config") };
    let inner = path.with_file_name(module).join(inner).with_extension("rs");
    source::settings(&std::fs::read_to_string(inner).expect("the file of the settings"), name)
}

/// The file of a policy, by the entry in its table.
fn file(family: &Family, name: &str) -> PathBuf {
    let src = source_file("");
    let table = std::fs::read_to_string(src.join(family.module).with_extension("rs")).expect("the family's file");
    let entry = format!("(\"{name}\") => ");
    let (_, rest) = table.split_once(&entry).expect("an entry");
    let module = rest.split(',').next().expect("a module");
    src.join(family.module).join(module).with_extension("rs")
}
