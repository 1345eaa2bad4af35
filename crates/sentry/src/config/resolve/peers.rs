//! The other sentries before the same servers: where they are, and the key that all share.

use std::net::SocketAddr;

use tidegate_config::At;
use tidegate_wire::Key;

use super::super::Peers;
use super::super::raw::RawPeers;
use super::Resolver;

/// Where they are heard when nothing else is said.
const PORT: u16 = 9903;

impl Resolver<'_, '_, '_> {
    pub(super) fn peers(&mut self, raw: At<RawPeers>) -> Option<Peers> {
        let At { value: raw, span } = raw;
        let listen = self.udp_listen(raw.listen, PORT);
        let Some(others) = raw.sentries else {
            self.missing(&span, "peers need the other sentries' addresses; add sentries = [\"10.0.0.2:9903\"]");
            return None;
        };
        let mut sentries = Vec::new();
        for other in others.value.0 {
            match other.value.parse::<SocketAddr>() {
                Ok(address) if address.port() == 0 || address.ip().is_unspecified() => {
                    let message = format!("\"{}\" is nobody's address; write that of one sentry", other.value);
                    self.report.error(&other.span, message);
                }
                Ok(address) if sentries.contains(&address) => {
                    self.report.error(&other.span, format!("\"{}\" is there already", other.value));
                }
                Ok(address) => sentries.push(address),
                Err(_) => {
                    let message = format!("\"{}\" is no address; write one such as \"10.0.0.2:{PORT}\"", other.value);
                    self.report.error(&other.span, message);
                }
            }
        }
        let Some(file) = raw.key_file else {
            self.missing(&span, "peers need the key that the sentries share; add key_file = \"...\"");
            return None;
        };
        let (key_file, key) = self.key(&file, Key::from_secret)?;
        Some(Peers { listen, sentries, key_file, key })
    }
}
