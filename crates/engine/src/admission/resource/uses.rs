//! Learned resource use: which requests are heavy users of processors, and which of the network.
//!
//! *Intuition.* Grouping documents by the resource that they strain is a chore (the paper's own complaint), and what a
//! URL costs and how long its answers are is known anyway. A request is a heavy user if it uses more than the mean and
//! at least twice what the light ones do: those that use no more than the mean. Half of a load may be heavy then, and a
//! load of which all requests are alike has no heavy ones.
//!
//! *Awkward cases.* A URL that was never seen is judged as its request type is. Costs are the engine's, in seconds of a
//! server's processors; where servers do not measure them they come from response times.

use alloc::string::String;
use alloc::vec::Vec;

use crate::estimate::{Average, CostTable};
use crate::facts::Facts;
use crate::request::{Request, Tags};
use crate::setup::Setup;
use crate::signal::Signal;

/// A heavy user uses at least so many times what light ones do.
const HEAVY: f64 = 2.0;
/// Requests that averages remember, of all and of a URL; and from how many on anybody is judged.
const MEMORY: f64 = 2048.0;
const URL_MEMORY: f64 = 64.0;
const FIRST: f64 = 32.0;
/// URLs whose answers' lengths are known.
const URLS: usize = 4096;

/// Uses of what can be learned.
#[derive(Debug)]
pub(super) struct Uses {
    cpu: Level,
    bytes: Level,
    /// Bytes of answers by URL; made when they are asked for.
    urls: Option<CostTable>,
    types: Vec<TypeUse>,
    tags: Vec<String>,
}

/// Of which resources a request is a heavy user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heavy {
    cpu: bool,
    bytes: bool,
}

/// How much of something requests use.
#[derive(Debug, Default)]
struct Level {
    all: Average,
    /// Of requests that use no more than the mean.
    light: Average,
}

/// What requests of a type use.
#[derive(Debug, Default)]
struct TypeUse {
    name: String,
    requests: u64,
    /// Seconds of processors.
    cpu: Average,
    bytes: Average,
    /// As the last of them had them.
    tags: Tags,
}

impl Heavy {
    /// Whether that is what a signal tells of.
    pub(super) fn strains(self, signal: Signal) -> bool {
        match signal {
            Signal::Cpu | Signal::PressureCpu => self.cpu,
            Signal::NicQueue | Signal::NetSent | Signal::NicDrops => self.bytes,
            _ => false,
        }
    }
}

impl Uses {
    /// `learns`: whether single URLs are to be judged.
    pub(super) fn new(setup: &Setup, learns: bool) -> Uses {
        let urls = learns.then(|| CostTable::new(URLS));
        let mut uses =
            Uses { cpu: Level::default(), bytes: Level::default(), urls, types: Vec::new(), tags: Vec::new() };
        uses.follow(setup);
        uses
    }

    /// The request types may be others now.
    pub(super) fn follow(&mut self, setup: &Setup) {
        let is_same = self.types.iter().map(|kind| &kind.name).eq(&setup.request_types);
        if !is_same {
            let of = |name: &String| TypeUse { name: name.clone(), ..TypeUse::default() };
            self.types = setup.request_types.iter().map(of).collect();
        }
        self.tags.clone_from(&setup.tags);
    }

    /// A request was answered: it is known to cost `cpu` seconds, and its answer had so many bytes.
    pub(super) fn note(&mut self, request: &Request, cpu: f64, bytes: Option<u64>) {
        self.cpu.note(cpu);
        let kind = self.types.get_mut(request.request_type.index());
        let bytes = bytes.map(|bytes| bytes as f64);
        if let Some(kind) = kind {
            kind.requests += 1;
            kind.tags = request.tags;
            kind.cpu.update(cpu, 1.0, MEMORY);
            if let Some(bytes) = bytes {
                kind.bytes.update(bytes, 1.0, MEMORY);
            }
        }
        if let Some(bytes) = bytes {
            self.bytes.note(bytes);
            if let Some(urls) = &mut self.urls {
                urls.entry(request.url).update(bytes, 1.0, URL_MEMORY);
            }
        }
    }

    /// Of what a request that is expected to cost `cpu` seconds is a heavy user; nothing where that is not asked for.
    pub(super) fn heavy(&self, request: &Request, cpu: f64) -> Heavy {
        let Some(urls) = &self.urls else { return Heavy::default() };
        let kind = || self.types.get(request.request_type.index()).and_then(|kind| kind.bytes.get());
        let bytes = urls.get(request.url).and_then(Average::get).or_else(kind);
        Heavy { cpu: self.cpu.is_heavy(cpu), bytes: bytes.is_some_and(|bytes| self.bytes.is_heavy(bytes)) }
    }

