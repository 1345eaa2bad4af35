//! Limits on what comes in at the entry, for each API, set by somebody who sees all services.
//!
//! *Intuition.* A doorkeeper with a screen that shows every room of the house. When a room is crowded he lets in fewer
//! of those who want to go there, the least important first. Nobody is turned away inside.
//!
//! *Applied.* At the entry each API may have a limit: a token bucket that fills at its rate and holds a second of it.
//! Every 2 s the services whose processors were in use for more than 80 % of the last second count as overloaded. The
//! APIs that use one of them and are asked for become a group, with what groups any of them was in; an API that is new
//! in one gets what is offered of it as its limit. Every second each group is looked at. If the 95th percentile of its
//! answers of the last 2 s is over the target, its limits are to fall by 5 % of their sum, otherwise to rise by 1 % of
//! it. What falls is taken from the APIs first whose overloaded services are used by the fewest others, and of these
//! from the least important, alike where they are equal; what rises is given in the reverse order, to each no more than
//! 1.1 times what is offered of it. An API of a larger group that uses no overloaded service any more becomes a group
//! of its own. A group of which every API fails at most a tenth and is limited by nothing is given up, and its limits
//! with it. Which services an API uses is seen by its calls; the source has it in a file.
//!
//! *Awkward cases.* The limit falls by 5 % a second, however great the overload: from twice what can be done it takes
//! 14 s to come down to that, and the queue of these seconds must be served too before the latency is that of the new
//! limit. Meanwhile it falls further, to less than half, and then rises by 1 % a second for more than a minute. This is
//! why the source learns its steps. At four times the load the queue is a minute long before the limits are low enough,
//! and the answers say so a minute late. An API whose importance is the least is at its lowest limit before the next
//! falls.
//!
//! *Applied here.* (1) The learned agent is replaced by the source's own comparison with fixed steps (`deploy_mimd`),
//! whose 1 s of latency becomes the SLA's target. (2) An API is a type of requests and a class together, and the class
//! is its importance, as the source gives each API one; it ships with all of them alike. (3) For that case its steps
//! are a share of all limits that are in question. Where importance differs they would be a share of the least
//! important API alone, and so less and less; here they are a share of the group's in both cases. (4) Its lowest limit
//! is 10 a second, where some thousand are offered: here 1 % of what is offered. (5) A group in the source ends
//! after 150 steps, the length of its experiment; not here. (6) Two services of its benchmark count as overloaded from
//! 95 % only; here 80 % holds for all.
//!
//! *Source.* Park et al., *TopFull: an adaptive top-down overload control for SLO-oriented microservices* (SIGCOMM
//! 2024), and its authors' program (kaist-ina/TopFull 0c7af21), which the numbers are from but for those above. The
//! paper's text was not to be had, only its abstract and what others write about it.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_engine::Timestamp;

use super::{Asked, Cooperation, Hop, Stay, Turn, Verdict};
use crate::park::Ending;
use crate::world::World;

/// How often groups are looked at; they are formed every second time.
const INTERVAL: Duration = Duration::from_secs(1);
/// A service is overloaded whose processors are in use for more than this.
const OVERLOADED: f64 = 0.8;
/// What limits fall and rise by, as shares of a group's sum.
const FALL: f64 = 0.05;
const RISE: f64 = 0.01;
/// A limit is no more than this times what is offered, and no less than that.
const HIGHEST: f64 = 1.1;
const LOWEST: f64 = 0.01;
/// Seconds over which what is offered is averaged, and over which latency and failures are taken.
const OFFERED_OVER: usize = 4;
const SEEN_OVER: usize = 2;
/// A group with no more failures than this may be given up.
const FEW_FAILURES: f64 = 0.1;

/// The system at work.
pub(super) struct TopFull {
    types: usize,
    target: f64,
    services: Vec<Service>,
    /// By class and type.
    apis: Vec<Api>,
    groups: Vec<Vec<usize>>,
    ticks: u64,
    next: Timestamp,
}

struct Service {
    cores: f64,
    /// Processor time since the last look, seconds.
    work: f64,
    is_overloaded: bool,
}

struct Api {
    /// Which services it was seen to use.
    uses: Vec<bool>,
    /// More is more important.
    importance: usize,
    /// Requests per second; `None`: no limit.
    limit: Option<f64>,
    tokens: f64,
    filled: Timestamp,
    /// The second that is not over, and those before, the latest first.
    second: Second,
    seconds: VecDeque<Second>,
}

#[derive(Clone, Default)]
struct Second {
    offered: u32,
    /// Not answered in time.
    failed: u32,
    /// Times of the answers, seconds.
    responses: Vec<f64>,
}

