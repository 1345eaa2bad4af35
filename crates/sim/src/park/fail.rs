//! Servers that stop, come back, slow down, or are switched on and off.

use tidegate_engine::Timestamp;

use super::jobs::{Kind, Owner};
use super::server::State;
use super::{Ending, Park, Plans};
use crate::model::FaultKind;
use crate::run::Happening;

impl Park<'_> {
    /// Something happens to a server.
    pub(crate) fn fault(&mut self, now: Timestamp, server: u32, what: FaultKind, plans: &mut Plans) {
        self.meter(now, server);
        match what {
            FaultKind::Fail => self.stop(now, server, State::Failed, plans),
            FaultKind::Stop => self.stop(now, server, State::Off, plans),
            FaultKind::Recover => self.servers[server as usize].state = State::On,
            FaultKind::Speed(speed) => {
                self.servers[server as usize].speed = speed;
                self.change_speed(now, server, plans);
            }
            FaultKind::Start => {
                let at = &mut self.servers[server as usize];
                if at.state == State::On || at.state == State::Starting {
                    return;
                }
                at.state = State::Starting;
                plans.once(now + at.model.setup_time, Happening::SetUp { server });
            }
        }
    }

    /// A server serves from now on, empty; `cold`: slower at first.
    pub(crate) fn switch_on(&mut self, now: Timestamp, server: u32, cold: bool, plans: &mut Plans) {
        self.meter(now, server);
        let at = &mut self.servers[server as usize];
        at.state = State::Starting;
        let warm_up = at.model.warm_up.filter(|_| !cold);
        self.set_up(now, server, plans);
        if warm_up.is_some() {
            self.warm(now, server, plans);
        }
    }

    /// A server's setup is over. `false`: it was switched off meanwhile.
    pub(crate) fn set_up(&mut self, now: Timestamp, server: u32, plans: &mut Plans) -> bool {
        self.meter(now, server);
        let at = &mut self.servers[server as usize];
        if at.state != State::Starting {
            return false;
        }
        at.state = State::On;
        if let Some(warm_up) = at.model.warm_up {
            at.warmth = warm_up.speed;
            plans.once(now + warm_up.time, Happening::Warm { server });
            self.change_speed(now, server, plans);
        }
        true
    }

    /// A server's slow phase is over.
    pub(crate) fn warm(&mut self, now: Timestamp, server: u32, plans: &mut Plans) {
        self.servers[server as usize].warmth = 1.0;
        self.change_speed(now, server, plans);
    }

    fn change_speed(&mut self, now: Timestamp, server: u32, plans: &mut Plans) {
        let (speed, station) =
            (self.servers[server as usize].processor_speed(), self.servers[server as usize].first_station);
        self.stations[station as usize].set_speed(now, speed);
        self.plan(station, plans);
    }

    /// Everything at a server is gone; those who wait for it are told.
    fn stop(&mut self, now: Timestamp, server: u32, state: State, plans: &mut Plans) {
        let at = &mut self.servers[server as usize];
        at.state = state;
        at.in_service = 0;
        at.queue.clear();
        at.fill_pools();
        let stations = at.first_station..at.first_station + 1 + at.model.resources.len() as u32;
        for station in stations {
            let jobs = &self.jobs;
            // Of a machine that is two servers the other one's stay.
            self.stations[station as usize].retain(now, |job| jobs[job as usize].server != server);
            self.plan(station, plans);
        }
        self.change_speed(now, server, plans);
        let mut owners: Vec<(Owner, u32)> = Vec::new();
        let mut gone: Vec<u32> = Vec::new();
        for (id, job) in &mut self.jobs {
            if job.server == server && !job.dead {
                job.dead = true;
                gone.push(id as u32);
                if job.kind == Kind::Served {
                    owners.push((job.owner, job.call));
                }
            }
        }
        for id in gone {
            if self.jobs.get(id as usize).is_some_and(|job| job.children == 0) {
                self.forget(id);
            }
        }
        for (owner, call) in owners {
            self.note_answer(call, Ending::Failed);
            self.tell(now, owner, Ending::Failed, plans);
        }
    }
}
