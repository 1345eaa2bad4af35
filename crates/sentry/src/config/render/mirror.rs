//! The mirror as TOML.

use toml::Table;

use super::super::Mirror;
use super::{put, time, whole};

pub(super) fn mirror(given: &Mirror) -> Table {
    let mut out = Table::new();
    put(&mut out, "to", given.to.clone());
    put(&mut out, "share", given.share);
    put(&mut out, "body", whole(given.body));
    put(&mut out, "in_flight", whole(given.in_flight));
    put(&mut out, "timeout", time(given.timeout));
    out
}
