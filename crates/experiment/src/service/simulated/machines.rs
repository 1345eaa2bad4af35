//! From what a scenario file says of machines and clients to a world's models. Names were checked when it was read.

use tidegate_engine::Open;
use tidegate_sim::{
    Action, Fault, FaultKind, Host, Lasting, Power, Program, Resource, SentryFleet, ServerModel, Sessions, Step, Tier,
    Url, Users, World,
};

use crate::configure;
use crate::scenario;
use crate::scenario::Scenario;

/// Puts machines, users and what happens to them into a world.
pub(super) fn furnish(world: &mut World, scenario: &Scenario) {
    world.servers = front(&scenario.servers);
    for (at, tier) in scenario.tiers.iter().enumerate() {
        if let Some(lends) = tier.lends {
            lend(world, &scenario.servers, at, tier, lends);
        }
    }
    // Program 0 is empty; then one for each tier, then one for each request type.
    world.programs = vec![Program::default()];
    let resources = |tier: &scenario::Tier| tier.resources.clone();
    for tier in &scenario.tiers {
        world.programs.push(program(scenario, &tier.steps, &resources(tier)));
    }
    for request in &scenario.requests {
        world.programs.push(program(scenario, &request.steps, &scenario.servers.resources));
    }
    world.tiers = scenario.tiers.iter().map(tier).collect();
    world.users = scenario.users.iter().map(|group| users(scenario, group)).collect();
    world.sessions = scenario.sessions.iter().map(|group| sessions(scenario, group)).collect();
    world.link = scenario.link;
    world.sentry = scenario.sentry;
    world.fleet = scenario.fleet.as_ref().filter(|fleet| !fleet.absent).map(|fleet| SentryFleet {
        sentries: fleet.sentries,
        exchange: fleet.exchange,
        split: (0..scenario.loads.len()).map(|load| fleet.of_load(load)).collect(),
        parted: Vec::new(),
        away: Vec::new(),
    });
    world.channel = scenario.reports.unwrap_or_default();
    world.faults = scenario.faults.iter().map(|fault| self::fault(scenario, fault)).collect();
    world.patience = scenario.timeout;
    world.holds_bodies = scenario.holds_bodies;
    world.tells_tenants = scenario.tells_tenants;
}

/// The URLs of a request type within a class, each with its part of `weight`.
pub(super) fn urls(scenario: &Scenario, class: usize, name: &str, weight: f64) -> Vec<Url> {
    let Some(at) = scenario.request_index(name) else { return Vec::new() };
    let request = &scenario.requests[at];
    let program = if request.steps.is_empty() { 0 } else { 1 + scenario.tiers.len() + at };
    let tags = configure::tags_of(scenario, at);
    let url = |number: u32| Url {
        // One class's URLs are not another's: the class is read from the URL.
        tags,
        key: ((class as u64) << 40) | ((at as u64 + 1) << 20) | u64::from(number),
        request_type: at as u16 + 1,
        weight: weight / f64::from(request.urls),
        cost: request.service,
        degrades_to: request.degrades_to,
        program: program as u16,
        bytes: request.response_bytes,
        lasts: request.lasts.map(lasting),
    };
    (0..request.urls).map(url).collect()
}

fn lasting(lasts: scenario::Lasts) -> Lasting {
    let kind = match lasts.kind {
        scenario::LastsAs::Stream => Open::Stream,
        scenario::LastsAs::Poll => Open::Poll,
    };
    Lasting { kind, time: lasts.time, told: lasts.told }
}

fn front(servers: &scenario::Servers) -> Vec<ServerModel> {
    let model = ServerModel {
        abandoned: servers.abandoned,
        limit: servers.limit,
        backlog: servers.backlog,
        knee: servers.knee,
        resources: servers.resources.iter().map(resource).collect(),
        card: servers.resource_index(scenario::CARD).map(|at| at + 1),
        power: servers.power,
        setup_time: servers.setup_time,
        warm_up: servers.warm_up,
        ..ServerModel::new(f64::from(servers.cores), servers.discipline)
    };
    let on = servers.count - servers.off;
    (0..servers.count).map(|at| ServerModel { off: at >= on, ..model.clone() }).collect()
}