impl TopFull {
    pub(super) fn new(world: &World) -> TopFull {
        let (classes, types) = (world.setup.classes.len(), world.setup.request_types.len());
        let all = std::iter::once(&world.servers).chain(world.tiers.iter().map(|tier| &tier.servers));
        let cores = |servers: &Vec<crate::model::ServerModel>| servers.iter().map(|server| server.cores).sum();
        let service = |servers| Service { cores: cores(servers), work: 0.0, is_overloaded: false };
        let services: Vec<Service> = all.map(service).collect();
        let api = |number: usize| Api::new(classes - 1 - number / types, services.len());
        TopFull {
            types,
            target: world.target(Timestamp::ZERO).as_secs_f64(),
            apis: (0..classes * types).map(api).collect(),
            services,
            groups: Vec::new(),
            ticks: 0,
            next: Timestamp::ZERO + INTERVAL,
        }
    }

    fn api_of(&self, asked: &Asked) -> usize {
        usize::from(asked.class) * self.types + usize::from(asked.api)
    }

    /// Services and APIs are as the last second shows them.
    fn look(&mut self) {
        for service in &mut self.services {
            service.is_overloaded = service.work > OVERLOADED * service.cores * INTERVAL.as_secs_f64();
            service.work = 0.0;
        }
        self.apis.iter_mut().for_each(Api::end_second);
    }

    /// APIs that share an overloaded service come into one group.
    fn form_groups(&mut self) {
        for service in (0..self.services.len()).filter(|service| self.services[*service].is_overloaded) {
            let asked_for = |api: &Api| api.uses[service] && api.offered() > 0.0;
            let mut group: Vec<usize> = (0..self.apis.len()).filter(|api| asked_for(&self.apis[*api])).collect();
            let (joined, apart) =
                self.groups.drain(..).partition(|other: &Vec<usize>| other.iter().any(|api| group.contains(api)));
            self.groups = apart;
            group.extend(joined.into_iter().flatten());
            group.sort_unstable();
            group.dedup();
            for api in &group {
                let api = &mut self.apis[*api];
                api.limit = api.limit.or(Some(api.offered()));
            }
            self.groups.extend((!group.is_empty()).then_some(group));
        }
    }

    fn steer(&mut self) {
        for group in std::mem::take(&mut self.groups) {
            if group.iter().all(|api| self.apis[*api].is_clean()) {
                group.iter().for_each(|api| self.apis[*api].limit = None);
                continue;
            }
            let (bound, free): (Vec<usize>, Vec<usize>) = group.iter().partition(|api| self.is_bound(**api));
            if group.len() > 1 && !free.is_empty() {
                self.groups.extend(free.into_iter().map(|api| vec![api]));
                self.groups.extend((!bound.is_empty()).then_some(bound));
                continue;
            }
            let slowest = group.iter().map(|api| self.apis[*api].p95()).fold(0.0, f64::max);
            if slowest > self.target {
                self.lower(&group)
            } else {
                self.raise(&group)
            }
            self.groups.push(group);
        }
    }

    fn lower(&mut self, group: &[usize]) {
        let mut left = FALL * self.sum(group);
        for equals in self.by_rank(group) {
            left = self.spread(&equals, left, |api, part| {
                let most = (api.limit() - LOWEST * api.offered()).max(0.0);
                let part = part.min(most);
                (-part, part)
            });
        }
    }

    fn raise(&mut self, group: &[usize]) {
        let mut left = RISE * self.sum(group);
        for equals in self.by_rank(group).into_iter().rev() {
            left = self.spread(&equals, left, |api, part| {
                let most = (HIGHEST * api.offered() - api.limit()).max(0.0);
                let part = part.min(most);
                (part, part)
            });
        }
    }

    /// Equals take as much of `left` as they can, alike; what they do not take is left. `takes` says by how much a
    /// limit moves, and how much of its part an API took by that.
    fn spread(&mut self, equals: &[usize], mut left: f64, takes: impl Fn(&Api, f64) -> (f64, f64)) -> f64 {
        // Once more for each that took less than its part.
        for _ in 0..equals.len() {
            let part = left / equals.len() as f64;
            for api in equals {
                let api = &mut self.apis[*api];
                let (step, took) = takes(api, part);
                api.limit = Some(api.limit() + step);
                left -= took;
            }
        }
        left.max(0.0)
    }

    /// The APIs of a group, in the order in which they are limited; equals together.
    fn by_rank(&self, group: &[usize]) -> Vec<Vec<usize>> {
        let mut ranked: Vec<usize> = group.to_vec();
        ranked.sort_by_key(|api| self.rank(*api));
        ranked.chunk_by(|a, b| self.rank(*a) == self.rank(*b)).map(<[usize]>::to_vec).collect()
    }

