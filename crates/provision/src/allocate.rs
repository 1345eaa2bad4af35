//! Division of the servers among applications, for the highest expected revenue.
//!
//! *Intuition.* An application with n servers and a target T answers min(rate, n c(T)) requests per second, the most
//! important first; what that earns grows with n, and ever more slowly. The best division over one application more is
//! the best over the ones before, combined with every number of servers for the new one. Done naively that is quadratic
//! in the servers; where the new one's revenue is concave, the best number moves only one way as the total grows, and
//! the whole is a divide and conquer in n log n. So the division is exact, and 100 applications on 10,000 servers take
//! milliseconds.
//!
//! *Relaxing the target* is one of the choices, as far as the SLA permits it at the rate that is offered: every step of
//! the SLA is tried as a ceiling. A ceiling is only relaxed where that earns more.
//!
//! *Awkward cases.* What more servers cannot earn stays in the free pool. A class that earns more than a more important
//! one makes the revenue not concave: such an application is combined the naive way, within the range that can earn it
//! anything. Demand is a set of possible futures with weights, so that an uncertain forecast buys what it is worth.
//!
//! *Source.* Cataclysm, section 4.1, which leaves the algorithm out.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use libm::ceil;
use thiserror::Error;

use super::capacity::Replica;
use tidegate_engine::Sla;

/// One possible future of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// How likely it is; the weights of an application's futures add up to 1.
    pub weight: f64,
    /// Offered rate per class, most important first, requests per second.
    pub rates: Vec<f64>,
}

/// An application that wants servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Applicant {
    /// It gets at least so many.
    pub min_servers: u32,
    /// It gets at most so many.
    pub max_servers: u32,
    /// What an answer within the target is worth, per class, most important first.
    pub revenues: Vec<f64>,
    /// Possible demands, with their probabilities.
    pub demands: Vec<Demand>,
    /// Between which ceilings of the target there is a choice, tightest first. Never empty.
    pub ceilings: Vec<Ceiling>,
}

/// How far the target may relax.
#[derive(Clone, Debug, PartialEq)]
pub struct Ceiling {
    /// The target is the SLA's at the offered rate, but not above this.
    pub target: Duration,
    /// What one server sustains then, per future, requests per second; 0 where the target is below the service time.
    pub capacities: Vec<f64>,
}

/// A division of the servers among the applications.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// Number of servers of each application.
    pub servers: Vec<u32>,
    /// The ceiling per application: its place among [`Applicant::ceilings`].
    pub ceilings: Vec<usize>,
    /// Servers left in the free pool.
    pub free: u32,
    /// Expected revenue per second.
    pub revenue: f64,
}

/// Why there is no allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AllocationError {
    /// The minima alone are more than there is.
    #[error("the applications' minima add up to {needed} servers, of {total}; lower a minimum or add servers")]
    MinimaExceedTotal {
        /// What the minima add up to.
        needed: u64,
        /// How many servers there are.
        total: u32,
    },
    /// An application makes no sense.
    #[error("application {application}: {what}")]
    Nonsense {
        /// Index of the application, from 0.
        application: usize,
        /// The mistake, as the end of a sentence.
        what: &'static str,
    },
}

impl Applicant {
    /// An application under an SLA, with servers like `replica`.
    pub fn new(limits: (u32, u32), revenues: Vec<f64>, demands: Vec<Demand>, sla: &Sla, replica: &Replica) -> Self {
        let capacity = |target| replica.capacity(replica.mean_bound(sla.statistic(), target)).unwrap_or(0.0);
        let ceiling = |target: Duration| {
            let permitted = |demand: &Demand| sla.target(demand.rates.iter().sum()).min(target);
            Ceiling { target, capacities: demands.iter().map(|demand| capacity(permitted(demand))).collect() }
        };
        let ceilings = sla.steps().iter().map(|step| ceiling(step.target)).collect();
        Applicant { min_servers: limits.0, max_servers: limits.1, revenues, demands, ceilings }
    }

