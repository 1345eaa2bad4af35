//! Partitions as the controller keeps them: whose each server is, and what each class's servers hold.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::core_state::Core;
use crate::dispatch::View;
use crate::effect::Said;
use crate::event::Event;
use crate::max_conn::{Group, Kinds, MOST_KINDS};
use crate::partition::{self, Division, PartitionPolicy};
use crate::request::{AffinityKey, ClassId, Request, RequestTypeId, ServerId};
use crate::server::{ServerState, Status};
use crate::setup::Setup;
use crate::time::Timestamp;

/// The division of an application's servers, and sums over it.
pub(super) struct Partitions {
    policy: Box<dyn PartitionPolicy>,
    pub(super) kinds: Kinds,
    /// Servers that take requests, by partition: one for all when nothing is divided.
    pub(super) sizes: Vec<usize>,
    /// The sizes that the last event told.
    said_sizes: Said<Vec<usize>>,
    pub(super) groups: Vec<Group>,
}

impl Partitions {
    pub(super) fn new(setup: &Setup) -> Partitions {
        let policy = partition::build(&setup.partition, setup);
        Partitions {
            policy,
            kinds: Kinds::new(setup),
            sizes: Vec::new(),
            said_sizes: Said::default(),
            groups: Vec::new(),
        }
    }

    /// The partition of a class; 0 when nothing is divided.
    pub(super) fn of(&self, class: ClassId) -> usize {
        class.index().min(self.groups.len().saturating_sub(1))
    }

    /// The partition that a class's requests must stay in; `None`: any server will do.
    pub(super) fn only(&self, class: ClassId) -> Option<u8> {
        self.policy.divides().then(|| self.of(class) as u8)
    }

    /// One more or one fewer in flight at a server.
    pub(super) fn count(&mut self, server: &mut ServerState, taking: Status, kind: Option<usize>, change: Change) {
        let Some(kind) = kind else { return };
        change.apply(&mut server.by_kind[kind]);
        if server.status == taking
            && let Some(group) = self.groups.get_mut(usize::from(server.partition.unwrap_or(0)))
        {
            change.apply(&mut group.by_kind[kind]);
        }
    }
}

/// What happens to a count.
#[derive(Clone, Copy)]
pub(super) enum Change {
    More,
    Fewer,
}

impl Change {
    fn apply(self, count: &mut u32) {
        *count = match self {
            Change::More => *count + 1,
            Change::Fewer => count.saturating_sub(1),
        };
    }
}

impl Core {
    /// Other settings, or other request types: the division starts anew where its policy changed.
    pub(super) fn replace_partitions(&mut self, setup: &Setup) {
        let is_same = setup.partition == self.setup.partition && setup.max_conn == self.setup.max_conn;
        if is_same {
            self.partitions.kinds = Kinds::new(setup);
        } else {
            self.partitions = Partitions::new(setup);
            self.servers.iter_mut().for_each(|server| server.partition = None);
        }
        self.servers.iter_mut().for_each(|server| server.by_kind = [0; MOST_KINDS]);
        let Core { flights, servers, partitions, .. } = self;
        for (_, flight) in flights.iter_mut().filter(|(_, flight)| !flight.shadow) {
            if let crate::flight::State::InFlight { server } = flight.state
                && let Some(kind) = partitions.kinds.of(flight.request.request_type)
            {
                servers[server.index()].by_kind[kind] += 1;
            }
        }
    }

    /// The server for a request: of its class's partition, and the one its page or session is with, if that takes it.
    pub(super) fn choose(&mut self, now: Timestamp, request: &Request, except: Option<ServerId>) -> Option<ServerId> {
        let partition = self.partitions.only(request.class);
        let (servers, rng, try_down) = (&self.servers, &mut self.rng, self.try_down);
        let mut view = View { servers, rng, try_down, except, partition };
        let Some(pins) = self.pins.as_mut().filter(|_| request.affinity != AffinityKey::NONE) else {
            return self.dispatch.choose(&mut view, request);
        };
        let pinned = pins.server(now, request.affinity).and_then(|id| view.servers.get(id.index()));
        let pinned = pinned.filter(|server| view.takes(server)).map(|server| server.id);
        let server = pinned.or_else(|| self.dispatch.choose(&mut view, request))?;
        pins.pin(now, request.affinity, server);
        Some(server)
    }

