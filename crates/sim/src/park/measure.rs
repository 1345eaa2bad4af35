//! What an agent beside a server would measure.

use tidegate_engine::Timestamp;

use super::Park;

/// Packets that each answer under way keeps in the queue of the network card, on average: its window.
const WINDOW: usize = 8;
/// Packets that the queue holds; further ones are dropped, and sent again.
const LONGEST: usize = 100;

/// A server at an instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    /// Processor-seconds in use so far.
    pub(crate) busy: f64,
    /// Requests that wait for a place.
    pub(crate) waiting: usize,
    /// Requests that have one.
    pub(crate) in_service: u32,
    /// Packets in the queue of its network card, where it has one.
    pub(crate) packets: Option<f64>,
}

impl Park<'_> {
    /// Measures a server.
    pub(crate) fn measure(&mut self, now: Timestamp, server: u32) -> Measured {
        let at = &self.servers[server as usize];
        let (waiting, in_service) = (at.queue.len(), at.in_service);
        let card = at.model.card.map(|resource| at.first_station + resource as u32);
        let busy = self.stations[at.first_station as usize].busy_until(now);
        let packets = card.map(|station| (self.stations[station as usize].jobs() * WINDOW).min(LONGEST) as f64);
        Measured { busy, waiting, in_service, packets }
    }
}
