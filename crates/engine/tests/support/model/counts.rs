//! What the model counts.

/// What the model counts of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) offered: u64,
    pub(super) admitted: u64,
    /// Carried out, and in shadow mode only counted.
    pub(super) rejected: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    pub(super) retries: u64,
    pub(super) runaways: u64,
    pub(super) refused_below: u64,
    /// Also of those that nobody waited for.
    pub(super) heard_of_below: bool,
}

/// Over all classes, whatever became of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) offered: u64,
    pub(super) admitted: u64,
    pub(super) refused: u64,
    pub(super) cancelled_waiting: u64,
    pub(super) completed: u64,
    pub(super) runaways: u64,
}
