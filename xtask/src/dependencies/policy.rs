//! What `deny.toml` asks of the crates that are used, as far as it can be told without a network.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use toml::{Table, Value};

use super::licence::suffices;
use super::lock::Locked;

/// A crate whose manifest was read.
#[derive(Debug, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// What its manifest says of licences, if anything.
    pub licence: Option<String>,
}

impl Package {
    /// Whether this is the crate of Cargo.lock.
    pub fn is(&self, locked: &Locked) -> bool {
        self.name == locked.name && self.version == locked.version
    }
}

/// The parts of the file that are read here.
#[derive(Debug)]
pub struct Policy {
    /// Licences that any crate may have.
    licences: Vec<String>,
    /// Licences of single crates: name, licences.
    exceptions: Vec<(String, Vec<String>)>,
    /// Crates that may be there beside another version: name, version.
    doubles: Vec<(String, String)>,
    /// Addresses of the registries that crates may come from.
    registries: Vec<String>,
}

impl Policy {
    /// Reads the file's text. An entry that excuses something must give its reason.
    ///
    /// # Errors
    /// What is missing in it.
    pub fn read(text: &str) -> Result<Self> {
        let file: Table = text.parse().context("it is no TOML")?;
        let exceptions = entries(&file, "licenses", "exceptions").iter().map(|entry| {
            let name = entry.get("crate").and_then(Value::as_str).context("an exception names no crate")?;
            Ok((name.to_owned(), strings(entry.get("allow"))))
        });
        let doubles = entries(&file, "bans", "skip").iter().map(|entry| {
            let name = entry.get("crate").and_then(Value::as_str).context("a skipped version names no crate")?;
            let (name, version) = name.split_once('@').with_context(|| format!("{name}: which version?"))?;
            let reason = entry.get("reason").and_then(Value::as_str).unwrap_or_default();
            ensure!(!reason.trim().is_empty(), "{name}@{version} is skipped without a reason");
            Ok((name.to_owned(), version.to_owned()))
        });
        Ok(Self {
            licences: strings(value(&file, "licenses", "allow")),
            exceptions: exceptions.collect::<Result<_>>()?,
            doubles: doubles.collect::<Result<_>>()?,
            registries: strings(value(&file, "sources", "allow-registry")),
        })
    }

    /// Crates that come from elsewhere, or whose hash nobody wrote down.
    pub fn sources(&self, locked: &[Locked]) -> Vec<String> {
        let finding = |one: &Locked| {
            let at = format!("{} {}", one.name, one.version);
            let Some(source) = &one.source else {
                let is_ours = one.name == "xtask" || one.name.split('-').next() == Some("tidegate");
                return (!is_ours).then(|| format!("{at} comes from a folder; take it from a registry"));
            };
            let registry = source.strip_prefix("registry+");
            if !registry.is_some_and(|address| self.registries.iter().any(|allowed| allowed == address)) {
                return Some(format!("{at} comes from {source}; take it from a registry of [sources]"));
            }
            one.checksum.is_none().then(|| format!("{at} has no hash in Cargo.lock; let cargo write the file anew"))
        };
        locked.iter().filter_map(finding).collect()
    }

    /// Crates that are there in several versions, all but one of which must be excused.
    pub fn versions(&self, locked: &[Locked]) -> Vec<String> {
        let of = versions(locked);
        let findings = of.iter().filter_map(|(name, versions)| {
            let plain: Vec<&str> = versions.iter().copied().filter(|version| !self.is_double(name, version)).collect();
            (plain.len() > 1).then(|| {
                let all = plain.join(" and ");
                format!("{name} is there as {all}; bring them together, or say in [bans] skip why not")
            })
        });
        findings.collect()
    }

    /// Crates without a licence that is allowed.
    pub fn licences(&self, packages: &[Package]) -> Vec<String> {
        let finding = |package: &Package| {
            let at = format!("{} {}", package.name, package.version);
            let Some(licence) = &package.licence else {
                return Some(format!("{at} states no licence; do without it"));
            };
            match suffices(licence, &|name| self.allows(package, name)) {
                Ok(true) => None,
                Ok(false) => {
                    Some(format!("{at} is licensed as `{licence}`; do without it, or allow that in [licenses]"))
                }
                Err(what) => Some(format!("{at} is licensed as `{licence}`, which cannot be read: {what}")),
            }
        };
        packages.iter().filter_map(finding).collect()
    }

    /// Entries that excuse nothing any more. Of licences that can be told only when all `packages` are known.
    pub fn stale(&self, locked: &[Locked], packages: Option<&Vec<Package>>) -> Vec<String> {
        let of = versions(locked);
        let is_needed = |name: &str, version: &str| {
            of.get(name).is_some_and(|versions| versions.len() > 1 && versions.contains(&version))
        };
        let doubles = self.doubles.iter().filter(|(name, version)| !is_needed(name, version));
        let mut findings: Vec<String> = doubles
            .map(|(name, version)| format!("{name}@{version} is no double; take it out of [bans] skip"))
            .collect();
        let gone = self.exceptions.iter().filter(|(name, _)| !of.contains_key(name.as_str()));
        findings.extend(gone.map(|(name, _)| format!("{name} is not used; take its exception out of [licenses]")));
        let needs = |package: &Package, without: &str| {
            let licence = package.licence.as_deref().unwrap_or_default();
            let suffices = suffices(licence, &|name| name != without && self.allows(package, name));
            suffices == Ok(false)
        };
        if let Some(packages) = packages {
            let unneeded = |name: &&String| !packages.iter().any(|package| needs(package, name));
            let unneeded = self.licences.iter().filter(unneeded);
            findings.extend(unneeded.map(|name| format!("no crate needs {name}; take it out of [licenses] allow")));
        }
        findings
    }

