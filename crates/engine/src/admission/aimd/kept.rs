//! What outlives a process of the policy `aimd`: of each request type and class, by name.

use alloc::format;

use super::Aimd;
use crate::learned::Kept;
use crate::request::ClassId;
use crate::time::Timestamp;

impl Aimd {
    pub(super) fn put_away(&self, now: Timestamp, kept: &mut Kept) {
        for of_type in &self.types {
            let name = of_type.name.as_deref().unwrap_or_default();
            kept.put(&format!("quality of {name}"), of_type.controller.quality());
            kept.put(&format!("policing of {name}"), f64::from(u8::from(of_type.controller.policing())));
            for class in 0..self.classes.len() {
                let kept = if self.config.by_class { kept.of_class_mut(class) } else { &mut *kept };
                of_type.controller.keep(now, ClassId(class as u8), |what, value| {
                    kept.put(&format!("{what} of {name}"), value);
                });
            }
        }
    }

    pub(super) fn take_up(&mut self, now: Timestamp, kept: &Kept) {
        for of_type in &mut self.types {
            let name = of_type.name.as_deref().unwrap_or_default();
            let policing = kept.get(&format!("policing of {name}")).map(|is| is == 1.0);
            of_type.controller.recall_stance(kept.get(&format!("quality of {name}")), policing);
            for class in 0..self.classes.len() {
                let kept = if self.config.by_class { kept.of_class(class) } else { kept };
                of_type.controller.recall(now, ClassId(class as u8), |what| kept.get(&format!("{what} of {name}")));
            }
        }
        self.find_next();
    }
}
