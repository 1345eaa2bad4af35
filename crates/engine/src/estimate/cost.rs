//! The cost of a request: its inherent service time, learned per URL.
//!
//! The table is bounded and keyed by the URL without its query. A URL that is not there borrows from its request type,
//! that from its class, that from the application, that from the configured default (Cataclysm, section 3.5). A young
//! entry leans on what it would borrow, so that one odd sample does not decide.
//!
//! A sample is the share of its server that the request received while it was there (see
//! [`Capacity`](super::Capacity)). Capacities are measured with these costs. So that the two cannot drift away
//! together, costs are kept *relative*: samples are divided by how much dearer than expected requests are in general,
//! and only differences between URLs are learned. The scale, seconds per unit, comes from requests that found their
//! server idle ([`Scale`](super::Scale)).

mod kept;
mod table;

use alloc::vec::Vec;

use super::norm::{Chance, Norm};
use super::rate::Average;
use crate::request::Request;

pub use kept::KeptCosts;
pub use table::CostTable;

/// Samples an entry remembers.
const MEMORY: f64 = 64.0;
/// Samples that a group average (type, class, application) remembers.
const GROUP_MEMORY: f64 = 512.0;
/// An entry leans on its group as if the group were this many samples.
const LEAN: f64 = 2.0;
/// Over so many first samples the default cost counts as so many samples.
const CAREFUL_SAMPLES: f64 = 16.0;
const CAREFUL_WEIGHT: f64 = 6.0;
/// Samples that make the unit.
const UNIT_SAMPLES: f64 = 32.0;
/// A URL is well known from this many samples on; one that is not counts this much in that average.
const KNOWN: f64 = 8.0;
const UNKNOWN_WEIGHT: f64 = 0.1;
/// As so many times its expected cost counts what seemed to hang.
const HUNG: f64 = 1.5;
/// What was given up counts as no more than so many times the mean.
const LARGEST: f64 = 8.0;

/// Costs by URL, request type, class and application.
#[derive(Debug)]
pub struct Costs {
    urls: CostTable,
    types: Vec<Average>,
    classes: Vec<Average>,
    all: Average,
    /// Of the samples' squares, beside `all`.
    squares: Average,
    default: f64,
    /// Of samples from response times, and of those that were measured on servers.
    received: Norm,
    measured: Norm,
    chance: Chance,
    /// Seconds per unit of stored cost.
    scale: f64,
}

/// What a request is expected to cost, at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// Inherent service time.
    pub(crate) seconds: f64,
    /// Samples of its URL that this stands on.
    samples: f64,
}

impl Costs {
    /// Empty estimates; `default` (seconds) stands for requests of which nothing is known.
    pub fn new(entries: usize, types: usize, classes: usize, default: f64) -> Self {
        let none = |n| alloc::vec![Average::default(); n];
        Costs {
            urls: CostTable::new(entries),
            types: none(types),
            classes: none(classes),
            all: Average::default(),
            squares: Average::default(),
            default,
            scale: 1.0,
            received: Norm::default(),
            measured: Norm::default(),
            chance: Chance::default(),
        }
    }

    /// The expected inherent service time, seconds.
    pub fn estimate(&self, request: &Request) -> f64 {
        self.estimate_by(self.urls.get(request.url), request)
    }

    /// The same, and how surely it is known: for who learns at once from what came of the request.
    pub(crate) fn expected(&self, request: &Request) -> Expected {
        let own = self.urls.get(request.url);
        Expected { seconds: self.estimate_by(own, request), samples: own.map_or(0.0, Average::weight) }
    }

    /// What is expected of a request of whose URL this is known.
    fn estimate_by(&self, own: Option<&Average>, request: &Request) -> f64 {
        let group = || self.group(request);
        match own {
            Some(own) if own.weight() >= MEMORY / 2.0 && self.is_settled() => {
                own.get().map_or_else(group, |cost| cost * self.scale)
            }
            Some(own) => {
                let weight = own.weight();
                (own.get().unwrap_or(0.0) * self.scale * weight + group() * LEAN) / (weight + LEAN)
            }
            None => group(),
        }
    }

