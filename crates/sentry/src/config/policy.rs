//! Policies in the file.

use tidegate_config::{At, Kind, Policies, Read, Report, Value, wrong};
use tidegate_engine::{AdmissionConfig, DispatchConfig, PartitionConfig};

/// An admission policy with its settings.
#[derive(Clone, Debug)]
pub(super) struct AdmissionChoice(pub(super) AdmissionConfig);

/// A dispatch policy with its settings.
#[derive(Clone, Debug)]
pub(super) struct DispatchChoice {
    pub(super) config: DispatchConfig,
    /// A file that holds the settings, in place of them.
    pub(super) profile: Option<At<String>>,
}

/// A partition policy with its settings.
#[derive(Clone, Debug)]
pub(super) struct PartitionChoice(pub(super) PartitionConfig);

impl AdmissionChoice {
    /// The policy of that name with its default settings; an unknown name is reported.
    pub(super) fn from_name(name: &str, report: &mut Report<'_>) -> Option<Self> {
        Policies::admission("admission").named(name, &(0..0), report).map(AdmissionChoice)
    }
}

impl Read for AdmissionChoice {
    const KIND: Kind = Kind::Value("policy");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        Policies::admission(key).read(value, report).map(AdmissionChoice)
    }
}

impl Read for DispatchChoice {
    const KIND: Kind = Kind::Value("policy");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let Some(profile) = profile(value) else {
            return Policies::dispatch(key).read(value, report).map(|config| DispatchChoice { config, profile: None });
        };
        let alone = value.get_ref().as_table().is_some_and(|table| table.len() == 2);
        let Some(file) = profile.get_ref().as_str().filter(|_| alone) else {
            return wrong(profile, "profile", "a file, and no other setting beside it", report);
        };
        let file = At { value: file.to_owned(), span: profile.span() };
        let config = DispatchConfig::from_name(table_policy(value)?)?;
        Some(DispatchChoice { config, profile: Some(file) })
    }
}

impl Read for PartitionChoice {
    const KIND: Kind = Kind::Value("policy");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        Policies::partition(key).read(value, report).map(PartitionChoice)
    }
}

/// Where a file with the settings is named, by a policy that is measured beforehand: one that lends data servers.
fn profile<'v, 'i>(value: &'v Value<'i>) -> Option<&'v Value<'i>> {
    let config = DispatchConfig::from_name(table_policy(value)?)?;
    value.get_ref().as_table()?.get("profile").filter(|_| config.demands().lenders)
}

/// The policy that a table names.
fn table_policy<'v>(value: &'v Value<'_>) -> Option<&'v str> {
    value.get_ref().as_table()?.get("policy")?.get_ref().as_str()
}
