//! Policies in a file: a name, or a table with `policy` and that policy's own keys.
//!
//! Which keys there are is the engine's to say: its configuration types are read by serde. Its messages about unknown
//! keys and variants are put into our words, with the line.

use std::ops::Range;

use serde::de::DeserializeOwned;
use tidegate_engine::{AdmissionConfig, DispatchConfig, PartitionConfig};
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::{Report, Value, suggestion, unknown_field, wrong};

/// A family of policies, as the value of a key.
#[derive(Clone, Copy, Debug)]
pub struct Policies<'k, T> {
    key: &'k str,
    names: &'static [&'static str],
    from_name: fn(&str) -> Option<T>,
}

impl<'k> Policies<'k, AdmissionConfig> {
    /// Admission policies.
    pub const fn admission(key: &'k str) -> Self {
        Policies { key, names: AdmissionConfig::NAMES, from_name: AdmissionConfig::from_name }
    }
}

impl<'k> Policies<'k, DispatchConfig> {
    /// Dispatch policies.
    pub const fn dispatch(key: &'k str) -> Self {
        Policies { key, names: DispatchConfig::NAMES, from_name: DispatchConfig::from_name }
    }
}

impl<'k> Policies<'k, PartitionConfig> {
    /// Partition policies.
    pub const fn partition(key: &'k str) -> Self {
        Policies { key, names: PartitionConfig::NAMES, from_name: PartitionConfig::from_name }
    }
}

impl<T: DeserializeOwned> Policies<'_, T> {
    /// Reads a policy with its settings; every mistake goes to `report`.
    pub fn read(&self, value: &Value<'_>, report: &mut Report<'_>) -> Option<T> {
        match value.get_ref() {
            DeValue::String(name) => self.named(name, &value.span(), report),
            DeValue::Table(table) => self.table(value, table, report),
            _ => wrong(value, self.key, "a policy's name, or a table with \"policy\" and its settings", report),
        }
    }

    /// The policy of that name with its default settings; an unknown name goes to `report`.
    pub fn named(&self, name: &str, span: &Range<usize>, report: &mut Report<'_>) -> Option<T> {
        let policy = (self.from_name)(name);
        if policy.is_none() {
            let hint = suggestion(name, self.names);
            report.error(span, format!("unknown {} policy \"{name}\"{hint}", self.key));
        }
        policy
    }

    fn table(&self, value: &Value<'_>, table: &DeTable<'_>, report: &mut Report<'_>) -> Option<T> {
        let Some(policy) = table.get("policy") else {
            let names = self.names.join(", ");
            report.error(
                &value.span(),
                format!("\"{}\" does not say which policy; add policy = one of {names}", self.key),
            );
            return None;
        };
        let Some(name) = policy.get_ref().as_str() else {
            return wrong(policy, "policy", "a policy's name", report);
        };
        self.named(name, &policy.span(), report)?;
        self.settings(value, name, report)
    }

    /// Reads a policy's settings; after an unknown key, reads again without it, to find them all.
    fn settings(&self, value: &Value<'_>, name: &str, report: &mut Report<'_>) -> Option<T> {
        let mut rest = value.clone();
        let mut whole = true;
        loop {
            let error = match T::deserialize(ValueDeserializer::from(rest.clone())) {
                Ok(read) => return whole.then_some(read),
                Err(error) => error,
            };
            let unknown = unknown_field(error.message());
            let place = unknown.as_ref().and_then(|(field, _)| remove(rest.get_mut(), field));
            match (unknown, place) {
                (Some((field, known)), Some(span)) => {
                    let hint = suggestion(field, &known);
                    report.error(&span, format!("unknown key \"{field}\" in {} policy \"{name}\"{hint}", self.key));
                    whole = false;
                }
                _ => {
                    report.error(
                        &self.blame(value, &rest),
                        format!("{} policy \"{name}\": {}", self.key, error.message()),
                    );
                    return None;
                }
            }
        }
    }

    /// The setting that cannot be read: the first that alone, beside the name, cannot. serde does not say.
    fn blame(&self, whole: &Value<'_>, rest: &Value<'_>) -> Range<usize> {
        let Some(table) = rest.get_ref().as_table() else { return whole.span() };
        let alone = |key: &str| {
            let mut copy = rest.clone();
            if let DeValue::Table(table) = copy.get_mut() {
                keys(table).iter().filter(|other| *other != "policy" && *other != key).for_each(|other| {
                    table.remove(other.as_str());
                });
            }
            T::deserialize(ValueDeserializer::from(copy)).is_err()
        };
        let guilty = table.iter().find(|(key, _)| key.get_ref() != "policy" && alone(key.get_ref()));
        guilty.map_or(whole.span(), |(_, value)| value.span())
    }
}

/// Removes the first key of that name, here or in a table below; says where it stood.
fn remove(value: &mut DeValue<'_>, field: &str) -> Option<Range<usize>> {
    let DeValue::Table(table) = value else { return None };
    let here = table.iter().find(|(key, _)| key.get_ref() == field).map(|(key, _)| key.span());
    if here.is_some() {
        table.remove(field);
        return here;
    }
    keys(table).iter().find_map(|key| table.get_mut(key.as_str()).and_then(|below| remove(below.get_mut(), field)))
}

fn keys(table: &DeTable<'_>) -> Vec<String> {
    table.keys().map(|key| key.get_ref().to_string()).collect()
}
