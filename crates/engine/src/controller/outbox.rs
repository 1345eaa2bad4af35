//! What leaves the controller: actions for the driver, events, and what policies want done beside deciding.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::decision::Action;
use crate::dispatch::Tick;
use crate::effect::{Effect, Said};
use crate::event::{Event, EventSink};
use crate::time::Timestamp;

use super::core_state::Core;

/// What is on its way out.
pub(super) struct Outbox {
    /// To be polled.
    pub(super) actions: VecDeque<Action>,
    /// What policies want done, and is not yet.
    pub(super) effects: Vec<Effect>,
    /// New connections per second that the driver lets in; `None`: all.
    connections: Said<Option<f64>>,
    pub(super) sink: Box<dyn EventSink + Send>,
}

impl Outbox {
    pub(super) fn new(sink: Box<dyn EventSink + Send>) -> Outbox {
        let (actions, effects) = (VecDeque::new(), Vec::new());
        Outbox { actions, effects, connections: Said::already(None), sink }
    }

    pub(super) fn record(&mut self, now: Timestamp, event: Event) {
        self.sink.record(now, event);
    }

    fn limit_connections(&mut self, rate: Option<f64>, depth: f64) {
        if self.connections.is_news(&rate) {
            self.actions.push_back(Action::SynRate { rate, depth });
        }
    }
}

impl Core {
    /// Ten times a second: the dispatch policy may want something done.
    pub(super) fn tick_dispatch(&mut self, now: Timestamp) {
        let Outbox { effects, sink, .. } = &mut self.outbox;
        self.fleet.dispatch.on_tick(&mut Tick { now, effects, sink: &mut **sink });
        self.carry_out();
    }

    /// Does what policies wanted since the last time.
    pub(super) fn carry_out(&mut self) {
        let mut effects = core::mem::take(&mut self.outbox.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Quality { request_type: Some(of), quality } => self.policer.publish_quality(of, quality),
                Effect::Quality { request_type: None, quality } => self.policer.publish_quality_of_all(quality),
                Effect::Connections { rate, depth } => {
                    self.outbox.limit_connections(rate.filter(|_| !self.setup.shadow), depth);
                }
                Effect::Lend(lending) => self.fleet.lend(lending, &mut self.outbox.actions),
            }
        }
        self.outbox.effects = effects;
    }
}