    /// What each request type uses, and the tags that follow for resources of these names and signals.
    pub(super) fn describe<'a>(&self, resources: impl Iterator<Item = (&'a str, Signal)> + Clone) -> Vec<Facts> {
        let describe = |kind: &TypeUse| {
            let is_heavy = |level: &Level, use_of: &Average| use_of.get().is_some_and(|use_of| level.is_heavy(use_of));
            let heavy = Heavy { cpu: is_heavy(&self.cpu, &kind.cpu), bytes: is_heavy(&self.bytes, &kind.bytes) };
            let has = |at: &usize| u8::try_from(*at).is_ok_and(|at| kind.tags.contains(at));
            let proposed = resources.clone().filter(|(_, signal)| heavy.strains(*signal));
            let tags = (0..self.tags.len()).filter(has).map(|at| self.tags[at].clone());
            Facts::new("use-state")
                .with("request_type", kind.name.clone())
                .with("requests", kind.requests)
                .with("cpu_seconds", kind.cpu.get())
                .with("bytes", kind.bytes.get())
                .with("tags", tags.collect::<Vec<_>>())
                .with("proposed", proposed.map(|(name, _)| String::from(name)).collect::<Vec<_>>())
        };
        self.types.iter().filter(|kind| kind.requests > 0).map(describe).collect()
    }
}

impl Level {
    fn note(&mut self, amount: f64) {
        self.all.update(amount, 1.0, MEMORY);
        if self.all.get().is_some_and(|mean| amount <= mean) {
            self.light.update(amount, 1.0, MEMORY);
        }
    }

    fn is_heavy(&self, amount: f64) -> bool {
        let (Some(mean), Some(light)) = (self.all.get(), self.light.get()) else { return false };
        self.all.weight() >= FIRST && amount > mean && amount >= HEAVY * light
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Fact;
    use crate::request::{RequestTypeId, UrlKey};
    use crate::setup::ServerSetup;
    use crate::sla::{Sla, Statistic};
    use core::time::Duration;

    fn uses(learns: bool) -> Uses {
        let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("more than zero");
        let mut setup = Setup::simple("bench", sla, [ServerSetup::new("one")]);
        setup.request_types = ["other", "scripts", "downloads"].map(String::from).to_vec();
        setup.tags = ["cpu", "link"].map(String::from).to_vec();
        Uses::new(&setup, learns)
    }

    fn request(kind: u16) -> Request {
        let url = UrlKey(u64::from(kind) << 32 | u64::from(kind));
        Request { request_type: RequestTypeId(kind), url, tags: Tags(u64::from(kind) & 1), ..Request::default() }
    }

    /// Of ten requests five are scripts, one is a download.
    fn fill(uses: &mut Uses) {
        for at in 0..400u64 {
            match at % 10 {
                0..=4 => uses.note(&request(1), 0.010, Some(2_000)),
                5 => uses.note(&request(2), 0.001, Some(140_000)),
                _ => uses.note(&request(0), 0.001, Some(8_000)),
            }
        }
    }

    #[test]
    fn tags_are_proposed_by_what_types_use() {
        let mut uses = uses(false);
        uses.note(&request(1), 1.0, Some(1));
        let resources = [("cpu", Signal::Cpu), ("link", Signal::NicQueue), ("memory", Signal::Memory)];
        let proposed = |kind: &Facts| kind.get("proposed").cloned();
        assert_eq!(proposed(&uses.describe(resources.into_iter())[0]), Some(Fact::List(Vec::new())), "one is too few");
        fill(&mut uses);
        let all = uses.describe(resources.into_iter());
        let shown: Vec<_> =
            all.iter().map(|kind| (kind.text("request_type"), kind.get("tags").cloned(), proposed(kind))).collect();
        let none = || Some(Fact::List(Vec::new()));
        let only = |name: &'static str| Some(Fact::from(alloc::vec![name]));
        let scripts = (Some("scripts"), only("cpu"), only("cpu"));
        assert_eq!(shown, [(Some("other"), none(), none()), scripts, (Some("downloads"), none(), only("link"))]);
        assert_eq!((all[2].count("requests"), all[2].number("bytes")), (Some(40), Some(140_000.0)));
        assert_eq!(uses.heavy(&request(2), 1.0), Heavy::default(), "nothing is applied that was not asked for");
    }

    #[test]
    fn urls_are_judged_by_their_own_answers_and_unknown_ones_as_their_type() {
        let mut uses = uses(true);
        fill(&mut uses);
        let bytes = |url: u64, kind: u16| uses.heavy(&Request { url: UrlKey(url), ..request(kind) }, 0.001);
        assert_eq!(bytes(2 << 32 | 2, 0), Heavy { cpu: false, bytes: true }, "by its URL");
        assert_eq!(bytes(77 << 32, 2), Heavy { cpu: false, bytes: true }, "by its type");
        assert_eq!(bytes(77 << 32, 0), Heavy::default());
        assert_eq!(uses.heavy(&request(1), 0.010), Heavy { cpu: true, bytes: false });
        assert!(Heavy { cpu: true, bytes: false }.strains(Signal::Cpu));
        assert!(!Heavy { cpu: true, bytes: true }.strains(Signal::Memory));
    }

    #[test]
    fn where_all_are_alike_nobody_is_heavy() {
        let mut uses = uses(true);
        (0..500u64).for_each(|at| uses.note(&request(0), 0.001 + 1e-5 * (at % 7) as f64, Some(1000 + at % 13)));
        assert_eq!(uses.heavy(&request(0), 0.00107), Heavy::default());
    }
}
