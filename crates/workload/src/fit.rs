//! Fits of known distributions to a trace, with their distance from it.
//!
//! Parameters are those of maximum likelihood, which are closed formulas for all but two: the index of a Pareto with an
//! upper end is where its likelihood equation (Aban, Meerschaert and Panorska, *Parameter estimation for the truncated
//! Pareto distribution*, 2006) is zero; a lognormal body with a Pareto tail is fitted by a normal probability plot of
//! the body and Hill's estimator for the tail, for several cuts, of which the nearest is kept. Candidates are ranked by
//! Akaike's criterion; the Kolmogorov-Smirnov distance tells how far the best is from the data in absolute terms.
//! With parameters taken from the same data the distance is smaller than its tables say, so no probability is given.
//!
//! A trace may be larger than memory: moments are exact, all else comes from a uniform sample of it of bounded size.

mod candidates;
mod popularity;
mod rates;
mod sample;
mod trace;

pub use candidates::{Fit, fits, kolmogorov_smirnov};
pub use popularity::Popularity;
pub use rates::{RateFit, Rates, Scale};
pub use sample::Sample;
pub use trace::TraceFit;

#[cfg(test)]
mod tests;
