//! Handing over to a successor.

use tidegate_config::At;

use super::super::Upgrade;
use super::super::raw::RawUpgrade;
use super::Resolver;

/// The longest path of a Unix socket, without its end.
const LONGEST: usize = 107;

impl Resolver<'_, '_, '_> {
    pub(super) fn upgrade(&mut self, raw: Option<At<RawUpgrade>>) -> Upgrade {
        let raw = raw.map(|raw| raw.value).unwrap_or_default();
        let default = Upgrade::default();
        let socket = raw.socket.and_then(|socket| {
            let problem = match socket.value.len() {
                0 => "socket is empty; give a path, or leave it out",
                1..=LONGEST => return Some(socket.value.into()),
                _ => "socket is too long for the path of a Unix socket; give one of at most 107 bytes",
            };
            self.report.error(&socket.span, problem);
            None
        });
        Upgrade {
            socket,
            timeout: raw.timeout.and_then(|timeout| self.positive("timeout", timeout)).unwrap_or(default.timeout),
            spread: raw.spread.map_or(default.spread, |spread| spread.value.0),
        }
    }
}
