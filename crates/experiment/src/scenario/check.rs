//! What the types of a scenario cannot say: names that must exist, numbers that must make sense.

use std::collections::BTreeSet;

use tidegate_config::Step::{Index, Key};
use tidegate_config::{Found, Place, Step, suggestion};

use super::{Metric, Scenario};

const STATISTICS: [&str; 4] = ["mean", "p90", "p95", "p99"];

/// Everything that makes no sense, with its place.
pub(super) fn problems(scenario: &Scenario) -> Vec<Found> {
    let mut checker = Checker { scenario, found: Vec::new() };
    checker.whole();
    checker.sla();
    checker.classes_and_requests();
    checker.machines();
    checker.max_conn();
    checker.sessions();
    checker.fleet();
    checker.provision();
    checker.loads();
    checker.clients();
    checker.users();
    checker.arms();
    checker.cooperation();
    checker.space();
    checker.curves();
    (0..scenario.expects.len()).for_each(|at| checker.expect(at));
    checker.found
}

pub(super) struct Checker<'s> {
    pub(super) scenario: &'s Scenario,
    found: Vec<Found>,
}

impl Checker<'_> {
    fn whole(&mut self) {
        let s = self.scenario;
        self.name(vec![Key("id")], &s.id);
        self.demand(!s.duration.is_zero(), &[Key("duration")], "must be more than 0: nothing would arrive");
        self.demand(!s.timeout.is_zero(), &[Key("timeout")], "must be more than 0: no answer could come in time");
        self.demand((1..=1000).contains(&s.servers.count), &[Key("servers"), Key("count")], "must be 1 to 1000");
        self.demand(s.servers.cores >= 1, &[Key("servers"), Key("cores")], "must be at least 1");
        let Some(short) = &s.short else { return };
        let good = short.time_scale > 0.0 && short.time_scale <= 1.0;
        self.demand(good, &[Key("short"), Key("time_scale")], "must be more than 0 and at most 1");
        self.demand(short.every != Some(0), &[Key("short"), Key("every")], "must be at least 1");
        let thins = short.every.is_none() || s.space.is_some();
        self.demand(thins, &[Key("short"), Key("every")], "goes with [space]: there are no loads to leave out");
        for (at, arm) in short.arms.iter().enumerate() {
            self.known(vec![Key("short"), Key("arms"), Index(at)], "arm", arm, &arms(s));
        }
    }

    fn sla(&mut self) {
        let sla = &self.scenario.sla;
        self.known(vec![Key("sla"), Key("statistic")], "statistic", &sla.statistic, &STATISTICS);
        let one = sla.target.is_some() == sla.steps.is_empty();
        self.demand(one, &[Key("sla")], "needs either `target` or `steps`");
        self.demand(sla.target.is_none_or(|t| !t.is_zero()), &[Key("sla"), Key("target")], "must be more than 0");
        let mut reached = 0.0;
        for (at, step) in sla.steps.iter().enumerate() {
            let place = [Key("sla"), Key("steps"), Index(at)];
            let last = at + 1 == sla.steps.len();
            self.demand(!step.target.is_zero(), &place, "its `target` must be more than 0");
            self.demand(
                step.below.is_none() == last,
                &place,
                "every step but the last needs `below`, the last has none",
            );
            let below = step.below.map_or(f64::INFINITY, |below| below.per_second());
            self.demand(below > reached, &place, "its `below` must be above that of the step before");
            reached = below;
        }
    }

    fn classes_and_requests(&mut self) {
        let s = self.scenario;
        self.demand((1..=255).contains(&s.classes.len()), &[Key("class")], "there must be 1 to 255 classes");
        self.names("class", s.classes.iter().map(|class| class.name.as_str()));
        for (at, class) in s.classes.iter().enumerate() {
            let good = class.revenue.is_finite();
            self.demand(good, &[Key("class"), Index(at), Key("revenue")], "must be a finite number");
        }
        self.demand(!s.requests.is_empty(), &[Key("request")], "there must be at least one request type");
        self.names("request", s.requests.iter().map(|request| request.name.as_str()));
        for (at, request) in s.requests.iter().enumerate() {
            let good = (1..=10_000).contains(&request.urls);
            self.demand(good, &[Key("request"), Index(at), Key("urls")], "must be 1 to 10000");
            let good = (0.0..=1.0).contains(&request.degrades_to);
            self.demand(good, &[Key("request"), Index(at), Key("degrades_to")], "must be 0 to 1");
        }
    }

    fn loads(&mut self) {
        let s = self.scenario;
        let someone = !s.loads.is_empty() || !s.users.is_empty() || !s.sessions.is_empty();
        let must = "there must be at least one load (or users, or sessions): nothing would arrive";
        self.demand(someone, &[Key("load")], must);
        let sessions: Vec<String> = s.sessions.iter().flat_map(|sessions| sessions.labels()).collect();
        self.unique("load", s.loads.iter().map(|load| load.label()).chain(sessions.iter().map(String::as_str)));
        let known: Vec<&str> = s.requests.iter().map(|request| request.name.as_str()).collect();
        for (at, load) in s.loads.iter().enumerate() {
            let place = |key| vec![Key("load"), Index(at), Key(key)];
            self.known(place("class"), "class", &load.class, &classes(s));
            self.demand(!load.requests.is_empty(), &place("requests"), "needs at least one request type");
            for (name, weight) in &load.requests {
                self.known(place("requests"), "request type", name, &known);
                let good = weight.is_finite() && *weight > 0.0;
                self.demand(good, &place("requests"), &format!("the weight of \"{name}\" must be more than 0"));
            }
            let sends = load.rate.expected_until(s.duration) > 0.0;
            self.demand(sends, &place("rate"), "is 0 for the whole duration: nothing would arrive");
            self.retry(place("retry"), load.retry.as_ref());
            let waits = load.deadline.is_none_or(|deadline| !deadline.is_zero());
            self.demand(waits, &place("deadline"), "must be more than 0");
        }
    }

    fn arms(&mut self) {
        let s = self.scenario;
        self.demand(!s.arms.is_empty(), &[Key("arm")], "there must be at least one arm: nothing would be run");
        self.names("arm", s.arms.iter().map(|arm| arm.name.as_str()));
    }

    fn expect(&mut self, at: usize) {
        let s = self.scenario;
        let expect = &s.expects[at];
        let place = |key| vec![Key("expect"), Index(at), Key(key)];
        for (number, arm) in expect.arms.iter().enumerate() {
            self.known([place("arms"), vec![Index(number)]].concat(), "arm", arm, &arms(s));
        }
        if let Some(class) = &expect.class {
            self.known(place("class"), "class", class, &classes(s));
            self.demand(expect.load.is_none(), &place("load"), "stands beside `class`: give one of them");
        }
        if let Some(load) = &expect.load {
            let names = self.load_names();
            let known: Vec<&str> = names.iter().map(String::as_str).collect();
            self.known(place("load"), "load", load, &known);
        }
        if let Some(request) = &expect.request {
            let known: Vec<&str> = s.requests.iter().map(|request| request.name.as_str()).collect();
            self.known(place("request"), "request type", request, &known);
            let alone = expect.class.is_none() && expect.load.is_none();
            self.demand(alone, &place("request"), "stands beside `class` or `load`: give one of them");
        }
        let good = expect.request.is_none() || expect.metric != Metric::InFlight;
        self.demand(good, &place("metric"), "is kept by load and class: give one of them in place of `request`");
        let whole = expect.class.is_none() && expect.load.is_none() && expect.request.is_none();
        let good = whole || expect.metric != Metric::AtWorkMost;
        self.demand(good, &place("metric"), "is about servers: leave `class`, `load` and `request` away");
        let has_class = expect.class.is_some() || !expect.metric.is_of_partition();
        self.demand(has_class, &place("metric"), "is about the servers of a class: add `class`");
        let fits = expect.resource.is_some() == expect.metric.is_of_resource();
        self.demand(fits, &place("metric"), "and `resource` go together: give both or none of them");
        self.demand(expect.over.to <= s.duration, &place("over"), "ends after the scenario's `duration`");
        let within = expect.relative_to.is_none_or(|span| span.to <= s.duration);
        self.demand(within, &place("relative_to"), "ends after the scenario's `duration`");
        self.demand(expect.window.as_secs() >= 1, &place("window"), "must be at least 1s: results are kept by second");
        self.bounds(at);
    }

    fn bounds(&mut self, at: usize) {
        let expect = &self.scenario.expects[at];
        let place = |key| [Key("expect"), Index(at), Key(key)];
        if expect.at_least.is_none() && expect.at_most.is_none() {
            self.add(&[Key("expect"), Index(at)], "needs `at_least` or `at_most`: it could not fail");
        }
        let possible = |bound: f64| {
            let is_share = expect.metric.is_share() && !expect.is_ratio();
            let is_difference = expect.minus_arm.is_some();
            bound.is_finite() && (is_difference || bound >= 0.0) && (!is_share || bound <= 1.0)
        };
        let must = if expect.metric.is_share() { "must be 0 to 1" } else { "must be a finite number, 0 or more" };
        self.demand(expect.at_least.is_none_or(possible), &place("at_least"), must);
        self.demand(expect.at_most.is_none_or(possible), &place("at_most"), must);
        let good = expect.tolerance.is_finite() && expect.tolerance >= 0.0;
        self.demand(good, &place("tolerance"), "must be a finite number, 0 or more");
        if let (Some(least), Some(most)) = (expect.at_least, expect.at_most) {
            self.demand(least <= most, &place("at_least"), "is above `at_most`: nothing could be within");
        }
    }

    /// Names of one kind: fit for a URL, and each there once.
    pub(super) fn names<'n>(&mut self, kind: &'static str, names: impl Iterator<Item = &'n str> + Clone) {
        for (at, name) in names.clone().enumerate() {
            self.name(vec![Key(kind), Index(at), Key("name")], name);
        }
        self.unique(kind, names);
    }

    pub(super) fn unique<'n>(&mut self, kind: &'static str, names: impl Iterator<Item = &'n str>) {
        let mut seen = BTreeSet::new();
        for (at, name) in names.enumerate() {
            let place = [Key(kind), Index(at), Key("name")];
            self.demand(seen.insert(name), &place, &format!("\"{name}\" is there twice: names must differ"));
        }
    }

    pub(super) fn name(&mut self, place: Place, name: &str) {
        let good = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        self.demand(good, &place, "must be made of letters, digits, \"-\" and \"_\"");
    }

    /// The names of all that is sent.
    pub(super) fn load_names(&self) -> Vec<String> {
        let s = self.scenario;
        let loads = s.loads.iter().map(|load| load.label()).chain(s.users.iter().map(|users| users.label()));
        let sessions = s.sessions.iter().flat_map(|sessions| sessions.labels());
        loads.map(str::to_owned).chain(sessions).collect()
    }

    pub(super) fn known(&mut self, place: Place, kind: &str, name: &str, known: &[&str]) {
        let hint = suggestion(name, known);
        self.demand(known.contains(&name), &place, &format!("there is no {kind} \"{name}\"{hint}"));
    }

    pub(super) fn demand(&mut self, good: bool, place: &[Step<'static>], problem: &str) {
        if !good {
            self.add(place, problem);
        }
    }

    pub(super) fn add(&mut self, place: &[Step<'static>], problem: &str) {
        self.found.push(Found { place: place.to_vec(), problem: problem.to_owned() });
    }
}

fn arms(scenario: &Scenario) -> Vec<&str> {
    scenario.arms.iter().map(|arm| arm.name.as_str()).collect()
}

pub(super) fn classes(scenario: &Scenario) -> Vec<&str> {
    scenario.classes.iter().map(|class| class.name.as_str()).collect()
}