    /// The expected cost in relative units: what work is counted in.
    pub fn relative(&self, request: &Request) -> f64 {
        self.estimate(request) / self.scale
    }

    /// Learns from a completed request that received `seconds` of its server, the whole of it being one.
    pub fn record(&mut self, request: &Request, seconds: f64) {
        self.record_expected(request, seconds, self.expected(request));
    }

    /// The same of one of which so much was expected up to now. What is expected of its like from now on, seconds.
    pub(crate) fn record_expected(&mut self, request: &Request, seconds: f64, expected: Expected) -> f64 {
        let cost = seconds * self.normalise(expected, seconds, false);
        let own = self.learn_answered(request, cost);
        self.estimate_by(Some(&own), request)
    }

    /// Learns from a request whose inherent time was measured on its server. Such samples tell how costs of URLs
    /// compare, exactly; what they are in seconds of response time only response times tell, so these keep the scale.
    pub fn record_measured(&mut self, request: &Request, seconds: f64) {
        if seconds >= 0.0 && seconds.is_finite() {
            let cost = seconds * self.normalise(self.expected(request), seconds, true);
            self.learn_answered(request, cost);
        }
    }

    /// Learns from a request that was given up when it had received `seconds`: it would have taken longer. Without
    /// this only the quickest would be known of clients that are in a hurry.
    ///
    /// What is still to come is taken to be what was expected at first, which is exact for exponential costs. For
    /// others it may be too much, and a client that gives up on purpose would raise a cost with every request. So it is
    /// bounded by the mean of those that were answered.
    pub fn record_given_up(&mut self, request: &Request, seconds: f64) {
        let Some(mean) = self.all.get().filter(|_| self.has_unit()) else { return };
        let known = self.expected(request);
        let expected = known.seconds / self.scale;
        let most = expected.max(mean * LARGEST) / self.received.last();
        let at_least = (seconds + expected / self.received.last()).min(most);
        let factor = self.normalise(known, at_least, false);
        self.learn(request, at_least * factor);
    }

    /// Learns from a request that was answered after it seemed to hang. If it did not, it was much dearer than its kind
    /// is thought to be; nobody can tell. So it counts as somewhat dearer: a kind whose every request seems to hang is
    /// soon known to be dear, and one of which few do is not far off.
    pub fn record_hung(&mut self, request: &Request) {
        self.learn(request, HUNG * self.relative(request));
    }

    fn learn_answered(&mut self, request: &Request, cost: f64) -> Average {
        self.all.update(cost, 1.0, GROUP_MEMORY);
        self.squares.update(cost * cost, 1.0, GROUP_MEMORY);
        self.learn(request, cost)
    }

    /// Learns what URLs, types and classes cost. What is known of the URL from now on.
    fn learn(&mut self, request: &Request, cost: f64) -> Average {
        let own = self.urls.entry(request.url);
        own.update(cost, 1.0, MEMORY);
        let own = *own;
        self.types[request.request_type.index()].update(cost, 1.0, GROUP_MEMORY);
        self.classes[request.class.index()].update(cost, 1.0, GROUP_MEMORY);
        own
    }

    /// Whether relative costs have their unit for good.
    pub fn has_unit(&self) -> bool {
        self.all.weight() >= UNIT_SAMPLES
    }

    /// How far what is known of a URL's cost is from what it is by chance: standard deviation, a part of the cost, on
    /// average over the samples.
    pub fn chance(&self) -> f64 {
        self.chance.get()
    }

    /// What a sample must be multiplied by so that samples do not move all costs together. The first ones do: they
    /// make the unit. A URL that is not well known says little: it may be dearer than its kind.
    fn normalise(&mut self, expected: Expected, seconds: f64, measured: bool) -> f64 {
        if !self.has_unit() {
            return 1.0;
        }
        let Expected { seconds: expected, samples } = expected;
        let expected = expected / self.scale;
        let known = samples >= KNOWN;
        let norm = if measured { &mut self.measured } else { &mut self.received };
        let factor = norm.factor(seconds, expected, if known { 1.0 } else { UNKNOWN_WEIGHT });
        self.chance.record(known.then_some(seconds * factor / expected), samples, LEAN);
        factor
    }

