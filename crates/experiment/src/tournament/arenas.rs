//! The arenas: a family that was thought of, and as many as one likes that are drawn.

use std::time::Duration;

use tidegate_sim::{Discipline, Knee};
use tidegate_workload::ServiceTime;

use super::arena::{Arena, Leaves, Load, profile_of};

/// The arenas that were thought of.
pub fn known() -> Vec<Arena> {
    [loads(), servers(), costs(), clients()].concat()
}

fn service(time: Result<ServiceTime, tidegate_workload::ServiceTimeError>) -> ServiceTime {
    time.unwrap_or_else(|error| unreachable!("a service time of ours: {error}"))
}

/// From 0.8 times the capacity of [`Arena::four`] to `times`, after eight seconds.
fn step(name: &str, times: f64) -> Arena {
    let arena = Arena::four(name, &format!("0s:80/s, 8s:{}/s", times * 100.0), 40, 8);
    Arena { disturbed: Some(8), ..arena }
}

/// `first` for the first part of each period, `rest` for the rest of it, milliseconds and requests per second.
fn wave(period: u32, first: (u32, f64), rest: f64, seconds: u32) -> String {
    let starts = (0..seconds * 1000).step_by(period as usize);
    let part = |at: u32| format!("{at}ms:{}/s, {}ms:{rest}/s", first.1, at + first.0);
    starts.map(part).collect::<Vec<_>>().join(", ")
}

fn loads() -> Vec<Arena> {
    let flash = Arena::four("flash crowd 5x", "0s:50/s, 10s:500/s, 20s:50/s", 30, 5);
    vec![
        Arena::four("0.5x", "50/s", 30, 0),
        Arena::four("0.8x", "80/s", 40, 0),
        step("step to 1.1x", 1.1),
        step("step to 1.4x", 1.4),
        step("step to 2x", 2.0),
        step("step to 5x", 5.0),
        step("step to 10x", 10.0),
        Arena::four("ramp 0.5x to 3x and back", "0s..20s:50/s->300/s, 20s..40s:300/s->50/s", 40, 0),
        Arena { disturbed: Some(20), ..flash },
        Arena::four("bursts of 100 ms at 6x", &wave(1000, (100, 600.0), 20.0, 40), 40, 0),
        Arena::four("square wave 0.3x, 1.8x", &wave(10_000, (5000, 180.0), 30.0, 40), 40, 0),
        Arena::four("cold start at 0.6x", "60/s", 20, 0),
        Arena { disturbed: Some(0), ..Arena::four("cold start at 3x", "300/s", 30, 0) },
    ]
}

fn servers() -> Vec<Arena> {
    let lognormal = service(ServiceTime::lognormal(0.3, 0.5));
    let many = |name: &str, processors: f64, profile: &str, seconds, from| Arena {
        processors: vec![processors],
        target: Duration::from_secs(1),
        ..Arena::four(name, profile, seconds, from).costing(lognormal)
    };
    let three = |name: &str, processors: [f64; 3], profile: &str| Arena {
        processors: processors.to_vec(),
        ..Arena::four(name, profile, 40, 8)
    };
    let pauses = (1..8).flat_map(|n| [(f64::from(n) * 5.0, 0, 0.001), (f64::from(n) * 5.0 + 0.4, 0, 1.0)]);
    let speed = |at: f64, speed: f64| vec![(at, 0, speed)];
    vec![
        Arena { processors: vec![1.0], ..Arena::four("1 processor, 2x", "0s:20/s, 8s:50/s", 40, 8) },
        Arena { processors: vec![16.0], ..Arena::four("16 processors, 2x", "0s:320/s, 8s:800/s", 25, 8) },
        many("64 processors, cold at 0.5x", 64.0, "107/s", 30, 0),
        many("64 processors, 2x", 64.0, "0s:171/s, 8s:427/s", 40, 8),
        many("256 processors, cold at 0.6x", 256.0, "512/s", 20, 0),
        many("256 processors, 2x", 256.0, "0s:683/s, 6s:1707/s", 20, 6),
        Arena { discipline: Discipline::Fifo, ..step("few workers, 2x", 2.0) },
        Arena { knee: Some(Knee { at: 8, loss: 0.05 }), ..step("thrashing beyond 8, 2x", 2.0) },
        Arena { speeds: pauses.collect(), ..Arena::four("pauses of 400 ms at 0.6x", "60/s", 40, 0) },
        Arena {
            speeds: speed(20.0, 1.0 / 3.0),
            disturbed: Some(20),
            ..Arena::four("slower by 3, 0.8x", "80/s", 50, 20)
        },
        Arena { speeds: speed(20.0, 3.0), disturbed: Some(20), ..Arena::four("faster by 3, 2x", "200/s", 50, 20) },
        Arena {
            speeds: vec![(15.0, 0, 0.0), (25.0, 0, 1.0)],
            disturbed: Some(25),
            ..three("one of three dies and returns", [2.0; 3], "0s:120/s, 8s:180/s")
        },
        three("three that differ, 2x", [1.0, 2.0, 6.0], "0s:180/s, 8s:450/s"),
    ]
}

