//! The listener for reports: its address and its key.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use tidegate_config::At;
use tidegate_wire::Key;

use super::super::raw::RawReports;
use super::super::{Reports, WhenSilent};
use super::Resolver;
use super::address::udp_address;

/// Where reports are listened for when nothing else is said.
const PORT: u16 = 9901;

impl Resolver<'_, '_, '_> {
    pub(super) fn reports(&mut self, raw: At<RawReports>) -> Option<Reports> {
        let At { value: raw, span } = raw;
        let listen = match raw.listen {
            None => SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
            Some(given) => udp_address(&given.value).unwrap_or_else(|problem| {
                self.report.error(&given.span, format!("listen = \"{}\": {problem}", given.value));
                SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))
            }),
        };
        let silent_after = raw.silent_after.and_then(|given| self.positive("silent_after", given));
        let when_silent = self.when_silent(raw.when_silent);
        let Some(file) = raw.key_file else {
            self.missing(&span, "reports need the key that nuclei share; add key_file = \"...\"");
            return None;
        };
        let path = Path::new(&file.value);
        self.secret(path, &file.span);
        let key = match self.world.read(path) {
            Ok(secret) => Key::from_secret(&secret, path).map_err(|error| error.to_string()),
            Err(error) => Err(format!("the key file \"{}\" cannot be read: {error}", file.value)),
        };
        let key = key.map_err(|problem| self.report.error(&file.span, problem)).ok()?;
        Some(Reports { listen, key_file: self.world.absolute(path), key, silent_after, when_silent })
    }

    fn when_silent(&mut self, given: Option<At<String>>) -> WhenSilent {
        let Some(given) = given else { return WhenSilent::default() };
        let all = [WhenSilent::Exclude, WhenSilent::Estimate];
        all.into_iter().find(|choice| choice.name() == given.value).unwrap_or_else(|| {
            let message = format!("when_silent = \"{}\": write \"exclude\" or \"estimate\"", given.value);
            self.report.error(&given.span, message);
            WhenSilent::default()
        })
    }
}
