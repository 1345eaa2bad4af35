//! A rate for the requests that use a resource, which follows the use of the resource; as a last resort, a rate for new
//! connections.
//!
//! *Intuition.* A server is seldom overloaded by all of its requests: a few kinds need nearly all of its processors, a
//! few others nearly all of its network. Admit of each kind only as much as its resource can do, and the others need no
//! test at all. That is not enough when there are too many of the others, too. Only then are connections refused, as
//! early as possible: by the kernel, before their handshakes.
//!
//! *Applied.* Request types carry tags, the names of resources. For each resource there is a controller and a token
//! bucket per server, tested when a tagged request's server is chosen; and one more at the sentry, where the sentry
//! itself measures the resource. Controllers sample once a second the measurements of nuclei, or of the sentry where
//! it shares the machine with the server. Buckets have a logical partition for each class. The controller of
//! connections looks at the queues of connections that wait to be accepted, at the sentry and, on average, at the
//! servers; drivers carry out its rate.
//!
//! *Awkward cases.* See the control law. Guaranteed requests are not tested, nor counted. Where requests carry no tags,
//! `tags = "learn"` judges them by what they use: see `uses.rs`.
//!
//! *Source.* T. Voigt and P. Gunningberg, "Adaptive resource-based Web server admission control" (2002), sections 3, 5.

mod config;
mod control;
mod parts;
mod show;
#[cfg(test)]
mod tests;
mod uses;

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Admission, AdmissionPolicy, Arrival, Context, Ended, PolicyState};
use crate::decision::{End, Reason};
use crate::effect::Effect;
use crate::facts::Facts;
use crate::report::LoadReport;
use crate::request::{Request, ServerId};
use crate::setup::Setup;
use crate::signal::Signal;
use crate::time::Timestamp;
use parts::Parts;
use show::{describe, tell};
use uses::{Heavy, Uses};

pub use config::Config;
use control::{Beside, Control, Law, Why};

/// The name of the controller of connections.
const CONNECTIONS: &str = "syn";
/// While connections wait for them, resources' rates fall so many times as fast.
const HASTE: f64 = 4.0;

/// Where no resource is short at its least rate, a queue of connections must be long for so many samples.
const PATIENCE: u32 = 3;

/// State of the policy `resource`.
#[derive(Debug)]
pub struct Protection {
    /// Per resource of the configuration.
    resources: Vec<Protected>,
    connections: Option<Connections>,
    shares: Vec<f64>,
    /// What requests use, from which tags can be learned.
    uses: Uses,
    /// Seconds.
    period: f64,
    sampled: Timestamp,
    next: Timestamp,
    /// Until the refused request would find its token.
    wait: Duration,
}

/// A resource, wherever it was measured.
#[derive(Debug)]
struct Protected {
    name: String,
    /// The tag's bit; `None`: no request type carries it.
    tag: Option<u8>,
    signal: Signal,
    law: Law,
    depth: f64,
    /// By place: the sentry, then the servers by number.
    places: Vec<Option<Place>>,
}

/// A resource at one place.
#[derive(Debug)]
struct Place {
    server: Option<ServerId>,
    control: Control,
    parts: Parts,
    input: Input,
    /// Since the last sample.
    answered: u32,
    admitted: u64,
    refused: u64,
}

/// New connections.
#[derive(Debug)]
struct Connections {
    control: Control,
    depth: f64,
    /// Of the sentry, then of the servers.
    queues: Vec<Option<Input>>,
    processors: Vec<Option<Input>>,
    /// Of the processors: nothing is raised above.
    busy: f64,
    arrived: u64,
    /// Requests answered since the last sample, by servers or by a resource's refusal.
    answered: u32,
    /// As the kernel counted them since the last sample, where it did.
    counted: Option<u64>,
    admitted: u64,
    refused: u64,
}

/// What was measured since the last sample: of a queue the last length, else the mean.
#[derive(Clone, Copy, Debug, Default)]
struct Input {
    sum: f64,
    last: f64,
    count: u32,
}

impl AdmissionPolicy for Protection {
    fn on_arrival(&mut self, _cx: &mut Context<'_>, _arrival: &Arrival) -> Admission {
        if let Some(connections) = &mut self.connections {
            connections.arrived += 1;
        }
        Admission::Admit
    }

    /// All buckets have a token, or none is taken.
    fn on_server(&mut self, now: Timestamp, arrival: &Arrival, server: ServerId) -> Option<Reason> {
        let class = arrival.request.class;
        let heavy = self.uses.heavy(&arrival.request, arrival.cost);
        let mut refused = None;
        let mut longest = Duration::ZERO;
        for resource in &mut self.resources {
            if resource.is_strained_by(&arrival.request, heavy) {
                for place in resource.at(server) {
                    let wait = place.parts.ask(now, class);
                    if !wait.is_zero() {
                        place.refused += 1;
                        longest = longest.max(wait);
                        refused = Some(Reason::ResourceLimit);
                    }
                }
            }
        }
        if refused.is_none() {
            for resource in &mut self.resources {
                if resource.is_strained_by(&arrival.request, heavy) {
                    for place in resource.at(server) {
                        place.parts.take(now, class);
                        place.admitted += 1;
                    }
                }
            }
        }
        self.wait = longest;
        if let (Some(_), Some(connections)) = (refused, &mut self.connections) {
            connections.answered += 1;
        }
        refused
    }