    /// By how many the least used of its overloaded services is used, and how important it is.
    fn rank(&self, api: usize) -> (usize, usize) {
        let users = |service: usize| self.apis.iter().filter(|other| other.uses[service]).count();
        let services = (0..self.services.len()).filter(|service| self.uses_overloaded(api, *service));
        (services.map(users).min().unwrap_or(usize::MAX), self.apis[api].importance)
    }

    fn is_bound(&self, api: usize) -> bool {
        (0..self.services.len()).any(|service| self.uses_overloaded(api, service))
    }

    fn uses_overloaded(&self, api: usize, service: usize) -> bool {
        self.apis[api].uses[service] && self.services[service].is_overloaded
    }

    fn sum(&self, group: &[usize]) -> f64 {
        group.iter().map(|api| self.apis[*api].limit()).sum()
    }
}

impl Cooperation for TopFull {
    fn asks(&mut self, now: Timestamp, hop: Hop, asked: &Asked) -> Verdict {
        let api = self.api_of(asked);
        let api = &mut self.apis[api];
        api.uses[hop.to] = true;
        if hop.from.is_some() {
            return Verdict::In;
        }
        api.second.offered += 1;
        if api.takes(now) {
            return Verdict::In;
        }
        api.second.failed += 1;
        Verdict::Out
    }

    fn processed(&mut self, _now: Timestamp, hop: Hop, _asked: &Asked, turn: &Turn) {
        self.services[hop.to].work += turn.work;
    }

    fn ended(&mut self, _now: Timestamp, hop: Hop, asked: &Asked, stay: &Stay) {
        if hop.from.is_some() {
            return;
        }
        let api = self.api_of(asked);
        let second = &mut self.apis[api].second;
        let is_answer = stay.ending == Ending::Served;
        second.failed += u32::from(!is_answer || stay.response > self.target);
        second.responses.extend(is_answer.then_some(stay.response));
    }

    fn next_timeout(&self) -> Timestamp {
        self.next
    }

    fn time_out(&mut self, now: Timestamp) {
        self.next = now + INTERVAL;
        self.ticks += 1;
        self.look();
        if self.ticks.is_multiple_of(2) {
            self.form_groups();
        }
        self.steer();
    }
}

impl Api {
    fn new(importance: usize, services: usize) -> Api {
        Api {
            uses: vec![false; services],
            importance,
            limit: None,
            tokens: 0.0,
            filled: Timestamp::ZERO,
            second: Second::default(),
            seconds: VecDeque::new(),
        }
    }

