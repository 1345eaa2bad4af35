//! Handing over as TOML.

use toml::Table;

use super::super::Upgrade;
use super::{put, put_some, time};

pub(super) fn upgrade(given: &Upgrade) -> Table {
    let mut out = Table::new();
    put_some(&mut out, "socket", given.socket.as_ref().map(|path| path.display().to_string()));
    put(&mut out, "timeout", time(given.timeout));
    put(&mut out, "spread", time(given.spread));
    out
}
