//! Which configuration of a sentry a policy means. Pure.

use std::path::Path;

use serde_json::Value as Json;
use tidegate_sentry::Config;
use toml::{Table, Value};

use crate::parts::{ADMIN, HTTP, PEERS, SECRETS, peers_name};
use crate::policy::{Class, OverloadPolicy, Pair, Rule, Spec};

/// What errors call the text.
const FILE: &str = "tidegate.toml";
/// Keys of `[[application]]` that the policy has fields for, or that follow from where the sentries stand.
const OURS: [&str; 8] = ["name", "listen", "servers", "target", "sla", "shadow", "class", "profile"];

/// The configuration of a policy's sentries, checked as `tidegate check` does it. The secrets need not be there.
///
/// # Errors
/// Every mistake, a line each.
pub fn configuration(policy: &OverloadPolicy) -> Result<String, String> {
    let application = application(policy.name(), &policy.spec)?;
    let mut document = document(policy.name(), application);
    let text = toml::to_string(&document).map_err(|error| error.to_string())?;
    // The secrets are where the sentries are, and not here.
    document.remove("peers");
    document["admin"] = Table::new().into();
    let checked = toml::to_string(&document).map_err(|error| error.to_string())?;
    match Config::parse(&checked, Path::new(FILE)) {
        Ok(_) => Ok(text),
        Err(errors) => Err(errors.to_string()),
    }
}

fn document(name: &str, application: Table) -> Table {
    let mut admin = Table::new();
    admin.insert("listen".into(), format!(":{ADMIN}").into());
    admin.insert("token_file".into(), format!("{SECRETS}/admin.token").into());
    let mut peers = Table::new();
    peers.insert("listen".into(), format!(":{PEERS}").into());
    peers.insert("sentries".into(), format!("{}:{PEERS}", peers_name(name)).into());
    peers.insert("key_file".into(), format!("{SECRETS}/peers.key").into());
    let mut document = Table::new();
    document.insert("admin".into(), admin.into());
    document.insert("peers".into(), peers.into());
    document.insert("application".into(), vec![Value::Table(application)].into());
    document
}

fn application(name: &str, spec: &Spec) -> Result<Table, String> {
    let mut table = Table::new();
    for (key, value) in &spec.settings {
        if OURS.contains(&key.as_str()) {
            return Err(format!("settings.{key}: the policy says that in fields of its own; take it out of settings"));
        }
        table.insert(key.clone(), toml_of(value).map_err(|why| format!("settings.{key}: {why}"))?);
    }
    table.insert("name".into(), name.into());
    table.insert("listen".into(), format!(":{HTTP}").into());
    let port = spec.target_ref.section_name.as_ref().map_or_else(String::new, |port| format!(":{port}"));
    table.insert("servers".into(), format!("kubernetes:{}{port}", spec.target_ref.name).into());
    let mut sla = Table::new();
    put(&mut sla, "target", spec.target.clone());
    put(&mut sla, "statistic", spec.statistic.clone());
    if !sla.is_empty() {
        table.insert("sla".into(), sla.into());
    }
    table.insert("shadow".into(), spec.shadow.into());
    if !spec.classes.is_empty() {
        table.insert("class".into(), list(&spec.classes, class));
    }
    Ok(table)
}

fn class(class: &Class) -> Table {
    let mut table = Table::new();
    table.insert("name".into(), class.name.clone().into());
    put(&mut table, "min_rate", class.min_rate.clone());
    put(&mut table, "revenue", class.revenue);
    if !class.rules.is_empty() {
        table.insert("match".into(), list(&class.rules, rule));
    }
    table
}

fn rule(rule: &Rule) -> Table {
    let mut table = Table::new();
    let lists = [("method", &rule.method), ("host", &rule.host), ("network", &rule.network)];
    for (key, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        table.insert(key.into(), list.clone().into());
    }
    put(&mut table, "path", rule.path.clone());
    put(&mut table, "path_prefix", rule.path_prefix.clone());
    put(&mut table, "path_glob", rule.path_glob.clone());
    for (key, pairs) in [("header", &rule.header), ("cookie", &rule.cookie)] {
        if !pairs.is_empty() {
            table.insert(key.into(), list(pairs, pair));
        }
    }
    table
}

