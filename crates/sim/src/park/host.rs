//! Machines that are two servers: one of a tier and one behind the sentry, which share their cores or divide them.

use tidegate_engine::Timestamp;

use super::server::Beside;
use super::{Park, Plans};
use crate::model::Host;

/// What application work goes on with that is still there when all cores were taken back.
const REMAINDER: f64 = 0.25;

impl Park<'_> {
    /// Makes two servers one machine. Where cores are divided, all are the tier's at first.
    pub(super) fn join(&mut self, host: &Host) {
        let (front, behind) = (host.front as u32, self.number(Some(host.tier), host.server));
        self.servers[host.front].beside = Some(Beside { server: behind, interference: 0.0 });
        if host.divided {
            self.servers[host.front].processors = REMAINDER;
            let station = self.servers[host.front].first_station;
            self.stations[station as usize].set_units(Timestamp::ZERO, REMAINDER);
        } else {
            self.servers[host.front].first_station = self.servers[behind as usize].first_station;
            let beside = Beside { server: front, interference: host.interference };
            self.servers[behind as usize].beside = Some(beside);
        }
    }

    /// Gives application work at a server behind the sentry so many cores of its machine, and the tier's server the
    /// others.
    pub(crate) fn divide(&mut self, now: Timestamp, front: u32, cores: u32, plans: &mut Plans) {
        let Some(Beside { server: behind, .. }) = self.servers[front as usize].beside else { return };
        let all = self.servers[behind as usize].model.cores;
        let lent = f64::from(cores).clamp(REMAINDER, all - 1.0);
        for (server, processors) in [(front, lent), (behind, if cores == 0 { all } else { all - lent })] {
            let at = &mut self.servers[server as usize];
            at.processors = processors;
            let (speed, station) = (at.processor_speed(), at.first_station);
            self.stations[station as usize].set_units(now, processors);
            self.stations[station as usize].set_speed(now, speed);
            self.plan(station, plans);
        }
    }

    /// By what application work on the same cores stretches a call.
    pub(super) fn interference(&self, server: u32) -> f64 {
        match self.servers[server as usize].beside {
            Some(Beside { server: other, interference }) if interference > 0.0 => {
                1.0 + interference * f64::from(self.servers[other as usize].in_service)
            }
            _ => 1.0,
        }
    }
}