    /// Whether a request's cost is well known by its URL.
    pub fn knows(&self, request: &Request) -> bool {
        self.urls.get(request.url).map_or(0.0, Average::weight) >= KNOWN
    }

    /// Sets the scale, seconds per unit of relative cost.
    pub fn set_scale(&mut self, scale: f64) {
        self.scale = scale.clamp(1e-6, 1e6);
    }

    /// Seconds per unit of relative cost.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Mean inherent time of a class, seconds, or the best substitute.
    pub fn class_mean(&self, class: usize) -> f64 {
        self.classes[class].get().or(self.all.get()).map_or(self.default, |cost| cost * self.scale)
    }

    /// Mean inherent time over all requests, seconds, once one was seen.
    pub fn mean(&self) -> Option<f64> {
        self.all.get().map(|cost| cost * self.scale)
    }

    /// Coefficient of variation of the inherent times of all requests together: 1 as of exponential ones; `None` until
    /// there are enough samples. Of samples from response times their error is in it.
    pub fn variation(&self) -> Option<f64> {
        let (mean, square) = (self.all.get().filter(|mean| *mean > 0.0)?, self.squares.get()?);
        self.has_unit().then(|| libm::sqrt((square / (mean * mean) - 1.0).max(0.0)))
    }

    /// How many request types it knows.
    pub(crate) fn types(&self) -> usize {
        self.types.len()
    }

    /// URLs in the table.
    pub fn urls(&self) -> usize {
        self.urls.len()
    }

    /// Keeps what fits another set of types and classes: `types[i]` and `classes[i]` name the old positions.
    pub(crate) fn remap(&mut self, types: &[Option<usize>], classes: &[Option<usize>], default: f64) {
        let pick = |old: &[Average], map: &[Option<usize>]| -> Vec<Average> {
            map.iter().map(|at| at.and_then(|at| old.get(at).copied()).unwrap_or_default()).collect()
        };
        self.types = pick(&self.types, types);
        self.classes = pick(&self.classes, classes);
        self.default = default;
    }

    /// Whether there are enough samples to know what requests cost in general.
    pub fn is_settled(&self) -> bool {
        self.all.weight() >= CAREFUL_SAMPLES
    }

    /// The first to complete are the smallest of those under way: until there are enough, the default keeps a say.
    fn careful(&self, cost: f64) -> f64 {
        let weight = self.all.weight();
        if self.is_settled() || cost >= self.default {
            return cost;
        }
        (cost * weight + self.default * CAREFUL_WEIGHT) / (weight + CAREFUL_WEIGHT)
    }

