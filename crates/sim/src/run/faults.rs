//! What happens to servers, and when health checks notice.

use tidegate_engine::{ServerId, Status, Timestamp};

use super::{Happening, Run};
use crate::model::FaultKind;

impl Run<'_> {
    /// Something happens to a server.
    pub(super) fn fault(&mut self, now: Timestamp, number: u32) {
        let fault = self.world.faults[number as usize];
        let server = self.park.number(fault.tier, fault.server);
        self.park.fault(now, server, fault.what, &mut self.plans);
        let status = match fault.what {
            FaultKind::Fail | FaultKind::Stop => Some(Status::Down),
            FaultKind::Recover => Some(Status::Up),
            // Setup takes its time: see `set_up`.
            FaultKind::Speed(_) | FaultKind::Start => None,
        };
        if let (Some(status), None) = (status, fault.tier) {
            self.plans.once(now + fault.noticed_after, Happening::Health { server: server as u16, status });
        }
        self.collect(now);
    }

    /// A server's setup is over.
    pub(super) fn set_up(&mut self, now: Timestamp, server: u32) {
        let is_front = (server as usize) < self.world.servers.len();
        if self.park.set_up(now, server, &mut self.plans) && is_front {
            self.sentries.handle_server(now, ServerId(server as u16), Status::Up);
        }
    }
}