    fn allows(&self, package: &Package, licence: &str) -> bool {
        let own = self.exceptions.iter().filter(|(name, _)| *name == package.name).flat_map(|(_, allowed)| allowed);
        self.licences.iter().chain(own).any(|allowed| allowed == licence)
    }

    fn is_double(&self, name: &str, version: &str) -> bool {
        self.doubles.iter().any(|double| double.0 == name && double.1 == version)
    }
}

fn versions(locked: &[Locked]) -> BTreeMap<&str, Vec<&str>> {
    let mut of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in locked {
        of.entry(&one.name).or_default().push(&one.version);
    }
    of
}

fn value<'a>(file: &'a Table, table: &str, key: &str) -> Option<&'a Value> {
    file.get(table)?.get(key)
}

fn entries<'a>(file: &'a Table, table: &str, key: &str) -> &'a [Value] {
    value(file, table, key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[licenses]\nallow = ['MIT']\nexceptions = [{ crate = 'odd', allow = ['Zlib'] }]\n\
        [bans]\nskip = [{ crate = 'twice@1.0.0', reason = 'r uses it' }]\n\
        [sources]\nallow-registry = ['https://r']\n";

    fn locked(name: &str, version: &str, source: &str) -> Locked {
        let checksum = source.starts_with("registry").then(|| "ab".to_owned());
        let source = (!source.is_empty()).then(|| source.to_owned());
        Locked { name: name.to_owned(), version: version.to_owned(), source, checksum }
    }

    fn package(name: &str, licence: &str) -> Package {
        Package { name: name.to_owned(), version: "1.0.0".to_owned(), licence: Some(licence.to_owned()) }
    }

    #[test]
    fn crates_come_from_the_registry_or_are_ours() {
        let policy = Policy::read(FILE).unwrap();
        let good = [locked("a", "1.0.0", "registry+https://r"), locked("tidegate-engine", "0.1.0", "")];
        assert_eq!(policy.sources(&good), [""; 0]);
        for (bad, says) in [
            (locked("a", "1.0.0", "registry+https://elsewhere"), "elsewhere"),
            (locked("a", "1.0.0", "git+https://r"), "git+"),
            (locked("a", "1.0.0", ""), "folder"),
            (Locked { checksum: None, ..locked("a", "1.0.0", "registry+https://r") }, "no hash"),
        ] {
            let found = policy.sources(&[bad]);
            assert!(found.len() == 1 && found[0].contains(says), "{found:?}");
        }
    }

    #[test]
    fn a_second_version_needs_its_reason_and_a_reason_its_version() {
        let policy = Policy::read(FILE).unwrap();
        let one = |name: &str, version: &str| locked(name, version, "registry+https://r");
        let twice = [one("twice", "1.0.0"), one("twice", "2.0.0"), one("odd", "1.0.0")];
        assert_eq!(policy.versions(&twice), [""; 0]);
        assert_eq!(policy.stale(&twice, None), [""; 0]);
        let thrice = [one("twice", "1.0.0"), one("twice", "2.0.0"), one("twice", "3.0.0")];
        assert!(policy.versions(&thrice)[0].contains("2.0.0 and 3.0.0"));
        let once = [one("twice", "2.0.0"), one("odd", "1.0.0")];
        assert!(policy.stale(&once, None)[0].contains("no double"));
        assert!(Policy::read(&FILE.replace("r uses it", " ")).is_err());
        assert!(Policy::read(&FILE.replace("twice@1.0.0", "twice")).is_err());
    }

    #[test]
    fn licences_are_allowed_for_all_or_for_one() {
        let policy = Policy::read(FILE).unwrap();
        let good = [package("a", "MIT OR GPL-3.0-only"), package("odd", "Zlib"), package("b", "MIT")];
        assert_eq!(policy.licences(&good), [""; 0]);
        let none = Package { licence: None, ..package("a", "") };
        for (bad, says) in
            [(package("a", "Zlib"), "do without"), (package("a", "MIT AND"), "cannot be read"), (none, "no licence")]
        {
            let found = policy.licences(&[bad]);
            assert!(found.len() == 1 && found[0].contains(says), "{found:?}");
        }
    }

    #[test]
    fn an_allowance_that_nobody_needs_is_found() {
        let policy = Policy::read(FILE).unwrap();
        let double = ["1.0.0", "2.0.0"].map(|version| locked("twice", version, "registry+https://r"));
        let found = policy.stale(&double, Some(&vec![package("a", "Apache-2.0 OR MIT")]));
        assert!(found.len() == 1 && found[0].contains("odd is not used"), "{found:?}");
        let found = policy.stale(&double, Some(&vec![package("odd", "Zlib")]));
        assert!(found.iter().any(|what| what.contains("no crate needs MIT")), "{found:?}");
    }
}
