//! Estimators: rates, response times, costs per URL, and capacities of servers, learned by observation.
//!
//! Without an agent on the servers everything follows from three measurements of the sentry itself: when requests were
//! sent, when they were answered, and how many were in flight meanwhile (Cataclysm, section 3.5). `docs/estimates.md`
//! tells how the pieces hold each other up.

mod abandoned;
mod alpha;
mod arrivals;
mod calibration;
mod capacity;
mod cost;
mod estimates;
mod histogram;
mod norm;
mod patience;
mod rate;
mod reported;
mod scale;

pub use abandoned::{Abandoned, Habit};
pub use alpha::Alpha;
pub use arrivals::Unevenness;
pub(crate) use calibration::SEVERAL;
pub use calibration::{Calibration, LIKELY};
pub use capacity::{Capacity, KeptCapacity, Mark};
pub use cost::{CostTable, Costs, KeptCosts};
pub use estimates::ClassEstimate;
pub(crate) use estimates::Estimates;
pub use histogram::{DecayedHistogram, KeptHistogram};
pub use rate::{Average, Rate};
pub use reported::Reported;
pub use scale::Scale;
