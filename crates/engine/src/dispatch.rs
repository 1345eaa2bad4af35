//! Dispatch policies: which server gets an admitted request.
//!
//! A policy sees the servers that may take the request and names one. To add one: write `dispatch/<name>.rs`, add its
//! `mod` line and its entry in the table below.

mod drawn;
mod forest;
mod jsq;
mod least;
mod p2c;
mod peak_ewma;
mod prequal;
mod softscale;
mod wrr;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::Debug;

use crate::effect::Effect;
use crate::event::{Event, EventSink};
use crate::facts::Facts;
use crate::fleet::{Role, ServerState, Status};
use crate::request::{Request, ServerId};
use crate::rng::Rng;
use crate::setup::{Setup, SetupError, SetupPlace};
use crate::table::policies;
use crate::time::Timestamp;

pub use softscale::{Config as StealingProfile, ProfileStep};

policies! {
    /// A dispatch policy and its settings.
    pub enum DispatchConfig for DispatchPolicy, default Jsq {
        /// To each server in turn, by weight.
        Wrr("wrr") => wrr,
        /// To the server with the fewest requests in flight per effective processor.
        Jsq("jsq") => jsq,
        /// Of two drawn at random, to the one with fewer requests in flight (Mitzenmacher; Envoy, nginx).
        P2c("p2c") => p2c,
        /// Of two drawn at random, to the one where they will take less time (Finagle, Linkerd).
        PeakEwma("peak-ewma") => peak_ewma,
        /// To the fastest of those that are not too full, by probes of a few (Google).
        Prequal("prequal") => prequal,
        /// By the shortest queue; what exceeds the application servers goes to data servers, as much as these can lend.
        Softscale("softscale") => softscale,
    }
}

/// A policy that chooses the server for a request.
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

    /// Whether it wants to hear of [`DispatchPolicy::on_answer`] until the servers change again.
    fn follows_answers(&self) -> bool {
        false
    }

    /// An answer came from `server`, so many seconds after the request was sent there; it still counts as in flight.
    fn on_answer(&mut self, now: Timestamp, server: &ServerState, took: f64) {
        let _ = (now, server, took);
    }

    /// Ten times a second.
    fn on_tick(&mut self, cx: &mut Tick<'_>) {
        let _ = cx;
    }

    /// What only this policy shows.
    fn describe(&self) -> Facts {
        Facts::default()
    }
}

/// What a dispatch policy may do ten times a second.
pub struct Tick<'a> {
    /// Present time since the driver's origin.
    pub now: Timestamp,
    pub(crate) effects: &'a mut Vec<Effect>,
    pub(crate) sink: &'a mut dyn EventSink,
}

impl Tick<'_> {
    /// Has something done beside the decisions.
    pub fn act(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Reports an event of the policy's own.
    pub fn say(&mut self, facts: Facts) {
        self.sink.record(self.now, Event::Dispatch(facts));
    }
}

/// What a dispatch policy may see.
pub struct View<'a> {
    /// Present time since the driver's origin.
    pub now: Timestamp,
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

fn require(holds: bool, policy: &'static str, key: &'static str, problem: &'static str) -> Result<(), SetupError> {
    if holds { Ok(()) } else { Err(SetupError::wrong(SetupPlace::Dispatch(policy), format_args!("{key} {problem}"))) }
}

/// Builds the policy that `config` describes.
pub(crate) fn build(config: &DispatchConfig, setup: &Setup) -> Box<dyn DispatchPolicy> {
    config.build(setup)
}
