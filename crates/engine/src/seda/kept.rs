//! What outlives a controller.

use super::Controller;
use super::class::Class;
use super::derived::Reach;
use super::parameters::Parameters;
use crate::request::ClassId;
use crate::time::Timestamp;

impl Controller {
    /// Puts away what is known of a class.
    pub(crate) fn keep(&self, now: Timestamp, class: ClassId, mut put: impl FnMut(&str, f64)) {
        let Class { current, rate, lag, reach, .. } = &self.classes[class.index()];
        put("rate", *rate);
        put("percentile", current.unwrap_or(f64::NAN));
        put("lag", f64::from(*lag));
        put("answered", reach.answered());
        put("highest", reach.highest().unwrap_or(f64::NAN));
        put("ahead", self.classes[class.index()].bucket().ahead(now));
    }

    /// Begins with what was put away of a class of that name.
    pub(crate) fn recall(&mut self, now: Timestamp, class: ClassId, get: impl Fn(&str) -> Option<f64>) {
        let Some(rate) = get("rate").filter(|rate| *rate >= 0.0) else { return };
        let known = |name: &str| get(name).filter(|value| *value >= 0.0);
        let own = &mut self.classes[class.index()];
        own.current = known("percentile");
        own.lag = known("lag").unwrap_or(0.0) as u32;
        own.reach = Reach::of(known("answered").unwrap_or(0.0), known("highest"));
        own.recall(now, rate, known("ahead").unwrap_or(0.0), &self.parameters);
    }

    /// The quality and whether admission control is on, as they were; each as far as the settings have it.
    pub(crate) fn recall_stance(&mut self, quality: Option<f64>, policing: Option<bool>) {
        let Parameters { quality: Some(settings), .. } = &self.parameters else { return };
        self.quality = quality.map_or(self.quality, |quality| quality.clamp(settings.min, 1.0));
        self.policing = policing.map_or(self.policing, |is| is && settings.then_police);
    }
}
