//! The other sentries before the same servers: where they are, and the key that all share.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use tidegate_config::At;
use tidegate_wire::Key;

use super::super::Peers;
use super::super::raw::RawPeers;
use super::Resolver;
use super::address::udp_address;

/// Where they are heard when nothing else is said.
const PORT: u16 = 9903;

impl Resolver<'_, '_, '_> {
    pub(super) fn peers(&mut self, raw: At<RawPeers>) -> Option<Peers> {
        let At { value: raw, span } = raw;
        let listen = match raw.listen {
            None => SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
            Some(given) => udp_address(&given.value).unwrap_or_else(|problem| {
                self.report.error(&given.span, format!("listen = \"{}\": {problem}", given.value));
                SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))
            }),
        };
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
        let path = Path::new(&file.value);
        self.secret(path, &file.span);
        let key = match self.world.read(path) {
            Ok(secret) => Key::from_secret(&secret, path).map_err(|error| error.to_string()),
            Err(error) => Err(format!("the key file \"{}\" cannot be read: {error}", file.value)),
        };
        let key = key.map_err(|problem| self.report.error(&file.span, problem)).ok()?;
        Some(Peers { listen, sentries, key_file: self.world.absolute(path), key })
    }
}