    /// Expected revenue per second with `servers` under a ceiling.
    pub fn revenue(&self, servers: u32, ceiling: usize) -> f64 {
        let capacities = &self.ceilings[ceiling].capacities;
        self.demands.iter().zip(capacities).map(|(demand, one)| self.earned(demand, f64::from(servers) * one)).sum()
    }

    /// The most important first, as the sentry admits them.
    fn earned(&self, demand: &Demand, mut capacity: f64) -> f64 {
        let mut sum = 0.0;
        for (rate, revenue) in demand.rates.iter().zip(&self.revenues) {
            let answered = rate.min(capacity);
            capacity -= answered;
            sum += answered * revenue;
        }
        sum * demand.weight
    }

    /// More than so many servers earn nothing more, under a ceiling.
    fn useful(&self, ceiling: usize) -> u32 {
        let needed = |(demand, one): (&Demand, &f64)| match *one > 0.0 {
            true => ceil(demand.rates.iter().sum::<f64>() / one - 1e-9).min(f64::from(u32::MAX)) as u32,
            false => 0,
        };
        self.demands.iter().zip(&self.ceilings[ceiling].capacities).map(needed).max().unwrap_or(0)
    }

    fn problem(&self) -> Option<&'static str> {
        let fine = |value: &f64| value.is_finite() && *value >= 0.0;
        let classes = self.revenues.len();
        let demands = |d: &Demand| d.rates.len() == classes && fine(&d.weight) && d.rates.iter().all(fine);
        let ceilings = |c: &Ceiling| c.capacities.len() == self.demands.len() && c.capacities.iter().all(fine);
        if self.min_servers > self.max_servers {
            return Some("its minimum is above its maximum");
        }
        if self.ceilings.is_empty() {
            return Some("it has no target");
        }
        if !self.demands.iter().all(demands) {
            return Some("a demand is no finite number, is negative, or has another number of classes");
        }
        if !self.revenues.iter().all(fine) || !self.ceilings.iter().all(ceilings) {
            return Some("a revenue or capacity is no finite number, or negative");
        }
        None
    }
}

/// Divides `total` servers.
///
/// # Errors
/// When the minima do not fit, or an application makes no sense.
pub fn allocate(total: u32, applicants: &[Applicant]) -> Result<Allocation, AllocationError> {
    if let Some((application, what)) = applicants.iter().enumerate().find_map(|(at, a)| Some((at, a.problem()?))) {
        return Err(AllocationError::Nonsense { application, what });
    }
    let needed: u64 = applicants.iter().map(|applicant| u64::from(applicant.min_servers)).sum();
    if needed > u64::from(total) {
        return Err(AllocationError::MinimaExceedTotal { needed, total });
    }
    let spare = (u64::from(total) - needed) as usize;
    // best[k]: the highest revenue of the applications so far with at most k servers beyond the minima.
    let mut best = vec![0.0; spare + 1];
    let mut choices = Vec::with_capacity(applicants.len());
    for applicant in applicants {
        let mut with = Combined::nothing(spare);
        for ceiling in 0..applicant.ceilings.len() {
            with.try_ceiling(&best, applicant, ceiling);
        }
        best = with.revenue;
        choices.push(with.choice);
    }
    let revenue = best[spare];
    // The fewest servers that earn as much: the rest stays free.
    let enough = revenue - tolerance(revenue);
    let mut left = best.partition_point(|&revenue| revenue < enough);
    let (mut servers, mut ceilings) = (vec![0; applicants.len()], vec![0; applicants.len()]);
    for (at, applicant) in applicants.iter().enumerate().rev() {
        let (extra, ceiling) = choices[at][left];
        (servers[at], ceilings[at]) = (applicant.min_servers + extra, usize::from(ceiling));
        left -= extra as usize;
    }
    let mut free = total - servers.iter().sum::<u32>();
    for (at, applicant) in applicants.iter().enumerate() {
        free -= tighten(applicant, &mut servers[at], &mut ceilings[at], free);
    }
    Ok(Allocation { servers, ceilings, free, revenue })
}