    /// Whether the bucket has a token.
    fn takes(&mut self, now: Timestamp) -> bool {
        let Some(limit) = self.limit else { return true };
        self.tokens = (self.tokens + limit * now.seconds_since(self.filled)).min(limit.max(1.0));
        self.filled = now;
        let takes = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(takes));
        takes
    }

    fn end_second(&mut self) {
        self.seconds.push_front(std::mem::take(&mut self.second));
        self.seconds.truncate(OFFERED_OVER);
    }

    fn limit(&self) -> f64 {
        self.limit.unwrap_or(0.0)
    }

    /// What is offered, per second.
    fn offered(&self) -> f64 {
        let sum: u32 = self.seconds.iter().map(|second| second.offered).sum();
        f64::from(sum) / self.seconds.len().max(1) as f64
    }

    fn seen(&self) -> impl Iterator<Item = &Second> {
        self.seconds.iter().take(SEEN_OVER)
    }

    /// The 95th percentile of the times of its answers, seconds; 0 without.
    fn p95(&self) -> f64 {
        let mut all: Vec<f64> = self.seen().flat_map(|second| &second.responses).copied().collect();
        all.sort_unstable_by(f64::total_cmp);
        all.get((all.len() as f64 * 0.95) as usize).copied().unwrap_or(0.0)
    }

    /// Whether it needs no limit: hardly any fail, and no more is offered than may come in.
    fn is_clean(&self) -> bool {
        let count = |of: fn(&Second) -> u32| f64::from(self.seen().map(of).sum::<u32>());
        let fails = count(|second| second.failed) > FEW_FAILURES * count(|second| second.offered);
        self.offered() == 0.0 || (!fails && self.limit() >= self.offered())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ENTRY, INNER, asked, pass, world};
    use super::*;

    /// A second of this many requests of each class, spread out, each answered after so long; those that came in took
    /// so much of the second service's two processors. How many of each class came in.
    fn second(system: &mut TopFull, at: u64, offered: u32, response: f64, work: f64) -> [u32; 2] {
        let mut let_in = [0; 2];
        for number in 0..offered {
            let now = Timestamp::from_secs_f64(at as f64 + (f64::from(number) + 0.5) / f64::from(offered));
            for class in 0..2u8 {
                let request = asked(0, class, 0.5);
                if system.asks(now, ENTRY, &request) == Verdict::Out {
                    continue;
                }
                let_in[usize::from(class)] += 1;
                assert_eq!(system.asks(now, INNER, &request), Verdict::In, "nobody is turned away inside");
                system.processed(now, INNER, &request, &Turn { waited: 0.0, work });
                system.ended(now, ENTRY, &request, &Stay { response, ending: Ending::Served });
            }
        }
        pass(system, Timestamp::from_millis((at + 1) * 1000));
        let_in
    }

    fn limits(system: &TopFull) -> [Option<f64>; 2] {
        [system.apis[0].limit, system.apis[1].limit]
    }

    #[test]
    fn without_an_overloaded_service_nothing_is_limited_however_slow() {
        let mut system = TopFull::new(&world());
        for at in 0..10 {
            // 160 of them use 1.58 of the 2 processors.
            assert_eq!(second(&mut system, at, 80, 9.0, 0.0099), [80, 80]);
        }
        assert_eq!(limits(&system), [None, None]);
        second(&mut system, 10, 80, 9.0, 0.0101);
        second(&mut system, 11, 80, 9.0, 0.0101);
        assert!(limits(&system)[1].is_some());
    }

    #[test]
    fn over_the_target_the_least_important_comes_in_less() {
        let mut system = TopFull::new(&world());
        (0..2).for_each(|at| _ = second(&mut system, at, 100, 0.6, 0.010));
        // As they form, the groups are looked at: 5 % of 200.
        assert_eq!(limits(&system), [Some(100.0), Some(90.0)]);
        second(&mut system, 2, 100, 0.6, 0.010);
        assert_eq!(limits(&system), [Some(100.0), Some(80.5)]);
    }

    #[test]
    fn a_limit_lets_in_its_rate_and_a_second_of_it_at_once() {
        let mut api = Api::new(0, 1);
        api.limit = Some(10.0);
        let at = |number: u64| Timestamp::from_millis(10_000 + number * 50);
        assert_eq!((0..20).filter(|_| api.takes(at(0))).count(), 10);
        assert_eq!((1..=200).filter(|number| api.takes(at(*number))).count(), 100);
    }

    #[test]
    fn what_is_least_important_has_a_lowest_limit_and_then_the_next_falls() {
        let mut system = TopFull::new(&world());
        (0..40).for_each(|at| _ = second(&mut system, at, 100, 0.6, 0.019));
        let [first, second] = limits(&system).map(|limit| limit.expect("it is limited"));
        assert!((second - 1.0).abs() < 1e-9 && first < 60.0, "{first}, {second}");
    }

    #[test]
    fn within_the_target_the_most_important_rises_first_and_not_beyond_what_is_offered() {
        let mut system = TopFull::new(&world());
        (0..2).for_each(|at| _ = second(&mut system, at, 100, 0.6, 0.010));
        system.apis[0].limit = Some(108.0);
        system.apis[1].limit = Some(60.0);
        (2..5).for_each(|at| _ = second(&mut system, at, 100, 0.1, 0.012));
        // The first of these seconds still sees slow answers of the one before: 8.4 less. Then 1.6 and 1.61 more.
        let [first, second] = limits(&system).map(|limit| limit.expect("it is limited"));
        assert!((first - 110.0).abs() < 1e-6, "{first}");
        assert!((first + second - 168.0 * 0.95 * 1.01 * 1.01).abs() < 1e-6, "{first}, {second}");
    }

    #[test]
    fn limits_that_limit_nothing_are_given_up() {
        let mut system = TopFull::new(&world());
        (0..2).for_each(|at| _ = second(&mut system, at, 100, 0.6, 0.010));
        assert!(limits(&system)[1].is_some());
        (2..8).for_each(|at| _ = second(&mut system, at, 20, 0.1, 0.010));
        assert_eq!(limits(&system), [None, None]);
        assert!(system.groups.is_empty());
    }

    #[test]
    fn apis_that_share_nothing_overloaded_are_steered_apart() {
        let mut system = TopFull::new(&world());
        (0..2).for_each(|at| _ = second(&mut system, at, 100, 0.6, 0.010));
        assert_eq!(system.groups, [[0, 1]]);
        // The second service is at ease again, but not all is offered that may come in.
        second(&mut system, 2, 100, 0.6, 0.001);
        assert_eq!(system.groups, [[0], [1]]);
        second(&mut system, 3, 100, 0.6, 0.010);
        assert_eq!(system.groups, [[0, 1]]);
    }
}
