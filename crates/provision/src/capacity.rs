//! Capacity of one server, and the number of servers that a load needs.
//!
//! *Intuition.* A server is a queue with general arrivals and general service, G/G/1 (Cataclysm, section 4.1). How long
//! requests wait there grows with how unevenly they come and how uneven they are, and without end as the server fills
//! up. Turned round: a bound on the response time bounds the rate.
//!
//! *Awkward cases.* A target at or below the service time cannot be met at any rate: that is an error, never a negative
//! number. The paper's formula takes the variance of the time between arrivals in seconds squared, which must have been
//! measured at about the rate that comes out; where only the shape of the arrivals is known, as for a rate that was
//! predicted, [`Arrivals::Variation`] uses the heavy-traffic form of the same bound. A server with k processors counts
//! as k servers, which is on the safe side.
//!
//! Servers behind one sentry need less than each for itself: it spreads over all of them what it lets in, and refuses
//! what would come too late instead of letting it wait. [`Replica::refused`] takes them as the loss system that this
//! makes of them, M/M/c/K, ours; [`Replica::servers_worth`] turns it round: how many are worth their price.
//!
//! *Source.* Kleinrock 1976 by way of Cataclysm, inequality 14; M/M/c/K: any textbook.

use core::time::Duration;

use libm::{ceil, log, pow, sqrt};
use thiserror::Error;

use tidegate_engine::Statistic;

/// Places to wait count as no more than so many times those of Poisson's, however even all is.
const LEAST_UNEVEN: f64 = 0.2;

/// Service times of which nothing more is known than their mean are taken to be exponential, arrivals Poisson's.
const VARIATION: f64 = 1.0;
/// A measured coefficient of variation counts as no more: one such request a day must not buy a hall of servers.
pub(crate) const MOST_VARIATION: f64 = 5.0;

/// One server, as far as its capacity is concerned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replica {
    /// Mean inherent service time E\[S\], seconds.
    pub mean_service: f64,
    /// Variance of the service time, seconds squared.
    pub service_variance: f64,
    /// How arrivals at it are spread.
    pub arrivals: Arrivals,
    /// Effective processors k.
    pub processors: f64,
}

/// How arrivals at one server are spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Variance of the time between two of them, seconds squared: the paper's form.
    Variance(f64),
    /// Coefficient of variation of the time between two of them: 0 regular, 1 Poisson, above it bursty.
    Variation(f64),
}

/// Why there is no capacity to speak of.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum CapacityError {
    /// Even an idle server takes longer than the target.
    #[error("target below service time: a mean of {target} s is asked for, an idle server takes {service} s; relax it")]
    TargetBelowServiceTime {
        /// The bound on the mean response time, seconds.
        target: f64,
        /// The mean service time, seconds.
        service: f64,
    },
    /// A measurement that makes no sense.
    #[error("{what} = {value} is out of range; it must be a finite number, not below 0")]
    OutOfRange {
        /// Name of the quantity.
        what: &'static str,
        /// The value that is out of range.
        value: f64,
    },
}

/// The bound on the mean response time that keeps `statistic` within `target`, seconds, where nothing is known of the
/// service times: [`Replica::mean_bound`] of exponential ones.
///
/// Response times of a busy server are close to exponential, of which the quantile q is -ln(1 - q) times the mean.
pub fn mean_bound(statistic: Statistic, target: Duration) -> f64 {
    let tail = statistic.quantile().map_or(1.0, |quantile| -log(1.0 - quantile));
    target.as_secs_f64() / tail
}

impl Replica {
    /// A server of `processors` with service times of that mean and coefficient of variation, and Poisson arrivals.
    pub fn new(mean_service: f64, service_variation: f64, processors: f64) -> Replica {
        let deviation = mean_service * service_variation;
        Replica {
            mean_service,
            service_variance: deviation * deviation,
            arrivals: Arrivals::Variation(1.0),
            processors,
        }
    }

    /// A server as it was measured. Where nothing is known of variations, service times are taken to be exponential
    /// and arrivals Poisson's; measured ones count up to a bound.
    pub fn measured(
        mean_service: f64,
        service_variation: Option<f64>,
        arrival_variation: Option<f64>,
        processors: f64,
    ) -> Replica {
        let counted = |variation: Option<f64>| variation.unwrap_or(VARIATION).min(MOST_VARIATION);
        let replica = Replica::new(mean_service, counted(service_variation), processors);
        Replica { arrivals: Arrivals::Variation(counted(arrival_variation)), ..replica }
    }

