//! Reports from outside the engine: the sentry's own load now, agents' measurements later.

/// A measurement that drivers bring.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum LoadReport {
    /// Share of the sentry's own processors in use, 0 to 1.
    SentryCpu(f64),
}
