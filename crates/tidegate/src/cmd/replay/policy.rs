//! Policies as the command line names them.

use std::str::FromStr;

use serde::Deserialize;
use tidegate_engine::AdmissionConfig;

/// A policy to compare.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Its name in the report: what was typed.
    pub label: String,
    /// What the engine is told.
    pub config: AdmissionConfig,
}

impl Policy {
    /// Every policy that the engine knows, with its default settings.
    pub fn all() -> Vec<Policy> {
        let known = |name: &&str| Some(Policy { label: (*name).to_owned(), config: AdmissionConfig::from_name(name)? });
        AdmissionConfig::NAMES.iter().filter_map(known).collect()
    }
}

impl FromStr for Policy {
    type Err = String;

    /// Reads `NAME`, `NAME:{ key = value }` or `{ policy = "NAME", key = value }`.
    fn from_str(text: &str) -> Result<Policy, String> {
        let text = text.trim();
        let (name, settings) = match text.split_once(':') {
            _ if text.starts_with('{') => ("", text),
            Some((name, settings)) => (name.trim(), settings.trim()),
            None => (text, "{}"),
        };
        let known = format!("the policies are {}", AdmissionConfig::NAMES.join(", "));
        if !name.is_empty() && AdmissionConfig::from_name(name).is_none() {
            return Err(format!("there is no policy \"{name}\"; {known}"));
        }
        let mut table = inline_table(settings).map_err(|problem| format!("{settings}: {problem}"))?;
        if !name.is_empty() {
            table.insert("policy".to_owned(), toml::Value::String(name.to_owned()));
        }
        if !table.contains_key("policy") {
            return Err(format!("{text}: add policy = \"NAME\"; {known}"));
        }
        let config = AdmissionConfig::deserialize(table).map_err(|error| error.message().trim().to_owned())?;
        config.check().map_err(|error| error.to_string())?;
        Ok(Policy { label: text.to_owned(), config })
    }
}

/// Reads `{ key = value }`.
pub fn inline_table(text: &str) -> Result<toml::Table, String> {
    let mut outer: toml::Table = toml::from_str(&format!("it = {text}")).map_err(|e| e.message().trim().to_owned())?;
    match outer.remove("it") {
        Some(toml::Value::Table(table)) if outer.is_empty() => Ok(table),
        _ => Err("is no table; write { key = value }".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_settings_and_tables() {
        assert_eq!("sentry".parse::<Policy>().unwrap().config, AdmissionConfig::from_name("sentry").unwrap());
        let typed = "concurrency:{ limit = 7 }".parse::<Policy>();
        let table = "{ policy = \"concurrency\", limit = 7 }".parse::<Policy>();
        assert_eq!(typed.unwrap().config, table.unwrap().config);
        assert_eq!(Policy::all().len(), AdmissionConfig::NAMES.len());
    }

    #[test]
    fn errors_say_what_is_known() {
        for (text, part) in [
            ("magic", "there is no policy \"magic\"; the policies are none,"),
            ("batch:{ ordre = \"fifo\" }", "ordre"),
            ("batch:7", "is no table"),
            ("{ fifo = true }", "add policy = \"NAME\""),
            ("concurrency:{ limit = }", "{ limit = }: "),
        ] {
            let said = text.parse::<Policy>().unwrap_err();
            assert!(said.contains(part), "{text}: {said}");
        }
    }
}
