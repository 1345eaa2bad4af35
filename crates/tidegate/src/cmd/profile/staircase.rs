//! What a data server can lend: closed loops on the application's software there while the data tier does its own work,
//! at each load level and with its cores divided in each way.
//!
//! A load is held when both are: what is measured, and the requests that make the data tier's work. The staircase
//! takes, for each number of cores, the levels up to which it lends anything, and the least that it lent on them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use tidegate_engine::{ProfileStep, StealingProfile};
use tidegate_loadgen::capacity::{Bounds, Step, Target, closed, open};

use super::commander::Commander;
use super::file::Lending;

/// What is measured, and how the data tier is loaded meanwhile.
#[derive(Debug)]
pub(super) struct Site {
    /// The application's software on a data server.
    pub(super) data: Target,
    /// Where requests go that make work for the data tier.
    pub(super) load: Target,
    /// The data tier's peak, requests per second.
    pub(super) peak: f64,
    /// Shares of the peak, rising.
    pub(super) levels: Vec<f64>,
    /// Who divides the cores; `None`: they stay as they are.
    pub(super) nucleus: Option<Nucleus>,
}

/// The data server's nucleus.
#[derive(Debug)]
pub(super) struct Nucleus {
    pub(super) listen: SocketAddr,
    pub(super) server: String,
    pub(super) key_file: PathBuf,
    /// Cores that are divided.
    pub(super) cores: u32,
}

/// Measures every level with every division, the most cores first.
///
/// # Errors
/// When load cannot be sent, or the nucleus does not do as told.
pub(super) fn measure(site: &Site, bounds: &Bounds) -> Result<Vec<Lending>> {
    let Some(nucleus) = &site.nucleus else { return levels(site, bounds, None, |_| Ok(())) };
    let mut commander = Commander::new(nucleus.listen, &nucleus.server, &nucleus.key_file)?;
    let mut all = Vec::new();
    for cores in (1..nucleus.cores).rev() {
        commander.divide(cores)?;
        // A nucleus that hears nothing for some seconds puts everything back: it is told all the while.
        all.extend(levels(site, bounds, Some(cores), |stop| {
            while !stop.load(Ordering::Relaxed) {
                commander.renew(cores)?;
            }
            Ok(())
        })?);
    }
    Ok(all)
}

fn levels(
    site: &Site,
    bounds: &Bounds,
    cores: Option<u32>,
    mut meanwhile: impl FnMut(&AtomicBool) -> Result<()> + Send,
) -> Result<Vec<Lending>> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let renewing = scope.spawn(|| meanwhile(&stop));
        let mut found = Vec::new();
        let mut result = Ok(());
        for &load in &site.levels {
            let divided = cores.map_or(String::new(), |cores| format!(" with {cores} cores for application work"));
            eprintln!("\na data server at {:.0} % of the peak{divided}", load * 100.0);
            match most(bounds.most_in_flight, |clients| holds(site, bounds, load, clients)) {
                Ok(n_data) => found.push(Lending { cores, load, n_data }),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        let renewed = renewing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result.and(renewed).map(|()| found)
    })
}

/// The most for which `holds` is true; 0 when it is not for 1.
fn most(bound: u32, mut holds: impl FnMut(u32) -> Result<bool>) -> Result<u32> {
    let (mut good, mut bad) = (0, None);
    let mut tried = 1;
    while bad.is_none() && good < bound {
        if holds(tried)? {
            good = tried
        } else {
            bad = Some(tried)
        }
        tried = (tried * 2).min(bound);
    }
    while let Some(least) = bad.filter(|bad| bad - good > 1) {
        let middle = good + (least - good) / 2;
        if holds(middle)? { good = middle } else { bad = Some(middle) }
    }
    Ok(good)
}

fn holds(site: &Site, bounds: &Bounds, load: f64, clients: u32) -> Result<bool> {
    // What breaks the target by chance is tried once more.
    Ok(holds_once(site, bounds, load, clients)? || holds_once(site, bounds, load, clients)?)
}

