//! A server as the controller sees it.

use alloc::string::String;

use crate::estimate::{Capacity, Reported};
use crate::request::ServerId;

/// Whether a server takes requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It takes requests.
    #[default]
    Up,
    /// Health checks say it does not answer.
    Down,
    /// It finishes what it has and gets nothing new.
    Draining,
    /// Not part of the application: a free slot.
    Removed,
}

/// One server: what it may take, what it has, and what was learned of it.
#[derive(Clone, Debug)]
pub struct ServerState {
    /// Its slot.
    pub id: ServerId,
    /// Its name in configuration and output.
    pub name: String,
    /// Whether it takes requests.
    pub status: Status,
    /// Its share under weighted round robin.
    pub weight: f64,
    /// The most requests it may have in flight.
    pub max_connections: Option<u32>,
    /// Requests in flight there now.
    pub in_flight: u32,
    /// Its effective processors, given or learned.
    pub capacity: Capacity,
    /// What its nucleus said last.
    pub reported: Reported,
    /// Its capacity is given by its nucleus, not by the setup.
    pub(crate) given_by_report: bool,
    /// The capacity that the last event told.
    pub(crate) told_capacity: Option<f64>,
}

impl ServerState {
    /// Whether one more request may go there by its connection limit.
    pub fn has_room(&self) -> bool {
        self.max_connections.is_none_or(|max| self.in_flight < max)
    }

    /// How many more requests may go there; `None`: no end.
    pub fn room(&self) -> Option<usize> {
        self.max_connections.map(|max| max.saturating_sub(self.in_flight) as usize)
    }

    /// Requests in flight per effective processor: what shortest-queue dispatch compares.
    pub fn relative_load(&self) -> f64 {
        f64::from(self.in_flight) / self.capacity.processors()
    }
}
