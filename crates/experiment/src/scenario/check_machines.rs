//! Checks of machines and users: numbers that must make sense, names that must exist.

use tidegate_config::Place;
use tidegate_config::Step::{Index, Key};
use tidegate_sim::{Knee, Power};
use tidegate_workload::{Retry, Wait};

use super::check::{Checker, classes};
use super::machines::CORES;
use super::{FaultKind, Resource, Use};

const AT_LEAST_ONE: &str = "must be at least 1";

impl Checker<'_> {
    pub(super) fn machines(&mut self) {
        let s = self.scenario;
        let place = |key| vec![Key("servers"), Key(key)];
        self.machine(&place, s.servers.limit, s.servers.knee, s.servers.power, &s.servers.resources);
        self.demand(s.servers.off < s.servers.count.max(1), &place("off"), "must leave one server that is on");
        if let Some(warm_up) = s.servers.warm_up {
            self.demand(is_positive(warm_up.speed), &place("warm_up"), "its `speed` must be more than 0");
        }
        self.names("tier", s.tiers.iter().map(|tier| tier.name.as_str()));
        for (at, tier) in s.tiers.iter().enumerate() {
            let place = |key| vec![Key("tier"), Index(at), Key(key)];
            self.demand((1..=1000).contains(&tier.count), &place("count"), "must be 1 to 1000");
            self.demand(tier.cores >= 1, &place("cores"), AT_LEAST_ONE);
            self.machine(&place, tier.limit, tier.knee, tier.power, &tier.resources);
            self.demand(is_at_least_0(tier.contention), &place("contention"), "must be a finite number, 0 or more");
            let good = tier.sentry.is_none_or(|sentry| !sentry.target.is_zero());
            self.demand(good, &place("sentry"), "its `target` must be more than 0");
            let one = tier.sentry.is_none() || tier.lends.is_none();
            self.demand(one, &place("sentry"), "and `lends` do not go together");
            let good = tier.lends.is_none_or(|lends| is_positive(lends.speed) && is_at_least_0(lends.interference));
            self.demand(good, &place("lends"), "`speed` must be above 0, `interference` 0 or more");
            self.demand(tier.lends.is_none() || tier.cores >= 2, &place("lends"), "needs two cores at least to divide");
            // Only later ones, so that no call comes back to where it started.
            let below: Vec<&str> = s.tiers[at + 1..].iter().map(|tier| tier.name.as_str()).collect();
            self.steps(&place, &tier.steps, &tier.resources, &below);
        }
        let tiers: Vec<&str> = s.tiers.iter().map(|tier| tier.name.as_str()).collect();
        for (at, request) in s.requests.iter().enumerate() {
            let place = |key| vec![Key("request"), Index(at), Key(key)];
            self.steps(&place, &request.steps, &s.servers.resources, &tiers);
        }
        self.around();
        (0..s.faults.len()).for_each(|at| self.fault(at));
    }

    pub(super) fn users(&mut self) {
        let s = self.scenario;
        let labels = s.loads.iter().map(|load| load.label()).chain(s.users.iter().map(|users| users.label()));
        let mut labels: Vec<&str> = labels.collect();
        let types: Vec<&str> = s.requests.iter().map(|request| request.name.as_str()).collect();
        for (at, users) in s.users.iter().enumerate() {
            let place = |key| vec![Key("users"), Index(at), Key(key)];
            let label = users.label();
            let twice = labels.iter().filter(|name| **name == label).count() > 1;
            self.demand(!twice, &place("name"), &format!("\"{label}\" is there twice: names must differ"));
            labels.retain(|name| *name != label);
            self.known(place("class"), "class", &users.class, &classes(s));
            self.demand(users.count >= 1, &place("count"), AT_LEAST_ONE);
            let takes_time = users.think.mean() > 0.0 && users.pause.is_none_or(|pause| pause.mean() > 0.0);
            self.demand(
                takes_time,
                &place("think"),
                "`think` and `pause` must be more than 0: refused users would spin",
            );
            let until = users.until.unwrap_or(s.duration);
            self.demand(users.from < until, &place("from"), "must be before `until` and the scenario's end");
            self.demand(until <= s.duration, &place("until"), "is after the scenario's `duration`");
            self.demand(!users.requests.is_empty(), &place("requests"), "needs at least one request type");
            for (name, weight) in &users.requests {
                self.known(place("requests"), "request type", name, &types);
                let problem = format!("the weight of \"{name}\" must be more than 0");
                self.demand(is_positive(*weight), &place("requests"), &problem);
            }
            for (from, row) in &users.next {
                self.known(place("next"), "request type", from, &types);
                row.keys().for_each(|to| self.known(place("next"), "request type", to, &types));
                let good = row.values().all(|p| (0.0..=1.0).contains(p)) && row.values().sum::<f64>() <= 1.0 + 1e-9;
                let problem = format!("the probabilities after \"{from}\" must be 0 to 1, and 1 at most together");
                self.demand(good, &place("next"), &problem);
            }
            self.retry(place("retry"), users.retry.as_ref());
        }
    }

    pub(super) fn retry(&mut self, place: Place, retry: Option<&Retry>) {
        let Some(retry) = retry else { return };
        self.demand(retry.tries >= 1, &place, "its `tries` must be at least 1: the first counts");
        let own = (retry.wait == Wait::Own) == retry.time.is_some();
        self.demand(own, &place, "`wait = \"own\"` and `time` go together");
        self.demand(is_at_least_0(retry.jitter), &place, "its `jitter` must be a finite number, 0 or more");
    }

    pub(super) fn provision(&mut self) {
        let s = self.scenario;
        self.names("application", s.applications.iter().map(|application| application.name.as_str()));
        let known: Vec<&str> = s.applications.iter().map(|application| application.name.as_str()).collect();
        for (at, class) in s.classes.iter().enumerate() {
            if let Some(name) = &class.application {
                self.known(vec![Key("class"), Index(at), Key("application")], "application", name, &known);
            }
        }
        for at in 0..s.applications.len() {
            let has_class = s.classes.iter().any(|class| s.application_of(&class.name) == at);
            self.demand(has_class, &[Key("application"), Index(at)], "needs a class: nothing could arrive");
        }
        let Some(provision) = s.provision else {
            self.demand(s.applications.is_empty(), &[Key("application")], "applications share servers by `provision`");
            return;
        };
        let place = |key| vec![Key("provision"), Key(key)];
        self.demand(provision.every.as_secs() >= 1, &place("every"), "must be at least 1s");
        self.demand((1..=16).contains(&provision.max_sentries), &place("max_sentries"), "must be 1 to 16");
        let plain = s.users.is_empty() && s.faults.is_empty();
        self.demand(plain, &place("every"), "`users` and `fault` do not go together with `provision`");
        // Every sentry is a run of its own, with tiers of its own.
        let alone = s.tiers.is_empty() || (s.applications.len() <= 1 && provision.max_sentries == 1);
        let what = "must be 1, and `application` at most one, beside a `tier`: sentries would not share it";
        self.demand(alone, &place("max_sentries"), what);
        let given: u64 = s.all_applications().iter().map(|application| u64::from(application.servers)).sum();
        let enough = given <= s.servers.count as u64;
        self.demand(enough, &[Key("application")], "the applications begin with more servers than there are");
    }

    fn machine(
        &mut self,
        place: &impl Fn(&'static str) -> Place,
        limit: Option<u32>,
        knee: Option<Knee>,
        power: Option<Power>,
        resources: &[Resource],
    ) {
        self.demand(limit != Some(0), &place("limit"), "must be at least 1: nothing would be served");
        let good = knee.is_none_or(|knee| is_at_least_0(knee.loss));
        self.demand(good, &place("knee"), "its `loss` must be a finite number, 0 or more");
        let good = |power: Power| {
            is_at_least_0(power.idle) && is_at_least_0(power.peak) && power.setup.is_none_or(is_at_least_0)
        };
        self.demand(power.is_none_or(good), &place("power"), "must be finite numbers of watts, 0 or more");
        for (at, resource) in resources.iter().enumerate() {
            let place = [place("resource"), vec![Index(at)]].concat();
            let twice = resources[..at].iter().any(|other| other.name == resource.name) || resource.name == CORES;
            self.demand(!twice, &place, &format!("the name \"{}\" is taken", resource.name));
            self.name([place.clone(), vec![Key("name")]].concat(), &resource.name);
            self.demand(resource.units >= 1, &place, "its `units` must be at least 1");
            self.demand(is_positive(resource.rate), &place, "its `rate` must be a finite number above 0");
            self.demand(resource.tokens != Some(0), &place, "its `tokens` must be at least 1");
        }
    }

    fn steps(&mut self, place: &impl Fn(&'static str) -> Place, steps: &[Use], resources: &[Resource], tiers: &[&str]) {
        let names = |pools: bool| resources.iter().filter(move |r| r.is_pool() == pools).map(|r| r.name.as_str());
        let stations: Vec<&str> = std::iter::once(CORES).chain(names(false)).collect();
        let pools: Vec<&str> = names(true).collect();
        for (at, step) in steps.iter().enumerate() {
            let place = |key| [place("step"), vec![Index(at), Key(key)]].concat();
            let one = step.resource.is_some() != step.tier.is_some();
            self.demand(one, &place("resource"), "a step needs either `resource` or `tier`");
            if let Some(resource) = &step.resource {
                self.known(place("resource"), "resource", resource, &stations);
                let plain = step.calls == 1 && !step.parallel && step.pool.is_none();
                self.demand(plain, &place("calls"), "`calls`, `parallel` and `pool` are for calls of a `tier`");
            }
            if let Some(tier) = &step.tier {
                self.known(place("tier"), "tier (further back)", tier, tiers);
                self.demand(step.calls >= 1, &place("calls"), AT_LEAST_ONE);
            }
            if let Some(pool) = &step.pool {
                self.known(place("pool"), "pool", pool, &pools);
            }
        }
    }

    /// The link, the sentry, and the reports.
    fn around(&mut self) {
        let s = self.scenario;
        if let Some(link) = s.link {
            let place = [Key("link"), Key("rate")];
            self.demand(
                link.rate.is_none_or(is_positive),
                &place,
                "must be a finite number of bytes per second above 0",
            );
        }
        if let Some(sentry) = s.sentry {
            self.demand(sentry.workers >= 1, &[Key("sentry"), Key("workers")], AT_LEAST_ONE);
            let every = [Key("sentry"), Key("report_every")];
            self.demand(sentry.report_every.as_millis() >= 1, &every, "must be at least 1ms");
        }
        if let Some(reports) = s.reports {
            let good = (0.0..=1.0).contains(&reports.loss);
            self.demand(good, &[Key("reports"), Key("loss")], "must be 0 to 1");
        }
    }

    fn fault(&mut self, at: usize) {
        let s = self.scenario;
        let fault = &s.faults[at];
        let place = |key| vec![Key("fault"), Index(at), Key(key)];
        let tiers: Vec<&str> = s.tiers.iter().map(|tier| tier.name.as_str()).collect();
        let mut count = s.front_servers();
        if let Some(name) = &fault.tier {
            self.known(place("tier"), "tier", name, &tiers);
            count = s.tier_index(name).map_or(0, |at| s.tiers[at].count);
        }
        let known = fault.server < count;
        self.demand(known, &place("server"), &format!("there is no server {} among {count}, from 0", fault.server));
        self.demand(fault.at <= s.duration, &place("at"), "is after the scenario's `duration`");
        let slow = fault.kind == FaultKind::Slow;
        self.demand(slow == fault.speed.is_some(), &place("speed"), "`kind = \"slow\"` and `speed` go together");
        self.demand(fault.speed.is_none_or(is_positive), &place("speed"), "must be a finite number above 0");
    }
}

fn is_positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn is_at_least_0(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}