    /// The bound on the mean response time that keeps `statistic` within `target`, seconds.
    ///
    /// A response is a wait, taken to be exponential, and a service, whose quantile lies between its mean (all alike)
    /// and that of an exponential one, in proportion to its coefficient of variation; both quantiles are added: that is
    /// on the safe side. For exponential services it is [`mean_bound`].
    pub fn mean_bound(&self, statistic: Statistic, target: Duration) -> f64 {
        let tail = statistic.quantile().map_or(1.0, |quantile| -log(1.0 - quantile));
        let variation = (sqrt(self.service_variance) / self.mean_service).min(1.0);
        let variation = if variation.is_nan() { 1.0 } else { variation };
        let service = self.mean_service * (1.0 + (tail - 1.0) * variation);
        self.mean_service + (target.as_secs_f64() - service) / tail
    }

    /// The highest rate at which the mean response time stays within `response` seconds, requests per second.
    ///
    /// # Errors
    /// When `response` is not above the service time, or a number makes no sense.
    pub fn capacity(&self, response: f64) -> Result<f64, CapacityError> {
        self.check(response)?;
        let wait = response - self.mean_service;
        let per_processor = match self.arrivals {
            Arrivals::Variance(variance) => {
                1.0 / (self.mean_service + (variance + self.service_variance) / (2.0 * wait))
            }
            Arrivals::Variation(_) => wait / (self.mean_service * (wait + self.mean_service * self.unevenness())),
        };
        Ok(per_processor * self.processors)
    }

    /// Servers needed for `rate` requests per second, each for itself.
    ///
    /// # Errors
    /// As [`Replica::capacity`], and when `rate` makes no sense.
    pub fn servers_needed(&self, rate: f64, response: f64) -> Result<u32, CapacityError> {
        in_range("rate", rate)?;
        // A whole number that was computed must not cost a server more for its last digit.
        Ok(ceil(rate / self.capacity(response)? - 1e-9).clamp(0.0, f64::from(u32::MAX)) as u32)
    }

    /// The share of requests that admission has to refuse at `rate` with `servers`, so that the mean response time
    /// stays within `response` seconds: the blocking of M/M/c/K, where K is what the servers may have in flight. Where
    /// arrivals or service times are more or less uneven than Poisson's, a place to wait is worth as much less or more:
    /// in heavy traffic a queue that is twice as uneven needs twice the places.
    pub fn refused(&self, rate: f64, servers: u32, response: f64) -> f64 {
        let places = f64::from(servers) * self.processors;
        let work = rate * self.mean_service;
        if !(places > 0.0 && work.is_finite()) {
            return 1.0;
        }
        let waiting = places * ((response / self.mean_service).max(1.0) - 1.0) / self.unevenness().max(LEAST_UNEVEN);
        let room = (places + waiting).min(1e6);
        let mut blocked = 1.0;
        let mut number = 0.0;
        // It falls with every place; so little is nothing.
        while number < room && blocked > 1e-12 {
            // The last one counts as far as there is room for it.
            let part = (room - number).min(1.0);
            number += 1.0;
            let offered = work / number.min(places) * blocked;
            blocked = pow(offered / (1.0 + offered) / blocked, part) * blocked;
        }
        blocked
    }

    /// So many servers for `rate` that one more would save less than `price` servers' worth of work from being refused.
    ///
    /// # Errors
    /// As [`Replica::servers_needed`].
    pub fn servers_worth(&self, rate: f64, response: f64, price: f64) -> Result<u32, CapacityError> {
        in_range("rate", rate)?;
        self.check(response)?;
        if rate <= 0.0 {
            return Ok(0);
        }
        let work = rate * self.mean_service / self.processors;
        // Fewer than the work itself are always worth one more, if servers are worth anything.
        let mut servers = ceil(work * 0.9).max(1.0) as u32;
        let mut refused = self.refused(rate, servers, response);
        let most = servers.saturating_mul(3).saturating_add(10);
        while servers < most {
            let then = self.refused(rate, servers + 1, response);
            if work * (refused - then) <= price {
                break;
            }
            (servers, refused) = (servers + 1, then);
        }
        Ok(servers)
    }

    /// Coefficient of variation of the service times.
    pub fn service_variation(&self) -> f64 {
        sqrt(self.service_variance) / self.mean_service
    }

    /// Coefficient of variation of the time between arrivals, of a server that is nearly full.
    pub fn arrival_variation(&self) -> f64 {
        match self.arrivals {
            Arrivals::Variance(variance) => sqrt(variance) / self.mean_service,
            Arrivals::Variation(variation) => variation,
        }
    }

    /// (c_a^2 + c_s^2) / 2: how uneven arrivals and service times are. 1 for Poisson and exponential.
    fn unevenness(&self) -> f64 {
        let square = self.mean_service * self.mean_service;
        let arrivals = match self.arrivals {
            // Of a server that is nearly full, where the time between arrivals is about the service time.
            Arrivals::Variance(variance) => variance / square,
            Arrivals::Variation(variation) => variation * variation,
        };
        (arrivals + self.service_variance / square) / 2.0
    }