fn costs() -> Vec<Arena> {
    let both = |name: &str, short: f64, long: f64, rate: f64| {
        let mut arena = step(name, 2.0);
        let profile = profile_of(&format!("0s:{}/s, 8s:{rate}/s", rate * 0.4));
        let load = |cost| Load { class: 0, profile: profile.clone(), cost: service(ServiceTime::exponential(cost)) };
        arena.loads = vec![load(short), load(long)];
        arena
    };
    let pareto = Arena { target: Duration::from_secs(1), ..step("Pareto 1.3, 2x", 2.0) };
    let tight = Arena { target: Duration::from_millis(120), ..step("target of three service times, 1.4x", 1.4) };
    vec![
        step("fixed cost, 2x", 2.0).costing(service(ServiceTime::constant(0.04))),
        step("lognormal, cv 2, 2x", 2.0).costing(service(ServiceTime::lognormal(0.04, 2.0))),
        pareto.costing(service(ServiceTime::pareto(1.3, 0.0116, 2.3))),
        step("bimodal, no URL tells, 2x", 2.0).costing(service(ServiceTime::bimodal(0.02, 0.22, 0.1))),
        both("half of them 5 times dearer, 2x", 1.0 / 75.0, 5.0 / 75.0, 100.0),
        tight.costing(service(ServiceTime::constant(0.04))),
        Arena { target: Duration::from_secs(4), ..step("target of a hundred service times, 2x", 2.0) },
    ]
}

fn clients() -> Vec<Arena> {
    let cost = service(ServiceTime::exponential(0.05));
    let load = |class: u8, rate: f64| {
        let profile = profile_of(&format!("0s:{}/s, 8s:{rate}/s", rate * 0.3));
        Load { class, profile, cost }
    };
    let classes = Arena {
        processors: vec![2.0; 3],
        classes: 3,
        loads: vec![load(0, 40.0), load(1, 60.0), load(2, 200.0)],
        ..step("three classes, 2.5x", 2.5)
    };
    let leaving = |name: &str, times: f64, says: bool| Arena {
        leaves: Some(Leaves { after: Duration::from_millis(200), says }),
        ..step(name, times)
    };
    vec![
        leaving("clients leave after 0.2 s, 1.4x", 1.4, false),
        leaving("clients leave after 0.2 s, 3x", 3.0, false),
        leaving("deadlines of 0.2 s, 3x", 3.0, true),
        Arena { tries: 2, ..step("one retry, 2x", 2.0) },
        Arena { tries: 4, ..step("three retries, 3x", 3.0) },
        classes,
    ]
}

/// An arena that is drawn.
pub fn drawn(seed: u64) -> Arena {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let servers = [1, 1, 1, 2, 4][dice.below(5)];
    let each = dice.between(1.0, 64.0).round();
    let all = each * servers as f64;
    // At most some 500 requests per second, so that a run is short.
    let mean = dice.between(0.005, 0.4).max(all / 500.0);
    let target = mean * dice.between(4.0, 60.0);
    let (kind, cost) = match dice.below(5) {
        0 => ("fixed", ServiceTime::constant(mean)),
        1 => ("exponential", ServiceTime::exponential(mean)),
        2 => ("lognormal", ServiceTime::lognormal(mean, 2.0)),
        3 => ("Pareto 1.5", ServiceTime::pareto(1.5, mean / 2.8, mean * 50.0)),
        _ => ("bimodal", ServiceTime::bimodal(mean / 2.0, mean * 5.5, 0.1)),
    };
    let cost = service(cost);
    let capacity = all / cost.mean();
    let times = dice.between(0.5, 6.0);
    let (low, high) = (capacity * times.min(0.8), capacity * times);
    let (shape, profile) = match dice.below(4) {
        0 => ("cold", format!("{high}/s")),
        1 => ("step", format!("0s:{low}/s, 10s:{high}/s")),
        2 => ("ramp", format!("0s..30s:{low}/s->{high}/s")),
        _ => ("wave", wave(5000, (2500, high), low / 2.0, 30)),
    };
    let fifo = dice.below(4) == 0;
    let speeds = match dice.below(4) {
        0 => vec![(15.0, 0, dice.between(0.3, 3.0))],
        _ => Vec::new(),
    };
    let tries = [1, 1, 2, 4][dice.below(4)];
    let leaves = (dice.below(4) == 0).then(|| {
        let after = Duration::from_secs_f64(target * dice.between(0.3, 1.0));
        Leaves { after, says: dice.below(2) == 0 }
    });
    let left = match leaves {
        Some(Leaves { after, says }) => {
            let how = if says { "deadlines of" } else { "clients leave after" };
            format!(", {how} {:.0} ms", after.as_secs_f64() * 1e3)
        }
        None => String::new(),
    };
    let changes = if speeds.is_empty() { String::new() } else { format!(", speed {:.1}", speeds[0].2) };
    let name = format!(
        "drawn {seed}: {servers} x {each}, {kind} {:.0} ms, target {:.1}, {shape} {times:.1}x{}{changes}{left}",
        cost.mean() * 1e3,
        target / cost.mean(),
        if fifo { ", FIFO" } else { "" },
    );
    Arena {
        name,
        processors: vec![each; servers],
        discipline: if fifo { Discipline::Fifo } else { Discipline::ProcessorSharing },
        target: Duration::from_secs_f64(target),
        tries,
        leaves,
        speeds,
        ..Arena::four("", &profile, 30, 0).costing(cost)
    }
}

/// Numbers that depend on a seed alone.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        // Splitmix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Between two numbers, evenly in the logarithm.
    fn between(&mut self, least: f64, most: f64) -> f64 {
        let share = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        least * (most / least).powf(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_and_seeds_give_the_same_arenas() {
        let names: std::collections::BTreeSet<String> = known().into_iter().map(|arena| arena.name).collect();
        assert_eq!(names.len(), known().len());
        assert_eq!(drawn(7).name, drawn(7).name);
        assert_ne!(drawn(7).name, drawn(8).name);
        for seed in 0..200 {
            let arena = drawn(seed);
            assert!(arena.ideal().requests.iter().sum::<f64>() > 10.0, "{}", arena.name);
        }
    }
}
