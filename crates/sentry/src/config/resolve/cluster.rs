//! What a cluster's servers hold, and which requests stay together.

use std::ops::Range;

use tidegate_classify::AffinityBy;
use tidegate_config::{At, List};
use tidegate_engine::{Affinity, MaxConn, Seconds};

use super::super::raw::{RawAffinity, RawMaxConn};
use super::Resolver;

impl Resolver<'_, '_, '_> {
    /// Numbers are the engine's to judge; what is not there is missed here. With the places of `request_types`,
    /// `within_target` and `most`.
    pub(super) fn max_conn(&mut self, raw: Option<At<List<RawMaxConn>>>) -> Vec<(MaxConn, [Range<usize>; 3])> {
        let list = raw.map(|list| list.value.0).unwrap_or_default();
        list.into_iter().filter_map(|entry| self.one_max_conn(entry)).collect()
    }

    fn one_max_conn(&mut self, At { value: raw, span }: At<RawMaxConn>) -> Option<(MaxConn, [Range<usize>; 3])> {
        let (Some(name), Some(within_target), Some(most)) = (raw.name, raw.within_target, raw.most) else {
            self.missing(&span, "an entry of max_conn needs name, within_target and most; add what is not there");
            return None;
        };
        let types_at = raw.request_types.as_ref().map_or(span, |list| list.span.clone());
        let types = raw.request_types.map(|list| list.value.0).unwrap_or_default();
        let entry = MaxConn {
            name: name.value,
            request_types: types.into_iter().map(|name| name.value).collect(),
            within_target: within_target.value,
            most: most.value,
        };
        Some((entry, [types_at, within_target.span, most.span]))
    }

    /// How long requests stay together, and by what.
    pub(super) fn affinity(&mut self, raw: Option<At<RawAffinity>>) -> Option<(Affinity, AffinityBy)> {
        let At { value: raw, span } = raw?;
        let default = Affinity::default();
        let idle = raw.idle.and_then(|idle| self.positive("idle", idle));
        let affinity = Affinity {
            idle: idle.map_or(default.idle, |idle| Seconds(idle.as_secs_f64())),
            keys: self.count("keys", raw.keys, default.keys as usize, 1..=16_777_216) as u32,
        };
        let by = match (raw.cookie, raw.header) {
            (Some(cookie), None) => AffinityBy::Cookie(cookie.value),
            (None, Some(header)) => AffinityBy::Header(self.header_name(&header)?.as_str().to_owned()),
            (Some(_), Some(header)) => {
                self.report.error(&header.span, "give \"cookie\" or \"header\" in affinity, not both");
                return None;
            }
            (None, None) => {
                self.missing(&span, "affinity to what? add cookie = \"...\" or header = \"...\"");
                return None;
            }
        };
        Some((affinity, by))
    }
}
