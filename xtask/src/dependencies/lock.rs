//! Cargo.lock: every crate with where it comes from and its hash.

use std::fs;

use anyhow::{Context, Result};
use toml::{Table, Value};

/// One crate of Cargo.lock.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Locked {
    pub name: String,
    pub version: String,
    /// None for the workspace's own, and for a folder of this machine.
    pub source: Option<String>,
    /// SHA-256 of the crate's file, in hexadecimal digits; a registry's crates have one.
    pub checksum: Option<String>,
}

/// Reads the checkout's.
///
/// # Errors
/// When it is not there or not a lock file.
pub fn read() -> Result<Vec<Locked>> {
    parse(&fs::read_to_string("Cargo.lock").context("cannot read Cargo.lock")?)
}

/// Reads a lock file's text.
///
/// # Errors
/// When it is not one.
pub fn parse(text: &str) -> Result<Vec<Locked>> {
    let table: Table = text.parse().context("Cargo.lock is no TOML")?;
    let packages = table.get("package").and_then(Value::as_array).context("Cargo.lock lists no packages")?;
    let read = packages.iter().map(|package| {
        let field = |name: &str| package.get(name).and_then(Value::as_str).map(str::to_owned);
        Ok(Locked {
            name: field("name").context("a package of Cargo.lock without a name")?,
            version: field("version").context("a package of Cargo.lock without a version")?,
            source: field("source"),
            checksum: field("checksum"),
        })
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_versions_sources_and_hashes_are_read() {
        let text = "version = 4\n[[package]]\nname = \"a\"\nversion = \"1.2.3\"\nsource = \"registry+r\"\n\
            checksum = \"ab\"\n[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\ndependencies = [\"a\"]\n";
        let locked = parse(text).unwrap();
        assert_eq!(locked[0].source.as_deref(), Some("registry+r"));
        assert_eq!(locked[0].checksum.as_deref(), Some("ab"));
        assert_eq!(locked[1], Locked { name: "ours".into(), version: "0.1.0".into(), source: None, checksum: None });
        assert!(parse("version = 4\n").is_err());
        assert!(parse("[[package]]\nname = \"a\"\n").is_err());
    }
}
