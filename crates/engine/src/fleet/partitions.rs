//! Partitions: whose each server is, and what each class's servers hold.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Fleet, ServerState, Status};
use crate::effect::Said;
use crate::event::{Event, EventSink};
use crate::flight::Flights;
use crate::max_conn::{Group, Kinds, MOST_KINDS, MaxConn};
use crate::partition::{self, Division, PartitionPolicy};
use crate::request::{ClassId, RequestTypeId};
use crate::setup::Setup;
use crate::time::Timestamp;

/// The division of an application's servers, and sums over it.
pub(crate) struct Partitions {
    policy: Box<dyn PartitionPolicy>,
    kinds: Kinds,
    classes: usize,
    /// Servers that take requests, by partition: one for all when nothing is divided.
    sizes: Vec<usize>,
    /// The sizes that the last event told.
    said_sizes: Said<Vec<usize>>,
    groups: Vec<Group>,
}

/// What is in flight of a kind of requests at the servers that a class may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Held {
    /// In flight, and what others sent as nuclei tell.
    pub(crate) in_flight: f64,
    /// From how many on a request of the class is one too many.
    pub(crate) threshold: f64,
}

impl Partitions {
    pub(super) fn new(setup: &Setup) -> Partitions {
        Partitions {
            policy: partition::build(&setup.partition, setup),
            kinds: Kinds::new(setup),
            classes: setup.classes.len(),
            sizes: Vec::new(),
            said_sizes: Said::default(),
            groups: Vec::new(),
        }
    }

    /// One more or one fewer in flight at a server.
    pub(super) fn count(&mut self, server: &mut ServerState, taking: Status, kind: Option<usize>, change: Change) {
        let Some(kind) = kind else { return };
        change.apply(&mut server.by_kind[kind]);
        if server.status == taking
            && let Some(group) = self.group_mut(server.partition)
        {
            change.apply(&mut group.by_kind[kind]);
        }
    }

    /// The sums of a server's partition.
    pub(super) fn group_mut(&mut self, partition: Option<u8>) -> Option<&mut Group> {
        self.groups.get_mut(usize::from(partition.unwrap_or(0)))
    }

    /// The partition of a class; 0 when nothing is divided.
    pub(crate) fn of(&self, class: ClassId) -> usize {
        class.index().min(self.groups.len().saturating_sub(1))
    }

    /// The partition that a class's requests must stay in; `None`: any server will do.
    pub(crate) fn only(&self, class: ClassId) -> Option<u8> {
        self.policy.divides().then(|| self.of(class) as u8)
    }

    /// The kind that a request type counts as; `None`: it is counted nowhere.
    pub(crate) fn kind(&self, request_type: RequestTypeId) -> Option<usize> {
        self.kinds.of(request_type)
    }

    /// What the servers that a class may use hold of the kind of a request type; `None`: the type is counted nowhere.
    pub(crate) fn held(&self, class: ClassId, request_type: RequestTypeId) -> Option<Held> {
        let kind = self.kinds.of(request_type)?;
        let group = &self.groups[self.of(class)];
        let threshold = group.weight * self.limits()[kind].mark(class.index(), self.classes);
        Some(Held { in_flight: f64::from(group.by_kind[kind]) + group.others[kind], threshold })
    }

    /// The kinds' marks.
    pub(crate) fn limits(&self) -> &[MaxConn] {
        self.kinds.limits()
    }

    /// Servers that take requests, by partition: one number for all when nothing is divided.
    pub(crate) fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// What the servers are and hold, by partition.
    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
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

impl Fleet {
    /// Other settings, or other request types: the division starts anew unless it `is_same`.
    pub(super) fn replace_partitions(&mut self, setup: &Setup, is_same: bool, flights: &mut Flights) {
        if is_same {
            self.partitions.kinds = Kinds::new(setup);
            self.partitions.classes = setup.classes.len();
        } else {
            let said_sizes = core::mem::take(&mut self.partitions.said_sizes);
            self.partitions = Partitions { said_sizes, ..Partitions::new(setup) };
            self.servers.iter_mut().for_each(|server| server.partition = None);
        }
        self.servers.iter_mut().for_each(|server| server.by_kind = [0; MOST_KINDS]);
        for (_, flight) in flights.iter_mut().filter(|(_, flight)| !flight.shadow) {
            if let Some(server) = flight.state.work_at()
                && let Some(kind) = self.partitions.kind(flight.request.request_type)
            {
                self.servers[server.index()].by_kind[kind] += 1;
            }
        }
    }

    /// Servers or their states changed: brings the division, and the sums over it, up to date.
    pub(super) fn divide(&mut self) {
        let taking = self.taking_status();
        let live = self.servers.iter().filter(|server| server.is_divided(taking)).count();
        let Fleet { servers, partitions: Partitions { policy, kinds, classes, .. }, .. } = self;
        let divides = policy.divides();
        let groups = if divides { (*classes).min(live).max(1) } else { 1 };
        if divides && live > 0 {
            policy.on_servers_changed(&mut Division { servers, taking, kinds, groups });
        }
        self.sum_partitions(groups);
    }

    /// Ten times a second: the partition policy may move a server.
    pub(crate) fn balance(&mut self, now: Timestamp, sink: &mut dyn EventSink) {
        let taking = self.taking_status();
        let Fleet { servers, partitions: Partitions { policy, kinds, groups, .. }, .. } = self;
        if !policy.divides() {
            return;
        }
        let before: Vec<Option<u8>> = servers.iter().map(|server| server.partition).collect();
        let groups = groups.len();
        if policy.on_tick(now, &mut Division { servers, taking, kinds, groups }) {
            let moved = self.servers.iter().zip(&before).filter(|(server, before)| server.partition != **before);
            let moves = moved.filter_map(|(server, before)| moved_event(server, *before));
            moves.for_each(|event| sink.record(now, event));
            self.count();
        }
        let Partitions { sizes, said_sizes, .. } = &mut self.partitions;
        if said_sizes.is_news(sizes) {
            sink.record(now, Event::PartitionsSet { servers: sizes.clone() });
        }
    }

    /// What others sent, anew: a server's nucleus is not heard any more.
    pub(super) fn sum_others(&mut self) {
        self.sum_partitions(self.partitions.groups.len().max(1));
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
}

fn moved_event(server: &ServerState, before: Option<u8>) -> Option<Event> {
    let (from, to) = (ClassId(before?), ClassId(server.partition?));
    Some(Event::ServerMoved { server: server.id, from, to })
}