    fn on_outcome(&mut self, cx: &mut Context<'_>, ended: &Ended) {
        let Some(server) = ended.server.filter(|_| ended.end == End::Answered) else { return };
        let cost = cx.costs.estimate(&ended.request);
        self.uses.note(&ended.request, cost, ended.bytes);
        let heavy = self.uses.heavy(&ended.request, cost);
        for resource in &mut self.resources {
            if resource.is_strained_by(&ended.request, heavy) {
                resource.at(server).for_each(|place| place.answered += 1);
            }
        }
        if let Some(connections) = &mut self.connections {
            connections.answered += 1;
        }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        let seconds = cx.now.seconds_since(self.sampled).max(1e-3);
        let waits = |connections: &Connections| connections.control.last().why == Why::OthersFirst;
        let haste = if self.connections.as_ref().is_some_and(waits) { HASTE } else { 1.0 };
        let (mut others_first, mut exhausted) = (false, false);
        for resource in &mut self.resources {
            for place in resource.places.iter_mut().flatten() {
                let before = place.control.last().why;
                let hits = f64::from(place.parts.asked()) / seconds;
                let worked = Some(f64::from(core::mem::take(&mut place.answered)) / seconds);
                let beside = Beside { haste, worked, ..Beside::default() };
                place.control.sample(place.input.take(resource.signal), hits, beside);
                others_first |= place.control.can_do_more();
                exhausted |= place.control.is_exhausted();
                place.parts.set(cx.now, place.control.rate(), seconds);
                tell(cx, &resource.name, place.server, &place.control, before);
            }
        }
        if let Some(connections) = &mut self.connections {
            let before = connections.control.last().why;
            connections.sample(seconds, others_first, exhausted);
            tell(cx, CONNECTIONS, None, &connections.control, before);
            cx.act(Effect::Connections { rate: connections.control.rate(), depth: connections.depth });
        }
        self.sampled = cx.now;
        self.next = cx.now + Duration::from_secs_f64(self.period);
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        Some(self.next)
    }

    fn on_report(&mut self, _cx: &mut Context<'_>, report: &LoadReport) {
        match *report {
            LoadReport::Signal { server, signal, value } if value >= 0.0 && value.is_finite() => {
                self.resources.iter_mut().for_each(|resource| resource.hear(server, signal, value, &self.shares));
                if let Some(connections) = &mut self.connections {
                    connections.hear(server, signal, value);
                }
            }
            LoadReport::Connections { offered, refused } => {
                if let Some(connections) = &mut self.connections {
                    *connections.counted.get_or_insert(0) += offered;
                    connections.admitted += offered.saturating_sub(refused);
                    connections.refused += refused;
                }
            }
            LoadReport::Silent(server) => self.forget(server),
            _ => {}
        }
    }

    fn on_setup(&mut self, setup: &Setup) {
        for resource in &mut self.resources {
            resource.tag = tag(setup, &resource.name);
        }
        self.uses.follow(setup);
    }

    fn retry_after(&self, _now: Timestamp, _request: &Request) -> Option<Duration> {
        Some(self.wait)
    }

    fn describe(&self, state: &mut PolicyState) {
        let places = self.resources.iter().flat_map(|resource| {
            resource.places.iter().flatten().map(move |place| place.describe(&resource.name, resource.signal))
        });
        let resources: Vec<Facts> = places.chain(self.connections.iter().map(Connections::describe)).collect();
        let uses = self.uses.describe(self.resources.iter().map(|resource| (&*resource.name, resource.signal)));
        let all = [("resources", resources), ("uses", uses)].into_iter().filter(|(_, facts)| !facts.is_empty());
        state.own = all.fold(Facts::new("resource"), |own, (key, facts)| own.with(key, facts));
    }
}

impl Protection {
    fn new(config: &Config, setup: &Setup) -> Protection {
        let resource = |resource: &config::Resource| {
            let signal = resource.signal().expect("it was checked with the setup");
            let (law, depth) = config.law(&resource.control, signal, 5.0).expect("it was checked with the setup");
            let (name, tag) = (resource.name.clone(), tag(setup, &resource.name));
            Protected { name, tag, signal, law, depth, places: Vec::new() }
        };
        let period = config.period.0;
        Protection {
            resources: config.resources.iter().map(resource).collect(),
            connections: config.connections.then(|| Connections::new(config)),
            shares: parts::shares(&config.shares, setup.classes.len()),
            uses: Uses::new(setup, config.learns()),
            period,
            sampled: Timestamp::ZERO,
            next: Timestamp::ZERO + Duration::from_secs_f64(period),
            wait: Duration::ZERO,
        }
    }

