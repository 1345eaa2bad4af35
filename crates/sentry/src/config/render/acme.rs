//! Ordered certificates as TOML.

use toml::Table;

use super::super::Acme;
use super::{put, put_some};

pub(super) fn acme(given: &Acme) -> Table {
    let mut out = Table::new();
    put(&mut out, "domains", given.domains.clone());
    put_some(&mut out, "email", given.email.clone());
    put(&mut out, "directory", given.directory.clone());
    put_some(&mut out, "ca", given.ca.as_ref().map(|path| path.display().to_string()));
    put(&mut out, "cache", given.cache.display().to_string());
    put(&mut out, "challenge", given.challenge.name());
    put(&mut out, "until", given.until.name());
    out
}