/// Servers that would stay free are better than a relaxed target. Returns how many it took.
fn tighten(applicant: &Applicant, servers: &mut u32, ceiling: &mut usize, free: u32) -> u32 {
    let enough = applicant.revenue(*servers, *ceiling);
    let most = servers.saturating_add(free).min(applicant.max_servers);
    for tighter in 0..*ceiling {
        let suffices = |count: &u32| applicant.revenue(*count, tighter) >= enough - tolerance(enough);
        if let Some(count) = (*servers..=most).find(suffices) {
            let took = count - *servers;
            (*servers, *ceiling) = (count, tighter);
            return took;
        }
    }
    0
}

/// What the last digits may differ by without being worth a server or a relaxed target.
fn tolerance(revenue: f64) -> f64 {
    1e-9 * revenue
}

/// The applications before and one more, for every number of servers.
struct Combined {
    revenue: Vec<f64>,
    /// The new one's servers beyond its minimum, and its ceiling.
    choice: Vec<(u32, u16)>,
}

impl Combined {
    fn nothing(spare: usize) -> Combined {
        Combined { revenue: vec![f64::NEG_INFINITY; spare + 1], choice: vec![(0, 0); spare + 1] }
    }

    fn try_ceiling(&mut self, before: &[f64], applicant: &Applicant, ceiling: usize) {
        let spare = before.len() as u32 - 1;
        let useful = applicant.useful(ceiling).min(applicant.max_servers).saturating_sub(applicant.min_servers);
        let earned: Vec<f64> =
            (0..=useful.min(spare)).map(|extra| applicant.revenue(applicant.min_servers + extra, ceiling)).collect();
        let step = Step { before, earned: &earned, ceiling: ceiling as u16 };
        if is_concave(&earned) {
            step.conquer(self, (0, before.len() - 1), (0, before.len() - 1));
        } else {
            (0..before.len()).for_each(|total| {
                step.settle(self, total, 0, total.min(earned.len() - 1));
            });
        }
    }
}

struct Step<'a> {
    before: &'a [f64],
    earned: &'a [f64],
    ceiling: u16,
}

impl Step<'_> {
    /// Totals from `from` to `to`, of which the ones before keep between `low` and `high`.
    ///
    /// As `earned` is concave, what is best for them to keep does not shrink while the total grows.
    fn conquer(&self, into: &mut Combined, (from, to): (usize, usize), (low, high): (usize, usize)) {
        let middle = from + (to - from) / 2;
        let least = low.max(middle.saturating_sub(self.earned.len() - 1));
        let kept = middle - self.settle(into, middle, middle - high.min(middle), middle - least);
        if from < middle {
            self.conquer(into, (from, middle - 1), (low, kept));
        }
        if middle < to {
            self.conquer(into, (middle + 1, to), (kept, high));
        }
    }

    /// The best for one total where the new one gets `least` to `most`; what it gets.
    fn settle(&self, into: &mut Combined, total: usize, least: usize, most: usize) -> usize {
        let (mut best, mut share) = (f64::NEG_INFINITY, least);
        for extra in least..=most {
            let revenue = self.before[total - extra] + self.earned[extra];
            if revenue > best {
                (best, share) = (revenue, extra);
            }
        }
        // A ceiling is relaxed only where that earns more.
        if best > into.revenue[total] + tolerance(best.abs()) {
            into.revenue[total] = best;
            into.choice[total] = (share as u32, self.ceiling);
        }
        share
    }
}

/// Whether each further server earns no more than the one before it.
fn is_concave(earned: &[f64]) -> bool {
    let scale = earned.last().copied().unwrap_or(0.0);
    earned.windows(3).all(|w| w[2] - w[1] <= w[1] - w[0] + tolerance(scale))
}

#[cfg(test)]
mod tests;