fn pair(pair: &Pair) -> Table {
    let mut table = Table::new();
    table.insert("name".into(), pair.name.clone().into());
    put(&mut table, "value", pair.value.clone());
    table
}

fn put(table: &mut Table, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        table.insert(key.into(), value.into());
    }
}

fn list<T>(all: &[T], one: impl Fn(&T) -> Table) -> Value {
    Value::Array(all.iter().map(|item| Value::Table(one(item))).collect())
}

fn toml_of(value: &Json) -> Result<Value, String> {
    match value {
        Json::Null => Err(String::from("null says nothing; leave the key out")),
        Json::Bool(is) => Ok((*is).into()),
        Json::String(text) => Ok(text.clone().into()),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Ok(whole.into()),
            (None, Some(real)) => Ok(real.into()),
            (None, None) => Err(format!("{number} is too large")),
        },
        Json::Array(all) => all.iter().map(toml_of).collect::<Result<Vec<_>, _>>().map(Value::Array),
        Json::Object(all) => {
            let pair = |(key, value): (&String, &Json)| Ok((key.clone(), toml_of(value)?));
            all.iter().map(pair).collect::<Result<Table, String>>().map(Value::Table)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(spec: Json) -> OverloadPolicy {
        serde_json::from_value(json!({ "metadata": { "name": "shop" }, "spec": spec })).expect("a policy")
    }

    fn with(more: Json) -> OverloadPolicy {
        let mut spec = json!({ "targetRef": { "kind": "Service", "name": "shop", "sectionName": "http" } });
        spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        policy(spec)
    }

    #[test]
    fn a_policy_means_what_a_person_would_have_written() {
        let policy = with(json!({
            "target": "300ms", "statistic": "p99", "shadow": true,
            "classes": [
                { "name": "gold", "minRate": "20/s", "revenue": 2.5, "match": [
                    { "pathPrefix": "/checkout", "method": ["POST"] },
                    { "cookie": [{ "name": "tier", "value": "gold" }], "header": [{ "name": "x-api" }] },
                ] },
                { "name": "rest" },
            ],
            "settings": { "dispatch": "p2c", "timeouts": { "connect": "1s" }, "tenants": { "header": "x-key" } },
        }));
        let text = configuration(&policy).expect("it makes sense");
        for line in [
            "listen = \":9900\"",
            "sentries = \"shop-sentry-peers:9903\"",
            "servers = \"kubernetes:shop:http\"",
            "target = \"300ms\"",
            "statistic = \"p99\"",
            "shadow = true",
            "min_rate = \"20/s\"",
            "path_prefix = \"/checkout\"",
            "dispatch = \"p2c\"",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        let least = configuration(&policy_without_port()).expect("nothing else is needed");
        assert!(least.contains("servers = \"kubernetes:shop\"\n"), "{least}");
    }

    fn policy_without_port() -> OverloadPolicy {
        policy(json!({ "targetRef": { "kind": "Service", "name": "shop" } }))
    }

    #[test]
    fn every_mistake_is_said_at_once() {
        let wrong = with(json!({
            "target": "soon",
            "classes": [{ "name": "gold" }, { "name": "rest", "minRate": "many" }],
            "settings": { "dispach": "p2c" },
        }));
        let said = configuration(&wrong).expect_err("it makes none");
        for part in ["soon", "many", "dispach", "gold"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn settings_add_and_do_not_contradict() {
        for (key, value) in [("listen", json!(":80")), ("class", json!([])), ("target", json!("1s"))] {
            let said = configuration(&with(json!({ "settings": { key: value } }))).expect_err(key);
            assert!(said.contains("fields of its own"), "{said}");
        }
        let said = configuration(&with(json!({ "settings": { "limits": { "headers": null } } }))).expect_err("null");
        assert!(said.starts_with("settings.limits: null says nothing"), "{said}");
    }
}
