//! The control plane that a sentry follows: where it is, and the key.

use std::net::IpAddr;

use tidegate_config::{At, List};
use tidegate_wire::control::ControlKeys;

use super::super::Control;
use super::super::raw::RawControl;
use super::Resolver;

impl Resolver<'_, '_, '_> {
    pub(super) fn control(&mut self, raw: At<RawControl>) -> Option<Control> {
        let At { value: raw, span } = raw;
        let given = raw.connect.map(|connect| connect.value.0).unwrap_or_default();
        if given.is_empty() {
            self.missing(&span, "a control plane has an address; add connect = \"host:9910\"");
        }
        let connect: Vec<String> = given.iter().filter_map(|address| self.server_address(address)).collect();
        let name = raw.name.map(|name| name.value).filter(|name| !name.trim().is_empty());
        if name.is_none() {
            self.missing(&span, "sentries are told apart by their names; add name = \"...\"");
        }
        let addresses = raw.addresses.map(|given| self.told_addresses(given.value)).unwrap_or_default();
        let Some(file) = raw.key_file else {
            self.missing(&span, "sentries and the control plane share a key; add key_file = \"...\"");
            return None;
        };
        let name = name?;
        let (key_file, keys) = self.keys(&file, |bytes, path| ControlKeys::of(&name, bytes, path))?;
        Some(Control { connect, key_file, keys, name, addresses })
    }

    fn told_addresses(&mut self, given: List<String>) -> Vec<IpAddr> {
        let mut addresses = Vec::new();
        for item in given.0 {
            match item.value.parse::<IpAddr>() {
                Ok(address) if !address.is_unspecified() => addresses.push(address),
                _ => {
                    let problem = format!("\"{}\" is no address that clients could connect to", item.value);
                    self.report.error(&item.span, problem);
                }
            }
        }
        addresses
    }
}