    /// Nothing is measured at this server any more.
    fn forget(&mut self, server: ServerId) {
        let at = server.index() + 1;
        for resource in &mut self.resources {
            if let Some(place) = resource.places.get_mut(at) {
                *place = None;
            }
        }
        if let Some(connections) = &mut self.connections {
            for inputs in [&mut connections.queues, &mut connections.processors] {
                if let Some(input) = inputs.get_mut(at) {
                    *input = None;
                }
            }
        }
    }
}

impl Protected {
    fn is_strained_by(&self, request: &Request, heavy: Heavy) -> bool {
        self.tag.is_some_and(|tag| request.tags.contains(tag)) || heavy.strains(self.signal)
    }

    /// The places that a request to `server` passes: the sentry and the server.
    fn at(&mut self, server: ServerId) -> impl Iterator<Item = &mut Place> {
        let at = server.index() + 1;
        let places = self.places.iter_mut().enumerate();
        places.filter(move |(place, _)| *place == 0 || *place == at).filter_map(|(_, place)| place.as_mut())
    }

    fn hear(&mut self, server: Option<ServerId>, signal: Signal, value: f64, shares: &[f64]) {
        if signal != self.signal {
            return;
        }
        let place = entry(&mut self.places, server).get_or_insert_with(|| Place {
            server,
            control: Control::new(self.law),
            parts: Parts::new(shares, self.depth),
            input: Input::default(),
            answered: 0,
            admitted: 0,
            refused: 0,
        });
        place.input.add(value);
    }
}

impl Place {
    fn describe(&self, resource: &str, signal: Signal) -> Facts {
        let (parts, counts) = (self.parts.rates().to_vec(), (self.admitted, self.refused));
        describe(resource, signal, self.server, &self.control, parts, counts)
    }
}

impl Connections {
    fn new(config: &Config) -> Connections {
        let (law, depth) = config.connections_law().expect("it was checked with the setup");
        Connections {
            control: Control::new(law),
            depth,
            queues: Vec::new(),
            processors: Vec::new(),
            busy: config.cpu_reference(),
            arrived: 0,
            answered: 0,
            counted: None,
            admitted: 0,
            refused: 0,
        }
    }

    fn hear(&mut self, server: Option<ServerId>, signal: Signal, value: f64) {
        let inputs = match signal {
            Signal::ListenQueue => &mut self.queues,
            Signal::Cpu => &mut self.processors,
            _ => return,
        };
        entry(inputs, server).get_or_insert_default().add(value);
    }

    fn sample(&mut self, seconds: f64, others_first: bool, exhausted: bool) {
        let busy = mean(self.processors.iter_mut().flatten().filter_map(|input| input.take(Signal::Cpu)));
        let own = self.queues.first_mut().and_then(Option::as_mut).and_then(|input| input.take(Signal::ListenQueue));
        let servers = self.queues.iter_mut().skip(1).flatten();
        let servers = mean(servers.filter_map(|input| input.take(Signal::ListenQueue)));
        let queue = match (own, servers) {
            (None, None) => None,
            (own, servers) => Some(own.unwrap_or(0.0) + servers.unwrap_or(0.0)),
        };
        let arrived = core::mem::take(&mut self.arrived);
        // While everything is let in the kernel need not count.
        let hits = self.counted.take().unwrap_or(arrived);
        let cpu_busy = busy.is_some_and(|busy| busy >= self.busy);
        let patience = if exhausted { 1 } else { PATIENCE };
        let worked = Some(f64::from(core::mem::take(&mut self.answered)) / seconds);
        let beside = Beside { cpu_busy, others_first, patience, worked, ends: true, ..Beside::default() };
        self.control.sample(queue, hits as f64 / seconds, beside);
    }

    fn describe(&self) -> Facts {
        let counts = (self.admitted, self.refused);
        describe(CONNECTIONS, Signal::ListenQueue, None, &self.control, Vec::new(), counts)
    }
}

impl Input {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.last = value;
        self.count = self.count.saturating_add(1);
    }

    fn take(&mut self, signal: Signal) -> Option<f64> {
        let input = core::mem::take(self);
        match input.count {
            0 => None,
            _ if signal.is_queue() => Some(input.last),
            count => Some(input.sum / f64::from(count)),
        }
    }
}

/// The entry of a place: the sentry's is the first.
fn entry<T>(places: &mut Vec<Option<T>>, server: Option<ServerId>) -> &mut Option<T> {
    let at = server.map_or(0, |server| server.index() + 1);
    if places.len() <= at {
        places.resize_with(at + 1, || None);
    }
    &mut places[at]
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn tag(setup: &Setup, name: &str) -> Option<u8> {
    setup.tags.iter().position(|tag| tag == name).map(|at| at as u8)
}
