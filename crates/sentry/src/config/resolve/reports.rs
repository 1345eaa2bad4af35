//! The listener for reports: its address and its key.

use tidegate_config::At;
use tidegate_wire::Keys;

use super::super::raw::RawReports;
use super::super::{Reports, WhenSilent};
use super::Resolver;

/// Where reports are listened for when nothing else is said.
const PORT: u16 = 9901;

impl Resolver<'_, '_, '_> {
    pub(super) fn reports(&mut self, raw: At<RawReports>) -> Option<Reports> {
        let At { value: raw, span } = raw;
        let listen = self.udp_listen(raw.listen, PORT);
        let silent_after = raw.silent_after.and_then(|given| self.positive("silent_after", given));
        let when_silent = self.when_silent(raw.when_silent);
        let Some(file) = raw.key_file else {
            self.missing(&span, "reports need the key that nuclei share; add key_file = \"...\"");
            return None;
        };
        let (key_file, keys) = self.keys(&file, Keys::from_secrets)?;
        Some(Reports { listen, key_file, keys, silent_after, when_silent })
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
