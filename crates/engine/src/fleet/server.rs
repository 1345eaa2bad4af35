//! A server as the controller sees it.

use alloc::string::String;

use crate::decision::Open;
use crate::effect::Said;
use crate::estimate::{Abandoned, Capacity, Reported};
use crate::max_conn::MOST_KINDS;
use crate::request::ServerId;
use crate::setup::ServerSetup;

/// Whether a server takes requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The server takes requests.
    #[default]
    Up,
    /// Health checks say it does not answer.
    Down,
    /// It finishes what it has and gets nothing new.
    Draining,
    /// Not part of the application: a free slot.
    Removed,
}

/// What a server is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It serves the application's requests.
    #[default]
    Application,
    /// It serves data to application servers. It has the application's software, and lends itself when a dispatch
    /// policy knows how to ask (`softscale`); under any other it gets nothing.
    Data,
}

/// One server: what it may take, what it has, and what was learned of it.
#[derive(Clone, Debug)]
pub struct ServerState {
    /// Slot of the server in the fleet.
    pub id: ServerId,
    /// Its name in configuration and output.
    pub name: String,
    /// What it is there for.
    pub role: Role,
    /// Whether it takes requests.
    pub status: Status,
    /// Its share under weighted round robin.
    pub weight: f64,
    /// The most requests, streams and tunnels it may have at once.
    pub max_connections: Option<u32>,
    /// Requests that it works on now, ghosts among them.
    pub in_flight: u32,
    /// Streams and polls that are open there: not in flight, but connections all the same.
    pub streams: u32,
    /// Tunnels that are open there.
    pub tunnels: u32,
    /// Of these, by kind, as [`MaxConn`](crate::MaxConn) tells them apart; what shadow mode let in is not counted.
    pub by_kind: [u32; MOST_KINDS],
    /// The partition that it is in, 0 = that of the most important class; `None`: servers are not divided.
    pub partition: Option<u8>,
    /// Its effective processors, given or learned.
    pub capacity: Capacity,
    /// What it does with requests that nobody waits for any more, learned.
    pub abandoned: Abandoned,
    /// What its nucleus said last.
    pub reported: Reported,
    /// Its capacity is given by its nucleus, not by the setup.
    pub(crate) given_by_report: bool,
    /// The capacity that the last event told.
    pub(crate) told_capacity: Option<f64>,
    /// How it stands beside the others.
    pub(crate) rank: Rank,
    /// Of a data server: what it lends, and the cores that its nucleus was told to give.
    pub(crate) lent: u32,
    pub(crate) said_cores: Said<u32>,
    /// Of a data server: whether it can lend, as [`LoadReport::Lends`](crate::LoadReport::Lends) says.
    pub can_lend: bool,
}

/// How a server stands beside others when a request is to go to the one with the shortest queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rank {
    /// The processors that it counts as: [`Fleet::even_out`](super::Fleet::even_out).
    pub(super) processors: f64,
    /// Requests were not seen to slow each other there.
    pub(super) keeps_up: bool,
    /// What sets it apart from others of the same load: [`Fleet::spread`](super::Fleet::spread).
    pub(super) tie: f64,
}

impl ServerState {
    /// How many of a kind are open there.
    pub(super) fn open_mut(&mut self, kind: Open) -> &mut u32 {
        match kind {
            Open::Stream | Open::Poll => &mut self.streams,
            Open::Tunnel => &mut self.tunnels,
        }
    }

    /// Whether one more request may go there by its connection limit and, of a data server, by what it lends.
    pub fn has_room(&self) -> bool {
        self.limit().is_none_or(|max| self.connections() < max)
    }

    /// How many more requests may go there; `None`: no end.
    pub fn room(&self) -> Option<usize> {
        self.limit().map(|max| max.saturating_sub(self.connections()) as usize)
    }

    /// What is at work or open there: as many connections.
    pub fn connections(&self) -> u32 {
        self.in_flight + self.streams + self.tunnels
    }

    /// The most requests, streams and tunnels it may have at once; `None`: no limit.
    pub fn limit(&self) -> Option<u32> {
        match self.role {
            Role::Application => self.max_connections,
            Role::Data if !self.can_lend => Some(0),
            Role::Data => Some(self.max_connections.map_or(self.lent, |max| max.min(self.lent))),
        }
    }

    /// Whether it counts among those that take requests, when application servers do so in state `taking`.
    pub(crate) fn is_taking(&self, taking: Status) -> bool {
        match self.role {
            Role::Application => self.status == taking,
            Role::Data => self.status == Status::Up && self.can_lend && self.lent > 0,
        }
    }

    /// Whether it is an application server in state `taking`: those that partitions divide.
    pub(crate) fn is_divided(&self, taking: Status) -> bool {
        self.role == Role::Application && self.status == taking
    }

    /// What it holds of a kind: in flight from here, and what others sent as its nucleus tells.
    pub(crate) fn holds(&self, kind: usize) -> f64 {
        f64::from(self.by_kind[kind]) + self.reported.others(kind)
    }

    /// Requests in flight per effective processor, where servers that were not seen to be full count as equal: what
    /// shortest-queue dispatch compares.
    pub fn relative_load(&self) -> f64 {
        f64::from(self.in_flight) / self.rank.processors + self.rank.tie
    }
}

/// A server in slot `at` of which nothing is known but its setup.
pub(crate) fn new_server(at: usize, setup: &ServerSetup) -> ServerState {
    ServerState {
        id: ServerId(at as u16),
        name: setup.name.clone(),
        role: setup.role,
        status: Status::Up,
        weight: setup.weight,
        max_connections: setup.max_connections,
        in_flight: 0,
        streams: 0,
        tunnels: 0,
        by_kind: [0; MOST_KINDS],
        partition: None,
        capacity: setup.cores.map_or_else(Capacity::learned, Capacity::given),
        abandoned: Abandoned::default(),
        reported: Reported::default(),
        given_by_report: false,
        told_capacity: None,
        rank: Rank { processors: 1.0, keeps_up: false, tie: 0.0 },
        lent: 0,
        said_cores: Said::default(),
        can_lend: true,
    }
}