fn holds_once(site: &Site, bounds: &Bounds, load: f64, clients: u32) -> Result<bool> {
    let (stolen, own): (Result<Step, _>, Result<Step, _>) = std::thread::scope(|scope| {
        let own = scope.spawn(|| open(&site.load, bounds, load * site.peak));
        let stolen = closed(&site.data, bounds, clients);
        (stolen, own.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (stolen, own) = (stolen?, own?);
    let ms = |step: &Step| step.latency.p95 * 1e3;
    let held = stolen.holds(bounds.target) && own.holds(bounds.target);
    let verdict = if held { "held" } else { "not held" };
    eprintln!("{clients:>10} at once: p95 {:.0} ms, the others {:.0} ms: {verdict}", ms(&stolen), ms(&own));
    if !held {
        std::thread::sleep(Duration::from_secs(1).min(bounds.step));
    }
    Ok(held)
}

/// The profile that follows. Every step is one that was measured; one more core is given back at each.
pub(super) fn profile(n_app: u32, peak: f64, measured: &[Lending]) -> StealingProfile {
    let mut divisions: Vec<Option<u32>> = measured.iter().map(|lending| lending.cores).collect();
    divisions.sort_unstable_by(|a, b| b.cmp(a));
    divisions.dedup();
    let mut steps: Vec<ProfileStep> = Vec::new();
    // From the fewest cores: a step with more must end before the one after it does.
    let mut edge = f64::INFINITY;
    for cores in divisions.into_iter().rev() {
        let of = measured.iter().filter(|lending| lending.cores == cores);
        let reached: Vec<&Lending> = of.take_while(|lending| lending.n_data > 0).collect();
        let Some(last) = reached.iter().rposition(|lending| lending.load < edge) else { break };
        let n_data = reached[..=last].iter().map(|lending| lending.n_data).min().unwrap_or(0);
        // With more cores no less is lent.
        let n_data = n_data.max(steps.last().map_or(0, |step| step.n_data));
        edge = reached[last].load;
        steps.push(ProfileStep { below: edge, n_data, cores });
    }
    steps.reverse();
    StealingProfile { n_app, peak, steps, ..StealingProfile::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_found_in_few_steps() {
        for (bound, limit) in [(1, 0), (1, 1), (100, 13), (100, 1), (100, 0), (64, 64), (10, 99)] {
            let mut tried = 0;
            let found = most(bound, |clients| {
                tried += 1;
                Ok(clients <= limit)
            });
            assert_eq!(found.unwrap(), limit.min(bound), "{bound}, {limit}");
            assert!(tried <= 14, "{tried}");
        }
    }

    fn lending(cores: u32, loads: [u32; 4]) -> Vec<Lending> {
        let of = |(at, n_data)| Lending { cores: Some(cores), load: 0.2 * f64::from(at + 1), n_data };
        (0u8..).zip(loads).map(of).collect()
    }

    #[test]
    fn the_staircase_falls_and_gives_back_one_core_at_a_time() {
        let measured = [lending(3, [9, 8, 0, 0]), lending(2, [6, 6, 5, 0]), lending(1, [3, 3, 3, 2])].concat();
        let profile = profile(13, 750.0, &measured);
        let steps: Vec<_> = profile.steps.iter().map(|s| ((s.below * 10.0).round(), s.n_data, s.cores)).collect();
        assert_eq!(steps, [(4.0, 8, Some(3)), (6.0, 5, Some(2)), (8.0, 2, Some(1))]);
        assert_eq!(profile.check_for(Some(4)), Ok(()));
    }

    #[test]
    fn steps_that_reach_as_far_end_earlier_with_more_cores() {
        let measured = [lending(3, [4, 4, 0, 0]), lending(2, [6, 6, 0, 0]), lending(1, [3, 0, 0, 0])].concat();
        let profile = profile(13, 750.0, &measured);
        // One core reaches 20 %, so two and three have no level before it.
        assert_eq!((profile.steps.len(), profile.steps[0].n_data), (1, 3));
        assert_eq!(profile.check_for(Some(4)), Ok(()));
        let nothing = super::profile(13, 750.0, &lending(1, [0, 0, 0, 0]));
        assert!(nothing.steps.is_empty() && nothing.check_for(Some(2)) == Ok(()));
    }
}
