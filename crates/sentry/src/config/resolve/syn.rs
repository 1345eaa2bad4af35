//! How new connections are turned away.

use tidegate_config::At;

use super::super::raw::{RawSynClass, RawSynPolicing};
use super::super::{SynClass, SynPolicing, SynWith};
use super::Resolver;

const WAYS: [SynWith; 4] = [SynWith::Auto, SynWith::Nftables, SynWith::AcceptAndReset, SynWith::Off];

impl Resolver<'_, '_, '_> {
    pub(super) fn syn_policing(&mut self, raw: RawSynPolicing) -> SynPolicing {
        let default = SynPolicing::default();
        let with = raw.with.map_or(default.with, |given| {
            WAYS.into_iter().find(|way| way.name() == given.value).unwrap_or_else(|| {
                let names = WAYS.map(|way| format!("\"{}\"", way.name())).join(", ");
                self.report.error(&given.span, format!("\"{}\" is no mechanism; write one of {names}", given.value));
                default.with
            })
        });
        let classes = raw.class.map_or_else(Vec::new, |list| list.value.0);
        self.unique("class of syn_policing", classes.iter().filter_map(|class| class.value.name.as_ref()));
        SynPolicing {
            with,
            required: raw.required.is_some_and(|given| given.value),
            classes: classes.into_iter().map(|class| self.syn_class(class)).collect(),
            rest_share: raw.rest_share.map_or(default.rest_share, |share| self.share_of("rest_share", share)),
            exempt: self.networks(raw.exempt),
        }
    }

    fn syn_class(&mut self, At { value: raw, span }: At<RawSynClass>) -> SynClass {
        if raw.name.is_none() {
            self.missing(&span, "this class has no name; add name = \"...\"");
        }
        if raw.network.is_none() {
            self.missing(&span, "this class has no clients; add network = [\"10.1.0.0/16\"]");
        }
        SynClass {
            name: raw.name.map(|name| name.value).unwrap_or_default(),
            network: self.networks(raw.network),
            share: raw.share.map_or(1.0, |share| self.share_of("share", share)),
        }
    }

    fn share_of(&mut self, key: &str, share: At<f64>) -> f64 {
        if !(share.value.is_finite() && share.value > 0.0) {
            self.report.error(&share.span, format!("{key} must be more than zero"));
            return 1.0;
        }
        share.value
    }
}