    /// A session began at a server.
    pub(super) fn pin_session(&mut self, now: Timestamp, key: AffinityKey, server: ServerId) {
        let is_there = self.servers.get(server.index()).is_some_and(|state| state.status != Status::Removed);
        if let Some(pins) = self.pins.as_mut().filter(|_| is_there && key != AffinityKey::NONE) {
            pins.pin(now, key, server);
        }
    }

    /// Another server than one that just failed the request. Where the class's own have none left, any: the health
    /// checks have not seen yet that the partition needs another.
    pub(super) fn choose_other(&mut self, now: Timestamp, request: &Request, failed: ServerId) -> Option<ServerId> {
        let own = self.choose(now, request, Some(failed));
        let groups = if self.partitions.only(request.class).is_some() { self.partitions.groups.len() } else { 0 };
        own.or_else(|| {
            (0..groups as u8).find_map(|group| {
                let (servers, rng, try_down) = (&self.servers, &mut self.rng, self.try_down);
                let mut view = View { servers, rng, try_down, except: Some(failed), partition: Some(group) };
                self.dispatch.choose(&mut view, request)
            })
        })
    }

    /// Servers or their states changed: brings the division, and the sums over it, up to date.
    pub(super) fn divide(&mut self) {
        let taking = self.taking_status();
        let live = self.servers.iter().filter(|server| server.is_divided(taking)).count();
        let divides = self.partitions.policy.divides();
        let groups = if divides { self.setup.classes.len().min(live).max(1) } else { 1 };
        if divides && live > 0 {
            let Core { servers, partitions, .. } = self;
            let Partitions { policy, kinds, .. } = partitions;
            policy.on_servers_changed(&mut Division { servers, taking, kinds, groups });
        }
        self.sum_partitions(groups);
    }

    /// Ten times a second: the policy may move a server.
    pub(super) fn balance_partitions(&mut self, now: Timestamp) {
        let taking = self.taking_status();
        let groups = self.partitions.groups.len();
        let before: Vec<Option<u8>> = match self.partitions.policy.divides() {
            true => self.servers.iter().map(|server| server.partition).collect(),
            false => return self.tell_partitions(now),
        };
        let Core { servers, partitions, .. } = self;
        let Partitions { policy, kinds, .. } = partitions;
        if policy.on_tick(now, &mut Division { servers, taking, kinds, groups }) {
            let moved = self.servers.iter().zip(&before).filter(|(server, before)| server.partition != **before);
            let moves: Vec<Event> = moved.filter_map(|(server, before)| moved_event(server, *before)).collect();
            moves.into_iter().for_each(|event| self.sink.record(now, event));
            self.count_servers();
        }
        self.tell_partitions(now);
    }

    /// Weights, numbers and loads of the partitions, anew.
    fn sum_partitions(&mut self, groups: usize) {
        let taking = self.taking_status();
        let sums = &mut self.partitions;
        sums.groups.clear();
        sums.groups.resize(groups, Group::default());
        sums.sizes.clear();
        sums.sizes.resize(groups, 0);
        for server in self.servers.iter().filter(|server| server.is_divided(taking)) {
            let at = usize::from(server.partition.unwrap_or(0)).min(groups - 1);
            let group = &mut sums.groups[at];
            group.weight += server.weight;
            group.by_kind.iter_mut().zip(&server.by_kind).for_each(|(sum, count)| *sum += count);
            group.others.iter_mut().enumerate().for_each(|(kind, sum)| *sum += server.reported.others(kind));
            sums.sizes[at] += 1;
        }
    }

    /// What others sent, anew: a server's nucleus is not heard any more.
    pub(super) fn sum_others(&mut self) {
        self.sum_partitions(self.partitions.groups.len().max(1));
    }

    pub(super) fn kind(&self, request_type: RequestTypeId) -> Option<usize> {
        self.partitions.kinds.of(request_type)
    }

    fn tell_partitions(&mut self, now: Timestamp) {
        let Partitions { policy, sizes, said_sizes, .. } = &mut self.partitions;
        if policy.divides() && said_sizes.is_news(sizes) {
            self.sink.record(now, Event::PartitionsSet { servers: sizes.clone() });
        }
    }
}

fn moved_event(server: &ServerState, before: Option<u8>) -> Option<Event> {
    let (from, to) = (ClassId(before?), ClassId(server.partition?));
    Some(Event::ServerMoved { server: server.id, from, to })
}