    fn check(&self, response: f64) -> Result<(), CapacityError> {
        in_range("service time", self.mean_service)?;
        in_range("variance of the service time", self.service_variance)?;
        in_range("processors", self.processors)?;
        match self.arrivals {
            Arrivals::Variance(variance) => in_range("variance between arrivals", variance)?,
            Arrivals::Variation(variation) => in_range("variation of arrivals", variation)?,
        }
        if response > self.mean_service && self.mean_service > 0.0 && self.processors > 0.0 {
            return Ok(());
        }
        Err(CapacityError::TargetBelowServiceTime { target: response, service: self.mean_service })
    }
}

fn in_range(what: &'static str, value: f64) -> Result<(), CapacityError> {
    if value.is_finite() && value >= 0.0 { Ok(()) } else { Err(CapacityError::OutOfRange { what, value }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(found: f64, wanted: f64) {
        assert!((found / wanted - 1.0).abs() < 1e-9, "{found}, not {wanted}");
    }

    #[test]
    fn refusals_are_those_of_a_loss_system() {
        // Without room to wait: Erlang's B(2, 1) = 1/5, B(4, 3) = 0.2061.
        let replica = Replica::new(1.0, 1.0, 1.0);
        assert!((replica.refused(1.0, 2, 1.0) - 0.2).abs() < 1e-9);
        assert!((replica.refused(3.0, 4, 1.0) - 0.2061).abs() < 1e-3);
        // M/M/1/3 at one half: 1/15.
        assert!((replica.refused(0.5, 1, 3.0) - 1.0 / 15.0).abs() < 1e-9);
        assert_eq!(replica.refused(1.0, 0, 3.0), 1.0);
        let worth = |rate: f64, price: f64| replica.servers_worth(rate, 3.0, price).unwrap();
        let saves = |servers: u32| 3.0 * (replica.refused(3.0, servers, 3.0) - replica.refused(3.0, servers + 1, 3.0));
        let servers = worth(3.0, 0.05);
        assert!(saves(servers) <= 0.05 && saves(servers - 1) > 0.05);
        assert!(worth(3.0, 0.01) >= servers && worth(3.0, 0.2) <= servers);
        assert_eq!(worth(0.0, 0.05), 0);
        assert!((960..1060).contains(&worth(1000.0, 0.05)), "{}", worth(1000.0, 0.05));
        assert!(replica.servers_worth(1.0, 0.5, 0.05).is_err(), "target below service time");
    }

    #[test]
    fn the_papers_formula_by_hand() {
        let arrivals = Arrivals::Variance(0.0004);
        let replica = Replica { arrivals, service_variance: 0.0001, ..Replica::new(0.01, 1.0, 1.0) };
        // 1 / (0.01 + 0.0005 / (2 * 0.05)) = 1 / 0.015
        near(replica.capacity(0.06).unwrap(), 1.0 / 0.015);
        assert_eq!(replica.servers_needed(200.0, 0.06), Ok(3));
        assert_eq!(replica.servers_needed(200.1, 0.06), Ok(4));
        assert_eq!(replica.servers_needed(0.0, 0.06), Ok(0));
    }

    #[test]
    fn poisson_and_exponential_is_m_m_1() {
        // M/M/1: E[R] = S / (1 - rho), so 100 ms at S = 20 ms is rho = 0.8: 40/s.
        let replica = Replica::new(0.02, 1.0, 1.0);
        near(replica.capacity(0.1).unwrap(), 40.0);
        // Two processors count as two servers.
        near(Replica::new(0.02, 1.0, 2.0).capacity(0.1).unwrap(), 80.0);
    }

    #[test]
    fn together_they_need_fewer() {
        let replica = Replica::new(0.05, 1.0, 1.0);
        let bound = 0.5 / 3.0;
        // 382/s of 50 ms are 19.1 servers' work; each for itself at E[R] = 0.1667 s sustains 14/s: 28.
        assert_eq!(replica.servers_needed(382.0, bound), Ok(28));
        // Together, with 3.33 places a server, twenty refuse next to nothing.
        let together = replica.servers_worth(382.0, bound, 0.03).unwrap();
        assert!((19..=21).contains(&together), "{together}");
        assert!(replica.refused(382.0, together, bound) < 0.01);
    }

    #[test]
    fn a_target_below_the_service_time_is_said() {
        let replica = Replica::new(0.02, 1.0, 1.0);
        let error = CapacityError::TargetBelowServiceTime { target: 0.02, service: 0.02 };
        assert_eq!(replica.capacity(0.02), Err(error));
        assert!(replica.capacity(f64::NAN).is_err());
        assert_eq!(replica.servers_needed(-1.0, 0.1), Err(CapacityError::OutOfRange { what: "rate", value: -1.0 }));
        assert!(Replica::new(f64::NAN, 1.0, 1.0).capacity(1.0).is_err());
    }

    /// Measured variances, not those of Poisson and exponential: inequality 14 by hand, and what follows for servers.
    #[test]
    fn measured_variances_are_what_decides() {
        let of = |service: f64, arrivals: f64| Replica {
            arrivals: Arrivals::Variation(arrivals),
            ..Replica::new(0.02, service, 1.0)
        };
        // wait 80 ms; (1/4 + 1) / 2 and (4 + 1) / 2 of 20 ms.
        near(of(0.5, 1.0).capacity(0.1).unwrap(), 0.08 / (0.02 * (0.08 + 0.02 * 0.625)));
        near(of(1.0, 2.0).capacity(0.1).unwrap(), 0.08 / (0.02 * (0.08 + 0.02 * 2.5)));
        let refused = |service, arrivals| of(service, arrivals).refused(380.0, 8, 0.1);
        assert!(refused(0.3, 1.0) < refused(1.0, 1.0) && refused(1.0, 1.0) < refused(1.0, 2.0));
        let worth = |service, arrivals| of(service, arrivals).servers_worth(380.0, 0.06, 0.0025).unwrap();
        assert!(worth(0.3, 1.0) < worth(1.0, 1.0) && worth(1.0, 1.0) < worth(1.0, 3.0), "{}", worth(1.0, 1.0));
    }

    #[test]
    fn services_that_are_alike_leave_more_of_a_percentile_to_waiting() {
        let bound = |variation: f64, target: f64| {
            Replica::new(0.173, variation, 8.0).mean_bound(Statistic::P95, Duration::from_secs_f64(target))
        };
        assert!((bound(1.0, 0.5) - mean_bound(Statistic::P95, Duration::from_millis(500))).abs() < 1e-9);
        assert!((bound(3.0, 0.5) - bound(1.0, 0.5)).abs() < 1e-9, "no more than exponential's");
        assert!(bound(1.0, 0.5) < 0.173 && bound(0.4, 0.5) > 0.173 && bound(0.0, 0.5) > bound(0.4, 0.5));
        assert!(bound(0.0, 0.17) < 0.173, "even so no target below the service time");
        let mean = Replica::new(0.173, 0.4, 8.0).mean_bound(Statistic::Mean, Duration::from_millis(500));
        assert!((mean - 0.5).abs() < 1e-9);
    }

    #[test]
    fn percentiles_bound_means() {
        near(mean_bound(Statistic::Mean, Duration::from_secs(1)), 1.0);
        assert!((mean_bound(Statistic::P95, Duration::from_secs(3)) - 1.0014).abs() < 1e-3);
    }

    proptest! {
        #[test]
        fn capacity_is_positive_below_saturation_and_grows_with_the_target(
            service in 1e-4f64..1.0, variation in 0.0f64..5.0, arrivals in 0.0f64..5.0, slack in 1e-3f64..100.0,
            is_variance: bool, cores in 0.1f64..64.0,
        ) {
            let spread = if is_variance { Arrivals::Variance(arrivals) } else { Arrivals::Variation(arrivals) };
            let replica = Replica { arrivals: spread, ..Replica::new(service, variation, cores) };
            let capacity = replica.capacity(service * (1.0 + slack)).unwrap();
            let relaxed = replica.capacity(service * (1.0 + 2.0 * slack)).unwrap();
            prop_assert!(capacity > 0.0 && capacity <= relaxed && relaxed <= cores / service * (1.0 + 1e-9));
        }

        #[test]
        fn what_is_needed_suffices_and_one_less_does_not(
            rate in 0.1f64..1e5, service in 1e-3f64..0.1, variation in 0.0f64..3.0, slack in 0.1f64..20.0,
        ) {
            let replica = Replica::new(service, variation, 1.0);
            let response = service * (1.0 + slack);
            let capacity = replica.capacity(response).unwrap();
            let servers = f64::from(replica.servers_needed(rate, response).unwrap());
            prop_assert!(servers * capacity >= rate * (1.0 - 1e-6) && (servers - 1.0) * capacity < rate);
        }

        #[test]
        fn more_servers_and_more_room_refuse_less(
            work in 0.1f64..50.0, servers in 1u32..60, room in 1.0f64..10.0, cores in 0.5f64..4.0,
        ) {
            let replica = Replica::new(0.1, 1.0, cores);
            let refused = |servers, room: f64| replica.refused(work / 0.1, servers, room * 0.1);
            let least = 1.0 - f64::from(servers) * cores / work;
            prop_assert!((least.max(0.0) - 1e-9..=1.0).contains(&refused(servers, room)));
            prop_assert!(refused(servers + 1, room) <= refused(servers, room) + 1e-9);
            prop_assert!(refused(servers, room + 0.5) <= refused(servers, room) + 1e-9);
        }
    }
}
