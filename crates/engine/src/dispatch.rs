//! Dispatch policies: which server gets an admitted request.
//!
//! A policy sees the servers that may take the request and names one. To add one: write `dispatch/<name>.rs`, add its
//! `mod` line and its entry in the table below.

mod forest;
mod jsq;
mod least;
mod softscale;
mod wrr;

use alloc::boxed::Box;
use core::fmt::Debug;

use crate::event::EventSink;
use crate::request::{Request, ServerId};
use crate::rng::Rng;
use crate::server::{Role, ServerState, Status};
use crate::setup::Setup;
use crate::snapshot::StealingSnapshot;
use crate::table::policies;
use crate::time::Timestamp;

pub use softscale::{Config as StealingProfile, ProfileStep};

policies! {
    /// A dispatch policy and its settings.
    pub enum DispatchConfig for DispatchPolicy, default Jsq {
        /// To each server in turn, by weight.
        Wrr("wrr") => wrr,
        /// To the server with the least in flight per effective processor.
        Jsq("jsq") => jsq,
        /// By the shortest queue; what application servers cannot hold goes to data servers, as much as these can lend.
        Softscale("softscale") => softscale,
    }
}

/// Picks servers.
pub trait DispatchPolicy: Debug + Send {
    /// The server for a request, among those for which [`View::takes`] holds; `None` when there is none.
    fn choose(&mut self, view: &mut View<'_>, request: &Request) -> Option<ServerId>;

    /// Servers were added, removed, moved to other partitions or given other weights, their processors or states
    /// changed. Those in state `taking` take requests: up, or down when all look down and are tried.
    fn on_servers_changed(&mut self, servers: &[ServerState], taking: Status) {
        let _ = (servers, taking);
    }

    /// Whether it wants to hear of [`DispatchPolicy::on_load_changed`] until the servers change again.
    fn follows_load(&self) -> bool {
        false
    }

    /// A request was sent to `server` or left it.
    fn on_load_changed(&mut self, server: &ServerState) {
        let _ = server;
    }

    /// Ten times a second: what each data server lends from now on.
    fn on_tick(&mut self, now: Timestamp, sink: &mut dyn EventSink) -> Lending {
        let _ = (now, sink);
        Lending::default()
    }

    /// What it shows of stealing; `None` when it does not know how to.
    fn describe(&self) -> Option<StealingSnapshot> {
        None
    }
}

/// What each data server lends to application work. Nothing is the default: only a policy that asks for it gets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lending {
    /// The most requests it may have in flight.
    pub limit: u32,
    /// How many of its cores application work has to itself; `None`: cores are not divided.
    pub cores: Option<u32>,
}

/// What a dispatch policy may see.
pub struct View<'a> {
    /// Every server, by id.
    pub servers: &'a [ServerState],
    /// The controller's generator, for ties.
    pub rng: &'a mut Rng,
    /// Whether servers that look down may be tried, because all of them do.
    pub(crate) try_down: bool,
    /// A server not to use: it just failed this request.
    pub(crate) except: Option<ServerId>,
    /// The partition to stay in; `None`: servers are not divided.
    pub(crate) partition: Option<u8>,
}

impl View<'_> {
    /// Whether a server may take one more request.
    pub fn takes(&self, server: &ServerState) -> bool {
        let tries = self.try_down && server.role == Role::Application && server.status == Status::Down;
        let up = server.status == Status::Up || tries;
        up && server.has_room() && self.except != Some(server.id) && self.has(server)
    }

    /// Whether a server is in the partition that the request must stay in.
    pub fn has(&self, server: &ServerState) -> bool {
        self.partition.is_none() || server.partition == self.partition
    }
}

/// Builds the policy that `config` describes.
pub(crate) fn build(config: &DispatchConfig, setup: &Setup) -> Box<dyn DispatchPolicy> {
    config.build(setup)
}
