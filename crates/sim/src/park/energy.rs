//! What servers draw and how busy they are, summed up over time.
//!
//! Between two changes of its state a server draws `idle + (peak - idle) * use of its processors`, so the use itself
//! need not be sampled: the station sums it up exactly.

use tidegate_engine::Timestamp;

use super::Park;
use super::server::State;

/// Sums of one server up to the last change of its state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Energy {
    since: Timestamp,
    busy: f64,
    joules: f64,
    on: f64,
}

/// A server over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Seconds for which it was on (serving, not being set up).
    pub on: f64,
    /// Processor-seconds in use.
    pub busy: f64,
    /// Energy, joules; 0 without a power model.
    pub joules: f64,
}

impl Park<'_> {
    /// Every server over the time up to `now`: those behind the sentry, then tier by tier.
    pub(crate) fn usage(&mut self, now: Timestamp) -> Vec<Usage> {
        (0..self.servers.len() as u32)
            .map(|server| {
                self.meter(now, server);
                let energy = &self.servers[server as usize].energy;
                Usage { on: energy.on, busy: energy.busy, joules: energy.joules }
            })
            .collect()
    }

    /// Brings a server's sums up to date; before its state changes.
    pub(super) fn meter(&mut self, now: Timestamp, server: u32) {
        let at = &mut self.servers[server as usize];
        let station = &mut self.stations[at.first_station as usize];
        let energy = &mut at.energy;
        let busy = station.busy_until(now);
        let elapsed = now.seconds_since(energy.since);
        let worked = busy - energy.busy;
        if at.state == State::On {
            energy.on += elapsed;
        }
        if let Some(power) = at.model.power {
            energy.joules += match at.state {
                State::On => power.idle * elapsed + (power.peak - power.idle) * worked / at.model.cores,
                State::Starting => power.setup.unwrap_or(power.peak) * elapsed,
                State::Off | State::Failed => 0.0,
            };
        }
        (energy.since, energy.busy) = (now, busy);
    }
}
