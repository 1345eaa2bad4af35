//! Deadlines and cancellation: where requests say how long their clients wait, and which may be ended.

use std::time::Duration;

use tidegate_classify::due::{DeadlineBy, OwnDeadline};
use tidegate_config::At;
use tidegate_engine::Cancel;

use super::super::raw::RawDeadline;
use super::Resolver;

impl Resolver<'_, '_, '_> {
    pub(super) fn deadline(&mut self, raw: Option<At<RawDeadline>>) -> DeadlineBy {
        let Some(At { value: raw, .. }) = raw else { return DeadlineBy::default() };
        if let (None, Some(unit)) = (&raw.header, &raw.unit) {
            self.report.error(&unit.span, "unit of what? add header = \"...\", or leave unit out");
        }
        let unit = raw.unit.map_or(Some(Duration::from_millis(1)), |unit| self.unit(&unit));
        let own = raw.header.zip(unit).and_then(|(header, unit)| {
            Some(OwnDeadline { header: self.header_name(&header)?.as_str().to_owned(), unit })
        });
        DeadlineBy { well_known: raw.well_known.is_none_or(|given| given.value), own }
    }

    fn unit(&mut self, given: &At<String>) -> Option<Duration> {
        let unit = [("us", 1), ("ms", 1_000), ("s", 1_000_000)].into_iter().find(|(name, _)| *name == given.value);
        if unit.is_none() {
            self.report.error(&given.span, format!("unit = \"{}\": write \"us\", \"ms\" or \"s\"", given.value));
        }
        unit.map(|(_, micros)| Duration::from_micros(micros))
    }

    pub(super) fn cancel(&mut self, given: Option<At<String>>) -> Cancel {
        let Some(given) = given else { return Cancel::default() };
        match [Cancel::Off, Cancel::Runaways].into_iter().find(|cancel| cancel.name() == given.value) {
            Some(cancel) => cancel,
            None => {
                let message = format!("cancel = \"{}\": write \"off\" or \"runaways\"", given.value);
                self.report.error(&given.span, message);
                Cancel::default()
            }
        }
    }
}