/// A tier's servers stand behind the sentry too. The machine's idle power is counted with the tier.
fn lend(world: &mut World, servers: &scenario::Servers, at: usize, tier: &scenario::Tier, lends: scenario::Lends) {
    let demands = world.setup.demands();
    let divided = demands.cores || !demands.lenders;
    let model = ServerModel {
        abandoned: servers.abandoned,
        resources: servers.resources.iter().map(resource).collect(),
        power: tier.power.filter(|_| divided).map(|power| Power {
            idle: 0.0,
            peak: power.peak - power.idle,
            setup: Some(0.0),
        }),
        pace: lends.speed,
        ..ServerModel::new(f64::from(tier.cores), tier.discipline)
    };
    for server in 0..tier.count {
        world.hosts.push(Host {
            front: world.servers.len(),
            tier: at,
            server,
            divided,
            interference: lends.interference,
        });
        world.servers.push(model.clone());
    }
}

fn tier(tier: &scenario::Tier) -> Tier {
    let model = ServerModel {
        limit: tier.limit,
        backlog: tier.backlog,
        knee: tier.knee,
        resources: tier.resources.iter().map(resource).collect(),
        power: tier.power,
        contention: tier.contention,
        ..ServerModel::new(f64::from(tier.cores), tier.discipline)
    };
    Tier { name: tier.name.clone(), servers: vec![model; tier.count], latency: tier.latency, sentry: None }
}

fn program(scenario: &Scenario, steps: &[scenario::Use], resources: &[scenario::Resource]) -> Program {
    let index = |name: &str| resources.iter().position(|resource| resource.name == name).map_or(0, |at| at + 1);
    let step = |step: &scenario::Use| {
        let tier = step.tier.as_ref().and_then(|name| scenario.tier_index(name));
        let what = match tier {
            Some(tier) => Action::Call {
                tier,
                calls: step.calls,
                parallel: step.parallel,
                work: step.amount,
                program: if scenario.tiers[tier].steps.is_empty() { 0 } else { tier + 1 },
                pool: step.pool.as_deref().map(index),
            },
            None => Action::Use { resource: step.resource.as_deref().map_or(0, index), amount: step.amount },
        };
        Step { what, overlap: step.overlap }
    };
    Program { steps: steps.iter().map(step).collect() }
}

fn users(scenario: &Scenario, users: &tidegate_workload::Users) -> Users {
    let class = scenario.class_index(&users.class).unwrap_or_default();
    let types: Vec<&str> = scenario.requests.iter().map(|request| request.name.as_str()).collect();
    let start: Vec<f64> = types.iter().map(|name| users.requests.get(*name).copied().unwrap_or(0.0)).collect();
    let sum: f64 = start.iter().sum();
    let row = |from: &&str| -> Vec<f64> {
        if users.next.is_empty() {
            // A little more than 1 in all, so that rounding ends no session.
            return start.iter().map(|weight| weight / sum * (1.0 + 1e-9)).collect();
        }
        let row = users.next.get(*from);
        types.iter().map(|to| row.and_then(|row| row.get(*to)).copied().unwrap_or(0.0)).collect()
    };
    Users {
        class: class as u8,
        count: users.count,
        from: users.from,
        until: users.until.unwrap_or(scenario.duration),
        think: users.think,
        states: types.iter().map(|name| urls(scenario, class, name, 1.0)).collect(),
        next: types.iter().map(row).collect(),
        start,
        pause: users.pause.unwrap_or(users.think),
        retry: users.retry,
    }
}

fn sessions(scenario: &Scenario, sessions: &tidegate_workload::Sessions) -> Sessions {
    let class = scenario.class_index(&sessions.class).unwrap_or_default();
    let urls = sessions.types().map(|name| urls(scenario, class, name, 1.0));
    Sessions { class: class as u8, source: sessions.clone(), urls }
}

fn fault(scenario: &Scenario, fault: &scenario::Fault) -> Fault {
    let what = match fault.kind {
        scenario::FaultKind::Fail => FaultKind::Fail,
        scenario::FaultKind::Recover => FaultKind::Recover,
        scenario::FaultKind::Slow => FaultKind::Speed(fault.speed.unwrap_or(1.0)),
        scenario::FaultKind::Start => FaultKind::Start,
        scenario::FaultKind::Stop => FaultKind::Stop,
    };
    let tier = fault.tier.as_ref().and_then(|name| scenario.tier_index(name));
    Fault { at: fault.at, tier, server: fault.server, what, noticed_after: fault.noticed_after }
}

fn resource(resource: &scenario::Resource) -> Resource {
    match resource.tokens {
        Some(tokens) => Resource::Pool { tokens },
        None => {
            Resource::Station { units: f64::from(resource.units), discipline: resource.discipline, rate: resource.rate }
        }
    }
}
