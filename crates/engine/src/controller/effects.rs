//! What policies want done beside their decisions is done here.

use crate::decision::Action;
use crate::dispatch::Tick;
use crate::effect::Effect;
use crate::time::Timestamp;

use super::core_state::Core;

impl Core {
    /// Ten times a second: the dispatch policy may want something done.
    pub(super) fn tick_dispatch(&mut self, now: Timestamp) {
        let Core { dispatch, effects, sink, .. } = self;
        dispatch.on_tick(&mut Tick { now, effects, sink: &mut **sink });
        self.carry_out();
    }

    /// Does what policies wanted since the last time.
    pub(super) fn carry_out(&mut self) {
        let mut effects = core::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Quality { request_type: Some(of), quality } => self.policer.publish_quality(of, quality),
                Effect::Quality { request_type: None, quality } => self.policer.publish_quality_of_all(quality),
                Effect::Connections { rate, depth } => self.limit_connections(rate, depth),
                Effect::Lend(lending) => self.lend(lending),
            }
        }
        self.effects = effects;
    }

    fn limit_connections(&mut self, rate: Option<f64>, depth: f64) {
        let rate = rate.filter(|_| !self.setup.shadow);
        if self.connections.is_news(&rate) {
            self.actions.push_back(Action::SynRate { rate, depth });
        }
    }
}
