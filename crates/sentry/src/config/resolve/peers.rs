//! The other sentries before the same servers: where they are, and the key that all share.

use tidegate_config::At;
use tidegate_wire::Keys;

use super::super::peers::{PORT, PeerPlace, Peers};
use super::super::raw::RawPeers;
use super::Resolver;

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
            match PeerPlace::of(&other.value) {
                Ok(place) if sentries.contains(&place) => {
                    self.report
                        .error(&other.span, format!("sentry \"{}\" is there already; leave it out", other.value));
                }
                Ok(place) => sentries.push(place),
                Err(problem) => {
                    self.report.error(&other.span, format!("sentry \"{}\": {problem}", other.value));
                }
            }
        }
        let Some(file) = raw.key_file else {
            self.missing(&span, "peers need the key that the sentries share; add key_file = \"...\"");
            return None;
        };
        let (key_file, keys) = self.keys(&file, Keys::from_secrets)?;
        Some(Peers { listen, sentries, key_file, keys })
    }
}