    fn group(&self, request: &Request) -> f64 {
        let own = |averages: &[Average], at: usize| averages.get(at).and_then(Average::get);
        let known = own(&self.types, request.request_type.index())
            .or_else(|| own(&self.classes, request.class.index()))
            .or(self.all.get())
            .map_or(self.default, |cost| cost * self.scale);
        self.careful(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{RequestTypeId, UrlKey};
    use crate::rng::Rng;

    fn request(url: u64) -> Request {
        Request { url: UrlKey(url << 32 | url), request_type: RequestTypeId(1), ..Request::default() }
    }

    #[test]
    fn who_gives_up_early_teaches_that_it_takes_longer() {
        // Exponential costs of 10 ms; clients of URL 2 leave after 4 ms of them.
        let (mut costs, mut rng) = (Costs::new(64, 2, 2, 0.1), Rng::new(1));
        let mut exponential = || -0.010 * libm::log(1.0 - rng.next_f64());
        for _ in 0..20_000 {
            costs.record(&request(1), exponential());
            match exponential() {
                quick if quick < 0.004 => costs.record(&request(2), quick),
                _ => costs.record_given_up(&request(2), 0.004),
            }
        }
        let ratio = costs.estimate(&request(2)) / costs.estimate(&request(1));
        assert!((0.6..1.6).contains(&ratio), "{ratio}; of those that were answered it is 0.19");
    }

    #[test]
    fn who_gives_up_on_purpose_raises_a_cost_no_further_than_eight_means() {
        let mut costs = Costs::new(64, 2, 2, 0.1);
        for _ in 0..5_000 {
            costs.record(&request(1), 0.010);
            costs.record_given_up(&request(2), 0.009);
        }
        let ratio = costs.estimate(&request(2)) / costs.estimate(&request(1));
        // What all samples are divided by moves with them.
        assert!(ratio < 1.25 * LARGEST, "{ratio}");
    }

    #[test]
    fn the_unknown_borrow_from_type_then_class_then_all_then_default() {
        let mut costs = Costs::new(64, 3, 2, 0.5);
        assert_eq!(costs.estimate(&request(1)), 0.5);
        (0..20).for_each(|_| costs.record(&request(1), 0.1));
        let near = |request: &Request, what: &str| {
            assert!((costs.estimate(request) - 0.1).abs() < 1e-9, "{what}: {}", costs.estimate(request));
        };
        near(&request(2), "by type");
        let other_type = Request { request_type: RequestTypeId(2), url: UrlKey(99), ..Request::default() };
        near(&other_type, "by class");
        near(&Request { class: crate::ClassId(1), ..other_type }, "by application");
    }

    #[test]
    fn the_default_keeps_a_say_over_the_first_samples() {
        let mut costs = Costs::new(64, 3, 2, 0.5);
        costs.record(&request(1), 0.001);
        assert!(costs.estimate(&request(1)) > 0.2, "the first to complete are the smallest");
        (0..20).for_each(|_| costs.record(&request(1), 0.001));
        assert!(costs.estimate(&request(1)) < 0.002);
    }

    #[test]
    fn an_entry_converges_to_its_own_mean() {
        let mut costs = Costs::new(64, 2, 1, 0.5);
        for _ in 0..200 {
            costs.record(&request(1), 0.010);
            costs.record(&request(2), 0.100);
        }
        assert!((costs.estimate(&request(1)) / 0.010 - 1.0).abs() < 0.1, "{}", costs.estimate(&request(1)));
        assert!((costs.estimate(&request(2)) / 0.100 - 1.0).abs() < 0.1, "{}", costs.estimate(&request(2)));
        assert_eq!(costs.urls(), 2);
    }

    #[test]
    fn differences_between_urls_are_learned_whatever_happens_to_all() {
        let mut costs = Costs::new(64, 2, 1, 0.5);
        let mut ratio = |first: f64, second: f64| {
            (0..500).for_each(|_| {
                costs.record(&request(1), first);
                costs.record(&request(2), second);
            });
            costs.estimate(&request(2)) / costs.estimate(&request(1))
        };
        assert!((ratio(0.010, 0.030) / 3.0 - 1.0).abs() < 0.01);
        assert!((ratio(0.040, 0.120) / 3.0 - 1.0).abs() < 0.01, "all four times slower");
        assert!((ratio(0.040, 0.240) / 6.0 - 1.0).abs() < 0.05, "one twice as slow");
    }

    #[test]
    fn noise_does_not_let_all_costs_wander() {
        let mut costs = Costs::new(64, 2, 1, 0.5);
        let mut rng = Rng::new(11);
        for _ in 0..200_000 {
            let sample = -0.010 * libm::log(1.0 - rng.next_f64());
            costs.record(&request(rng.below(5) as u64), sample);
        }
        let mean = costs.mean().unwrap();
        assert!((0.006..0.016).contains(&mean), "{mean}");
    }

    #[test]
    fn the_scale_applies_to_everything() {
        let mut costs = Costs::new(64, 2, 1, 0.5);
        (0..100).for_each(|_| costs.record(&request(1), 0.010));
        costs.set_scale(2.0);
        assert!((costs.estimate(&request(1)) - 0.020).abs() < 1e-9);
        assert!((costs.estimate(&request(9)) - 0.020).abs() < 1e-9);
        assert!((costs.class_mean(0) - 0.020).abs() < 1e-9);
        assert!((costs.relative(&request(1)) - 0.010).abs() < 1e-9);
    }
}
